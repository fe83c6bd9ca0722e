//! How a person's session begins and ends.

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
    Admin, access, input::Body, mount, problem::Problem, serve::Encrypted, session, token,
};

/// Largest body of a log-in: anybody may send one.
pub(crate) const BODY_MAX: usize = 4 << 10;
/// How long it may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(5);
/// Bodies of log-ins read at once.
pub(crate) const AT_ONCE: usize = 16;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Login {
    token: String,
}

/// Gives a cookie for a token. An address that shows too many wrong tokens waits before the next wrong one.
pub(crate) async fn login(
    State(admin): State<Admin>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    (original, uri): (OriginalUri, Uri),
    request: Request,
) -> Result<Response, Problem> {
    let headers = request.headers().clone();
    access::check_site(&headers)?;
    access::check_content(&headers)?;
    let encrypted = request.extensions().get::<Encrypted>().is_some();
    let token = read(&admin, request).await?;
    let now = SystemTime::now();
    // The right token opens the door however many wrong ones were shown: only those are counted. A token
    // has 256 bits, and comparing costs as much as refusing.
    let Some(found) = token::find(&admin.tokens, token.trim(), now) else {
        if let Some(wait) = admin.throttle.wait(from.ip(), Instant::now()) {
            return Ok(too_often(wait.as_secs() + 1));
        }
        admin.throttle.failed(from.ip(), Instant::now());
        let detail = "no such token, or it has expired";
        return Err(Problem::new(StatusCode::UNAUTHORIZED, "WRONG_TOKEN", detail));
    };
    let secure = encrypted || came_by_https(&headers);
    let place = (mount::base(&original, &uri), secure);
    let cookie = session::begin(&admin.session_key, found, now, place);
    let said = json!({ "name": found.name, "role": found.role });
    Ok(([(header::SET_COOKIE, value(&cookie))], Json(said)).into_response())
}

/// The token of the body. Few bodies are read at once, and not for long: they come without a token, and stalled
/// ones must not use up the connections.
async fn read(admin: &Admin, request: Request) -> Result<String, Problem> {
    let _seat = admin.log_ins.try_acquire().map_err(|_| {
        let detail = "too many log-ins at once; try again";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "BUSY", detail)
    })?;
    let late = |_| Problem::new(StatusCode::REQUEST_TIMEOUT, "TIMEOUT", "the body came too slowly");
    let read = Body::<Login>::from_request(request, admin);
    let Body(Login { token }) = tokio::time::timeout(BODY_TIME, read).await.map_err(late)??;
    Ok(token)
}

/// Takes the cookie away. The session itself ends when its time is over, or with its token.
pub(crate) async fn logout(
    original: OriginalUri,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    access::check_site(&headers)?;
    let cookie = session::end((mount::base(&original, &uri), came_by_https(&headers)));
    Ok(([(header::SET_COOKIE, value(&cookie))], StatusCode::NO_CONTENT).into_response())
}

fn value(cookie: &Cookie<'_>) -> HeaderValue {
    let text = cookie.to_string();
    HeaderValue::from_str(&text).expect("Base64, numbers, dots and a path that came in a request")
}

/// As the proxy before us says, or the page that asks.
fn came_by_https(headers: &HeaderMap) -> bool {
    let says = |name: &str, wanted: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        value.get(..wanted.len()).is_some_and(|start| start.eq_ignore_ascii_case(wanted))
    };
    says("x-forwarded-proto", "https") || says("origin", "https://")
}

fn too_often(seconds: u64) -> Response {
    let detail = format!("too many wrong tokens from this address; try again in {seconds} s");
    let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_ATTEMPTS", detail);
    let mut response = problem.into_response();
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_or_the_page_says_that_it_came_by_https() {
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
