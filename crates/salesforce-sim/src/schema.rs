//! The objects and fields of the org.
//!
//! Names are case-insensitive, like in Salesforce; [`SchemaField::name`] is the spelling of the
//! org. A [`Schema`] is validated: lookups refer to existing objects, names are unique.

mod file;

use std::sync::Arc;

pub use file::SchemaError;
use serde::Deserialize;

/// All objects, in the order of the file.
#[derive(Debug)]
pub struct Schema {
    pub(crate) objects: Vec<Arc<SchemaObject>>,
}

/// One type of record.
#[derive(Debug)]
pub(crate) struct SchemaObject {
    /// Its index in the schema.
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) label: String,
    /// The prefix of the ids of its records.
    pub(crate) key_prefix: String,
    pub(crate) fields: Vec<SchemaField>,
    /// The field with the version of a record, for the ledger.
    pub(crate) version_field: Option<usize>,
    /// The error for a write with a lower version than the record has.
    pub(crate) older_version_message: Option<String>,
}

#[derive(Debug)]
pub(crate) struct SchemaField {
    pub(crate) name: String,
    pub(crate) label: String,
    pub(crate) kind: FieldKind,
    /// In characters; 0 if not applicable.
    pub(crate) length: usize,
    pub(crate) required: bool,
    pub(crate) unique: bool,
    pub(crate) external_id: bool,
    pub(crate) case_sensitive: bool,
    /// The allowed values of a restricted picklist.
    pub(crate) values: Vec<String>,
    pub(crate) lookup: Option<FieldLookup>,
    pub(crate) system: Option<System>,
}

/// A field with the id of a record of another object.
#[derive(Debug)]
pub(crate) struct FieldLookup {
    /// The index of the parent object in the schema.
    pub(crate) to: usize,
    /// The name of the relationship, e.g. `Account` or `Contact__r`.
    pub(crate) relationship: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FieldKind {
    Id,
    Text,
    TextArea,
    Email,
    Phone,
    Url,
    Picklist,
    Boolean,
    Int,
    Double,
    Currency,
    Percent,
    Date,
    DateTime,
    Lookup,
}

/// A field that only the org writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    Id,
    IsDeleted,
    CreatedDate,
    LastModifiedDate,
    Modstamp,
}

/// The index of `Id`, the first field of each object.
pub(crate) const ID: usize = 0;

impl Schema {
    /// Returns the built-in schema: `Account`, `Contact` and `Block__c`.
    pub fn builtin() -> Self {
        Self::from_toml(include_str!("schema/builtin.toml")).expect("the built-in schema is valid")
    }

    /// Reads a schema file; the README describes it.
    pub fn from_toml(text: &str) -> Result<Self, SchemaError> {
        Self::from_table(text.parse()?)
    }

    pub(crate) fn from_table(table: toml::Table) -> Result<Self, SchemaError> {
        file::read(table)
    }

    pub(crate) fn object(&self, name: &str) -> Option<&Arc<SchemaObject>> {
        self.objects.iter().find(|object| object.name.eq_ignore_ascii_case(name))
    }
}

impl SchemaObject {
    pub(crate) fn field(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.name.eq_ignore_ascii_case(name))
    }

    /// Returns the lookup with this relationship name.
    pub(crate) fn relationship(&self, name: &str) -> Option<(usize, &FieldLookup)> {
        let fields = self.fields.iter().enumerate();
        let mut lookups = fields.filter_map(|(index, field)| Some((index, field.lookup.as_ref()?)));
        lookups.find(|(_, lookup)| lookup.relationship.eq_ignore_ascii_case(name))
    }

    /// Returns the field that identifies a record in the ledger.
    pub(crate) fn key_field(&self) -> Option<usize> {
        self.fields.iter().position(|field| field.external_id)
    }
}

impl SchemaField {
    /// Returns whether records can be found by this field in an upsert or a reference.
    pub(crate) fn is_key(&self) -> bool {
        self.external_id || self.system == Some(System::Id)
    }

    pub(crate) fn is_indexed(&self) -> bool {
        self.external_id || self.unique
    }
}

impl FieldKind {
    /// Returns the type name in errors of the JSON parser.
    pub(crate) fn deserialized(self) -> &'static str {
        match self {
            Self::Double | Self::Currency | Self::Percent => "double",
            Self::Int | Self::Boolean | Self::Date | Self::DateTime => self.described(),
            _ => "string",
        }
    }

    /// Returns whether its values are texts, which lose blanks at their ends.
    pub(crate) fn is_text(self) -> bool {
        let texts =
            [Self::Text, Self::TextArea, Self::Email, Self::Phone, Self::Url, Self::Picklist];
        texts.contains(&self)
    }

    /// Returns the type name in the description of an object.
    pub(crate) fn described(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Text => "string",
            Self::TextArea => "textarea",
            Self::Email => "email",
            Self::Phone => "phone",
            Self::Url => "url",
            Self::Picklist => "picklist",
            Self::Boolean => "boolean",
            Self::Int => "int",
            Self::Double => "double",
            Self::Currency => "currency",
            Self::Percent => "percent",
            Self::Date => "date",
            Self::DateTime => "datetime",
            Self::Lookup => "reference",
        }
    }
}
