//! Outbox rows whose settlement the database refuses: a trigger or a constraint of the application.
//!
//! Invariant: such a row concerns its own key only. It becomes a dead letter with the reason; if the database
//! refuses that too, the row and its key are not sent again by this worker.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use relais_core::{delivery::Problem, outbox::OutboxFate};

use crate::lock::lock;

/// Returns the fate of a row whose settlement as `fate` the database refused: a dead letter with the reason.
pub(crate) fn refused_fate(fate: &OutboxFate, reason: &str, park: bool) -> (OutboxFate, Problem) {
    let delivered = *fate == OutboxFate::Dispatched;
    let what = if delivered { "delivered, but " } else { "" };
    let text = format!("{what}the database refused to record it: {reason}");
    let problem = Problem::new("STORE_REFUSED", &text);
    (OutboxFate::Dead { attempts: 1, problem: problem.clone(), park }, problem)
}

/// Logs a row whose every settlement the database refused.
pub(crate) fn log_refused(row: i64, reason: &str) {
    tracing::error!(
        row,
        "cannot settle outbox row: {reason}; remove the trigger or constraint on relais_outbox that \
         refuses the change, then restart this process"
    );
}

/// Keys with a row whose every settlement the database refused, shared by everything that sends to one
/// destination.
#[derive(Clone, Debug, Default)]
pub(crate) struct RefusedKeys(Arc<Mutex<HashSet<String>>>);

impl RefusedKeys {
    pub(crate) fn add(&self, key: String) {
        lock(&self.0).insert(key);
    }

    pub(crate) fn all(&self) -> Vec<String> {
        lock(&self.0).iter().cloned().collect()
    }
}
