//! A world for one process: it holds its timer, log and messages as a store would, and checks with every
//! change what must hold after each.

mod actions;
mod compensation;
mod declared;
mod diagram;
mod flow;
mod handler_step;
mod pause;
mod property;
mod replay;
mod replies;
mod typed;

use std::time::Duration;

use serde_json::json;
use uuid::Uuid;

use super::{
    Action, Change, Closure, DeadLetterChange, Definition, Entry, Input, LogEntry, Process,
    ProcessEvent, ProcessStatus, Progress, Timer, TimerChange, advance,
    declared::{DeclaredCall, DeclaredProcess, DeclaredStep},
    definition::{CallTarget, Correlate, KeyUse},
    replay, start,
};
use crate::{
    delivery::Problem,
    inbox::{InboxRow, NewInbox},
    message::NewMessage,
    retry::RetryPolicy,
    time::Timestamp,
};

/// A row as it would come from outside.
fn row(message_id: &str, event_type: &str, payload: &str) -> InboxRow {
    let message = NewInbox::new("shop", message_id, event_type, "{}").key("k");
    InboxRow { payload: Some(payload.into()), ..InboxRow::received(1, message) }
}

/// A command `NAME` to destination `NAMEs`, answered by `NAMEDone`, `NAMEFailed` or `NAMEBusy`.
fn call(name: &str) -> DeclaredCall {
    DeclaredCall {
        target: CallTarget::Destination(format!("{name}s")),
        command: name.to_owned(),
        payload: None,
        completed: vec![format!("{name}Done")],
        failed: vec![format!("{name}Failed")],
        retryable: vec![format!("{name}Busy")],
        error: Some("payload:/why".parse().unwrap()),
        correlate: Correlate::default(),
        timeout: Some(Duration::from_secs(30)),
        retry: RetryPolicy { attempts_max: 2, ..RetryPolicy::default() },
    }
}

fn step(name: &str, undo: Option<&str>) -> DeclaredStep {
    DeclaredStep { name: name.to_owned(), call: call(name), compensation: undo.map(call) }
}

/// Started by `Placed`: `pay` (undone by `refund`), `pack` (stands), `ship` (undone by `recall`).
fn declared() -> DeclaredProcess {
    DeclaredProcess {
        process_type: "Order".to_owned(),
        version: 1,
        starts: vec!["Placed".to_owned()],
        business_key: Some("payload:/id".parse().unwrap()),
        key_use: KeyUse::Once,
        steps: vec![step("pay", Some("refund")), step("pack", None), step("ship", Some("recall"))],
    }
}

/// One process and what a store would keep of it.
struct World {
    definition: Definition,
    process: Process,
    timer: Option<Timer>,
    log: Vec<Entry>,
    sent: Vec<NewMessage>,
    /// The status of the open dead letter.
    dead_letter: Option<&'static str>,
    /// The last change.
    last: Change,
    messages: u32,
    /// The test has changed the stored state, so that it may differ from the log.
    changed_by_hand: bool,
}

impl World {
    fn start() -> Self {
        Self::start_with(declared().build().unwrap(), &row("m-0", "Placed", r#"{"id":"O-1"}"#))
    }

    fn start_with(definition: Definition, row: &InboxRow) -> Self {
        let change = start(&definition, row).unwrap();
        Self::of(definition, change)
    }

    fn of(definition: Definition, change: Change) -> Self {
        let mut world = Self {
            definition,
            process: Process { version: 0, ..change.process.clone() },
            timer: None,
            log: Vec::new(),
            sent: Vec::new(),
            dead_letter: None,
            last: change.clone(),
            messages: 0,
            changed_by_hand: false,
        };
        world.apply(change);
        world
    }

    /// Carries a change out like a store, checking what every change must keep to.
    fn apply(&mut self, change: Change) {
        assert_eq!(change.from, self.process.version, "made from another version");
        assert!(!change.log.is_empty(), "a change without a log entry");
        assert_eq!(change.process.version, change.from + i64::try_from(change.log.len()).unwrap());
        let progress: Progress = serde_json::from_str(&change.process.progress).unwrap();
        assert_eq!(serde_json::to_string(&progress).unwrap(), change.process.progress);
        match &change.timer {
            TimerChange::Keep => {}
            TimerChange::Clear => self.timer = None,
            TimerChange::Set(timer) => self.timer = Some(timer.clone()),
        }
        match &change.dead_letter {
            DeadLetterChange::Keep => {}
            DeadLetterChange::Open { failed_status, .. } => self.dead_letter = Some(failed_status),
            DeadLetterChange::Close { .. } => self.dead_letter = None,
        }
        self.process = change.process.clone();
        self.log.extend(change.log.clone());
        self.sent.extend(change.messages.clone());
        self.last = change;
        self.replay();
    }

    /// Checks that the log alone leads to the state.
    fn replay(&self) {
        let replayed = replay(&self.definition, &self.numbered_log()).unwrap();
        let differences = replayed.differences(&self.definition, &self.process);
        assert!(self.changed_by_hand || differences.is_empty(), "{differences:#?}\n{:#?}", self.log);
    }

    fn numbered_log(&self) -> Vec<LogEntry> {
        let numbered = (1..).zip(self.log.iter().cloned());
        let entries = numbered.map(|(seq, entry)| LogEntry {
            process_id: self.process.process_id,
            seq,
            at: Timestamp(seq),
            message_id: None,
            entry,
        });
        entries.collect()
    }

    fn take(&mut self, input: &Input<'_>) -> Result<(), Problem> {
        let change = advance(&self.definition, &self.process, input, 0.5)?;
        assert_eq!(Ok(&change), advance(&self.definition, &self.process, input, 0.5).as_ref());
        self.apply(change);
        Ok(())
    }

    /// A reply that names the process, and the command if it is given.
    fn reply_row(&mut self, event_type: &str, command: Option<Uuid>) -> InboxRow {
        self.messages += 1;
        let payload = json!({"n": self.messages, "why": "no luck"}).to_string();
        let mut row = row(&format!("m-{}", self.messages), event_type, &payload);
        row.headers.set("correlation-id", &self.process.process_id.to_string());
        if let Some(command) = command {
            row.headers.set("causation-id", &command.to_string());
        }
        row
    }

    fn try_reply(&mut self, event_type: &str, command: Option<Uuid>) -> Result<(), Problem> {
        let row = self.reply_row(event_type, command);
        self.take(&Input::Reply(&row))
    }

    fn reply(&mut self, event_type: &str) -> &mut Self {
        self.try_reply(event_type, None).unwrap();
        self
    }

    /// A reply to the `nth` (from 0) message sent.
    fn reply_to(&mut self, nth: usize, event_type: &str) -> &mut Self {
        let command = self.sent[nth].message_id;
        self.try_reply(event_type, Some(command)).unwrap();
        self
    }

    fn fire(&mut self) -> &mut Self {
        let timer = self.timer.take().expect("no timer is set");
        self.fire_again(&timer)
    }

    fn fire_again(&mut self, timer: &Timer) -> &mut Self {
        let message_id = format!("timer:{}", timer.command_id);
        let Timer { step, command_id, .. } = timer;
        let input = Input::Timer { step, command_id: *command_id, message_id: &message_id };
        self.take(&input).unwrap();
        self
    }

    fn try_act(&mut self, action: Action) -> Result<(), Problem> {
        self.take(&Input::Action { action, actor: "ann", reason: "because" })
    }

    fn act(&mut self, action: Action) -> &mut Self {
        self.try_act(action).unwrap();
        self
    }

    /// Replies that each of these steps is done.
    fn completed(&mut self, steps: &[&str]) -> &mut Self {
        for step in steps {
            self.reply(&format!("{step}Done"));
        }
        self
    }

    fn status(&self) -> ProcessStatus {
        self.process.status
    }

    /// The commands sent so far.
    fn commands(&self) -> Vec<&str> {
        self.sent.iter().map(|message| message.event_type.as_str()).collect()
    }

    /// The log in short: `StepStarted pay`.
    fn told(&self) -> Vec<String> {
        self.log.iter().map(|entry| tell(&entry.event)).collect()
    }

    fn note(&self) -> &str {
        self.last.log[0].note.as_deref().unwrap_or_default()
    }

    /// Returns true if the last change did nothing but write the log.
    fn only_logged(&self) -> bool {
        let Change { messages, timer, dead_letter, log, .. } = &self.last;
        messages.is_empty()
            && *timer == TimerChange::Keep
            && *dead_letter == DeadLetterChange::Keep
            && log.len() == 1
            && log[0].note.as_deref().is_some_and(|note| note.starts_with("ignored: "))
    }
}

fn tell(event: &ProcessEvent) -> String {
    let json = serde_json::to_value(event).unwrap();
    match json["step"].as_str() {
        Some(step) => format!("{} {step}", event.name()),
        None => event.name().to_owned(),
    }
}
