//! Helpers: a simulator, rows to send, and a bulk job without the engine.

use std::time::Duration;

use relais_connect::{
    SecretString,
    salesforce::{Auth, SalesforceBulk, SalesforceSettings},
};
use relais_core::{
    bulk::{BulkTarget, CallProblem, Remote},
    delivery::{Delivery, Problem},
    outbox::OutboxRow,
};
use salesforce_sim::{
    Faults, RunningSimulator, Simulator, SimulatorConfig,
    faults::{HttpAction, HttpFault, Pattern},
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::testing;

/// Time that a test waits for a job.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

pub(crate) async fn simulator(faults: Faults) -> RunningSimulator {
    Simulator::start(SimulatorConfig { faults, ..SimulatorConfig::default() }).await.unwrap()
}

pub(crate) fn client_credentials() -> Auth {
    Auth::ClientCredentials {
        client_id: "app".into(),
        client_secret: SecretString::from("hush-hush"),
    }
}

/// Contacts: last name, first name, e-mail and version from the payload.
pub(crate) fn settings(sim: &RunningSimulator) -> SalesforceSettings {
    let mut settings =
        SalesforceSettings::new(&sim.url(), client_credentials(), "Contact", "ExternalId__c");
    settings.columns = columns(&[
        ("LastName", "last"),
        ("FirstName", "first"),
        ("Email", "email"),
        ("Version__c", "version"),
    ]);
    settings
}

pub(crate) fn columns(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(column, field)| ((*column).to_owned(), (*field).to_owned())).collect()
}

pub(crate) fn bulk(sim: &RunningSimulator) -> SalesforceBulk {
    SalesforceBulk::new(settings(sim), None).unwrap()
}

pub(crate) fn row(id: &str, payload: Value) -> OutboxRow {
    OutboxRow {
        aggregate_id: id.to_owned(),
        msg_key: id.to_owned(),
        message_id: Uuid::new_v4(),
        ..testing::row(&payload.to_string())
    }
}

/// Returns rows `M-0`, `M-1`, … with ids 1, 2, …
pub(crate) fn members(count: usize) -> Vec<OutboxRow> {
    let one = |n: usize| {
        let payload = json!({"last": format!("Doe {n}"), "first": "Jane", "version": 1});
        OutboxRow { id: n as i64 + 1, ..row(&format!("M-{n}"), payload) }
    };
    (0..count).map(one).collect()
}

pub(crate) fn http_fault(method: &str, path: &str, action: HttpAction) -> HttpFault {
    HttpFault {
        method: Some(method.to_owned()),
        path: Pattern::new(path).unwrap(),
        action,
        ..HttpFault::default()
    }
}

/// Once only.
pub(crate) fn once(fault: HttpFault) -> HttpFault {
    HttpFault { times: Some(1), ..fault }
}

pub(crate) fn failing(http: Vec<HttpFault>) -> Faults {
    Faults { http, ..Faults::default() }
}

/// Creates, uploads and closes a job.
pub(crate) async fn start(bulk: &SalesforceBulk, rows: &[OutboxRow]) -> String {
    let encoded = bulk.encode(rows, 0).await.unwrap();
    let id = bulk.create().await.unwrap();
    bulk.upload(&id, vec![encoded.body]).await.unwrap();
    bulk.close(&id).await.unwrap();
    id
}

/// Polls until the job has ended.
pub(crate) async fn ended(bulk: &SalesforceBulk, id: &str) -> Remote {
    let wait = async {
        loop {
            match bulk.state(id).await.unwrap() {
                Remote::Open | Remote::Running => tokio::time::sleep(POLL_INTERVAL).await,
                remote => return remote,
            }
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap()
}

/// Returns the external ids of rows.
pub(crate) fn ids(rows: &[OutboxRow]) -> Vec<String> {
    rows.iter().map(|row| row.aggregate_id.clone()).collect()
}

/// Sends rows in one job and returns their deliveries.
pub(crate) async fn send(bulk: &SalesforceBulk, rows: &[OutboxRow]) -> Vec<Delivery> {
    let id = start(bulk, rows).await;
    ended(bulk, &id).await;
    bulk.results(&id, &ids(rows)).await.unwrap()
}

/// Returns the record with this external id.
pub(crate) fn record(sim: &RunningSimulator, object: &str, id: &str) -> Value {
    let is_it = |record: &Value| record["ExternalId__c"] == id;
    sim.records(object).into_iter().find(is_it).unwrap_or(Value::Null)
}

pub(crate) fn calls(sim: &RunningSimulator, containing: &str) -> u64 {
    sim.calls().iter().filter(|(call, _)| call.contains(containing)).map(|(_, n)| n).sum()
}

/// Returns the code of a delivery that is not a success.
pub(crate) fn code(delivery: &Delivery) -> &str {
    match delivery.problem() {
        Some((problem, _)) => &problem.code,
        None if *delivery == Delivery::Accepted => "accepted",
        None => "held",
    }
}

/// Returns the kind of problem, and its reason.
pub(crate) fn split<T: std::fmt::Debug>(
    answer: Result<T, CallProblem>,
) -> (&'static str, Problem, Option<Duration>) {
    match answer.unwrap_err() {
        CallProblem::Outage { problem, after } => ("outage", problem, after),
        CallProblem::Unclear(problem) => ("unclear", problem, None),
        CallProblem::OtherState(problem) => ("other state", problem, None),
        CallProblem::Refused(problem) => ("refused", problem, None),
    }
}

pub(crate) fn kind<T: std::fmt::Debug>(answer: Result<T, CallProblem>) -> &'static str {
    split(answer).0
}
