//! How a person's session begins and ends.

use std::{
    net::SocketAddr,
    time::{Instant, SystemTime},
};

use axum::{
    Json,
    extract::{ConnectInfo, OriginalUri, State},
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::json;

use crate::{
    Admin, access,
    input::Body,
    mount,
    problem::Problem,
    session::{self, COOKIE, LIFE},
    token,
};

/// Largest body of a log-in: anybody may send one.
pub(crate) const BODY_MAX: usize = 4 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Login {
    token: String,
}

/// A cookie for a token. Whoever fails too often waits.
pub(crate) async fn login(
    State(admin): State<Admin>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    (original, uri): (OriginalUri, Uri),
    headers: HeaderMap,
    body: Result<Body<Login>, Problem>,
) -> Result<Response, Problem> {
    access::check_site(&headers)?;
    access::check_content(&headers)?;
    if let Some(wait) = admin.throttle.wait(from.ip(), Instant::now()) {
        return Ok(too_often(wait.as_secs() + 1));
    }
    let Body(Login { token }) = body?;
    let now = SystemTime::now();
    let Some(found) = token::find(&admin.tokens, token.trim(), now) else {
        admin.throttle.failed(from.ip(), Instant::now());
        let detail = "no such token, or it has expired";
        return Err(Problem::new(StatusCode::UNAUTHORIZED, "WRONG_TOKEN", detail));
    };
    let value = session::begin(&admin.session_key, found, now);
    let cookie = cookie(&value, LIFE.as_secs(), mount::base(&original, &uri), &headers);
    let said = json!({ "name": found.name, "role": found.role });
    Ok(([(header::SET_COOKIE, cookie)], Json(said)).into_response())
}

/// Takes the cookie away. The session itself ends when its time is over, or with its token.
pub(crate) async fn logout(
    original: OriginalUri,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    access::check_site(&headers)?;
    let cookie = cookie("", 0, mount::base(&original, &uri), &headers);
    Ok(([(header::SET_COOKIE, cookie)], StatusCode::NO_CONTENT).into_response())
}

/// It is for the path under which the console is, and not for the service around it.
fn cookie(value: &str, seconds: u64, base: &str, headers: &HeaderMap) -> HeaderValue {
    let secure = if came_by_https(headers) { "; Secure" } else { "" };
    let text = format!(
        "{COOKIE}={value}; HttpOnly; SameSite=Strict; Path={base}/; Max-Age={seconds}{secure}"
    );
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
    fn a_cookie_that_came_by_https_goes_by_https_only() {
        let with = |name: &'static str, value: &'static str| {
            let headers = HeaderMap::from_iter([(
                header::HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )]);
            cookie("x", 5, "", &headers).to_str().unwrap().contains("; Secure")
        };
        assert!(with("x-forwarded-proto", "https") && with("origin", "HTTPS://relais.example"));
        assert!(!with("x-forwarded-proto", "http") && !with("host", "https"));
        let plain = cookie("x", 5, "", &HeaderMap::new());
        assert_eq!(plain, "relais_session=x; HttpOnly; SameSite=Strict; Path=/; Max-Age=5");
        let nested = cookie("x", 5, "/ops/relais", &HeaderMap::new());
        assert!(nested.to_str().unwrap().contains("; Path=/ops/relais/;"));
    }
}
