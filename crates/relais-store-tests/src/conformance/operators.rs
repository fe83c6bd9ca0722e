//! Questions of operators: failed attempts, what waits behind parked keys, what came of a message, and who
//! did what.

use relais_core::{
    dead_letter::{DecisionAction, DecisionResult, OperatorDecision, Origin, Resolution},
    inbox::{InboxFate, NewInbox},
    inspect::{Attempt, AuditEntry, AuditFilter, InspectExt},
    message::NewMessage,
    outbox::{OnDeadLetter, OutboxFate, OutboxStatus},
    query::{PAGE_MAX, ParkedKey},
};

use super::{
    Start,
    bulk::{Held, job},
    dead_letters::{dead_inbox, dead_outbox},
    only_dead_letter, open_dead_letters,
    process_build::failed_process,
    resolve,
    worker::{
        Worker, all, dead_and_parked, dead_message, expire_all, handle_later, make_due, none,
        processed, retry_later, wait_uncounted,
    },
};
use crate::{
    build::{arrival, arrival_for, message, messages, problem},
    fixture::Fixture,
};

pub const START: Start = Start::Migrated;

pub(super) async fn attempts(f: &dyn Fixture, origin: Origin, id: i64) -> Vec<Attempt> {
    let store = f.store();
    let message_id = match origin {
        Origin::Inbox => {
            let row = store.find_inbox(id.to_string()).await.expect("find");
            row.map(|row| row.message_id)
        }
        Origin::Outbox => {
            let row = store.find_outbox(id.to_string()).await.expect("find");
            row.map(|row| row.message_id.to_string())
        }
        Origin::Process => None,
    };
    let Some(message_id) = message_id else { return Vec::new() };
    store.trail(message_id).await.expect("trail").attempts_of(origin, id)
}

/// The number and the outcome of each.
fn outcomes(attempts: &[Attempt]) -> Vec<(u32, &str)> {
    attempts.iter().map(|attempt| (attempt.attempt, attempt.outcome.as_str())).collect()
}

pub async fn every_failed_attempt_of_an_outbox_row_is_kept(f: &dyn Fixture) {
    f.store().enqueue(vec![message("orders", "k")]).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "worker-7").await;
    let row = worker.pending(1).await.remove(0);
    let before = f.now().await;
    assert_eq!(worker.settle(&row, retry_later()).await, all(1));
    make_due(f, "relais_outbox").await;
    assert_eq!(worker.settle(&row, dead_and_parked()).await, all(1));
    let kept = attempts(f, Origin::Outbox, row.id).await;
    assert_eq!(outcomes(&kept), [(1, "retry"), (5, "failed")], "oldest first");
    let problem = problem();
    for attempt in &kept {
        assert_eq!((attempt.origin, attempt.origin_id), (Origin::Outbox, row.id));
        assert_eq!(attempt.error_code.as_deref(), Some(problem.code.as_str()));
        assert_eq!(attempt.error_message.as_deref(), Some(problem.message.as_str()));
        assert_eq!(attempt.worker, "worker-7");
        assert!(attempt.at >= before && attempt.at <= f.now().await);
    }
    assert!(attempts(f, Origin::Inbox, row.id).await.is_empty(), "that is another row");
    assert!(attempts(f, Origin::Outbox, row.id + 1).await.is_empty());
}

pub async fn every_failed_attempt_of_an_inbox_row_is_kept(f: &dyn Fixture) {
    f.store().accept(vec![arrival("1"), arrival("2")], Vec::new()).await.expect("accept");
    let worker = Worker::inbox(f, "worker-7").await;
    let rows = worker.received(10).await;
    let fates = vec![
        worker.inbox_fate(&rows[0], handle_later()),
        worker
            .inbox_fate(&rows[1], InboxFate::Dead { attempts: 1, problem: problem(), park: false }),
    ];
    assert_eq!(worker.settle_inbox_all(fates).await, all(2));
    make_due(f, "relais_inbox").await;
    assert_eq!(worker.settle_inbox(&rows[0], dead_message()).await, all(1));
    let kept = attempts(f, Origin::Inbox, rows[0].id).await;
    assert_eq!(outcomes(&kept), [(1, "retry"), (5, "failed")]);
    assert_eq!(kept[0].worker, "worker-7");
    assert_eq!(outcomes(&attempts(f, Origin::Inbox, rows[1].id).await), [(1, "failed")]);
}

pub async fn every_failed_attempt_in_a_bulk_job_is_kept(f: &dyn Fixture) {
    let held = Held::of(f, &["retry", "dead", "done"]).await;
    let fates = vec![
        (held.id(0), retry_later()),
        (held.id(1), dead_and_parked()),
        (held.id(2), OutboxFate::Dispatched),
    ];
    assert_eq!(held.settle(fates).await, all(3));
    for (row, wanted) in [(0, vec![(1, "retry")]), (1, vec![(5, "failed")]), (2, vec![])] {
        assert_eq!(outcomes(&attempts(f, Origin::Outbox, held.id(row)).await), wanted);
    }
}

pub async fn what_was_no_failed_attempt_leaves_none(f: &dyn Fixture) {
    let batch = (0..4).map(|n| message("orders", &n.to_string())).collect();
    f.store().enqueue(batch).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(10).await;
    worker.settle(&rows[0], OutboxFate::Dispatched).await;
    worker.settle(&rows[1], OutboxFate::Untouched).await;
    worker.settle(&rows[2], wait_uncounted()).await;
    f.store().accept(vec![arrival("1")], Vec::new()).await.expect("accept");
    let handler = Worker::inbox(f, "w").await;
    handler.settle_inbox(&handler.received(1).await[0], processed()).await;
    expire_all(f).await;
    Worker::start(f.second(), worker.fence.scope.clone(), "other").await;
    assert_eq!(worker.settle(&rows[3], dead_and_parked()).await, none(1), "refused");
    assert_eq!(f.number("SELECT count(*) FROM relais_attempt").await, 0);
}

pub async fn a_retry_counts_its_attempts_from_the_start(f: &dyn Fixture) {
    let (worker, dead) = dead_outbox(f, message("orders", "k")).await;
    assert!(resolve(f, dead.id, Resolution::Retried).await);
    let row = worker.pending(1).await.remove(0);
    worker.settle(&row, retry_later()).await;
    let kept = attempts(f, Origin::Outbox, row.id).await;
    assert_eq!(outcomes(&kept), [(5, "failed"), (1, "retry")], "and keeps those before it");
}

pub async fn parked_keys_say_what_waits_behind_them(f: &dyn Fixture) {
    let (_, outbox_dead) = dead_outbox(f, message("orders", "k")).await;
    let mut delayed = message("orders", "k");
    delayed.delay = Some(std::time::Duration::from_secs(3_600));
    let batch = vec![
        message("orders", "k"),
        message("orders", "k"),
        delayed,
        message("orders", "other"),
        message("elsewhere", "k"),
    ];
    f.store().enqueue(batch).await.expect("enqueue");
    f.store().accept(vec![arrival_for("1", "k")], Vec::new()).await.expect("accept");
    let handler = Worker::inbox(f, "w").await;
    handler.settle_inbox(&handler.received(1).await[0], dead_message()).await;
    let more = vec![arrival_for("2", "k"), arrival_for("3", "j")];
    f.store().accept(more, Vec::new()).await.expect("accept");
    let inbox_dead = open_dead_letters(f).await.into_iter().find(|d| d.origin == Origin::Inbox);
    let old = f.past();
    f.run(&format!("UPDATE relais_parked_key SET parked_at = {old} WHERE origin = 'inbox'")).await;
    let parked = f.store().parked_keys(10).await.expect("parked keys");
    let shown: Vec<_> = parked.iter().map(shown).collect();
    let inbox_dead = inbox_dead.expect("a dead letter").id;
    assert_eq!(
        shown,
        [
            (Origin::Inbox, None, "k", inbox_dead, 1),
            (Origin::Outbox, Some("orders"), "k", outbox_dead.id, 3),
        ],
        "longest first"
    );
    assert_eq!(f.store().parked_keys(1).await.expect("parked keys"), parked[..1]);
}

fn shown(key: &ParkedKey) -> (Origin, Option<&str>, &str, uuid::Uuid, u64) {
    (key.origin, key.destination.as_deref(), &key.msg_key, key.dead_letter_id, key.backlog)
}

pub async fn a_parked_key_with_nothing_behind_it_has_no_waiting_rows(f: &dyn Fixture) {
    let (_, dead) = dead_inbox(f, arrival("m-1")).await;
    f.store().accept(vec![arrival("m-2")], Vec::new()).await.expect("accept");
    let parked = f.store().parked_keys(10).await.expect("parked keys");
    assert_eq!(parked.len(), 1);
    assert_eq!(shown(&parked[0]), (Origin::Inbox, None, "m-1", dead.id, 0));
}

pub async fn a_message_id_finds_the_rows_of_every_source_and_no_row_number(f: &dyn Fixture) {
    let from =
        |source: &str, id: &str| NewInbox { source_system: source.to_owned(), ..arrival(id) };
    let batch = vec![from("b", "m-1"), from("a", "1"), from("a", "m-1"), from("c", "M-1")];
    f.store().accept(batch, Vec::new()).await.expect("accept");
    let of = async |id: &str| -> Vec<(i64, String)> {
        let found = f.store().trail(id.to_owned()).await.expect("trail").received;
        found.into_iter().map(|row| (row.id, row.source_system)).collect()
    };
    let sources: Vec<_> = of("m-1").await.into_iter().map(|(_, source)| source).collect();
    assert_eq!(sources, ["b", "a"], "oldest first");
    let first = f.store().find_inbox("1".to_owned()).await.expect("find").expect("row 1");
    assert_eq!((first.id, first.message_id.as_str()), (1, "m-1"));
    assert_eq!(of("1").await, [(2, "a".to_owned())], "the message, not the row of that number");
    assert!(of("3").await.is_empty() && of("").await.is_empty());
}

pub async fn what_a_message_caused_is_found_oldest_first(f: &dyn Fixture) {
    let caused = |cause: &str, destination: &str| NewMessage {
        causation_id: Some(cause.to_owned()),
        ..message(destination, "k")
    };
    let batch = vec![
        caused("m-1", "orders"),
        caused("m-10", "orders"),
        message("orders", "k"),
        caused("m-1", "elsewhere"),
    ];
    let ids = f.store().enqueue(batch.clone()).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    worker.settle(&worker.pending(1).await[0], OutboxFate::Dispatched).await;
    let found = f.store().trail("m-1".to_owned()).await.expect("trail").caused;
    assert_eq!(found.iter().map(|row| row.id).collect::<Vec<_>>(), [ids[0], ids[3]]);
    assert_eq!(found[1].message_id, batch[3].message_id);
    assert!(f.store().trail("M-1".to_owned()).await.expect("trail").caused.is_empty());
    let long = "😀".repeat(200);
    f.store().enqueue(vec![caused(&long, "orders")]).await.expect("enqueue");
    assert_eq!(f.store().trail(long).await.expect("trail").caused.len(), 1);
}

pub async fn dead_letters_of_a_message_are_found_resolved_or_not(f: &dyn Fixture) {
    let (worker, first) = dead_outbox(f, message("orders", "k")).await;
    assert!(resolve(f, first.id, Resolution::Retried).await);
    let row = worker.pending(1).await.remove(0);
    worker.settle(&row, dead_and_parked()).await;
    let second = only_dead_letter(f).await;
    let past = f.past();
    f.run(&format!("UPDATE relais_dead_letter SET parked_at = {past} WHERE id = '{}'", first.id))
        .await;
    let of = async |id: String| -> Vec<uuid::Uuid> {
        let found = f.store().trail(id).await.expect("trail").dead_letters;
        found.into_iter().map(|dead| dead.id).collect()
    };
    let id = row.message_id.to_string();
    assert_eq!(of(id.clone()).await, [first.id, second.id], "oldest first");
    assert_eq!(of(id.to_uppercase()).await.len(), 2, "one UUID however it is written");
    dead_inbox_of(f, "Order-7").await;
    assert_eq!(of("Order-7".to_owned()).await.len(), 1);
    assert!(of("order-7".to_owned()).await.is_empty());
    let process = failed_process(f, None).await;
    assert_eq!(of(process.process_id.to_string()).await.len(), 1);
}

async fn dead_inbox_of(f: &dyn Fixture, message_id: &str) {
    f.store().accept(vec![arrival(message_id)], Vec::new()).await.expect("accept");
    let worker = Worker::inbox(f, "w").await;
    worker.settle_inbox(&worker.received(1).await[0], dead_message()).await;
}

async fn audit(f: &dyn Fixture, filter: AuditFilter) -> Vec<AuditEntry> {
    f.store().list_audit(filter).await.expect("audit")
}

pub async fn the_audit_is_listed_newest_first_and_in_pages(f: &dyn Fixture) {
    let before = f.now().await;
    for n in 0..6 {
        let (actor, target) = (["ann", "ben"][n % 2], ["t-1", "t-2", "t-3"][n % 3]);
        let columns = "(actor, action, target, reason)";
        let line = format!("'{actor}', 'dead-letter.retried', '{target}', 'é 😀 {n}'");
        f.run(&format!("INSERT INTO relais_audit {columns} VALUES ({line})")).await;
    }
    let filter = |limit| AuditFilter { limit, ..AuditFilter::default() };
    let all = audit(f, filter(PAGE_MAX + 1)).await;
    let reasons: Vec<&str> = all.iter().map(|line| line.reason.as_str()).collect();
    assert_eq!(reasons, [5, 4, 3, 2, 1, 0].map(|n| format!("é 😀 {n}")));
    assert!(all.iter().all(|line| line.at >= before && line.action == "dead-letter.retried"));
    assert_eq!((all[0].actor.as_str(), all[0].target.as_str()), ("ben", "t-3"));
    let by = |actor: Option<&str>, target: Option<&str>| AuditFilter {
        actor: actor.map(str::to_owned),
        target: target.map(str::to_owned),
        ..filter(10)
    };
    let lines = |which: &[usize]| which.iter().map(|n| all[*n].clone()).collect::<Vec<_>>();
    assert_eq!(audit(f, by(Some("ann"), None)).await, lines(&[1, 3, 5]));
    assert_eq!(audit(f, by(None, Some("t-1"))).await, lines(&[2, 5]));
    assert_eq!(audit(f, by(Some("ben"), Some("t-1"))).await, lines(&[2]));
    assert!(audit(f, by(Some("eve"), None)).await.is_empty());
    assert_eq!(
        audit(f, AuditFilter { before: Some(all[1].id), ..filter(2) }).await,
        lines(&[2, 3])
    );
    let page = AuditFilter { before: Some(all[2].id), ..by(None, Some("t-1")) };
    assert_eq!(audit(f, page).await, lines(&[5]));
    assert!(audit(f, filter(0)).await.is_empty());
}

fn fail(row: i64, on_dead_letter: OnDeadLetter) -> OperatorDecision {
    let action = DecisionAction::FailPending { row, on_dead_letter };
    OperatorDecision { action, actor: "ann".to_owned(), reason: "it's stuck 😀".to_owned() }
}

pub async fn a_pending_row_becomes_a_dead_letter_by_an_operator(f: &dyn Fixture) {
    let batch = vec![message("orders", "a"), message("orders", "a"), message("orders", "b")];
    let ids = f.store().enqueue(batch).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    let row = worker.pending(1).await.remove(0);
    worker.settle(&row, retry_later()).await;
    let changes = f.store().changes().await.expect("changes");
    let failed = f.second().decide(fail(ids[0], OnDeadLetter::Park)).await.expect("fail");
    assert_eq!(failed, DecisionResult::Done);
    assert_ne!(f.store().changes().await.expect("changes").rows, changes.rows, "workers notice");
    let dead = only_dead_letter(f).await;
    assert_eq!((dead.origin, dead.origin_id), (Origin::Outbox, Some(ids[0])));
    assert_eq!(dead.error_class.as_deref(), Some("OPERATOR_FAILED"));
    assert_eq!(dead.error_message.as_deref(), Some("it's stuck 😀"));
    assert_eq!((dead.attempts, dead.parked_by.as_str()), (1, "ann"));
    assert_eq!(worker.pending_ids().await, ids[2..], "its key is parked");
    let history = attempts(f, Origin::Outbox, ids[0]).await;
    assert_eq!(history.len(), 2);
    let audit = f.rows("SELECT actor, action, target, reason FROM relais_audit").await;
    let line = ["ann", "outbox.failed", &ids[0].to_string(), "it's stuck 😀"];
    assert_eq!(audit, [line.map(|text| Some(text.to_owned())).to_vec()]);
    // It is a dead letter as any other.
    assert!(super::resolve(f, dead.id, Resolution::Discarded).await);
    assert_eq!(worker.pending_ids().await, ids[1..]);
    // Where the destination skips dead letters, the key continues.
    let failed = f.store().decide(fail(ids[1], OnDeadLetter::Skip)).await.expect("fail");
    assert_eq!(failed, DecisionResult::Done);
    assert_eq!(f.number("SELECT count(*) FROM relais_parked_key").await, 0);
}

/// A worker has the row in flight while an operator fails it: the first to commit stands.
pub async fn of_an_operator_and_a_settlement_one_stands(f: &dyn Fixture) {
    let ids = f.store().enqueue(messages("orders", 3)).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(10).await;
    let second = f.second();
    let decided = |id| second.decide(fail(id, OnDeadLetter::Park));
    // The operator is faster than the answer of the target, whatever it is.
    for (row, fate) in [(&rows[0], OutboxFate::Dispatched), (&rows[1], retry_later())] {
        assert_eq!(decided(row.id).await.expect("fail"), DecisionResult::Done);
        assert_eq!(worker.settle(row, fate).await, none(1));
        let now = f.store().find_outbox(row.id.to_string()).await.expect("find").expect("row");
        assert_eq!((now.status, now.dispatched_at), (OutboxStatus::Failed, None));
    }
    assert_eq!(open_dead_letters(f).await.len(), 2);
    // The answer is faster.
    assert_eq!(worker.settle(&rows[2], OutboxFate::Dispatched).await, all(1));
    assert_eq!(decided(ids[2]).await.expect("fail"), DecisionResult::ResolvedBefore);
    assert_eq!(decided(ids[0]).await.expect("fail"), DecisionResult::ResolvedBefore);
    assert_eq!(decided(9_999).await.expect("fail"), DecisionResult::NotFound);
    assert_eq!(open_dead_letters(f).await.len(), 2);
    assert_eq!(f.number("SELECT count(*) FROM relais_audit").await, 2);
}

pub async fn a_delivery_after_an_operator_failed_the_row_is_noted(f: &dyn Fixture) {
    let ids = f.store().enqueue(messages("orders", 3)).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(10).await;
    let failed = f.second().decide(fail(ids[0], OnDeadLetter::Park)).await.expect("fail");
    assert_eq!(failed, DecisionResult::Done);
    worker.settle(&rows[1], dead_and_parked()).await;
    // Only the first was failed by an operator; the second died, the third is delivered.
    let delivered = rows.iter().map(|row| worker.outbox_fate(row, OutboxFate::Dispatched));
    let settled = worker.settle_all(delivered.collect()).await;
    assert_eq!((settled.settled, settled.refused), (1, 2));
    let history = attempts(f, Origin::Outbox, ids[0]).await;
    assert_eq!(outcomes(&history), [(0, "failed"), (1, "delivered")]);
    assert_eq!(history[1].worker, "w");
    assert_eq!(outcomes(&attempts(f, Origin::Outbox, ids[1]).await), [(5, "failed")]);
    assert!(attempts(f, Origin::Outbox, ids[2]).await.is_empty());
    let row = f.store().find_outbox(ids[0].to_string()).await.expect("find").expect("row");
    assert_eq!(row.status, OutboxStatus::Failed, "the decision of the operator stands");
}

/// A row in a bulk job too; the job ends with its last row.
pub async fn a_row_of_a_job_is_failed_by_an_operator(f: &dyn Fixture) {
    let held = Held::of(f, &["a", "b"]).await;
    let failed = f.second().decide(fail(held.id(0), OnDeadLetter::Skip)).await;
    assert_eq!(failed.expect("fail"), DecisionResult::Done);
    assert_eq!(held.settle(vec![(held.id(0), OutboxFate::Dispatched)]).await, none(1));
    assert!(!job(f, held.job.id).await.phase.is_terminal());
    let failed = f.second().decide(fail(held.id(1), OnDeadLetter::Skip)).await;
    assert_eq!(failed.expect("fail"), DecisionResult::Done);
    assert!(job(f, held.job.id).await.phase.is_terminal(), "nothing is left of it");
    assert_eq!(held.settle(vec![(held.id(1), OutboxFate::Dispatched)]).await, none(1));
    assert_eq!(open_dead_letters(f).await.len(), 2);
}
