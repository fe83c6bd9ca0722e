//! Timers: rows judged by the database's time, each fired once, as an inbox row of its process.

use std::{collections::BTreeSet, time::Duration};

use relais_core::{
    inbox::{InboxRow, InboxStatus},
    lane::Scope,
    message::NewMessage,
    process::{
        Change, FiredTimers, Process, ProcessStatus, SOURCE_SYSTEM, TIMER_FIRED, Timer,
        TimerChange, TimerFired, TimerOwner,
    },
};

use super::{
    Start,
    process_build::{HOUR, TYPE, after, applied, begun, step_started, timer},
    worker::{MANY, Worker},
};
use crate::{
    build::{arrival_for, message},
    fixture::Fixture,
};

pub const START: Start = Start::Migrated;

async fn fire(f: &dyn Fixture, limit: usize) -> FiredTimers {
    f.store().fire_timers(TimerOwner::default(), limit).await.expect("fire timers")
}

/// A process with a timer.
async fn waiting(f: &dyn Fixture, timer: &Timer) -> Process {
    applied(f, Change { timer: TimerChange::Set(timer.clone()), ..begun(TYPE, None) }).await
}

async fn change_timer(f: &dyn Fixture, process: &Process, timer: TimerChange) -> Process {
    let change = after(process, ProcessStatus::Running, vec![step_started("a")]);
    applied(f, Change { timer, ..change }).await
}

/// Lets every timer be due for an hour.
async fn make_due(f: &dyn Fixture) {
    let past = f.past();
    f.run(&format!("UPDATE relais_timer SET due_at = {past}")).await;
}

async fn inbox(f: &dyn Fixture) -> Vec<InboxRow> {
    Worker::inbox(f, "w").await.received(MANY).await
}

pub async fn without_timers_there_is_nothing_to_wait_for(f: &dyn Fixture) {
    assert_eq!(fire(f, 10).await, FiredTimers { fired: 0, next: None });
}

pub async fn a_timer_fires_when_the_databases_time_has_come(f: &dyn Fixture) {
    waiting(f, &timer("reserve")).await;
    let FiredTimers { fired, next } = fire(f, 10).await;
    assert_eq!(fired, 0);
    let next = next.expect("one is set");
    assert!(next <= HOUR && next > HOUR / 2, "{next:?}");
    assert!(inbox(f).await.is_empty());
    make_due(f).await;
    assert_eq!(fire(f, 10).await, FiredTimers { fired: 1, next: None });
    assert_eq!(inbox(f).await.len(), 1);
    assert_eq!(fire(f, 10).await, FiredTimers { fired: 0, next: None }, "once");
    assert_eq!(inbox(f).await.len(), 1);
}

pub async fn the_time_of_a_command_begins_when_it_has_left(f: &dyn Fixture) {
    let timer = timer("reserve");
    let command = NewMessage { message_id: timer.command_id, ..message("down", "k") };
    let started =
        Change { timer: TimerChange::Set(timer), messages: vec![command], ..begun(TYPE, None) };
    applied(f, started).await;
    make_due(f).await;
    let FiredTimers { fired, next } = fire(f, 10).await;
    assert_eq!(fired, 0, "nobody can answer what nobody was told");
    assert!(next.is_some_and(|next| next <= HOUR && next > HOUR / 2), "{next:?}");
    let past = f.past();
    f.run(&format!("UPDATE relais_outbox SET status = 'DISPATCHED', dispatched_at = {past}")).await;
    make_due(f).await;
    assert_eq!(fire(f, 10).await, FiredTimers { fired: 1, next: None });
}

pub async fn a_fired_timer_is_an_inbox_row_of_its_process(f: &dyn Fixture) {
    let set = Timer { step: "reserve \"it\" 😀".to_owned(), ..timer("") };
    let process = waiting(f, &set).await;
    make_due(f).await;
    let before = f.now().await;
    let changes = f.store().changes().await.expect("changes");
    fire(f, 10).await;
    assert_ne!(f.store().changes().await.expect("changes").rows, changes.rows, "workers notice");
    let key = process.process_id.to_string();
    f.store().accept(vec![arrival_for("reply", &key)], Vec::new()).await.expect("accept");
    let rows = inbox(f).await;
    let row = &rows[0];
    assert_eq!(row.source_system, SOURCE_SYSTEM);
    assert_eq!(row.message_id, format!("timer:{}", set.command_id));
    assert_eq!(row.event_type.as_deref(), Some(TIMER_FIRED));
    assert_eq!((&row.msg_key, row.lane), (&key, rows[1].lane), "in order with its replies");
    assert_eq!((row.status, row.attempts), (InboxStatus::Received, 0));
    assert!(row.received_at >= before && row.raw_payload_base64.is_none());
    let fired: TimerFired =
        serde_json::from_str(row.payload.as_deref().expect("a payload")).expect("as promised");
    let Timer { step, command_id, .. } = set;
    assert_eq!(fired, TimerFired { process_id: process.process_id, step, command_id });
}

pub async fn each_timer_fires_once_however_many_ask(f: &dyn Fixture) {
    const TIMERS: usize = 40;
    let mut wanted = BTreeSet::new();
    for _ in 0..TIMERS {
        let timer = timer("reserve");
        wanted.insert(format!("timer:{}", timer.command_id));
        waiting(f, &timer).await;
    }
    make_due(f).await;
    let nodes = (0..4).map(|n| {
        let store = if n % 2 == 0 { f.store() } else { f.second() };
        tokio::spawn(async move {
            let mut sum = 0;
            for _ in 0..TIMERS {
                sum += store.fire_timers(TimerOwner::default(), 3).await.expect("fire").fired;
            }
            sum
        })
    });
    let mut fired = 0;
    for node in nodes.collect::<Vec<_>>() {
        fired += node.await.expect("node");
    }
    assert_eq!(fired, TIMERS as u64);
    let rows = inbox(f).await;
    assert_eq!(rows.len(), TIMERS);
    let found: BTreeSet<String> = rows.into_iter().map(|row| row.message_id).collect();
    assert_eq!(found, wanted);
}

pub async fn firing_keeps_to_its_limit_and_takes_the_earliest(f: &dyn Fixture) {
    let mut ids = Vec::new();
    for age in [10, 30, 20] {
        let process = waiting(f, &timer("reserve")).await;
        let (at, id) = (f.dialect().ago(age), process.process_id);
        f.run(&format!("UPDATE relais_timer SET due_at = {at} WHERE process_id = '{id}'")).await;
        ids.push(id.to_string());
    }
    assert_eq!(fire(f, 2).await, FiredTimers { fired: 2, next: Some(Duration::ZERO) });
    let keys: BTreeSet<String> = inbox(f).await.into_iter().map(|row| row.msg_key).collect();
    assert_eq!(keys, BTreeSet::from([ids[1].clone(), ids[2].clone()]));
    assert_eq!(fire(f, 2).await, FiredTimers { fired: 1, next: None });
}

pub async fn a_cleared_timer_does_not_fire(f: &dyn Fixture) {
    let process = waiting(f, &timer("reserve")).await;
    change_timer(f, &process, TimerChange::Clear).await;
    make_due(f).await;
    assert_eq!(fire(f, 10).await, FiredTimers { fired: 0, next: None });
    let other = applied(f, begun(TYPE, None)).await;
    change_timer(f, &other, TimerChange::Clear).await;
    assert!(inbox(f).await.is_empty());
}

pub async fn a_kept_timer_stays_and_a_new_one_replaces_it(f: &dyn Fixture) {
    let first = timer("reserve");
    let process = waiting(f, &first).await;
    make_due(f).await;
    let process = change_timer(f, &process, TimerChange::Keep).await;
    assert_eq!(f.store().overview().await.expect("overview").timers_due, 1);
    let second = timer("charge");
    change_timer(f, &process, TimerChange::Set(second.clone())).await;
    assert_eq!(f.number("SELECT count(*) FROM relais_timer").await, 1);
    assert_eq!(fire(f, 10).await.fired, 0, "the new one is due later");
    make_due(f).await;
    assert_eq!(fire(f, 10).await.fired, 1);
    let rows = inbox(f).await;
    assert_eq!(rows[0].message_id, format!("timer:{}", second.command_id));
    assert_eq!(rows.len(), 1);
}

/// The pause before a command, and then the time-out of that command.
pub async fn a_second_timer_of_a_command_fires_too(f: &dyn Fixture) {
    let set = timer("reserve");
    let mut process = waiting(f, &set).await;
    for _ in 0..2 {
        make_due(f).await;
        assert_eq!(fire(f, 10).await.fired, 1);
        process = change_timer(f, &process, TimerChange::Set(set.clone())).await;
    }
    make_due(f).await;
    assert_eq!(fire(f, 10).await.fired, 1);
    let rows = inbox(f).await;
    let ids: BTreeSet<&str> = rows.iter().map(|row| row.message_id.as_str()).collect();
    let start = format!("timer:{}", set.command_id);
    assert!(ids.len() == 3 && ids.iter().all(|id| id.starts_with(&start)), "{ids:?}");
    assert!(rows.iter().all(|row| row.payload == rows[0].payload));
}

pub async fn timers_of_other_process_types_are_left_to_their_programs(f: &dyn Fixture) {
    waiting(f, &timer("reserve")).await;
    make_due(f).await;
    let owner = |name: &str| TimerOwner {
        process_types: Some(vec![name.to_owned()]),
        inbox: "billing".to_owned(),
    };
    let fire = async |name: &str| f.store().fire_timers(owner(name), 10).await.expect("fire");
    assert_eq!(fire("Other").await, FiredTimers { fired: 0, next: None }, "nothing to wait for");
    assert_eq!(fire(TYPE).await.fired, 1);
    assert!(inbox(f).await.is_empty());
    let billing = Worker::start(f.store(), Scope::of_inbox("billing"), "b").await;
    assert_eq!(billing.received(10).await[0].source_system, "billing::relais");
}

pub async fn a_timer_due_at_once_fires_at_once(f: &dyn Fixture) {
    waiting(f, &Timer { after: Duration::ZERO, ..timer("reserve") }).await;
    assert_eq!(fire(f, 10).await, FiredTimers { fired: 1, next: None });
    waiting(f, &Timer { after: Duration::MAX, ..timer("reserve") }).await;
    assert!(fire(f, 10).await.next > Some(HOUR), "however long it is");
}

pub async fn the_overview_counts_processes_and_due_timers(f: &dyn Fixture) {
    let empty = f.store().overview().await.expect("overview");
    let names: Vec<&str> = empty.processes.iter().map(|count| count.name.as_str()).collect();
    assert_eq!(names, ProcessStatus::ALL.map(ProcessStatus::as_str));
    assert!(empty.processes.iter().all(|count| count.rows == 0) && empty.timers_due == 0);
    for (n, status) in ProcessStatus::ALL.into_iter().enumerate() {
        for _ in 0..=n {
            let process = waiting(f, &timer("reserve")).await;
            applied(f, after(&process, status, vec![step_started("a")])).await;
        }
    }
    let past = f.past();
    let due = "process_id IN (SELECT process_id FROM relais_process WHERE status = 'NEW')";
    f.run(&format!("UPDATE relais_timer SET due_at = {past} WHERE {due}")).await;
    let seen = f.store().overview().await.expect("overview");
    let rows: Vec<u64> = seen.processes.iter().map(|count| count.rows).collect();
    assert_eq!((rows, seen.timers_due), (vec![1, 2, 3, 4, 5, 6, 7], 1));
}
