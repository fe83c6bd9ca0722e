//! A process in plain words: its start, its steps, and the end when one of them fails.

use relais_core::process::{
    declared::{DeclaredCall, DeclaredProcess, DeclaredStep},
    definition::{CallTarget, Correlate, KeyUse},
};

use super::retry;
use crate::settings::quantity::show_duration;

pub(super) fn process(process: &DeclaredProcess) -> Vec<String> {
    let business_key = match &process.business_key {
        None => "without a business key: each event starts one".to_owned(),
        Some(pick) => match process.key_use {
            KeyUse::Once => format!("business key {pick}: one process for each"),
            KeyUse::WhileOpen => format!("business key {pick}: one open process for each"),
        },
    };
    let mut lines = vec![format!("started by {}; {business_key}", any_of(&process.starts))];
    for (index, step) in process.steps.iter().enumerate() {
        lines.push(format!("{}. {}: {}", index + 1, step.name, sends(&step.call)));
        lines.extend(details(&step.call));
        if let Some(undo) = &step.compensation {
            lines.push(format!("   compensated by {}", sends(undo)));
            lines.extend(details(undo));
        }
    }
    lines.push(when_it_fails(&process.steps));
    lines
}

fn sends(call: &DeclaredCall) -> String {
    let payload = if call.payload.is_some() { ", payload by template" } else { "" };
    match &call.target {
        CallTarget::Destination(name) => format!("`{}` to `{name}`{payload}", call.command),
        CallTarget::Handler(name) => {
            format!("`{}` to handler `{name}`{payload}", call.command)
        }
    }
}

fn details(call: &DeclaredCall) -> [String; 2] {
    let timeout = match call.timeout {
        None => "no time-out: waits indefinitely for a reply".to_owned(),
        Some(limit) => format!("time-out {}", show_duration(limit)),
    };
    let attempts = format!("   {timeout}; {}", retry(&call.retry));
    if let CallTarget::Handler(_) = &call.target {
        return ["   the answer of the handler is the reply".to_owned(), attempts];
    }
    let mut replies = format!("completed by {}", any_of(&call.completed));
    for (types, what) in
        [(&call.failed, "fails permanently on"), (&call.retryable, "fails this attempt on")]
    {
        if !types.is_empty() {
            replies.push_str(&format!(", {what} {}", any_of(types)));
        }
    }
    let found = match &call.correlate {
        Correlate::ProcessId(pick) => format!("process id in {}", pick),
        Correlate::BusinessKey(pick) => format!("business key in {}", pick),
    };
    [format!("   {replies}; {found}"), attempts]
}

fn when_it_fails(steps: &[DeclaredStep]) -> String {
    let undone: Vec<&str> = steps
        .iter()
        .rev()
        .filter(|step| step.compensation.is_some())
        .map(|step| step.name.as_str())
        .collect();
    if undone.is_empty() {
        return "a step that fails permanently ends it as FAILED; no step has a compensation"
            .to_owned();
    }
    format!("a step that fails permanently compensates those before it: {}", undone.join(", then "))
}

fn any_of(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ")
}
