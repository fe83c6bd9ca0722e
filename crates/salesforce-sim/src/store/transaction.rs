//! A group of writes that are applied together or not at all.
//!
//! Effects reach the ledger only by [`OrgTransaction::commit`]; a dropped or rolled back
//! transaction leaves no trace in the records or the ledger.

use std::sync::Arc;

use jiff::Timestamp;

use super::{OrgTables, StoredRecord};
use crate::{
    faults::FaultState,
    id::Id,
    ledger::{EffectKind, EffectLedger, WriteEffect},
    schema::SchemaObject,
};

#[derive(Debug)]
pub(crate) struct OrgTransaction<'a> {
    pub(crate) tables: &'a mut OrgTables,
    pub(super) faults: &'a mut FaultState,
    pub(super) now: Timestamp,
    /// The number of this attempt.
    pub(super) attempt: u64,
    undo: Vec<Undo>,
    effects: Vec<WriteEffect>,
}

#[derive(Debug)]
struct Undo {
    object: Arc<SchemaObject>,
    id: Id,
    before: Option<StoredRecord>,
}

/// A point that can be returned to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Savepoint {
    undo: usize,
    effects: usize,
}

impl<'a> OrgTransaction<'a> {
    pub(crate) fn begin(
        tables: &'a mut OrgTables,
        faults: &'a mut FaultState,
        now: Timestamp,
    ) -> Self {
        let attempt = faults.next_attempt();
        Self { tables, faults, now, attempt, undo: Vec::new(), effects: Vec::new() }
    }

    pub(crate) fn savepoint(&self) -> Savepoint {
        Savepoint { undo: self.undo.len(), effects: self.effects.len() }
    }

    pub(crate) fn roll_back_to(&mut self, point: Savepoint) {
        self.effects.truncate(point.effects);
        for Undo { object, id, before } in self.undo.drain(point.undo..).rev() {
            match before {
                Some(record) => {
                    self.tables.put(&object, record);
                }
                None => {
                    self.tables.take(&object, id);
                }
            }
        }
    }

    pub(crate) fn commit(mut self, ledger: &mut EffectLedger) {
        self.undo.clear();
        for effect in self.effects.drain(..) {
            ledger.record(effect);
        }
    }

    pub(super) fn put(
        &mut self,
        object: &Arc<SchemaObject>,
        record: StoredRecord,
        effect: WriteEffect,
    ) {
        let id = record.id;
        let before = self.tables.put(object, record);
        self.undo.push(Undo { object: Arc::clone(object), id, before });
        self.effects.push(effect);
    }

    pub(super) fn remove(&mut self, object: &Arc<SchemaObject>, record: &StoredRecord) {
        let effect = effect(object, record, EffectKind::Deleted);
        let before = self.tables.take(object, record.id);
        self.tables.deleted.insert(record.id, object.index);
        self.undo.push(Undo { object: Arc::clone(object), id: record.id, before });
        self.effects.push(effect);
    }
}

impl Drop for OrgTransaction<'_> {
    fn drop(&mut self) {
        // After a commit there is nothing left to roll back.
        self.roll_back_to(Savepoint { undo: 0, effects: 0 });
    }
}

/// Returns the effect of a write that results in this record.
pub(super) fn effect(
    object: &SchemaObject,
    record: &StoredRecord,
    kind: EffectKind,
) -> WriteEffect {
    let text = |field: usize| record.values[field].as_ref().map(|value| value.to_json());
    let spelled = |json: serde_json::Value| match json {
        serde_json::Value::String(text) => text,
        // 3.0 and 3 are one version.
        serde_json::Value::Number(number) => match number.as_f64() {
            Some(float) if float.fract() == 0.0 => format!("{float:.0}"),
            _ => number.to_string(),
        },
        other => other.to_string(),
    };
    WriteEffect {
        object: object.name.clone(),
        id: record.id,
        external_id: object.key_field().and_then(text).map(spelled),
        version: object.version_field.and_then(text).map(spelled),
        kind,
    }
}
