//! Rows that need an operator: their copy, and the effect of a decision.

use relais_core::{
    dead_letter::{DeadLetter, DecisionResult, Origin, Resolution, STATUS_FAILED},
    delivery::Problem,
    inbox::{InboxFate, InboxStatus, NewInbox},
    inspect::InspectExt,
    message::{Headers, NewMessage},
    outbox::{OutboxFate, OutboxStatus},
    text::{ERROR_MESSAGE_MAX, sha256_hex},
};
use uuid::Uuid;

use super::{
    Start, only_dead_letter, open_dead_letters, resolution_of, resolve,
    worker::{Worker, all, dead_and_parked, dead_message},
};
use crate::{
    build::{arrival, arrival_with, message, messages, problem},
    fixture::{Fixture, quote},
};

pub const START: Start = Start::Migrated;

/// One outbox row that failed for good.
pub(super) async fn dead_outbox(f: &dyn Fixture, sent: NewMessage) -> (Worker, DeadLetter) {
    f.store().enqueue(vec![sent]).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "worker-7").await;
    let rows = worker.pending(1).await;
    assert_eq!(worker.settle(&rows[0], dead_and_parked()).await, all(1));
    (worker, only_dead_letter(f).await)
}

/// One inbox row that failed for good.
pub(super) async fn dead_inbox(f: &dyn Fixture, received: NewInbox) -> (Worker, DeadLetter) {
    f.store().accept(vec![received], Vec::new()).await.expect("accept");
    let worker = Worker::inbox(f, "worker-7").await;
    let rows = worker.received(1).await;
    assert_eq!(worker.settle_inbox(&rows[0], dead_message()).await, all(1));
    (worker, only_dead_letter(f).await)
}

async fn outbox_status(f: &dyn Fixture, id: i64) -> OutboxStatus {
    f.store().find_outbox(id.to_string()).await.expect("find").expect("the row").status
}

pub async fn a_dead_outbox_row_is_copied_with_everything(f: &dyn Fixture) {
    let mut sent = message("orders", "k");
    sent.headers.set("traceparent", "00-ab");
    let before = f.now().await;
    let (_, dead) = dead_outbox(f, sent.clone()).await;
    let row = f.store().find_outbox(sent.message_id.to_string()).await.expect("find");
    assert_ne!(dead.id, Uuid::nil());
    assert_eq!((dead.origin, dead.origin_id), (Origin::Outbox, row.map(|row| row.id)));
    assert_eq!(dead.message_id, sent.message_id.to_string());
    assert_eq!((dead.source_system, dead.destination.as_deref()), (None, Some("orders")));
    assert_eq!((dead.event_type.as_deref(), dead.msg_key.as_str()), (Some("OrderCreated"), "k"));
    assert_eq!((dead.payload, dead.headers), (Some(sent.payload), sent.headers));
    assert_eq!(dead.failed_status, STATUS_FAILED);
    assert_eq!(dead.error_class.as_deref(), Some("HTTP_500"));
    assert_eq!(dead.error_message.as_deref(), Some("the target answered 500"));
    assert_eq!((dead.attempts, dead.parked_by.as_str()), (5, "worker-7"));
    assert!(before <= dead.parked_at && dead.parked_at <= f.now().await);
    assert_eq!((dead.resolution, dead.resolved_by, dead.resolved_at), (None, None, None));
    assert_eq!(dead.reason, None);
}

pub async fn a_dead_inbox_row_is_copied_with_everything(f: &dyn Fixture) {
    let mut received = arrival_with("m-1", "{\"familyId\": 7}");
    received.headers.set("traceparent", "00-ab");
    received.msg_key = "f7".to_owned();
    let (_, dead) = dead_inbox(f, received.clone()).await;
    let row = f.store().find_inbox("m-1".to_owned()).await.expect("find").expect("row");
    assert_eq!((dead.origin, dead.origin_id), (Origin::Inbox, Some(row.id)));
    assert_eq!((dead.message_id.as_str(), dead.source_system.as_deref()), ("m-1", Some("ihub")));
    assert_eq!((dead.destination, dead.msg_key.as_str()), (None, "f7"));
    assert_eq!(dead.event_type.as_deref(), Some("MembersCreated"));
    assert_eq!(dead.payload.as_deref(), Some("{\"familyId\": 7}"));
    assert_eq!(dead.headers, received.headers);
    assert_eq!((dead.failed_status.as_str(), dead.attempts), (STATUS_FAILED, 5));
    assert_eq!(dead.parked_by, "worker-7");
    assert_eq!(dead.error_class.as_deref(), Some("HTTP_500"));
}

pub async fn what_the_row_lacks_is_null_in_its_dead_letter(f: &dyn Fixture) {
    let mut received = arrival("m-1");
    (received.event_type, received.aggregate_id, received.key_str) = (None, None, None);
    let (_, dead) = dead_inbox(f, received).await;
    assert_eq!((dead.event_type, dead.destination), (None, None));
    assert_eq!(dead.headers, Headers::default());
}

pub async fn long_error_texts_are_cut_between_characters(f: &dyn Fixture) {
    f.store().enqueue(vec![message("orders", "k")]).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    let row = worker.pending(1).await.remove(0);
    let problem = Problem::new(&"ü".repeat(500), &format!("\0{}", "😀".repeat(5_000)));
    let fate = OutboxFate::Dead { attempts: 1, problem: problem.clone(), park: true };
    assert_eq!(worker.settle(&row, fate).await, all(1));
    let dead = only_dead_letter(f).await;
    let message = dead.error_message.expect("a message");
    assert_eq!(message.chars().count(), ERROR_MESSAGE_MAX);
    assert_eq!(message, problem.message);
    assert_eq!(dead.error_class, Some(problem.code));
    let row = f.store().find_outbox(row.id.to_string()).await.expect("find").expect("row");
    assert_eq!(row.error_message, Some(message));
}

pub async fn an_empty_reason_is_kept(f: &dyn Fixture) {
    f.store().accept(vec![arrival("m-1")], Vec::new()).await.expect("accept");
    let worker = Worker::inbox(f, "w").await;
    let rows = worker.received(1).await;
    let fate = InboxFate::Dead { attempts: 0, problem: Problem::new("", ""), park: false };
    assert_eq!(worker.settle_inbox(&rows[0], fate).await, all(1));
    let dead = only_dead_letter(f).await;
    assert_eq!(dead.attempts, 0);
    assert_eq!(dead.error_message.unwrap_or_default(), "");
}

pub async fn a_large_payload_is_kept_whole(f: &dyn Fixture) {
    let payload = format!("[\"{}\"]", "0123456789".repeat(10_000));
    let sent = NewMessage { payload: payload.clone(), ..message("orders", "k") };
    let (_, dead) = dead_outbox(f, sent).await;
    assert_eq!(dead.payload, Some(payload));
}

pub async fn a_parked_key_names_its_dead_letter(f: &dyn Fixture) {
    let (_, dead) = dead_outbox(f, message("orders", "k")).await;
    dead_inbox_beside(f).await;
    let parked = f.store().parked_keys(10).await.expect("parked keys");
    assert_eq!(parked.len(), 2);
    let outbox = parked.iter().find(|p| p.origin == Origin::Outbox).expect("of the outbox");
    assert_eq!((outbox.destination.as_deref(), outbox.msg_key.as_str()), (Some("orders"), "k"));
    let inbox = parked.iter().find(|p| p.origin == Origin::Inbox).expect("of the inbox");
    assert_eq!((inbox.destination.as_deref(), inbox.msg_key.as_str()), (None, "m-1"));
    assert_eq!(f.store().parked_keys(1).await.expect("parked keys").len(), 1);
    let points_to = "SELECT dead_letter_id FROM relais_parked_key WHERE origin = 'outbox'";
    assert_eq!(f.value(points_to).await, Some(dead.id.to_string()));
}

pub(super) async fn dead_inbox_beside(f: &dyn Fixture) {
    f.store().accept(vec![arrival("m-1")], Vec::new()).await.expect("accept");
    let worker = Worker::inbox(f, "w").await;
    let rows = worker.received(1).await;
    assert_eq!(worker.settle_inbox(&rows[0], dead_message()).await, all(1));
}

pub async fn a_retried_outbox_row_starts_again(f: &dyn Fixture) {
    let (worker, dead) = dead_outbox(f, message("orders", "k")).await;
    assert!(resolve(f, dead.id, Resolution::Retried).await);
    let rows = worker.pending(10).await;
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].status, rows[0].attempts), (OutboxStatus::Pending, 0));
    assert_eq!((rows[0].error_code.as_deref(), rows[0].error_message.as_deref()), (None, None));
    assert!(f.store().parked_keys(10).await.expect("parked keys").is_empty());
    assert_eq!(worker.settle(&rows[0], OutboxFate::Dispatched).await, all(1));
}

pub async fn a_retried_inbox_row_starts_again(f: &dyn Fixture) {
    let (worker, dead) = dead_inbox(f, arrival("m-1")).await;
    assert!(resolve(f, dead.id, Resolution::Retried).await);
    let rows = worker.received(10).await;
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].status, rows[0].attempts), (InboxStatus::Received, 0));
    assert_eq!(rows[0].error_stage, None);
    assert_eq!((rows[0].error_code.as_deref(), rows[0].error_message.as_deref()), (None, None));
}

pub async fn a_skipped_row_stays_failed(f: &dyn Fixture) {
    let (worker, dead) = dead_outbox(f, message("orders", "k")).await;
    assert!(resolve(f, dead.id, Resolution::Discarded).await);
    assert_eq!(outbox_status(f, dead.origin_id.expect("its row")).await, OutboxStatus::Failed);
    assert!(worker.pending(10).await.is_empty());
    assert!(f.store().parked_keys(10).await.expect("parked keys").is_empty());
}

pub async fn a_decision_is_recorded_with_who_and_why(f: &dyn Fixture) {
    for resolution in [Resolution::Retried, Resolution::Discarded] {
        let sent = message("orders", resolution.as_str());
        let (_, dead) = dead_outbox(f, sent).await;
        let before = f.now().await;
        assert!(resolve(f, dead.id, resolution).await);
        let now = f.store().find_dead_letter(dead.id).await.expect("find").expect("it stays");
        assert_eq!(now.resolution.as_deref(), Some(resolution.as_str()));
        assert_eq!(now.resolved_by.as_deref(), Some("ann"));
        assert_eq!(now.reason.as_deref(), Some("it's repaired 😀"));
        assert!(now.resolved_at.is_some_and(|at| before <= at));
        assert_eq!((now.payload, now.parked_at), (dead.payload, dead.parked_at));
        let target = quote(&dead.id.to_string());
        let audit = f
            .rows(&format!(
                "SELECT actor, action, reason FROM relais_audit WHERE target = {target}"
            ))
            .await;
        let action = format!("dead-letter.{}", resolution.as_str());
        let wanted = ["ann", action.as_str(), "it's repaired 😀"].map(|t| Some(t.to_owned()));
        assert_eq!(audit, [wanted.to_vec()]);
    }
}

pub async fn a_decision_is_carried_out_once(f: &dyn Fixture) {
    let (worker, dead) = dead_outbox(f, message("orders", "k")).await;
    assert!(resolve(f, dead.id, Resolution::Retried).await);
    let rows = worker.pending(1).await;
    assert_eq!(worker.settle(&rows[0], OutboxFate::Dispatched).await, all(1));
    assert!(!resolve(f, dead.id, Resolution::Retried).await);
    assert!(!resolve(f, dead.id, Resolution::Discarded).await);
    assert_eq!(outbox_status(f, dead.origin_id.expect("its row")).await, OutboxStatus::Dispatched);
    assert_eq!(f.number("SELECT count(*) FROM relais_audit").await, 1);
    assert!(!resolve(f, Uuid::now_v7(), Resolution::Retried).await, "nothing of that id");
    assert_eq!(f.number("SELECT count(*) FROM relais_audit").await, 1);
}

pub async fn of_two_operators_at_once_one_decides(f: &dyn Fixture) {
    let (_, dead) = dead_outbox(f, message("orders", "k")).await;
    let operators = (0..6).map(|n| {
        let store = if n % 2 == 0 { f.store() } else { f.second() };
        let choice = if n % 2 == 0 { Resolution::Retried } else { Resolution::Discarded };
        tokio::spawn(async move { store.decide(resolution_of(dead.id, choice)).await })
    });
    let mut decided = 0;
    for operator in operators.collect::<Vec<_>>() {
        let result = operator.await.expect("operator").expect("resolve");
        decided += usize::from(result == DecisionResult::Done);
    }
    assert_eq!(decided, 1);
    assert_eq!(f.number("SELECT count(*) FROM relais_audit").await, 1);
}

pub async fn a_row_that_is_no_longer_failed_is_not_retried_again(f: &dyn Fixture) {
    let (worker, first) = dead_outbox(f, message("orders", "k")).await;
    assert!(resolve(f, first.id, Resolution::Retried).await);
    let row = worker.pending(1).await.remove(0);
    assert_eq!(worker.settle(&row, dead_and_parked()).await, all(1));
    let second = only_dead_letter(f).await;
    assert_ne!(second.id, first.id, "a second failure is a second dead letter");
    f.run("UPDATE relais_outbox SET status = 'DISPATCHED'").await;
    resolve(f, second.id, Resolution::Retried).await;
    assert_eq!(outbox_status(f, row.id).await, OutboxStatus::Dispatched, "it was delivered");
}

pub async fn a_retried_conflict_becomes_a_message_of_its_own(f: &dyn Fixture) {
    let other = "{\"n\": 2}";
    let batch = vec![arrival_with("m-1", "{\"n\": 1}"), arrival_with("m-1", other)];
    f.store().accept(batch, Vec::new()).await.expect("accept");
    let dead = only_dead_letter(f).await;
    assert!(resolve(f, dead.id, Resolution::Retried).await);
    let id = format!("m-1#{}", &sha256_hex(other.as_bytes())[..8]);
    let row = f.store().find_inbox(id).await.expect("find").expect("a new row");
    assert_eq!((row.status, row.payload.as_deref()), (InboxStatus::Received, Some(other)));
    assert_eq!((row.source_system.as_str(), row.msg_key.as_str()), ("ihub", "m-1"));
    assert_eq!(Worker::inbox(f, "w").await.received(10).await.len(), 2);
    let first = f.store().find_inbox("m-1".to_owned()).await.expect("find").expect("row");
    assert_eq!(first.payload.as_deref(), Some("{\"n\": 1}"), "the first one is not touched");
}

pub async fn a_skipped_conflict_stores_nothing(f: &dyn Fixture) {
    let batch = vec![arrival_with("m-1", "{\"n\": 1}"), arrival_with("m-1", "{\"n\": 2}")];
    f.store().accept(batch, Vec::new()).await.expect("accept");
    let dead = only_dead_letter(f).await;
    assert!(resolve(f, dead.id, Resolution::Discarded).await);
    assert_eq!(f.number("SELECT count(*) FROM relais_inbox").await, 1);
    assert!(open_dead_letters(f).await.is_empty());
}

pub async fn many_rows_can_die_in_one_batch(f: &dyn Fixture) {
    f.store().enqueue(messages("orders", 1_100)).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(2_000).await;
    let fates = rows.iter().enumerate().map(|(n, row)| {
        let fate = OutboxFate::Dead { attempts: 1, problem: problem(), park: n % 2 == 0 };
        worker.outbox_fate(row, fate)
    });
    assert_eq!(worker.settle_all(fates.collect()).await, all(1_100));
    assert_eq!(f.number("SELECT count(DISTINCT id) FROM relais_dead_letter").await, 1_100);
    assert_eq!(f.number("SELECT count(*) FROM relais_parked_key").await, 550);
}
