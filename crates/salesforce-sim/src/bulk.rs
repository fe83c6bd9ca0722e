//! Bulk API 2.0: ingest jobs, their uploads, their processing, their results.

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
pub(crate) use job::{Job, State};
pub(crate) use jobs::Jobs;

use crate::{
    data::{Caller, parse_some},
    faults::SecondPut,
    http::{
        body::{self, ReadError},
        call::Call,
    },
    id::Id,
    reply::Reply,
    sim::{Org, Sim},
};
use job::Spec;
use results::Kind;

/// Characters that a create may bring along.
const MULTIPART_MAX: usize = 100_000;

/// Everything under `/jobs/ingest` but the upload.
pub(crate) fn route(
    org: &mut Org,
    call: &Call,
    caller: Caller,
    rest: &[&str],
    body: &[u8],
) -> Reply {
    org.sweep();
    let method = call.method.clone();
    let reply = match rest {
        [] if method == Method::POST => create(org, call, caller, body),
        [] if method == Method::GET => Ok(org.jobs.list(call)),
        [id] if method == Method::GET => org.find(id).map(|job| Reply::json(200, job.info())),
        [id] if method == Method::PATCH => change(org, id, body),
        [id] if method == Method::DELETE => delete(org, id),
        [id, kind] if method == Method::GET => match Kind::parse(kind) {
            Some(kind) => org.results(id, kind),
            None => Err(Reply::not_found()),
        },
        [] | [_] | [_, _] => Err(Reply::method_not_allowed("DELETE,GET,PATCH,POST")),
        _ => Err(Reply::not_found()),
    };
    reply.unwrap_or_else(|reply| reply)
}

/// `PUT …/batches`. Nothing of it is kept unless all of it arrives.
pub(crate) async fn upload(sim: &Sim, call: &Call, id: &str, body: Incoming) -> Reply {
    let kind = call.header("content-type").unwrap_or_default().to_ascii_lowercase();
    let allowed = if call.method != Method::PUT {
        Err(Reply::method_not_allowed("PUT"))
    } else if !kind.starts_with("text/csv") {
        let message = format!("Content-Type {kind} is not supported: upload text/csv");
        Err(Reply::error(415, "UNSUPPORTED_MEDIA_TYPE", &message))
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
        Ok(bytes) => sim.org().put_upload(id, bytes).err().unwrap_or_else(|| Reply::empty(201)),
        Err(ReadError::TooLarge) => {
            let status = sim.org().faults.faults().bulk.too_large_status;
            let message = "The upload is larger than 150 MB after base64";
            Reply::error(status, "CLIENTINPUTERROR", message)
        }
        Err(error) => crate::api::unread(&error),
    }
}

fn create(org: &mut Org, call: &Call, caller: Caller, body: &[u8]) -> Result<Reply, Reply> {
    let kind = call.header("content-type").unwrap_or_default().to_owned();
    let is_multipart = kind.to_ascii_lowercase().starts_with("multipart/form-data");
    let (job, content) = if is_multipart {
        let parts = multipart::parts(&kind, body);
        let (job, content) = parts.ok_or_else(|| {
            Reply::error(400, "INVALIDJOB", "The parts job and content are needed")
        })?;
        if String::from_utf8_lossy(content).chars().count() > MULTIPART_MAX {
            let message = "The content has more than 100000 characters: upload it by itself";
            return Err(Reply::error(400, "INVALIDJOB", message));
        }
        (job, Some(content))
    } else {
        (body, None)
    };
    let spec = Spec::parse(&org.tables.schema, parse_some(job)?)?;
    let now = org.now();
    if org.limits.batches_left(&org.faults.faults().limits, now) == 0 {
        let message = "ApiBatchItems Limit exceeded.";
        return Err(Reply::error(400, "EXCEEDEDQUOTA", message));
    }
    let job = org.jobs.open(spec, caller, now)?;
    let id = job.id;
    if let Some(content) = content {
        job.upload = Some(Bytes::copy_from_slice(content));
        job.uploads = 1;
        org.close(id);
    }
    Ok(Reply::json(200, org.jobs.get_mut(id).ok_or_else(Reply::not_found)?.opened()))
}

/// Closes or aborts.
fn change(org: &mut Org, id: &str, body: &[u8]) -> Result<Reply, Reply> {
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
            return Err(Reply::error(400, "INVALIDJOBSTATE", message));
        }
    }
    Ok(Reply::json(200, org.jobs.get_mut(id).ok_or_else(Reply::not_found)?.brief()))
}

fn delete(org: &mut Org, id: &str) -> Result<Reply, Reply> {
    let job = org.find(id)?;
    if matches!(job.state, State::Open | State::InProgress) {
        let message = format!("A job that is {} cannot be deleted", job.state.name());
        return Err(invalid_state(&message));
    }
    let id = job.id;
    org.jobs.remove(id);
    Ok(Reply::empty(204))
}

fn invalid_state(message: &str) -> Reply {
    Reply::error(400, "INVALIDJOBSTATE", message)
}

fn two_uploads(id: Id) -> Reply {
    // With the spelling of the original.
    let message = format!(
        "Found multipe contents for job: <{id}>, please 'Close' / 'Abort' / 'Delete' the current \
         Job then create a new Job and make sure you only do 'PUT' once on a given Job."
    );
    Reply::error(400, "INVALIDJOB", &message)
}

impl Org {
    fn find(&mut self, id: &str) -> Result<&mut Job, Reply> {
        let job = Id::parse(id).and_then(|id| self.jobs.get_mut(id));
        job.ok_or_else(Reply::not_found)
    }

    /// How many bytes a job may still get.
    fn may_upload(&mut self, id: &str) -> Result<u64, Reply> {
        let settings = self.faults.faults().bulk.clone();
        let free = self.jobs.bytes_free();
        let job = self.find(id)?;
        if job.state != State::Open {
            let message = format!("The job is {}: it takes no upload", job.state.name());
            return Err(invalid_state(&message));
        }
        if job.uploads > 0 && settings.second_put == SecondPut::Put {
            return Err(two_uploads(job.id));
        }
        Ok((settings.upload_max_bytes / 4 * 3).min(free))
    }

    fn put_upload(&mut self, id: &str, bytes: Bytes) -> Result<(), Reply> {
        // Another call may have been faster.
        self.may_upload(id)?;
        let job = self.find(id)?;
        job.uploads += 1;
        job.upload = Some(bytes);
        Ok(())
    }

    fn may_close(&mut self, id: Id) -> Result<(), Reply> {
        let job = self.jobs.get_mut(id).ok_or_else(Reply::not_found)?;
        if job.state != State::Open {
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
            job.enter(State::UploadComplete, now);
            job.due = due;
        }
    }

    fn abort(&mut self, id: Id) -> Result<(), Reply> {
        let now = self.now();
        let job = self.jobs.get_mut(id).ok_or_else(Reply::not_found)?;
        if job.state.is_terminal() {
            return Err(invalid_state("Aborting already Completed Job not allowed"));
        }
        job.enter(State::Aborted, now);
        Ok(())
    }

    fn results(&mut self, id: &str, kind: Kind) -> Result<Reply, Reply> {
        let id = Id::parse(id).ok_or_else(Reply::not_found)?;
        let job = self.jobs.get_mut(id).ok_or_else(Reply::not_found)?;
        Ok(results::results(job, kind, &mut self.faults))
    }

    /// Forgets what is older than the retention.
    pub(crate) fn sweep(&mut self) {
        let days = self.faults.faults().bulk.retention_days;
        let now = self.now();
        self.jobs.sweep(now, days);
    }
}

/// The jobs as the admin sees them: everything, whoever made them.
pub(crate) fn overview(org: &Org) -> Json {
    let info = |job: &Job| {
        let mut json = job.info();
        json["uploads"] = job.uploads.into();
        json
    };
    json!(org.jobs.iter().map(info).collect::<Vec<Json>>())
}
