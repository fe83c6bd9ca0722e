//! A process while one input is worked into it, and the change that comes of it.
//!
//! Invariant: a timer stays after the change exactly if the step it is for is still waited for.

use uuid::Uuid;

use super::{
    command::{attempt_of, command_id},
    progress::{At, Now, Position, Progress, StepState, Way},
};
use crate::{
    delivery::Problem,
    inbox::InboxRow,
    json::keeps_numbers,
    message::{Headers, NewMessage},
    process::{
        Action, Change, Closure, DeadLetterChange, Definition, Entry, PROCESS_DEFINITION, Process,
        ProcessEvent, SOURCE_SYSTEM, Timer, TimerChange,
        definition::{Call, ProcessStart, Step},
    },
    route,
    text::{self, ERROR_MESSAGE_MAX, MESSAGE_ID_MAX},
    time::Timestamp,
};

/// The cause of the changes of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct ChangeCause<'a> {
    pub(super) message_id: Option<&'a str>,
    pub(super) trace: Headers,
}

impl<'a> ChangeCause<'a> {
    pub(super) fn of(row: &'a InboxRow) -> Self {
        Self { message_id: Some(&row.message_id), trace: route::trace_headers(&row.headers) }
    }
}

pub(super) struct Work<'a> {
    pub(super) definition: &'a Definition,
    pub(super) cause: ChangeCause<'a>,
    pub(super) process: Process,
    pub(super) progress: Progress,
    pub(super) log: Vec<Entry>,
    pub(super) messages: Vec<NewMessage>,
    /// The timer of a wait that began now, if it has one.
    timer: Option<TimerChange>,
    dead_letter: DeadLetterChange,
    waited: bool,
}

impl<'a> Work<'a> {
    /// A process that is there.
    pub(super) fn load(
        definition: &'a Definition,
        process: &Process,
        cause: ChangeCause<'a>,
    ) -> Result<Self, Problem> {
        let Process { process_id, process_type, definition: version, .. } = process;
        let missing = |what: String| {
            let text = format!(
                "process {process_id} is of `{process_type}` version {version}: {what}; register the \
                 definition it was started with, then retry"
            );
            Problem::new(PROCESS_DEFINITION, &text)
        };
        if (process_type.as_str(), *version) != (definition.process_type(), definition.version()) {
            let (name, version) = (definition.process_type(), definition.version());
            return Err(missing(format!("`{name}` version {version} is another definition")));
        }
        let progress = Progress::read(process)?;
        let mut known = progress.steps.keys().map(String::as_str).chain(progress.current_step());
        if let Some(step) = known.find(|step| !definition.0.steps.iter().any(|s| s.name == *step)) {
            return Err(missing(format!("it has no step `{step}`")));
        }
        Ok(Self::of(definition, process.clone(), progress, cause))
    }

    /// A process that is not there yet.
    pub(super) fn create(
        definition: &'a Definition,
        process_id: Uuid,
        begun: ProcessStart,
        cause: ChangeCause<'a>,
    ) -> Self {
        let progress = Progress::at(Position::New);
        let business_key = begun.business_key.map(|key| text::identity(&key, MESSAGE_ID_MAX));
        let event = ProcessEvent::ProcessStarted {
            process_type: definition.process_type().to_owned(),
            business_key: business_key.clone(),
            initial_data: value(&begun.data),
        };
        let process = Process {
            process_id,
            process_type: definition.process_type().to_owned(),
            definition: definition.version(),
            business_key,
            key_hold: definition.0.key_use.hold(),
            status: progress.status(),
            current_step: None,
            data: begun.data,
            retries: 0,
            progress: String::new(),
            version: 0,
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
        };
        let mut work = Self::of(definition, process, progress, cause);
        work.log.push(Entry::of(event));
        work
    }

    fn of(
        definition: &'a Definition,
        process: Process,
        progress: Progress,
        cause: ChangeCause<'a>,
    ) -> Self {
        Self {
            definition,
            cause,
            waited: progress.waits(),
            process,
            progress,
            log: Vec::new(),
            messages: Vec::new(),
            timer: None,
            dead_letter: DeadLetterChange::Keep,
        }
    }

    pub(super) fn finish(self) -> Change {
        let timer = match self.timer {
            Some(timer) => timer,
            None if self.waited && !self.progress.waits() => TimerChange::Clear,
            None => TimerChange::Keep,
        };
        Change {
            message_id: self.cause.message_id.map(str::to_owned),
            timer,
            messages: self.messages,
            dead_letter: self.dead_letter,
            ..change(self.process, &self.progress, self.log)
        }
    }

    // ---- where it stands ----------------------------------------------------------------------

    pub(super) fn steps(&self) -> &'a [Step] {
        &self.definition.0.steps
    }

    pub(super) fn stand_on_first_step(&mut self) {
        if let Some(first) = self.steps().first() {
            self.progress.at = Position::At(At::due(Way::Forward, &first.name));
        }
    }

    pub(super) fn call(&self, step: &str, way: Way) -> Option<&'a Call> {
        let step = self.steps().iter().find(|s| s.name == step)?;
        match way {
            Way::Forward => Some(&step.call),
            Way::Undo => step.compensation.as_ref(),
        }
    }

    /// The last completed step that can be compensated.
    pub(super) fn next_undo(&self) -> Option<&'a str> {
        let stands = |step: &&Step| self.progress.step(&step.name).state.stands();
        let steps = self.steps().iter().rev();
        steps.filter(stands).find(|s| s.compensation.is_some()).map(|s| s.name.as_str())
    }

    pub(super) fn is_at(&self, step: &str, way: Way) -> bool {
        matches!(&self.progress.at, Position::At(at) if at.way == way && at.step == step)
    }

    pub(super) fn is_stuck(&self) -> bool {
        matches!(&self.progress.at, Position::At(At { now: Now::Stuck, .. }))
    }

    pub(super) fn at_mut(&mut self) -> Option<&mut At> {
        match &mut self.progress.at {
            Position::At(at) => Some(at),
            _ => None,
        }
    }

    /// The id of the last command sent for a step.
    pub(super) fn last_command(&self, step: &str, way: Way) -> Uuid {
        command_id(self.process.process_id, step, way, self.progress.step(step).sent(way))
    }

    /// Which command an id is of.
    pub(super) fn command_of(&self, id: Uuid) -> Option<(&'a str, Way, u32)> {
        let ways = [Way::Forward, Way::Undo];
        // The last steps first: they are the likely ones.
        let steps = self.steps().iter().rev().map(|step| step.name.as_str());
        steps.flat_map(|step| ways.map(|way| (step, way))).find_map(|(step, way)| {
            let sent = self.progress.step(step).sent(way);
            attempt_of(id, self.process.process_id, step, way, sent).map(|n| (step, way, n))
        })
    }

    pub(super) fn set_state(&mut self, step: &str, state: StepState) {
        self.progress.step_mut(step).state = state;
    }

    // ---- what follows -------------------------------------------------------------------------

    pub(super) fn record(&mut self, event: ProcessEvent) {
        self.log.push(Entry::of(event));
    }

    pub(super) fn record_with(&mut self, event: ProcessEvent, note: &str) {
        self.log.push(Entry { note: Some(note.to_owned()), ..Entry::of(event) });
    }

    pub(super) fn set_timer(&mut self, timer: Option<Timer>) {
        self.timer = Some(timer.map_or(TimerChange::Clear, TimerChange::Set));
    }

    /// Opens a dead letter: an operator must decide.
    pub(super) fn raise(&mut self, failed_status: &'static str, problem: Problem) {
        let attempts = self.progress.failed();
        self.progress.raised = true;
        self.dead_letter = DeadLetterChange::Open { failed_status, problem, attempts };
    }

    /// Closes the open dead letter, if there is one.
    pub(super) fn settle(&mut self, closure: Closure, actor: &str, reason: &str) {
        if self.progress.raised {
            self.progress.raised = false;
            self.dead_letter = closed(closure, actor, reason);
        }
    }

    pub(super) fn settle_by_late_reply(&mut self) {
        self.settle(Closure::LateReply, SOURCE_SYSTEM, "a late reply");
    }

    /// Writes the operator to the first entry, unless that names one itself.
    pub(super) fn sign(&mut self, action: Action, actor: &str, reason: &str) {
        let signs_itself = matches!(action, Action::Pause | Action::Resume);
        if let Some(first) = self.log.first_mut().filter(|_| !signs_itself) {
            first.actor = Some(actor.to_owned());
            first.reason = Some(reason.to_owned());
        }
    }
}

/// The change to a process with this progress and these entries, and nothing else.
pub(super) fn change(mut process: Process, progress: &Progress, log: Vec<Entry>) -> Change {
    let from = process.version;
    process.status = progress.status();
    process.key_hold = process.key_hold.after(process.status);
    process.current_step = progress.current_step().map(str::to_owned);
    process.retries = progress.failed();
    process.progress = progress.to_json();
    process.version = from.saturating_add(i64::try_from(log.len()).unwrap_or(i64::MAX));
    Change {
        process,
        from,
        log,
        message_id: None,
        timer: TimerChange::Keep,
        messages: Vec::new(),
        dead_letter: DeadLetterChange::Keep,
        audit: None,
    }
}

pub(super) fn closed(closure: Closure, actor: &str, reason: &str) -> DeadLetterChange {
    DeadLetterChange::Close {
        closure,
        actor: text::fit(actor, MESSAGE_ID_MAX),
        reason: text::fit(reason, ERROR_MESSAGE_MAX),
    }
}

/// JSON for the log; what serde cannot hold as it is (a number of too many digits) is kept as text.
pub(in crate::process) fn value(json: &str) -> serde_json::Value {
    let held = Some(json).filter(|json| keeps_numbers(json));
    held.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_else(|| json.into())
}
