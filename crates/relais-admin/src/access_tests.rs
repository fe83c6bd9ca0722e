//! Requests that are allowed and requests that are rejected.

use super::*;

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let parse = |(name, value): &(&str, &str)| {
        (name.parse::<header::HeaderName>().unwrap(), value.parse().unwrap())
    };
    pairs.iter().map(parse).collect()
}

fn status(method: &Method, pairs: &[(&str, &str)]) -> u16 {
    let caller = AdminCaller { role: Role::Operator, identity: CallerIdentity::Local };
    status_of(check(&caller, Role::Operator, method, &headers(pairs)))
}

fn status_of(checked: Result<(), ApiProblem>) -> u16 {
    checked.err().map_or(200, |problem| problem.into_response().status().as_u16())
}

const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");
const HOST: (&str, &str) = ("host", "127.0.0.1:7070");

#[test]
fn without_a_token_foreign_host_names_are_refused() {
    let host = |host| status_of(check_host(&headers(&[("host", host)])));
    for name in ["localhost", "LOCALHOST:7070", "127.0.0.1", "[::1]:7070", "10.0.0.1:1"] {
        assert_eq!(host(name), 200, "{name}");
    }
    for name in ["evil.example:7070", "", "localhost.evil.example", "127.0.0.1.evil.example"] {
        assert_eq!(host(name), 403, "{name}");
    }
}

#[test]
fn a_page_of_another_site_cannot_act() {
    let act = |pair| status(&Method::POST, &[HOST, JSON, pair]);
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
fn a_request_that_changes_something_must_be_json() {
    for content_type in ["text/plain", "application/x-www-form-urlencoded", ""] {
        let pairs = [HOST, ("content-type", content_type)];
        assert_eq!(status(&Method::POST, &pairs), 415, "{content_type}");
    }
    assert_eq!(status(&Method::POST, &[HOST]), 415);
    assert_eq!(status(&Method::POST, &[HOST, JSON]), 200);
    assert_eq!(status(&Method::GET, &[HOST]), 200);
}

#[test]
fn each_role_includes_the_lower_ones() {
    for (has, has_rank) in Role::ALL.into_iter().zip(0..) {
        for (needs, needs_rank) in Role::ALL.into_iter().zip(0..) {
            let caller = AdminCaller { role: has, identity: CallerIdentity::Local };
            let status = status_of(check(&caller, needs, &Method::GET, &headers(&[HOST])));
            assert_eq!(status, if has_rank >= needs_rank { 200 } else { 403 }, "{has:?} {needs:?}");
        }
    }
}

#[test]
fn a_session_acts_only_with_its_csrf_token_in_the_header() {
    let session = ConsoleSession { name: "ann".into(), expires: 9, csrf: "right".into() };
    let identity = CallerIdentity::Named { name: "ann".into(), session: Some(session) };
    let caller = AdminCaller { role: Role::Admin, identity };
    let act = |method: &Method, pairs: &[(&str, &str)]| {
        status_of(check(&caller, Role::Admin, method, &headers(&[&[HOST, JSON], pairs].concat())))
    };
    assert_eq!(act(&Method::POST, &[(CSRF_HEADER, "right")]), 200);
    assert_eq!(act(&Method::POST, &[(CSRF_HEADER, "wrong")]), 403);
    assert_eq!(act(&Method::POST, &[]), 403);
    assert_eq!(act(&Method::GET, &[]), 200);
}

#[test]
fn the_authorization_scheme_is_case_insensitive() {
    let bearer = |value: &str| bearer(&headers(&[("authorization", value)])).map(str::to_owned);
    assert_eq!(bearer("Bearer t").as_deref(), Some("t"));
    assert_eq!(bearer("bearer t").as_deref(), Some("t"));
    assert_eq!((bearer("t"), bearer("Basic t")), (None, None));
}
