//! What changes ask of processes: to be at a version, or not to be there yet. One vector a column, as
//! the statements' `unnest` takes them.

use std::collections::HashSet;

use relais_core::{
    inbox::{InboxFate, InboxSettlement},
    process::Change,
    store::StoreError,
};
use uuid::Uuid;

use crate::postgres::fence::Value;

/// Changes by the rows that cause them.
#[derive(Debug, Default)]
pub(in crate::postgres) struct Claims<'a> {
    ids: Vec<i64>,
    process_ids: Vec<Uuid>,
    versions: Vec<i64>,
    types: Vec<&'a str>,
    keys: Vec<Option<&'a str>>,
}

impl<'a> Claims<'a> {
    pub(in crate::postgres) fn of_rows(settlements: &[&'a InboxSettlement]) -> Self {
        let mut claims = Self::default();
        for settlement in settlements {
            for change in changes(settlement) {
                claims.push(settlement.id, change);
            }
        }
        claims
    }

    /// A change that no row causes.
    pub(in crate::postgres) fn of_one(change: &'a Change) -> Self {
        let mut claims = Self::default();
        claims.push(0, change);
        claims
    }

    fn push(&mut self, row: i64, change: &'a Change) {
        self.ids.push(row);
        self.process_ids.push(change.process.process_id);
        self.versions.push(change.from);
        self.types.push(&change.process.process_type);
        self.keys.push(change.process.business_key.as_deref());
    }

    pub(in crate::postgres) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub(in crate::postgres) fn values(&self) -> [Value<'_>; 5] {
        [&self.ids, &self.process_ids, &self.versions, &self.types, &self.keys]
    }
}

/// The settlements that can go together, and the rows of those that cannot: another one before them
/// changes the same process, or begins one with the same business key.
pub(in crate::postgres) fn distinct(
    settlements: &[InboxSettlement],
) -> Result<(Vec<&InboxSettlement>, Vec<i64>), StoreError> {
    let (mut together, mut stale) = (Vec::with_capacity(settlements.len()), Vec::new());
    let (mut processes, mut keys) = (HashSet::new(), HashSet::new());
    for settlement in settlements {
        let (mut own_processes, mut own_keys) = (HashSet::new(), HashSet::new());
        for change in changes(settlement) {
            let first = own_processes.insert(change.process.process_id);
            if !first || new_key(change).is_some_and(|key| !own_keys.insert(key)) {
                return Err(changed_twice());
            }
        }
        if own_processes.is_disjoint(&processes) && own_keys.is_disjoint(&keys) {
            processes.extend(own_processes);
            keys.extend(own_keys);
            together.push(settlement);
        } else {
            stale.push(settlement.id);
        }
    }
    Ok((together, stale))
}

fn changed_twice() -> StoreError {
    StoreError::invalid("a process is changed twice by one row; join the two changes")
}

/// The changes of processes that a row's fate brings along.
fn changes(settlement: &InboxSettlement) -> &[Change] {
    match &settlement.fate {
        InboxFate::Processed { changes, .. } => changes,
        InboxFate::Ignored { .. }
        | InboxFate::Retry { .. }
        | InboxFate::Wait { .. }
        | InboxFate::Dead { .. } => &[],
    }
}

/// Type and business key of a process that the change begins.
fn new_key(change: &Change) -> Option<(&str, &str)> {
    let key = change.process.business_key.as_deref().filter(|_| change.from == 0)?;
    Some((&change.process.process_type, key))
}
