//! The objects and fields of the org.
//!
//! Names are found whatever their case, as Salesforce does; [`Field::name`] is the spelling of the
//! org. What is in a [`Schema`] was checked: lookups lead to objects, names are unique.

mod file;

use std::sync::Arc;

pub use file::SchemaError;
use serde::Deserialize;

/// All objects, in the order of the file.
#[derive(Debug)]
pub struct Schema {
    pub(crate) objects: Vec<Arc<Object>>,
}

/// One type of record.
#[derive(Debug)]
pub(crate) struct Object {
    /// Its place in the schema.
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) label: String,
    /// How the ids of its records start.
    pub(crate) key_prefix: String,
    pub(crate) fields: Vec<Field>,
    /// The field that tells the ledger which version of the record a write carries.
    pub(crate) version_field: Option<usize>,
    /// A write with a lower version than the record has is refused with this text.
    pub(crate) older_version_message: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) label: String,
    pub(crate) kind: Kind,
    /// Counted in characters; 0 where it makes no sense.
    pub(crate) length: usize,
    pub(crate) required: bool,
    pub(crate) unique: bool,
    pub(crate) external_id: bool,
    pub(crate) case_sensitive: bool,
    /// The allowed values of a restricted picklist.
    pub(crate) values: Vec<String>,
    pub(crate) lookup: Option<Lookup>,
    pub(crate) system: Option<System>,
}

/// A field that holds the id of a record of another object.
#[derive(Debug)]
pub(crate) struct Lookup {
    /// The place of the parent object in the schema.
    pub(crate) to: usize,
    /// How the parent's fields are reached, e.g. `Account` or `Contact__r`.
    pub(crate) relationship: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
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

/// Where the values of `Id` are: it is the first field of each object.
pub(crate) const ID: usize = 0;

impl Schema {
    /// `Account`, `Contact` and `Block__c`.
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

    pub(crate) fn object(&self, name: &str) -> Option<&Arc<Object>> {
        self.objects.iter().find(|object| object.name.eq_ignore_ascii_case(name))
    }
}

impl Object {
    pub(crate) fn field(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.name.eq_ignore_ascii_case(name))
    }

    /// The lookup with this relationship name.
    pub(crate) fn relationship(&self, name: &str) -> Option<(usize, &Lookup)> {
        let fields = self.fields.iter().enumerate();
        let mut lookups = fields.filter_map(|(index, field)| Some((index, field.lookup.as_ref()?)));
        lookups.find(|(_, lookup)| lookup.relationship.eq_ignore_ascii_case(name))
    }

    /// The field whose value names a record in the ledger.
    pub(crate) fn key_field(&self) -> Option<usize> {
        self.fields.iter().position(|field| field.external_id)
    }
}

impl Field {
    /// Whether records can be found by this field in an upsert or a reference.
    pub(crate) fn is_key(&self) -> bool {
        self.external_id || self.system == Some(System::Id)
    }

    pub(crate) fn is_indexed(&self) -> bool {
        self.external_id || self.unique
    }
}

impl Kind {
    /// The type in a description of the object.
    /// What the parser of a JSON body calls it.
    pub(crate) fn deserialized(self) -> &'static str {
        match self {
            Self::Double | Self::Currency | Self::Percent => "double",
            Self::Int | Self::Boolean | Self::Date | Self::DateTime => self.described(),
            _ => "string",
        }
    }

    /// Whether its values are texts of any form, which lose the blanks at their ends.
    pub(crate) fn is_text(self) -> bool {
        let texts =
            [Self::Text, Self::TextArea, Self::Email, Self::Phone, Self::Url, Self::Picklist];
        texts.contains(&self)
    }

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
