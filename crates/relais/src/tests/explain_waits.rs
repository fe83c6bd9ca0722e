//! Explanations of rows whose target is unavailable.

use std::sync::Arc;

use relais_core::{
    async_trait,
    delivery::Delivery,
    inbox::InboxRow,
    remote_handler::{RemoteHandler, RemoteReply},
};

use super::{
    explain::{app, record, story, until},
    support::{Bench, Script},
};
use crate::{App, DestinationSettings};

#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_an_unavailable_destination_names_the_reason() {
    let bench = Bench::new().await;
    let script = Script::new(&[]);
    script.fail_calls(usize::MAX, Delivery::outage("REFUSED", "connection refused"));
    let running = app(&bench, &script).start();
    bench.enqueue(&[("k", "a"), ("l", "b"), ("m", "c")]).await;
    running.wake();
    let opened = "SELECT count(*) FROM relais_report WHERE figures LIKE '%\"breaker\":\"open\"%'";
    until(&bench, opened, "1").await;
    bench.enqueue(&[("late", "d")]).await;
    let waiting = story(&bench, "outbox:4").await;
    let waits_for = waiting.things[0].waits_for.as_deref().unwrap_or_default();
    assert!(
        waits_for.contains("circuit breaker is open: REFUSED: connection refused"),
        "{waits_for}"
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_failed_shows_its_error_once_and_no_time_that_has_passed() {
    let bench = Bench::new().await;
    let script = Script::new(&[]);
    script.fail_calls(usize::MAX, Delivery::outage("REFUSED", "connection refused"));
    let running = app(&bench, &script).start();
    bench.enqueue(&[("k", "a"), ("l", "b"), ("m", "c")]).await;
    running.wake();
    let opened = "SELECT count(*) FROM relais_report WHERE figures LIKE '%\"breaker\":\"open\"%'";
    until(&bench, opened, "1").await;
    let passed = "SELECT count(*) FROM relais_outbox WHERE error_code = 'REFUSED' \
                  AND next_attempt_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now')";
    until(&bench, passed, "1").await;
    let row = bench.texts("SELECT id FROM relais_outbox WHERE error_code = 'REFUSED'").remove(0);
    let row = story(&bench, &format!("outbox:{row}")).await.things.remove(0);
    assert_eq!(
        row.waits_for.as_deref(),
        Some("waits for destination d, whose circuit breaker is open")
    );
    assert_eq!(row.problem.map(|problem| problem.message), Some("connection refused".into()));
    assert_eq!(row.next_attempt_at, None);
    running.stop().await;
}

/// A service that cannot be reached.
struct Unreachable;

#[async_trait]
impl RemoteHandler for Unreachable {
    async fn call(&self, _: &InboxRow) -> RemoteReply {
        RemoteReply::Failed(Delivery::outage("REFUSED", "connection refused"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_an_unavailable_handler_names_the_reason() {
    let bench = Bench::new().await;
    let settings = DestinationSettings::default();
    let app = App::new(bench.store.clone());
    let running = app.remote_handler("billing", ["T"], Arc::new(Unreachable), settings).start();
    for n in 0..3 {
        let id = format!("m-{n}");
        bench.store.accept(vec![record(&id, r#"{"type":"T"}"#, n)], Vec::new()).await.unwrap();
    }
    running.wake();
    let opened = "SELECT count(*) FROM relais_report WHERE figures LIKE '%\"breaker\":\"open\"%'";
    until(&bench, opened, "1").await;
    let copies =
        "SELECT id FROM relais_inbox WHERE source_system LIKE '@billing%' AND error_code IS NULL";
    let copy = bench.texts(copies).pop().expect("a copy that was not called");
    let waiting = story(&bench, &format!("inbox:{copy}")).await;
    let waits_for = waiting.things.iter().find_map(|thing| thing.waits_for.clone());
    let waits_for = waits_for.unwrap_or_default();
    assert!(
        waits_for.contains("destination @billing, whose circuit breaker is open: REFUSED"),
        "{waits_for}"
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_a_destination_that_failed_last_names_the_error() {
    let bench = Bench::new().await;
    let script = Script::new(&[("a", vec![Delivery::retry("500", "oops"); 20])]);
    script.stick("b");
    let settings = DestinationSettings::default().concurrency(1);
    let app = App::new(bench.store.clone()).destination_with("d", script.clone(), settings);
    let running = app.start();
    bench.enqueue(&[("k", "a"), ("l", "b"), ("m", "c")]).await;
    running.wake();
    let failed = "SELECT count(*) FROM relais_report WHERE figures LIKE '%\"last_error\"%'";
    until(&bench, failed, "1").await;
    until(&bench, "SELECT coalesce(error_code, '') FROM relais_outbox WHERE id = 1", "500").await;
    let own = story(&bench, "outbox:1").await.things.remove(0);
    assert_eq!(
        (own.problem.map(|problem| problem.code), own.waits_for),
        (Some("500".into()), None)
    );
    let waiting = story(&bench, "outbox:3").await;
    let waits_for = waiting.things[0].waits_for.as_deref().unwrap_or_default();
    assert!(
        waits_for.starts_with("waits for destination d, whose last call failed"),
        "{waits_for}"
    );
    assert!(waits_for.ends_with(": 500: oops"), "{waits_for}");
    drop(running);
}
