//! Bulk API 2.0 query: jobs with a CSV as result, read in pages.
//!
//! A job runs the query once, when it starts; all pages come from that result.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hyper::Method;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tokio::time::Instant;

use super::{
    JobState,
    csv::{LineEnding, push_quoted},
    engine::after_ms,
    invalid_state,
    job::{delimiter, line_ending},
};
use crate::{
    clock::written,
    data::{OrgCaller, parse_some},
    http::call::HttpCall,
    id::Id,
    org::OrgState,
    reply::{ApiReply, CSV},
    soql::{self, QueryTable},
    store::OrgTables,
};

/// Rows per page, unless the client requests fewer.
const PAGE_ROWS: usize = 50_000;
/// Maximum number of jobs; the oldest is removed first.
const JOBS_MAX: usize = 1_000;
/// Jobs per page of the list.
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
    caller: OrgCaller,
    created: Timestamp,
    modified: Timestamp,
    state: JobState,
    due: Instant,
    found: Option<QueryTable>,
    error: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct QueryJobRequest {
    operation: String,
    query: String,
    content_type: Option<String>,
    column_delimiter: Option<String>,
    line_ending: Option<String>,
}

/// Routes everything under `/jobs/query`.
pub(crate) fn route(
    org: &mut OrgState,
    call: &HttpCall,
    caller: OrgCaller,
    rest: &[&str],
    body: &[u8],
) -> ApiReply {
    if !org.faults.faults().bulk.manual {
        step(org, Instant::now());
    }
    let method = &call.method;
    let reply = match rest {
        [] if method == Method::POST => create(org, caller, body),
        [] if method == Method::GET => Ok(list(org, call)),
        [id] if method == Method::GET => find(org, id).map(|job| ApiReply::json(200, job.info())),
        [id] if method == Method::PATCH => abort(org, id, body),
        [id] if method == Method::DELETE => delete(org, id),
        [id, "results"] if method == Method::GET => find(org, id).and_then(|job| job.page(call)),
        [] | [_] => Err(ApiReply::method_not_allowed("DELETE,GET,PATCH,POST")),
        [_, "results"] => Err(ApiReply::method_not_allowed("GET")),
        _ => Err(ApiReply::not_found()),
    };
    reply.unwrap_or_else(|reply| reply)
}

/// Advances every job by one step, due or not.
pub(super) fn tick(org: &mut OrgState) {
    let OrgState { query_jobs, tables, clock, .. } = org;
    let now = clock.now();
    for job in query_jobs.jobs.values_mut() {
        job.step(tables, now);
    }
}

/// Completes all due jobs.
fn step(org: &mut OrgState, until: Instant) {
    let OrgState { query_jobs, tables, clock, .. } = org;
    let now = clock.now();
    for job in query_jobs.jobs.values_mut().filter(|job| job.due <= until) {
        while !job.state.is_terminal() {
            job.step(tables, now);
        }
    }
}

fn find<'a>(org: &'a OrgState, id: &str) -> Result<&'a QueryJob, ApiReply> {
    let job = Id::parse(id).and_then(|id| org.query_jobs.jobs.get(&id));
    job.ok_or_else(ApiReply::not_found)
}

fn create(org: &mut OrgState, caller: OrgCaller, body: &[u8]) -> Result<ApiReply, ApiReply> {
    let request: QueryJobRequest = serde_json::from_value(parse_some(body)?)
        .map_err(|error| ApiReply::bad_json(&error.to_string()))?;
    let invalid = |message: &str| ApiReply::error(400, "INVALIDJOB", message);
    if !matches!(request.operation.as_str(), "query" | "queryAll") {
        return Err(invalid(&format!("Unknown operation: {}", request.operation)));
    }
    if request.content_type.as_ref().is_some_and(|kind| kind != "CSV") {
        return Err(invalid("Unsupported content type: only CSV is supported"));
    }
    let object = soql::object_of(&org.tables, &request.query)?;
    let (now, due) = (org.now(), after_ms(org.faults.faults().bulk.queued_ms));
    let jobs = &mut org.query_jobs;
    jobs.opened += 1;
    let job = QueryJob {
        id: Id::new("750", QUERY_IDS + jobs.opened),
        operation: request.operation,
        object,
        query: request.query,
        delimiter: delimiter(request.column_delimiter.as_deref())?,
        ending: line_ending(request.line_ending.as_deref())?,
        caller,
        created: now,
        modified: now,
        state: JobState::UploadComplete,
        due,
        found: None,
        error: None,
    };
    let reply = ApiReply::json(200, job.brief());
    jobs.jobs.insert(job.id, job);
    if jobs.jobs.len() > JOBS_MAX {
        jobs.jobs.pop_first();
    }
    Ok(reply)
}

/// The first id of query jobs, so that they differ from those of ingest jobs.
const QUERY_IDS: u64 = 1 << 40;

fn list(org: &OrgState, call: &HttpCall) -> ApiReply {
    let is_wanted = call.query("jobType").is_none_or(|kind| kind == "V2Query");
    let jobs: Vec<&QueryJob> = org.query_jobs.jobs.values().filter(|_| is_wanted).collect();
    let start: usize = call.query("queryLocator").and_then(|it| it.parse().ok()).unwrap_or(0);
    let page: Vec<Json> = jobs.iter().skip(start).take(LIST_MAX).map(|job| job.info()).collect();
    let end = start.saturating_add(LIST_MAX);
    let next = (end < jobs.len())
        .then(|| format!("{}?queryLocator={end}", call.path.trim_end_matches('/')));
    ApiReply::json(200, json!({"done": next.is_none(), "records": page, "nextRecordsUrl": next}))
}

fn abort(org: &mut OrgState, id: &str, body: &[u8]) -> Result<ApiReply, ApiReply> {
    let (id, now) = (find(org, id)?.id, org.now());
    let json = parse_some(body)?;
    if json.get("state").and_then(Json::as_str) != Some("Aborted") {
        return Err(invalid_state("The state can be changed to Aborted only"));
    }
    let job = org.query_jobs.jobs.get_mut(&id).ok_or_else(ApiReply::not_found)?;
    if job.state.is_terminal() {
        return Err(invalid_state("Aborting already Completed Job not allowed"));
    }
    job.enter(JobState::Aborted, now);
    Ok(ApiReply::json(200, job.brief()))
}

fn delete(org: &mut OrgState, id: &str) -> Result<ApiReply, ApiReply> {
    let job = find(org, id)?;
    if !job.state.is_terminal() {
        let message = format!("A job that is {} cannot be deleted", job.state.name());
        return Err(invalid_state(&message));
    }
    let id = job.id;
    org.query_jobs.jobs.remove(&id);
    Ok(ApiReply::empty(204))
}

impl QueryJob {
    fn enter(&mut self, state: JobState, now: Timestamp) {
        (self.state, self.modified) = (state, now);
    }

    fn step(&mut self, tables: &OrgTables, now: Timestamp) {
        match self.state {
            JobState::UploadComplete => self.enter(JobState::InProgress, now),
            JobState::InProgress => match soql::table(tables, &self.query) {
                Ok(found) => {
                    self.found = Some(found);
                    self.enter(JobState::JobComplete, now);
                }
                Err(error) => {
                    self.error = Some(format!("{} : {}", error.code, error.message));
                    self.enter(JobState::Failed, now);
                }
            },
            JobState::Open | JobState::JobComplete | JobState::Failed | JobState::Aborted => {}
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

    /// Handles `…/results?locator=&maxRecords=`; `Sforce-Locator` is `null` on the last page.
    fn page(&self, call: &HttpCall) -> Result<ApiReply, ApiReply> {
        let Some(found) = self.found.as_ref().filter(|_| self.state == JobState::JobComplete)
        else {
            return Err(invalid_state(&format!("The job is {}", self.state.name())));
        };
        let wrong = |name: &str| {
            ApiReply::error(400, "INVALIDJOB", &format!("The parameter {name} is not valid"))
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
        Ok(ApiReply::text(200, CSV, text)
            .with("sforce-locator", more.unwrap_or_else(|| "null".to_owned()))
            .with("sforce-numberofrecords", (end - start).to_string()))
    }
}

/// Returns the first row of a locator's page.
fn read(locator: &str, rows: usize) -> Option<usize> {
    let bytes = URL_SAFE_NO_PAD.decode(locator).ok()?;
    let start: usize = String::from_utf8(bytes).ok()?.parse().ok()?;
    (start < rows).then_some(start)
}
