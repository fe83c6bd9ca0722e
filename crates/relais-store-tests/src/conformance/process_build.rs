//! Processes for checks: changes as `start` and `advance` would make them, without a definition.

use std::time::Duration;

use relais_core::{
    delivery::Problem,
    inspect::InspectExt,
    process::{
        Change, ChangeOutcome, DeadLetterChange, Entry, KeyHold, LogEntry, Process, ProcessEvent,
        ProcessRef, ProcessStatus, Timer, TimerChange,
    },
    query::PAGE_MAX,
    store::SettleOutcome,
    time::Timestamp,
};
use serde_json::json;
use uuid::Uuid;

use super::worker::Worker;
use crate::{build::arrival_for, fixture::Fixture};

/// The type of most processes here.
pub(super) const TYPE: &str = "OrderProcess";
/// Far enough that no timer is due by itself in a test.
pub(super) const HOUR: Duration = Duration::from_secs(3_600);

/// A new process with its first event, of a fresh id.
pub(super) fn begun(process_type: &str, business_key: Option<&str>) -> Change {
    let event = ProcessEvent::ProcessStarted {
        process_type: process_type.to_owned(),
        business_key: business_key.map(str::to_owned),
        initial_data: json!({ "total": 5 }),
    };
    let process = Process {
        process_id: Uuid::new_v4(),
        process_type: process_type.to_owned(),
        definition: 1,
        business_key: business_key.map(str::to_owned),
        key_hold: KeyHold::Once,
        status: ProcessStatus::New,
        current_step: None,
        data: r#"{"total": 5}"#.to_owned(),
        retries: 0,
        progress: "{}".to_owned(),
        version: 1,
        // The store sets them.
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
    };
    change(process, 0, vec![event])
}

/// Applies these events to a process: its next versions, everything else as it was.
pub(super) fn after(process: &Process, status: ProcessStatus, events: Vec<ProcessEvent>) -> Change {
    let from = process.version;
    let version = from + i64::try_from(events.len()).expect("few events");
    change(Process { status, version, ..process.clone() }, from, events)
}

fn change(process: Process, from: i64, events: Vec<ProcessEvent>) -> Change {
    Change {
        process,
        from,
        log: events.into_iter().map(Entry::of).collect(),
        message_id: None,
        timer: TimerChange::Keep,
        messages: Vec::new(),
        dead_letter: DeadLetterChange::Keep,
        audit: None,
    }
}

pub(super) fn step_started(step: &str) -> ProcessEvent {
    ProcessEvent::StepStarted { step: step.to_owned(), command_id: Uuid::new_v4() }
}

pub(super) fn step_completed(step: &str) -> ProcessEvent {
    let result_data = json!({ "done": step });
    ProcessEvent::StepCompleted { step: step.to_owned(), command_id: None, result_data }
}

pub(super) fn failed(reason: &str) -> ProcessEvent {
    ProcessEvent::ProcessFailed { reason: reason.to_owned() }
}

/// A time-out of a step.
pub(super) fn timer(step: &str) -> Timer {
    Timer { step: step.to_owned(), command_id: Uuid::new_v4(), after: HOUR }
}

pub(super) fn opened(failed_status: &'static str) -> DeadLetterChange {
    let problem = Problem::new("PAYMENT_DECLINED", "the bank said no 😀");
    DeadLetterChange::Open { failed_status, problem, attempts: 3 }
}

/// Carries a change out that must fit; the process afterwards.
pub(super) async fn applied(f: &dyn Fixture, change: Change) -> Process {
    let id = change.process.process_id;
    let applied = f.store().change_process(change).await.expect("change process");
    assert_eq!(applied, ChangeOutcome::Done);
    found(f, id).await.expect("the process is there")
}

/// A running process at its first step.
pub(super) async fn running(f: &dyn Fixture, business_key: Option<&str>) -> Process {
    let process = applied(f, begun(TYPE, business_key)).await;
    let mut change = after(&process, ProcessStatus::Running, vec![step_started("reserve")]);
    change.process.current_step = Some("reserve".to_owned());
    applied(f, change).await
}

/// A process that failed, with its dead letter.
pub(super) async fn failed_process(f: &dyn Fixture, business_key: Option<&str>) -> Process {
    let process = running(f, business_key).await;
    let change = after(&process, ProcessStatus::Failed, vec![failed("declined")]);
    applied(f, Change { dead_letter: opened("FAILED"), ..change }).await
}

/// The process of this id, from another node.
pub(super) async fn found(f: &dyn Fixture, id: Uuid) -> Option<Process> {
    let mut found = f.second().load_processes(vec![ProcessRef::Id(id)]).await.expect("load");
    assert_eq!(found.len(), 1);
    found.remove(0)
}

/// Its whole log, newest first.
pub(super) async fn log(f: &dyn Fixture, id: Uuid) -> Vec<LogEntry> {
    f.store().process_log(id, None, PAGE_MAX).await.expect("log")
}

/// The names of its events, oldest first.
pub(super) async fn history(f: &dyn Fixture, id: Uuid) -> Vec<&'static str> {
    log(f, id).await.iter().rev().map(|entry| entry.entry.event.name()).collect()
}

/// Settles one new row of a key with this change.
pub(super) async fn settle_one(
    f: &dyn Fixture,
    worker: &Worker,
    message_id: &str,
    change: Change,
) -> SettleOutcome {
    let arrival = arrival_for(message_id, message_id);
    f.store().accept(vec![arrival], Vec::new()).await.expect("accept");
    let rows = worker.received(super::worker::MANY).await;
    let row = rows.iter().find(|row| row.message_id == message_id).expect("the new row");
    worker.settle_inbox(row, super::worker::processed_with(vec![change])).await
}
