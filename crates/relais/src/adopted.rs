//! Adopted tables: the worker that handles changes of applications, and the check of copied payloads.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use relais_core::{
    delivery::Delivery,
    inspect::AdoptedProblems,
    json,
    outbox::OutboxRow,
    publisher::{Batching, Publisher},
    store::{RowMark, StoreDriver, StoreError},
};

use crate::{
    observe::Observer,
    worker::{PassOutcome, Worker},
};

/// The rest between two passes.
const REST: Duration = Duration::from_millis(500);

/// The interval at which the tables are compared with the configuration.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// Handles what applications changed in their adopted tables, and reports tables that no longer fit.
pub(crate) struct AdoptedFollower {
    store: Arc<dyn StoreDriver>,
    observer: Arc<Observer>,
    next: Instant,
    next_check: Instant,
}

impl AdoptedFollower {
    pub(crate) fn new(store: Arc<dyn StoreDriver>, observer: Arc<Observer>) -> Self {
        let now = Instant::now();
        Self { store, observer, next: now, next_check: now }
    }

    /// Compares the tables with the configuration, and logs what changed.
    async fn check(&mut self) -> Result<(), StoreError> {
        self.next_check = Instant::now() + CHECK_EVERY;
        let found = self.store.describe().await?.adopted;
        for (table, report) in differences(&self.observer.adopted(), &found) {
            match report {
                Some(problem) => tracing::warn!(table, "adopted table does not fit: {problem}"),
                None => tracing::info!(table, "adopted table fits again"),
            }
        }
        self.observer.set_adopted(found);
        Ok(())
    }
}

/// Returns the tables whose problems changed, with the first problem that they have now.
fn differences<'a>(
    before: &[AdoptedProblems],
    now: &'a [AdoptedProblems],
) -> Vec<(&'a str, Option<&'a str>)> {
    let of_table = |table: &str| {
        let known = before.iter().find(|known| known.table == table);
        known.and_then(|known| known.problems.first()).map(String::as_str)
    };
    let first = now.iter().map(|t| (t.table.as_str(), t.problems.first().map(String::as_str)));
    first.filter(|(table, problem)| of_table(table) != *problem).collect()
}

#[async_trait]
impl Worker for AdoptedFollower {
    async fn run_once(&mut self) -> Result<PassOutcome, StoreError> {
        if self.next_check <= Instant::now() {
            self.check().await?;
        }
        let wait = self.next.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            return Ok(PassOutcome::Idle { at_most: wait });
        }
        let handled = self.store.mark_rows(RowMark::AdoptedTables).await?.settled;
        if handled > 0 {
            return Ok(PassOutcome::Worked);
        }
        self.next = Instant::now() + REST;
        Ok(PassOutcome::Idle { at_most: REST })
    }
}

/// A publisher of a destination that gets rows of adopted tables. The trigger that copies them does not validate
/// them, so that it cannot fail the application's INSERT: a payload that is no JSON is rejected here, and becomes a
/// dead letter.
pub struct JsonGate {
    inner: Arc<dyn Publisher>,
}

impl JsonGate {
    /// Returns the publisher with the check before it.
    pub fn new(inner: Arc<dyn Publisher>) -> Self {
        Self { inner }
    }
}

impl std::fmt::Debug for JsonGate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JsonGate").finish_non_exhaustive()
    }
}

#[async_trait]
impl Publisher for JsonGate {
    async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery> {
        let mut refused_keys = HashSet::new();
        let verdicts: Vec<Option<Delivery>> = messages
            .iter()
            .map(|message| {
                if refused_keys.contains(&message.msg_key) {
                    return Some(Delivery::Held);
                }
                let error = json::check(message.payload.as_bytes()).err()?;
                refused_keys.insert(&message.msg_key);
                Some(Delivery::reject("INVALID_JSON", &format!("the payload is not JSON: {error}")))
            })
            .collect();
        if refused_keys.is_empty() {
            return self.inner.publish(messages).await;
        }
        let sound = messages.iter().zip(&verdicts).filter(|(_, verdict)| verdict.is_none());
        let sound: Vec<OutboxRow> = sound.map(|(message, _)| message.clone()).collect();
        let published =
            if sound.is_empty() { Vec::new() } else { self.inner.publish(&sound).await };
        let mut published = published.into_iter();
        verdicts
            .into_iter()
            .map(|verdict| verdict.or_else(|| published.next()).unwrap_or(Delivery::Held))
            .collect()
    }

    fn batching(&self) -> Batching {
        self.inner.batching()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use relais_core::{
        message::{Category, Headers},
        outbox::OutboxStatus,
        time::Timestamp,
    };
    use uuid::Uuid;

    use super::*;

    #[derive(Default)]
    struct Recorder(Mutex<Vec<String>>);

    #[async_trait]
    impl Publisher for Recorder {
        async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery> {
            let mut seen = self.0.lock().unwrap();
            seen.extend(messages.iter().map(|message| message.payload.clone()));
            vec![Delivery::Accepted; messages.len()]
        }
    }

    fn row(key: &str, payload: &str) -> OutboxRow {
        OutboxRow {
            id: 1,
            message_id: Uuid::nil(),
            category: Category::Event,
            aggregate_type: "Order".into(),
            aggregate_id: key.into(),
            event_type: "OrderCreated".into(),
            event_version: 1,
            payload: payload.into(),
            headers: Headers::default(),
            destination: "orders".into(),
            msg_key: key.into(),
            lane: 3,
            created_at: Timestamp(0),
            status: OutboxStatus::Pending,
            attempts: 0,
            lost_workers: 0,
            next_attempt_at: None,
            dispatched_at: None,
            job_id: None,
            causation_id: None,
            correlation_id: None,
            error_code: None,
            error_message: None,
        }
    }

    #[test]
    fn a_table_is_reported_when_its_first_problem_changes() {
        let table = |problems: &[&str]| AdoptedProblems {
            table: "outbox".into(),
            problems: problems.iter().map(|text| (*text).to_owned()).collect(),
        };
        let (fits, renamed, twice) = (table(&[]), table(&["a"]), table(&["a", "b"]));
        assert_eq!(differences(&[], std::slice::from_ref(&fits)), []);
        assert_eq!(differences(&[], std::slice::from_ref(&renamed)), [("outbox", Some("a"))]);
        assert_eq!(differences(std::slice::from_ref(&renamed), &[twice]), []);
        assert_eq!(differences(&[renamed], &[fits]), [("outbox", None)]);
    }

    #[tokio::test]
    async fn a_payload_that_is_no_json_is_rejected_and_holds_its_key() {
        let recorder = Arc::new(Recorder::default());
        let gate = JsonGate::new(recorder.clone());
        let rows = [row("a", "{}"), row("a", "{oops"), row("a", "[1]"), row("b", "[2]")];
        let deliveries = gate.publish(&rows).await;
        assert_eq!((&deliveries[0], &deliveries[2]), (&Delivery::Accepted, &Delivery::Held));
        assert!(
            matches!(&deliveries[1], Delivery::Reject { problem } if problem.code == "INVALID_JSON")
        );
        assert_eq!(deliveries[3], Delivery::Accepted);
        assert_eq!(*recorder.0.lock().unwrap(), ["{}", "[2]"]);
    }
}
