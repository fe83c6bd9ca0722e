//! The life of an inbox row through the seam, and handling a message once.

use std::time::Duration;

use relais_core::{
    dead_letter::Origin,
    delivery::Problem,
    inbox::{IGNORED_BY_CONFIGURATION, InboxFate, InboxRow, InboxStatus, STAGE_BUSINESS},
    inspect::InspectExt,
    message::NewMessage,
};

use super::{
    Start, assert_invalid,
    operators::attempts,
    outbox::assert_between,
    worker::{Worker, all, dead_message, handle_later, make_due, none, processed},
};
use crate::{
    build::{arrival, message, problem},
    fixture::{Fixture, FixtureNode},
};

pub const START: Start = Start::Migrated;

async fn find(f: &dyn Fixture, id: i64) -> InboxRow {
    f.store().find_inbox(id.to_string()).await.expect("find").expect("the row is there")
}

/// Accepts these messages and gives their rows to a worker that holds every lane.
async fn rows(f: &dyn Fixture, ids: &[&str]) -> (Worker, Vec<InboxRow>) {
    let batch = ids.iter().map(|id| arrival(id)).collect();
    f.store().accept(batch, Vec::new()).await.expect("accept");
    let worker = Worker::inbox(f, "w").await;
    let rows = worker.received(ids.len()).await;
    assert_eq!(rows.len(), ids.len());
    (worker, rows)
}

fn sending(messages: Vec<NewMessage>) -> InboxFate {
    InboxFate::Processed { messages, changes: Vec::new(), copies: Vec::new() }
}

fn versioned(aggregate: &str, version: i64) -> NewMessage {
    NewMessage { as_of_version: Some(version), ..message("orders", aggregate) }
}

async fn outbox_count(f: &dyn Fixture) -> i64 {
    f.number("SELECT count(*) FROM relais_outbox").await
}

pub async fn a_fetch_keeps_to_its_limit_order_and_lanes(f: &dyn Fixture) {
    let names: Vec<_> = (0..100).map(|n| format!("m-{n}")).collect();
    let (mut worker, _) = rows(f, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert_eq!(worker.received_ids().await, names);
    let some = worker.received(7).await;
    assert!(some.iter().map(|row| &row.message_id).eq(&names[..7]));
    let mut other = worker.clone();
    other.lanes = worker.lanes.split_off(32);
    let (a, b) = (worker.received_ids().await, other.received_ids().await);
    assert!(!a.is_empty() && !b.is_empty() && a.len() + b.len() == 100);
    worker.lanes.clear();
    assert!(worker.received(10).await.is_empty());
}

pub async fn a_processed_row_says_when(f: &dyn Fixture) {
    let (worker, rows) = rows(f, &["m-1"]).await;
    let before = f.now().await;
    assert_eq!(worker.settle_inbox(&rows[0], processed()).await, all(1));
    let row = find(f, rows[0].id).await;
    assert_eq!((row.status, row.attempts), (InboxStatus::Processed, 1));
    let at = row.processed_at.expect("processed_at is set");
    assert!(before <= at && at <= f.now().await);
    assert!(worker.received(10).await.is_empty());
}

pub async fn a_retry_waits_and_the_last_error_stands(f: &dyn Fixture) {
    let (worker, rows) = rows(f, &["m-1"]).await;
    for (attempts, millis) in [(1, 1_000), (2, 5_000), (3, 60_000)] {
        let problem = Problem::new("LOCKED", &format!("try {attempts}"));
        let pause = Duration::from_millis(millis);
        let before = f.now().await;
        let fate = InboxFate::Retry { attempts, pause, problem };
        assert_eq!(worker.settle_inbox(&rows[0], fate).await, all(1));
        let row = find(f, rows[0].id).await;
        assert_eq!((row.status, row.attempts), (InboxStatus::Retry, attempts));
        let millis = i64::try_from(millis).expect("small");
        assert_between(row.next_attempt_at, before, f.now().await, millis);
        assert_eq!(row.error_stage.as_deref(), Some(STAGE_BUSINESS));
        assert_eq!(row.error_code.as_deref(), Some("LOCKED"));
        assert_eq!(row.error_message, Some(format!("try {attempts}")));
        assert!(worker.received(10).await.is_empty(), "not due");
    }
    make_due(f, "relais_inbox").await;
    assert_eq!(worker.received(10).await[0].attempts, 3);
}

pub async fn an_absurd_pause_waits_long_and_breaks_nothing(f: &dyn Fixture) {
    let (worker, rows) = rows(f, &["m-1"]).await;
    let fate = InboxFate::Retry { attempts: 1, pause: Duration::MAX, problem: problem() };
    assert_eq!(worker.settle_inbox(&rows[0], fate).await, all(1));
    assert!(worker.received(10).await.is_empty());
    assert_eq!(find(f, rows[0].id).await.status, InboxStatus::Retry);
}

pub async fn success_clears_what_the_failures_left(f: &dyn Fixture) {
    let (worker, rows) = rows(f, &["m-1"]).await;
    worker.settle_inbox(&rows[0], handle_later()).await;
    make_due(f, "relais_inbox").await;
    assert_eq!(worker.settle_inbox(&rows[0], processed()).await, all(1));
    let row = find(f, rows[0].id).await;
    assert_eq!((row.status, row.attempts), (InboxStatus::Processed, 2));
    assert_eq!((row.next_attempt_at, row.error_stage), (None, None));
    assert_eq!((row.error_code, row.error_message), (None, None));
}

pub async fn a_dead_row_keeps_its_reason(f: &dyn Fixture) {
    let (worker, rows) = rows(f, &["m-1"]).await;
    assert_eq!(worker.settle_inbox(&rows[0], dead_message()).await, all(1));
    let row = find(f, rows[0].id).await;
    assert_eq!((row.status, row.attempts), (InboxStatus::Failed, 5));
    assert_eq!((row.next_attempt_at, row.processed_at), (None, None));
    assert_eq!(row.error_stage.as_deref(), Some(STAGE_BUSINESS));
    assert_eq!(row.error_code.as_deref(), Some("HTTP_500"));
}

pub async fn a_missing_or_settled_row_is_refused_without_an_error(f: &dyn Fixture) {
    let (worker, rows) = rows(f, &["m-1"]).await;
    let mut missing = worker.inbox_fate(&rows[0], sending(vec![message("orders", "k")]));
    missing.id += 1_000;
    assert_eq!(worker.settle_inbox_all(vec![missing]).await, none(1));
    assert_eq!(worker.settle_inbox(&rows[0], processed()).await, all(1));
    let again = sending(vec![message("orders", "k")]);
    for fate in [again, handle_later(), dead_message()] {
        assert_eq!(worker.settle_inbox(&rows[0], fate).await, none(1));
    }
    assert_eq!(worker.settle_inbox_all(Vec::new()).await, all(0));
    assert_eq!(find(f, rows[0].id).await.status, InboxStatus::Processed);
    assert_eq!(outbox_count(f).await, 0, "no second effect");
    assert_eq!(f.number("SELECT count(*) FROM relais_dead_letter").await, 0);
}

pub async fn a_row_that_could_not_be_decoded_is_not_settled(f: &dyn Fixture) {
    let broken = crate::build::undecodable("m-1", b"\xff");
    f.store().accept(vec![broken], Vec::new()).await.expect("accept");
    let row = f.store().find_inbox("m-1".to_owned()).await.expect("find").expect("the row");
    let worker = Worker::inbox(f, "w").await;
    assert_eq!(worker.settle_inbox(&row, processed()).await, none(1));
    assert_eq!(find(f, row.id).await, row);
}

pub async fn a_large_mixed_batch_settles_in_one_go(f: &dyn Fixture) {
    let names: Vec<_> = (0..1_200).map(|n| format!("m-{n}")).collect();
    let (worker, rows) = rows(f, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let fates = rows.iter().enumerate().map(|(n, row)| {
        let fate = match n % 3 {
            0 => sending(vec![message("orders", &row.msg_key), message("mails", &row.msg_key)]),
            1 => handle_later(),
            _ => dead_message(),
        };
        worker.inbox_fate(row, fate)
    });
    assert_eq!(worker.settle_inbox_all(fates.collect()).await, all(1_200));
    let by_status = "SELECT count(*) FROM relais_inbox WHERE status = ";
    for status in ["'PROCESSED'", "'RETRY'", "'FAILED'"] {
        assert_eq!(f.number(&format!("{by_status}{status}")).await, 400);
    }
    assert_eq!(outbox_count(f).await, 800);
    assert_eq!(f.number("SELECT count(*) FROM relais_dead_letter").await, 400);
}

pub async fn messages_are_written_in_the_commit_that_processes(f: &dyn Fixture) {
    let (worker, rows) = rows(f, &["m-1", "m-2"]).await;
    let (a, b, c) = (message("orders", "a"), message("mails", "b"), message("orders", "c"));
    let fates = vec![
        worker.inbox_fate(&rows[0], sending(vec![a.clone(), b])),
        worker.inbox_fate(&rows[1], sending(vec![c.clone()])),
    ];
    assert_eq!(worker.settle_inbox_all(fates).await, all(2));
    let sent = Worker::outbox(f, "orders", "w").await.pending(10).await;
    assert_eq!(sent.iter().map(|m| m.message_id).collect::<Vec<_>>(), [a.message_id, c.message_id]);
    assert_eq!((&sent[0].payload, &sent[0].msg_key), (&a.payload, &a.msg_key));
    assert_eq!(outbox_count(f).await, 3);
}

pub async fn a_message_that_cannot_be_stored_leaves_its_row_open(f: &dyn Fixture) {
    let (worker, rows) = rows(f, &["m-1"]).await;
    let broken = NewMessage { payload: "{".to_owned(), ..message("orders", "k") };
    let fate = worker.inbox_fate(&rows[0], sending(vec![message("orders", "a"), broken]));
    assert_invalid(f.store().settle_inbox(worker.fence.clone(), vec![fate]).await);
    assert_eq!(find(f, rows[0].id).await, rows[0]);
    assert_eq!(outbox_count(f).await, 0);
}

pub async fn a_message_id_already_there_is_not_written_again(f: &dyn Fixture) {
    let (worker, rows) = rows(f, &["m-1", "m-2"]).await;
    let there = message("orders", "k");
    f.store().enqueue(vec![there.clone()]).await.expect("enqueue");
    let new = message("orders", "n");
    let fates = vec![
        worker.inbox_fate(&rows[0], sending(vec![there.clone(), new.clone(), new.clone()])),
        worker.inbox_fate(&rows[1], sending(vec![new, there])),
    ];
    assert_eq!(worker.settle_inbox_all(fates).await, all(2));
    assert_eq!(outbox_count(f).await, 2);
}

pub async fn the_id_of_another_message_leaves_its_row_open(f: &dyn Fixture) {
    let (worker, rows) = rows(f, &["m-1", "m-2"]).await;
    let there = message("orders", "k");
    f.store().enqueue(vec![there.clone()]).await.expect("enqueue");
    let other = NewMessage { payload: r#"{"other":true}"#.to_owned(), ..there };
    let fates = vec![
        worker.inbox_fate(&rows[0], sending(vec![message("orders", "n")])),
        worker.inbox_fate(&rows[1], sending(vec![other])),
    ];
    super::assert_invalid(f.store().settle_inbox(worker.fence.clone(), fates).await);
    assert_eq!(outbox_count(f).await, 1);
    assert_eq!(worker.received(10).await.len(), 2, "both are still open");
}

pub async fn a_row_named_twice_in_a_batch_has_one_effect(f: &dyn Fixture) {
    let (worker, rows) = rows(f, &["m-1"]).await;
    let fate = |key| worker.inbox_fate(&rows[0], sending(vec![message("orders", key)]));
    let done = worker.settle_inbox_all(vec![fate("a"), fate("b")]).await;
    assert_eq!((done.settled, done.refused), (1, 1));
    assert_eq!(outbox_count(f).await, 1);
    assert_eq!(find(f, rows[0].id).await.attempts, 1);
}

pub async fn a_delayed_message_of_a_handler_waits(f: &dyn Fixture) {
    let (worker, rows) = rows(f, &["m-1"]).await;
    let later = NewMessage { delay: Some(Duration::from_secs(60)), ..message("orders", "k") };
    assert_eq!(worker.settle_inbox(&rows[0], sending(vec![later])).await, all(1));
    assert_eq!(outbox_count(f).await, 1);
    assert!(Worker::outbox(f, "orders", "w").await.pending(10).await.is_empty());
}

pub async fn an_older_version_is_not_sent_and_an_equal_or_newer_one_is(f: &dyn Fixture) {
    let (worker, rows) = rows(f, &["1", "2", "3", "4"]).await;
    let mut written = Vec::new();
    for (row, version) in rows.iter().zip([5, 5, 4, 6]) {
        let settled = worker.settle_inbox(row, sending(vec![versioned("x", version)])).await;
        assert_eq!((settled.settled, settled.refused), (1, 0));
        let ignored: Vec<_> = settled.ignored.iter().map(|row| (row.id, row.messages)).collect();
        assert_eq!(ignored, if version == 4 { vec![(row.id, 1)] } else { Vec::new() });
        written.push(outbox_count(f).await);
    }
    assert_eq!(written, [1, 2, 2, 3]);
    let kept = attempts(f, Origin::Inbox, rows[2].id).await;
    let [ignored] = &kept[..] else { panic!("{kept:?}") };
    assert_eq!((ignored.outcome.as_str(), ignored.attempt), ("ignored", 1));
    assert_eq!(ignored.error_code.as_deref(), Some("OUT_OF_ORDER"));
    let handled_at = find(f, rows[2].id).await.processed_at;
    assert_eq!(Some(ignored.at), handled_at, "one commit has one time");
    let text = ignored.error_message.as_deref().expect("why");
    assert!(
        text.starts_with("version 4 of ") && text.contains(" x came after a newer one"),
        "{text}"
    );
    assert_eq!(f.number("SELECT version FROM relais_version").await, 6);
}

pub async fn a_row_of_an_ignored_type_is_settled_with_the_reason(f: &dyn Fixture) {
    let (worker, rows) = rows(f, &["1", "2"]).await;
    let problem = Problem::new(IGNORED_BY_CONFIGURATION, "event type `T`");
    let ignored = InboxFate::Ignored { problem };
    let fates = [ignored.clone(), sending(vec![message("orders", "k")])];
    let both = rows.iter().zip(fates).map(|(row, fate)| worker.inbox_fate(row, fate));
    assert_eq!(worker.settle_inbox_all(both.collect()).await, all(2));
    assert_eq!(worker.settle_inbox(&rows[0], ignored).await, none(1), "it is settled");
    assert_eq!(outbox_count(f).await, 1, "the other row has its effect");
    assert_eq!(find(f, rows[0].id).await.status, InboxStatus::Processed);
    let kept = attempts(f, Origin::Inbox, rows[0].id).await;
    let [attempt] = &kept[..] else { panic!("{kept:?}") };
    assert_eq!(attempt.outcome, "ignored");
    assert_eq!(attempt.error_code.as_deref(), Some(IGNORED_BY_CONFIGURATION));
    assert_eq!(attempt.error_message.as_deref(), Some("event type `T`"));
    assert!(attempts(f, Origin::Inbox, rows[1].id).await.is_empty());
}

pub async fn versions_are_kept_per_aggregate(f: &dyn Fixture) {
    let (worker, rows) = rows(f, &["1", "2"]).await;
    worker.settle_inbox(&rows[0], sending(vec![versioned("x", 9), versioned("X", 1)])).await;
    let other = NewMessage { aggregate_type: "Basket".to_owned(), ..versioned("x", 2) };
    let plain = message("orders", "x");
    worker.settle_inbox(&rows[1], sending(vec![other, plain, versioned("x", 8)])).await;
    assert_eq!(outbox_count(f).await, 4, "only the older one of the same aggregate is dropped");
    assert_eq!(f.number("SELECT count(*) FROM relais_version").await, 3);
}

pub async fn versions_of_one_aggregate_in_one_batch_count_in_order(f: &dyn Fixture) {
    let (worker, rows) = rows(f, &["1", "2", "3"]).await;
    let versions = [vec![2, 3], vec![3, 1], vec![2, 4]];
    let fates = rows.iter().zip(versions).map(|(row, versions)| {
        let messages = versions.into_iter().map(|v| versioned("x", v)).collect();
        worker.inbox_fate(row, sending(messages))
    });
    let settled = worker.settle_inbox_all(fates.collect()).await;
    assert_eq!((settled.settled, settled.refused), (3, 0));
    let ignored: Vec<_> = settled.ignored.iter().map(|row| (row.id, row.messages)).collect();
    assert_eq!(ignored, [(rows[1].id, 1), (rows[2].id, 1)]);
    assert_eq!(outbox_count(f).await, 4, "2, 3, 3 and 4");
    assert_eq!(f.number("SELECT version FROM relais_version").await, 4);
}

pub async fn a_message_is_handled_once_per_handler(f: &dyn Fixture) {
    let once =
        |handler: &str, id: &str| f.once(FixtureNode::First, handler.to_owned(), id.to_owned());
    assert!(once("billing", "m-1").await.expect("first"));
    assert!(!once("billing", "m-1").await.expect("again"));
    assert!(once("shipping", "m-1").await.expect("another handler"));
    assert!(once("billing", "m-2").await.expect("another message"));
    let again = f.once(FixtureNode::Second, "shipping".to_owned(), "m-1".to_owned()).await;
    assert!(!again.expect("another node"));
    let rows = f.rows("SELECT message_id, handler FROM relais_handled ORDER BY 1, 2").await;
    assert_eq!(rows.len(), 3);
}

pub async fn handling_once_needs_an_id_and_a_handler(f: &dyn Fixture) {
    assert_invalid(f.once(FixtureNode::First, String::new(), "billing".to_owned()).await);
    assert_invalid(f.once(FixtureNode::First, "m-1".to_owned(), String::new()).await);
    assert_eq!(f.number("SELECT count(*) FROM relais_handled").await, 0);
}

pub async fn handling_once_takes_long_and_strange_names(f: &dyn Fixture) {
    let long: String = (0..1_500).map(|n| char::from(b'!' + (n * 31 % 90) as u8)).collect();
    let names = [&long, &long[..1_499], "a", "A", "a ", "ä", "'; DROP TABLE x; --", "\n", "😀%_\\"];
    for name in names {
        assert!(
            f.once(FixtureNode::First, "h".to_owned(), name.to_owned()).await.expect("first"),
            "{name}"
        );
        assert!(
            !f.once(FixtureNode::First, "h".to_owned(), name.to_owned()).await.expect("again"),
            "{name}"
        );
    }
    for handler in &names[2..] {
        assert!(
            f.once(FixtureNode::First, (*handler).to_owned(), "m".to_owned())
                .await
                .expect("special handler")
        );
    }
    let huge = crate::build::wide_text(5_000, 9);
    match f.once(FixtureNode::First, "h".to_owned(), huge.clone()).await {
        Ok(first) => {
            assert!(first);
            assert!(!f.once(FixtureNode::First, "h".to_owned(), huge).await.expect("again"));
        }
        refused => assert_invalid(refused),
    }
}

pub async fn of_many_at_once_one_handles(f: &dyn Fixture) {
    let nodes = (0..8).map(|n| {
        let node = if n % 2 == 0 { FixtureNode::First } else { FixtureNode::Second };
        tokio::spawn(f.once(node, "h".to_owned(), "m".to_owned()))
    });
    let mut first = 0;
    for node in nodes.collect::<Vec<_>>() {
        first += usize::from(node.await.expect("node").expect("once"));
    }
    assert_eq!(first, 1);
}
