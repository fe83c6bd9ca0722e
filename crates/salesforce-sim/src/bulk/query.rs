//! Bulk API 2.0 query: jobs whose result is a CSV, read in pages.
//!
//! A job runs the query when it begins to work; pages come from what it found then.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hyper::Method;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tokio::time::Instant;

use super::{
    State,
    csv::{LineEnding, push_quoted},
    engine::after_ms,
    invalid_state,
    job::{delimiter, line_ending},
};
use crate::{
    clock::written,
    data::{Caller, parse_some},
    http::call::Call,
    id::Id,
    reply::{CSV, Reply},
    sim::Org,
    soql::{self, QueryTable},
    store::Tables,
};

/// Rows of a page unless the client asks for fewer.
const PAGE_ROWS: usize = 50_000;
/// Jobs that are kept; the oldest goes first.
const JOBS_MAX: usize = 1_000;
/// Jobs in one page of the list.
const LIST_MAX: usize = 1_000;

#[derive(Debug, Default)]
pub(crate) struct QueryJobs {
    jobs: BTreeMap<Id, QueryJob>,
    opened: u64,
}

#[derive(Debug)]
struct QueryJob {
    id: Id,
    operation: String,
    object: String,
    query: String,
    delimiter: (&'static str, u8),
    ending: LineEnding,
    caller: Caller,
    created: Timestamp,
    modified: Timestamp,
    state: State,
    due: Instant,
    found: Option<QueryTable>,
    error: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Wanted {
    operation: String,
    query: String,
    content_type: Option<String>,
    column_delimiter: Option<String>,
    line_ending: Option<String>,
}

/// Everything under `/jobs/query`.
pub(crate) fn route(
    org: &mut Org,
    call: &Call,
    caller: Caller,
    rest: &[&str],
    body: &[u8],
) -> Reply {
    if !org.faults.faults().bulk.manual {
        step(org, Instant::now());
    }
    let method = &call.method;
    let reply = match rest {
        [] if method == Method::POST => create(org, caller, body),
        [] if method == Method::GET => Ok(list(org, call)),
        [id] if method == Method::GET => find(org, id).map(|job| Reply::json(200, job.info())),
        [id] if method == Method::PATCH => abort(org, id, body),
        [id] if method == Method::DELETE => delete(org, id),
        [id, "results"] if method == Method::GET => find(org, id).and_then(|job| job.page(call)),
        [] | [_] => Err(Reply::method_not_allowed("DELETE,GET,PATCH,POST")),
        [_, "results"] => Err(Reply::method_not_allowed("GET")),
        _ => Err(Reply::not_found()),
    };
    reply.unwrap_or_else(|reply| reply)
}

/// One step for every job, whether its time has come or not.
pub(super) fn tick(org: &mut Org) {
    let Org { query_jobs, tables, clock, .. } = org;
    let now = clock.now();
    for job in query_jobs.jobs.values_mut() {
        job.step(tables, now);
    }
}

/// Lets jobs whose time has come work to their end.
fn step(org: &mut Org, until: Instant) {
    let Org { query_jobs, tables, clock, .. } = org;
    let now = clock.now();
    for job in query_jobs.jobs.values_mut().filter(|job| job.due <= until) {
        while !job.state.is_terminal() {
            job.step(tables, now);
        }
    }
}

fn find<'a>(org: &'a Org, id: &str) -> Result<&'a QueryJob, Reply> {
    let job = Id::parse(id).and_then(|id| org.query_jobs.jobs.get(&id));
    job.ok_or_else(Reply::not_found)
}

fn create(org: &mut Org, caller: Caller, body: &[u8]) -> Result<Reply, Reply> {
    let wanted: Wanted = serde_json::from_value(parse_some(body)?)
        .map_err(|error| Reply::bad_json(&error.to_string()))?;
    let invalid = |message: &str| Reply::error(400, "INVALIDJOB", message);
    if !matches!(wanted.operation.as_str(), "query" | "queryAll") {
        return Err(invalid(&format!("Unknown operation: {}", wanted.operation)));
    }
    if wanted.content_type.as_ref().is_some_and(|kind| kind != "CSV") {
        return Err(invalid("Unsupported content type: only CSV is supported"));
    }
    let object = soql::object_of(&org.tables, &wanted.query)?;
    let (now, due) = (org.now(), after_ms(org.faults.faults().bulk.queued_ms));
    let jobs = &mut org.query_jobs;
    jobs.opened += 1;
    let job = QueryJob {
        id: Id::new("750", QUERY_IDS + jobs.opened),
        operation: wanted.operation,
        object,
        query: wanted.query,
        delimiter: delimiter(wanted.column_delimiter.as_deref())?,
        ending: line_ending(wanted.line_ending.as_deref())?,
        caller,
        created: now,
        modified: now,
        state: State::UploadComplete,
        due,
        found: None,
        error: None,
    };
    let reply = Reply::json(200, job.brief());
    jobs.jobs.insert(job.id, job);
    if jobs.jobs.len() > JOBS_MAX {
        jobs.jobs.pop_first();
    }
    Ok(reply)
}

/// Ids of query jobs begin here, so that none is one of an ingest job.
const QUERY_IDS: u64 = 1 << 40;

fn list(org: &Org, call: &Call) -> Reply {
    let is_wanted = call.query("jobType").is_none_or(|kind| kind == "V2Query");
    let jobs: Vec<&QueryJob> = org.query_jobs.jobs.values().filter(|_| is_wanted).collect();
    let start: usize = call.query("queryLocator").and_then(|it| it.parse().ok()).unwrap_or(0);
    let page: Vec<Json> = jobs.iter().skip(start).take(LIST_MAX).map(|job| job.info()).collect();
    let end = start.saturating_add(LIST_MAX);
    let next = (end < jobs.len())
        .then(|| format!("{}?queryLocator={end}", call.path.trim_end_matches('/')));
    Reply::json(200, json!({"done": next.is_none(), "records": page, "nextRecordsUrl": next}))
}

fn abort(org: &mut Org, id: &str, body: &[u8]) -> Result<Reply, Reply> {
    let (id, now) = (find(org, id)?.id, org.now());
    let json = parse_some(body)?;
    if json.get("state").and_then(Json::as_str) != Some("Aborted") {
        return Err(invalid_state("The state can be changed to Aborted only"));
    }
    let job = org.query_jobs.jobs.get_mut(&id).ok_or_else(Reply::not_found)?;
    if job.state.is_terminal() {
        return Err(invalid_state("Aborting already Completed Job not allowed"));
    }
    job.enter(State::Aborted, now);
    Ok(Reply::json(200, job.brief()))
}

fn delete(org: &mut Org, id: &str) -> Result<Reply, Reply> {
    let job = find(org, id)?;
    if !job.state.is_terminal() {
        let message = format!("A job that is {} cannot be deleted", job.state.name());
        return Err(invalid_state(&message));
    }
    let id = job.id;
    org.query_jobs.jobs.remove(&id);
    Ok(Reply::empty(204))
}

impl QueryJob {
    fn enter(&mut self, state: State, now: Timestamp) {
        (self.state, self.modified) = (state, now);
    }

    fn step(&mut self, tables: &Tables, now: Timestamp) {
        match self.state {
            State::UploadComplete => self.enter(State::InProgress, now),
            State::InProgress => match soql::table(tables, &self.query) {
                Ok(found) => {
                    self.found = Some(found);
                    self.enter(State::JobComplete, now);
                }
                Err(error) => {
                    self.error = Some(format!("{} : {}", error.code, error.message));
                    self.enter(State::Failed, now);
                }
            },
            State::Open | State::JobComplete | State::Failed | State::Aborted => {}
        }
    }

    fn brief(&self) -> Json {
        json!({
            "id": self.id,
            "operation": self.operation,
            "object": self.object,
            "createdById": self.caller.user,
            "createdDate": written(self.created),
            "systemModstamp": written(self.modified),
            "state": self.state.name(),
            "concurrencyMode": "Parallel",
            "contentType": "CSV",
            "apiVersion": self.caller.version.number(),
            "lineEnding": self.ending.name(),
            "columnDelimiter": self.delimiter.0,
        })
    }

    fn info(&self) -> Json {
        let mut json = self.brief();
        json["jobType"] = "V2Query".into();
        json["retries"] = 0.into();
        json["totalProcessingTime"] = 0.into();
        json["isPkChunkingSupported"] = true.into();
        if let Some(found) = &self.found {
            json["numberRecordsProcessed"] = found.rows.len().into();
        }
        if let Some(error) = &self.error {
            json["errorMessage"] = error.as_str().into();
        }
        json
    }

    /// `…/results?locator=&maxRecords=`; `Sforce-Locator` is `null` at the last page.
    fn page(&self, call: &Call) -> Result<Reply, Reply> {
        let Some(found) = self.found.as_ref().filter(|_| self.state == State::JobComplete) else {
            return Err(invalid_state(&format!("The job is {}", self.state.name())));
        };
        let wrong = |name: &str| {
            Reply::error(400, "INVALIDJOB", &format!("The parameter {name} is not valid"))
        };
        let start = match call.query("locator").filter(|locator| !locator.is_empty()) {
            None => 0,
            Some(locator) => read(locator, found.rows.len()).ok_or_else(|| wrong("locator"))?,
        };
        let size = match call.query("maxRecords") {
            None => PAGE_ROWS,
            Some(text) => {
                let size = text.parse::<usize>().ok().filter(|size| *size > 0);
                size.ok_or_else(|| wrong("maxRecords"))?.min(PAGE_ROWS)
            }
        };
        let end = found.rows.len().min(start.saturating_add(size));
        let mut text = String::new();
        for cells in std::iter::once(&found.columns).chain(&found.rows[start..end]) {
            for (number, cell) in cells.iter().enumerate() {
                if number > 0 {
                    text.push(char::from(self.delimiter.1));
                }
                push_quoted(&mut text, cell);
            }
            text.push_str(if self.ending == LineEnding::Lf { "\n" } else { "\r\n" });
        }
        let more = (end < found.rows.len()).then(|| URL_SAFE_NO_PAD.encode(end.to_string()));
        Ok(Reply::text(200, CSV, text)
            .with("sforce-locator", more.unwrap_or_else(|| "null".to_owned()))
            .with("sforce-numberofrecords", (end - start).to_string()))
    }
}

/// Where the page of a locator begins.
fn read(locator: &str, rows: usize) -> Option<usize> {
    let bytes = URL_SAFE_NO_PAD.decode(locator).ok()?;
    let start: usize = String::from_utf8(bytes).ok()?.parse().ok()?;
    (start < rows).then_some(start)
}
