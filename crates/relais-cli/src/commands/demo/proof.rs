//! The proof: what was sent against what is stored and what the target did.

use std::sync::atomic::Ordering::Relaxed;

use relais_core::query::{Count, Overview};

use super::{plan::Plan, salesforce::Seen, sender::Senders, target::Target};

/// One statement with the two numbers that must be equal.
pub(super) struct Check {
    pub(super) statement: &'static str,
    pub(super) expected: u64,
    pub(super) found: u64,
}

pub(super) struct Proof {
    pub(super) checks: Vec<Check>,
    pub(super) repeats: u64,
    pub(super) copies: u64,
    pub(super) failures: u64,
}

impl Proof {
    pub(super) fn new(
        plan: &Plan,
        senders: &Senders,
        overview: &Overview,
        target: &Target,
        seen: Seen,
    ) -> Self {
        let ledger = target.ledger();
        let sent = plan.messages;
        let (contacts, blocks) = (plan.contacts(), plan.blocks());
        let stored = sent + plan.light_total();
        let relayed = sent + contacts + blocks;
        let check = |statement, expected, found| Check { statement, expected, found };
        let inbox = |status| rows(&overview.inbox, status);
        let outbox = |status| rows(&overview.outbox, status);
        Self {
            checks: vec![
                check(
                    "messages acknowledged to their sender",
                    stored,
                    senders.done() + senders.light_done(),
                ),
                check("… each stored and processed exactly once", stored, inbox("PROCESSED")),
                check("… what came of them relayed and settled", relayed, outbox("DISPATCHED")),
                check("orders' messages known to the target", sent, ledger.distinct()),
                check(
                    "cents added up at the target, each message once",
                    plan.cents(),
                    ledger.cents,
                ),
                check(
                    "messages that overtook an earlier one of their order",
                    0,
                    ledger.out_of_order,
                ),
                check("contacts in Salesforce", contacts, seen.contacts),
                check("blocks in Salesforce", blocks, seen.blocks),
                check("… written more than once", 0, seen.repeated),
                check("bulk jobs left open in Salesforce", 0, seen.open_jobs),
                check(
                    "undecodable bodies kept for repair",
                    plan.garbage_total(),
                    inbox("SERDE_ERROR"),
                ),
                check("messages still on their way", 0, open(overview)),
                check("dead letters", 0, overview.dead_letters_open),
            ],
            repeats: senders.counts.repeats.load(Relaxed),
            copies: ledger.extra_copies(),
            failures: ledger.failures,
        }
    }

    pub(super) fn holds(&self) -> bool {
        self.checks.iter().all(|check| check.expected == check.found)
    }
}

fn open(overview: &Overview) -> u64 {
    let waiting = ["RECEIVED", "RETRY", "PENDING"];
    let all = overview.inbox.iter().chain(&overview.outbox);
    all.filter(|count| waiting.contains(&count.name.as_str())).map(|count| count.rows).sum()
}

pub(super) fn rows(counts: &[Count], status: &str) -> u64 {
    counts.iter().find(|count| count.name == status).map_or(0, |count| count.rows)
}
