//! The requested change of a row, before it is checked.
//!
//! Common form of CSV and JSON: an empty cell and a missing key leave a field unchanged, `#N/A` and
//! `null` clear it.

use serde_json::{Map, Value as Json};

use crate::{
    row_error::RowError,
    schema::{ID, Schema, SchemaField, SchemaObject},
    value::FieldValue,
};

/// The values of one row.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowChange {
    /// The `Id` of the row, as sent.
    pub(crate) id: Option<String>,
    /// Fields and their new values; `None` clears the field.
    pub(crate) values: Vec<(usize, Option<FieldValue>)>,
    pub(crate) parents: Vec<Parent>,
    /// A value that cannot be stored; the row fails with it after the record is determined.
    pub(crate) invalid: Option<RowError>,
}

/// A parent, identified by its own key.
#[derive(Clone, Debug)]
pub(crate) struct Parent {
    pub(crate) lookup: usize,
    /// The field of the parent object.
    pub(crate) field: usize,
    pub(crate) key: String,
}

/// The target of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeTarget {
    Field(usize),
    Parent { lookup: usize, field: usize },
}

impl RowChange {
    /// Returns the value of a field, if the row sets it.
    pub(crate) fn get(&self, field: usize) -> Option<&FieldValue> {
        let (_, value) = self.values.iter().find(|(index, _)| *index == field)?;
        value.as_ref()
    }

    /// Removes and returns the value of a field.
    pub(crate) fn take(&mut self, field: usize) -> Option<Option<FieldValue>> {
        let place = self.values.iter().position(|(index, _)| *index == field)?;
        Some(self.values.remove(place).1)
    }

    pub(crate) fn set_text(&mut self, object: &SchemaObject, target: ChangeTarget, text: &str) {
        match target {
            ChangeTarget::Field(ID) => self.id = Some(text.to_owned()),
            // Blanks count as null.
            ChangeTarget::Field(field) if object.fields[field].kind.is_text() && is_blank(text) => {
                self.set_null(target);
            }
            ChangeTarget::Field(field) => {
                match FieldValue::from_text(&object.fields[field], text) {
                    Ok(value) => self.values.push((field, Some(value))),
                    Err(error) => self.refuse(error),
                }
            }
            ChangeTarget::Parent { lookup, field } => {
                self.parents.push(Parent { lookup, field, key: text.to_owned() });
            }
        }
    }

    pub(crate) fn set_null(&mut self, target: ChangeTarget) {
        match target {
            ChangeTarget::Field(ID) => {}
            ChangeTarget::Field(field) | ChangeTarget::Parent { lookup: field, .. } => {
                self.values.push((field, None));
            }
        }
    }

    pub(crate) fn refuse(&mut self, error: RowError) {
        self.invalid.get_or_insert(error);
    }

    /// Parses a record of a JSON body. An error concerns the body, not the record.
    pub(crate) fn from_json(
        schema: &Schema,
        object: &SchemaObject,
        record: &Map<String, Json>,
    ) -> Result<Self, RowError> {
        let mut change = Self::default();
        for (name, json) in record {
            if name.eq_ignore_ascii_case("attributes") {
                continue;
            }
            if let Json::Object(parent) = json {
                let (target, key) = parent_key(schema, object, name, parent)?;
                change.set_text(object, target, &key);
                continue;
            }
            let field = object.field(name).ok_or_else(|| no_such_column(object, name))?;
            change.set_json(object, field, json)?;
        }
        Ok(change)
    }

    fn set_json(
        &mut self,
        object: &SchemaObject,
        field: usize,
        json: &Json,
    ) -> Result<(), RowError> {
        match json {
            Json::Null => self.set_null(ChangeTarget::Field(field)),
            // An empty text is null in Salesforce.
            Json::String(text) if text.is_empty() => self.set_null(ChangeTarget::Field(field)),
            Json::String(text) if field == ID || is_blank(text) => {
                self.set_text(object, ChangeTarget::Field(field), text);
            }
            other => {
                let value = FieldValue::from_json(&object.fields[field], other);
                match value {
                    Ok(value) => self.values.push((field, Some(value))),
                    Err(error) if error.code == "JSON_PARSER_ERROR" => return Err(error),
                    Err(error) => self.refuse(error),
                }
            }
        }
        Ok(())
    }
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Parses `"Account": {"ExternalId__c": "a1"}`, with or without `attributes`.
fn parent_key(
    schema: &Schema,
    object: &SchemaObject,
    name: &str,
    parent: &Map<String, Json>,
) -> Result<(ChangeTarget, String), RowError> {
    let (lookup, definition) =
        object.relationship(name).ok_or_else(|| no_such_column(object, name))?;
    let parent_object = &schema.objects[definition.to];
    let mut keys = parent.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("attributes"));
    let wrong = || {
        let message = format!("{name}: exactly one external ID field must name the parent");
        RowError::new("INVALID_FIELD", message)
    };
    let (Some((name, json)), None) = (keys.next(), keys.next()) else { return Err(wrong()) };
    let field = parent_object.field(name).ok_or_else(|| no_such_column(parent_object, name))?;
    if !parent_object.fields[field].is_key() {
        return Err(wrong());
    }
    let key = match json {
        Json::String(text) => text.clone(),
        Json::Number(number) => number.to_string(),
        _ => return Err(wrong()),
    };
    Ok((ChangeTarget::Parent { lookup, field }, key))
}

pub(crate) fn no_such_column(object: &SchemaObject, name: &str) -> RowError {
    let message = format!("No such column '{name}' on sobject of type {}", object.name);
    RowError::new("INVALID_FIELD", message)
}

/// Returns the error for a read-only field.
pub(crate) fn not_writable(field: &SchemaField) -> RowError {
    let message = format!(
        "Unable to create/update fields: {}. Please check the security settings of this field and \
         verify that it is read/write for your profile or permission set.",
        field.name
    );
    RowError::new("INVALID_FIELD_FOR_INSERT_UPDATE", message).on(&field.name)
}
