//! A process without a database: the test delivers replies and advances the time.
//!
//! Invariant: everything that happens goes through the same pure functions as in the engine
//! ([`relais_core::process`]); only what a store keeps is kept here.

use std::time::Duration;

use relais_core::{
    delivery::Problem,
    inbox::{InboxRow, NewInbox},
    message::{Headers, NewMessage},
    process::{
        Action, Change, DeadLetterChange, Definition, Entry, Input, Process, ProcessRef,
        ProcessStatus, Timer, TimerChange, advance, definition::Concern, start,
    },
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Most timers that fire in one [`ProcessRun::advance`].
const FIRED_MAX: usize = 10_000;

/// One process of a definition, run step by step.
///
/// An input that it rejects is a [`Problem`], as it would be in the inbox.
#[derive(Debug)]
pub struct ProcessRun {
    definition: Definition,
    process: Process,
    /// The one timer, and when it is due.
    timer: Option<(Duration, Timer)>,
    now: Duration,
    log: Vec<Entry>,
    commands: Vec<NewMessage>,
    /// Number of commands that the test has seen.
    seen: usize,
    problem: Option<Problem>,
    /// Messages delivered so far; each has an id of its own.
    messages: usize,
}

impl ProcessRun {
    /// Starts a process with this event.
    pub fn start(
        definition: &Definition,
        event_type: &str,
        payload: Value,
    ) -> Result<Self, Problem> {
        let row = row(0, event_type, &payload, Headers::default());
        let change = start(definition, &row)?;
        let mut run = Self {
            definition: definition.clone(),
            process: change.process.clone(),
            timer: None,
            now: Duration::ZERO,
            log: Vec::new(),
            commands: Vec::new(),
            seen: 0,
            problem: None,
            messages: 0,
        };
        run.apply(change);
        Ok(run)
    }

    /// Returns the commands it has sent since the last call.
    pub fn commands(&mut self) -> Vec<NewMessage> {
        let new = self.commands[self.seen..].to_vec();
        self.seen = self.commands.len();
        new
    }

    /// Delivers a reply to its last command.
    ///
    /// # Panics
    /// If it has sent none, or the reply would not find it.
    pub fn reply(&mut self, event_type: &str, payload: Value) -> Result<(), Problem> {
        let command = self.commands.last().cloned().expect("a command was sent before its reply");
        self.reply_to(&command, event_type, payload)
    }

    /// Delivers a reply to an earlier command: late, or once more.
    ///
    /// # Panics
    /// If the reply would not find this process.
    pub fn reply_to(
        &mut self,
        command: &NewMessage,
        event_type: &str,
        payload: Value,
    ) -> Result<(), Problem> {
        self.messages += 1;
        let mut headers = Headers::default();
        headers.set("correlation-id", &self.process.process_id.to_string());
        headers.set("causation-id", &command.message_id.to_string());
        let row = row(self.messages, event_type, &payload, headers);
        self.expect_to_be_meant(&row);
        self.take(&Input::Reply(&row))
    }

    /// Advances the time; timers that become due fire, each at its time.
    ///
    /// # Panics
    /// If its timers never end.
    pub fn advance(&mut self, by: Duration) -> Result<(), Problem> {
        let until = self.now + by;
        for _ in 0..FIRED_MAX {
            let Some((due, timer)) = self.timer.take_if(|(due, _)| *due <= until) else {
                self.now = until;
                return Ok(());
            };
            self.now = due;
            let message_id = format!("timer:{}", timer.command_id);
            let (step, command_id) = (timer.step.as_str(), timer.command_id);
            self.take(&Input::Timer { step, command_id, message_id: &message_id })?;
        }
        panic!("more than {FIRED_MAX} timers fired in {by:?}");
    }

    /// Applies an operator's decision.
    pub fn act(&mut self, action: Action, actor: &str, reason: &str) -> Result<(), Problem> {
        self.take(&Input::Action { action, actor, reason })
    }

    /// Returns the status of the process.
    pub fn status(&self) -> ProcessStatus {
        self.process.status
    }

    /// Returns its current step.
    pub fn step(&self) -> Option<&str> {
        self.process.current_step.as_deref()
    }

    /// Returns its data.
    ///
    /// # Panics
    /// If the data is no `T`.
    pub fn data<T: DeserializeOwned>(&self) -> T {
        serde_json::from_str(&self.process.data).expect("the data of the process is a T")
    }

    /// Returns its log, oldest entry first.
    pub fn log(&self) -> &[Entry] {
        &self.log
    }

    /// Returns the problem of its open dead letter.
    pub fn dead_letter(&self) -> Option<&Problem> {
        self.problem.as_ref()
    }

    /// Returns the time until its timer fires.
    pub fn timer(&self) -> Option<Duration> {
        self.timer.as_ref().map(|(due, _)| due.saturating_sub(self.now))
    }

    fn take(&mut self, input: &Input<'_>) -> Result<(), Problem> {
        // Pauses are as short as possible: jitter only makes them longer.
        let change = advance(&self.definition, &self.process, input, 0.0)?;
        self.apply(change);
        Ok(())
    }

    fn apply(&mut self, change: Change) {
        self.process = change.process;
        self.log.extend(change.log);
        self.commands.extend(change.messages);
        match change.timer {
            TimerChange::Keep => {}
            TimerChange::Clear => self.timer = None,
            TimerChange::Set(timer) => self.timer = Some((self.now + timer.after, timer)),
        }
        match change.dead_letter {
            DeadLetterChange::Keep => {}
            DeadLetterChange::Open { problem, .. } => self.problem = Some(problem),
            DeadLetterChange::Close { .. } => self.problem = None,
        }
    }

    fn expect_to_be_meant(&self, row: &InboxRow) {
        let event_type = row.event_type.as_deref().unwrap_or_default();
        let found = match self.definition.concern(row) {
            Some(Ok(Concern::Reply(found))) => found,
            Some(Ok(Concern::Start { .. })) => panic!("`{event_type}` starts another process"),
            Some(Err(problem)) => panic!("`{event_type}` finds no process: {}", problem.message),
            None => panic!("`{event_type}` means nothing to `{}`", self.process.process_type),
        };
        let meant = match &found {
            ProcessRef::Id(id) => *id == self.process.process_id,
            ProcessRef::Key { business_key, .. } => {
                self.process.business_key.as_ref() == Some(business_key)
            }
        };
        assert!(meant, "`{event_type}` is a reply for another process: {found:?}");
    }
}

fn row(number: usize, event_type: &str, payload: &Value, headers: Headers) -> InboxRow {
    let message = NewInbox::new("test", &format!("m-{number}"), event_type, &payload.to_string());
    InboxRow::received(0, NewInbox { headers, ..message })
}
