//! Who asks, and whether they may.
//!
//! Invariant: where there are tokens, nothing but `/healthz`, `/readyz`, the console's files and `/login`
//! answers without one, and every call of the API is allowed by the role its line in the table of routes
//! names. Without tokens only loopback listens, and a web page that a person at this machine has open
//! cannot use that: it is known by the names it uses and by what its browser says about it.

use std::{net::IpAddr, time::SystemTime};

use axum::{
    extract::{FromRequestParts, Request, State},
    http::{HeaderMap, Method, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use subtle::ConstantTimeEq;

use crate::{
    Admin, Role,
    problem::Problem,
    redact::redact,
    session::{self, Session},
    token,
};

/// The header that repeats the session's CSRF token.
pub(crate) const CSRF_HEADER: &str = "x-csrf-token";

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) role: Role,
    pub(crate) identity: Identity,
}

#[derive(Clone, Debug)]
pub(crate) enum Identity {
    /// There are no tokens: somebody at this machine, who says who they are.
    Anybody,
    /// A token that several people share: whoever uses it says who they are.
    Shared { name: String, session: Option<Session> },
    /// Somebody's own token.
    Named { name: String, session: Option<Session> },
}

impl Identity {
    pub(crate) fn session(&self) -> Option<&Session> {
        match self {
            Self::Anybody => None,
            Self::Shared { session, .. } | Self::Named { session, .. } => session.as_ref(),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get().cloned().ok_or_else(unauthorized)
    }
}

/// Finds out who asks, before anything else about the request is judged.
pub(crate) async fn identify(
    State(admin): State<Admin>,
    mut request: Request,
    next: Next,
) -> Response {
    match caller(&admin, request.headers()) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

/// Lets a request through that somebody of this role, or of a higher one, makes; or says why not.
pub(crate) async fn guard(State(role): State<Role>, request: Request, next: Next) -> Response {
    let allowed = match request.extensions().get::<Caller>() {
        Some(caller) => check(caller, role, request.method(), request.headers()),
        None => Err(unauthorized()),
    };
    let sees_payloads =
        request.extensions().get::<Caller>().is_some_and(|caller| caller.role >= Role::Viewer);
    match allowed {
        Ok(()) if sees_payloads => next.run(request).await,
        Ok(()) => redact(next.run(request).await).await,
        Err(problem) => problem.into_response(),
    }
}

fn check(caller: &Caller, role: Role, method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    if !method.is_safe() {
        check_site(headers)?;
        check_csrf(caller.identity.session(), headers)?;
    }
    if caller.role < role {
        return Err(not_allowed(caller, role));
    }
    if !method.is_safe() {
        check_content(headers)?;
    }
    Ok(())
}

pub(crate) fn not_allowed(caller: &Caller, role: Role) -> Problem {
    let (has, needs) = (caller.role.as_str(), role.as_str());
    let detail = format!("this needs the role {needs}; this token has the role {has}");
    Problem::new(StatusCode::FORBIDDEN, "ROLE", detail)
}

/// By token, by session, or by being at this machine.
pub(crate) fn caller(admin: &Admin, headers: &HeaderMap) -> Result<Caller, Problem> {
    if admin.tokens.is_empty() {
        check_host(headers)?;
        return Ok(Caller { role: Role::Admin, identity: Identity::Anybody });
    }
    let now = SystemTime::now();
    let named = |token: &token::Token, session: Option<Session>| {
        let name = token.name.clone();
        let identity = if token.is_shared() {
            Identity::Shared { name, session }
        } else {
            Identity::Named { name, session }
        };
        Caller { role: token.role, identity }
    };
    // Whoever shows a token means it; a cookie comes by itself.
    if headers.contains_key(header::AUTHORIZATION) {
        let shown = bearer(headers).ok_or_else(unauthorized)?;
        let token = token::find(&admin.tokens, shown, now).ok_or_else(unauthorized)?;
        return Ok(named(token, None));
    }
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let cookie = session::of_cookies(cookies).ok_or_else(unauthorized)?;
    let (session, token) =
        session::read(&admin.session_key, &admin.tokens, cookie, now).ok_or_else(session_over)?;
    Ok(named(token, Some(session)))
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = text(headers, header::AUTHORIZATION)?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

pub(crate) fn unauthorized() -> Problem {
    let detail =
        "send the header `authorization: Bearer TOKEN` with a token of `[admin]`, or log in";
    Problem::new(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", detail)
}

fn session_over() -> Problem {
    let detail = "this session has ended; log in again";
    Problem::new(StatusCode::UNAUTHORIZED, "SESSION_ENDED", detail)
}

/// A page of another site can make its own name mean this machine; it cannot make a number do so.
pub(crate) fn check_host(headers: &HeaderMap) -> Result<(), Problem> {
    let host = text(headers, header::HOST).unwrap_or_default();
    if is_this_machine(host) {
        return Ok(());
    }
    let detail = "without a token the API answers to `localhost` and IP addresses only; set \
                  `admin.token`, or ask http://127.0.0.1";
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
pub(crate) fn check_site(headers: &HeaderMap) -> Result<(), Problem> {
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

/// A cookie is sent by the browser whoever asked it to; the header only by our own page.
fn check_csrf(session: Option<&Session>, headers: &HeaderMap) -> Result<(), Problem> {
    let Some(session) = session else { return Ok(()) };
    let given = headers.get(CSRF_HEADER).map(|value| value.as_bytes()).unwrap_or_default();
    if given.ct_eq(session.csrf.as_bytes()).into() {
        return Ok(());
    }
    let detail = "send the header `x-csrf-token` with `csrf` of GET /api/v1/session";
    Err(Problem::new(StatusCode::FORBIDDEN, "CSRF", detail))
}

/// Also a guard: a form of another site cannot send this type.
pub(crate) fn check_content(headers: &HeaderMap) -> Result<(), Problem> {
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
#[path = "access_tests.rs"]
mod tests;
