//! A group of writes that happen together or not at all.
//!
//! Effects reach the ledger only by [`Transaction::commit`]; what is dropped or rolled back leaves
//! no trace, neither in the records nor in the ledger.

use std::sync::Arc;

use jiff::Timestamp;

use super::{Record, Tables};
use crate::{
    faults::FaultState,
    id::Id,
    ledger::{Effect, EffectKind, Ledger},
    schema::Object,
};

#[derive(Debug)]
pub(crate) struct Transaction<'a> {
    pub(crate) tables: &'a mut Tables,
    pub(super) faults: &'a mut FaultState,
    pub(super) now: Timestamp,
    /// Tells this attempt from all others.
    pub(super) attempt: u64,
    undo: Vec<Undo>,
    effects: Vec<Effect>,
}

#[derive(Debug)]
struct Undo {
    object: Arc<Object>,
    id: Id,
    before: Option<Record>,
}

/// A point that can be returned to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Savepoint {
    undo: usize,
    effects: usize,
}

impl<'a> Transaction<'a> {
    pub(crate) fn begin(
        tables: &'a mut Tables,
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

    pub(crate) fn commit(mut self, ledger: &mut Ledger) {
        self.undo.clear();
        for effect in self.effects.drain(..) {
            ledger.record(effect);
        }
    }

    pub(super) fn put(&mut self, object: &Arc<Object>, record: Record, effect: Effect) {
        let id = record.id;
        let before = self.tables.put(object, record);
        self.undo.push(Undo { object: Arc::clone(object), id, before });
        self.effects.push(effect);
    }

    pub(super) fn remove(&mut self, object: &Arc<Object>, record: &Record) {
        let effect = effect(object, record, EffectKind::Deleted);
        let before = self.tables.take(object, record.id);
        self.tables.deleted.insert(record.id, object.index);
        self.undo.push(Undo { object: Arc::clone(object), id: record.id, before });
        self.effects.push(effect);
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // After a commit there is nothing left to undo.
        self.roll_back_to(Savepoint { undo: 0, effects: 0 });
    }
}

/// The effect of a write that leaves the record like this.
pub(super) fn effect(object: &Object, record: &Record, kind: EffectKind) -> Effect {
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
    Effect {
        object: object.name.clone(),
        id: record.id,
        external_id: object.key_field().and_then(text).map(spelled),
        version: object.version_field.and_then(text).map(spelled),
        kind,
    }
}
