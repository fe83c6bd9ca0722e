//! `[[process]]` with its steps. What the steps say together is judged by the definition they build.

use std::{collections::HashSet, time::Duration};

use relais_core::{
    extract::Pick,
    process::{
        STEPS_MAX,
        declared::{Declared, DeclaredCall, DeclaredStep},
        definition::Correlate,
    },
    retry::RetryPolicy,
};

use super::{parse::retry, quantity::duration, reader::Section, types::ProcessSettings};

/// Unless set otherwise: five attempts, up to five minutes apart.
const STEP_RETRY: RetryPolicy =
    RetryPolicy::new(5, Duration::from_millis(100), Duration::from_secs(300));
/// Highest version of a definition.
const VERSION_MAX: u32 = 1_000_000;
/// Longest time a step may wait for a reply.
const TIMEOUT_MAX: Duration = Duration::from_secs(366 * 86_400);

/// Every process that can be read and built.
pub(super) fn processes(sections: Vec<Section<'_>>) -> Vec<ProcessSettings> {
    let mut identities = HashSet::new();
    let mut processes = Vec::new();
    for section in sections {
        let declared = process(&section);
        if let Some(declared) = declared {
            let Declared { process_type, version, .. } = &declared;
            if !identities.insert((process_type.clone(), *version)) {
                section.error(
                    "version",
                    format_args!("`{process_type}` has a version {version} already; raise it"),
                );
            }
            processes.extend(built(&section, declared));
        }
        section.finish(|_| None);
    }
    processes
}

fn built(section: &Section<'_>, declared: Declared) -> Option<ProcessSettings> {
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

fn process(section: &Section<'_>) -> Option<Declared> {
    let process_type = section.required_name("type");
    let version = section.whole("version", 1..=VERSION_MAX).and_then(|n| i32::try_from(n).ok());
    let starts = required_names(section, "start");
    let business_key = section.parsed("business_key", place);
    let children = section.children("step");
    let count = children.len();
    let steps: Vec<DeclaredStep> = children.into_iter().filter_map(step).collect();
    if count == 0 || count > STEPS_MAX {
        section.error("step", format_args!("must come 1 to {STEPS_MAX} times: `[[process.step]]`"));
    }
    // A step that could not be read has said so itself.
    let whole = (1..=STEPS_MAX).contains(&count) && steps.len() == count;
    whole.then_some(())?;
    Some(Declared {
        process_type: process_type?,
        version: version.unwrap_or(1),
        starts: starts?,
        business_key,
        steps,
    })
}

fn step(section: Section<'_>) -> Option<DeclaredStep> {
    let name = section.required_name("name");
    let own = call(&section);
    let undo = section.child("compensation");
    let compensation = if undo.is_present() { Some(call(&undo)) } else { None };
    undo.finish(where_it_belongs);
    section.finish(where_it_belongs);
    let compensation = match compensation {
        // Unreadable is not the same as absent.
        Some(None) => return None,
        readable => readable.flatten(),
    };
    Some(DeclaredStep { name: name?, call: own?, compensation })
}

fn where_it_belongs(key: &str) -> Option<String> {
    match key {
        "attempts" | "first" | "factor" | "max" | "jitter" => {
            Some("it belongs under `retry`".to_owned())
        }
        "start" | "business_key" | "version" => Some("it belongs to `[[process]]`".to_owned()),
        _ => None,
    }
}

/// What a step and its compensation have in common.
fn call(section: &Section<'_>) -> Option<DeclaredCall> {
    let destination = section.required_name("destination");
    let command = section.required_name("command");
    let completed = required_names(section, "completed");
    let timeout = section.parsed("timeout", duration);
    if timeout.is_some_and(|timeout| timeout.is_zero() || timeout > TIMEOUT_MAX) {
        section.error("timeout", "must be from 1ms to 366d");
    }
    let declared = DeclaredCall {
        destination: destination.clone().unwrap_or_default(),
        command: command.clone().unwrap_or_default(),
        payload: section.text("payload").map(|text| text.value),
        completed: completed.clone().unwrap_or_default(),
        failed: section.names("failed"),
        retryable: section.names("retryable"),
        error: section.parsed("error", place),
        correlate: correlate(section),
        timeout,
        retry: retry(section.child("retry"), STEP_RETRY),
    };
    destination.and(command).and(completed).map(|_| declared)
}

fn correlate(section: &Section<'_>) -> Correlate {
    let by_id = section.parsed("correlate", place).map(Correlate::ProcessId);
    let by_key = section.parsed("correlate_key", place).map(Correlate::BusinessKey);
    if section.has("correlate") && section.has("correlate_key") {
        section.error(
            "correlate_key",
            "give either `correlate` (where the process id is) or `correlate_key` (where the \
             business key is), not both",
        );
    }
    by_id.or(by_key).unwrap_or_default()
}

fn required_names(section: &Section<'_>, key: &'static str) -> Option<Vec<String>> {
    let names = section.names(key);
    if !section.has(key) {
        section.error(key, "is missing; name one event type, or a list of them");
    }
    (!names.is_empty()).then_some(names)
}

/// Where a value stands in a message; its position says nothing about a process.
fn place(text: &str) -> Result<Pick, String> {
    const HOW: &str =
        "is not a place in a message; use `header:NAME`, `payload:/JSON/POINTER` or `key`";
    match text.parse() {
        Ok(Pick::Position) | Err(_) => Err(HOW.to_owned()),
        Ok(pick) => Ok(pick),
    }
}
