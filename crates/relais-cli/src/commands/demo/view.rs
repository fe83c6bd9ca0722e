//! What a person sees: a live picture on a terminal, one line a second elsewhere, then the summary.

use std::{
    io::{IsTerminal, Write, stdout},
    net::SocketAddr,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use relais_core::query::Overview;

use super::{
    plan::Plan,
    proof::{Proof, rows},
    salesforce::Seen,
    sender::Senders,
    target::Target,
};

const BAR: usize = 30;
/// Without a terminal, one line this often.
const LINE_EVERY: Duration = Duration::from_secs(1);

pub(super) struct View {
    live: bool,
    started: Instant,
    messages: u64,
    /// Messages and records that are to be delivered.
    relayed: u64,
    records: u64,
    drawn: usize,
    last_line: Option<Instant>,
    events: Vec<String>,
}

impl View {
    pub(super) fn new(seed: u64, plan: &Plan, store: &str) -> Self {
        let live = stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        println!("relais demo: {} messages, seed {seed}, store {store}", plan.messages);
        println!(
            "  HTTP source → inbox → routes → outbox → HTTP target and bulk jobs of a simulated \
             Salesforce;\n  faults on, workers get killed\n"
        );
        Self {
            live,
            started: Instant::now(),
            messages: plan.messages,
            relayed: plan.messages + plan.contacts() + plan.blocks(),
            records: plan.contacts() + plan.blocks(),
            drawn: 0,
            last_line: None,
            events: Vec::new(),
        }
    }

    pub(super) fn event(&mut self, text: &str) {
        let line = format!("{:5.1}s  {text}", self.started.elapsed().as_secs_f32());
        if !self.live {
            println!("  {line}");
        }
        self.events.push(line);
    }

    pub(super) fn draw(
        &mut self,
        senders: &Senders,
        overview: &Overview,
        target: &Target,
        seen: Seen,
    ) {
        let picture = self.picture(senders, overview, target, seen);
        let mut out = stdout().lock();
        if self.live {
            // Back to the top of the last picture, then over it, line by line.
            let up = if self.drawn > 0 { format!("\x1b[{}A", self.drawn) } else { String::new() };
            let lines: String = picture.iter().map(|line| format!("\x1b[2K{line}\n")).collect();
            let _ = write!(out, "{up}{lines}");
            self.drawn = picture.len();
        } else if self.last_line.is_none_or(|at| at.elapsed() >= LINE_EVERY) {
            self.last_line = Some(Instant::now());
            let _ = writeln!(out, "  {}", picture[..5].join(" | "));
        }
        let _ = out.flush();
    }

    fn picture(
        &self,
        senders: &Senders,
        overview: &Overview,
        target: &Target,
        seen: Seen,
    ) -> Vec<String> {
        let (sent, ledger) = (senders.done(), target.ledger());
        let repeats = senders.counts.repeats.load(Relaxed);
        let garbage = senders.counts.garbage.load(Relaxed);
        let inbox = |status| rows(&overview.inbox, status);
        let outbox = |status| rows(&overview.outbox, status);
        let waiting = inbox("RECEIVED") + inbox("RETRY");
        let mut lines = vec![
            format!(
                "sent    {} {sent:>6}  repeats {repeats}, garbage {garbage}",
                self.bar(sent, self.messages)
            ),
            format!(
                "inbox   {} {:>6}  waiting {waiting}, undecodable {}",
                self.bar(inbox("PROCESSED"), self.messages),
                inbox("PROCESSED"),
                inbox("SERDE_ERROR")
            ),
            format!(
                "outbox  {} {:>6}  pending {}, dead letters {}",
                self.bar(outbox("DISPATCHED"), self.relayed),
                outbox("DISPATCHED"),
                outbox("PENDING"),
                overview.dead_letters_open
            ),
            format!(
                "target  {} {:>6}  failed calls {}, extra copies {}",
                self.bar(ledger.distinct(), self.messages),
                ledger.distinct(),
                ledger.failures,
                ledger.extra_copies()
            ),
            format!(
                "records {} {:>6}  contacts {}, blocks {}, bulk jobs {}",
                self.bar(seen.contacts + seen.blocks, self.records),
                seen.contacts + seen.blocks,
                seen.contacts,
                seen.blocks,
                seen.jobs
            ),
        ];
        lines.extend(self.events.iter().cloned());
        lines
    }

    fn bar(&self, value: u64, all: u64) -> String {
        let share = value.saturating_mul(BAR as u64) / all.max(1);
        let full = usize::try_from(share).unwrap_or(BAR).min(BAR);
        format!("{}{}", "█".repeat(full), "░".repeat(BAR - full))
    }

    pub(super) fn summary(&self, proof: &Proof) {
        println!("\nProof, after {:.1} s:", self.started.elapsed().as_secs_f32());
        for check in &proof.checks {
            let (mark, colour) =
                if check.expected == check.found { ("ok  ", "32") } else { ("FAIL", "31") };
            let mark = if self.live { format!("\x1b[{colour}m{mark}\x1b[0m") } else { mark.into() };
            println!("  {mark} {:<52} {:>8} of {}", check.statement, check.found, check.expected);
        }
        println!(
            "  on the way: {} repeated posts, {} failed calls, {} extra copies recognised by their id",
            proof.repeats, proof.failures, proof.copies
        );
        if proof.holds() {
            println!("Nothing lost, nothing doubled, order kept.");
        } else {
            println!("The proof FAILED: please report this with the seed above.");
        }
    }

    /// Leaves the system running for whoever wants to try it.
    pub(super) fn stay(&self, hook: SocketAddr, org: &str) {
        println!(
            "\nStill running; try it from another terminal (Ctrl-C ends it, --once does not wait):\n  \
             curl -i http://{hook}/hook -H 'content-type: application/json' -H 'message-id: my-1' \\\n    \
             -d '{{\"type\":\"OrderChanged\",\"order\":\"o-1\",\"step\":0,\"cents\":1}}'\n  \
             the simulated Salesforce, its jobs and its ledger: {org}/"
        );
    }
}
