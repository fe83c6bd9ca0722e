//! The records of the org, with an index for each key field.
//!
//! It does not decide whether a write is allowed; [`transaction`] does, and it is the only way to
//! change records.

pub(crate) mod change;
pub(crate) mod repeated;
pub(crate) mod transaction;
mod write;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use jiff::Timestamp;
use serde_json::{Map, Value as Json, json};

pub(crate) use write::{AppliedWrite, Operation, RefusedWrite};

use crate::{
    clock::written,
    id::Id,
    schema::{Schema, SchemaField, SchemaObject, System},
    value::FieldValue,
};

/// All records.
#[derive(Debug)]
pub(crate) struct OrgTables {
    pub(crate) schema: Arc<Schema>,
    tables: Vec<ObjectTable>,
    /// Deleted ids, so that a late write gets the right error.
    deleted: HashMap<Id, usize>,
    next_number: u64,
}

#[derive(Debug, Default)]
struct ObjectTable {
    records: BTreeMap<Id, StoredRecord>,
    /// By field, then by [`FieldValue::index_key`].
    indexes: HashMap<usize, HashMap<String, Vec<Id>>>,
}

/// One record; `values` are in the order of the object's fields.
#[derive(Clone, Debug)]
pub(crate) struct StoredRecord {
    pub(crate) id: Id,
    pub(crate) values: Vec<Option<FieldValue>>,
    pub(crate) created: Timestamp,
    pub(crate) modified: Timestamp,
}

impl OrgTables {
    pub(crate) fn new(schema: Arc<Schema>) -> Self {
        let tables = schema.objects.iter().map(|_| ObjectTable::default()).collect();
        Self { schema, tables, deleted: HashMap::new(), next_number: 1 }
    }

    pub(crate) fn object(&self, index: usize) -> Arc<SchemaObject> {
        Arc::clone(&self.schema.objects[index])
    }

    pub(crate) fn get(&self, object: usize, id: Id) -> Option<&StoredRecord> {
        self.tables[object].records.get(&id)
    }

    /// In the order of creation.
    pub(crate) fn all(&self, object: usize) -> impl DoubleEndedIterator<Item = &StoredRecord> {
        self.tables[object].records.values()
    }

    pub(crate) fn count(&self, object: usize) -> usize {
        self.tables[object].records.len()
    }

    pub(crate) fn was_deleted(&self, id: Id) -> bool {
        self.deleted.contains_key(&id)
    }

    /// Returns the records whose key field has this value; more than one only if the field is not
    /// unique.
    pub(crate) fn find(&self, object: &SchemaObject, field: usize, value: &FieldValue) -> Vec<Id> {
        let definition = &object.fields[field];
        if definition.system == Some(System::Id) {
            let FieldValue::Text(text) = value else { return Vec::new() };
            let found = Id::parse(text).filter(|id| self.get(object.index, *id).is_some());
            return found.into_iter().collect();
        }
        let index = self.tables[object.index].indexes.get(&field);
        let found = index.and_then(|index| index.get(&value.index_key(definition)));
        found.cloned().unwrap_or_default()
    }

    pub(super) fn new_id(&mut self, object: &SchemaObject) -> Id {
        let id = Id::new(&object.key_prefix, self.next_number);
        self.next_number += 1;
        id
    }

    /// Stores a record; returns the one it replaces.
    fn put(&mut self, object: &SchemaObject, record: StoredRecord) -> Option<StoredRecord> {
        let before = self.take(object, record.id);
        let table = &mut self.tables[object.index];
        for (field, key) in keys(object, &record) {
            let ids = table.indexes.entry(field).or_default().entry(key).or_default();
            ids.push(record.id);
        }
        self.deleted.remove(&record.id);
        table.records.insert(record.id, record);
        before
    }

    fn take(&mut self, object: &SchemaObject, id: Id) -> Option<StoredRecord> {
        let table = &mut self.tables[object.index];
        let record = table.records.remove(&id)?;
        for (field, key) in keys(object, &record) {
            let Some(index) = table.indexes.get_mut(&field) else { continue };
            let Some(ids) = index.get_mut(&key) else { continue };
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                index.remove(&key);
            }
        }
        Some(record)
    }
}

fn keys(object: &SchemaObject, record: &StoredRecord) -> Vec<(usize, String)> {
    let fields = object.fields.iter().enumerate().filter(|(_, field)| field.is_indexed());
    let key = |(index, field): (usize, &SchemaField)| {
        Some((index, record.values[index].as_ref()?.index_key(field)))
    };
    fields.filter_map(key).collect()
}

impl StoredRecord {
    pub(crate) fn get(&self, object: &SchemaObject, field: usize) -> Option<FieldValue> {
        match object.fields[field].system {
            None => self.values[field].clone(),
            Some(System::Id) => Some(FieldValue::Text(self.id.as_str().into())),
            Some(System::IsDeleted) => Some(FieldValue::Bool(false)),
            Some(System::CreatedDate) => Some(FieldValue::Text(written(self.created).into())),
            Some(System::LastModifiedDate | System::Modstamp) => {
                Some(FieldValue::Text(written(self.modified).into()))
            }
        }
    }

    /// Returns all fields, with `attributes` as in every response.
    pub(crate) fn to_json(&self, object: &SchemaObject, version: &str) -> Json {
        let mut json = Map::new();
        json.insert("attributes".to_owned(), attributes(object, self.id, version));
        for (index, field) in object.fields.iter().enumerate() {
            let value = self.get(object, index).map_or(Json::Null, |value| value.to_json());
            json.insert(field.name.clone(), value);
        }
        Json::Object(json)
    }
}

/// Returns the type and the URL of a record.
pub(crate) fn attributes(object: &SchemaObject, id: Id, version: &str) -> Json {
    let url = format!("/services/data/{version}/sobjects/{}/{id}", object.name);
    json!({"type": object.name, "url": url})
}
