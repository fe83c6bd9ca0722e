//! What a row asks to write, before it is known whether it may.
//!
//! CSV and JSON meet here: an empty cell and a missing key leave a field alone, `#N/A` and `null`
//! empty it.

use serde_json::{Map, Value as Json};

use crate::{
    row_error::RowError,
    schema::{Field, ID, Object, Schema},
    value::Value,
};

/// The values of one row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change {
    /// The `Id` of the row, as given.
    pub(crate) id: Option<String>,
    /// Fields and their new values, `None` to empty them.
    pub(crate) values: Vec<(usize, Option<Value>)>,
    pub(crate) parents: Vec<Parent>,
    /// A value that cannot be stored; the row fails with it once it is known to be new or not.
    pub(crate) invalid: Option<RowError>,
}

/// A parent, named by a key of its own.
#[derive(Clone, Debug)]
pub(crate) struct Parent {
    pub(crate) lookup: usize,
    /// The field of the parent object.
    pub(crate) field: usize,
    pub(crate) key: String,
}

/// Where a column goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Field(usize),
    Parent { lookup: usize, field: usize },
}

impl Change {
    /// The value of a field in this row, if the row sets it.
    pub(crate) fn get(&self, field: usize) -> Option<&Value> {
        let (_, value) = self.values.iter().find(|(index, _)| *index == field)?;
        value.as_ref()
    }

    /// Takes the value of a field out.
    pub(crate) fn take(&mut self, field: usize) -> Option<Option<Value>> {
        let place = self.values.iter().position(|(index, _)| *index == field)?;
        Some(self.values.remove(place).1)
    }

    pub(crate) fn set_text(&mut self, object: &Object, target: Target, text: &str) {
        match target {
            Target::Field(ID) => self.id = Some(text.to_owned()),
            // Blanks alone are as good as nothing.
            Target::Field(field) if object.fields[field].kind.is_text() && is_blank(text) => {
                self.set_null(target);
            }
            Target::Field(field) => match Value::from_text(&object.fields[field], text) {
                Ok(value) => self.values.push((field, Some(value))),
                Err(error) => self.refuse(error),
            },
            Target::Parent { lookup, field } => {
                self.parents.push(Parent { lookup, field, key: text.to_owned() });
            }
        }
    }

    pub(crate) fn set_null(&mut self, target: Target) {
        match target {
            Target::Field(ID) => {}
            Target::Field(field) | Target::Parent { lookup: field, .. } => {
                self.values.push((field, None));
            }
        }
    }

    pub(crate) fn refuse(&mut self, error: RowError) {
        self.invalid.get_or_insert(error);
    }

    /// Reads a record of a JSON body. An error here is one of the body, not of the record.
    pub(crate) fn from_json(
        schema: &Schema,
        object: &Object,
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

    fn set_json(&mut self, object: &Object, field: usize, json: &Json) -> Result<(), RowError> {
        match json {
            Json::Null => self.set_null(Target::Field(field)),
            // An empty text is null to Salesforce.
            Json::String(text) if text.is_empty() => self.set_null(Target::Field(field)),
            Json::String(text) if field == ID || is_blank(text) => {
                self.set_text(object, Target::Field(field), text);
            }
            other => {
                let value = Value::from_json(&object.fields[field], other);
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

/// `"Account": {"ExternalId__c": "a1"}`, with or without `attributes`.
fn parent_key(
    schema: &Schema,
    object: &Object,
    name: &str,
    parent: &Map<String, Json>,
) -> Result<(Target, String), RowError> {
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
    Ok((Target::Parent { lookup, field }, key))
}

pub(crate) fn no_such_column(object: &Object, name: &str) -> RowError {
    let message = format!("No such column '{name}' on sobject of type {}", object.name);
    RowError::new("INVALID_FIELD", message)
}

/// A field that nobody may write.
pub(crate) fn not_writable(field: &Field) -> RowError {
    let message = format!(
        "Unable to create/update fields: {}. Please check the security settings of this field and \
         verify that it is read/write for your profile or permission set.",
        field.name
    );
    RowError::new("INVALID_FIELD_FOR_INSERT_UPDATE", message).on(&field.name)
}
