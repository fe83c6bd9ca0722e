//! Processes as rows: the scenarios of the specification's process repository, in its order.

use std::collections::BTreeSet;

use relais_core::{
    inspect::InspectExt,
    process::{
        Change, ChangeOutcome, KeyHold, LogEntry, Process, ProcessEvent, ProcessFilter, ProcessRef,
        ProcessStatus,
    },
};
use uuid::Uuid;

use super::{
    Start,
    process_build::{
        TYPE, after, applied, begun, failed, found, history, log, running, step_completed,
        step_started,
    },
};
use crate::fixture::Fixture;

pub const START: Start = Start::Migrated;

async fn list(f: &dyn Fixture, filter: ProcessFilter) -> Vec<Uuid> {
    let found = f.store().list_processes(filter).await.expect("list");
    found.into_iter().map(|process| process.process_id).collect()
}

fn limited(limit: usize) -> ProcessFilter {
    ProcessFilter { limit, ..ProcessFilter::default() }
}

/// A process that came so long ago, in a state.
async fn of_age(
    f: &dyn Fixture,
    process_type: &str,
    status: ProcessStatus,
    seconds: u32,
) -> Process {
    let process = applied(f, begun(process_type, None)).await;
    let process = applied(f, after(&process, status, vec![step_started("a")])).await;
    let at = f.dialect().ago(seconds);
    let id = process.process_id;
    f.run(&format!("UPDATE relais_process SET created_at = {at} WHERE process_id = '{id}'")).await;
    process
}

pub async fn insert_writes_the_process_and_its_first_event(f: &dyn Fixture) {
    let before = f.now().await;
    let change = begun(TYPE, Some("order-7"));
    let process = applied(f, change.clone()).await;
    assert_eq!(process.status, ProcessStatus::New);
    let Process { created_at, updated_at, .. } = process;
    assert!(before <= created_at && created_at <= f.now().await && updated_at >= before);
    let log = log(f, process.process_id).await;
    assert_eq!(log.len(), 1);
    assert_eq!((log[0].seq, log[0].process_id), (1, process.process_id));
    assert_eq!((&log[0].entry, &log[0].message_id), (&change.log[0], &None));
    assert!(log[0].at >= before && log[0].at <= f.now().await);
}

pub async fn find_by_id_gives_every_field_back(f: &dyn Fixture) {
    let mut change = begun(TYPE, Some("order-7"));
    change.process.definition = 3;
    change.process.status = ProcessStatus::Running;
    change.process.current_step = Some("reserve the parcel".to_owned());
    change.process.retries = 4;
    change.process.progress = r#"{"completed": ["a", "b"]}"#.to_owned();
    let process = applied(f, change.clone()).await;
    let Process { created_at, updated_at, .. } = process;
    assert_eq!(process, Process { created_at, updated_at, ..change.process });
    assert_eq!(found(f, Uuid::new_v4()).await, None);
}

pub async fn several_are_found_in_the_order_asked_for(f: &dyn Fixture) {
    let first = applied(f, begun(TYPE, Some("a"))).await;
    let second = applied(f, begun(TYPE, Some("b"))).await;
    let key = |key: &str| ProcessRef::key(TYPE, key);
    let wanted = vec![
        key("b"),
        ProcessRef::Id(first.process_id),
        ProcessRef::Id(Uuid::new_v4()),
        key("nobody"),
        ProcessRef::Id(second.process_id),
        ProcessRef::Id(first.process_id),
    ];
    let loaded = f.store().load_processes(wanted).await.expect("load");
    let (first, second) = (Some(first), Some(second));
    assert_eq!(loaded, [second.clone(), first.clone(), None, None, second, first]);
    assert_eq!(f.store().load_processes(Vec::new()).await.expect("load"), []);
}

pub async fn find_by_status_is_limited_and_newest_first(f: &dyn Fixture) {
    let mut running = Vec::new();
    for age in [30, 10, 20] {
        running.push(of_age(f, TYPE, ProcessStatus::Running, age).await.process_id);
        of_age(f, TYPE, ProcessStatus::Failed, age + 1).await;
        of_age(f, TYPE, ProcessStatus::Succeeded, age + 2).await;
    }
    applied(f, begun(TYPE, None)).await;
    for (status, count) in [(ProcessStatus::New, 1), (ProcessStatus::Paused, 0)] {
        let filter = ProcessFilter { status: Some(status), ..limited(10) };
        assert_eq!(list(f, filter).await.len(), count);
    }
    let filter = ProcessFilter { status: Some(ProcessStatus::Running), ..limited(2) };
    assert_eq!(list(f, filter).await, [running[1], running[2]]);
    let filter = ProcessFilter { status: Some(ProcessStatus::Succeeded), ..limited(2) };
    let succeeded = f.store().list_processes(filter).await.expect("list");
    assert!(succeeded.iter().all(|process| process.status == ProcessStatus::Succeeded));
    assert!(succeeded[0].created_at > succeeded[1].created_at);
    assert_eq!(list(f, limited(100)).await.len(), 10);
}

pub async fn find_by_type_and_status_gives_only_both(f: &dyn Fixture) {
    let mut wanted = Vec::new();
    for age in [3, 2, 1] {
        wanted.insert(0, of_age(f, "PaymentProcess", ProcessStatus::Running, age).await.process_id);
        of_age(f, "PaymentProcess", ProcessStatus::Succeeded, age).await;
        of_age(f, TYPE, ProcessStatus::Running, age).await;
    }
    let filter = |limit| ProcessFilter {
        status: Some(ProcessStatus::Running),
        process_type: Some("PaymentProcess".to_owned()),
        ..limited(limit)
    };
    assert_eq!(list(f, filter(10)).await, wanted);
    assert_eq!(list(f, filter(2)).await, wanted[..2]);
    let of_type = ProcessFilter { process_type: Some(TYPE.to_owned()), ..limited(10) };
    assert_eq!(list(f, of_type).await.len(), 3);
}

pub async fn a_list_continues_behind_a_page(f: &dyn Fixture) {
    let mut ids = Vec::new();
    for _ in 0..5 {
        // Of the same age, so that only their ids differ.
        ids.push(of_age(f, TYPE, ProcessStatus::Running, 60).await.process_id);
    }
    let first = "(SELECT min(created_at) FROM relais_process)";
    f.run(&format!("UPDATE relais_process SET created_at = {first}")).await;
    let (mut pages, mut before) = (Vec::new(), None);
    loop {
        let status = Some(ProcessStatus::Running);
        let page = list(f, ProcessFilter { status, before, ..limited(2) }).await;
        before = page.last().copied();
        pages.extend(page);
        if before.is_none() {
            break;
        }
    }
    ids.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(pages, ids);
}

pub async fn a_list_can_be_of_the_last_hour_or_of_one_key(f: &dyn Fixture) {
    of_age(f, TYPE, ProcessStatus::Running, 7_200).await;
    let young = of_age(f, TYPE, ProcessStatus::Running, 60).await;
    let named = applied(f, begun("PaymentProcess", Some("order-7"))).await;
    let filter = ProcessFilter { since_seconds: Some(3_600), ..limited(10) };
    assert_eq!(list(f, filter).await, [named.process_id, young.process_id]);
    for process_type in [None, Some("PaymentProcess".to_owned())] {
        let business_key = Some("order-7".to_owned());
        let filter = ProcessFilter { business_key, process_type, ..limited(10) };
        assert_eq!(list(f, filter.clone()).await, [named.process_id]);
        let filter = ProcessFilter { status: Some(ProcessStatus::Failed), ..filter };
        assert!(list(f, filter).await.is_empty());
    }
}

pub async fn an_update_changes_the_status_and_logs_it(f: &dyn Fixture) {
    let process = applied(f, begun(TYPE, None)).await;
    let past = f.past();
    f.run(&format!("UPDATE relais_process SET created_at = {past}, updated_at = {past}")).await;
    let now = f.now().await;
    let change = after(&process, ProcessStatus::Running, vec![step_started("reserve")]);
    let changed = applied(f, change).await;
    assert_eq!((changed.status, changed.version), (ProcessStatus::Running, 2));
    assert!(changed.created_at < now && changed.updated_at >= now);
    assert_eq!(history(f, process.process_id).await, ["ProcessStarted", "StepStarted"]);
}

pub async fn an_update_changes_the_step_and_logs_it(f: &dyn Fixture) {
    let process = running(f, None).await;
    let events = vec![step_completed("reserve"), step_started("charge")];
    let mut change = after(&process, ProcessStatus::Running, events.clone());
    change.process.current_step = Some("charge".to_owned());
    change.process.retries = 2;
    let changed = applied(f, change).await;
    assert_eq!(changed.current_step.as_deref(), Some("charge"));
    assert_eq!((changed.retries, changed.version), (2, 4));
    let log = log(f, process.process_id).await;
    assert_eq!((&log[1].entry.event, &log[0].entry.event), (&events[0], &events[1]));
    assert_eq!((log[1].seq, log[0].seq), (3, 4));
}

pub async fn an_update_changes_the_data(f: &dyn Fixture) {
    let process = running(f, None).await;
    let mut change = after(&process, ProcessStatus::Running, vec![step_completed("reserve")]);
    change.process.data = r#"{"total": 5, "parcel": "P-1"}"#.to_owned();
    change.process.progress = r#"{"completed":["reserve"]}"#.to_owned();
    let changed = applied(f, change.clone()).await;
    assert_eq!((changed.data, changed.progress), (change.process.data, change.process.progress));
}

pub async fn the_log_holds_every_event_newest_first(f: &dyn Fixture) {
    let mut process = applied(f, begun(TYPE, None)).await;
    for step in ["a", "b", "c"] {
        let events = vec![step_started(step), step_completed(step)];
        process = applied(f, after(&process, ProcessStatus::Running, events)).await;
    }
    let log = log(f, process.process_id).await;
    let seqs: Vec<i64> = log.iter().map(|entry| entry.seq).collect();
    assert_eq!(seqs, [7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(log[0].entry.event, step_completed("c"));
    assert_eq!(log[6].entry.event.name(), "ProcessStarted");
}

pub async fn the_log_keeps_to_its_limit_and_continues_behind_a_page(f: &dyn Fixture) {
    let process = applied(f, begun(TYPE, None)).await;
    let events = (2..=10).map(|n| step_started(&n.to_string())).collect();
    let other = running(f, None).await;
    applied(f, after(&process, ProcessStatus::Running, events)).await;
    let page = async |before, limit| -> Vec<i64> {
        let id = process.process_id;
        let log = f.store().process_log(id, before, limit).await.expect("log");
        log.into_iter().map(|entry| entry.seq).collect()
    };
    assert_eq!(page(None, 3).await, [10, 9, 8]);
    assert_eq!(page(Some(8), 3).await, [7, 6, 5]);
    assert_eq!(page(Some(3), 3).await, [2, 1]);
    assert!(page(None, 0).await.is_empty());
    assert_eq!(log(f, other.process_id).await.len(), 2);
    assert!(log(f, Uuid::new_v4()).await.is_empty());
}

pub async fn find_by_business_key_is_exact(f: &dyn Fixture) {
    let wanted = applied(f, begun(TYPE, Some("order-7"))).await;
    applied(f, begun(TYPE, Some("order-77"))).await;
    applied(f, begun("PaymentProcess", Some("order-7"))).await;
    let find = async |key: &str| {
        let key = ProcessRef::key(TYPE, key);
        f.store().load_processes(vec![key]).await.expect("load").remove(0)
    };
    assert_eq!(find("order-7").await, Some(wanted));
    for nobody in ["order-", "ORDER-7", "order-7 ", "", "%"] {
        assert_eq!(find(nobody).await, None);
    }
}

/// A process of [`TYPE`] with this key that holds it until it ends.
fn open(key: &str) -> Change {
    let mut change = begun(TYPE, Some(key));
    change.process.key_hold = KeyHold::Open;
    change
}

/// Ends a process, which releases its key.
async fn released(f: &dyn Fixture, process: &Process) -> Process {
    let mut change = after(process, ProcessStatus::Failed, vec![failed("declined")]);
    change.process.key_hold = KeyHold::Released;
    applied(f, change).await
}

pub async fn a_released_business_key_can_be_used_again(f: &dyn Fixture) {
    let first = applied(f, open("order-8")).await;
    assert_eq!(first.key_hold, KeyHold::Open);
    let stale = f.store().change_process(open("order-8")).await.expect("change");
    assert_eq!(stale, ChangeOutcome::Stale, "it is held");
    let first = released(f, &first).await;
    assert_eq!(
        (first.key_hold, first.business_key.as_deref()),
        (KeyHold::Released, Some("order-8"))
    );
    let second = applied(f, open("order-8")).await;
    let stale = f.store().change_process(open("order-8")).await.expect("change");
    assert_eq!(stale, ChangeOutcome::Stale, "the second holds it");
    // A late reply lets the first one continue: it does not get the key back.
    let late = after(&first, ProcessStatus::Compensating, vec![step_started("undo")]);
    let first = applied(f, late).await;
    assert_eq!(first.business_key.as_deref(), Some("order-8"));
    let second = released(f, &second).await;
    let third = applied(f, begun(TYPE, Some("order-8"))).await;
    let ended = after(&third, ProcessStatus::Succeeded, vec![failed("no")]);
    applied(f, ended).await;
    let stale = f.store().change_process(open("order-8")).await.expect("change");
    assert_eq!(stale, ChangeOutcome::Stale, "a key that is used once is not released");
    assert_ne!(first.process_id, second.process_id);
}

pub async fn a_business_key_names_its_holder_and_else_the_newest_process(f: &dyn Fixture) {
    let find = async || {
        let key = ProcessRef::key(TYPE, "order-9");
        f.store().load_processes(vec![key]).await.expect("load").remove(0).map(|p| p.process_id)
    };
    let first = released(f, &applied(f, open("order-9")).await).await;
    assert_eq!(find().await, Some(first.process_id));
    let second = applied(f, open("order-9")).await;
    assert_eq!(find().await, Some(second.process_id));
    let second = released(f, &second).await;
    assert_eq!(find().await, Some(second.process_id), "the newest");
    let filter = ProcessFilter { business_key: Some("order-9".to_owned()), ..limited(10) };
    let listed = f.store().list_processes(filter).await.expect("list");
    let listed: Vec<_> = listed.into_iter().map(|process| process.process_id).collect();
    assert_eq!(listed, [second.process_id, first.process_id]);
}

pub async fn every_state_transition_is_logged(f: &dyn Fixture) {
    use ProcessStatus::{Compensated, Compensating, Failed, Paused, Running, Succeeded};
    let text = str::to_owned;
    let paused = ProcessEvent::ProcessPaused { reason: text("check"), paused_by: text("ann") };
    let resumed = ProcessEvent::ProcessResumed { reason: text("ok"), resumed_by: text("ann") };
    let undoing = || ProcessEvent::CompensationStarted { step: text("a"), command_id: Uuid::nil() };
    let undone = || ProcessEvent::CompensationCompleted { step: text("a"), command_id: None };
    let completed = ProcessEvent::ProcessCompleted { reason: text("done") };
    let paths = [
        vec![(Running, step_started("a")), (Succeeded, completed)],
        vec![(Running, step_started("a")), (Failed, failed("declined"))],
        vec![(Running, step_started("a")), (Compensating, undoing()), (Compensated, undone())],
        vec![(Paused, paused), (Running, resumed), (Running, step_started("a"))],
    ];
    for path in paths {
        let mut process = applied(f, begun(TYPE, None)).await;
        let mut names = vec!["ProcessStarted"];
        for (status, event) in path {
            names.push(event.name());
            process = applied(f, after(&process, status, vec![event])).await;
            assert_eq!(process.status, status);
        }
        assert_eq!(history(f, process.process_id).await, names);
    }
}

/// A writer that loses reads the process again, so that in the end every update is there.
pub async fn concurrent_updates_never_overwrite_each_other(f: &dyn Fixture) {
    const WRITERS: usize = 8;
    const UPDATES: usize = 5;
    let id = applied(f, begun(TYPE, None)).await.process_id;
    let writers = (0..WRITERS).map(|n| {
        let store = if n % 2 == 0 { f.store() } else { f.second() };
        tokio::spawn(async move {
            for update in 0..UPDATES {
                loop {
                    let found = store.load_processes(vec![ProcessRef::Id(id)]).await;
                    let process = found.expect("load").remove(0).expect("the process");
                    let event = step_started(&format!("{n}.{update}"));
                    let change = after(&process, ProcessStatus::Running, vec![event]);
                    if store.change_process(change).await.expect("change") == ChangeOutcome::Done {
                        break;
                    }
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.expect("writer");
    }
    let log = log(f, id).await;
    let seqs: Vec<i64> = log.iter().rev().map(|entry| entry.seq).collect();
    let all = 1 + i64::try_from(WRITERS * UPDATES).expect("few");
    assert_eq!(seqs, (1..=all).collect::<Vec<_>>());
    assert_eq!(found(f, id).await.expect("the process").version, all);
    let steps: BTreeSet<_> = log.iter().map(step_of).collect();
    assert_eq!(steps.len(), WRITERS * UPDATES + 1, "each update once");
}

fn step_of(entry: &LogEntry) -> String {
    match &entry.entry.event {
        ProcessEvent::StepStarted { step, .. } => step.clone(),
        other => other.name().to_owned(),
    }
}

pub async fn an_update_of_an_old_version_changes_nothing(f: &dyn Fixture) {
    let process = running(f, None).await;
    let late = after(&process, ProcessStatus::Failed, vec![failed("late")]);
    let now = applied(f, after(&process, ProcessStatus::Running, vec![step_started("b")])).await;
    for from in [late.from, late.from - 1, now.version + 1] {
        let stale = Change { from, ..late.clone() };
        assert_eq!(f.store().change_process(stale).await.expect("change"), ChangeOutcome::Stale);
    }
    let unknown = Process { process_id: Uuid::new_v4(), ..process };
    let change = after(&unknown, ProcessStatus::Failed, vec![failed("nobody")]);
    assert_eq!(f.store().change_process(change).await.expect("change"), ChangeOutcome::Stale);
    assert_eq!(found(f, now.process_id).await, Some(now.clone()));
    assert_eq!(log(f, now.process_id).await.len(), 3);
}

pub async fn a_process_begins_once(f: &dyn Fixture) {
    let change = begun(TYPE, Some("order-7"));
    let process = applied(f, change.clone()).await;
    let again = f.store().change_process(change).await.expect("change");
    let same_key = begun(TYPE, Some("order-7"));
    let taken = f.store().change_process(same_key.clone()).await.expect("change");
    assert_eq!((again, taken), (ChangeOutcome::Stale, ChangeOutcome::Stale));
    assert_eq!(found(f, same_key.process.process_id).await, None);
    assert_eq!(found(f, process.process_id).await, Some(process));
    applied(f, begun("PaymentProcess", Some("order-7"))).await;
    assert_eq!(f.number("SELECT count(*) FROM relais_process_log").await, 2);
}

pub async fn of_starts_at_once_one_begins(f: &dyn Fixture) {
    let starts = (0..8).map(|n| {
        let store = if n % 2 == 0 { f.store() } else { f.second() };
        tokio::spawn(async move { store.change_process(begun(TYPE, Some("order-7"))).await })
    });
    let mut begun = 0;
    for start in starts.collect::<Vec<_>>() {
        let applied = start.await.expect("start").expect("change");
        begun += usize::from(applied == ChangeOutcome::Done);
    }
    assert_eq!(begun, 1);
    assert_eq!(f.number("SELECT count(*) FROM relais_process").await, 1);
}
