//! The proof: compares acknowledged messages with stored rows and effects at the targets.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use relais_core::query::{Count, Overview, ParkedKey};
use serde::Serialize;

use super::{
    salesforce::OrgTotals, sender::SentCounts, services::CheckoutTotals, target::DemoTarget,
};

/// A statement with two numbers that must be equal.
#[derive(Debug, Serialize)]
pub(super) struct ProofCheck {
    pub(super) statement: &'static str,
    pub(super) expected: u64,
    pub(super) found: u64,
}

/// The proof, also the output of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct DemoProof {
    pub(super) seed: u64,
    pub(super) holds: bool,
    pub(super) checks: Vec<ProofCheck>,
    /// Repeated posts.
    pub(super) repeats: u64,
    /// Copies at the target beyond the first.
    pub(super) copies: u64,
    /// Failed calls of the target.
    pub(super) failures: u64,
    /// Compensated effects of checkouts.
    #[serde(rename = "undone")]
    pub(super) compensated: u64,
    /// Number of times the workers were killed.
    pub(super) kills: u64,
}

/// Records whether an operator made a decision: then the expected numbers of dead letters are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperatorActivity {
    None,
    Decided,
}

/// The state at one time.
pub(super) struct DemoFacts {
    pub(super) overview: Overview,
    pub(super) parked: Vec<ParkedKey>,
    pub(super) seen: OrgTotals,
    pub(super) done: CheckoutTotals,
}

impl DemoProof {
    pub(super) fn new(
        (seed, kills): (u64, u64),
        counts: &SentCounts,
        facts: &DemoFacts,
        target: &DemoTarget,
        operators: OperatorActivity,
    ) -> Self {
        let mut checks = delivered(counts, facts, target);
        if operators == OperatorActivity::None {
            checks.extend(dead_letters(counts, facts));
        }
        let ledger = target.ledger();
        Self {
            seed,
            holds: checks.iter().all(|check| check.expected == check.found),
            checks,
            repeats: get(&counts.repeats),
            copies: ledger.extra_copies(),
            failures: ledger.failures,
            compensated: facts.done.compensated,
            kills,
        }
    }
}

/// Returns the checks that hold with any decisions of operators.
fn delivered(counts: &SentCounts, facts: &DemoFacts, target: &DemoTarget) -> Vec<ProofCheck> {
    let (ledger, seen) = (target.ledger(), facts.seen);
    let rows = |status| rows(&facts.overview.processes, status);
    let checkouts: u64 = facts.overview.processes.iter().map(|count| count.rows).sum();
    vec![
        check("orders: acknowledged messages at the target", &counts.orders, ledger.distinct()),
        check("orders: sum of cents, each message counted once", &counts.cents, ledger.cents),
        none("orders: messages delivered out of order", ledger.out_of_order),
        check("Salesforce: contacts", &counts.contacts, seen.contacts),
        check("Salesforce: blocks", &counts.blocks, seen.blocks),
        none("Salesforce: records written more than once", seen.repeated),
        none("Salesforce: bulk jobs left open", seen.open_jobs),
        check("checkouts: processes started", &counts.checkouts, checkouts),
        none("checkouts: processes still running", rows("RUNNING")),
        none("messages not delivered yet", open_rows(facts)),
    ]
}

/// Returns the checks that every undeliverable message, and no other, is a dead letter.
fn dead_letters(counts: &SentCounts, facts: &DemoFacts) -> Vec<ProofCheck> {
    let DemoFacts { overview, parked, done, .. } = facts;
    let dead = get(&counts.dead) + get(&counts.hopeless);
    let equal = |statement, expected, found| ProofCheck { statement, expected, found };
    vec![
        equal(
            "checkouts: succeeded, with stock, payment and parcel",
            rows(&overview.processes, "SUCCEEDED"),
            done.whole,
        ),
        check("checkouts: compensation failed, need an operator", &counts.hopeless, done.torn),
        equal(
            "checkouts: shown as compensating",
            get(&counts.hopeless),
            rows(&overview.processes, "COMPENSATING"),
        ),
        equal("undeliverable messages: dead letters", dead, overview.dead_letters_open),
        check("messages parked behind a dead letter", &counts.held, backlog(parked)),
        check(
            "undecodable messages kept for reprocessing",
            &counts.garbage,
            rows(&overview.inbox, "SERDE_ERROR"),
        ),
    ]
}

fn check(statement: &'static str, expected: &AtomicU64, found: u64) -> ProofCheck {
    ProofCheck { statement, expected: get(expected), found }
}

fn none(statement: &'static str, found: u64) -> ProofCheck {
    ProofCheck { statement, expected: 0, found }
}

fn get(count: &AtomicU64) -> u64 {
    count.load(Relaxed)
}

/// Returns the number of open rows that are not parked.
fn open_rows(facts: &DemoFacts) -> u64 {
    let waiting = ["RECEIVED", "RETRY", "PENDING"];
    let all = facts.overview.inbox.iter().chain(&facts.overview.outbox);
    let open = all.filter(|count| waiting.contains(&count.name.as_str()));
    open.map(|count| count.rows).sum::<u64>().saturating_sub(backlog(&facts.parked))
}

fn backlog(parked: &[ParkedKey]) -> u64 {
    parked.iter().map(|key| key.backlog).sum()
}

pub(super) fn rows(counts: &[Count], status: &str) -> u64 {
    counts.iter().find(|count| count.name == status).map_or(0, |count| count.rows)
}
