//! Authentication and authorization of requests.
//!
//! Invariant: if tokens are configured, only `/healthz`, `/readyz`, the console's files and `/login` are served
//! without one, and each API route needs the role of its row in the table of routes. Without tokens the server
//! listens on loopback only. Pages of other sites in a browser on this machine are rejected by their `Host`,
//! `Origin` and `Sec-Fetch-Site` headers.

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
    problem::ApiProblem,
    redact::redact,
    session::{self, ConsoleSession},
    token,
};

/// The header that repeats the session's CSRF token.
pub(crate) const CSRF_HEADER: &str = "x-csrf-token";

/// The caller of a request.
#[derive(Clone, Debug)]
pub(crate) struct AdminCaller {
    pub(crate) role: Role,
    pub(crate) identity: CallerIdentity,
}

#[derive(Clone, Debug)]
pub(crate) enum CallerIdentity {
    /// A caller on this machine, while no tokens are configured; the request names the actor.
    Local,
    /// The shared `admin.token`; the request names the actor.
    Shared { name: String, session: Option<ConsoleSession> },
    /// A personal token, which names the actor.
    Named { name: String, session: Option<ConsoleSession> },
}

impl CallerIdentity {
    pub(crate) fn session(&self) -> Option<&ConsoleSession> {
        match self {
            Self::Local => None,
            Self::Shared { session, .. } | Self::Named { session, .. } => session.as_ref(),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for AdminCaller {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiProblem> {
        parts.extensions.get().cloned().ok_or_else(unauthorized)
    }
}

/// Authenticates the caller before the rest of the request is checked.
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

/// Serves the request if the caller has this role or a higher one, and answers with a problem otherwise.
pub(crate) async fn guard(State(role): State<Role>, request: Request, next: Next) -> Response {
    let allowed = match request.extensions().get::<AdminCaller>() {
        Some(caller) => check(caller, role, request.method(), request.headers()),
        None => Err(unauthorized()),
    };
    let sees_payloads =
        request.extensions().get::<AdminCaller>().is_some_and(|caller| caller.role >= Role::Viewer);
    match allowed {
        Ok(()) if sees_payloads => next.run(request).await,
        Ok(()) => redact(next.run(request).await).await,
        Err(problem) => problem.into_response(),
    }
}

fn check(
    caller: &AdminCaller,
    role: Role,
    method: &Method,
    headers: &HeaderMap,
) -> Result<(), ApiProblem> {
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

pub(crate) fn not_allowed(caller: &AdminCaller, role: Role) -> ApiProblem {
    let (has, needs) = (caller.role.as_str(), role.as_str());
    let detail = format!("this needs the role {needs}; this token has the role {has}");
    ApiProblem::new(StatusCode::FORBIDDEN, "ROLE", detail)
}

/// Authenticates by token, by session cookie, or as a caller on this machine.
pub(crate) fn caller(admin: &Admin, headers: &HeaderMap) -> Result<AdminCaller, ApiProblem> {
    if admin.tokens.is_empty() {
        check_host(headers)?;
        return Ok(AdminCaller { role: Role::Admin, identity: CallerIdentity::Local });
    }
    let now = SystemTime::now();
    let named = |token: &token::AdminToken, session: Option<ConsoleSession>| {
        let name = token.name.clone();
        let identity = if token.is_shared() {
            CallerIdentity::Shared { name, session }
        } else {
            CallerIdentity::Named { name, session }
        };
        AdminCaller { role: token.role, identity }
    };
    // A bearer token is sent deliberately; browsers attach cookies by themselves, so only cookies need a
    // CSRF check.
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

pub(crate) fn unauthorized() -> ApiProblem {
    let detail =
        "send the header `authorization: Bearer TOKEN` with a token of `[admin]`, or log in";
    ApiProblem::new(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", detail)
}

fn session_over() -> ApiProblem {
    let detail = "this session has ended; log in again";
    ApiProblem::new(StatusCode::UNAUTHORIZED, "SESSION_ENDED", detail)
}

/// Rejects host names other than `localhost`: by DNS rebinding, a page of another site can make its own
/// name resolve to this machine, but it cannot do so with an IP address.
pub(crate) fn check_host(headers: &HeaderMap) -> Result<(), ApiProblem> {
    let host = text(headers, header::HOST).unwrap_or_default();
    if is_this_machine(host) {
        return Ok(());
    }
    let detail = "cannot serve this host name without a token; set `admin.token`, or use \
                  http://127.0.0.1 or http://localhost";
    Err(ApiProblem::new(StatusCode::FORBIDDEN, "HOST_REFUSED", detail))
}

fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
}

/// Rejects requests of other sites. Browsers send these headers; programs that send none are not at risk.
pub(crate) fn check_site(headers: &HeaderMap) -> Result<(), ApiProblem> {
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
    let detail = "cannot accept a request from a page of another site; call the API from this site or \
                  from a program";
    Err(ApiProblem::new(StatusCode::FORBIDDEN, "CROSS_SITE", detail))
}

/// Checks the CSRF header: a browser sends the cookie for any site, but only our page knows the header.
fn check_csrf(session: Option<&ConsoleSession>, headers: &HeaderMap) -> Result<(), ApiProblem> {
    let Some(session) = session else { return Ok(()) };
    let given = headers.get(CSRF_HEADER).map(|value| value.as_bytes()).unwrap_or_default();
    if given.ct_eq(session.csrf.as_bytes()).into() {
        return Ok(());
    }
    let detail = "send the header `x-csrf-token` with `csrf` of GET /api/v1/session";
    Err(ApiProblem::new(StatusCode::FORBIDDEN, "CSRF", detail))
}

/// Checks the content type. It also protects against forms of other sites, which cannot send this type.
pub(crate) fn check_content(headers: &HeaderMap) -> Result<(), ApiProblem> {
    let content_type = text(headers, header::CONTENT_TYPE).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let detail = "send JSON with `content-type: application/json`";
    Err(ApiProblem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE", detail))
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
