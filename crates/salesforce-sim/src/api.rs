//! One call from its first byte to its last: faults, routing, headers.

use std::time::Duration;

use hyper::{
    Method, Request, Response,
    body::Incoming,
    header::{HeaderName, HeaderValue},
};

use crate::{
    admin, auth, data,
    faults::{HttpAction, HttpFault},
    http::{
        body::{self, ReadError},
        call::HttpCall,
        server::{Answer, ConnectionDropped},
    },
    org::SimulatedOrg,
    page,
    reply::{ApiReply, HTML, Pieces, ReplyContent},
};

/// Maximum size of a body that is not an upload.
pub(crate) const BODY_MAX: u64 = 50 * 1024 * 1024;
const SLOW_DEFAULT: u64 = 1_000;
/// Smaller responses are not compressed.
const PACKED_MIN: usize = 256;

/// Answers one request, or drops it if a fault requires so.
pub(crate) async fn answer(sim: &SimulatedOrg, request: Request<Incoming>, scheme: &str) -> Answer {
    let (call, body) = HttpCall::of(request, scheme);
    match call.segments.first().map(String::as_str) {
        None => {
            let page = page::page(&sim.org());
            return wire(sim, &call, page, None);
        }
        Some("sim") => {
            let reply = match body::read(body, BODY_MAX).await {
                Ok(body) => admin::route(sim, &call, &body),
                Err(error) => unread(&error),
            };
            return wire(sim, &call, reply, None);
        }
        Some(_) => {}
    }
    let fault = sim.org().faults.http(call.method.as_str(), &call.path);
    if let Some(fault) = &fault {
        tokio::time::sleep(Duration::from_millis(fault.delay_ms)).await;
        if fault.action == HttpAction::DropBefore {
            return Err(ConnectionDropped);
        }
        if let Some(reply) = instead(sim, &call, fault) {
            let _ = body::read(body, 0).await;
            return wire(sim, &call, reply, None);
        }
    }
    let reply = route(sim, &call, body).await;
    if fault.as_ref().is_some_and(|fault| fault.action == HttpAction::DropAfter) {
        return Err(ConnectionDropped);
    }
    wire(sim, &call, reply, fault.as_ref())
}

async fn route(sim: &SimulatedOrg, call: &HttpCall, body: Incoming) -> ApiReply {
    let segments: Vec<&str> = call.segments.iter().map(String::as_str).collect();
    let services = segments.first().is_some_and(|first| first.eq_ignore_ascii_case("services"));
    match (services, segments.get(1..).unwrap_or_default()) {
        (true, ["data"]) if !matches!(call.method, Method::GET | Method::HEAD) => {
            ApiReply::method_not_allowed("GET,HEAD")
        }
        (true, ["data"]) => data::versions(),
        (true, ["data", version, rest @ ..]) => data::route(sim, call, version, rest, body).await,
        (true, ["oauth2", ..] | ["Soap", ..]) | (false, _) => {
            match body::read(body, BODY_MAX).await {
                Ok(body) => auth::route(sim, call, &body),
                Err(error) => unread(&error),
            }
        }
        _ => ApiReply::not_found(),
    }
}

pub(crate) fn unread(error: &ReadError) -> ApiReply {
    match error {
        ReadError::TooLarge => {
            ApiReply::error(413, "REQUEST_TOO_LARGE", "the body is larger than the API allows")
        }
        ReadError::Broken => ApiReply::error(400, "CLIENT_ERROR", "the body ended too early"),
    }
}

/// Returns the response of a fault in place of the real one.
fn instead(sim: &SimulatedOrg, call: &HttpCall, fault: &HttpFault) -> Option<ApiReply> {
    let status = |default| fault.status.unwrap_or(default);
    let error = |default_status, code: &str, message: &str| {
        let code = fault.code.as_deref().unwrap_or(code);
        let message = fault.message.as_deref().unwrap_or(message);
        ApiReply::error(status(default_status), code, message)
    };
    let reply = match fault.action {
        HttpAction::SessionExpired => {
            if let Some(token) = call.token() {
                sim.org().sessions.end(token);
            }
            auth::expired()
        }
        HttpAction::TotalLimit => data::total_limit(),
        HttpAction::ConcurrentLimit => {
            let message = "ConcurrentPerOrgLongTxn Limit exceeded.";
            error(403, "REQUEST_LIMIT_EXCEEDED", message)
        }
        HttpAction::Unavailable => {
            let message = "The REST API service is temporarily unavailable.";
            error(503, "SERVER_UNAVAILABLE", message)
        }
        HttpAction::Throttled => error(429, "TOO_MANY_REQUESTS", "slow down"),
        HttpAction::ServerError => {
            let message = "An unexpected error occurred. Please include this ErrorId if you \
                           contact support: 1234567890-12345 (1234567890)";
            error(500, "UNKNOWN_EXCEPTION", message)
        }
        HttpAction::Error => error(400, "API_ERROR", "this error was asked for"),
        HttpAction::OauthError => auth::refused(
            status(400),
            fault.code.as_deref().unwrap_or("invalid_grant"),
            fault.message.as_deref().unwrap_or("user hasn't approved this consumer"),
        ),
        HttpAction::Html => {
            let page = "<html><head><title>Down for maintenance</title></head>\
                        <body>We are down for maintenance.</body></html>";
            ApiReply::text(status(503), HTML, page)
        }
        _ => return None,
    };
    Some(match fault.retry_after {
        Some(seconds) => reply.with("retry-after", seconds.to_string()),
        None => reply,
    })
}

/// Converts a reply to bytes, with the headers of every response.
fn wire(sim: &SimulatedOrg, call: &HttpCall, reply: ApiReply, fault: Option<&HttpFault>) -> Answer {
    let (limits, gzip) = {
        let org = sim.org();
        let faults = org.faults.faults();
        (org.limits.header(&faults.limits, org.now()), faults.gzip)
    };
    let mut response = Response::new(body::empty());
    *response.status_mut() = reply.status.try_into().unwrap_or_default();
    let headers = response.headers_mut();
    let mut set = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.append(HeaderName::from_static(name), value);
        }
    };
    set("sforce-limit-info", &limits);
    for (name, value) in &reply.headers {
        set(name, value);
    }
    let (kind, whole) = match reply.content {
        ReplyContent::Empty => return Ok(response),
        ReplyContent::Json(json) => ("application/json;charset=UTF-8", Ok(json.to_string())),
        ReplyContent::Text { kind, text } => (kind, Ok(text)),
        ReplyContent::Stream { kind, pieces } => (kind, Err(pieces)),
    };
    set("content-type", kind);
    let accepted = call.header("accept-encoding").is_some_and(|value| value.contains("gzip"));
    let worth = whole.as_ref().map_or(true, |text| text.len() >= PACKED_MIN);
    let packed = gzip && accepted && worth;
    if packed {
        set("content-encoding", "gzip");
    }
    if call.method == Method::HEAD {
        return Ok(response);
    }
    *response.body_mut() = match (whole, packed, fault) {
        (Ok(text), false, None) => body::full(text.into_bytes()),
        (whole, packed, fault) => {
            let pieces: Pieces = match whole {
                Ok(text) => Box::new(std::iter::once(text.into())),
                Err(pieces) => pieces,
            };
            sent(if packed { body::packed(pieces) } else { pieces }, fault)
        }
    };
    Ok(response)
}

fn sent(pieces: Pieces, fault: Option<&HttpFault>) -> body::WireBody {
    let Some(fault) = fault else { return body::pieces(pieces) };
    match fault.action {
        HttpAction::Slow => body::slow(pieces, fault.bytes.unwrap_or(SLOW_DEFAULT)),
        HttpAction::Truncate => body::cut(pieces, fault.bytes.unwrap_or_default(), false),
        HttpAction::Break => body::cut(pieces, fault.bytes.unwrap_or_default(), true),
        _ => body::pieces(pieces),
    }
}
