//! The records of the org, with an index for each field that can find them.
//!
//! Nothing here decides whether a write is allowed; [`transaction`] does, and it is the only way to
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

pub(crate) use write::{Done, Operation, Refused};

use crate::{
    clock::written,
    id::Id,
    schema::{Field, Object, Schema, System},
    value::Value,
};

/// All records.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) schema: Arc<Schema>,
    tables: Vec<Table>,
    /// What was deleted, so that a late write can be told so.
    deleted: HashMap<Id, usize>,
    next_number: u64,
}

#[derive(Debug, Default)]
struct Table {
    records: BTreeMap<Id, Record>,
    /// By field, then by [`Value::index_key`].
    indexes: HashMap<usize, HashMap<String, Vec<Id>>>,
}

/// One record; `values` are in the order of the object's fields.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) id: Id,
    pub(crate) values: Vec<Option<Value>>,
    pub(crate) created: Timestamp,
    pub(crate) modified: Timestamp,
}

impl Tables {
    pub(crate) fn new(schema: Arc<Schema>) -> Self {
        let tables = schema.objects.iter().map(|_| Table::default()).collect();
        Self { schema, tables, deleted: HashMap::new(), next_number: 1 }
    }

    pub(crate) fn object(&self, index: usize) -> Arc<Object> {
        Arc::clone(&self.schema.objects[index])
    }

    pub(crate) fn get(&self, object: usize, id: Id) -> Option<&Record> {
        self.tables[object].records.get(&id)
    }

    /// In the order of creation.
    pub(crate) fn all(&self, object: usize) -> impl DoubleEndedIterator<Item = &Record> {
        self.tables[object].records.values()
    }

    pub(crate) fn count(&self, object: usize) -> usize {
        self.tables[object].records.len()
    }

    pub(crate) fn was_deleted(&self, id: Id) -> bool {
        self.deleted.contains_key(&id)
    }

    /// The records whose key field has this value; more than one only if the field is not unique.
    pub(crate) fn find(&self, object: &Object, field: usize, value: &Value) -> Vec<Id> {
        let definition = &object.fields[field];
        if definition.system == Some(System::Id) {
            let Value::Text(text) = value else { return Vec::new() };
            let found = Id::parse(text).filter(|id| self.get(object.index, *id).is_some());
            return found.into_iter().collect();
        }
        let index = self.tables[object.index].indexes.get(&field);
        let found = index.and_then(|index| index.get(&value.index_key(definition)));
        found.cloned().unwrap_or_default()
    }

    pub(super) fn new_id(&mut self, object: &Object) -> Id {
        let id = Id::new(&object.key_prefix, self.next_number);
        self.next_number += 1;
        id
    }

    /// Puts a record in place of the one with its id, if there is one.
    fn put(&mut self, object: &Object, record: Record) -> Option<Record> {
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

    fn take(&mut self, object: &Object, id: Id) -> Option<Record> {
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

fn keys(object: &Object, record: &Record) -> Vec<(usize, String)> {
    let fields = object.fields.iter().enumerate().filter(|(_, field)| field.is_indexed());
    let key = |(index, field): (usize, &Field)| {
        Some((index, record.values[index].as_ref()?.index_key(field)))
    };
    fields.filter_map(key).collect()
}

impl Record {
    pub(crate) fn get(&self, object: &Object, field: usize) -> Option<Value> {
        match object.fields[field].system {
            None => self.values[field].clone(),
            Some(System::Id) => Some(Value::Text(self.id.as_str().into())),
            Some(System::IsDeleted) => Some(Value::Bool(false)),
            Some(System::CreatedDate) => Some(Value::Text(written(self.created).into())),
            Some(System::LastModifiedDate | System::Modstamp) => {
                Some(Value::Text(written(self.modified).into()))
            }
        }
    }

    /// All fields, with `attributes` as in every answer.
    pub(crate) fn to_json(&self, object: &Object, version: &str) -> Json {
        let mut json = Map::new();
        json.insert("attributes".to_owned(), attributes(object, self.id, version));
        for (index, field) in object.fields.iter().enumerate() {
            let value = self.get(object, index).map_or(Json::Null, |value| value.to_json());
            json.insert(field.name.clone(), value);
        }
        Json::Object(json)
    }
}

/// What tells the type and the address of a record.
pub(crate) fn attributes(object: &Object, id: Id, version: &str) -> Json {
    let url = format!("/services/data/{version}/sobjects/{}/{id}", object.name);
    json!({"type": object.name, "url": url})
}
