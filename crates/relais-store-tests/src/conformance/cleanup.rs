//! Cleaning up: finished rows past their retention, a bounded number at a time, and nothing else.

use relais_core::{
    dead_letter::Resolution,
    inbox::InboxFate,
    inspect::InspectExt,
    message::NewMessage,
    outbox::OutboxFate,
    process::{Change, Process, ProcessStatus, TimerChange},
    query::{CleanupCounts, CleanupMode, Retention},
};

use super::{
    Start, open_dead_letters,
    process_build::{
        TYPE, after, applied, begun, failed_process, found, history, step_started, timer,
    },
    resolve,
    worker::{MANY, Worker, all, dead_and_parked},
};
use crate::{
    build::{arrival, message, messages, undecodable},
    fixture::{Fixture, FixtureNode},
};

pub const START: Start = Start::Migrated;

const DAY: u32 = 86_400;
const YEAR: u32 = 365 * DAY;
/// A pass that removes everything there is in these tests.
const WHOLE: usize = 100;

fn removing(rows_max: usize) -> CleanupMode {
    CleanupMode::Remove { rows_max }
}

async fn cleanup(f: &dyn Fixture, rows_max: usize) -> CleanupCounts {
    let expired =
        f.store().cleanup(Retention::default(), CleanupMode::Count).await.expect("expired");
    let cleaned =
        f.store().cleanup(Retention::default(), removing(rows_max)).await.expect("cleanup");
    assert!(cleaned.total() <= expired.total(), "{cleaned:?} of {expired:?}");
    if rows_max >= WHOLE {
        assert_eq!(cleaned, expired, "what a pass removes was announced");
    }
    cleaned
}

/// Writes and dispatches `count` messages.
async fn dispatched(f: &dyn Fixture, count: usize) {
    f.store().enqueue(messages("orders", count)).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(MANY).await;
    let fates = rows.iter().map(|row| worker.outbox_fate(row, OutboxFate::Dispatched)).collect();
    assert_eq!(worker.settle_all(fates).await, all(count as u64));
}

/// Makes every time of every row this old, where there is one.
async fn age(f: &dyn Fixture, seconds: u32) {
    let at = f.dialect().ago(seconds);
    let columns = [
        ("relais_outbox", &["created_at", "dispatched_at", "next_attempt_at"][..]),
        ("relais_inbox", &["received_at", "processed_at", "next_attempt_at"][..]),
        ("relais_dead_letter", &["parked_at", "resolved_at"][..]),
        ("relais_handled", &["processed_at"][..]),
        ("relais_process", &["created_at", "updated_at"][..]),
        ("relais_attempt", &["at"][..]),
        ("relais_version", &["seen_at"][..]),
    ];
    for (table, columns) in columns {
        for column in columns {
            f.run(&format!("UPDATE {table} SET {column} = {at} WHERE {column} IS NOT NULL")).await;
        }
    }
}

pub async fn finished_rows_past_their_retention_go(f: &dyn Fixture) {
    dispatched(f, 3).await;
    f.store().accept(vec![arrival("1"), arrival("2")], Vec::new()).await.expect("accept");
    let handler = Worker::inbox(f, "w").await;
    for row in handler.received(10).await {
        handler.settle_inbox(&row, super::worker::processed()).await;
    }
    f.once(FixtureNode::First, "h".to_owned(), "m".to_owned()).await.expect("once");
    age(f, YEAR).await;
    let cleaned = cleanup(f, 100).await;
    assert_eq!(
        cleaned,
        CleanupCounts { inbox: 2, outbox: 3, handled: 1, ..CleanupCounts::default() }
    );
    assert_eq!(cleanup(f, 100).await, CleanupCounts::default(), "nothing is left to remove");
}

pub async fn versions_that_were_not_seen_for_long_go(f: &dyn Fixture) {
    let versioned = |aggregate: &str, version| NewMessage {
        as_of_version: Some(version),
        ..message("orders", aggregate)
    };
    let handled = async |id: &str, message: NewMessage| {
        f.store().accept(vec![arrival(id)], Vec::new()).await.expect("accept");
        let worker = Worker::inbox(f, "w").await;
        let row = &worker.received(10).await[0];
        let (changes, copies) = Default::default();
        worker
            .settle_inbox(row, InboxFate::Processed { messages: vec![message], changes, copies })
            .await;
    };
    for (id, aggregate) in [("1", "a"), ("2", "b"), ("3", "c")] {
        handled(id, versioned(aggregate, 5)).await;
    }
    age(f, 2 * YEAR).await;
    // Seen again: its version stays.
    handled("4", versioned("b", 6)).await;
    let retention = Retention::default()
        .processed_seconds(Retention::NEVER_SECONDS)
        .dispatched_seconds(Retention::NEVER_SECONDS);
    let counted = f.store().cleanup(retention, CleanupMode::Count).await.expect("count");
    assert_eq!(counted, CleanupCounts { versions: 2, ..CleanupCounts::default() });
    for _ in 0..2 {
        let gone = f.store().cleanup(retention, removing(1)).await.expect("cleanup");
        assert_eq!(gone, CleanupCounts { versions: 1, ..CleanupCounts::default() });
    }
    assert_eq!(f.number("SELECT max(version) FROM relais_version").await, 6);
    let never = Retention::default().versions_seconds(Retention::NEVER_SECONDS);
    age(f, 2 * YEAR).await;
    let counted = f.store().cleanup(never, CleanupMode::Count).await.expect("count");
    assert_eq!(counted.versions, 0);
}

pub async fn finished_rows_within_their_retention_stay(f: &dyn Fixture) {
    dispatched(f, 3).await;
    f.store().accept(vec![arrival("1")], Vec::new()).await.expect("accept");
    let handler = Worker::inbox(f, "w").await;
    let rows = handler.received(10).await;
    handler.settle_inbox(&rows[0], super::worker::processed()).await;
    f.once(FixtureNode::First, "h".to_owned(), "m".to_owned()).await.expect("once");
    age(f, 6 * DAY).await;
    assert_eq!(cleanup(f, 100).await, CleanupCounts::default());
    age(f, 8 * DAY).await;
    assert_eq!(cleanup(f, 100).await, CleanupCounts { outbox: 3, ..CleanupCounts::default() });
    age(f, 31 * DAY).await;
    assert_eq!(
        cleanup(f, 100).await,
        CleanupCounts { inbox: 1, handled: 1, ..CleanupCounts::default() }
    );
}

pub async fn the_time_of_the_end_counts_not_that_of_the_start(f: &dyn Fixture) {
    f.store().enqueue(vec![message("orders", "k")]).await.expect("enqueue");
    age(f, YEAR).await;
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(1).await;
    assert_eq!(worker.settle(&rows[0], OutboxFate::Dispatched).await, all(1));
    assert_eq!(cleanup(f, 100).await, CleanupCounts::default());
}

pub async fn unfinished_rows_stay_however_old(f: &dyn Fixture) {
    f.store().enqueue(messages("orders", 3)).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(10).await;
    worker.settle(&rows[0], dead_and_parked()).await;
    worker.settle(&rows[1], super::worker::retry_later()).await;
    let batch = vec![arrival("1"), arrival("2"), arrival("3"), undecodable("4", b"\xff")];
    f.store().accept(batch, Vec::new()).await.expect("accept");
    let handler = Worker::inbox(f, "w").await;
    let rows = handler.received(10).await;
    handler.settle_inbox(&rows[0], super::worker::handle_later()).await;
    handler.settle_inbox(&rows[1], super::worker::dead_message()).await;
    age(f, YEAR).await;
    // Even where a time of an end stands beside a state that has none.
    let old = f.dialect().ago(YEAR);
    f.run(&format!("UPDATE relais_outbox SET dispatched_at = {old}")).await;
    f.run(&format!("UPDATE relais_inbox SET processed_at = {old}")).await;
    assert_eq!(cleanup(f, 100).await, CleanupCounts::default());
    assert_eq!(f.number("SELECT count(*) FROM relais_outbox").await, 3);
    assert_eq!(f.number("SELECT count(*) FROM relais_inbox").await, 4);
    assert_eq!(open_dead_letters(f).await.len(), 2);
}

pub async fn a_pass_removes_no_more_than_it_may(f: &dyn Fixture) {
    dispatched(f, 25).await;
    for n in 0..12 {
        f.once(FixtureNode::First, "h".to_owned(), n.to_string()).await.expect("once");
    }
    age(f, YEAR).await;
    let mut passes = Vec::new();
    for _ in 0..4 {
        let cleaned = cleanup(f, 10).await;
        passes.push((cleaned.outbox, cleaned.handled));
    }
    assert_eq!(passes, [(10, 10), (10, 2), (5, 0), (0, 0)]);
}

pub async fn resolved_dead_letters_go_and_open_ones_stay(f: &dyn Fixture) {
    f.store().enqueue(messages("orders", 3)).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    for row in worker.pending(10).await {
        worker.settle(&row, dead_and_parked()).await;
    }
    let dead = open_dead_letters(f).await;
    assert!(resolve(f, dead[0].id, Resolution::Discarded).await);
    assert!(resolve(f, dead[1].id, Resolution::Retried).await);
    age(f, 89 * DAY).await;
    assert_eq!(cleanup(f, 100).await, CleanupCounts::default());
    age(f, 91 * DAY).await;
    assert_eq!(cleanup(f, 1).await.dead_letters, 1);
    assert_eq!(cleanup(f, 100).await.dead_letters, 1);
    let left = open_dead_letters(f).await;
    assert!(left.len() == 1 && left[0].id == dead[2].id);
    let audit = f.number("SELECT count(*) FROM relais_audit").await;
    assert_eq!(audit, 2, "decisions of operators stay on record");
}

pub async fn a_resolved_dead_letter_goes_though_its_key_is_still_parked(f: &dyn Fixture) {
    let batch = vec![message("orders", "k"), message("orders", "k")];
    f.store().enqueue(batch).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(10).await;
    let fates = rows.iter().map(|row| worker.outbox_fate(row, dead_and_parked())).collect();
    assert_eq!(worker.settle_all(fates).await, all(2));
    let dead = open_dead_letters(f).await;
    assert!(resolve(f, dead[0].id, Resolution::Discarded).await);
    assert!(resolve(f, dead[1].id, Resolution::Retried).await);
    worker.settle(&worker.pending(1).await[0], dead_and_parked()).await;
    age(f, YEAR).await;
    assert_eq!(
        cleanup(f, 100).await,
        CleanupCounts { dead_letters: 2, ..CleanupCounts::default() }
    );
    assert_eq!(f.store().parked_keys(10).await.expect("parked keys").len(), 1);
}

pub async fn a_discarded_row_goes_with_its_dead_letter(f: &dyn Fixture) {
    f.store().enqueue(messages("orders", 3)).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    for row in worker.pending(10).await {
        worker.settle(&row, dead_and_parked()).await;
    }
    f.store().accept(vec![arrival("1")], Vec::new()).await.expect("accept");
    let handler = Worker::inbox(f, "w").await;
    let received = handler.received(10).await;
    handler.settle_inbox(&received[0], super::worker::dead_message()).await;
    let dead = open_dead_letters(f).await;
    // One of the outbox is retried and fails again: a dead letter that is open, beside a resolved one.
    let again = dead.iter().rfind(|letter| letter.destination.is_some()).expect("of the outbox");
    assert!(resolve(f, again.id, Resolution::Retried).await);
    worker.settle(&worker.pending(1).await[0], dead_and_parked()).await;
    let kept = dead.iter().find(|letter| letter.destination.is_some()).expect("of the outbox");
    for letter in dead.iter().filter(|letter| ![again.id, kept.id].contains(&letter.id)) {
        assert!(resolve(f, letter.id, Resolution::Discarded).await);
    }
    age(f, 89 * DAY).await;
    assert_eq!(cleanup(f, 100).await, CleanupCounts::default());
    age(f, 91 * DAY).await;
    assert_eq!(
        cleanup(f, 100).await,
        CleanupCounts { dead_letters: 3, ..CleanupCounts::default() }
    );
    let left = f.rows("SELECT id FROM relais_outbox ORDER BY id").await;
    let mut rows = [again.origin_id, kept.origin_id].map(|id| id.map(|id| id.to_string()));
    rows.sort();
    assert_eq!(left, rows.map(|id| vec![id]), "rows with an open dead letter stay");
    assert_eq!(f.number("SELECT count(*) FROM relais_inbox").await, 0);
    let orphans = "SELECT count(*) FROM relais_attempt WHERE origin = 'inbox'";
    assert_eq!(f.number(orphans).await, 0, "attempts go with their row");
}

/// Leftovers, among them some that an operator retried today, and old rows behind them.
pub async fn rows_retried_lately_do_not_stop_clean_up(f: &dyn Fixture) {
    let (now, old) = (f.dialect().ago(0), f.dialect().ago(YEAR));
    let rows = [("FAILED", "NULL", 10_500), ("DISPATCHED", &now, 150), ("DISPATCHED", &old, 300)];
    for (status, dispatched_at, count) in rows {
        f.run(&format!(
            "INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload, \
             status, created_at, dispatched_at) \
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) \
             SELECT 'Order', 'o', 'E', 'orders', '{{}}', '{status}', {old}, {dispatched_at} FROM n"
        ))
        .await;
    }
    let mut removed = 0;
    for _ in 0..8 {
        removed +=
            f.store().cleanup(Retention::default(), removing(100)).await.expect("cleanup").outbox;
    }
    assert_eq!(removed, 300);
}

pub async fn cleaning_up_beside_others_never_fails(f: &dyn Fixture) {
    dispatched(f, 200).await;
    age(f, YEAR).await;
    let nodes = (0..4).map(|n| {
        let store = if n % 2 == 0 { f.store() } else { f.second() };
        tokio::spawn(async move {
            let mut removed = 0;
            for _ in 0..20 {
                let cleaned =
                    store.cleanup(Retention::default(), removing(10)).await.expect("cleanup");
                removed += cleaned.outbox;
                store.enqueue(messages("orders", 1)).await.expect("enqueue beside it");
            }
            removed
        })
    });
    let mut removed = 0;
    for node in nodes.collect::<Vec<_>>() {
        removed += node.await.expect("node");
    }
    assert_eq!(removed, 200, "each row once");
    assert_eq!(f.number("SELECT count(*) FROM relais_outbox").await, 80);
}

/// A process that came to this state, with a timer.
async fn process_in(f: &dyn Fixture, status: ProcessStatus) -> Process {
    let timer = TimerChange::Set(timer("reserve"));
    let process = applied(f, Change { timer, ..begun(TYPE, None) }).await;
    applied(f, after(&process, status, vec![step_started("a")])).await
}

pub async fn ended_processes_go_with_their_logs_and_timers(f: &dyn Fixture) {
    for status in ProcessStatus::ALL {
        process_in(f, status).await;
    }
    age(f, 89 * DAY).await;
    assert_eq!(cleanup(f, 100).await, CleanupCounts::default());
    age(f, YEAR).await;
    assert_eq!(cleanup(f, 2).await, CleanupCounts { processes: 2, ..CleanupCounts::default() });
    assert_eq!(cleanup(f, 2).await, CleanupCounts { processes: 1, ..CleanupCounts::default() });
    assert_eq!(cleanup(f, 2).await, CleanupCounts::default());
    let left = "SELECT count(*) FROM relais_process WHERE status NOT IN \
                ('NEW', 'RUNNING', 'COMPENSATING', 'PAUSED')";
    assert_eq!(f.number(left).await, 0, "only what has ended goes, however old the rest is");
    for (table, rows) in [("relais_process", 4), ("relais_process_log", 8), ("relais_timer", 4)] {
        assert_eq!(f.number(&format!("SELECT count(*) FROM {table}")).await, rows, "{table}");
    }
}

pub async fn the_last_change_of_a_process_counts(f: &dyn Fixture) {
    let old = process_in(f, ProcessStatus::Running).await;
    age(f, YEAR).await;
    let process = applied(f, after(&old, ProcessStatus::Succeeded, vec![step_started("b")])).await;
    assert_eq!(cleanup(f, 100).await, CleanupCounts::default());
    assert_eq!(found(f, process.process_id).await, Some(process));
}

/// Cleanup removes no open dead letter.
pub async fn an_old_process_with_an_open_dead_letter_stays(f: &dyn Fixture) {
    let kept = failed_process(f, Some("kept")).await;
    let looked_at = failed_process(f, Some("looked at")).await;
    let dead = open_dead_letters(f).await;
    let dead = dead.iter().find(|dead| dead.msg_key == "looked at").expect("its dead letter");
    assert!(resolve(f, dead.id, Resolution::Discarded).await);
    age(f, YEAR).await;
    assert_eq!(
        cleanup(f, 1).await,
        CleanupCounts { processes: 1, dead_letters: 1, ..CleanupCounts::default() },
        "the one that stays is in nobody's way"
    );
    assert_eq!(found(f, looked_at.process_id).await, None);
    assert_eq!(found(f, kept.process_id).await.map(|p| p.version), Some(kept.version));
    assert_eq!(history(f, kept.process_id).await.len(), 3);
    assert_eq!(open_dead_letters(f).await.len(), 1);
}

pub async fn attempts_go_with_their_row(f: &dyn Fixture) {
    f.store().enqueue(messages("orders", 2)).await.expect("enqueue");
    f.store().accept(vec![arrival("1"), arrival("2")], Vec::new()).await.expect("accept");
    let (worker, handler) = (Worker::outbox(f, "orders", "w").await, Worker::inbox(f, "w").await);
    let (sent, received) = (worker.pending(10).await, handler.received(10).await);
    for row in &sent {
        worker.settle(row, super::worker::retry_later()).await;
    }
    for row in &received {
        handler.settle_inbox(row, super::worker::handle_later()).await;
    }
    worker.settle(&sent[0], OutboxFate::Dispatched).await;
    handler.settle_inbox(&received[0], super::worker::processed()).await;
    age(f, 6 * DAY).await;
    assert_eq!(cleanup(f, 100).await, CleanupCounts::default());
    assert_eq!(f.number("SELECT count(*) FROM relais_attempt").await, 4);
    age(f, YEAR).await;
    assert_eq!(
        cleanup(f, 100).await,
        CleanupCounts { inbox: 1, outbox: 1, ..CleanupCounts::default() }
    );
    let left = f.rows("SELECT origin, origin_id FROM relais_attempt ORDER BY origin").await;
    let row = |origin: &str, id: i64| vec![Some(origin.to_owned()), Some(id.to_string())];
    assert_eq!(left, [row("inbox", received[1].id), row("outbox", sent[1].id)]);
}
