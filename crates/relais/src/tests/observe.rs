//! Measurements and traces of a message.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use relais_core::{
    async_trait, delivery::Delivery, handler::Outcome, lane::Scope, outbox::OutboxRow,
    publisher::Publisher, query::Retention,
};

use super::{
    bulk::{bulk, drain_bulk, settings},
    inbox::{accept, noting, route, worker},
    ingest::received,
    remote::RemoteTarget,
    support::{Bench, Script, drain, on_both},
};
use crate::{
    DestinationSettings,
    cleanup::Cleanup,
    inbox::EventAction,
    observe::{Attribute, Observer, Span, SpanSink},
    publish_guard::PublishGuard,
    relay::Relay,
    worker::{PassOutcome, Worker, run_until_idle},
};

#[derive(Clone, Default)]
struct SpanLog(Arc<Mutex<Vec<Span>>>);

impl SpanSink for SpanLog {
    fn record(&self, span: Span) {
        self.0.lock().unwrap().push(span);
    }
}

impl SpanLog {
    fn spans(&self) -> Vec<Span> {
        self.0.lock().unwrap().clone()
    }

    /// The last span of this name.
    fn find(&self, name: &str) -> Span {
        let spans = self.spans();
        let found = spans.iter().rev().find(|span| span.name == name);
        found.unwrap_or_else(|| panic!("no {name} in {spans:?}")).clone()
    }
}

async fn traced() -> (Bench, SpanLog) {
    let kept = SpanLog::default();
    let mut bench = Bench::new().await;
    bench.observer = Observer::with_spans(Arc::new(kept.clone()), 1.0);
    (bench, kept)
}

/// A publisher that keeps the headers of its messages.
#[derive(Default)]
struct Receiver(Mutex<Vec<String>>);

#[async_trait]
impl Publisher for Receiver {
    async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery> {
        let headers = messages.iter().map(|row| row.headers.to_json());
        self.0.lock().unwrap().extend(headers);
        vec![Delivery::Accepted; messages.len()]
    }
}

async fn deliver(bench: &Bench) -> Vec<String> {
    let receiver = Arc::new(Receiver::default());
    let settings = DestinationSettings::default();
    let keeper = bench.keeper(Scope::Outbox("d".into()), "r");
    let guard = PublishGuard::new(receiver.clone(), &settings);
    let counters = bench.observer.destination("d");
    let mut relay = Relay::new(bench.store.clone(), keeper, guard, settings, counters);
    relay.reader().keeper().beat().await.unwrap();
    drain(&mut relay).await;
    receiver.0.lock().unwrap().clone()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn each_part_of_the_path_is_measured() {
    let bench = Bench::new().await;
    accept(&bench, &[("1", r#"{"type":"T","of":"x"}"#), ("2", r#"{"type":"T","of":"y"}"#)]).await;
    run_until_idle(&mut worker(&bench, "w", vec![("T", route("T"))]).await).await;
    let headers = deliver(&bench).await;
    assert_eq!(headers, ["{}", "{}"], "the time of reception stays here");
    let snapshot = bench.observer.snapshot();
    assert_eq!(snapshot.inbox.handling.count(), 2);
    let d = &snapshot.destinations["d"];
    assert_eq!((d.dispatch.count(), d.end_to_end.count(), d.publish.count()), (2, 2, 2));
    assert_eq!(snapshot.dispatch(), d.dispatch);
}

#[tokio::test]
async fn a_message_without_a_reception_has_no_end_to_end_latency_and_a_delay_is_none() {
    let bench = Bench::new().await;
    bench.enqueue(&[("a", "a1")]).await;
    bench.sql(
        "UPDATE relais_outbox SET created_at = '2000-01-01T00:00:00.000Z',
         next_attempt_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')",
    );
    drain(&mut bench.relay("w", &Script::new(&[])).await).await;
    let d = &bench.observer.snapshot().destinations["d"];
    assert_eq!((d.dispatch.count(), d.end_to_end.count()), (1, 0));
    assert!(d.dispatch.sum().as_secs() < 3_600, "{:?}", d.dispatch.sum());
}

#[tokio::test]
async fn a_heartbeat_reports_lanes_and_lost_lanes() {
    let bench = Bench::new().await;
    let heart = bench.observer.scope(&Scope::Inbox);
    let keeper = bench.keeper(Scope::Inbox, "w").report_to(heart);
    keeper.beat().await.unwrap();
    assert_eq!(bench.observer.snapshot().scopes["inbox"].lanes, 64);
    bench.expire_leases();
    bench.keeper(Scope::Inbox, "other").beat().await.unwrap();
    keeper.beat().await.unwrap();
    let scope = bench.observer.snapshot().scopes["inbox"].clone();
    assert!(scope.lanes_lost > 0 && scope.trouble.is_none(), "{scope:?}");
}

#[tokio::test]
async fn a_received_trace_continues_to_the_target() {
    let (bench, kept) = traced().await;
    let mut message = received("1", r#"{"type":"T","of":"x"}"#);
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    message.headers.set("traceparent", parent);
    bench.store.accept(vec![message], Vec::new()).await.unwrap();
    run_until_idle(&mut worker(&bench, "w", vec![("T", route("T"))]).await).await;
    let handle = kept.find("handle T");
    assert_eq!(hex(&handle.trace_id), "0af7651916cd43dd8448eb211c80319c");
    // The rest in another process, which has only the rows.
    let (mut elsewhere, kept) = traced().await;
    elsewhere.store = bench.store.clone();
    let headers = deliver(&elsewhere).await;
    let publish = kept.find("publish d");
    assert_eq!(publish.trace_id, handle.trace_id);
    assert_eq!(publish.parent, Some(handle.span_id));
    let sent = format!("00-{}-{}-01", hex(&publish.trace_id), hex(&publish.span_id));
    assert_eq!(headers, [format!(r#"{{"traceparent":"{sent}"}}"#)]);
}

#[tokio::test]
async fn a_message_without_a_trace_begins_one_that_every_worker_finds() {
    let (bench, kept) = traced().await;
    accept(&bench, &[("1", r#"{"type":"T","of":"x"}"#)]).await;
    run_until_idle(&mut worker(&bench, "w", vec![("T", route("T"))]).await).await;
    deliver(&bench).await;
    let (handle, publish) = (kept.find("handle T"), kept.find("publish d"));
    assert_eq!(publish.trace_id, handle.trace_id);
    assert_eq!(publish.parent, Some(handle.span_id));
    assert!(handle.parent.is_some(), "the span of its reception");
    assert!(handle.attributes.contains(&("messaging.message.id", Attribute::Text("1".into()))));
    let all = format!("{:?}", kept.spans());
    assert!(!all.contains(r#""x""#), "no key in clear: {all}");
}

#[tokio::test]
async fn a_handler_gets_the_trace_and_its_failure_is_a_span() {
    let (bench, kept) = traced().await;
    accept(&bench, &[("1", r#"{"type":"T","of":"x"}"#)]).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&seen);
    let handler = noting(&bench, move |message| {
        notes.lock().unwrap().push(message.headers.get("traceparent").map(str::to_owned));
        Outcome::retry("LATER", "the password is abc")
    });
    run_until_idle(&mut worker(&bench, "w", vec![("T", EventAction::Handler(handler))]).await)
        .await;
    let span = kept.find("handle T");
    let passed_on = format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id));
    assert_eq!(*seen.lock().unwrap(), [Some(passed_on)]);
    assert_eq!(span.error.as_deref(), Some("LATER"));
    assert!(!format!("{span:?}").contains("abc"));
}

#[tokio::test]
async fn a_trace_that_is_not_sampled_stays_so() {
    let kept = SpanLog::default();
    let mut bench = Bench::new().await;
    bench.observer = Observer::with_spans(Arc::new(kept.clone()), 0.0);
    accept(&bench, &[("1", r#"{"type":"T","of":"x"}"#)]).await;
    run_until_idle(&mut worker(&bench, "w", vec![("T", route("T"))]).await).await;
    bench.observer = Observer::with_spans(Arc::new(kept.clone()), 1.0);
    let headers = deliver(&bench).await;
    assert!(headers[0].ends_with("-00\"}"), "{headers:?}");
    assert!(kept.spans().is_empty(), "{:?}", kept.spans());
}

#[tokio::test]
async fn every_attempt_is_a_span() {
    let (bench, kept) = traced().await;
    bench.enqueue(&[("a", "a1")]).await;
    let script = Script::new(&[("a1", vec![Delivery::retry("503", "busy")])]);
    let mut relay = bench.relay("w", &script).await;
    drain(&mut relay).await;
    bench.make_due();
    drain(&mut relay).await;
    let spans = kept.spans();
    let errors: Vec<_> = spans.iter().map(|span| span.error.as_deref()).collect();
    assert_eq!(errors, [Some("503"), None]);
    assert_eq!(spans[0].trace_id, spans[1].trace_id);
    assert_ne!(spans[0].span_id, spans[1].span_id);
}

#[tokio::test]
async fn each_row_of_a_bulk_job_has_its_span_in_its_own_trace() {
    let (bench, kept) = traced().await;
    bench.enqueue(&[("a", "a1"), ("b", "b1")]).await;
    let remote = RemoteTarget::new();
    drain_bulk(&bench, &mut bulk(&bench, "w", &remote, settings()).await).await;
    let spans = kept.spans();
    assert_eq!(spans.len(), 2);
    assert_ne!(spans[0].trace_id, spans[1].trace_id);
    for span in &spans {
        assert_eq!(span.name, "publish d");
        let names: Vec<_> = span.attributes.iter().map(|(name, _)| *name).collect();
        assert!(names.contains(&"relais.bulk_job"), "{names:?}");
        assert!(names.contains(&"relais.bulk_job.remote_id"), "{names:?}");
    }
    assert_eq!(bench.observer.snapshot().destinations["d"].dispatch.count(), 2);
}

/// Rows of a job have a `next_attempt_at` that is never reached, so that no worker reads them: that is no
/// delay on purpose.
#[tokio::test]
async fn the_dispatch_latency_of_bulk_rows_is_measured() {
    on_both(old_rows_in_a_job).await;
}

async fn old_rows_in_a_job(bench: Bench) {
    let target = RemoteTarget::new();
    bench.enqueue(&[("a", "a1"), ("b", "b1")]).await;
    bench.sql("UPDATE relais_outbox SET created_at = '2026-01-01T00:00:00.000Z'");
    drain_bulk(&bench, &mut bulk(&bench, "w", &target, settings()).await).await;
    assert_eq!(bench.statuses(), ["DISPATCHED 1"; 2]);
    let measured = bench.observer.snapshot().destinations["d"].dispatch.clone();
    assert_eq!(measured.count(), 2);
    assert!(measured.sum() > std::time::Duration::from_secs(60), "{measured:?}");
}

#[tokio::test]
async fn a_cleanup_counts_what_it_removes_and_never_keeps_everything() {
    let bench = Bench::new().await;
    bench.enqueue(&[("k", "a"), ("k", "b")]).await;
    let publisher = Script::new(&[]);
    drain(&mut bench.relay("w", &publisher).await).await;
    bench.sql("UPDATE relais_outbox SET dispatched_at = '2020-01-01T00:00:00.000Z'");
    let observer = Arc::new(Observer::default());
    let never = Retention::default().dispatched_seconds(Retention::NEVER_SECONDS);
    for (retention, removed) in [(never, 0), (Retention::default(), 2)] {
        let store = Arc::clone(&bench.store) as Arc<dyn relais_core::store::Store>;
        let mut cleanup = Cleanup::new(store, retention, Arc::clone(&observer));
        cleanup.run_once().await.unwrap();
        assert_eq!(observer.snapshot().cleaned.outbox, removed);
        assert_eq!(bench.statuses().len() as u64, 2 - removed);
    }
}

/// Otherwise each process would read the tables without a rest, as soon as rows reach their retention one by one.
#[tokio::test]
async fn a_cleanup_continues_at_once_only_while_many_rows_are_old() {
    let bench = Bench::new().await;
    for (rows, continues) in [(700, true), (20, false)] {
        let payloads: Vec<String> = (0..rows).map(|n| format!("m{n}")).collect();
        bench.enqueue(&payloads.iter().map(|id| ("k", id.as_str())).collect::<Vec<_>>()).await;
        bench.sql(
            "UPDATE relais_outbox SET status = 'DISPATCHED', dispatched_at = '2020-01-01T00:00:00.000Z'",
        );
        let store = Arc::clone(&bench.store) as Arc<dyn relais_core::store::Store>;
        let observer = Arc::new(Observer::default());
        let outcome = Cleanup::new(store, Retention::default(), observer).run_once().await.unwrap();
        assert!(bench.statuses().is_empty());
        let PassOutcome::Idle { at_most } = outcome else { panic!("{outcome:?}") };
        assert_eq!(at_most < Duration::from_secs(1), continues, "{rows} rows: {at_most:?}");
    }
}

#[tokio::test]
async fn a_message_that_is_out_of_order_is_counted_and_explained() {
    on_both(an_overtaken_message).await;
}

async fn an_overtaken_message(bench: Bench) {
    let EventAction::Routes(mut routes) = route("T") else { unreachable!() };
    routes[0].version = Some("/v".into());
    let mut worker = worker(&bench, "w", vec![("T", EventAction::Routes(routes))]).await;
    for (id, version) in [("v9", 9), ("v8", 8)] {
        accept(&bench, &[(id, &format!(r#"{{"type":"T","of":"k","v":{version}}}"#))]).await;
        run_until_idle(&mut worker).await;
    }
    assert_eq!(bench.statuses(), ["PENDING 0"]);
    assert_eq!(bench.observer.snapshot().inbox.ignored, 1);
    let found = crate::explain::explain(bench.store.as_ref(), "v8").await.unwrap();
    let crate::explain::ExplainOutcome::One(story) = found else { panic!("{found:?}") };
    let lines: Vec<_> = story.events.iter().map(|event| event.what.to_string()).collect();
    let explained = lines.iter().any(|line| {
        line.contains("ignored as out of order") && line.contains("version 8 of crm k")
    });
    assert!(explained, "{lines:?}");
}

#[tokio::test]
async fn a_message_of_an_ignored_type_is_handled_counted_and_explained() {
    on_both(an_ignored_message).await;
}

async fn an_ignored_message(bench: Bench) {
    let mut worker = worker(&bench, "w", vec![("T", EventAction::Ignored)]).await;
    accept(&bench, &[("m1", r#"{"type":"T","of":"k"}"#), ("m2", r#"{"type":"T","of":"k"}"#)]).await;
    run_until_idle(&mut worker).await;
    assert!(bench.statuses().is_empty(), "nothing is sent");
    let counted = bench.observer.snapshot().inbox;
    assert_eq!((counted.ignored_rows, counted.processed, counted.ignored), (2, 0, 0));
    let found = crate::explain::explain(bench.store.as_ref(), "m2").await.unwrap();
    let crate::explain::ExplainOutcome::One(story) = found else { panic!("{found:?}") };
    let lines: Vec<_> = story.events.iter().map(|event| event.what.to_string()).collect();
    let explained = "ignored by configuration: event type `T` (worker w)";
    assert!(lines.iter().any(|line| line == explained), "{lines:?}");
    assert_eq!(lines.last().map(String::as_str), Some("handled"), "{lines:?}");
}
