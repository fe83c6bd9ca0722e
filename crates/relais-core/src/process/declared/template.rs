//! Payload templates of a declared process: checked when it is built, filled when a command is sent.

use crate::{delivery::Problem, json};

/// The payload: each `{{/pointer}}` replaced by the value there.
pub(super) fn fill(template: &str, data: &str) -> Result<String, Problem> {
    let find = |pointer: &str| {
        json::pointer(data, pointer).ok_or_else(|| {
            format!("the payload template names `{pointer}`, which is not in the data")
        })
    };
    json::fill(template, find).map_err(|error| Problem::new("PROCESS_TEMPLATE", &error))
}

/// Returns the errors of a template that may use the results of `known` steps.
pub(super) fn check(template: &str, known: &[&str]) -> Vec<String> {
    let mut errors = Vec::new();
    // Text in every place: what is valid JSON with that stands for whole values.
    let filled = json::fill(template, |pointer| {
        errors.extend(check_pointer(pointer, known));
        Ok("\"\"")
    });
    if let Err(error) = filled {
        let hint = "`{{…}}` stands for a whole JSON value, so it goes without quotes";
        errors.push(format!("payload template: {error}; {hint}"));
    }
    errors
}

fn check_pointer(pointer: &str, known: &[&str]) -> Option<String> {
    let mut parts = pointer.split('/').skip(1);
    match (pointer.starts_with('/').then(|| parts.next()).flatten(), parts.next()) {
        (Some("input"), _) => None,
        (Some("steps"), Some(step)) if known.contains(&step) => None,
        (Some("steps"), Some(step)) => Some(format!(
            "payload template: `{{{{{pointer}}}}}` uses step `{step}`, which is not done by then"
        )),
        _ => Some(format!(
            "payload template: `{{{{{pointer}}}}}` is no place in the data; use `{{{{/input/…}}}}` or \
             `{{{{/steps/NAME/…}}}}`"
        )),
    }
}
