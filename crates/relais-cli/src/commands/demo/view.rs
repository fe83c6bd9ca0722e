//! What a person sees: a live picture on a terminal, one line a second elsewhere, then the summary.
//! For a program (`--json`) stdout has the proof and nothing else.

use std::{
    io::{Write, stdout},
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use super::{
    Places,
    plan::{Plan, Until},
    proof::{Check, Facts, Proof, rows},
    sender::Counts,
    target::Target,
};
use crate::{failure::Done, output::Output};

const BAR: usize = 30;
/// Without a terminal, one line this often.
const LINE_EVERY: Duration = Duration::from_secs(1);
/// Lines of what happened that stay on the picture.
const EVENTS_MAX: usize = 6;
/// Lines of the picture that go into one line elsewhere.
const NUMBERS: usize = 6;

pub(super) struct View {
    output: Output,
    started: Instant,
    drawn: usize,
    last_line: Option<Instant>,
    events: Vec<String>,
}

impl View {
    pub(super) fn new(output: Output, plan: &Plan, places: &Places) -> Self {
        let Places { store, console, hook, org, settings } = places;
        let view =
            Self { output, started: Instant::now(), drawn: 0, last_line: None, events: Vec::new() };
        view.say(&format!(
            "relais demo, seed {}: everything in this process, on {store}. Nothing is left behind.\n\n  \
             HTTP source → inbox → routes and processes → outbox → an HTTP target, three services and\n  \
             bulk jobs of a simulated Salesforce; faults on, workers get killed\n\n  \
             console     http://{console}/\n  \
             Salesforce  {org}/\n  \
             settings    {settings}\n  \
             look        relais --config {settings} status\n  \
             send        curl http://{hook}/hook -H 'content-type: application/json' -H 'message-id: my-1' \
             -d '{{\"type\":\"OrderChanged\",\"order\":\"p-me\",\"step\":1,\"cents\":1}}'\n",
            plan.seed
        ));
        if plan.until == Until::Told {
            view.say("\n  Ctrl-C ends it, with a proof of what became of every message.\n");
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

    pub(super) fn draw(&mut self, counts: &Counts, facts: &Facts, target: &Target) {
        if self.output.json {
            return;
        }
        let picture = self.picture(counts, facts, target);
        if self.is_live() {
            // Back to the top of the last picture, then over it, line by line.
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

    fn picture(&self, counts: &Counts, facts: &Facts, target: &Target) -> Vec<String> {
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
            line("sent", sent, sent, format!("orders' messages; {repeats} posted again")),
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
                    "done {}, undone {}, being undone or stuck {}",
                    processes("SUCCEEDED"),
                    processes("COMPENSATED"),
                    processes("COMPENSATING")
                ),
            ),
        ];
        lines.extend(self.events.iter().cloned());
        lines
    }

    /// The proof, as a table or as JSON.
    pub(super) fn summary(&self, proof: &Proof) -> Done {
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
            let Check { statement, found, expected } = check;
            self.say(&format!("  {mark} {statement:<54} {found:>8} of {expected}"));
        }
        self.say(&format!(
            "  on the way: workers killed {} times, {} posts repeated, {} calls failed, {} extra copies \
             recognised by their id, {} effects undone",
            proof.kills, proof.repeats, proof.failures, proof.copies, proof.undone
        ));
        self.say(match proof.holds {
            true => "Nothing lost, nothing doubled, order kept.",
            false => "The proof FAILED: please report this with the seed above.",
        });
        Ok(())
    }

    /// Whether the picture is drawn over and over.
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
