//! Processes with many at them at once: what only a database with many writers can get wrong.

use std::collections::{BTreeMap, BTreeSet};

use relais_core::{
    dead_letter::DeadLetterStore,
    inbox::{InboxFate, InboxRow, InboxSettlement},
    inspect::InspectExt,
    lane::{OwnedLane, Scope},
    process::{
        Change, ChangeOutcome, DeadLetterChange, Entry, KeyHold, Process, ProcessEvent, ProcessRef,
        ProcessStatus, Timer, TimerChange, TimerOwner,
    },
    query::{CleanupMode, PAGE_MAX, Retention},
    store::{Fetch, SettleOutcome, Store, StoreError},
    time::Timestamp,
};
use relais_testkit::build::arrival;
use uuid::Uuid;

use crate::bed::{Bed, fence, message};

fn begun(business_key: Option<&str>) -> Change {
    let business_key = business_key.map(str::to_owned);
    let initial_data = serde_json::json!({});
    let process_type = "Order".to_owned();
    let event = ProcessEvent::ProcessStarted {
        process_type: process_type.clone(),
        business_key: business_key.clone(),
        initial_data,
    };
    let process = Process {
        process_id: Uuid::new_v4(),
        process_type,
        definition: 1,
        business_key,
        key_hold: KeyHold::Once,
        status: ProcessStatus::Running,
        current_step: Some("pay".into()),
        data: "{}".into(),
        retries: 0,
        progress: "{}".into(),
        version: 1,
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
    };
    change(process, 0, event)
}

fn moved(process: &Process, note: &str) -> Change {
    let event = ProcessEvent::StepStarted { step: "pay".into(), command_id: Uuid::new_v4() };
    let process = Process { version: process.version + 1, ..process.clone() };
    let from = process.version - 1;
    let mut change = change(process, from, event);
    change.log[0].note = Some(note.to_owned());
    change
}

fn change(process: Process, from: i64, event: ProcessEvent) -> Change {
    Change {
        process,
        from,
        log: vec![Entry::of(event)],
        message_id: None,
        timer: TimerChange::Keep,
        messages: Vec::new(),
        dead_letter: DeadLetterChange::Keep,
        audit: None,
    }
}

async fn found(store: &impl Store, id: Uuid) -> Option<Process> {
    store.load_processes(vec![ProcessRef::Id(id)]).await.unwrap().remove(0)
}

/// A new process, as it is stored.
async fn stored(bed: &Bed) -> Process {
    let change = begun(None);
    let id = change.process.process_id;
    assert_eq!(bed.store.change_process(change).await.unwrap(), ChangeOutcome::Done);
    found(&bed.store, id).await.unwrap()
}

/// An inbox worker with some rows in flight.
struct Worker {
    lanes: Vec<OwnedLane>,
    rows: Vec<InboxRow>,
}

impl Worker {
    async fn with(bed: &Bed, rows: usize) -> Self {
        let arrivals = (0..rows).map(|n| arrival(&format!("m-{n}"))).collect();
        bed.store.accept(arrivals, Vec::new()).await.unwrap();
        let lanes = bed.lease(Scope::Inbox, "w1").await;
        let fetch = Fetch::new(Scope::Inbox, lanes.clone(), 100);
        let rows = bed.store.fetch_inbox(fetch).await.unwrap();
        Self { lanes, rows }
    }

    /// The row is processed, with this change and a message of its own.
    fn settlement(&self, row: usize, change: Change) -> InboxSettlement {
        let row = &self.rows[row];
        let epoch = self.lanes.iter().find(|lane| lane.lane == row.lane).unwrap().epoch;
        let fate = InboxFate::Processed {
            messages: vec![message("route")],
            changes: vec![change],
            copies: Vec::new(),
        };
        InboxSettlement { id: row.id, lane: row.lane, epoch, fate }
    }
}

async fn settle(bed: &Bed, rows: Vec<InboxSettlement>) -> SettleOutcome {
    bed.store.settle_inbox(fence(Scope::Inbox, "w1"), rows).await.unwrap()
}

/// Waits until another session waits for a lock of the raw connection.
async fn until_a_session_waits(bed: &Bed) {
    let waiting = "pg_stat_activity AS w JOIN pg_stat_activity AS h
                   ON h.pid = ANY (pg_blocking_pids(w.pid)) WHERE h.pid = pg_backend_pid()";
    while bed.count(waiting).await == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_who_change_one_process_lose_nothing() {
    const CHANGES: usize = 20;
    let Some(bed) = Bed::new().await else { return };
    let id = stored(&bed).await.process_id;
    let mut tasks = Vec::new();
    for n in 0..8 {
        let store = bed.schema.store().await;
        tasks.push(tokio::spawn(async move {
            let (mut done, mut stale) = (0, 0);
            while done < CHANGES {
                let process = found(&store, id).await.unwrap();
                match store.change_process(moved(&process, &n.to_string())).await.unwrap() {
                    ChangeOutcome::Done => done += 1,
                    ChangeOutcome::Stale => stale += 1,
                }
            }
            stale
        }));
    }
    let mut stale = 0;
    for task in tasks {
        stale += task.await.unwrap();
    }
    assert!(stale > 0, "they met");
    let log = bed.store.process_log(id, None, PAGE_MAX).await.unwrap();
    let seqs: Vec<i64> = log.iter().rev().map(|entry| entry.seq).collect();
    let last = i64::try_from(8 * CHANGES + 1).unwrap();
    assert_eq!(seqs, (1..=last).collect::<Vec<_>>(), "without a gap");
    assert_eq!(found(&bed.store, id).await.unwrap().version, last);
    let mut by = BTreeMap::new();
    for note in log.into_iter().filter_map(|entry| entry.entry.note) {
        *by.entry(note).or_insert(0) += 1;
    }
    assert!(by.len() == 8 && by.values().all(|entries| *entries == CHANGES), "{by:?}");
}

#[tokio::test]
async fn a_batch_settles_what_it_can_and_says_what_became_of_the_rest() {
    let Some(bed) = Bed::new().await else { return };
    let worker = Worker::with(&bed, 5).await;
    let (good, behind) = (stored(&bed).await, stored(&bed).await);
    let refused = stored(&bed).await;
    assert_eq!(bed.store.change_process(moved(&behind, "")).await.unwrap(), ChangeOutcome::Done);
    let mut taken_over = worker.settlement(2, moved(&refused, "never"));
    taken_over.epoch -= 1;
    let twice = worker.settlement(4, moved(&good, "second of one batch"));
    let settled = settle(
        &bed,
        vec![
            worker.settlement(0, moved(&good, "good")),
            worker.settlement(1, moved(&behind, "stale")),
            taken_over,
            worker.settlement(3, begun(Some("o-1"))),
            twice,
        ],
    )
    .await;
    let stale = vec![worker.rows[1].id, worker.rows[4].id];
    assert_eq!(
        settled,
        SettleOutcome { settled: 2, refused: 1, stale, ..SettleOutcome::default() }
    );
    assert_eq!(bed.count("relais_inbox WHERE status = 'PROCESSED'").await, 2);
    assert_eq!(bed.count("relais_outbox").await, 2, "only their messages");
    assert_eq!(found(&bed.store, good.process_id).await.unwrap().version, 2);
    assert_eq!(found(&bed.store, behind.process_id).await.unwrap().version, 2, "by the other");
    assert_eq!(found(&bed.store, refused.process_id).await.unwrap(), refused, "untouched");
    let written = "relais_process_log WHERE event LIKE '%never%' OR event LIKE '%stale%'";
    assert_eq!(bed.count(written).await, 0);
}

/// Trying it again would not help.
#[tokio::test]
async fn a_row_that_changes_a_process_twice_is_invalid() {
    let Some(bed) = Bed::new().await else { return };
    let worker = Worker::with(&bed, 1).await;
    let process = stored(&bed).await;
    for changes in [
        vec![moved(&process, "a"), moved(&process, "b")],
        vec![begun(Some("o-1")), begun(Some("o-1"))],
    ] {
        let fate = InboxFate::Processed { messages: Vec::new(), changes, copies: Vec::new() };
        let row = InboxSettlement { fate, ..worker.settlement(0, begun(None)) };
        let result = bed.store.settle_inbox(fence(Scope::Inbox, "w1"), vec![row]).await;
        assert!(matches!(result, Err(StoreError::Invalid(_))), "{result:?}");
    }
    assert_eq!(bed.count("relais_process_log").await, 1);
}

/// The statement saw no such key; another transaction commits it before ours is written.
#[tokio::test]
async fn a_start_that_comes_second_by_a_moment_is_stale_and_its_neighbours_settle() {
    let Some(bed) = Bed::new().await else { return };
    let worker = Worker::with(&bed, 2).await;
    let other = "BEGIN; INSERT INTO relais_process
            (process_id, process_type, definition, business_key, status, data, version)
        VALUES (gen_random_uuid(), 'Order', 1, 'o-1', 'RUNNING', '{}', 1)";
    bed.raw.batch_execute(other).await.unwrap();
    let rows =
        vec![worker.settlement(0, begun(Some("o-1"))), worker.settlement(1, begun(Some("o-2")))];
    let store = bed.store.clone();
    let settling =
        tokio::spawn(async move { store.settle_inbox(fence(Scope::Inbox, "w1"), rows).await });
    until_a_session_waits(&bed).await;
    bed.raw.batch_execute("COMMIT").await.unwrap();
    let settled = settling.await.unwrap().unwrap();
    assert_eq!(
        settled,
        SettleOutcome {
            settled: 1,
            refused: 0,
            stale: vec![worker.rows[0].id],
            ..SettleOutcome::default()
        }
    );
    assert_eq!(bed.count("relais_process").await, 2);
    assert_eq!((bed.count("relais_process_log").await, bed.count("relais_outbox").await), (1, 1));
    let change = begun(Some("o-1"));
    assert_eq!(bed.store.change_process(change).await.unwrap(), ChangeOutcome::Stale);
}

/// One waits for the other's lock and then sees what the other made of it.
#[tokio::test]
async fn a_change_that_waited_for_another_is_stale() {
    let Some(bed) = Bed::new().await else { return };
    let worker = Worker::with(&bed, 1).await;
    let process = stored(&bed).await;
    let other = "BEGIN; UPDATE relais_process SET version = 2";
    bed.raw.batch_execute(other).await.unwrap();
    let rows = vec![worker.settlement(0, moved(&process, ""))];
    let store = bed.store.clone();
    let settling =
        tokio::spawn(async move { store.settle_inbox(fence(Scope::Inbox, "w1"), rows).await });
    until_a_session_waits(&bed).await;
    bed.raw.batch_execute("COMMIT").await.unwrap();
    let settled = settling.await.unwrap().unwrap();
    assert_eq!(
        settled,
        SettleOutcome {
            settled: 0,
            refused: 0,
            stale: vec![worker.rows[0].id],
            ..SettleOutcome::default()
        }
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn four_who_fire_timers_make_one_row_of_each_and_do_not_wait() {
    const TIMERS: usize = 50;
    let Some(bed) = Bed::new().await else { return };
    let mut ids = BTreeSet::new();
    for _ in 0..TIMERS {
        let (step, after) = ("pay".to_owned(), std::time::Duration::ZERO);
        let timer = Timer { step, command_id: Uuid::new_v4(), after };
        ids.insert(format!("timer:{}", timer.command_id));
        let change = Change { timer: TimerChange::Set(timer), ..begun(None) };
        assert_eq!(bed.store.change_process(change).await.unwrap(), ChangeOutcome::Done);
    }
    // A fifth is at one of them, and goes away without a word.
    let held = "BEGIN; DELETE FROM relais_timer
        WHERE process_id = (SELECT process_id FROM relais_timer ORDER BY due_at LIMIT 1)";
    bed.raw.batch_execute(held).await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let store = bed.schema.store().await;
        tasks.push(tokio::spawn(async move {
            let mut fired = 0;
            for _ in 0..TIMERS {
                fired += store.fire_timers(TimerOwner::default(), 5).await.unwrap().fired;
            }
            fired
        }));
    }
    let mut fired = 0;
    for task in tasks {
        fired += task.await.unwrap();
    }
    assert_eq!(fired, TIMERS as u64 - 1);
    bed.raw.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(bed.store.fire_timers(TimerOwner::default(), 5).await.unwrap().fired, 1);
    let rows = bed.raw.query("SELECT message_id FROM relais_inbox", &[]).await.unwrap();
    assert_eq!(rows.len(), TIMERS);
    assert_eq!(rows.iter().map(|row| row.get(0)).collect::<BTreeSet<String>>(), ids);
}

#[tokio::test]
async fn cleanup_finds_what_has_ended_behind_more_leftovers_than_it_looks_at() {
    let Some(bed) = Bed::new().await else { return };
    let fill = "INSERT INTO relais_process (process_id, process_type, definition, status, data, version,
                                            created_at, updated_at)
        SELECT gen_random_uuid(), 'Order', 1, CASE WHEN n <= 10500 THEN 'RUNNING' ELSE 'SUCCEEDED' END,
               '{}', 1, now() - INTERVAL '10 days' + n * INTERVAL '1 second',
               now() - INTERVAL '5 days'
        FROM generate_series(1, 10510) AS n;
        INSERT INTO relais_process_log (process_id, seq, event_type, event)
        SELECT process_id, 1, 'ProcessStarted', '{}' FROM relais_process";
    bed.raw.batch_execute(fill).await.unwrap();
    let retention = Retention::default().processes_seconds(86_400);
    let mut removed = 0;
    for _ in 0..3 {
        removed += bed
            .store
            .cleanup(retention, CleanupMode::Remove { rows_max: 4 })
            .await
            .unwrap()
            .processes;
    }
    assert_eq!(removed, 8, "the first pass saw only leftovers");
    bed.store.cleanup(retention, CleanupMode::Remove { rows_max: 4 }).await.unwrap();
    assert_eq!(bed.count("relais_process").await, 10_500);
    assert_eq!(bed.count("relais_process_log").await, 10_500, "logs go along");
}

/// Steps are what a process store does most: none of them may read history or touch an index.
#[tokio::test]
async fn a_step_finds_its_process_by_its_key_and_touches_no_index() {
    let Some(bed) = Bed::new().await else { return };
    let process = stored(&bed).await;
    let fill =
        "INSERT INTO relais_process (process_id, process_type, definition, status, data, version)
        SELECT gen_random_uuid(), 'Order', 1, 'RUNNING', '{}', 1 FROM generate_series(1, 5000)";
    bed.raw.batch_execute(fill).await.unwrap();
    let place = "SELECT (ctid::text::point)[0] FROM relais_process WHERE process_id = $1";
    let block = async || bed.raw.query_one(place, &[&process.process_id]).await.unwrap();
    let before: f64 = block().await.get(0);
    let mut now = process.clone();
    for _ in 0..5 {
        let change = moved(&now, "");
        assert_eq!(bed.store.change_process(change).await.unwrap(), ChangeOutcome::Done);
        now = found(&bed.store, process.process_id).await.unwrap();
    }
    let after: f64 = block().await.get(0);
    assert!((before - after).abs() < 0.5, "the row stays in its block");
    let stats = "SELECT pg_stat_get_xact_tuples_hot_updated('relais_process'::regclass)";
    let update = "BEGIN; UPDATE relais_process SET version = version + 1, data = '{\"a\":1}',
        progress = '{\"b\":1}', retries = 1, current_step = 'ship', updated_at = clock_timestamp()
        WHERE process_id = ";
    let update = format!("{update}'{}'", process.process_id);
    bed.raw.batch_execute(&update).await.unwrap();
    assert_eq!(bed.raw.query_one(stats, &[]).await.unwrap().get::<_, i64>(0), 1);
}

#[tokio::test]
async fn a_log_entry_of_another_version_is_shown_as_it_is() {
    let Some(bed) = Bed::new().await else { return };
    let id = stored(&bed).await.process_id;
    let odd = format!(
        "INSERT INTO relais_process_log (process_id, seq, event_type, event)
         VALUES ('{id}', 2, 'ProcessDreamt', '{{\"type\":\"ProcessDreamt\"}}')"
    );
    bed.raw.batch_execute(&odd).await.unwrap();
    let log = bed.store.process_log(id, None, 10).await.unwrap();
    assert_eq!(log[1].entry.event.name(), "ProcessStarted");
    assert!(log[0].entry.note.as_deref().is_some_and(|note| note.contains("cannot decode")));
    let ProcessEvent::ProcessFailed { reason } = &log[0].entry.event else { panic!("{log:?}") };
    assert!(reason.contains("ProcessDreamt"));
}
