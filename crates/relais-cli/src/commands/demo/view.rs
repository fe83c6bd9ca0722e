//! The output: a live view on a terminal, one line per second elsewhere, then the summary. With `--json`, stdout
//! holds only the proof.

use std::{
    io::{Write, stdout},
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use super::{
    DemoAddresses,
    plan::{DemoEnd, DemoPlan},
    proof::{DemoFacts, DemoProof, ProofCheck, rows},
    sender::SentCounts,
    target::DemoTarget,
};
use crate::{failure::Done, output::Output};

const BAR: usize = 30;
/// Interval of lines without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(1);
/// Most events in the view.
const EVENTS_MAX: usize = 6;
/// Lines of the view that form one line without a terminal.
const NUMBERS: usize = 6;

pub(super) struct DemoView {
    output: Output,
    started: Instant,
    drawn: usize,
    last_line: Option<Instant>,
    events: Vec<String>,
}

impl DemoView {
    pub(super) fn new(output: Output, plan: &DemoPlan, places: &DemoAddresses) -> Self {
        let DemoAddresses { store, console, hook, org, settings } = places;
        let view =
            Self { output, started: Instant::now(), drawn: 0, last_line: None, events: Vec::new() };
        view.say(&format!(
            "relais demo, seed {}: all parts run in this process, on {store}. All files are removed at the end.\n\n  \
             HTTP source → inbox → routes and processes → outbox → an HTTP target, three services and\n  \
             bulk jobs of a simulated Salesforce; faults are injected and workers are killed\n\n  \
             console     http://{console}/\n  \
             Salesforce  {org}/\n  \
             config      {settings}\n  \
             status      relais --config {settings} status\n  \
             send        curl http://{hook}/hook -H 'content-type: application/json' -H 'message-id: my-1' \
             -d '{{\"type\":\"OrderChanged\",\"order\":\"p-me\",\"step\":1,\"cents\":1}}'\n",
            plan.seed
        ));
        if plan.until == DemoEnd::Signal {
            view.say("\n  Ctrl-C stops the demo and prints the proof.\n");
        }
        view
    }

    pub(super) fn event(&mut self, text: &str) {
        let line = format!("{:5.1}s  {text}", self.started.elapsed().as_secs_f32());
        if !self.is_live() {
            self.say(&format!("  {line}"));
        }
        self.events.push(line);
        if self.events.len() > EVENTS_MAX {
            self.events.remove(0);
        }
    }

    pub(super) fn draw(&mut self, counts: &SentCounts, facts: &DemoFacts, target: &DemoTarget) {
        if self.output.json {
            return;
        }
        let picture = self.picture(counts, facts, target);
        if self.is_live() {
            // Moves to the top of the last picture and overwrites it line by line.
            let up = if self.drawn > 0 { format!("\x1b[{}A", self.drawn) } else { String::new() };
            let lines: String = picture.iter().map(|line| format!("\x1b[2K{line}\n")).collect();
            let mut out = stdout().lock();
            let _ = write!(out, "{up}{lines}").and_then(|()| out.flush());
            self.drawn = picture.len();
        } else if self.last_line.is_none_or(|at| at.elapsed() >= LINE_EVERY) {
            self.last_line = Some(Instant::now());
            self.say(&format!("  {}", picture[..NUMBERS].join("; ")));
        }
    }

    fn picture(&self, counts: &SentCounts, facts: &DemoFacts, target: &DemoTarget) -> Vec<String> {
        let (overview, seen, ledger) = (&facts.overview, facts.seen, target.ledger());
        let sent = counts.orders.load(Relaxed);
        let records = counts.contacts.load(Relaxed) + counts.blocks.load(Relaxed);
        let inbox = |status| rows(&overview.inbox, status);
        let outbox = |status| rows(&overview.outbox, status);
        let processes = |status| rows(&overview.processes, status);
        let ended = processes("SUCCEEDED") + processes("COMPENSATED") + processes("FAILED");
        let line = |name: &str, value: u64, all: u64, more: String| match self.is_live() {
            true => format!("{name:<9} {} {value:>6}  {more}", bar(value, all)),
            false => format!("{name} {value} ({more})"),
        };
        let (done, stored) = (inbox("PROCESSED"), overview.inbox.iter().map(|c| c.rows).sum());
        let (out, all_out) = (outbox("DISPATCHED"), overview.outbox.iter().map(|c| c.rows).sum());
        let repeats = counts.repeats.load(Relaxed);
        let mut lines = vec![
            line("sent", sent, sent, format!("messages about orders; {repeats} repeated posts")),
            line("inbox", done, stored, format!("undecodable {}", inbox("SERDE_ERROR"))),
            line(
                "outbox",
                out,
                all_out,
                format!(
                    "pending {}, dead letters {}, parked keys {}",
                    outbox("PENDING"),
                    overview.dead_letters_open,
                    overview.parked_keys
                ),
            ),
            line(
                "target",
                ledger.distinct(),
                sent,
                format!("failed calls {}, extra copies {}", ledger.failures, ledger.extra_copies()),
            ),
            line(
                "records",
                seen.contacts + seen.blocks,
                records,
                format!("in {} bulk jobs", seen.jobs),
            ),
            line(
                "checkouts",
                ended,
                counts.checkouts.load(Relaxed),
                format!(
                    "succeeded {}, compensated {}, compensating {}",
                    processes("SUCCEEDED"),
                    processes("COMPENSATED"),
                    processes("COMPENSATING")
                ),
            ),
        ];
        lines.extend(self.events.iter().cloned());
        lines
    }

    /// Prints the proof as a table or as JSON.
    pub(super) fn summary(&self, proof: &DemoProof) -> Done {
        if self.output.json {
            return self.output.print_json(proof);
        }
        self.say(&format!("\nProof, after {:.1} s:", self.started.elapsed().as_secs_f32()));
        for check in &proof.checks {
            let (mark, colour) =
                if check.expected == check.found { ("ok  ", "32") } else { ("FAIL", "31") };
            let mark = match self.output.color {
                true => format!("\x1b[{colour}m{mark}\x1b[0m"),
                false => mark.to_owned(),
            };
            let ProofCheck { statement, found, expected } = check;
            self.say(&format!("  {mark} {statement:<54} {found:>8} of {expected}"));
        }
        self.say(&format!(
            "  meanwhile: workers killed {} times, {} posts repeated, {} calls failed, {} extra copies \
             recognized by their id, {} effects compensated",
            proof.kills, proof.repeats, proof.failures, proof.copies, proof.compensated
        ));
        self.say(match proof.holds {
            true => "No message lost, no effect duplicated, order kept.",
            false => "The proof FAILED: please report this with the seed above.",
        });
        Ok(())
    }

    /// Returns true if the view is updated in place.
    fn is_live(&self) -> bool {
        self.output.terminal && self.output.color
    }

    fn say(&self, text: &str) {
        if self.output.json {
            eprintln!("{text}");
        } else {
            let _ = self.output.print(text);
        }
    }
}

fn bar(value: u64, all: u64) -> String {
    let share = value.saturating_mul(BAR as u64) / all.max(1);
    let full = usize::try_from(share).unwrap_or(BAR).min(BAR);
    format!("{}{}", "█".repeat(full), "░".repeat(BAR - full))
}
