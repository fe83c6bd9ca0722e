//! Decides an inbox row that concerns processes: first which processes to read, then their changes. Pure,
//! except for the user's functions in a definition.

use std::{
    collections::{HashMap, HashSet},
    panic::{AssertUnwindSafe, catch_unwind},
};

use relais_core::{
    delivery::Problem,
    inbox::{InboxRow, source_of},
    process::{
        Change, Definition, Input, KeyHold, PROCESS_REPLY, PROCESS_UNKNOWN, Process, ProcessRef,
        ProcessStatus, SOURCE_SYSTEM, TIMER_FIRED, TimerFired, advance, definition::Concern,
        handler_step::is_answer, start,
    },
};
use uuid::Uuid;

use super::registry::Registry;

/// The attempt to decide a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecisionAttempt {
    First,
    /// After a stale decision: one of its processes changed meanwhile, or existed already.
    Again,
}

/// The processes that a row starts, and those that must be read to decide it.
#[derive(Debug)]
pub(crate) struct ProcessLookup {
    starts: Vec<Change>,
    cause: RowCause,
    /// Processes that must be read to decide.
    pub(crate) wanted: Vec<ProcessRef>,
    /// The problem if none of them exists.
    otherwise: Option<Problem>,
}

#[derive(Debug)]
enum RowCause {
    Reply,
    Timer(TimerFired),
}

/// The changes of the processes of a row.
#[derive(Debug, Default)]
pub(crate) struct ProcessChanges {
    pub(crate) changes: Vec<Change>,
    /// The status of each of them before.
    pub(crate) before: Vec<Option<ProcessStatus>>,
}

impl ProcessLookup {
    /// Returns the types of the processes it starts, and of those that were found for it.
    pub(crate) fn process_types<'a>(
        &'a self,
        found: &'a LoadedProcesses,
    ) -> impl Iterator<Item = &'a str> {
        let started = self.starts.iter().map(|change| &change.process);
        let read = self.wanted.iter().filter_map(|name| found.get(name));
        started.chain(read).map(|process| process.process_type.as_str())
    }
}

impl ProcessChanges {
    fn add(&mut self, before: Option<ProcessStatus>, change: Change) {
        self.changes.push(change);
        self.before.push(before);
    }
}

/// The processes that were read, by the name they were requested with.
pub(crate) type LoadedProcesses = HashMap<ProcessRef, Process>;

/// Returns which processes a row starts and which must be read for it. The first attempt of a start reads
/// nothing: the store refuses a process that exists already.
pub(crate) fn look_up(
    registry: &Registry,
    row: &InboxRow,
    at: DecisionAttempt,
) -> Result<ProcessLookup, Problem> {
    let event_type = row.event_type.as_deref().unwrap_or_default();
    let is_reserved = event_type == TIMER_FIRED || is_answer(event_type);
    if is_reserved && source_of(&row.source_system) != SOURCE_SYSTEM {
        let text = format!("`{event_type}` is an event type of relais; a source must not send it");
        return Err(Problem::new("RESERVED_EVENT_TYPE", &text));
    }
    if event_type == TIMER_FIRED {
        return look_up_timer(row);
    }
    let concerns = guarded(|| Ok(registry.concerns(row)))?;
    let starts = concerns.starts.iter().map(|definition| guarded(|| start(definition, row)));
    let starts = starts.collect::<Result<Vec<_>, _>>()?;
    let mut wanted = concerns.replies;
    if at == DecisionAttempt::Again {
        wanted.extend(starts.iter().flat_map(|change| names(&change.process)));
    }
    Ok(ProcessLookup { starts, cause: RowCause::Reply, wanted, otherwise: concerns.problem })
}

fn look_up_timer(row: &InboxRow) -> Result<ProcessLookup, Problem> {
    let payload = row.payload.as_deref().unwrap_or("null");
    let timer: TimerFired = serde_json::from_str(payload).map_err(|error| {
        Problem::new("PAYLOAD_SHAPE", &format!("payload does not fit a timer: {error}"))
    })?;
    let wanted = vec![ProcessRef::Id(timer.process_id)];
    Ok(ProcessLookup { starts: Vec::new(), cause: RowCause::Timer(timer), wanted, otherwise: None })
}

/// Decides the processes that were read. All or nothing: one process that refuses the row fails the row, so
/// that an operator sees it and no change is partial.
pub(crate) fn decide(
    registry: &Registry,
    row: &InboxRow,
    lookup: ProcessLookup,
    found: &LoadedProcesses,
    random: f64,
) -> Result<ProcessChanges, Problem> {
    let ProcessLookup { starts, cause, wanted, otherwise } = lookup;
    let mut decided = ProcessChanges::default();
    let mut seen: HashSet<Uuid> = starts.iter().map(|change| change.process.process_id).collect();
    let (mut concerned, mut not_waiting) = (!starts.is_empty(), None);
    for change in starts {
        if may_start(&change.process, found)? {
            decided.add(None, change);
        }
    }
    let processes = wanted.iter().filter_map(|name| found.get(name));
    for process in processes.filter(|process| seen.insert(process.process_id)) {
        let definition = registry.of(process)?;
        let input = match &cause {
            RowCause::Reply if !waits_for(definition, process, row) => {
                not_waiting = Some(process);
                continue;
            }
            RowCause::Reply => Input::Reply(row),
            RowCause::Timer(TimerFired { step, command_id, .. }) => {
                Input::Timer { step, command_id: *command_id, message_id: &row.message_id }
            }
        };
        concerned = true;
        let change = guarded(|| advance(definition, process, &input, random))?;
        decided.add(Some(process.status), change);
    }
    if concerned {
        return Ok(decided);
    }
    let otherwise = not_waiting.map(|process| unwanted(row, process)).or(otherwise);
    Err(otherwise.unwrap_or_else(|| unknown(row, &wanted)))
}

/// Returns whether the process waits for the row by its own definition. Ids are passed on from message to
/// message, so a row may name an unrelated process.
fn waits_for(definition: &Definition, process: &Process, row: &InboxRow) -> bool {
    match definition.concern(row) {
        Some(Ok(Concern::Reply(name))) => names(process).contains(&name),
        _ => false,
    }
}

/// Returns whether a process is started: not if this row started it before, and not if another process has
/// its business key.
fn may_start(process: &Process, found: &LoadedProcesses) -> Result<bool, Problem> {
    if found.contains_key(&ProcessRef::Id(process.process_id)) {
        return Ok(false);
    }
    match names(process).into_iter().find_map(|name| found.get(&name)) {
        Some(other) if other.key_hold != KeyHold::Released => Err(key_taken(other)),
        _ => Ok(true),
    }
}

/// Returns the problem of a second process with the business key of this one.
pub(crate) fn key_taken(other: &Process) -> Problem {
    let Process { process_type, process_id, status, .. } = other;
    let key = other.business_key.as_deref().unwrap_or_default();
    Problem::new(
        "BUSINESS_KEY_TAKEN",
        &format!(
            "`{process_type}` with business key `{key}` exists already: {process_id}, {}; discard this \
             message, or send it with another business key",
            status.as_str()
        ),
    )
}

/// Returns the names by which a process can be found.
pub(crate) fn names(process: &Process) -> Vec<ProcessRef> {
    let key = process.business_key.clone().map(|business_key| ProcessRef::Key {
        process_type: process.process_type.clone(),
        business_key,
    });
    std::iter::once(ProcessRef::Id(process.process_id)).chain(key).collect()
}

fn unknown(row: &InboxRow, wanted: &[ProcessRef]) -> Problem {
    let event_type = row.event_type.as_deref().unwrap_or_default();
    let names: Vec<String> = wanted.iter().map(describe).collect();
    if names.is_empty() {
        let text = format!(
            "no current version of a process here starts with `{event_type}` or waits for it"
        );
        return Problem::new("UNKNOWN_EVENT_TYPE", &text);
    }
    let text = format!(
        "`{event_type}` is for {}, which does not exist; if it is started later, retry this message then",
        names.join(" or ")
    );
    Problem::new(PROCESS_UNKNOWN, &text)
}

fn unwanted(row: &InboxRow, process: &Process) -> Problem {
    let event_type = row.event_type.as_deref().unwrap_or_default();
    let Process { process_id, process_type, definition, .. } = process;
    let text = format!(
        "`{event_type}` names process {process_id}, but version {definition} of `{process_type}` does not \
         wait for such a reply"
    );
    Problem::new(PROCESS_REPLY, &text)
}

fn describe(name: &ProcessRef) -> String {
    match name {
        ProcessRef::Id(id) => format!("process {id}"),
        ProcessRef::Key { process_type, business_key } => {
            format!("`{process_type}` with business key `{business_key}`")
        }
    }
}

/// Returns every process a row concerns, by each of its names. One settlement changes each at most once,
/// and a reply must not be decided before the start of its process.
pub(crate) fn touches(lookup: &ProcessLookup, found: &LoadedProcesses) -> HashSet<ProcessRef> {
    let started = lookup.starts.iter().flat_map(|change| names(&change.process));
    let read = lookup.wanted.iter().filter_map(|name| found.get(name));
    let read = read.map(|process| ProcessRef::Id(process.process_id));
    started.chain(read).chain(lookup.wanted.iter().cloned()).collect()
}

/// Runs functions of the user, which may panic: that is a problem of the definition and does not end the
/// worker.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, Problem>) -> Result<T, Problem> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let text = "a function of the process definition panicked; fix it, then retry";
        Err(Problem::new("PROCESS_PANIC", text))
    })
}
