//! `/sim/…`: what a test sees and changes. No token is needed, nothing here is counted.

use std::time::Duration;

use hyper::Method;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::{
    bulk, data::version::Version, http::call::Call, id::Id, ledger::Entry, reply::Reply, sim::Sim,
};

/// Records and entries in one answer, unless fewer are asked for.
const LIST_MAX: usize = 100_000;
/// Rounds that one call can ask for.
const TICKS_MAX: usize = 100_000;

pub(crate) fn route(sim: &Sim, call: &Call, body: &[u8]) -> Reply {
    let segments: Vec<&str> = call.segments[1..].iter().map(String::as_str).collect();
    let reply = match (&call.method, segments.as_slice()) {
        (&Method::GET, ["records", object]) => records(sim, call, object),
        (&Method::GET, ["ledger"]) => Ok(ledger(sim, call)),
        (&Method::GET, ["jobs"]) => Ok(Reply::json(200, bulk::overview(&sim.org()))),
        (&Method::DELETE, ["jobs", id]) => delete_job(sim, id),
        (&Method::GET, ["calls"]) => Ok(Reply::json(200, json!(sim.org().calls))),
        (&Method::GET, ["faults"]) => Ok(Reply::json(200, json!(sim.org().faults.faults()))),
        (&Method::PUT, ["faults"]) => set_faults(sim, body),
        (&Method::POST, ["tick"]) => Ok(tick(sim, call)),
        (&Method::POST, ["clock"]) => skip(sim, body),
        (&Method::POST, ["expire"]) => {
            sim.org().sessions.end_all();
            Ok(Reply::empty(204))
        }
        (&Method::POST, ["reset"]) => {
            sim.org().reset();
            Ok(Reply::empty(204))
        }
        _ => Err(Reply::not_found()),
    };
    sim.wake.notify_one();
    reply.unwrap_or_else(|reply| reply)
}

fn records(sim: &Sim, call: &Call, name: &str) -> Result<Reply, Reply> {
    let org = sim.org();
    let object = org.tables.schema.object(name).ok_or_else(Reply::not_found)?;
    let version = Version::last().to_string();
    let (offset, limit) = range(call);
    let records = org.tables.all(object.index).skip(offset).take(limit);
    let records: Vec<Json> = records.map(|record| record.to_json(object, &version)).collect();
    Ok(Reply::json(200, json!({"totalSize": org.tables.count(object.index), "records": records})))
}

fn ledger(sim: &Sim, call: &Call) -> Reply {
    let org = sim.org();
    let ledger = &org.ledger;
    let (offset, limit) = range(call);
    let fits = |entry: &&Entry| {
        let object = call.query("object").is_none_or(|it| it.eq_ignore_ascii_case(&entry.object));
        let key = call.query("externalId").is_none_or(|it| it == entry.external_id);
        let repeated = call.query("repeated") != Some("true") || entry.is_repeated();
        object && key && repeated
    };
    let entries: Vec<&Entry> = ledger.entries().filter(fits).skip(offset).take(limit).collect();
    Reply::json(
        200,
        json!({
            "records": ledger.len(),
            "writes": ledger.writes(),
            "repeated": ledger.repeated(),
            "entries": entries,
        }),
    )
}

fn range(call: &Call) -> (usize, usize) {
    let number = |name| call.query(name).and_then(|value| value.parse().ok());
    (number("offset").unwrap_or(0), number("limit").unwrap_or(LIST_MAX).min(LIST_MAX))
}

fn delete_job(sim: &Sim, id: &str) -> Result<Reply, Reply> {
    let id = Id::parse(id).ok_or_else(Reply::not_found)?;
    if sim.org().jobs.remove(id) { Ok(Reply::empty(204)) } else { Err(Reply::not_found()) }
}

fn set_faults(sim: &Sim, body: &[u8]) -> Result<Reply, Reply> {
    let faults = serde_json::from_slice(body)
        .map_err(|error| Reply::error(400, "INVALID_FAULTS", &error.to_string()))?;
    sim.org().set_faults(faults);
    Ok(Reply::json(200, json!(sim.org().faults.faults())))
}

fn tick(sim: &Sim, call: &Call) -> Reply {
    let rounds = call.query("rounds").and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    for _ in 0..rounds.min(TICKS_MAX) {
        bulk::tick(sim);
    }
    Reply::json(200, bulk::overview(&sim.org()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Skip {
    skip_seconds: u64,
}

fn skip(sim: &Sim, body: &[u8]) -> Result<Reply, Reply> {
    let wanted: Skip = serde_json::from_slice(body)
        .map_err(|error| Reply::error(400, "INVALID_CLOCK", &error.to_string()))?;
    let mut org = sim.org();
    org.clock.skip(Duration::from_secs(wanted.skip_seconds));
    Ok(Reply::json(200, json!({"now": org.now().to_string()})))
}
