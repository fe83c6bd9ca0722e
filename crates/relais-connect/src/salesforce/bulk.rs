//! Many rows in one job of the Bulk API 2.0.
//!
//! Invariant: every call is one step of the protocol in `relais_core::bulk` and says honestly whether
//! it happened. A job gets one upload, ever: what cannot be told is left to a look at the job.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use relais_core::{
    BoxFuture, InvalidSettings,
    bulk::{BulkTarget, CallProblem, Encoded, Remote},
    delivery::Delivery,
    hydrate::Hydrator,
    outbox::OutboxRow,
    time::Timestamp,
};
use reqwest::Method;
use serde_json::json;

use super::{
    budget::Budget,
    classify::{Class, Failure, same_code, spare_rows_of_wrong_settings},
    client::{Call, Client},
    columns::Mapping,
    csv::{BODY_MAX, Csv, Written},
    job::{JobInfo, Page},
    reconcile,
    record::{Records, Unfit},
    settings::SalesforceSettings,
};

/// The first version of the Bulk API 2.0.
const OLDEST: u32 = 41;
/// The most pages of jobs a sweep looks at, a thousand jobs each.
const PAGES_MAX: usize = 50;
const JOBS: &str = "jobs/ingest";

/// Upserts rows through bulk jobs.
///
/// ```
/// use relais_connect::{Secret, salesforce::{Auth, SalesforceBulk, SalesforceSettings}};
///
/// let auth = Auth::ClientCredentials {
///     client_id: "3MVG9".into(),
///     client_secret: Secret::new("hunter2"),
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
    client: Client,
    records: Records,
    object: String,
    rows_max: usize,
    orphan_age: Duration,
}

impl SalesforceBulk {
    /// Checks the settings; connects to nobody yet. The error says which setting to change.
    pub fn new(
        settings: SalesforceSettings,
        hydrator: Option<Arc<dyn Hydrator>>,
    ) -> Result<Self, InvalidSettings> {
        settings.check_object()?;
        settings.check(OLDEST)?;
        Ok(Self {
            client: Client::new(&settings)?,
            records: Records::new(Mapping::new(&settings)?, hydrator),
            rows_max: settings.rows_max,
            orphan_age: settings.orphan_age,
            object: settings.object,
        })
    }

    /// What is left of the org's daily calls.
    pub fn budget(&self) -> &Budget {
        self.client.budget()
    }

    async fn encoded(&self, rows: &[OutboxRow], before: usize) -> Result<Encoded, Failure> {
        if before >= BODY_MAX {
            let held = rows.iter().map(|row| (row.id, Delivery::Held));
            return Ok(Encoded { left_out: held.collect(), ..Encoded::default() });
        }
        let gathered = self.records.gather(rows).await?;
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
                Err(Unfit::Row(delivery)) => Written::Refused(delivery),
                Err(Unfit::Settings(failure)) => return Err(failure),
            };
            match written {
                Written::InBody => {}
                Written::Refused(delivery) => left_out.push((row.id, delivery)),
                // It goes in the next job.
                Written::Full => left_out.push((row.id, Delivery::Held)),
            }
        }
        Ok(Encoded { count: csv.count(), body: csv.into_body(), left_out })
    }

    async fn make(&self) -> Result<String, CallProblem> {
        let job = json!({
            "object": self.object,
            "operation": "upsert",
            "externalIdFieldName": self.records.mapping.external_id,
            "contentType": "CSV",
            "columnDelimiter": "COMMA",
            "lineEnding": "LF",
        });
        let call = Call::json(Method::POST, JOBS, job.to_string());
        let job: JobInfo = self.client.ask(call).await.map_err(Failure::call_problem)?;
        if is_id(&job.id) {
            return Ok(job.id);
        }
        let why = "the answer to the new job has no id that can be used";
        Err(Failure::new(Class::Unknown, "ANSWER_UNREADABLE", why).call_problem())
    }

    async fn put(&self, id: &str, parts: Vec<Vec<u8>>) -> Result<(), CallProblem> {
        let call = Call::upload(&format!("{JOBS}/{id}/batches"), parts);
        let Err(failure) = self.client.tell(call).await else { return Ok(()) };
        let failure = match other_state(failure) {
            Ok(problem) => return Err(problem),
            Err(failure) => failure,
        };
        // It had arrived when this went wrong: nobody knows what was kept.
        let arrived =
            failure.status.is_some_and(|status| status >= 500 || failure.class == Class::Down);
        Err(if arrived { CallProblem::Unclear(failure.problem) } else { failure.call_problem() })
    }

    async fn change(&self, id: &str, state: &str) -> Result<(), Failure> {
        let body = json!({ "state": state }).to_string();
        self.client.tell(Call::json(Method::PATCH, &format!("{JOBS}/{id}"), body)).await
    }

    async fn begin(&self, id: &str) -> Result<(), CallProblem> {
        let Err(failure) = self.change(id, "UploadComplete").await else { return Ok(()) };
        if same_code(&failure.problem.code, "INVALID_JOB") {
            // Somebody in between has repeated the upload: the job will never run. Nothing of it is
            // done, so it goes, and its rows go again.
            self.stop(id).await?;
            return Err(CallProblem::OtherState(failure.problem));
        }
        Err(other_state(failure).unwrap_or_else(Failure::call_problem))
    }

    async fn stop(&self, id: &str) -> Result<(), CallProblem> {
        let stopped = self.change(id, "Aborted").await;
        stopped.map_err(|failure| other_state(failure).unwrap_or_else(Failure::call_problem))
    }

    async fn state(&self, id: &str) -> Result<Remote, CallProblem> {
        let job = reconcile::job(&self.client, &format!("{JOBS}/{id}")).await;
        match job.map_err(Failure::call_problem)? {
            Some(job) => job.remote(&self.client.judge).map_err(Failure::call_problem),
            None => Ok(Remote::Gone),
        }
    }

    async fn collect(&self, id: &str, ids: &[String]) -> Result<Vec<Delivery>, CallProblem> {
        let path = format!("{JOBS}/{id}");
        let external_id = &self.records.mapping.external_id;
        let mut answers = reconcile::results(&self.client, &path, external_id, ids).await?;
        spare_rows_of_wrong_settings(&mut answers);
        Ok(answers)
    }

    async fn orphans(&self) -> Result<Vec<String>, Failure> {
        // Without knowing who we are, every job could be somebody else's.
        let Some(user) = self.client.user_id().await? else { return Ok(Vec::new()) };
        let (mut found, mut next) = (Vec::new(), Some(format!("{JOBS}?jobType=V2Ingest")));
        for _ in 0..PAGES_MAX {
            let Some(path) = next.take() else { break };
            let (page, now): (Page, _) = self.client.ask_when(Call::get(&path)).await?;
            // By the org's clock alone: ours may be ahead.
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

    async fn clear(&self, known: &[String]) -> Result<usize, CallProblem> {
        let mut aborted = 0;
        for id in self.orphans().await.map_err(Failure::call_problem)? {
            if known.contains(&id) {
                continue;
            }
            match self.stop(&id).await {
                Ok(()) => aborted += 1,
                // Somebody was faster.
                Err(CallProblem::OtherState(_)) => {}
                Err(problem) => return Err(problem),
            }
        }
        Ok(aborted)
    }
}

/// What says that the job is not what we thought, or not there.
fn other_state(failure: Failure) -> Result<CallProblem, Failure> {
    let is_state = ["INVALID_JOB_STATE", "INVALID_JOB"]
        .iter()
        .any(|code| same_code(code, &failure.problem.code));
    if is_state || failure.status == Some(404) && failure.class != Class::Down {
        Ok(CallProblem::OtherState(failure.problem))
    } else {
        Err(failure)
    }
}

/// Ids go into paths, so they are letters and digits only.
fn is_id(id: &str) -> bool {
    (15..=18).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Ids are written with 15 characters or, with a checksum, with 18.
fn same_user(a: &str, b: &str) -> bool {
    a.len() >= 15 && a.get(..15) == b.get(..15)
}

impl BulkTarget for SalesforceBulk {
    fn rows_max(&self) -> usize {
        self.rows_max
    }

    fn encode<'a>(
        &'a self,
        rows: &'a [OutboxRow],
        bytes_before: usize,
    ) -> BoxFuture<'a, Result<Encoded, CallProblem>> {
        Box::pin(
            async move { self.encoded(rows, bytes_before).await.map_err(Failure::call_problem) },
        )
    }

    fn create(&self) -> BoxFuture<'_, Result<String, CallProblem>> {
        Box::pin(self.make())
    }

    fn upload<'a>(
        &'a self,
        remote_id: &'a str,
        parts: Vec<Vec<u8>>,
    ) -> BoxFuture<'a, Result<(), CallProblem>> {
        Box::pin(self.put(remote_id, parts))
    }

    fn close<'a>(&'a self, remote_id: &'a str) -> BoxFuture<'a, Result<(), CallProblem>> {
        Box::pin(self.begin(remote_id))
    }

    fn abort<'a>(&'a self, remote_id: &'a str) -> BoxFuture<'a, Result<(), CallProblem>> {
        Box::pin(self.stop(remote_id))
    }

    fn look<'a>(&'a self, remote_id: &'a str) -> BoxFuture<'a, Result<Remote, CallProblem>> {
        Box::pin(self.state(remote_id))
    }

    fn results<'a>(
        &'a self,
        remote_id: &'a str,
        external_ids: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Delivery>, CallProblem>> {
        Box::pin(self.collect(remote_id, external_ids))
    }

    fn sweep<'a>(&'a self, known: &'a [String]) -> BoxFuture<'a, Result<usize, CallProblem>> {
        Box::pin(self.clear(known))
    }
}

impl fmt::Debug for SalesforceBulk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = format!("{} at {}", self.object, self.client.origin());
        f.debug_tuple("SalesforceBulk").field(&shown).finish()
    }
}
