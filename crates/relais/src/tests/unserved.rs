//! Warnings about messages that no worker serves.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use relais_core::{inspect::Inspect, lane::Scope, message::NewMessage};
use tracing::{Event, Metadata, Subscriber, field, span};
use uuid::Uuid;

use super::support::Bench;
use crate::{
    unserved::{EVERY, FIRST_AFTER, UnservedCheck},
    worker::{PassOutcome, Worker},
};

/// Keeps the events of this thread as text.
#[derive(Clone, Default)]
struct EventLog(Arc<Mutex<Vec<String>>>);

impl EventLog {
    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// The fields of one event.
struct EventText(String);

impl field::Visit for EventText {
    fn record_debug(&mut self, field: &field::Field, value: &dyn fmt::Debug) {
        self.0.push_str(&format!(" {}={value:?}", field.name()));
    }
}

impl Subscriber for EventLog {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = EventText(event.metadata().level().to_string());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[tokio::test]
async fn an_unserved_destination_is_warned_about_at_start_and_each_minute() {
    let bench = Bench::new().await;
    let text = "{}".to_owned();
    let message = NewMessage::new(Uuid::now_v7(), ("Order", "o"), "Placed", "ordres", text);
    bench.store.enqueue(vec![message]).await.unwrap();
    let log = EventLog::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let store: Arc<dyn Inspect> = bench.store.clone();
    let check = |own| UnservedCheck::new(store.clone(), own, Arc::default());
    assert!(FIRST_AFTER < Duration::from_secs(10) && EVERY == Duration::from_secs(60));
    let mut early = check(BTreeSet::new()).with_times(EVERY, EVERY);
    let outcome = early.run_once().await.unwrap();
    assert!(matches!(outcome, PassOutcome::Idle { at_most } if at_most <= EVERY));
    assert!(log.lines().is_empty(), "the first messages are more urgent");
    // Intervals that are over at once.
    let mut unserved = check(BTreeSet::new()).with_times(Duration::ZERO, Duration::ZERO);
    for rows in 1..=2 {
        let outcome = unserved.run_once().await.unwrap();
        assert!(matches!(outcome, PassOutcome::Idle { at_most } if at_most.is_zero()));
        let lines = log.lines();
        assert_eq!(lines.len(), rows, "{lines:?}");
        let newest = &lines[rows - 1];
        for words in ["WARN", "destination=\"ordres\"", "pending=1", "no worker serves"] {
            assert!(newest.contains(words), "{newest}");
        }
    }
    let own = BTreeSet::from([Scope::Outbox("ordres".to_owned()).to_string()]);
    check(own).with_times(Duration::ZERO, EVERY).run_once().await.unwrap();
    assert_eq!(log.lines().len(), 2, "this process serves it");
}
