//! The mark hides nothing: late commits, rows put back, take-overs, held snapshots.

use std::time::{Duration, Instant};

use relais_core::{
    dead_letter::{DeadLetterStore, DecisionAction, DecisionResult, OperatorDecision, Resolution},
    delivery::Problem,
    inbox::{InboxFate, InboxSettlement},
    inspect::InspectExt,
    lane::{LaneRelease, OwnedLane, Scope},
    message::Headers,
    outbox::OutboxFate,
    query::{CleanupMode, Filter, Retention},
    repair::{Identity, Mode, Repair, ReprocessOutcome, RewrittenRow},
    store::{Fetch, Store},
};
use relais_testkit::build;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::{
    bed::{Bed, fence, message, outbox, poll_once},
    fetch_cost::fill,
    support::postgres::Role,
};

/// Longer than the pace at which the mark may move.
const PACE: Duration = Duration::from_millis(250);

/// Fetches again and again until the mark has had time to move.
pub(crate) async fn fetch_for_a_while(bed: &Bed, lanes: &[OwnedLane]) -> Vec<i64> {
    let since = Instant::now();
    loop {
        let ids = bed.ids(lanes).await;
        if since.elapsed() > PACE {
            return ids;
        }
        tokio::task::yield_now().await;
    }
}

/// Sends and dispatches rows until the mark has moved over them.
async fn move_the_mark(bed: &Bed, lanes: &[OwnedLane]) {
    for n in 0..3 {
        bed.send(&format!("mover-{n}")).await;
        let rows = bed.fetch(lanes).await;
        bed.settle(&rows, lanes, &OutboxFate::Dispatched).await;
        assert!(fetch_for_a_while(bed, lanes).await.is_empty());
    }
}

#[tokio::test]
async fn a_lower_id_that_commits_later_is_found_and_keeps_the_order_of_its_key() {
    let Some(bed) = Bed::new().await else { return };
    let lanes = bed.lanes().await;
    let mut late = bed.schema.client().await;
    let open = late.transaction().await.unwrap();
    let insert = "INSERT INTO relais_outbox
        (aggregate_type, aggregate_id, event_type, destination, payload)
        VALUES ('Order', 'late', 'E', 'orders', '{}') RETURNING id";
    let low: i64 = open.query_one(insert, &[]).await.unwrap().get(0);
    move_the_mark(&bed, &lanes).await;
    let other = bed.send("late").await;
    assert!(low < other);
    assert_eq!(fetch_for_a_while(&bed, &lanes).await, [other], "the low id is not committed");
    open.commit().await.unwrap();
    assert_eq!(bed.ids(&lanes).await, [low, other]);
}

#[tokio::test]
async fn a_row_that_an_operator_puts_back_is_found_below_the_mark_before_its_followers() {
    let Some(bed) = Bed::new().await else { return };
    // Another process decides.
    let console = bed.schema.store().await;
    let lanes = bed.lanes().await;
    let low = bed.send("k").await;
    let rows = bed.fetch(&lanes).await;
    let problem = Problem::new("HTTP_400", "no");
    let dead = OutboxFate::Dead { attempts: 1, problem, park: true };
    assert_eq!(bed.settle(&rows, &lanes, &dead).await.settled, 1);
    move_the_mark(&bed, &lanes).await;
    let follower = bed.send("k").await;
    assert!(fetch_for_a_while(&bed, &lanes).await.is_empty(), "parked");
    let filter = Filter { limit: 10, ..Filter::default() };
    let letter = console.list_dead_letters(filter).await.unwrap().remove(0);
    let action =
        DecisionAction::Resolve { dead_letter: letter.id, resolution: Resolution::Retried };
    let decision = OperatorDecision { action, actor: "ann".into(), reason: "fixed".into() };
    assert_eq!(console.decide(decision).await.unwrap(), DecisionResult::Done);
    assert_eq!(bed.ids(&lanes).await, [low, follower]);
}

/// Receives and processes rows until the mark of the inbox has moved over them.
async fn move_the_mark_of_the_inbox(bed: &Bed, lanes: &[OwnedLane]) {
    for n in 0..3 {
        let arrival = build::arrival(&format!("mover-{n}-{}", Uuid::now_v7()));
        bed.store.accept(vec![arrival], Vec::new()).await.unwrap();
        let rows = bed.store.fetch_inbox(inbox(lanes)).await.unwrap();
        let epoch = |lane| lanes.iter().find(|owned| owned.lane == lane).unwrap().epoch;
        let done = rows.iter().map(|row| InboxSettlement {
            id: row.id,
            lane: row.lane,
            epoch: epoch(row.lane),
            fate: InboxFate::Processed {
                messages: Vec::new(),
                changes: Vec::new(),
                copies: Vec::new(),
            },
        });
        bed.store.settle_inbox(fence(Scope::Inbox, "w1"), done.collect()).await.unwrap();
        let since = Instant::now();
        while since.elapsed() <= PACE {
            assert!(bed.store.fetch_inbox(inbox(lanes)).await.unwrap().is_empty());
        }
    }
}

pub(crate) fn inbox(lanes: &[OwnedLane]) -> Fetch {
    Fetch::new(Scope::Inbox, lanes.to_vec(), 100)
}

#[tokio::test]
async fn a_repaired_row_is_found_below_the_mark() {
    let Some(bed) = Bed::new().await else { return };
    // Another process repairs.
    let console = bed.schema.store().await;
    let lanes = bed.lease(Scope::Inbox, "w1").await;
    bed.store.accept(vec![build::undecodable("m-1", b"\xff")], Vec::new()).await.unwrap();
    let id = bed.store.find_inbox("m-1".into()).await.unwrap().unwrap().id;
    move_the_mark_of_the_inbox(&bed, &lanes).await;
    let rewritten = RewrittenRow {
        message_id: "m-1".into(),
        identity: Identity::Promised,
        msg_key: "another-lane".into(),
        aggregate_id: None,
        event_type: None,
        payload: "{}".into(),
        headers: Headers::default(),
    };
    let repair = Repair { rewritten, actor: "ann".into(), reason: "fixed".into() };
    assert_eq!(
        console.reprocess(id, repair, Mode::Write).await.unwrap(),
        ReprocessOutcome::Received
    );
    assert_eq!(bed.store.fetch_inbox(inbox(&lanes)).await.unwrap()[0].id, id);
}

#[tokio::test]
async fn a_row_repaired_below_the_mark_is_found_however_late_it_commits() {
    let Some(bed) = Bed::new().await else { return };
    let lanes = bed.lease(Scope::Inbox, "w1").await;
    bed.store.accept(vec![build::undecodable("m-1", b"\xff")], Vec::new()).await.unwrap();
    let id = bed.store.find_inbox("m-1".into()).await.unwrap().unwrap().id;
    move_the_mark_of_the_inbox(&bed, &lanes).await;
    // The statements of a repair, in their order, and no commit yet.
    let mut console = bed.schema.client().await;
    let open = console.transaction().await.unwrap();
    let (none, empty) = (None::<String>, "{}");
    let values: [&(dyn ToSql + Sync); 7] = [&id, &"m-1", &"k", &none, &none, &empty, &empty];
    let statement = include_str!("../../src/postgres/sql/repair_inbox.sql");
    assert_eq!(open.execute(statement, &values).await.unwrap(), 1);
    let record = include_str!("../../src/postgres/sql/audit.sql");
    open.execute(record, &[&"ann", &"inbox.repaired", &"1", &""]).await.unwrap();
    move_the_mark_of_the_inbox(&bed, &lanes).await;
    open.commit().await.unwrap();
    assert_eq!(bed.store.fetch_inbox(inbox(&lanes)).await.unwrap()[0].id, id);
}

/// Runs clean-up, which removes nothing here.
async fn sweep(bed: &Bed) {
    let mode = CleanupMode::Remove { rows_max: 1 };
    bed.store.cleanup(Retention::default(), mode).await.unwrap();
}

#[tokio::test]
async fn a_row_put_back_by_hand_is_found_by_the_sweep() {
    let Some(bed) = Bed::new().await else { return };
    let lanes = bed.lanes().await;
    let low = bed.send("k").await;
    let rows = bed.fetch(&lanes).await;
    bed.settle(&rows, &lanes, &OutboxFate::Dispatched).await;
    move_the_mark(&bed, &lanes).await;
    let by_hand = "UPDATE relais_outbox SET status = 'PENDING' WHERE msg_key = 'k'";
    bed.raw.batch_execute(by_hand).await.unwrap();
    sweep(&bed).await;
    // What is not below the position yet is found from there.
    let (some, _) = lanes.split_at(63);
    let mut found = bed.ids(some).await;
    found.extend(bed.ids(&lanes).await);
    assert!(found.contains(&low));
}

#[tokio::test]
async fn rows_in_backoff_and_delayed_rows_come_when_due_whatever_the_mark() {
    let Some(bed) = Bed::new().await else { return };
    let lanes = bed.lanes().await;
    let low = bed.send("k").await;
    let rows = bed.fetch(&lanes).await;
    let problem = Problem::new("HTTP_500", "later");
    let retry = OutboxFate::Retry { attempts: 1, pause: Duration::from_secs(3_600), problem };
    bed.settle(&rows, &lanes, &retry).await;
    move_the_mark(&bed, &lanes).await;
    let held = bed.send("k").await;
    assert!(fetch_for_a_while(&bed, &lanes).await.is_empty(), "held");
    let due = "UPDATE relais_waiting SET due_at = now() WHERE due_at IS NOT NULL";
    bed.raw.batch_execute(due).await.unwrap();
    assert_eq!(bed.ids(&lanes).await, [low]);
    let rows = bed.fetch(&lanes).await;
    bed.settle(&rows, &lanes, &OutboxFate::Dispatched).await;
    assert_eq!(bed.ids(&lanes).await, [held]);
}

#[tokio::test]
async fn due_rows_of_one_key_come_in_order_however_small_the_limit() {
    let Some(bed) = Bed::new().await else { return };
    let lanes = bed.lanes().await;
    let (first, second) = (bed.send("k").await, bed.send("k").await);
    let due = format!(
        "INSERT INTO relais_waiting (id, destination, msg_key, due_at, holds_key)
         SELECT id, destination, msg_key,
                now() - CASE id WHEN {first} THEN interval '1 s' ELSE interval '9 s' END, TRUE
         FROM relais_outbox"
    );
    bed.raw.batch_execute(&due).await.unwrap();
    let fetch = Fetch::new(outbox(), lanes.clone(), 1);
    assert_eq!(bed.store.fetch_outbox(fetch).await.unwrap()[0].id, first);
    assert_eq!(bed.ids(&lanes).await, [first, second]);
}

/// The walk along the index must not grow with what was settled under a held snapshot.
#[tokio::test]
async fn a_held_snapshot_does_not_make_the_walk_longer() {
    let Some(bed) = Bed::single().await else { return };
    let lanes = bed.lanes().await;
    let hold = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM relais_outbox";
    bed.raw.batch_execute(hold).await.unwrap();
    for _ in 0..20 {
        let batch = (0..100).map(|n| message(&format!("k-{n}"))).collect();
        bed.store.enqueue(batch).await.unwrap();
        let rows = bed.fetch(&lanes).await;
        assert_eq!(rows.len(), 100);
        assert_eq!(bed.settle(&rows, &lanes, &OutboxFate::Dispatched).await.settled, 100);
    }
    move_the_mark(&bed, &lanes).await;
    let Some(before) = entries_read(&bed).await else { return };
    for _ in 0..10 {
        assert!(bed.ids(&lanes).await.is_empty());
    }
    let read = entries_read(&bed).await.unwrap() - before;
    assert!(read < 500, "ten fetches read {read} entries of the index; from zero it is 20,000");
    bed.raw.batch_execute("COMMIT").await.unwrap();
}

/// Entries of the index by destination that the store's session has read; `None` before 15, which
/// cannot know at once.
async fn entries_read(bed: &Bed) -> Option<i64> {
    let session = bed.store.pool().get().await.unwrap();
    session.query_one("SELECT pg_stat_force_next_flush()", &[]).await.ok()?;
    drop(session);
    let client = bed.schema.client().await;
    let sql = "SELECT idx_tup_read FROM pg_stat_user_indexes
               WHERE indexrelid = 'relais_outbox_destination'::regclass";
    Some(client.query_one(sql, &[]).await.unwrap().get(0))
}

#[tokio::test]
async fn a_settlement_and_a_take_over_never_overlap() {
    let Some(bed) = Bed::new().await else { return };
    let lanes = bed.lanes().await;
    bed.send("k").await;
    let rows = bed.fetch(&lanes).await;
    // The taker has the lane's row and has not committed.
    let mut taker = bed.schema.client().await;
    let taking = taker.transaction().await.unwrap();
    let take = "UPDATE relais_lane SET owner = 'w2', epoch = epoch + 1";
    taking.batch_execute(take).await.unwrap();
    let settling = bed.settle(&rows, &lanes, &OutboxFate::Dispatched);
    tokio::pin!(settling);
    let blocked = "pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM pg_stat_activity
                   WHERE query LIKE '%fence AS MATERIALIZED%')";
    while bed.count(blocked).await == 0 {
        assert!(poll_once(&mut settling).await.is_none(), "it waits for the taker");
        tokio::task::yield_now().await;
    }
    taking.commit().await.unwrap();
    let settled = settling.await;
    assert_eq!((settled.settled, settled.refused), (0, 1));
    assert_eq!(bed.count("relais_outbox WHERE status = 'PENDING'").await, 1);
}

#[tokio::test]
async fn lanes_of_a_worker_that_left_are_fetched_by_the_next() {
    let Some(bed) = Bed::new().await else { return };
    let lanes = bed.lanes().await;
    move_the_mark(&bed, &lanes).await;
    bed.store.release_lanes(fence(outbox(), "w1"), LaneRelease::All).await.unwrap();
    let taken = bed.lease(Scope::Outbox("orders".into()), "w2").await;
    assert!(taken.iter().all(|lane| lane.epoch == 2 && !lane.unclean));
    let id = bed.send("k").await;
    assert_eq!(bed.ids(&taken).await, [id]);
}

/// As after a restore of single tables by hand.
#[tokio::test]
async fn an_id_below_the_position_is_found_by_the_sweep() {
    let Some(bed) = Bed::new().await else { return };
    let lanes = bed.lanes().await;
    move_the_mark(&bed, &lanes).await;
    let position = "relais_outbox_position WHERE position >= 1";
    while bed.count(position).await == 0 {
        bed.ids(&lanes).await;
    }
    bed.raw.batch_execute("DELETE FROM relais_outbox").await.unwrap();
    let again = "INSERT INTO relais_outbox
        (id, aggregate_type, aggregate_id, event_type, destination, payload)
        VALUES (1, 'Order', 'again', 'E', 'orders', '{}')";
    bed.raw.batch_execute(again).await.unwrap();
    assert!(bed.ids(&lanes).await.is_empty(), "below the position");
    sweep(&bed).await;
    assert_eq!(bed.ids(&lanes).await, [1]);
}

/// Another process sets the position back, as the restore of a backup does.
#[tokio::test]
async fn a_position_that_was_set_back_starts_the_walk_there() {
    let Some(bed) = Bed::new().await else { return };
    let lanes = bed.lanes().await;
    let id = bed.send("k").await;
    let rows = bed.fetch(&lanes).await;
    bed.settle(&rows, &lanes, &OutboxFate::Dispatched).await;
    move_the_mark(&bed, &lanes).await;
    bed.raw
        .batch_execute(
            "UPDATE relais_outbox SET status = 'PENDING' WHERE msg_key = 'k';
             UPDATE relais_outbox_position SET position = 0",
        )
        .await
        .unwrap();
    assert_eq!(bed.ids(&lanes).await, [id]);
}

#[tokio::test]
async fn a_restart_begins_at_the_position() {
    let Some(bed) = Bed::new().await else { return };
    let lanes = bed.lanes().await;
    move_the_mark(&bed, &lanes).await;
    let id = bed.send("k").await;
    let behind = format!("relais_outbox_position WHERE position >= {}", id - 1);
    while bed.count(&behind).await == 0 {
        assert_eq!(bed.ids(&lanes).await, [id]);
    }
    let restarted = bed.schema.store().await;
    let fetch = Fetch::new(outbox(), lanes.clone(), 10);
    assert_eq!(restarted.fetch_outbox(fetch).await.unwrap()[0].id, id);
    assert!(restarted.mark(&outbox()) >= id - 1);
}

/// Sends a row of the key and makes it a dead letter that parks the key.
pub(crate) async fn park(bed: &Bed, lanes: &[OwnedLane], key: &str) {
    bed.send(key).await;
    let rows = bed.fetch(lanes).await;
    let dead =
        OutboxFate::Dead { attempts: 1, problem: Problem::new("HTTP_400", "no"), park: true };
    assert_eq!(bed.settle(&rows, lanes, &dead).await.settled, 1);
}

#[tokio::test]
async fn rows_behind_a_parked_key_are_passed_and_found_when_a_discard_frees_them() {
    let Some(bed) = Bed::new().await else { return };
    // Another process decides.
    let console = bed.schema.store().await;
    let lanes = bed.lanes().await;
    park(&bed, &lanes, "k").await;
    let behind = [bed.send("k").await, bed.send("k").await];
    assert!(fetch_for_a_while(&bed, &lanes).await.is_empty(), "parked");
    assert_eq!(bed.store.mark(&outbox()), behind[1], "nothing but parked rows came");
    let late = bed.send("k").await;
    move_the_mark(&bed, &lanes).await;
    assert!(bed.store.mark(&outbox()) > late);
    let letter = console
        .list_dead_letters(Filter { limit: 10, ..Filter::default() })
        .await
        .unwrap()
        .remove(0);
    let action =
        DecisionAction::Resolve { dead_letter: letter.id, resolution: Resolution::Discarded };
    let decision = OperatorDecision { action, actor: "ann".into(), reason: "no".into() };
    assert_eq!(console.decide(decision).await.unwrap(), DecisionResult::Done);
    assert_eq!(bed.ids(&lanes).await, [behind[0], behind[1], late]);
}

/// A fetch meets rows of the key while a discard has not committed: it leaves them fresh.
#[tokio::test]
async fn rows_that_come_while_a_key_is_freed_are_not_left_behind() {
    let Some(bed) = Bed::new().await else { return };
    let lanes = bed.lanes().await;
    park(&bed, &lanes, "k").await;
    let mut person = bed.schema.client().await;
    let discard = person.transaction().await.unwrap();
    for statement in [
        "UPDATE relais_dead_letter SET resolved_at = now(), resolution = 'discarded'",
        "DELETE FROM relais_parked_key",
    ] {
        discard.execute(statement, &[]).await.unwrap();
    }
    let late = bed.send("k").await;
    assert!(bed.ids(&lanes).await.is_empty(), "not committed");
    assert_eq!(bed.count("relais_waiting").await, 0, "not passed either");
    let release = include_str!("../../src/postgres/sql/release_waiting.sql");
    discard.execute(release, &[&"orders", &vec!["k"], &200_i64]).await.unwrap();
    discard.commit().await.unwrap();
    assert_eq!(bed.ids(&lanes).await, [late]);
}

/// A release waits for a pass that has not committed, and sees its rows.
#[tokio::test]
async fn a_release_waits_for_rows_that_are_passed_now() {
    let Some(bed) = Bed::new().await else { return };
    let lanes = bed.lanes().await;
    bed.send("k").await;
    let first = bed.fetch(&lanes).await;
    let problem = Problem::new("HTTP_500", "later");
    let retry = OutboxFate::Retry { attempts: 1, pause: Duration::ZERO, problem };
    bed.settle(&first, &lanes, &retry).await;
    let first = bed.fetch(&lanes).await;
    let late = bed.send("k").await;
    let mut passer = bed.schema.client().await;
    let pass = passer.transaction().await.unwrap();
    let lane = lanes.iter().find(|lane| lane.lane == first[0].lane).unwrap();
    let values: [&(dyn ToSql + Sync); 7] = [
        &"outbox:orders",
        &"orders",
        &vec![late],
        &vec![lane.lane],
        &vec![lane.epoch],
        &vec![first[0].id],
        &Vec::<i64>::new(),
    ];
    let statement = include_str!("../../src/postgres/sql/pass_outbox.sql");
    assert_eq!(pass.execute(statement, &values).await.unwrap(), 1);
    let settling = bed.settle(&first, &lanes, &OutboxFate::Dispatched);
    tokio::pin!(settling);
    let blocked = "pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM pg_stat_activity
                   WHERE query LIKE '%fence AS MATERIALIZED%')";
    while bed.count(blocked).await == 0 {
        assert!(poll_once(&mut settling).await.is_none(), "it waits for the pass");
        tokio::task::yield_now().await;
    }
    pass.commit().await.unwrap();
    assert_eq!(settling.await.settled, 1);
    assert_eq!(bed.ids(&lanes).await, [late]);
}

#[tokio::test]
async fn a_pass_under_an_old_epoch_changes_nothing() {
    let Some(bed) = Bed::new().await else { return };
    let lanes = bed.lanes().await;
    park(&bed, &lanes, "k").await;
    bed.send("k").await;
    bed.raw.batch_execute("UPDATE relais_lane SET owner = 'w2', epoch = epoch + 1").await.unwrap();
    assert!(bed.ids(&lanes).await.is_empty());
    assert_eq!(bed.count("relais_waiting").await, 0);
}

/// A part of the walk ends with blocked rows before it reaches the first row of the key.
#[tokio::test]
async fn a_due_row_does_not_come_before_a_fresh_row_of_its_key() {
    let Some(bed) = Bed::new().await else { return };
    let lanes = bed.lanes().await;
    park(&bed, &lanes, "parked").await;
    fill(&bed, "orders", "'parked'", 1_200).await;
    let (first, second) = (bed.send("k").await, bed.send("k").await);
    let due = format!(
        "INSERT INTO relais_waiting (id, destination, msg_key, due_at, holds_key)
         VALUES ({second}, 'orders', 'k', now(), TRUE)"
    );
    bed.raw.batch_execute(&due).await.unwrap();
    let fetch = Fetch::new(outbox(), lanes.clone(), 1);
    assert_eq!(bed.store.fetch_outbox(fetch).await.unwrap()[0].id, first);
    assert_eq!(bed.ids(&lanes).await, [first, second]);
}

/// As after a failover that lost commits while the worker was idle: ids below the mark are used again, and the
/// pool replaces its connections without an error.
#[tokio::test]
async fn a_new_connection_forgets_the_mark() {
    let Some(bed) = Bed::new().await else { return };
    let lanes = bed.lease(Scope::Inbox, "w1").await;
    let role = bed.schema.role(Role::Runtime);
    let sessions = format!("pg_stat_activity WHERE usename = '{role}'");
    let again = "DELETE FROM relais_inbox;
        INSERT INTO relais_inbox (id, message_id, source_system, topic, partition_num, offset_num, msg_key,
                                  event_type, payload)
        VALUES (1, 'again', 'crm', '', 0, 0, 'k', 'E', '{}')";
    // A fetch before the pool notices the lost connection fails, and then the error resets the mark.
    for _ in 0..10 {
        bed.raw.batch_execute("DELETE FROM relais_inbox").await.unwrap();
        move_the_mark_of_the_inbox(&bed, &lanes).await;
        bed.raw.batch_execute(again).await.unwrap();
        let found = bed.store.fetch_inbox(inbox(&lanes)).await.unwrap();
        assert!(found.is_empty() && bed.store.mark(&Scope::Inbox) > 1, "below the mark");
        let kill = format!("SELECT pg_terminate_backend(pid) FROM {sessions}");
        bed.raw.batch_execute(&kill).await.unwrap();
        while bed.count(&sessions).await > 0 {
            tokio::task::yield_now().await;
        }
        if let Ok(found) = bed.store.fetch_inbox(inbox(&lanes)).await {
            assert_eq!(found.iter().map(|row| row.id).collect::<Vec<_>>(), [1]);
            return;
        }
    }
    panic!("each fetch found a lost connection");
}
