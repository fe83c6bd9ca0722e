//! What one inbox row makes of the processes it concerns: first which ones to read, then what becomes of
//! them. Pure, but for the user's functions in a definition.

use std::{
    collections::{HashMap, HashSet},
    panic::{AssertUnwindSafe, catch_unwind},
};

use relais_core::{
    delivery::Problem,
    inbox::{InboxRow, source_of},
    process::{
        Change, Definition, Input, PROCESS_REPLY, PROCESS_UNKNOWN, Process, ProcessRef,
        ProcessStatus, SOURCE_SYSTEM, TIMER_FIRED, TimerFired, advance, definition::Concern, start,
    },
};
use uuid::Uuid;

use super::registry::Registry;

/// How often a row was decided in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Try {
    First,
    /// Somebody changed one of its processes meanwhile, or was there before it.
    Again,
}

/// What a row asks for.
#[derive(Debug)]
pub(crate) struct Asked {
    starts: Vec<Change>,
    cause: Cause,
    /// Processes that must be read to decide.
    pub(crate) wanted: Vec<ProcessRef>,
    /// What is wrong if none of them is there.
    otherwise: Option<Problem>,
}

#[derive(Debug)]
enum Cause {
    Reply,
    Timer(TimerFired),
}

/// What is to become of the processes of a row.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    pub(crate) changes: Vec<Change>,
    /// The status each of them had.
    pub(crate) before: Vec<Option<ProcessStatus>>,
}

impl Asked {
    /// Returns the types of the processes it starts, and of those that were found for it.
    pub(crate) fn process_types<'a>(&'a self, found: &'a Found) -> impl Iterator<Item = &'a str> {
        let started = self.starts.iter().map(|change| &change.process);
        let read = self.wanted.iter().filter_map(|name| found.get(name));
        started.chain(read).map(|process| process.process_type.as_str())
    }
}

impl Decided {
    fn add(&mut self, before: Option<ProcessStatus>, change: Change) {
        self.changes.push(change);
        self.before.push(before);
    }
}

/// Processes as they were read, by how they were asked for.
pub(crate) type Found = HashMap<ProcessRef, Process>;

/// Which processes a row starts and which must be read for it. A start is tried without reading
/// anything: the store refuses one that is there already, and only then it matters why.
pub(crate) fn ask(registry: &Registry, row: &InboxRow, at: Try) -> Result<Asked, Problem> {
    if row.event_type.as_deref() == Some(TIMER_FIRED) {
        return ask_timer(row);
    }
    let concerns = guarded(|| Ok(registry.concerns(row)))?;
    let starts = concerns.starts.iter().map(|definition| guarded(|| start(definition, row)));
    let starts = starts.collect::<Result<Vec<_>, _>>()?;
    let mut wanted = concerns.replies;
    if at == Try::Again {
        wanted.extend(starts.iter().flat_map(|change| names(&change.process)));
    }
    Ok(Asked { starts, cause: Cause::Reply, wanted, otherwise: concerns.problem })
}

fn ask_timer(row: &InboxRow) -> Result<Asked, Problem> {
    if source_of(&row.source_system) != SOURCE_SYSTEM {
        let text = format!("`{TIMER_FIRED}` is an event type of relais; nobody else may send it");
        return Err(Problem::new("RESERVED_EVENT_TYPE", &text));
    }
    let payload = row.payload.as_deref().unwrap_or("null");
    let timer: TimerFired = serde_json::from_str(payload).map_err(|error| {
        Problem::new("PAYLOAD_SHAPE", &format!("payload does not fit a timer: {error}"))
    })?;
    let wanted = vec![ProcessRef::Id(timer.process_id)];
    Ok(Asked { starts: Vec::new(), cause: Cause::Timer(timer), wanted, otherwise: None })
}

/// What becomes of the processes that were found. All of it or nothing: one process that cannot take
/// the row fails the row, so that a person sees it and nothing is half done.
pub(crate) fn decide(
    registry: &Registry,
    row: &InboxRow,
    asked: Asked,
    found: &Found,
    random: f64,
) -> Result<Decided, Problem> {
    let Asked { starts, cause, wanted, otherwise } = asked;
    let mut decided = Decided::default();
    let mut seen: HashSet<Uuid> = starts.iter().map(|change| change.process.process_id).collect();
    let (mut meant, mut deaf) = (!starts.is_empty(), None);
    for change in starts {
        if may_start(&change.process, found)? {
            decided.add(None, change);
        }
    }
    let processes = wanted.iter().filter_map(|name| found.get(name));
    for process in processes.filter(|process| seen.insert(process.process_id)) {
        let definition = registry.of(process)?;
        let input = match &cause {
            Cause::Reply if !waits_for(definition, process, row) => {
                deaf = Some(process);
                continue;
            }
            Cause::Reply => Input::Reply(row),
            Cause::Timer(TimerFired { step, command_id, .. }) => {
                Input::Timer { step, command_id: *command_id, message_id: &row.message_id }
            }
        };
        meant = true;
        let change = guarded(|| advance(definition, process, &input, random))?;
        decided.add(Some(process.status), change);
    }
    if meant {
        return Ok(decided);
    }
    let otherwise = deaf.map(|process| unwanted(row, process)).or(otherwise);
    Err(otherwise.unwrap_or_else(|| unknown(row, &wanted)))
}

/// Whether a process that was found for some definition is one its own definition finds too. Ids are
/// handed on from message to message, so a row may name a process that has nothing to do with it.
fn waits_for(definition: &Definition, process: &Process, row: &InboxRow) -> bool {
    match definition.concern(row) {
        Some(Ok(Concern::Reply(name))) => names(process).contains(&name),
        _ => false,
    }
}

/// Whether a process is to be started, given what was read about it: not if this very row started it
/// before, and not in the place of another.
fn may_start(process: &Process, found: &Found) -> Result<bool, Problem> {
    if found.contains_key(&ProcessRef::Id(process.process_id)) {
        return Ok(false);
    }
    let other = names(process).into_iter().find_map(|name| found.get(&name));
    match other {
        None => Ok(true),
        Some(other) => Err(key_taken(other)),
    }
}

/// Why there cannot be another process with the business key of this one.
pub(crate) fn key_taken(other: &Process) -> Problem {
    let Process { process_type, process_id, status, .. } = other;
    let key = other.business_key.as_deref().unwrap_or_default();
    Problem::new(
        "BUSINESS_KEY_TAKEN",
        &format!(
            "`{process_type}` with business key `{key}` is there already: {process_id}, {}; a key is used \
             once, so discard this or send it under another key",
            status.as_str()
        ),
    )
}

/// How a process can be found.
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
        "`{event_type}` is for {}, which is not there; if it is started later, replay this then",
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

/// Every process a row touches, by every name it is known under here. In one settlement each may be
/// changed once, and what waits for a start must not be judged before it.
pub(crate) fn touches(asked: &Asked, found: &Found) -> HashSet<ProcessRef> {
    let started = asked.starts.iter().flat_map(|change| names(&change.process));
    let read = asked.wanted.iter().filter_map(|name| found.get(name));
    let read = read.map(|process| ProcessRef::Id(process.process_id));
    started.chain(read).chain(asked.wanted.iter().cloned()).collect()
}

/// The user's functions may panic; that is the fault of a definition, and no reason to end a worker.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, Problem>) -> Result<T, Problem> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let text = "a function of the process definition panicked; mend it, then replay";
        Err(Problem::new("PROCESS_PANIC", text))
    })
}
