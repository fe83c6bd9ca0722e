//! Whether the parts of a definition fit together. One sentence for each thing that is wrong, naming the
//! step it is wrong in.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use super::{
    TIMER_FIRED,
    definition::{Call, CallTarget, Correlate, DefinitionParts, Reply},
    handler_step::is_answer,
};
use crate::{extract::Pick, text::MESSAGE_ID_MAX};

/// Most steps of a process.
pub const STEPS_MAX: usize = 100;

/// Everything that is wrong.
pub(super) fn check(parts: &DefinitionParts) -> Vec<String> {
    let mut check = Check::default();
    check.name("process type", &parts.process_type);
    if parts.version < 1 {
        check.errors.push(format!("version {} must be at least 1", parts.version));
    }
    for start in &parts.starts {
        check.event_type("start", &start.event_type);
        if is_answer(&start.event_type) {
            check.errors.push(format!("start type `{}` is reserved for relais", start.event_type));
        }
        if !check.starts.insert(&start.event_type) {
            check.errors.push(format!("starts on `{}` twice", start.event_type));
        }
    }
    if parts.steps.is_empty() {
        check.errors.push("has no steps".to_owned());
    }
    if parts.steps.len() > STEPS_MAX {
        let found = parts.steps.len();
        check.errors.push(format!("has {found} steps, at most {STEPS_MAX} are allowed"));
    }
    let mut names = HashSet::new();
    for step in &parts.steps {
        let place = format!("step `{}`", step.name);
        if !is_step_name(&step.name) {
            let text = "its name needs 1 to 200 letters, digits, `-`, `_` or `.`";
            check.errors.push(format!("{place}: {text}"));
        }
        if !names.insert(&step.name) {
            check.errors.push(format!("{place}: there are two steps with this name"));
        }
        check.call(&place, &step.call);
        if let Some(undo) = &step.compensation {
            check.call(&format!("{place}, compensation"), undo);
        }
    }
    check.errors
}

/// A step's name stands in headers, pointers and diagrams.
fn is_step_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=MESSAGE_ID_MAX).contains(&name.len()) && name.chars().all(fits)
}

#[derive(Default)]
struct Check<'a> {
    errors: Vec<String>,
    starts: HashSet<&'a str>,
    /// The correlation of each reply type, and the place that declares it first.
    correlates: HashMap<&'a str, (&'a Correlate, String)>,
}

impl<'a> Check<'a> {
    fn call(&mut self, place: &str, call: &'a Call) {
        match &call.target {
            CallTarget::Destination(name) => self.name(&format!("{place}: destination"), name),
            CallTarget::Handler(name) => self.name(&format!("{place}: handler"), name),
        }
        self.name(&format!("{place}: command"), &call.command);
        if call.timeout == Some(Duration::ZERO) {
            self.errors.push(format!("{place}: a time-out of zero leaves no time to answer"));
        }
        if call.replies.is_empty() {
            self.errors.push(format!("{place}: waits for no reply, so it would never end"));
        }
        let mut types = HashSet::new();
        for reply in &call.replies {
            if !types.insert(reply.event_type.as_str()) {
                let text = "has two meanings here; keep one";
                self.errors.push(format!("{place}: reply `{}` {text}", reply.event_type));
            }
            self.reply(place, reply);
            let is_handler = matches!(call.target, CallTarget::Handler(_));
            if is_handler != is_answer(&reply.event_type) {
                let text = match is_handler {
                    true => "is not an answer of a handler; remove it",
                    false => "is an answer of a handler; name the handler instead of a destination",
                };
                self.errors.push(format!("{place}: reply `{}` {text}", reply.event_type));
            }
        }
    }

    fn reply(&mut self, place: &str, reply: &'a Reply) {
        let Reply { event_type, correlate, .. } = reply;
        self.event_type(&format!("{place}: reply"), event_type);
        if self.starts.contains(event_type.as_str()) {
            let text = "starts the process too; use another type for one of them";
            self.errors.push(format!("{place}: reply `{event_type}` {text}"));
        }
        if matches!(correlate, Correlate::ProcessId(pick) | Correlate::BusinessKey(pick) if *pick == Pick::Position)
        {
            let text =
                "does not find its process by `position`; use `header:`, `payload:` or `key`";
            self.errors.push(format!("{place}: reply `{event_type}` {text}"));
        }
        match self.correlates.get(event_type.as_str()) {
            Some((other, there)) if *other != correlate => self.errors.push(format!(
                "{place}: reply `{event_type}` finds its process in another way than in {there}; use one way"
            )),
            Some(_) => {}
            None => {
                self.correlates.insert(event_type, (correlate, place.to_owned()));
            }
        }
    }

    fn event_type(&mut self, what: &str, event_type: &str) {
        self.name(&format!("{what} type"), event_type);
        if event_type == TIMER_FIRED {
            self.errors.push(format!("{what} type `{TIMER_FIRED}` is reserved for relais"));
        }
    }

    /// Refuses a name that a column, header or page cannot hold.
    fn name(&mut self, what: &str, name: &str) {
        if name.trim().is_empty() {
            self.errors.push(format!("{what} is empty"));
        } else if name.chars().any(char::is_control) {
            self.errors.push(format!("{what} `{}` has a control character", name.escape_debug()));
        } else if name.chars().count() > MESSAGE_ID_MAX {
            self.errors.push(format!("{what} is longer than {MESSAGE_ID_MAX} characters"));
        }
    }
}
