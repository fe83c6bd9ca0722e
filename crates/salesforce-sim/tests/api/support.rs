//! A simulator with a logged-in client.

use std::time::Duration;

use reqwest::Method;
use salesforce_sim::{Faults, RunningSimulator, Simulator, SimulatorConfig};
use serde_json::{Value as Json, json};

pub(crate) const V66: &str = "/services/data/v66.0";
/// Longer than any test needs.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Org {
    pub(crate) sim: RunningSimulator,
    pub(crate) token: String,
    client: reqwest::Client,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Json {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// Returns the code of a REST error.
    pub(crate) fn code(&self) -> String {
        self.json()[0]["errorCode"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn message(&self) -> String {
        self.json()[0]["message"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

impl Org {
    pub(crate) async fn start() -> Self {
        Self::with(SimulatorConfig::default()).await
    }

    /// Jobs advance only by ticks.
    pub(crate) async fn manual() -> Self {
        Self::with_faults(json!({"bulk": {"manual": true}})).await
    }

    pub(crate) async fn with_faults(faults: Json) -> Self {
        let faults: Faults = serde_json::from_value(faults).unwrap();
        Self::with(SimulatorConfig { faults, ..SimulatorConfig::default() }).await
    }

    pub(crate) async fn with_schema(text: &str) -> Self {
        Self::with(SimulatorConfig::default().with_schema_file(text).unwrap()).await
    }

    pub(crate) async fn with(config: SimulatorConfig) -> Self {
        let sim = Simulator::start(config).await.unwrap();
        let client =
            reqwest::Client::builder().no_proxy().no_gzip().timeout(PATIENCE).build().unwrap();
        let mut org = Self { sim, token: String::new(), client };
        org.log_in().await;
        org
    }

    pub(crate) async fn log_in(&mut self) {
        let form = "grant_type=client_credentials&client_id=a&client_secret=b";
        let reply = self.form("/services/oauth2/token", form).await;
        self.token = reply.json()["access_token"].as_str().unwrap_or_default().to_owned();
    }

    pub(crate) async fn form(&self, path: &str, form: &str) -> Reply {
        let kind = "application/x-www-form-urlencoded";
        self.try_send(Method::POST, path, kind, form.to_owned()).await.unwrap()
    }

    /// Returns `None` if the connection ended.
    pub(crate) async fn try_send(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: String,
    ) -> Option<Reply> {
        let url = format!("{}{path}", self.sim.url());
        let mut request = self.client.request(method, url).header("content-type", kind);
        if !self.token.is_empty() {
            request = request.bearer_auth(&self.token);
        }
        let response = request.body(body).send().await.ok()?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Some(Reply { status, headers, text: response.text().await.ok()? })
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: Json) -> Reply {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.try_send(method, path, "application/json", body).await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, Json::Null).await
    }

    /// Sends `GET` below the version.
    pub(crate) async fn read(&self, path: &str) -> Reply {
        self.get(&format!("{V66}/{path}")).await
    }

    pub(crate) async fn post(&self, path: &str, body: Json) -> Reply {
        self.send(Method::POST, &format!("{V66}/{path}"), body).await
    }

    pub(crate) async fn patch(&self, path: &str, body: Json) -> Reply {
        self.send(Method::PATCH, &format!("{V66}/{path}"), body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        self.send(Method::DELETE, &format!("{V66}/{path}"), Json::Null).await
    }

    pub(crate) async fn put_faults(&self, faults: Json) {
        let reply = self.send(Method::PUT, "/sim/faults", faults).await;
        assert_eq!(reply.status, 200, "{reply:?}");
    }

    /// Opens a job for an upsert by `ExternalId__c`.
    pub(crate) async fn open(&self, object: &str) -> String {
        let job = json!({
            "object": object, "operation": "upsert", "externalIdFieldName": "ExternalId__c",
        });
        self.open_with(job).await
    }

    pub(crate) async fn open_with(&self, job: Json) -> String {
        let reply = self.post("jobs/ingest", job).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn upload(&self, job: &str, csv: &str) -> Reply {
        let path = format!("{V66}/jobs/ingest/{job}/batches");
        self.try_send(Method::PUT, &path, "text/csv", csv.to_owned()).await.unwrap()
    }

    pub(crate) async fn state(&self, job: &str, state: &str) -> Reply {
        self.patch(&format!("jobs/ingest/{job}"), json!({"state": state})).await
    }

    pub(crate) async fn close(&self, job: &str) {
        let reply = self.state(job, "UploadComplete").await;
        assert_eq!(reply.status, 200, "{reply:?}");
    }

    pub(crate) async fn info(&self, job: &str) -> Json {
        self.read(&format!("jobs/ingest/{job}")).await.json()
    }

    /// Creates a closed job with these rows.
    pub(crate) async fn submit(&self, object: &str, csv: &str) -> String {
        let job = self.open(object).await;
        assert_eq!(self.upload(&job, csv).await.status, 201);
        self.close(&job).await;
        job
    }

    /// Submits a job, and waits until it has ended.
    pub(crate) async fn run(&self, object: &str, csv: &str) -> String {
        let job = self.submit(object, csv).await;
        self.ended(&job).await;
        job
    }

    pub(crate) async fn run_with(&self, job: Json, csv: &str) -> String {
        let job = self.open_with(job).await;
        assert_eq!(self.upload(&job, csv).await.status, 201);
        self.close(&job).await;
        self.ended(&job).await;
        job
    }

    pub(crate) async fn ended(&self, job: &str) -> Json {
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            let info = self.info(job).await;
            let state = info["state"].as_str().unwrap_or_default();
            if ["JobComplete", "Failed", "Aborted"].contains(&state) {
                return info;
            }
            assert!(tokio::time::Instant::now() < end, "the job does not end: {info}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn result(&self, job: &str, kind: &str) -> Reply {
        self.read(&format!("jobs/ingest/{job}/{kind}")).await
    }

    pub(crate) async fn successful(&self, job: &str) -> String {
        self.result(job, "successfulResults").await.text
    }

    pub(crate) async fn failed(&self, job: &str) -> String {
        self.result(job, "failedResults").await.text
    }

    pub(crate) async fn unprocessed(&self, job: &str) -> String {
        self.result(job, "unprocessedrecords").await.text
    }

    /// Returns the record with this external id.
    pub(crate) fn record(&self, object: &str, key: &str) -> Option<Json> {
        self.sim.records(object).into_iter().find(|record| record["ExternalId__c"] == key)
    }

    /// Writes to the record with this external id.
    pub(crate) fn writes(&self, object: &str, key: &str) -> u64 {
        self.sim.ledger().entry(object, key).map_or(0, |entry| entry.writes)
    }
}

/// Returns accounts `key0` to `key<count - 1>`.
pub(crate) fn accounts(count: usize) -> String {
    let rows = (0..count).map(|n| format!("key{n},Name {n}\n"));
    std::iter::once("ExternalId__c,Name\n".to_owned()).chain(rows).collect()
}
