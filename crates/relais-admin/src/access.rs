//! Who may ask, and who may change something.
//!
//! Invariant: with a token, nothing but `/healthz` and `/readyz` answers without it. Without one only
//! loopback listens, and a web page that a person at this machine has open cannot use that: it is
//! known by the names it uses and by what its browser says about it.

use std::net::IpAddr;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use subtle::ConstantTimeEq;

use crate::{Admin, problem::Problem};

/// Lets a request for `/metrics` through, or says why not.
pub(crate) async fn with_token(
    State(admin): State<Admin>,
    request: Request,
    next: Next,
) -> Response {
    match check_token(admin.token.as_deref(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Lets a call of the API through, or says why not.
pub(crate) async fn to_api(State(admin): State<Admin>, request: Request, next: Next) -> Response {
    let mut response = match check(admin.token.as_deref(), request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    // It may hold anybody's data, and is old the moment it is sent.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn check(token: Option<&str>, method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    check_token(token, headers)?;
    if token.is_none() {
        check_host(headers)?;
    }
    if !method.is_safe() {
        check_site(headers)?;
        check_content(headers)?;
    }
    Ok(())
}

fn check_token(token: Option<&str>, headers: &HeaderMap) -> Result<(), Problem> {
    let Some(token) = token else { return Ok(()) };
    let given =
        text(headers, header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
    if given.unwrap_or_default().as_bytes().ct_eq(token.as_bytes()).into() {
        return Ok(());
    }
    let detail = "send the header `authorization: Bearer TOKEN` with the token of `[admin]`";
    Err(Problem::new(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", detail))
}

/// A page of another site can make its own name mean this machine; it cannot make a number do so.
fn check_host(headers: &HeaderMap) -> Result<(), Problem> {
    let host = text(headers, header::HOST).unwrap_or_default();
    if is_this_machine(host) {
        return Ok(());
    }
    let detail = "without `admin.token` the API answers to `localhost` and IP addresses only; set a \
                  token, or ask http://127.0.0.1";
    Err(Problem::new(StatusCode::FORBIDDEN, "HOST_REFUSED", detail))
}

fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
}

/// Browsers say where a request comes from; other programs say nothing and are no danger here.
fn check_site(headers: &HeaderMap) -> Result<(), Problem> {
    let host = text(headers, header::HOST).unwrap_or_default();
    let own = match text(headers, header::ORIGIN) {
        Some(origin) => origin.split_once("://").is_some_and(|(_, from)| from == host),
        None => !headers.contains_key(header::ORIGIN),
    };
    let near = match headers.get("sec-fetch-site").map(|value| value.as_bytes()) {
        None | Some(b"same-origin" | b"none") => true,
        Some(_) => false,
    };
    if own && near {
        return Ok(());
    }
    let detail = "a page of another site must not act here; call from a program or from this site";
    Err(Problem::new(StatusCode::FORBIDDEN, "CROSS_SITE", detail))
}

/// Also a guard: a form of another site cannot send this type.
fn check_content(headers: &HeaderMap) -> Result<(), Problem> {
    let content_type = text(headers, header::CONTENT_TYPE).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let detail = "send JSON with `content-type: application/json`";
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE", detail))
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let parse = |(name, value): &(&str, &str)| {
            (name.parse::<header::HeaderName>().unwrap(), value.parse().unwrap())
        };
        pairs.iter().map(parse).collect()
    }

    fn status(token: Option<&str>, method: &Method, pairs: &[(&str, &str)]) -> u16 {
        let refused = check(token, method, &headers(pairs)).err();
        refused.map_or(200, |problem| problem.into_response().status().as_u16())
    }

    const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");
    const HOST: (&str, &str) = ("host", "127.0.0.1:7070");

    #[test]
    fn a_token_is_needed_where_there_is_one_whatever_is_asked() {
        for method in [Method::GET, Method::POST] {
            assert_eq!(status(Some("t"), &method, &[HOST, JSON]), 401);
            assert_eq!(
                status(Some("t"), &method, &[HOST, JSON, ("authorization", "Bearer x")]),
                401
            );
            assert_eq!(
                status(Some("t"), &method, &[HOST, JSON, ("authorization", "Bearer t")]),
                200
            );
        }
        let elsewhere = [("host", "relais.example"), ("authorization", "Bearer t")];
        assert_eq!(status(Some("t"), &Method::GET, &elsewhere), 200);
    }

    #[test]
    fn without_a_token_a_name_that_may_be_anybodys_is_refused() {
        for host in ["localhost", "LOCALHOST:7070", "127.0.0.1", "[::1]:7070", "10.0.0.1:1"] {
            assert_eq!(status(None, &Method::GET, &[("host", host)]), 200, "{host}");
        }
        for host in ["evil.example:7070", "", "localhost.evil.example", "127.0.0.1.evil.example"] {
            assert_eq!(status(None, &Method::GET, &[("host", host)]), 403, "{host}");
        }
    }

    #[test]
    fn a_page_of_another_site_can_look_at_nothing_it_could_not_and_act_never() {
        let act = |pair| status(None, &Method::POST, &[HOST, JSON, pair]);
        assert_eq!(act(("origin", "http://127.0.0.1:7070")), 200);
        assert_eq!(act(("origin", "https://127.0.0.1:7070")), 200, "behind a proxy with TLS");
        for origin in ["http://evil.example", "http://127.0.0.1:8080", "null", ""] {
            assert_eq!(act(("origin", origin)), 403, "{origin}");
        }
        assert_eq!(act(("sec-fetch-site", "same-origin")), 200);
        assert_eq!(act(("sec-fetch-site", "cross-site")), 403);
        assert_eq!(act(("sec-fetch-site", "same-site")), 403);
    }

    #[test]
    fn what_changes_something_is_json() {
        for content_type in ["text/plain", "application/x-www-form-urlencoded", ""] {
            let pairs = [HOST, ("content-type", content_type)];
            assert_eq!(status(None, &Method::POST, &pairs), 415, "{content_type}");
        }
        assert_eq!(status(None, &Method::POST, &[HOST]), 415);
        assert_eq!(status(None, &Method::POST, &[HOST, JSON]), 200);
    }
}
