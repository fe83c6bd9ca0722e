//! One write: finds the record, checks the change, and applies it.

use std::sync::Arc;

use super::{
    OrgTables, StoredRecord,
    change::{RowChange, not_writable},
    transaction::{OrgTransaction, effect},
};
use crate::{
    id::Id,
    ledger::EffectKind,
    row_error::RowError,
    schema::{FieldKind, ID, SchemaObject},
    value::FieldValue,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Insert,
    Update,
    /// By the value of this field.
    Upsert(usize),
    Delete,
}

/// A row that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AppliedWrite {
    pub(crate) id: Id,
    pub(crate) created: bool,
}

/// A row that was refused, and the record that it would have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefusedWrite {
    pub(crate) id: Option<Id>,
    pub(crate) error: RowError,
}

impl From<RowError> for RefusedWrite {
    fn from(error: RowError) -> Self {
        Self { id: None, error }
    }
}

impl OrgTransaction<'_> {
    /// Writes one row; a refused row has changed nothing.
    pub(crate) fn write(
        &mut self,
        object: &Arc<SchemaObject>,
        operation: Operation,
        mut change: RowChange,
    ) -> Result<AppliedWrite, RefusedWrite> {
        let found = match operation {
            Operation::Upsert(field) if field != ID => {
                upsert_target(self.tables, object, field, &mut change)?
            }
            _ => target(self.tables, object, operation, &change)?,
        };
        let refuse = |error| RefusedWrite { id: found, error };
        let key = fault_key(self.tables, object, found, operation, &change);
        self.injected(object, &key, &change).map_err(refuse)?;
        if operation == Operation::Delete {
            let id = found.expect("a delete always has its target");
            let record = self.tables.get(object.index, id).expect("the target exists").clone();
            self.remove(object, &record);
            return Ok(AppliedWrite { id, created: false });
        }
        if let Some(error) = change.invalid.take() {
            return Err(refuse(error));
        }
        self.resolve_parents(object, &mut change).map_err(refuse)?;
        self.save(object, found, change).map_err(refuse)
    }

    /// Errors of faults.
    fn injected(
        &mut self,
        object: &SchemaObject,
        key: &str,
        change: &RowChange,
    ) -> Result<(), RowError> {
        if let Some(error) = self.faults.row(&object.name, key) {
            return Err(error);
        }
        let attempt = self.attempt;
        let parent = |name: &str| {
            let field = object.field(name)?;
            let by_key = change.parents.iter().find(|parent| parent.lookup == field);
            let by_value = || change.get(field).map(FieldValue::to_cell);
            by_key.map(|parent| parent.key.clone()).or_else(by_value)
        };
        self.faults.lock(&object.name, attempt, parent).map_or(Ok(()), Err)
    }

    fn resolve_parents(
        &self,
        object: &SchemaObject,
        change: &mut RowChange,
    ) -> Result<(), RowError> {
        for parent in std::mem::take(&mut change.parents) {
            let lookup = object.fields[parent.lookup].lookup.as_ref().expect("it is a lookup");
            let parent_object = self.tables.object(lookup.to);
            let field = &parent_object.fields[parent.field];
            let found = match FieldValue::from_text(field, &parent.key) {
                Ok(value) => self.tables.find(&parent_object, parent.field, &value),
                Err(_) => Vec::new(),
            };
            match found.as_slice() {
                [id] => {
                    change.values.push((parent.lookup, Some(FieldValue::Text(id.as_str().into()))));
                }
                [] => {
                    let message = format!(
                        "Foreign key external ID: {} not found for field {} in entity {}",
                        parent.key, field.name, parent_object.name
                    );
                    return Err(RowError::new("INVALID_FIELD", message));
                }
                several => return Err(several_found(&field.name, several)),
            }
        }
        Ok(())
    }

    fn save(
        &mut self,
        object: &Arc<SchemaObject>,
        found: Option<Id>,
        change: RowChange,
    ) -> Result<AppliedWrite, RowError> {
        let before = found.and_then(|id| self.tables.get(object.index, id)).cloned();
        let mut after = before.clone().unwrap_or_else(|| StoredRecord {
            id: self.tables.new_id(object),
            values: blank(object),
            created: self.now,
            modified: self.now,
        });
        for (field, value) in change.values {
            if object.fields[field].system.is_some() {
                return Err(not_writable(&object.fields[field]));
            }
            after.values[field] = value;
        }
        required(object, &after)?;
        newer(object, before.as_ref(), &after)?;
        self.unique(object, &after)?;
        self.lookups_exist(object, &after)?;
        after.modified = self.now;
        let kind = match &before {
            None => EffectKind::Created,
            Some(before) if before.values == after.values => EffectKind::Unchanged,
            Some(_) => EffectKind::Updated,
        };
        let done = AppliedWrite { id: after.id, created: before.is_none() };
        let effect = effect(object, &after, kind);
        self.put(object, after, effect);
        Ok(done)
    }

    fn unique(&self, object: &SchemaObject, after: &StoredRecord) -> Result<(), RowError> {
        for (index, field) in object.fields.iter().enumerate().filter(|(_, field)| field.unique) {
            let Some(value) = &after.values[index] else { continue };
            let others = self.tables.find(object, index, value);
            if let Some(other) = others.into_iter().find(|id| *id != after.id) {
                let message = format!(
                    "duplicate value found: {} duplicates value on record with id: {other}",
                    field.name
                );
                return Err(RowError::new("DUPLICATE_VALUE", message));
            }
        }
        Ok(())
    }

    fn lookups_exist(&self, object: &SchemaObject, after: &StoredRecord) -> Result<(), RowError> {
        for (index, field) in object.fields.iter().enumerate() {
            let (Some(lookup), Some(FieldValue::Text(text))) =
                (&field.lookup, &after.values[index])
            else {
                continue;
            };
            let id = Id::parse(text);
            if id.is_none_or(|id| self.tables.get(lookup.to, id).is_none()) {
                let message = "invalid cross reference id";
                return Err(RowError::new("INVALID_CROSS_REFERENCE_KEY", message));
            }
        }
        Ok(())
    }
}

/// Returns the record of an update, a delete or an upsert; `None` for a new record.
fn target(
    tables: &OrgTables,
    object: &SchemaObject,
    operation: Operation,
    change: &RowChange,
) -> Result<Option<Id>, RowError> {
    let given = change.id.as_deref().filter(|id| !id.is_empty());
    match (operation, given) {
        (Operation::Insert, None) | (Operation::Upsert(_), None) => Ok(None),
        (Operation::Insert, Some(_)) => Err(RowError::new(
            "INVALID_FIELD_FOR_INSERT_UPDATE",
            "cannot specify Id in an insert call",
        )
        .on("Id")),
        (Operation::Update | Operation::Delete, None) => {
            Err(RowError::new("MISSING_ARGUMENT", "Id not specified in an update call"))
        }
        (_, Some(text)) => existing(tables, object, text).map(Some),
    }
}

/// Returns the record with this id; the error explains why there is none.
pub(crate) fn existing(
    tables: &OrgTables,
    object: &SchemaObject,
    text: &str,
) -> Result<Id, RowError> {
    let malformed = || RowError::new("MALFORMED_ID", format!("bad id {text}")).on("Id");
    let id = Id::parse(text).ok_or_else(malformed)?;
    if tables.get(object.index, id).is_some() {
        Ok(id)
    } else if tables.was_deleted(id) {
        Err(RowError::new("ENTITY_IS_DELETED", "entity is deleted"))
    } else {
        Err(RowError::new("INVALID_CROSS_REFERENCE_KEY", "invalid cross reference id"))
    }
}

fn upsert_target(
    tables: &OrgTables,
    object: &SchemaObject,
    field: usize,
    change: &mut RowChange,
) -> Result<Option<Id>, RowError> {
    let name = &object.fields[field].name;
    if change.id.as_deref().is_some_and(|id| !id.is_empty()) {
        let message =
            format!("cannot specify both an external ID reference {name} and a salesforce id, Id");
        return Err(RowError::new("INVALID_FIELD", message));
    }
    let Some(value) = change.get(field) else {
        let missing = RowError::new("MISSING_ARGUMENT", format!("{name} not specified"));
        return Err(change.invalid.take().unwrap_or(missing));
    };
    match tables.find(object, field, value).as_slice() {
        [] => Ok(None),
        [id] => Ok(Some(*id)),
        several => Err(several_found(name, several)),
    }
}

fn several_found(field: &str, ids: &[Id]) -> RowError {
    let ids = ids.iter().map(Id::as_str).collect::<Vec<_>>().join(", ");
    let message = format!("{field}: more than one record found for external id field: [{ids}]");
    RowError::new("DUPLICATE_EXTERNAL_ID", message).on(field)
}

/// Returns the key of a row for the faults: its external id, otherwise the id of its record.
fn fault_key(
    tables: &OrgTables,
    object: &SchemaObject,
    found: Option<Id>,
    operation: Operation,
    change: &RowChange,
) -> String {
    let field = match operation {
        Operation::Upsert(field) if field != ID => Some(field),
        _ => object.key_field(),
    };
    let given = field.and_then(|field| change.get(field)).map(FieldValue::to_cell);
    let stored = || {
        let record = tables.get(object.index, found?)?;
        Some(record.values[field?].as_ref()?.to_cell())
    };
    let id = || found.map(|id| id.to_string());
    given.or_else(stored).or_else(id).unwrap_or_default()
}

fn blank(object: &SchemaObject) -> Vec<Option<FieldValue>> {
    let value = |kind| (kind == FieldKind::Boolean).then_some(FieldValue::Bool(false));
    object.fields.iter().map(|field| value(field.kind)).collect()
}

fn required(object: &SchemaObject, after: &StoredRecord) -> Result<(), RowError> {
    let is_empty = |value: &Option<FieldValue>| match value {
        None => true,
        Some(FieldValue::Text(text)) => text.is_empty(),
        Some(_) => false,
    };
    let fields = object.fields.iter().zip(&after.values);
    let missing = fields.filter(|(field, value)| field.required && is_empty(value));
    let names: Vec<String> = missing.map(|(field, _)| field.name.clone()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let message = format!("Required fields are missing: [{}]", names.join(", "));
    Err(RowError { code: "REQUIRED_FIELD_MISSING".to_owned(), message, fields: names })
}

/// Applies the validation rule against outdated writes.
fn newer(
    object: &SchemaObject,
    before: Option<&StoredRecord>,
    after: &StoredRecord,
) -> Result<(), RowError> {
    let (Some(field), Some(message)) = (object.version_field, &object.older_version_message) else {
        return Ok(());
    };
    let number = |record: &StoredRecord| match record.values[field] {
        Some(FieldValue::Double(number)) => Some(number),
        Some(FieldValue::Int(number)) => Some(number as f64),
        _ => None,
    };
    match (before.and_then(number), number(after)) {
        (Some(old), Some(new)) if new < old => {
            let name = &object.fields[field].name;
            Err(RowError::new("FIELD_CUSTOM_VALIDATION_EXCEPTION", message).on(name))
        }
        _ => Ok(()),
    }
}
