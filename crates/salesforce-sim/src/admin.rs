//! `/sim/…`: the control interface for tests. Needs no token, and its calls are not counted.

use std::time::Duration;

use hyper::Method;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::{
    bulk, data::version::Version, http::call::HttpCall, id::Id, ledger::LedgerEntry,
    org::SimulatedOrg, reply::ApiReply,
};

/// Maximum number of records or entries in one response.
const LIST_MAX: usize = 100_000;
/// Maximum number of rounds per call.
const TICKS_MAX: usize = 100_000;

pub(crate) fn route(sim: &SimulatedOrg, call: &HttpCall, body: &[u8]) -> ApiReply {
    let segments: Vec<&str> = call.segments[1..].iter().map(String::as_str).collect();
    let reply = match (&call.method, segments.as_slice()) {
        (&Method::GET, ["records", object]) => records(sim, call, object),
        (&Method::GET, ["ledger"]) => Ok(ledger(sim, call)),
        (&Method::GET, ["jobs"]) => Ok(ApiReply::json(200, bulk::overview(&sim.org()))),
        (&Method::DELETE, ["jobs", id]) => delete_job(sim, id),
        (&Method::GET, ["calls"]) => Ok(ApiReply::json(200, json!(sim.org().calls))),
        (&Method::GET, ["faults"]) => Ok(ApiReply::json(200, json!(sim.org().faults.faults()))),
        (&Method::PUT, ["faults"]) => set_faults(sim, body),
        (&Method::POST, ["tick"]) => Ok(tick(sim, call)),
        (&Method::POST, ["clock"]) => skip(sim, body),
        (&Method::POST, ["expire"]) => {
            sim.org().sessions.end_all();
            Ok(ApiReply::empty(204))
        }
        (&Method::POST, ["reset"]) => {
            sim.org().reset();
            Ok(ApiReply::empty(204))
        }
        _ => Err(ApiReply::not_found()),
    };
    sim.wake.notify_one();
    reply.unwrap_or_else(|reply| reply)
}

fn records(sim: &SimulatedOrg, call: &HttpCall, name: &str) -> Result<ApiReply, ApiReply> {
    let org = sim.org();
    let object = org.tables.schema.object(name).ok_or_else(ApiReply::not_found)?;
    let version = Version::last().to_string();
    let (offset, limit) = range(call);
    let records = org.tables.all(object.index).skip(offset).take(limit);
    let records: Vec<Json> = records.map(|record| record.to_json(object, &version)).collect();
    Ok(ApiReply::json(
        200,
        json!({"totalSize": org.tables.count(object.index), "records": records}),
    ))
}

fn ledger(sim: &SimulatedOrg, call: &HttpCall) -> ApiReply {
    let org = sim.org();
    let ledger = &org.ledger;
    let (offset, limit) = range(call);
    let fits = |entry: &&LedgerEntry| {
        let object = call.query("object").is_none_or(|it| it.eq_ignore_ascii_case(&entry.object));
        let key = call.query("externalId").is_none_or(|it| it == entry.external_id);
        let repeated = call.query("repeated") != Some("true") || entry.is_repeated();
        object && key && repeated
    };
    let entries: Vec<&LedgerEntry> =
        ledger.entries().filter(fits).skip(offset).take(limit).collect();
    ApiReply::json(
        200,
        json!({
            "records": ledger.len(),
            "writes": ledger.writes(),
            "repeated": ledger.repeated(),
            "entries": entries,
        }),
    )
}

fn range(call: &HttpCall) -> (usize, usize) {
    let number = |name| call.query(name).and_then(|value| value.parse().ok());
    (number("offset").unwrap_or(0), number("limit").unwrap_or(LIST_MAX).min(LIST_MAX))
}

fn delete_job(sim: &SimulatedOrg, id: &str) -> Result<ApiReply, ApiReply> {
    let id = Id::parse(id).ok_or_else(ApiReply::not_found)?;
    if sim.org().jobs.remove(id) { Ok(ApiReply::empty(204)) } else { Err(ApiReply::not_found()) }
}

fn set_faults(sim: &SimulatedOrg, body: &[u8]) -> Result<ApiReply, ApiReply> {
    let faults = serde_json::from_slice(body)
        .map_err(|error| ApiReply::error(400, "INVALID_FAULTS", &error.to_string()))?;
    sim.org().set_faults(faults);
    Ok(ApiReply::json(200, json!(sim.org().faults.faults())))
}

fn tick(sim: &SimulatedOrg, call: &HttpCall) -> ApiReply {
    let rounds = call.query("rounds").and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    for _ in 0..rounds.min(TICKS_MAX) {
        bulk::tick(sim);
    }
    ApiReply::json(200, bulk::overview(&sim.org()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClockSkip {
    skip_seconds: u64,
}

fn skip(sim: &SimulatedOrg, body: &[u8]) -> Result<ApiReply, ApiReply> {
    let wanted: ClockSkip = serde_json::from_slice(body)
        .map_err(|error| ApiReply::error(400, "INVALID_CLOCK", &error.to_string()))?;
    let mut org = sim.org();
    org.clock.skip(Duration::from_secs(wanted.skip_seconds));
    Ok(ApiReply::json(200, json!({"now": org.now().to_string()})))
}
