//! Bulk API 2.0: ingest jobs, uploads, processing and results.

mod csv;
mod engine;
mod job;
mod jobs;
mod multipart;
mod plan;
pub(crate) mod query;
mod results;
mod run;

use bytes::Bytes;
use hyper::{Method, body::Incoming};
use serde_json::{Value as Json, json};

pub(crate) use engine::{run, tick};
pub(crate) use job::{IngestJob, JobState};
pub(crate) use jobs::Jobs;

use crate::{
    data::{OrgCaller, parse_some},
    faults::SecondPut,
    http::{
        body::{self, ReadError},
        call::HttpCall,
    },
    id::Id,
    org::{OrgState, SimulatedOrg},
    reply::ApiReply,
};
use job::Spec;
use results::ResultKind;

/// Maximum number of characters of a multipart create.
const MULTIPART_MAX: usize = 100_000;

/// Routes everything under `/jobs/ingest` except the upload.
pub(crate) fn route(
    org: &mut OrgState,
    call: &HttpCall,
    caller: OrgCaller,
    rest: &[&str],
    body: &[u8],
) -> ApiReply {
    org.sweep();
    let method = call.method.clone();
    let reply = match rest {
        [] if method == Method::POST => create(org, call, caller, body),
        [] if method == Method::GET => Ok(org.jobs.list(call)),
        [id] if method == Method::GET => org.find(id).map(|job| ApiReply::json(200, job.info())),
        [id] if method == Method::PATCH => change(org, id, body),
        [id] if method == Method::DELETE => delete(org, id),
        [id, kind] if method == Method::GET => match ResultKind::parse(kind) {
            Some(kind) => org.results(id, kind),
            None => Err(ApiReply::not_found()),
        },
        [] | [_] | [_, _] => Err(ApiReply::method_not_allowed("DELETE,GET,PATCH,POST")),
        _ => Err(ApiReply::not_found()),
    };
    reply.unwrap_or_else(|reply| reply)
}

/// Handles `PUT …/batches`. An incomplete upload is discarded.
pub(crate) async fn upload(
    sim: &SimulatedOrg,
    call: &HttpCall,
    id: &str,
    body: Incoming,
) -> ApiReply {
    let kind = call.header("content-type").unwrap_or_default().to_ascii_lowercase();
    let allowed = if call.method != Method::PUT {
        Err(ApiReply::method_not_allowed("PUT"))
    } else if !kind.starts_with("text/csv") {
        let message = format!("Content-Type {kind} is not supported: upload text/csv");
        Err(ApiReply::error(415, "UNSUPPORTED_MEDIA_TYPE", &message))
    } else {
        sim.org().may_upload(id)
    };
    let limit = match allowed {
        Ok(limit) => limit,
        Err(reply) => {
            let _ = body::read(body, 0).await;
            return reply;
        }
    };
    match body::read(body, limit).await {
        Ok(bytes) => sim.org().put_upload(id, bytes).err().unwrap_or_else(|| ApiReply::empty(201)),
        Err(ReadError::TooLarge) => {
            let status = sim.org().faults.faults().bulk.too_large_status;
            let message = "The upload is larger than 150 MB after base64";
            ApiReply::error(status, "CLIENTINPUTERROR", message)
        }
        Err(error) => crate::api::unread(&error),
    }
}

fn create(
    org: &mut OrgState,
    call: &HttpCall,
    caller: OrgCaller,
    body: &[u8],
) -> Result<ApiReply, ApiReply> {
    let kind = call.header("content-type").unwrap_or_default().to_owned();
    let is_multipart = kind.to_ascii_lowercase().starts_with("multipart/form-data");
    let (job, content) = if is_multipart {
        let parts = multipart::parts(&kind, body);
        let (job, content) = parts.ok_or_else(|| {
            ApiReply::error(400, "INVALIDJOB", "The parts job and content are needed")
        })?;
        if String::from_utf8_lossy(content).chars().count() > MULTIPART_MAX {
            let message = "The content has more than 100000 characters: upload it by itself";
            return Err(ApiReply::error(400, "INVALIDJOB", message));
        }
        (job, Some(content))
    } else {
        (body, None)
    };
    let spec = Spec::parse(&org.tables.schema, parse_some(job)?)?;
    let now = org.now();
    if org.limits.batches_left(&org.faults.faults().limits, now) == 0 {
        let message = "ApiBatchItems Limit exceeded.";
        return Err(ApiReply::error(400, "EXCEEDEDQUOTA", message));
    }
    let job = org.jobs.open(spec, caller, now)?;
    let id = job.id;
    if let Some(content) = content {
        job.upload = Some(Bytes::copy_from_slice(content));
        job.uploads = 1;
        org.close(id);
    }
    Ok(ApiReply::json(200, org.jobs.get_mut(id).ok_or_else(ApiReply::not_found)?.opened()))
}

/// Closes or aborts a job.
fn change(org: &mut OrgState, id: &str, body: &[u8]) -> Result<ApiReply, ApiReply> {
    let id = org.find(id)?.id;
    let json = parse_some(body)?;
    match json.get("state").and_then(Json::as_str) {
        Some("UploadComplete") => {
            org.may_close(id)?;
            org.close(id);
        }
        Some("Aborted") => org.abort(id)?,
        _ => {
            let message = "The state can be changed to UploadComplete or Aborted only";
            return Err(ApiReply::error(400, "INVALIDJOBSTATE", message));
        }
    }
    Ok(ApiReply::json(200, org.jobs.get_mut(id).ok_or_else(ApiReply::not_found)?.brief()))
}

fn delete(org: &mut OrgState, id: &str) -> Result<ApiReply, ApiReply> {
    let job = org.find(id)?;
    if matches!(job.state, JobState::Open | JobState::InProgress) {
        let message = format!("A job that is {} cannot be deleted", job.state.name());
        return Err(invalid_state(&message));
    }
    let id = job.id;
    org.jobs.remove(id);
    Ok(ApiReply::empty(204))
}

fn invalid_state(message: &str) -> ApiReply {
    ApiReply::error(400, "INVALIDJOBSTATE", message)
}

fn two_uploads(id: Id) -> ApiReply {
    // The typo is in the original.
    let message = format!(
        "Found multipe contents for job: <{id}>, please 'Close' / 'Abort' / 'Delete' the current \
         Job then create a new Job and make sure you only do 'PUT' once on a given Job."
    );
    ApiReply::error(400, "INVALIDJOB", &message)
}

impl OrgState {
    fn find(&mut self, id: &str) -> Result<&mut IngestJob, ApiReply> {
        let job = Id::parse(id).and_then(|id| self.jobs.get_mut(id));
        job.ok_or_else(ApiReply::not_found)
    }

    /// Returns the number of bytes that may be uploaded.
    fn may_upload(&mut self, id: &str) -> Result<u64, ApiReply> {
        let settings = self.faults.faults().bulk.clone();
        let free = self.jobs.bytes_free();
        let job = self.find(id)?;
        if job.state != JobState::Open {
            let message = format!("The job is {}: it takes no upload", job.state.name());
            return Err(invalid_state(&message));
        }
        if job.uploads > 0 && settings.second_put == SecondPut::Put {
            return Err(two_uploads(job.id));
        }
        Ok((settings.upload_max_bytes / 4 * 3).min(free))
    }

    fn put_upload(&mut self, id: &str, bytes: Bytes) -> Result<(), ApiReply> {
        // Another call may have been faster.
        self.may_upload(id)?;
        let job = self.find(id)?;
        job.uploads += 1;
        job.upload = Some(bytes);
        Ok(())
    }

    fn may_close(&mut self, id: Id) -> Result<(), ApiReply> {
        let job = self.jobs.get_mut(id).ok_or_else(ApiReply::not_found)?;
        if job.state != JobState::Open {
            let message = format!("The job is already {}", job.state.name());
            return Err(invalid_state(&message));
        }
        if job.uploads > 1 {
            return Err(two_uploads(id));
        }
        Ok(())
    }

    fn close(&mut self, id: Id) {
        let now = self.now();
        let due = engine::after_ms(self.faults.faults().bulk.queued_ms);
        if let Some(job) = self.jobs.get_mut(id) {
            job.enter(JobState::UploadComplete, now);
            job.due = due;
        }
    }

    fn abort(&mut self, id: Id) -> Result<(), ApiReply> {
        let now = self.now();
        let job = self.jobs.get_mut(id).ok_or_else(ApiReply::not_found)?;
        if job.state.is_terminal() {
            return Err(invalid_state("Aborting already Completed Job not allowed"));
        }
        job.enter(JobState::Aborted, now);
        Ok(())
    }

    fn results(&mut self, id: &str, kind: ResultKind) -> Result<ApiReply, ApiReply> {
        let id = Id::parse(id).ok_or_else(ApiReply::not_found)?;
        let job = self.jobs.get_mut(id).ok_or_else(ApiReply::not_found)?;
        Ok(results::results(job, kind, &mut self.faults))
    }

    /// Removes jobs past the retention.
    pub(crate) fn sweep(&mut self) {
        let days = self.faults.faults().bulk.retention_days;
        let now = self.now();
        self.jobs.sweep(now, days);
    }
}

/// Returns all jobs of all users, for the control interface.
pub(crate) fn overview(org: &OrgState) -> Json {
    let info = |job: &IngestJob| {
        let mut json = job.info();
        json["uploads"] = job.uploads.into();
        json
    };
    json!(org.jobs.iter().map(info).collect::<Vec<Json>>())
}
