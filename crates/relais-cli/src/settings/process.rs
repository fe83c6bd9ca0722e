//! `[[process]]` with its steps. The definition that the steps build checks how they fit together.

use std::{collections::HashSet, time::Duration};

use relais_core::{
    process::{
        Definition, STEPS_MAX,
        declared::{DeclaredCall, DeclaredProcess, DeclaredStep},
        definition::{CallTarget, Correlate, KeyUse},
    },
    retry::RetryPolicy,
    setting::{Integer, NameList, NameText, PlainText, StoredSelector, TimeSpan, Word},
    settings,
};

use super::{engine::retry, findings::FilePlace, reader::Section};

/// The retries of a step unless the file has others.
pub(super) const STEP_RETRY: RetryPolicy =
    RetryPolicy::new(5, Duration::from_millis(100), Duration::from_secs(300));
/// The longest time that a step may wait for a reply.
const TIMEOUT_MAX: Duration = Duration::from_secs(366 * 86_400);

settings! {
    /// `[[process]]`
    pub(super) struct ProcessKeys {
        /// the process type
        process_type as "type": NameText;
        /// the version of the definition
        version: Integer = 1, 1..=1_000_000;
        /// the event types that start one
        start: NameList => "name one event type, or a list of them";
        /// one process for each key; a second start is a dead letter (`BUSINESS_KEY_TAKEN`)
        business_key: Option<StoredSelector>;
        /// `"once"`: one process for each business key. `"while_open"`: the key can be used again when its process has ended
        business_key_use: Word<KeyUse> = KeyUse::default();
    }

    /// `[[process.step]]`
    pub(super) struct StepKeys {
        /// unique in the process: letters, digits, `-`, `_` and `.`
        name: NameText;
    }

    /// The keys of a step and of its compensation.
    pub(super) struct CallKeys {
        /// where the command is sent
        destination: Option<NameText> => "this or `handler`";
        /// the `[[handler]]` that carries out the command; its answer is the reply
        handler: Option<NameText> => "this or `destination`";
        /// the event type of the command
        command: NameText;
        /// a template, see below
        payload: Option<PlainText> => "the data";
        /// replies that complete it; needed with `destination`
        completed: Option<NameList>;
        /// replies that fail it permanently
        failed: Option<NameList>;
        /// replies that fail this attempt
        retryable: Option<NameList>;
        /// the reason in a failing reply, for the log
        error: Option<StoredSelector>;
        /// the id of the process in a reply
        correlate: Option<StoredSelector> => "`\"header:correlation-id\"`";
        /// instead of `correlate`: the business key in a reply
        correlate_key: Option<StoredSelector>;
        /// fails the attempt if no reply arrives. Without it the step waits indefinitely
        timeout: Option<TimeSpan>, Some(Duration::from_millis(1))..=Some(TIMEOUT_MAX);
    }
}

/// One `[[process]]`.
#[derive(Debug)]
pub(crate) struct ProcessSettings {
    pub(crate) place: FilePlace,
    /// As it is written, for explanations.
    pub(crate) declared: DeclaredProcess,
    pub(crate) definition: Definition,
}

impl ProcessSettings {
    /// Returns for example `order version 2`.
    pub(crate) fn title(&self) -> String {
        format!("{} version {}", self.declared.process_type, self.declared.version)
    }

    /// Returns every call with its step, each compensation behind its step.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (&str, &DeclaredCall)> {
        self.declared.steps.iter().flat_map(|step| {
            let calls = std::iter::once(&step.call).chain(&step.compensation);
            calls.map(|call| (step.name.as_str(), call))
        })
    }
}

/// Reads every process that can be read and built.
pub(super) fn processes(sections: Vec<Section<'_>>) -> Vec<ProcessSettings> {
    let mut identities = HashSet::new();
    let mut processes = Vec::new();
    for section in sections {
        if let Some(declared) = process(&section) {
            let DeclaredProcess { process_type, version, .. } = &declared;
            if !identities.insert((process_type.clone(), *version)) {
                section.error(
                    "version",
                    format_args!("`{process_type}` has a version {version} already; raise it"),
                );
            }
            processes.extend(built(&section, declared));
        }
        section.finish();
    }
    processes
}

fn built(section: &Section<'_>, declared: DeclaredProcess) -> Option<ProcessSettings> {
    match declared.clone().build() {
        Ok(definition) => Some(ProcessSettings { place: section.place(), declared, definition }),
        Err(errors) => {
            for error in errors {
                section.error("", error);
            }
            None
        }
    }
}

fn process(section: &Section<'_>) -> Option<DeclaredProcess> {
    let keys = section.read::<ProcessKeys>();
    let children = section.children("step", "name");
    let count = children.len();
    let steps: Vec<DeclaredStep> = children.into_iter().filter_map(step).collect();
    if count == 0 || count > STEPS_MAX {
        section.error("step", format_args!("must come 1 to {STEPS_MAX} times: `[[process.step]]`"));
    }
    // A step that could not be read is reported already.
    let is_whole = (1..=STEPS_MAX).contains(&count) && steps.len() == count;
    let keys = keys.filter(|_| is_whole)?;
    Some(DeclaredProcess {
        process_type: keys.process_type,
        version: i32::try_from(keys.version).unwrap_or(i32::MAX),
        starts: keys.start,
        business_key: keys.business_key,
        key_use: keys.business_key_use,
        steps,
    })
}

fn step(section: Section<'_>) -> Option<DeclaredStep> {
    let keys = section.read::<StepKeys>();
    let own = call(&section);
    let undo = section.child("compensation");
    let has_compensation = undo.is_present();
    let compensation = if has_compensation { call(&undo) } else { None };
    undo.finish();
    section.finish();
    // Unreadable is not the same as absent.
    let is_whole = compensation.is_some() == has_compensation;
    Some(DeclaredStep { name: keys.filter(|_| is_whole)?.name, call: own?, compensation })
}

/// Reads the keys that a step and its compensation have in common.
fn call(section: &Section<'_>) -> Option<DeclaredCall> {
    let keys = section.read::<CallKeys>();
    let retry = retry(section.child("retry"), STEP_RETRY);
    if section.has("correlate") && section.has("correlate_key") {
        section.error(
            "correlate_key",
            "give either `correlate` (where the process id is) or `correlate_key` (where the \
             business key is), not both",
        );
    }
    if !section.has("handler") && !section.has("completed") {
        section.error("completed", "is missing; name one event type, or a list of them");
    }
    let keys = keys?;
    let target = match (keys.destination, keys.handler) {
        (Some(destination), None) => CallTarget::Destination(destination),
        (None, Some(handler)) => {
            let replies =
                ["completed", "failed", "retryable", "error", "correlate", "correlate_key"];
            for key in replies.into_iter().filter(|key| section.has(key)) {
                let message = "the answer of a handler is the reply; remove this key";
                section.error(key, message);
            }
            CallTarget::Handler(handler)
        }
        (None, None) => {
            let message = "is missing; give the name of a destination, or `handler`";
            section.error("destination", message);
            return None;
        }
        (Some(_), Some(_)) => {
            section.error("handler", "give either `destination` or `handler`, not both");
            return None;
        }
    };
    let by_key = keys.correlate_key.map(Correlate::BusinessKey);
    Some(DeclaredCall {
        target,
        command: keys.command,
        payload: keys.payload,
        completed: keys.completed.unwrap_or_default(),
        failed: keys.failed.unwrap_or_default(),
        retryable: keys.retryable.unwrap_or_default(),
        error: keys.error,
        correlate: keys.correlate.map(Correlate::ProcessId).or(by_key).unwrap_or_default(),
        timeout: keys.timeout,
        retry,
    })
}
