//! The protocol as five small machines that a model checker runs through every interleaving.
//!
//! [`outbox`] is the relay: one lane with two keys, leases, epochs, the fence, retries, dead letters,
//! quarantine after a crash, and an operator. [`inbox`] is receiving and handling: positions,
//! acknowledgement, duplicates, the handler's one commit, cleanup. [`process`] is a process with its
//! services, time-outs, late replies, compensation and pauses. [`lease`] is the lease of a worker: who may
//! take whose lanes. [`waiting`] is the table of waiting rows with the position of a destination. Row states and decisions are the
//! real ones (`relais_core::{fault::judge, outbox::settle, inbox::decide, process::advance}`); the rest of the real code is tied to
//! the same rules by `relais-store/tests/state_machine/main.rs`.
//!
//! Invariant: a model proves nothing unless it can fail. Every known bug is a variant (`Bug`) that
//! must give a counterexample of a named property, and the correct run must reach duplicates, late
//! duplicates, take-overs and dead letters.
//!
//! # Bounds
//!
//! Time has no numbers: a lease may run out and a pause may end at *any* moment, which covers pauses
//! of a process and clocks that differ. What is bounded are the rows, the workers and how many
//! faults may happen in one run (the `Budget`s); within these every order of steps is visited.
//! Faults never happen where the budget is used up, recovery always may, and no step leads back to
//! an earlier state (a test shows it), so "no row is stuck in a state without steps" means that
//! everything drains.
//!
//! Workers are alike, so states that differ only in their numbering are one state; in a printed path
//! worker 0 may therefore become worker 1 from one step to the next.
//!
//! # Not modelled
//!
//! Fair shares, delayed sends, cleanup of the outbox, a database that loses commits, and the limits of time and rows of a settlement (it may be sent at
//! any moment).

pub mod inbox;
pub mod lease;
pub mod outbox;
pub mod process;
pub mod waiting;

use std::{collections::BTreeMap, fmt, hash::Hash, time::Instant};

use stateright::{Checker, Expectation, HasDiscoveries, Model};

/// The result of a run.
#[derive(Debug)]
pub struct ModelReport {
    pub unique_states: usize,
    pub depth: usize,
    pub seconds: f64,
    /// Broken `always` properties, each with the path that breaks it.
    pub broken: BTreeMap<&'static str, String>,
    /// `sometimes` properties that were reached.
    pub reached: Vec<&'static str>,
    /// `sometimes` properties that were not.
    pub unreached: Vec<&'static str>,
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelGoal {
    Exhausted,
    Broken(&'static str),
}

/// Runs the checker and prints one line with its figures.
pub(crate) fn explore<M>(name: &str, model: M, until: ModelGoal) -> ModelReport
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Send + Sync + fmt::Debug + Hash + PartialEq + 'static,
    M::Action: Clone + Send + Sync + fmt::Debug + PartialEq,
{
    const THREADS: usize = 2;
    let start = Instant::now();
    let finish = match until {
        ModelGoal::Exhausted => HasDiscoveries::AnyFailures,
        ModelGoal::Broken(property) => HasDiscoveries::AnyOf([property].into()),
    };
    let checker = model.checker().threads(THREADS).finish_when(finish).spawn_bfs().join();
    let discoveries = checker.discoveries();
    let mut report = ModelReport {
        unique_states: checker.unique_state_count(),
        depth: checker.max_depth(),
        seconds: start.elapsed().as_secs_f64(),
        broken: BTreeMap::new(),
        reached: Vec::new(),
        unreached: Vec::new(),
    };
    for property in checker.model().properties() {
        match (property.expectation, discoveries.get(property.name)) {
            (Expectation::Sometimes, Some(_)) => report.reached.push(property.name),
            (Expectation::Sometimes, None) => report.unreached.push(property.name),
            (_, Some(path)) => {
                let steps = path.clone().into_actions();
                report.broken.insert(property.name, format!("{steps:?}"));
            }
            (_, None) => {}
        }
    }
    let ModelReport { unique_states, depth, seconds, .. } = &report;
    println!("{name}: {unique_states} unique states, depth {depth}, {seconds:.2} s");
    report
}
