//! `/services/data`: versions, authentication, the daily limit, and then the resource.

mod describe;
pub(crate) mod version;

use hyper::{Method, body::Incoming};
use serde_json::Value as Json;

use crate::{
    api::{BODY_MAX, unread},
    auth, bulk, collections, composite,
    http::{body, call::HttpCall},
    id::Id,
    org::{OrgState, SimulatedOrg},
    reply::ApiReply,
    rows::{self, RowCall},
    soql,
};
use version::Version;

/// The user and API version of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OrgCaller {
    pub(crate) version: Version,
    pub(crate) user: Id,
}

pub(crate) fn versions() -> ApiReply {
    let all: Vec<Json> = Version::all().map(Version::to_json).collect();
    ApiReply::json(200, all.into())
}

pub(crate) async fn route(
    sim: &SimulatedOrg,
    call: &HttpCall,
    version: &str,
    rest: &[&str],
    body: Incoming,
) -> ApiReply {
    let caller = match admit(sim, call, version, rest) {
        Ok(caller) => caller,
        Err(reply) => {
            let _ = body::read(body, 0).await;
            return reply;
        }
    };
    if let ["jobs", "ingest", id, "batches"] = rest {
        return bulk::upload(sim, call, id, body).await;
    }
    match body::read(body, BODY_MAX).await {
        Ok(body) => {
            let reply = dispatch(&mut sim.org(), call, caller, rest, &body);
            sim.wake.notify_one();
            reply
        }
        Err(error) => unread(&error),
    }
}

pub(crate) fn total_limit() -> ApiReply {
    ApiReply::error(403, "REQUEST_LIMIT_EXCEEDED", "TotalRequests Limit exceeded.")
}

/// Admits a call and counts it.
fn admit(
    sim: &SimulatedOrg,
    call: &HttpCall,
    version: &str,
    rest: &[&str],
) -> Result<OrgCaller, ApiReply> {
    let version = Version::parse(version).ok_or_else(ApiReply::not_found)?;
    let mut org = sim.org();
    let now = org.now();
    let seconds = sim.auth.session_seconds;
    let user = call.token().and_then(|token| org.sessions.user(token, now, seconds));
    let user = user.ok_or_else(auth::expired)?;
    let settings = &org.faults.faults().limits;
    if org.limits.api_used(settings, now) >= settings.api_max {
        return Err(total_limit());
    }
    org.limits.api.add(now, 1);
    org.count_call(shape(&call.method, rest));
    Ok(OrgCaller { version, user })
}

/// Returns the call with variable parts replaced by placeholders.
fn shape(method: &Method, rest: &[&str]) -> String {
    let path = match rest {
        ["jobs", kind, _, more @ ..] => [&["jobs", kind, "{id}"], more].concat(),
        ["sobjects", object, "describe"] => vec!["sobjects", object, "describe"],
        ["sobjects", object, _] => vec!["sobjects", object, "{id}"],
        ["sobjects", object, field, _] => vec!["sobjects", object, field, "{value}"],
        ["query", _] => vec!["query", "{locator}"],
        other => other.to_vec(),
    };
    format!("{method} {}", path.join("/"))
}

fn dispatch(
    org: &mut OrgState,
    call: &HttpCall,
    caller: OrgCaller,
    rest: &[&str],
    body: &[u8],
) -> ApiReply {
    let version = caller.version;
    let reads = call.method == Method::GET || call.method == Method::HEAD;
    match rest {
        // These resources are read-only.
        []
        | ["limits" | "sobjects"]
        | ["sobjects", _, "describe"]
        | ["query" | "queryAll" | "queryall", ..]
            if !reads =>
        {
            ApiReply::method_not_allowed("GET,HEAD")
        }
        [] => describe::resources(call, caller),
        ["limits"] => {
            ApiReply::json(200, org.limits.to_json(&org.faults.faults().limits, org.now()))
        }
        ["sobjects"] => describe::all(&org.tables.schema, version),
        ["sobjects", object] if call.method == Method::GET => describe::basic(org, object, version),
        ["sobjects", object, "describe"] => describe::object(&org.tables.schema, object, version),
        ["sobjects", ..] => row(org, call, caller, rest, body),
        ["query" | "queryAll" | "queryall"] => soql::query(org, call, version),
        ["query" | "queryAll" | "queryall", locator] => soql::more(org, locator),
        ["composite", "sobjects", rest @ ..] => collections::route(org, call, version, rest, body),
        ["composite"] => composite::composite(org, call, body),
        ["composite", "graph"] => composite::graph::graph(org, call, version, body),
        ["jobs", "ingest", rest @ ..] => bulk::route(org, call, caller, rest, body),
        ["jobs", "query", rest @ ..] => bulk::query::route(org, call, caller, rest, body),
        _ => ApiReply::not_found(),
    }
}

fn row(
    org: &mut OrgState,
    call: &HttpCall,
    caller: OrgCaller,
    rest: &[&str],
    body: &[u8],
) -> ApiReply {
    let json = match parse(body) {
        Ok(json) => json,
        Err(reply) => return reply,
    };
    let segments: Vec<String> = rest[1..].iter().map(|part| (*part).to_owned()).collect();
    let row = RowCall {
        version: caller.version,
        method: &call.method,
        segments: &segments,
        query: &call.query,
        body: json.as_ref(),
    };
    let (mut transaction, ledger) = org.begin();
    let reply = rows::call(&mut transaction, &row);
    if reply.is_success() {
        transaction.commit(ledger);
    }
    reply
}

/// Parses the JSON of a body; `None` if it is empty.
pub(crate) fn parse(body: &[u8]) -> Result<Option<Json>, ApiReply> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    serde_json::from_slice(body).map(Some).map_err(|error| ApiReply::bad_json(&error.to_string()))
}

/// Parses the JSON of a body that must not be empty.
pub(crate) fn parse_some(body: &[u8]) -> Result<Json, ApiReply> {
    parse(body)?
        .ok_or_else(|| ApiReply::bad_json("No content to map to Object due to end of input"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_are_counted_by_their_shape() {
        for (rest, expected) in [
            (&["jobs", "ingest"][..], "GET jobs/ingest"),
            (&["jobs", "ingest", "750x", "failedResults"], "GET jobs/ingest/{id}/failedResults"),
            (&["sobjects", "A", "E__c", "1"], "GET sobjects/A/E__c/{value}"),
            (&["sobjects", "A", "describe"], "GET sobjects/A/describe"),
            (&["query", "01g"], "GET query/{locator}"),
        ] {
            assert_eq!(shape(&Method::GET, rest), expected);
        }
    }

    #[test]
    fn a_body_that_is_not_json_is_refused() {
        assert!(parse(b" \n").unwrap().is_none());
        assert_eq!(parse(b"{\"a\": 1}").unwrap(), Some(json!({"a": 1})));
        assert_eq!(parse(b"{").unwrap_err().status, 400);
        assert_eq!(parse_some(b"").unwrap_err().status, 400);
    }
}
