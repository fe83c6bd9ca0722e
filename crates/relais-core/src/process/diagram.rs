//! A picture of a definition: a state diagram in the language of mermaid. Left out on purpose: what a
//! operator may do at any time, and late replies.

use std::fmt::Write;

use super::definition::{Call, CallTarget, Definition, Step};

impl Definition {
    /// Its states as a mermaid `stateDiagram-v2`: forward over the steps, back over the compensations.
    pub fn diagram(&self) -> String {
        let steps = &self.0.steps;
        let mut out = String::from("stateDiagram-v2\n");
        for start in &self.0.starts {
            line(&mut out, &format!("[*] --> step1 : {}", escape(&start.event_type)));
        }
        if self.0.starts.is_empty() {
            line(&mut out, "[*] --> step1");
        }
        for (index, step) in steps.iter().enumerate() {
            let next =
                if index + 1 == steps.len() { "SUCCEEDED".into() } else { forward(index + 1) };
            let back = back_from(steps, index).unwrap_or_else(|| "FAILED".into());
            state(&mut out, &forward(index), &step.name, &step.call);
            line(&mut out, &format!("{} --> {next} : completed", forward(index)));
            line(&mut out, &format!("{} --> {back} : failed for good", forward(index)));
        }
        for (index, step) in steps.iter().enumerate().rev() {
            let Some(undo) = &step.compensation else { continue };
            let next = back_from(steps, index).unwrap_or_else(|| "COMPENSATED".into());
            state(&mut out, &back(index), &format!("undo {}", step.name), undo);
            line(
                &mut out,
                &format!("{} : waits for an operator if it failed for good", back(index)),
            );
            line(&mut out, &format!("{} --> {next} : compensated", back(index)));
        }
        for end in ["SUCCEEDED", "FAILED", "COMPENSATED"] {
            if out.contains(&format!("--> {end} ")) {
                line(&mut out, &format!("{end} --> [*]"));
            }
        }
        out
    }
}

/// The compensation that runs when the step at `index` is not to be, or is undone.
fn back_from(steps: &[Step], index: usize) -> Option<String> {
    steps[..index].iter().rposition(|step| step.compensation.is_some()).map(back)
}

fn forward(index: usize) -> String {
    format!("step{}", index + 1)
}

fn back(index: usize) -> String {
    format!("undo{}", index + 1)
}

fn state(out: &mut String, id: &str, title: &str, call: &Call) {
    let (command, target) = (escape(&call.command), escape(call.target.name()));
    line(out, &format!("{id} : {}", escape(title)));
    match &call.target {
        CallTarget::Destination(_) => {
            line(out, &format!("{id} : sends {command} to {target}"));
            let replies = call.replies.iter().map(|reply| escape(&reply.event_type));
            line(out, &format!("{id} : waits for {}", replies.collect::<Vec<_>>().join(", ")));
        }
        CallTarget::Handler(_) => {
            line(out, &format!("{id} : calls handler {target} with {command}"));
        }
    }
    if let Some(timeout) = call.timeout {
        line(
            out,
            &format!(
                "{id} : no reply within {} is failed for now",
                escape(&format!("{timeout:?}"))
            ),
        );
    }
    let attempts = call.retry.attempts_max.max(1);
    if attempts > 1 {
        line(out, &format!("{id} --> {id} : failed for now, at most {attempts} attempts"));
    }
}

fn line(out: &mut String, text: &str) {
    writeln!(out, "    {text}").expect("a string takes every text");
}

/// Replaces characters that mermaid could interpret by their codes.
fn escape(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '_' | '.' | '-' | '/');
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if plain(c) {
            out.push(c);
        } else {
            write!(out, "#{};", u32::from(c)).expect("a string takes every text");
        }
    }
    out
}
