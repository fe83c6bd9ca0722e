//! Processes written down without code: payload templates over what came in.
//!
//! The data of such a process is `{"input": the starting payload, "steps": {"name": the reply's payload}}`,
//! and its templates point into that: `{{/input/orderId}}`, `{{/steps/payment/paymentId}}`. A pointer to
//! nothing is an error, never a silent `null`.

mod template;

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use super::{
    PROCESS_STATE,
    advance::value,
    definition::{
        Call, CallTarget, Correlate, Definition, DefinitionParts, JudgeFn, KeyUse, Meaning,
        PayloadFn, ProcessStart, ReplayData, Reply, StartEvent, Step,
    },
    handler_step::{HANDLER_DONE, HANDLER_FAILED},
};
use crate::{
    delivery::Problem,
    extract::Pick,
    inbox::InboxRow,
    json,
    retry::RetryPolicy,
    text::{self, MESSAGE_ID_MAX},
};

/// `[[process]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredProcess {
    /// The name of the type of process.
    pub process_type: String,
    /// The version of the definition.
    pub version: i32,
    /// Event types that start one.
    pub starts: Vec<String>,
    /// The place of the business key in them; absent: it has none.
    pub business_key: Option<Pick>,
    /// The time after which a business key can be used again.
    pub key_use: KeyUse,
    /// The steps, in order.
    pub steps: Vec<DeclaredStep>,
}

/// `[[process.step]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredStep {
    /// The name of the step.
    pub name: String,
    /// The command of the step and its replies.
    pub call: DeclaredCall,
    /// The command that compensates the step.
    pub compensation: Option<DeclaredCall>,
}

/// A command and its answers: of a step, or `[process.step.compensation]`.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredCall {
    /// The receiver of the command. A handler answers the call, so it has no reply types.
    pub target: CallTarget,
    /// The event type of the command.
    pub command: String,
    /// A JSON template; absent: the whole data.
    pub payload: Option<String>,
    /// Replies that mean done.
    pub completed: Vec<String>,
    /// Replies that mean failed for good.
    pub failed: Vec<String>,
    /// Replies that mean failed for now.
    pub retryable: Vec<String>,
    /// The place of the reason in a failing reply.
    pub error: Option<Pick>,
    /// The rule by which replies find the process.
    pub correlate: Correlate,
    /// Without a reply within this time the attempt counts as failed, retryably.
    pub timeout: Option<Duration>,
    /// The number of attempts and the pauses between them.
    pub retry: RetryPolicy,
}

impl DeclaredProcess {
    /// The definition, or everything that is wrong with it.
    pub fn build(self) -> Result<Definition, Vec<String>> {
        let mut errors = self.check();
        let Self { process_type, version, starts, business_key, key_use, steps } = self;
        let starts = starts.into_iter().map(|event_type| StartEvent {
            event_type,
            begin: {
                let business_key = business_key.clone();
                Box::new(move |row| begin(business_key.as_ref(), row))
            },
        });
        let parts = DefinitionParts {
            process_type,
            version,
            starts: starts.collect(),
            key_use,
            adopt: Box::new(first_data),
            steps: steps.into_iter().map(step).collect(),
            replay_data: Some(ReplayData { initial: initial_value, stored: stored_value }),
        };
        match Definition::new(parts) {
            Ok(definition) if errors.is_empty() => Ok(definition),
            Ok(_) => Err(errors),
            Err(more) => {
                errors.splice(..0, more);
                Err(errors)
            }
        }
    }

    /// Returns the errors that only a declared process can have.
    fn check(&self) -> Vec<String> {
        let mut errors = Vec::new();
        if self.starts.is_empty() {
            errors.push("starts on no event type, so there would never be one".to_owned());
        }
        if self.business_key == Some(Pick::Position) {
            let text = "the business key cannot be `position`; use `header:`, `payload:` or `key`";
            errors.push(text.to_owned());
        }
        let names: Vec<&str> = self.steps.iter().map(|step| step.name.as_str()).collect();
        for (index, step) in self.steps.iter().enumerate() {
            let place = format!("step `{}`", step.name);
            errors.extend(self.check_call(&place, &step.call, &names[..index]));
            if let Some(undo) = &step.compensation {
                // It runs when its own step is done, perhaps none of the later ones.
                let place = format!("{place}, compensation");
                errors.extend(self.check_call(&place, undo, &names[..=index]));
            }
        }
        errors
    }

    fn check_call(&self, place: &str, call: &DeclaredCall, known: &[&str]) -> Vec<String> {
        let mut errors = Vec::new();
        let has_replies =
            [&call.completed, &call.failed, &call.retryable].iter().any(|types| !types.is_empty());
        match &call.target {
            CallTarget::Destination(_) if call.completed.is_empty() => {
                errors
                    .push(format!("{place}: no reply means completed, so it could never succeed"));
            }
            CallTarget::Handler(_) if has_replies => {
                let text = "the answer of a handler is the reply; remove the reply types";
                errors.push(format!("{place}: {text}"));
            }
            _ => {}
        }
        if matches!(call.correlate, Correlate::BusinessKey(_)) && self.business_key.is_none() {
            let text = "replies find the process by its business key, but it has none; \
                        say where the business key is";
            errors.push(format!("{place}: {text}"));
        }
        let template = call.payload.as_deref().map(|payload| template::check(payload, known));
        errors.extend(template.into_iter().flatten().map(|error| format!("{place}: {error}")));
        errors
    }
}

fn step(declared: DeclaredStep) -> Step {
    let DeclaredStep { name, call, compensation } = declared;
    let completed = {
        let name = name.clone();
        move |data: &str, row: &InboxRow| {
            let mut data = DeclaredData::read(data)?;
            data.steps.insert(name.clone(), raw(payload_of(row))?);
            Ok((data.to_json(), Meaning::Completed))
        }
    };
    // What a compensation answers is in the log; no template asks for it.
    let undone = |data: &str, _: &InboxRow| Ok((data.to_owned(), Meaning::Completed));
    Step {
        call: build_call(call, move || Box::new(completed.clone())),
        compensation: compensation.map(|undo| build_call(undo, move || Box::new(undone))),
        name,
    }
}

fn build_call(mut declared: DeclaredCall, completed: impl Fn() -> JudgeFn) -> Call {
    if let CallTarget::Handler(_) = &declared.target {
        declared.completed = vec![HANDLER_DONE.to_owned()];
        declared.failed = vec![HANDLER_FAILED.to_owned()];
        declared.correlate = Correlate::default();
        declared.error = Some(Pick::Payload("/message".into()));
    }
    let correlate = declared.correlate;
    let reply = |event_type, judge| Reply { event_type, correlate: correlate.clone(), judge };
    let failed = |retryable| {
        let error = declared.error.clone();
        move |event_type: String| reply(event_type, judge_failed(error.clone(), retryable))
    };
    let (for_good, for_now) = (failed(false), failed(true));
    let replies = (declared.completed.into_iter().map(|event_type| reply(event_type, completed())))
        .chain(declared.failed.into_iter().map(for_good))
        .chain(declared.retryable.into_iter().map(for_now))
        .collect();
    Call {
        target: declared.target,
        command: declared.command,
        payload: payload(declared.payload),
        replies,
        timeout: declared.timeout,
        retry: declared.retry,
    }
}

fn judge_failed(error: Option<Pick>, retryable: bool) -> JudgeFn {
    Box::new(move |data, row| {
        let event_type = row.event_type.as_deref().unwrap_or_default();
        let error = error.as_ref().and_then(|pick| pick.of(row));
        let error = error.unwrap_or_else(|| format!("replied `{event_type}`"));
        Ok((data.to_owned(), Meaning::Failed { error, retryable }))
    })
}

fn payload(template: Option<String>) -> PayloadFn {
    match template {
        None => Box::new(|data| Ok(data.to_owned())),
        Some(template) => Box::new(move |data| template::fill(&template, data)),
    }
}

fn begin(business_key: Option<&Pick>, row: &InboxRow) -> Result<ProcessStart, Problem> {
    let find = |pick: &Pick| {
        let key = pick.of(row).ok_or_else(|| {
            Problem::new("BUSINESS_KEY_MISSING", &format!("no business key: {}", pick.absent()))
        })?;
        Ok(text::identity(&key, MESSAGE_ID_MAX))
    };
    Ok(ProcessStart {
        business_key: business_key.map(find).transpose()?,
        data: first_data(payload_of(row))?,
    })
}

fn payload_of(row: &InboxRow) -> &str {
    row.payload.as_deref().unwrap_or("null")
}

fn first_data(input: &str) -> Result<String, Problem> {
    Ok(DeclaredData { input: raw(input)?, steps: BTreeMap::new() }.to_json())
}

fn raw(json: &str) -> Result<Box<RawValue>, Problem> {
    json::check(json.as_bytes())
        .map_err(|error| Problem::new(error.code(), &error.to_string()))
        .map(|json| serde_json::from_str(json).expect("what was checked is JSON"))
}

/// Returns the first data as the log has it: as a text if it has numbers that serde cannot keep.
fn initial_value(logged: &Value) -> Value {
    match logged {
        Value::String(data) => stored_value(data),
        data => data.clone(),
    }
}

/// Returns stored data with each part as the log would have it.
fn stored_value(data: &str) -> Value {
    let Ok(data) = DeclaredData::read(data) else { return value(data) };
    let steps = data.steps.iter().map(|(name, raw)| (name.clone(), value(raw.get())));
    serde_json::json!({"input": value(data.input.get()), "steps": steps.collect::<serde_json::Map<_, _>>()})
}

/// The data of such a process, byte for byte as it came.
#[derive(Serialize, Deserialize)]
struct DeclaredData {
    input: Box<RawValue>,
    steps: BTreeMap<String, Box<RawValue>>,
}

impl DeclaredData {
    fn read(data: &str) -> Result<Self, Problem> {
        serde_json::from_str(data).map_err(|error| {
            Problem::new(
                PROCESS_STATE,
                &format!("the data of the process is not that of a declared one: {error}"),
            )
        })
    }

    fn to_json(&self) -> String {
        serde_json::to_string(self).expect("checked JSON can be written")
    }
}
