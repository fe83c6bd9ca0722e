//! Many rows in one job of the Bulk API 2.0.
//!
//! Invariant: every call is one step of the protocol in `relais_core::bulk` and reports whether it
//! happened. A job gets at most one upload: if its result is unknown, the state of the job decides.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use relais_core::{
    InvalidSettings, async_trait,
    bulk::{BulkTarget, CallProblem, EncodedRows, Remote},
    delivery::Delivery,
    hydrate::Hydrator,
    outbox::OutboxRow,
    time::Timestamp,
};
use reqwest::Method;
use serde_json::json;

use super::{
    budget::ApiCallBudget,
    classify::{Class, SalesforceFailure, same_code, spare_rows_of_wrong_settings},
    client::{ApiCall, SalesforceClient},
    columns::ColumnMapping,
    csv::{BODY_MAX, Csv, PushOutcome},
    job_info::{JobInfo, JobPage},
    reconcile,
    row_values::{RowValueError, RowValues},
    settings::SalesforceSettings,
};

/// The first API version with the Bulk API 2.0.
const OLDEST: u32 = 41;
/// Maximum number of pages of jobs that a sweep reads, a thousand jobs each.
const PAGES_MAX: usize = 50;
const JOBS: &str = "jobs/ingest";

/// Upserts rows through bulk jobs.
///
/// ```
/// use relais_connect::{SecretString, salesforce::{Auth, SalesforceBulk, SalesforceSettings}};
///
/// let auth = Auth::ClientCredentials {
///     client_id: "3MVG9".into(),
///     client_secret: SecretString::from("hunter2"),
/// };
/// let mut settings =
///     SalesforceSettings::new("https://acme.my.salesforce.com", auth, "Contact", "ExternalId__c");
/// settings.columns = vec![("LastName".into(), "last_name".into())];
/// let bulk = SalesforceBulk::new(settings, None)?;
/// assert_eq!(
///     format!("{bulk:?}"),
///     r#"SalesforceBulk("Contact at https://acme.my.salesforce.com")"#
/// );
/// # Ok::<(), String>(())
/// ```
pub struct SalesforceBulk {
    client: SalesforceClient,
    records: RowValues,
    object: String,
    rows_max: usize,
    orphan_age: Duration,
}

impl SalesforceBulk {
    /// Validates the settings, without connecting. The error says which setting to change.
    pub fn new(
        settings: SalesforceSettings,
        hydrator: Option<Arc<dyn Hydrator>>,
    ) -> Result<Self, InvalidSettings> {
        settings.check_object()?;
        settings.check(OLDEST)?;
        Ok(Self {
            client: SalesforceClient::new(&settings)?,
            records: RowValues::new(ColumnMapping::new(&settings)?, hydrator),
            rows_max: settings.rows_max,
            orphan_age: settings.orphan_age,
            object: settings.object,
        })
    }

    /// Returns the budget of the org's daily calls.
    pub fn budget(&self) -> &ApiCallBudget {
        self.client.budget()
    }

    async fn encode_rows(
        &self,
        rows: &[OutboxRow],
        before: usize,
    ) -> Result<EncodedRows, SalesforceFailure> {
        if before >= BODY_MAX {
            let held = rows.iter().map(|row| (row.id, Delivery::Held));
            return Ok(EncodedRows { left_out: held.collect(), ..EncodedRows::default() });
        }
        let gathered = self.records.select(rows).await?;
        let left_out = gathered.left_out.iter();
        let mut left_out: Vec<(i64, Delivery)> =
            left_out.map(|(index, delivery)| (rows[*index].id, delivery.clone())).collect();
        let mapping = &self.records.mapping;
        let names = || mapping.columns.iter().map(|column| column.name.as_str());
        let mut csv = match before {
            0 => Csv::new(&mapping.external_id, names()),
            _ => Csv::continued(before),
        };
        let mut cells = Vec::new();
        for row in gathered.chosen.iter().map(|index| &rows[*index]) {
            let written = match self.records.cells(row, &gathered, &mut cells) {
                Ok(()) => csv.push(&row.aggregate_id, &cells, names()),
                Err(RowValueError::Row(delivery)) => PushOutcome::Refused(delivery),
                Err(RowValueError::Settings(failure)) => return Err(failure),
            };
            match written {
                PushOutcome::InBody => {}
                PushOutcome::Refused(delivery) => left_out.push((row.id, delivery)),
                // It is sent in the next job.
                PushOutcome::Full => left_out.push((row.id, Delivery::Held)),
            }
        }
        Ok(EncodedRows { count: csv.count(), body: csv.into_body(), left_out })
    }

    async fn change(&self, id: &str, state: &str) -> Result<(), SalesforceFailure> {
        let body = json!({ "state": state }).to_string();
        self.client.send_only(ApiCall::json(Method::PATCH, &format!("{JOBS}/{id}"), body)).await
    }

    async fn orphans(&self) -> Result<Vec<String>, SalesforceFailure> {
        // Without our user id, every job could belong to another user.
        let Some(user) = self.client.user_id().await? else { return Ok(Vec::new()) };
        let (mut found, mut next) = (Vec::new(), Some(format!("{JOBS}?jobType=V2Ingest")));
        for _ in 0..PAGES_MAX {
            let Some(path) = next.take() else { break };
            let (page, now): (JobPage, _) = self.client.ask_when(ApiCall::get(&path)).await?;
            // Uses only the org's clock: ours may be ahead.
            let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
            let before = now.saturating_sub(self.orphan_age).as_micros();
            let before = Timestamp(i64::try_from(before).unwrap_or(i64::MAX));
            let is_ours = |job: &JobInfo| {
                job.state == "Open"
                    && job.object == self.object
                    && same_user(&job.created_by_id, &user)
                    && job.created_at().is_some_and(|at| at <= before)
            };
            let ours = page.records.into_iter().filter(is_ours);
            found.extend(ours.map(|job| job.id).filter(|id| is_id(id)));
            next = page.next_records_url.filter(|url| url.starts_with(self.client.base()));
        }
        Ok(found)
    }
}

/// Returns the problem if the job is in another state, or does not exist.
fn other_state(failure: SalesforceFailure) -> Result<CallProblem, SalesforceFailure> {
    let is_state = ["INVALID_JOB_STATE", "INVALID_JOB"]
        .iter()
        .any(|code| same_code(code, &failure.problem.code));
    if is_state || failure.status == Some(404) && failure.class != Class::Down {
        Ok(CallProblem::OtherState(failure.problem))
    } else {
        Err(failure)
    }
}

/// Ids are part of paths, so only letters and digits are allowed.
fn is_id(id: &str) -> bool {
    (15..=18).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Ids have 15 characters or, with a checksum, 18.
fn same_user(a: &str, b: &str) -> bool {
    a.len() >= 15 && a.get(..15) == b.get(..15)
}

#[async_trait]
impl BulkTarget for SalesforceBulk {
    fn rows_max(&self) -> usize {
        self.rows_max
    }

    async fn encode(
        &self,
        rows: &[OutboxRow],
        bytes_before: usize,
    ) -> Result<EncodedRows, CallProblem> {
        self.encode_rows(rows, bytes_before).await.map_err(SalesforceFailure::call_problem)
    }

    async fn create(&self) -> Result<String, CallProblem> {
        let job = json!({
            "object": self.object,
            "operation": "upsert",
            "externalIdFieldName": self.records.mapping.external_id,
            "contentType": "CSV",
            "columnDelimiter": "COMMA",
            "lineEnding": "LF",
        });
        let call = ApiCall::json(Method::POST, JOBS, job.to_string());
        let job: JobInfo = self.client.ask(call).await.map_err(SalesforceFailure::call_problem)?;
        if is_id(&job.id) {
            return Ok(job.id);
        }
        let why = "the response to the new job has no valid id";
        Err(SalesforceFailure::new(Class::Unknown, "ANSWER_UNREADABLE", why).call_problem())
    }

    async fn upload(&self, remote_id: &str, parts: Vec<Vec<u8>>) -> Result<(), CallProblem> {
        let call = ApiCall::upload(&format!("{JOBS}/{remote_id}/batches"), parts);
        let Err(failure) = self.client.send_only(call).await else { return Ok(()) };
        let failure = match other_state(failure) {
            Ok(problem) => return Err(problem),
            Err(failure) => failure,
        };
        // The request had arrived: it is unknown what was stored.
        let arrived =
            failure.status.is_some_and(|status| status >= 500 || failure.class == Class::Down);
        Err(if arrived { CallProblem::Unclear(failure.problem) } else { failure.call_problem() })
    }

    async fn close(&self, remote_id: &str) -> Result<(), CallProblem> {
        let Err(failure) = self.change(remote_id, "UploadComplete").await else { return Ok(()) };
        if same_code(&failure.problem.code, "INVALID_JOB") {
            // A proxy repeated the upload: the job will never run. Nothing of it was applied, so it
            // is aborted and its rows are sent again.
            self.abort(remote_id).await?;
            return Err(CallProblem::OtherState(failure.problem));
        }
        Err(other_state(failure).unwrap_or_else(SalesforceFailure::call_problem))
    }

    async fn abort(&self, remote_id: &str) -> Result<(), CallProblem> {
        let stopped = self.change(remote_id, "Aborted").await;
        stopped
            .map_err(|failure| other_state(failure).unwrap_or_else(SalesforceFailure::call_problem))
    }

    async fn state(&self, remote_id: &str) -> Result<Remote, CallProblem> {
        let job = reconcile::job(&self.client, &format!("{JOBS}/{remote_id}")).await;
        match job.map_err(SalesforceFailure::call_problem)? {
            Some(job) => job.remote(&self.client.judge).map_err(SalesforceFailure::call_problem),
            None => Ok(Remote::Gone),
        }
    }

    async fn results(
        &self,
        remote_id: &str,
        external_ids: &[String],
    ) -> Result<Vec<Delivery>, CallProblem> {
        let path = format!("{JOBS}/{remote_id}");
        let external_id = &self.records.mapping.external_id;
        let mut answers =
            reconcile::results(&self.client, &path, external_id, external_ids).await?;
        spare_rows_of_wrong_settings(&mut answers);
        Ok(answers)
    }

    async fn sweep(&self, known: &[String]) -> Result<usize, CallProblem> {
        let mut aborted = 0;
        for id in self.orphans().await.map_err(SalesforceFailure::call_problem)? {
            if known.contains(&id) {
                continue;
            }
            match self.abort(&id).await {
                Ok(()) => aborted += 1,
                // Another process was faster.
                Err(CallProblem::OtherState(_)) => {}
                Err(problem) => return Err(problem),
            }
        }
        Ok(aborted)
    }
}

impl fmt::Debug for SalesforceBulk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = format!("{} at {}", self.object, self.client.origin());
        f.debug_tuple("SalesforceBulk").field(&shown).finish()
    }
}
