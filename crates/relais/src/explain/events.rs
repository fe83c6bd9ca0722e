//! The current state of rows, their events, and the text of an event. Pure.

use std::fmt;

use relais_core::{
    bulk::BulkJob,
    dead_letter::DeadLetter,
    delivery::Problem,
    inbox::{IGNORED_BY_CONFIGURATION, InboxRow, source_of},
    inspect::{Attempt, AuditEntry},
    outbox::OutboxRow,
    process::{LogEntry, Process, ProcessEvent, ProcessStatus, SOURCE_SYSTEM},
};
use uuid::Uuid;

use super::{
    EventDetail, Thing, ThingKind, ThingName, ThingRole, TimelineEvent, subject::SubjectRow,
};

/// Returns the current state of a row.
pub(super) fn thing(row: &SubjectRow, role: ThingRole) -> Thing {
    let bare = Thing {
        name: row.name(),
        role,
        message_id: Some(row.message_id()),
        event_type: None,
        key: None,
        place: None,
        status: "removed".to_owned(),
        next_attempt_at: None,
        problem: None,
        held_by: None,
        waits_for: None,
    };
    match row {
        SubjectRow::Inbox(row) => Thing {
            event_type: row.event_type.clone(),
            key: Some(row.msg_key.clone()),
            place: Some(row.source_system.clone()),
            status: row.status.as_str().to_owned(),
            next_attempt_at: row.next_attempt_at,
            problem: problem(row.error_code.as_deref(), row.error_message.as_deref()),
            ..bare
        },
        SubjectRow::Outbox(row) => Thing {
            event_type: Some(row.event_type.clone()),
            key: Some(row.msg_key.clone()),
            place: Some(row.destination.clone()),
            status: row.status.as_str().to_owned(),
            next_attempt_at: row.next_attempt_at,
            problem: problem(row.error_code.as_deref(), row.error_message.as_deref()),
            ..bare
        },
        SubjectRow::Process(process) => Thing {
            message_id: None,
            event_type: Some(process.process_type.clone()),
            key: process.business_key.clone(),
            place: process.current_step.clone(),
            status: process.status.as_str().to_owned(),
            waits_for: process
                .needs_operator()
                .then(|| "waits for an operator: retry or skip its step".to_owned()),
            ..bare
        },
        SubjectRow::Job(job) => job_thing(job, role),
        SubjectRow::Removed(_) => bare,
    }
}

pub(super) fn job_thing(job: &BulkJob, role: ThingRole) -> Thing {
    Thing {
        name: ThingName::new(ThingKind::Job, job.id),
        role,
        message_id: None,
        event_type: None,
        key: None,
        place: Some(job.destination.clone()),
        status: job.phase.as_str().to_owned(),
        next_attempt_at: None,
        problem: problem(None, job.error_message.as_deref()),
        held_by: None,
        waits_for: None,
    }
}

/// Returns the reason why a process is stopped or failed, from its log.
pub(super) fn stop_reason(process: &Process, log: &[LogEntry]) -> Option<Problem> {
    use ProcessEvent as E;
    let stopped = matches!(process.status, ProcessStatus::Paused | ProcessStatus::Failed);
    if !stopped && !process.needs_operator() {
        return None;
    }
    let code = process.status.as_str();
    log.iter().rev().find_map(|entry| match &entry.entry.event {
        E::ProcessPaused { reason, paused_by } => {
            Some(Problem::new(code, &format!("paused by {paused_by}: {reason}")))
        }
        E::ProcessFailed { reason } => Some(Problem::new(code, reason)),
        E::StepFailed { step, error, .. }
        | E::StepTimedOut { step, error, .. }
        | E::CompensationFailed { step, error, .. } => {
            Some(Problem::new(code, &format!("step {step}: {error}")))
        }
        _ => None,
    })
}

fn problem(code: Option<&str>, message: Option<&str>) -> Option<Problem> {
    (code.is_some() || message.is_some())
        .then(|| Problem::new(code.unwrap_or_default(), message.unwrap_or_default()))
}

/// Returns the reception and the end of an inbox row.
pub(super) fn of_inbox(row: &InboxRow) -> Vec<TimelineEvent> {
    let about = || ThingName::new(ThingKind::Inbox, row.id);
    let placed = has_place(row);
    let received = EventDetail::Received {
        source_system: row.source_system.clone(),
        topic: row.topic.clone(),
        partition: placed.then_some(row.partition_num),
        offset: placed.then_some(row.offset_num),
        event_ts: row.event_ts,
        event_type: row.event_type.clone(),
        message_id: row.message_id.clone(),
        key: row.msg_key.clone(),
    };
    let mut events = vec![TimelineEvent { at: row.received_at, about: about(), what: received }];
    events.extend(row.processed_at.map(|at| TimelineEvent {
        at,
        about: about(),
        what: EventDetail::Processed,
    }));
    events
}

/// Returns whether the row has a position in a broker. Requests and timers have none: their rows have 0 and
/// 0, as the first record of a partition has too, but a request has a host and a length.
fn has_place(row: &InboxRow) -> bool {
    let request = ["host", "content-length"].iter().any(|name| row.headers.get(name).is_some());
    (row.partition_num, row.offset_num) != (0, 0)
        || !(request || source_of(&row.source_system) == SOURCE_SYSTEM)
}

/// Returns the creation and the delivery of an outbox row.
pub(super) fn of_outbox(row: &OutboxRow) -> Vec<TimelineEvent> {
    let about = || ThingName::new(ThingKind::Outbox, row.id);
    let created = EventDetail::Created {
        destination: row.destination.clone(),
        event_type: row.event_type.clone(),
        message_id: row.message_id,
        key: row.msg_key.clone(),
        causation_id: row.causation_id.clone(),
        correlation_id: row.correlation_id.clone(),
    };
    let mut events = vec![TimelineEvent { at: row.created_at, about: about(), what: created }];
    events.extend(row.dispatched_at.map(|at| TimelineEvent {
        at,
        about: about(),
        what: EventDetail::Dispatched {
            destination: row.destination.clone(),
            job: row.job_id.clone(),
        },
    }));
    events
}

pub(super) fn of_attempt(about: &ThingName, attempt: Attempt) -> TimelineEvent {
    let Attempt { attempt, at, outcome, error_code, error_message, worker, .. } = attempt;
    let what =
        EventDetail::Attempt { attempt, outcome, code: error_code, message: error_message, worker };
    TimelineEvent { at, about: about.clone(), what }
}

pub(super) fn of_log(process: &Process, entry: &LogEntry) -> TimelineEvent {
    let LogEntry { process_id, seq, at, message_id, entry } = entry.clone();
    let what = EventDetail::Step {
        process_type: process.process_type.clone(),
        seq,
        message_id,
        entry: entry.event,
        note: entry.note,
        actor: entry.actor,
        reason: entry.reason,
    };
    TimelineEvent { at, about: ThingName::new(ThingKind::Process, process_id), what }
}

pub(super) fn of_job(job: &BulkJob) -> Vec<TimelineEvent> {
    let about = || ThingName::new(ThingKind::Job, job.id);
    let planned =
        EventDetail::JobPlanned { destination: job.destination.clone(), rows: job.row_count };
    let mut events = vec![TimelineEvent { at: job.created_at, about: about(), what: planned }];
    events.extend(job.finished_at.map(|at| TimelineEvent {
        at,
        about: about(),
        what: EventDetail::JobEnded {
            phase: job.phase.as_str(),
            remote_id: job.remote_id.clone(),
            message: job.error_message.clone(),
        },
    }));
    events
}

/// Returns the creation of a dead letter, the decisions of operators, and its end if the audit log does not
/// have it.
pub(super) fn of_letter(
    about: &ThingName,
    letter: DeadLetter,
    audit: Vec<AuditEntry>,
) -> Vec<TimelineEvent> {
    let id = letter.id;
    let born = EventDetail::DeadLetter {
        dead_letter: id,
        failed_status: letter.failed_status,
        code: letter.error_class,
        message: letter.error_message,
        attempts: letter.attempts,
        worker: letter.parked_by,
    };
    let mut events = vec![TimelineEvent { at: letter.parked_at, about: about.clone(), what: born }];
    let end = letter.resolution.map(|resolution| format!("dead-letter.{resolution}"));
    let recorded = audit.iter().any(|line| Some(&line.action) == end.as_ref());
    events.extend(audit.into_iter().map(|line| of_audit(about, Some(id), line)));
    if let (Some(at), Some(action), false) = (letter.resolved_at, end, recorded) {
        let (actor, reason) =
            (letter.resolved_by.unwrap_or_default(), letter.reason.unwrap_or_default());
        let what = EventDetail::Action { dead_letter: Some(id), action, actor, reason };
        events.push(TimelineEvent { at, about: about.clone(), what });
    }
    events
}

pub(super) fn of_audit(
    about: &ThingName,
    dead_letter: Option<Uuid>,
    line: AuditEntry,
) -> TimelineEvent {
    let AuditEntry { at, actor, action, reason, .. } = line;
    TimelineEvent {
        at,
        about: about.clone(),
        what: EventDetail::Action { dead_letter, action, actor, reason },
    }
}

/// Writes an event in one line.
pub(super) fn text(what: &EventDetail, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match what {
        EventDetail::Received {
            source_system,
            topic,
            partition,
            offset,
            event_type,
            message_id,
            key,
            ..
        } => {
            let kind = event_type.as_deref().unwrap_or("no type");
            write!(f, "received from {source_system}")?;
            match (partition, offset) {
                (Some(partition), Some(offset)) => {
                    write!(f, " ({topic} partition {partition} offset {offset})")?;
                }
                // Timers have no topic.
                _ if topic.is_empty() => {}
                _ => write!(f, " ({topic})")?,
            }
            write!(f, ": {kind} {message_id}, key {key}")
        }
        EventDetail::Attempt { attempt, outcome, code, message, worker } => {
            write!(f, "{} (worker {worker})", attempt_text(*attempt, outcome, code, message))
        }
        EventDetail::Processed => f.write_str("handled"),
        EventDetail::Step { process_type, seq, entry, note, actor, reason, .. } => {
            write!(f, "{process_type} {seq}: {}{}", entry.name(), details(entry))?;
            optional(f, "; ", note.as_deref())?;
            optional(f, "; by ", actor.as_deref())?;
            optional(f, ": ", reason.as_deref())
        }
        EventDetail::Created { destination, event_type, message_id, key, .. } => {
            write!(f, "written for {destination}: {event_type} {message_id}, key {key}")
        }
        EventDetail::JobPlanned { destination, rows } => {
            write!(f, "bulk job for {destination} with {rows} rows")
        }
        EventDetail::JobEnded { phase, remote_id, message } => {
            write!(f, "bulk job {phase}")?;
            optional(f, ", remote id ", remote_id.as_deref())?;
            optional(f, ": ", message.as_deref())
        }
        EventDetail::Dispatched { destination, job } => {
            write!(f, "delivered to {destination}")?;
            optional(f, ", in job ", job.as_deref())
        }
        EventDetail::DeadLetter { dead_letter, failed_status, code, message, attempts, .. } => {
            write!(
                f,
                "dead letter {dead_letter}: {failed_status} after {attempts} attempt{}{}",
                if *attempts == 1 { "" } else { "s" },
                because(code, message)
            )
        }
        EventDetail::Action { action, actor, reason, .. } => {
            write!(f, "{action} by {actor}")?;
            optional(f, ": ", Some(reason.as_str()).filter(|reason| !reason.is_empty()))
        }
    }
}

/// Returns the end of an attempt, with its reason.
fn attempt_text(
    attempt: u32,
    outcome: &str,
    code: &Option<String>,
    message: &Option<String>,
) -> String {
    let what = message.as_deref().unwrap_or_default();
    match outcome {
        "ignored" if code.as_deref() == Some(IGNORED_BY_CONFIGURATION) => {
            format!("ignored by configuration: {what}")
        }
        "ignored" => format!("attempt {attempt} ignored as out of order{}", because(code, message)),
        "delivered" => format!("attempt {attempt} was delivered: {what}"),
        "retry" => format!("attempt {attempt} failed, to be retried{}", because(code, message)),
        _ => format!("attempt {attempt} failed permanently{}", because(code, message)),
    }
}

fn because(code: &Option<String>, message: &Option<String>) -> String {
    let parts = [code, message].map(|part| part.as_deref().unwrap_or_default());
    let text: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    if text.is_empty() { String::new() } else { format!(": {}", text.join(": ")) }
}

fn optional(f: &mut fmt::Formatter<'_>, before: &str, text: Option<&str>) -> fmt::Result {
    match text {
        Some(text) => write!(f, "{before}{text}"),
        None => Ok(()),
    }
}

/// Returns the details of a log entry beside its name.
fn details(event: &ProcessEvent) -> String {
    match event {
        ProcessEvent::ProcessStarted { business_key, .. } => {
            business_key.as_ref().map_or_else(String::new, |key| format!(" {key}"))
        }
        ProcessEvent::StepStarted { step, .. }
        | ProcessEvent::StepCompleted { step, .. }
        | ProcessEvent::CompensationStarted { step, .. }
        | ProcessEvent::CompensationCompleted { step, .. } => format!(" {step}"),
        ProcessEvent::StepFailed { step, error, retryable, .. } => {
            let kind = if *retryable { "retryable" } else { "permanent" };
            format!(" {step} ({kind}): {error}")
        }
        ProcessEvent::StepTimedOut { step, error, .. }
        | ProcessEvent::CompensationFailed { step, error, .. } => format!(" {step}: {error}"),
        ProcessEvent::ProcessCompleted { reason } | ProcessEvent::ProcessFailed { reason } => {
            format!(": {reason}")
        }
        ProcessEvent::ProcessPaused { reason, paused_by: who }
        | ProcessEvent::ProcessResumed { reason, resumed_by: who } => {
            format!(" by {who}: {reason}")
        }
    }
}

/// Returns the command of a log entry.
pub(super) fn command_of(event: &ProcessEvent) -> Option<Uuid> {
    match event {
        ProcessEvent::StepStarted { command_id, .. }
        | ProcessEvent::StepTimedOut { command_id, .. }
        | ProcessEvent::CompensationStarted { command_id, .. } => Some(*command_id),
        ProcessEvent::StepCompleted { command_id, .. }
        | ProcessEvent::StepFailed { command_id, .. }
        | ProcessEvent::CompensationCompleted { command_id, .. }
        | ProcessEvent::CompensationFailed { command_id, .. } => *command_id,
        ProcessEvent::ProcessStarted { .. }
        | ProcessEvent::ProcessCompleted { .. }
        | ProcessEvent::ProcessFailed { .. }
        | ProcessEvent::ProcessPaused { .. }
        | ProcessEvent::ProcessResumed { .. } => None,
    }
}
