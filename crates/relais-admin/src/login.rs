//! Log-in and log-out of the console.

use std::{
    net::SocketAddr,
    time::{Duration, Instant, SystemTime},
};

use axum::{
    Json,
    extract::{ConnectInfo, FromRequest, OriginalUri, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use cookie::Cookie;
use serde::Deserialize;
use serde_json::json;

use crate::{
    Admin, access, input::JsonBody, mount, problem::ApiProblem, serve::EncryptedConnection,
    session, token,
};

/// Largest body of a log-in, which needs no token.
pub(crate) const BODY_MAX: usize = 4 << 10;
/// Time limit for reading that body.
const BODY_TIME: Duration = Duration::from_secs(5);
/// Most log-in bodies read at once.
pub(crate) const AT_ONCE: usize = 16;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoginRequest {
    token: String,
}

/// Exchanges a token for a session cookie. Wrong tokens are throttled by address.
pub(crate) async fn login(
    State(admin): State<Admin>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    (original, uri): (OriginalUri, Uri),
    request: Request,
) -> Result<Response, ApiProblem> {
    let headers = request.headers().clone();
    access::check_site(&headers)?;
    access::check_content(&headers)?;
    let encrypted = request.extensions().get::<EncryptedConnection>().is_some();
    let token = read(&admin, request).await?;
    let now = SystemTime::now();
    // A right token is accepted after any number of wrong ones: only wrong ones are throttled. A token has
    // 256 bits, and comparing costs as much as refusing.
    let Some(found) = token::find(&admin.tokens, token.trim(), now) else {
        if let Some(wait) = admin.throttle.wait(from.ip(), Instant::now()) {
            return Ok(too_often(wait.as_secs() + 1));
        }
        admin.throttle.failed(from.ip(), Instant::now());
        let detail = "the token is unknown or has expired";
        return Err(ApiProblem::new(StatusCode::UNAUTHORIZED, "WRONG_TOKEN", detail));
    };
    let secure = encrypted || came_by_https(&headers);
    let place = (mount::base(&original, &uri), secure);
    let cookie = session::begin(&admin.session_key, found, now, place);
    let said = json!({ "name": found.name, "role": found.role });
    Ok(([(header::SET_COOKIE, value(&cookie))], Json(said)).into_response())
}

/// Reads the token of the body. The number of bodies and their time are bounded: they come without a token,
/// and stalled ones must not use up the connections.
async fn read(admin: &Admin, request: Request) -> Result<String, ApiProblem> {
    let _seat = admin.log_ins.try_acquire().map_err(|_| {
        let detail = "too many log-ins at once; try again";
        ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "BUSY", detail)
    })?;
    let late =
        |_| ApiProblem::new(StatusCode::REQUEST_TIMEOUT, "TIMEOUT", "the body arrived too slowly");
    let read = JsonBody::<LoginRequest>::from_request(request, admin);
    let JsonBody(LoginRequest { token }) =
        tokio::time::timeout(BODY_TIME, read).await.map_err(late)??;
    Ok(token)
}

/// Removes the cookie. The session itself ends when it expires or its token is removed.
pub(crate) async fn logout(
    original: OriginalUri,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiProblem> {
    access::check_site(&headers)?;
    let cookie = session::end((mount::base(&original, &uri), came_by_https(&headers)));
    Ok(([(header::SET_COOKIE, value(&cookie))], StatusCode::NO_CONTENT).into_response())
}

fn value(cookie: &Cookie<'_>) -> HeaderValue {
    let text = cookie.to_string();
    HeaderValue::from_str(&text)
        .expect("the cookie holds Base64, digits, dots and the path of a request")
}

/// Returns true if the proxy or the page reports HTTPS.
fn came_by_https(headers: &HeaderMap) -> bool {
    let starts_with = |name: &str, wanted: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        value.get(..wanted.len()).is_some_and(|start| start.eq_ignore_ascii_case(wanted))
    };
    starts_with("x-forwarded-proto", "https") || starts_with("origin", "https://")
}

fn too_often(seconds: u64) -> Response {
    let detail = format!("too many wrong tokens from this address; try again in {seconds} s");
    let problem = ApiProblem::new(StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_ATTEMPTS", detail);
    let mut response = problem.into_response();
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn https_is_recognized_by_the_proxy_header_or_the_origin() {
        let with = |name: &'static str, value: &'static str| {
            let headers = HeaderMap::from_iter([(
                header::HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )]);
            came_by_https(&headers)
        };
        assert!(with("x-forwarded-proto", "https") && with("origin", "HTTPS://relais.example"));
        assert!(!with("x-forwarded-proto", "http") && !with("host", "https"));
    }
}
