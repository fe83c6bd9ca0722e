//! All jobs of the org.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value as Json, json};

use super::job::{IngestJob, Spec};
use crate::{data::OrgCaller, http::call::HttpCall, id::Id, reply::ApiReply};

/// Jobs per page of the list.
const PAGE_MAX: usize = 1_000;
/// Maximum number of jobs; beyond it a create is refused until some are deleted.
const JOBS_MAX: usize = 100_000;
/// Maximum number of bytes of all uploads.
const UPLOADS_MAX_BYTES: u64 = 2 * 1024 * 1024 * 1024;
const DAY_S: i64 = 24 * 60 * 60;

#[derive(Debug, Default)]
pub(crate) struct Jobs {
    jobs: BTreeMap<Id, IngestJob>,
    opened: u64,
}

impl Jobs {
    pub(super) fn open(
        &mut self,
        spec: Spec,
        caller: OrgCaller,
        now: Timestamp,
    ) -> Result<&mut IngestJob, ApiReply> {
        if self.jobs.len() >= JOBS_MAX {
            let message = "Too many jobs are kept: delete some";
            return Err(ApiReply::error(400, "LIMIT_EXCEEDED", message));
        }
        self.opened += 1;
        let id = Id::new("750", self.opened);
        let job = IngestJob::new(id, spec, caller.user, caller.version, now);
        Ok(self.jobs.entry(id).or_insert(job))
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &IngestJob> {
        self.jobs.values()
    }

    pub(crate) fn get_mut(&mut self, id: Id) -> Option<&mut IngestJob> {
        self.jobs.get_mut(&id)
    }

    pub(crate) fn remove(&mut self, id: Id) -> bool {
        self.jobs.remove(&id).is_some()
    }

    /// Continues jobs that a fault stopped.
    pub(crate) fn release(&mut self) {
        for job in self.jobs.values_mut() {
            job.is_stuck = false;
        }
    }

    pub(super) fn bytes_free(&self) -> u64 {
        let held = |job: &IngestJob| {
            let waiting = job.upload.as_ref().map_or(0, bytes::Bytes::len);
            (waiting + job.run.as_ref().map_or(0, |run| run.file.bytes().len())) as u64
        };
        UPLOADS_MAX_BYTES.saturating_sub(self.jobs.values().map(held).sum())
    }

    pub(super) fn sweep(&mut self, now: Timestamp, days: u32) {
        let limit = SignedDuration::from_secs(i64::from(days) * DAY_S);
        self.jobs.retain(|_, job| now.duration_since(job.modified) < limit);
    }

    /// Lists jobs in an arbitrary order, as documented.
    pub(super) fn list(&self, call: &HttpCall) -> ApiReply {
        let mixed = |job: &IngestJob| {
            let mut hasher = DefaultHasher::new();
            job.id.hash(&mut hasher);
            hasher.finish()
        };
        let is_wanted = call.query("jobType").is_none_or(|kind| kind == "V2Ingest");
        let mut jobs: Vec<&IngestJob> = self.jobs.values().filter(|_| is_wanted).collect();
        jobs.sort_by_key(|job| mixed(job));
        let start = call.query("queryLocator").and_then(|it| it.parse().ok()).unwrap_or(0);
        let page: Vec<Json> =
            jobs.iter().skip(start).take(PAGE_MAX).map(|job| job.info()).collect();
        let end = start.saturating_add(PAGE_MAX);
        let next = (end < jobs.len()).then(|| {
            let path = call.path.trim_end_matches('/');
            format!("{path}?queryLocator={end}")
        });
        ApiReply::json(
            200,
            json!({"done": next.is_none(), "records": page, "nextRecordsUrl": next}),
        )
    }
}
