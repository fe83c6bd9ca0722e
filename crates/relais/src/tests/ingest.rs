//! Source → inbox.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use relais_core::{
    async_trait,
    delivery::Problem,
    extract::{Incoming, Mapping, Pick, Value},
    inbox::{AcceptOutcome, Content, NewInbox},
    source::{Source, SourceBatch, SourceError},
};
use tokio_util::sync::CancellationToken;

use super::support::Bench;
use crate::{
    control::Gate,
    ingest::Ingest,
    worker::{PassOutcome, Worker},
};

/// A source that returns prepared batches, and records what was acknowledged and refused.
#[derive(Clone, Default)]
struct Prepared {
    batches: Arc<Mutex<VecDeque<Vec<NewInbox>>>>,
    log: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl Source for Prepared {
    async fn next(&mut self, _max: usize) -> Result<SourceBatch, SourceError> {
        let next = self.batches.lock().unwrap().pop_front();

        let messages = next.ok_or(SourceError::Closed)?;
        Ok(SourceBatch { messages, positions: Vec::new() })
    }

    async fn acknowledge(&mut self, accepted: Vec<AcceptOutcome>) -> Result<(), SourceError> {
        self.log.lock().unwrap().push(format!("{accepted:?}"));
        Ok(())
    }

    async fn refuse(&mut self, reason: String) {
        self.log.lock().unwrap().push(format!("refused: {reason}"));
    }
}

pub(super) fn received(id: &str, body: &str) -> NewInbox {
    let mapping =
        Mapping::json("crm").event_type(Pick::payload("/type")).aggregate_id(Pick::payload("/of"));
    let value = Value::Bytes(body.into());
    let mut incoming = Incoming { topic: "hook".into(), value, ..Incoming::default() };
    incoming.headers.set("message-id", id);
    mapping.read(incoming).unwrap()
}

fn ingest(bench: &Bench, batches: Vec<Vec<NewInbox>>) -> (Ingest, Prepared) {
    let source = Prepared { batches: Arc::new(Mutex::new(batches.into())), ..Prepared::default() };
    (ingest_from(bench, source.clone()), source)
}

pub(super) fn ingest_from(bench: &Bench, source: impl Source + 'static) -> Ingest {
    Ingest {
        store: bench.store.clone(),
        source: Box::new(source),
        ahead: None,
        name: "hook".into(),
        into: String::new(),
        inbox: Arc::clone(&bench.observer.inbox),
        counters: bench.observer.source("hook"),
        outage: crate::ingest::OutageLog::default(),
        stop: CancellationToken::new(),
        gate: tokio::sync::watch::channel(Gate::Open).1,
        stored: Box::new(|| {}),
    }
}

#[tokio::test]
async fn a_message_in_a_named_inbox_carries_its_name() {
    let bench = Bench::new().await;
    for into in ["", "billing"] {
        let batch = vec![received("1", r#"{"type":"T"}"#)];
        let (mut ingest, source) = ingest(&bench, vec![batch]);
        into.clone_into(&mut ingest.into);
        ingest.run_once().await.unwrap();
        assert_eq!(*source.log.lock().unwrap(), ["[Stored]"], "a duplicate only in its inbox");
    }
    let rows = bench.texts("SELECT inbox || ' ' || source_system FROM relais_inbox ORDER BY id");
    assert_eq!(rows, [" crm", "billing billing::crm"]);
}

#[tokio::test]
async fn a_batch_is_stored_then_acknowledged_message_by_message() {
    let bench = Bench::new().await;
    let batch =
        vec![received("1", "{}"), received("1", "{}"), received("1", "[]"), received("2", "{")];
    let (mut ingest, source) = ingest(&bench, vec![batch]);
    assert_eq!(ingest.run_once().await.unwrap(), PassOutcome::Worked);
    assert_eq!(*source.log.lock().unwrap(), ["[Stored, Duplicate, Conflict, Stored]"]);
    let rows = bench.texts("SELECT message_id || ' ' || status FROM relais_inbox ORDER BY id");
    assert_eq!(rows, ["1 RECEIVED", "2 SERDE_ERROR"]);
    assert_eq!(bench.texts("SELECT failed_status FROM relais_dead_letter"), ["CONFLICT"]);
    let counted = &bench.observer.snapshot().sources["hook"];
    assert_eq!((counted.stored, counted.duplicates, counted.conflicts), (2, 1, 1));
    assert_eq!(counted.undecodable, 1);
    assert_eq!(ingest.run_once().await.unwrap(), PassOutcome::Finished);
}

#[tokio::test]
async fn without_a_database_nothing_is_acknowledged() {
    let bench = Bench::new().await;
    bench.sql("ALTER TABLE relais_inbox RENAME TO renamed");
    let (mut ingest, source) = ingest(&bench, vec![vec![received("1", "{}")]]);
    assert!(ingest.run_once().await.is_err());
    assert!(source.log.lock().unwrap()[0].starts_with("refused: "));
}

#[tokio::test]
async fn one_message_that_the_database_refuses_does_not_stop_others() {
    let bench = Bench::new().await;
    let mut odd = received("odd", "{}");
    // Not JSON: the check of the database refuses it.
    odd.content = Content::Json("{not json".into());
    let (mut ingest, source) =
        ingest(&bench, vec![vec![received("1", "{}"), odd, received("2", "{}")]]);
    assert_eq!(ingest.run_once().await.unwrap(), PassOutcome::Worked);
    assert_eq!(*source.log.lock().unwrap(), ["[Stored, Stored, Stored]"]);
    let rows = bench.texts("SELECT message_id || ' ' || status FROM relais_inbox ORDER BY id");
    assert_eq!(rows, ["1 RECEIVED", "odd SERDE_ERROR", "2 RECEIVED"]);
}

#[tokio::test]
async fn a_message_with_any_content_is_kept_and_does_not_stop_others() {
    let bench = Bench::new().await;
    let mut odd = received("odd\0", "{}");
    let problem = Problem { code: "x\0".repeat(5_000), message: "y\0".repeat(50_000) };
    odd.content = Content::Undecodable { bytes: b"\xff".to_vec(), problem };
    odd.key_str = Some("k\0".repeat(5_000));
    odd.msg_key = "k\0".repeat(5_000);
    odd.event_type = Some("t\0".repeat(5_000));
    let (mut ingest, source) =
        ingest(&bench, vec![vec![received("1", "{}"), odd.clone()], vec![odd]]);
    for expected in ["[Stored, Stored]", "[Duplicate]"] {
        assert_eq!(ingest.run_once().await.unwrap(), PassOutcome::Worked);
        assert_eq!(source.log.lock().unwrap().last().unwrap(), expected);
    }
    let rows = bench.texts("SELECT status FROM relais_inbox ORDER BY id");
    assert_eq!(rows, ["RECEIVED", "SERDE_ERROR"]);
}
