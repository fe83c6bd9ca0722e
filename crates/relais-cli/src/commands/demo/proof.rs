//! The proof: what the senders were told is safe against what is stored and what was done with it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use relais_core::query::{Count, Overview, ParkedKey};
use serde::Serialize;

use super::{salesforce::Seen, sender::Counts, services::Done, target::Target};

/// One statement with the two numbers that must be equal.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    pub(super) statement: &'static str,
    pub(super) expected: u64,
    pub(super) found: u64,
}

/// What `--json` prints, too.
#[derive(Debug, Serialize)]
pub(super) struct Proof {
    pub(super) seed: u64,
    pub(super) holds: bool,
    pub(super) checks: Vec<Check>,
    /// Posts that were made again.
    pub(super) repeats: u64,
    /// Copies at the target beyond the first.
    pub(super) copies: u64,
    /// Calls that the target did not answer well.
    pub(super) failures: u64,
    /// Effects of checkouts that were undone.
    pub(super) undone: u64,
    /// How often the workers were killed.
    pub(super) kills: u64,
}

/// Whether somebody has decided something by hand: then nobody knows what must be left for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum People {
    Looked,
    Acted,
}

/// What there is to be seen at one moment.
pub(super) struct Facts {
    pub(super) overview: Overview,
    pub(super) parked: Vec<ParkedKey>,
    pub(super) seen: Seen,
    pub(super) done: Done,
}

impl Proof {
    pub(super) fn new(
        (seed, kills): (u64, u64),
        counts: &Counts,
        facts: &Facts,
        target: &Target,
        people: People,
    ) -> Self {
        let mut checks = delivered(counts, facts, target);
        if people == People::Looked {
            checks.extend(left_for_people(counts, facts));
        }
        let ledger = target.ledger();
        Self {
            seed,
            holds: checks.iter().all(|check| check.expected == check.found),
            checks,
            repeats: get(&counts.repeats),
            copies: ledger.extra_copies(),
            failures: ledger.failures,
            undone: facts.done.undone,
            kills,
        }
    }
}

/// What holds whatever people do.
fn delivered(counts: &Counts, facts: &Facts, target: &Target) -> Vec<Check> {
    let (ledger, seen) = (target.ledger(), facts.seen);
    let rows = |status| rows(&facts.overview.processes, status);
    let checkouts: u64 = facts.overview.processes.iter().map(|count| count.rows).sum();
    vec![
        check(
            "orders: messages acknowledged that the target has",
            &counts.orders,
            ledger.distinct(),
        ),
        check("orders: cents added up, each message once", &counts.cents, ledger.cents),
        none("orders: messages that overtook an earlier one", ledger.out_of_order),
        check("Salesforce: contacts", &counts.contacts, seen.contacts),
        check("Salesforce: blocks", &counts.blocks, seen.blocks),
        none("Salesforce: records written more than once", seen.repeated),
        none("Salesforce: bulk jobs left open", seen.open_jobs),
        check("checkouts: processes begun", &counts.checkouts, checkouts),
        none("checkouts: processes under way", rows("RUNNING")),
        none("messages still on their way", on_their_way(facts)),
    ]
}

/// What nobody can deliver is there for people, and nothing else is.
fn left_for_people(counts: &Counts, facts: &Facts) -> Vec<Check> {
    let Facts { overview, parked, done, .. } = facts;
    let dead = get(&counts.dead) + get(&counts.hopeless);
    let equal = |statement, expected, found| Check { statement, expected, found };
    vec![
        equal(
            "checkouts: done, with stock, payment and parcel",
            rows(&overview.processes, "SUCCEEDED"),
            done.whole,
        ),
        check("checkouts: half done, waiting for a person", &counts.hopeless, done.torn),
        equal(
            "… and shown as such",
            get(&counts.hopeless),
            rows(&overview.processes, "COMPENSATING"),
        ),
        equal("messages nobody can take: dead letters", dead, overview.dead_letters_open),
        check("messages held back behind one", &counts.held, backlog(parked)),
        check(
            "undecodable bodies kept for repair",
            &counts.garbage,
            rows(&overview.inbox, "SERDE_ERROR"),
        ),
    ]
}

fn check(statement: &'static str, expected: &AtomicU64, found: u64) -> Check {
    Check { statement, expected: get(expected), found }
}

fn none(statement: &'static str, found: u64) -> Check {
    Check { statement, expected: 0, found }
}

fn get(count: &AtomicU64) -> u64 {
    count.load(Relaxed)
}

/// Open rows that no dead letter holds back.
fn on_their_way(facts: &Facts) -> u64 {
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
