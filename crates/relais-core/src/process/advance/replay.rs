//! The state of a process, from its log alone.
//!
//! [`replay`] shares no code with the decisions that wrote the log, so that a difference from the stored
//! state shows a mistake in one of the two, or a row that was changed by hand.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::progress::{Progress, StepProgress, StepState, Way};
use crate::{
    delivery::Problem,
    process::{
        Definition, Entry, LogEntry, PROCESS_STATE, Process, ProcessEvent, ProcessStatus,
        SOURCE_SYSTEM, definition::Step,
    },
};

/// The state of a process that its log leads to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplayedProcess {
    /// The name of its type.
    pub process_type: String,
    /// The business key.
    pub business_key: Option<String>,
    /// The state.
    pub status: ProcessStatus,
    /// The step that is in flight, or that failed.
    pub current_step: Option<String>,
    /// Attempts of that step that did not succeed.
    pub retries: u32,
    /// The number of entries.
    pub version: i64,
    /// The data, if the process is declared in TOML. Functions of a Rust definition may take more from a reply
    /// than the log has.
    pub data: Option<Value>,
    /// The steps that were begun or skipped.
    pub steps: BTreeMap<String, ReplayedStep>,
}

/// One step, from the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReplayedStep {
    /// `open`, `completed`, `skipped` or `undone`.
    pub state: &'static str,
    /// Commands sent to do it.
    pub sent: u32,
    /// Commands sent to compensate it.
    pub compensations_sent: u32,
}

/// A difference between the log of a process and its stored state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReplayDifference {
    /// The name of the column, or of the step.
    pub field: String,
    /// The value according to the log.
    pub log: String,
    /// The stored value.
    pub stored: String,
}

/// Returns the state that a log leads to. `log` is complete, oldest entry first; the error says what it lacks.
pub fn replay(definition: &Definition, log: &[LogEntry]) -> Result<ReplayedProcess, Problem> {
    let refuse = |why: String| Problem::new(PROCESS_STATE, &why);
    for (number, entry) in (1_i64..).zip(log) {
        if entry.seq != number {
            return Err(refuse(format!("entry {number} of the log is missing")));
        }
    }
    let first = log.first().map(|entry| &entry.entry.event);
    let Some(ProcessEvent::ProcessStarted { process_type, business_key, initial_data }) = first
    else {
        return Err(refuse("the log does not begin with `ProcessStarted`".to_owned()));
    };
    let mut fold = Fold {
        definition: &definition.0.steps,
        at: None,
        end: None,
        paused: false,
        steps: BTreeMap::new(),
        data: definition.0.replay_data.map(|data| data.initial(initial_data)),
    };
    for entry in log {
        fold.apply(&entry.entry);
    }
    let status = fold.status();
    let is_over = matches!(status, ProcessStatus::Succeeded | ProcessStatus::Compensated);
    let at = fold.at.as_ref().filter(|_| !is_over);
    let current_step = match &fold.end {
        Some(End::Failed(step)) => step.clone(),
        _ => at.map(|at| at.step.clone()),
    };
    Ok(ReplayedProcess {
        process_type: process_type.clone(),
        business_key: business_key.clone(),
        status,
        current_step,
        retries: at.map_or(0, |at| at.failed),
        version: i64::try_from(log.len()).unwrap_or(i64::MAX),
        steps: fold.steps.iter().map(|(name, step)| (name.clone(), shown(step))).collect(),
        data: fold.data,
    })
}

impl ReplayedProcess {
    /// Returns how the stored process differs from this.
    pub fn differences(&self, definition: &Definition, stored: &Process) -> Vec<ReplayDifference> {
        let mut found = Vec::new();
        let mut compare = |field: &str, log: String, stored: String| {
            if log != stored {
                found.push(ReplayDifference { field: field.to_owned(), log, stored });
            }
        };
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
        compare("process_type", self.process_type.clone(), stored.process_type.clone());
        compare("business_key", text(&self.business_key), text(&stored.business_key));
        compare("status", self.status.as_str().to_owned(), stored.status.as_str().to_owned());
        compare("current_step", text(&self.current_step), text(&stored.current_step));
        compare("retries", self.retries.to_string(), stored.retries.to_string());
        compare("version", self.version.to_string(), stored.version.to_string());
        if let (Some(data), Some(reader)) = (&self.data, definition.0.replay_data) {
            compare("data", data.to_string(), reader.stored(&stored.data).to_string());
        }
        match Progress::read(stored) {
            Err(problem) => compare("progress", "valid".to_owned(), problem.message),
            Ok(progress) => {
                let kept = progress.steps.iter().map(|(name, step)| (name.clone(), shown(step)));
                let kept: BTreeMap<_, _> = kept.collect();
                let names = self.steps.keys().chain(kept.keys());
                for name in names.collect::<std::collections::BTreeSet<_>>() {
                    let line = |steps: &BTreeMap<String, ReplayedStep>| {
                        steps.get(name).map_or_else(|| "none".to_owned(), ReplayedStep::line)
                    };
                    compare(&format!("step {name}"), line(&self.steps), line(&kept));
                }
            }
        }
        found
    }
}

impl ReplayedStep {
    fn line(&self) -> String {
        let Self { state, sent, compensations_sent } = self;
        format!("{state}, {sent} sent, {compensations_sent} compensations sent")
    }
}

fn shown(step: &StepProgress) -> ReplayedStep {
    let state = match step.state {
        StepState::Open => "open",
        StepState::Completed => "completed",
        StepState::Skipped => "skipped",
        StepState::Undone => "undone",
    };
    ReplayedStep { state, sent: step.sent, compensations_sent: step.undo_sent }
}

/// The step a process stands on, according to the entries so far.
#[derive(Clone, Debug)]
struct Spot {
    way: Way,
    step: String,
    failed: u32,
    done: bool,
}

enum End {
    Succeeded,
    /// The step that an operator may retry.
    Failed(Option<String>),
}

struct Fold<'a> {
    definition: &'a [Step],
    at: Option<Spot>,
    end: Option<End>,
    paused: bool,
    steps: BTreeMap<String, StepProgress>,
    data: Option<Value>,
}

impl Fold<'_> {
    fn apply(&mut self, entry: &Entry) {
        use ProcessEvent as E;
        let note = entry.note.as_deref().unwrap_or_default();
        if note.starts_with("ignored") {
            return;
        }
        let by_operator = entry.actor.is_some();
        match &entry.event {
            E::ProcessStarted { .. } => {}
            E::StepStarted { step, .. } => {
                self.steps.entry(step.clone()).or_default().sent += 1;
                self.begin(Way::Forward, step, by_operator);
            }
            E::CompensationStarted { step, .. } => {
                self.steps.entry(step.clone()).or_default().undo_sent += 1;
                self.begin(Way::Undo, step, by_operator);
            }
            E::StepCompleted { step, result_data, .. } => self.complete(step, result_data, note),
            E::CompensationCompleted { step, .. } => {
                self.steps.entry(step.clone()).or_default().state = StepState::Undone;
                if let Some(at) = self.at.as_mut().filter(|_| !note.starts_with("late")) {
                    at.done = true;
                }
            }
            E::StepFailed { .. } | E::StepTimedOut { .. } | E::CompensationFailed { .. } => {
                if let Some(at) = &mut self.at {
                    at.failed += 1;
                }
            }
            E::ProcessCompleted { .. } => (self.paused, self.end) = (false, Some(End::Succeeded)),
            E::ProcessFailed { .. } => {
                let open = self.at.as_ref().filter(|at| at.way == Way::Forward);
                let open = open.map(|at| at.step.clone());
                let open = open.filter(|step| self.state(step) == StepState::Open);
                (self.paused, self.end) = (false, Some(End::Failed(open)));
            }
            E::ProcessPaused { reason, paused_by } => {
                if let Some((way, step)) = held(reason).filter(|_| paused_by == SOURCE_SYSTEM) {
                    self.begin(way, step, by_operator);
                }
                self.paused = true;
            }
            E::ProcessResumed { .. } => self.paused = false,
        }
    }

    /// Stands on a step whose command is sent, or could not be made.
    fn begin(&mut self, way: Way, step: &str, by_operator: bool) {
        let before = self.at.take().filter(|at| (at.way, at.step.as_str()) == (way, step));
        let again = before.filter(|_| self.end.is_none() && !by_operator);
        let failed = again.map_or(0, |at| at.failed);
        self.at = Some(Spot { way, step: step.to_owned(), failed, done: false });
        (self.end, self.paused) = (None, false);
    }

    fn complete(&mut self, step: &str, result: &Value, note: &str) {
        if note == "skipped" {
            if self.end.take().is_some() {
                self.begin(Way::Forward, step, true);
            }
            self.steps.entry(step.to_owned()).or_default().state = StepState::Skipped;
            if let Some(at) = &mut self.at {
                at.done = true;
            }
            return;
        }
        let was_skipped = self.state(step) == StepState::Skipped;
        self.steps.entry(step.to_owned()).or_default().state = StepState::Completed;
        if let Some(steps) = self.data.as_mut().and_then(|data| data["steps"].as_object_mut()) {
            steps.insert(step.to_owned(), result.clone());
        }
        if note.starts_with("late: the process had ended") {
            let paused = self.paused;
            self.begin(Way::Undo, step, true);
            self.paused = paused;
        } else if !was_skipped
            && self.end.is_none()
            && let Some(at) = &mut self.at
            && (at.way, at.step.as_str()) == (Way::Forward, step)
        {
            at.done = true;
        }
    }

    fn state(&self, step: &str) -> StepState {
        self.steps.get(step).map_or(StepState::Open, |step| step.state)
    }

    fn status(&self) -> ProcessStatus {
        let undo_left =
            |step: &Step| step.compensation.is_some() && self.state(&step.name).stands();
        match (&self.end, &self.at) {
            _ if self.paused => ProcessStatus::Paused,
            (Some(End::Succeeded), _) => ProcessStatus::Succeeded,
            (Some(End::Failed(_)), _) => ProcessStatus::Failed,
            (None, None) => ProcessStatus::New,
            (None, Some(Spot { way: Way::Forward, .. })) => ProcessStatus::Running,
            (None, Some(at)) if at.done && !self.definition.iter().any(undo_left) => {
                ProcessStatus::Compensated
            }
            (None, Some(_)) => ProcessStatus::Compensating,
        }
    }
}

/// Returns the step whose command could not be made, from the reason of the pause.
fn held(reason: &str) -> Option<(Way, &str)> {
    let place = reason.strip_prefix("the command of ")?;
    let (way, place) = match place.strip_prefix("the compensation of ") {
        Some(place) => (Way::Undo, place),
        None => (Way::Forward, place),
    };
    Some((way, place.strip_prefix("step `")?.split_once('`')?.0))
}
