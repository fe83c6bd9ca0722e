//! A source that is read while its last batch is stored.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use relais_core::{
    async_trait,
    inbox::{AcceptOutcome, NewInbox},
    source::{Source, SourceBatch, SourceError},
};
use tokio::sync::watch;

use super::{
    ingest::{ingest_from, received},
    support::Bench,
};
use crate::{
    control::Gate,
    ingest::Ingest,
    worker::{PassOutcome, Worker},
};

/// A source of numbered batches that reads ahead, and records its calls.
#[derive(Clone)]
struct AheadSource {
    batches: Arc<Mutex<VecDeque<u8>>>,
    /// Returned and not settled, oldest first.
    unsettled: Arc<Mutex<VecDeque<u8>>>,
    log: Arc<Mutex<Vec<String>>>,
    /// Runs when the source is asked to read ahead: the batch before is being stored then.
    meanwhile: Arc<dyn Fn() + Send + Sync>,
}

impl AheadSource {
    fn new(batches: u8, meanwhile: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            batches: Arc::new(Mutex::new((1..=batches).collect())),
            unsettled: Arc::default(),
            log: Arc::default(),
            meanwhile: Arc::new(meanwhile),
        }
    }

    fn read(&self, call: &str) -> Option<SourceBatch> {
        let number = self.batches.lock().unwrap().pop_front()?;
        self.unsettled.lock().unwrap().push_back(number);
        self.note(format!("{call} {number}"));
        let messages: Vec<NewInbox> = vec![received(&number.to_string(), "{}")];
        Some(SourceBatch { messages, positions: Vec::new() })
    }

    fn note(&self, line: String) {
        self.log.lock().unwrap().push(line);
    }

    /// Returns the calls since the last time.
    fn calls(&self) -> Vec<String> {
        self.log.lock().unwrap().drain(..).collect()
    }
}

#[async_trait]
impl Source for AheadSource {
    async fn next(&mut self, _max: usize) -> Result<SourceBatch, SourceError> {
        assert!(self.unsettled.lock().unwrap().is_empty(), "the last batch is not settled");
        self.read("next").ok_or(SourceError::Closed)
    }

    async fn read_ahead(&mut self, _max: usize) -> Result<SourceBatch, SourceError> {
        assert_eq!(self.unsettled.lock().unwrap().len(), 1, "one batch is being stored");
        let read = self.read("ahead");
        (self.meanwhile)();
        match read {
            Some(batch) => Ok(batch),
            None => std::future::pending().await,
        }
    }

    async fn acknowledge(&mut self, _accepted: Vec<AcceptOutcome>) -> Result<(), SourceError> {
        let oldest = self.unsettled.lock().unwrap().pop_front().unwrap();
        self.note(format!("acknowledge {oldest}"));
        Ok(())
    }

    async fn refuse(&mut self, _reason: String) {
        let mut unsettled = self.unsettled.lock().unwrap();
        self.note(format!("refuse {unsettled:?}"));
        let mut batches = self.batches.lock().unwrap();
        unsettled.drain(..).rev().for_each(|number| batches.push_front(number));
    }

    async fn close(&mut self) {
        self.note("close".to_owned());
    }
}

/// Locks the database, so that no batch is stored until the result is called.
fn lock(bench: &Bench) -> impl Fn() + Send + Sync + 'static {
    let connection = rusqlite::Connection::open(bench.path()).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    let locked = Mutex::new(Some(connection));
    // Closing the connection rolls its transaction back.
    move || drop(locked.lock().unwrap().take())
}

fn stored(bench: &Bench) -> Vec<String> {
    bench.texts("SELECT message_id FROM relais_inbox ORDER BY id")
}

async fn pass(ingest: &mut Ingest) -> PassOutcome {
    ingest.run_once().await.unwrap()
}

#[tokio::test]
async fn the_next_batch_is_read_while_one_is_stored_and_each_is_acknowledged_after_its_commit() {
    let bench = Bench::new().await;
    // Unless it is read meanwhile, the first batch is never stored.
    let source = AheadSource::new(3, lock(&bench));
    let mut ingest = ingest_from(&bench, source.clone());
    assert_eq!(pass(&mut ingest).await, PassOutcome::Worked);
    assert_eq!(source.calls(), ["next 1", "ahead 2", "acknowledge 1"]);
    assert_eq!(stored(&bench), ["1"], "the second is read and not stored");
    for _ in 2..=3 {
        assert_eq!(pass(&mut ingest).await, PassOutcome::Worked);
    }
    assert_eq!(pass(&mut ingest).await, PassOutcome::Finished);
    let calls = source.calls();
    let settled: Vec<_> = calls.iter().filter(|call| call.starts_with("ack")).collect();
    assert_eq!(settled, ["acknowledge 2", "acknowledge 3"]);
    assert_eq!(stored(&bench), ["1", "2", "3"]);
}

#[tokio::test]
async fn a_batch_read_ahead_is_not_stored_if_the_one_before_it_fails() {
    let bench = Bench::new().await;
    // Refuses the first batch only: the second one would be stored.
    bench.sql(
        "CREATE TRIGGER refuse BEFORE INSERT ON relais_inbox WHEN NEW.message_id = '1'
         BEGIN SELECT RAISE(ABORT, 'not now'); END",
    );
    let source = AheadSource::new(2, lock(&bench));
    let mut ingest = ingest_from(&bench, source.clone());
    assert!(ingest.run_once().await.is_err());
    assert_eq!(source.calls(), ["next 1", "ahead 2", "refuse [1, 2]"]);
    assert!(stored(&bench).is_empty());
    bench.sql("DROP TRIGGER refuse");
    assert_eq!(pass(&mut ingest).await, PassOutcome::Worked);
    assert_eq!(pass(&mut ingest).await, PassOutcome::Worked);
    assert_eq!(stored(&bench), ["1", "2"]);
}

#[tokio::test]
async fn a_stop_lets_the_batch_in_flight_finish_and_returns_the_one_read_ahead() {
    let bench = Bench::new().await;
    let (unlock, stop) = (lock(&bench), tokio_util::sync::CancellationToken::new());
    let stopping = stop.clone();
    let source = AheadSource::new(2, move || {
        stopping.cancel();
        unlock();
    });
    let mut ingest = Ingest { stop, ..ingest_from(&bench, source.clone()) };
    assert_eq!(pass(&mut ingest).await, PassOutcome::Worked);
    ingest.stop(std::time::Duration::ZERO).await;
    assert_eq!(source.calls(), ["next 1", "ahead 2", "acknowledge 1", "refuse [2]", "close"]);
    assert_eq!(stored(&bench), ["1"]);
}

#[tokio::test]
async fn after_a_stop_nothing_is_read_ahead() {
    let bench = Bench::new().await;
    let source = AheadSource::new(2, || {});
    let mut ingest = ingest_from(&bench, source.clone());
    let read = source.clone().next(1).await.unwrap();
    (ingest.ahead, ingest.stop) = (Some(Ok(read)), tokio_util::sync::CancellationToken::new());
    ingest.stop.cancel();
    assert_eq!(pass(&mut ingest).await, PassOutcome::Worked);
    assert_eq!(source.calls(), ["next 1", "acknowledge 1"]);
}

#[tokio::test]
async fn a_pause_returns_the_batch_read_ahead() {
    let bench = Bench::new().await;
    let (gate, opened) = watch::channel(Gate::Open);
    let (gate, unlock) = (Arc::new(gate), lock(&bench));
    let pausing = Arc::clone(&gate);
    let source = AheadSource::new(2, move || {
        pausing.send_replace(Gate::Paused);
        unlock();
    });
    let mut ingest = Ingest { gate: opened, ..ingest_from(&bench, source.clone()) };
    assert_eq!(pass(&mut ingest).await, PassOutcome::Worked);
    let resume = async {
        while !source.log.lock().unwrap().contains(&"refuse [2]".to_owned()) {
            tokio::task::yield_now().await;
        }
        gate.send_replace(Gate::Open);
    };
    let (paused, ()) = tokio::join!(pass(&mut ingest), resume);
    assert_eq!(paused, PassOutcome::Worked);
    assert_eq!(pass(&mut ingest).await, PassOutcome::Worked);
    assert_eq!(stored(&bench), ["1", "2"]);
}
