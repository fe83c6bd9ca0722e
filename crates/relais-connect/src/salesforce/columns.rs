//! The column mapping of a destination, validated once.

use serde_json::json;

use super::{
    row_values::Cell,
    settings::{OnMissing, SalesforceSettings, is_name},
};

/// Maximum number of columns, and of characters in the header of a CSV.
const COLUMNS_MAX: usize = 5_000;
const HEADER_CHARS_MAX: usize = 32_000;

/// Maps fields of a row to columns of a record.
#[derive(Clone, Debug)]
pub(super) struct ColumnMapping {
    pub(super) external_id: String,
    pub(super) columns: Vec<MappedColumn>,
    pub(super) version: Option<String>,
    pub(super) on_missing: OnMissing,
}

#[derive(Clone, Debug)]
pub(super) struct MappedColumn {
    /// The name in the header of a CSV.
    pub(super) name: String,
    target: ColumnTarget,
    pub(super) field: FieldSource,
}

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FieldSource {
    /// A column of the fresh row, or a top-level field of the payload.
    Name(String),
    /// Always a value of the payload.
    Pointer(String),
}

/// The target of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ColumnTarget {
    Field,
    /// A related record, found by its own external id.
    Relation {
        /// Needed if several objects are possible.
        object: Option<String>,
        relation: String,
        field: String,
    },
}

impl ColumnMapping {
    pub(super) fn new(settings: &SalesforceSettings) -> Result<Self, String> {
        let mut columns = Vec::with_capacity(settings.columns.len());
        for (name, field) in &settings.columns {
            columns.push(MappedColumn::new(name, field)?);
        }
        check(&columns, &settings.external_id)?;
        Ok(Self {
            external_id: settings.external_id.clone(),
            columns,
            version: settings.version.clone(),
            on_missing: settings.on_missing,
        })
    }

    /// Returns a record in the format of Collections.
    pub(super) fn json(&self, object: &str, id: &str, cells: &[Cell<'_>]) -> String {
        let attributes = json!({ "type": object });
        let mut out = format!("{{\"attributes\":{attributes}");
        push(&mut out, &self.external_id, &json!(id).to_string());
        for (column, cell) in self.columns.iter().zip(cells) {
            let value = match cell {
                Cell::Absent => continue,
                Cell::Null => "null".to_owned(),
                Cell::Text(text) => json!(text).to_string(),
                Cell::Plain(plain) => plain.clone().into_owned(),
            };
            match &column.target {
                ColumnTarget::Field => push(&mut out, &column.name, &value),
                ColumnTarget::Relation { relation, .. } if *cell == Cell::Null => {
                    push(&mut out, &lookup_field(relation), &value);
                }
                ColumnTarget::Relation { object, relation, field } => {
                    let kind = object.as_ref().map(|object| json!({ "type": object }));
                    let kind = kind.map_or(String::new(), |kind| format!("\"attributes\":{kind},"));
                    push(&mut out, relation, &format!("{{{kind}\"{field}\":{value}}}"));
                }
            }
        }
        out.push('}');
        out
    }
}

/// Returns the field of a relation, which can be set to null: `AccountId`, `Parent__c`.
fn lookup_field(relation: &str) -> String {
    match relation.strip_suffix("__r") {
        Some(custom) => format!("{custom}__c"),
        None => format!("{relation}Id"),
    }
}

/// Adds a field. Names contain only letters, digits and `_`, so they need no escaping.
fn push(out: &mut String, name: &str, value: &str) {
    for part in [",\"", name, "\":", value] {
        out.push_str(part);
    }
}

impl MappedColumn {
    fn new(name: &str, field: &str) -> Result<Self, String> {
        let target = target(name).ok_or_else(|| {
            format!(
                "`columns`: {name:?} is not a column; use a field's API name, or \
                 `Relation.ExternalIdField` for the record it refers to"
            )
        })?;
        let field = match field.strip_prefix("payload:") {
            Some(pointer) => FieldSource::Pointer(pointer.to_owned()),
            None if field.starts_with('/') => FieldSource::Pointer(field.to_owned()),
            None => FieldSource::Name(field.to_owned()),
        };
        match &field {
            FieldSource::Pointer(pointer) if !pointer.starts_with('/') => {
                Err(format!("`columns`: the field of {name} must continue with a `/`"))
            }
            FieldSource::Name(text) if text.is_empty() => {
                Err(format!("`columns`: the field of {name} is empty"))
            }
            _ => Ok(Self { name: name.to_owned(), target, field }),
        }
    }
}

/// Parses `Name`, `Relation.Field` or `Object:Relation.Field`.
fn target(name: &str) -> Option<ColumnTarget> {
    let (object, rest) = match name.split_once(':') {
        Some((object, rest)) => (Some(object), rest),
        None => (None, name),
    };
    let Some((relation, field)) = rest.split_once('.') else {
        return (object.is_none() && is_name(rest)).then_some(ColumnTarget::Field);
    };
    let are_names = is_name(relation) && is_name(field) && object.is_none_or(is_name);
    are_names.then(|| ColumnTarget::Relation {
        object: object.map(str::to_owned),
        relation: relation.to_owned(),
        field: field.to_owned(),
    })
}

fn check(columns: &[MappedColumn], external_id: &str) -> Result<(), String> {
    if columns.is_empty() {
        return Err("`columns` is empty; name at least one column to send".to_owned());
    }
    let header: usize = columns.iter().map(|column| column.name.len() + 3).sum();
    if columns.len() > COLUMNS_MAX || header > HEADER_CHARS_MAX {
        return Err(format!(
            "`columns` has more than {COLUMNS_MAX} columns or {HEADER_CHARS_MAX} characters"
        ));
    }
    let mut seen: Vec<String> = Vec::new();
    for column in columns {
        let name = match &column.target {
            ColumnTarget::Field => &column.name,
            ColumnTarget::Relation { relation, .. } => relation,
        };
        if name.eq_ignore_ascii_case(external_id) || name.eq_ignore_ascii_case("Id") {
            return Err(format!(
                "`columns` must not contain {name}: `external_id` is added, with the aggregate id"
            ));
        }
        if seen.iter().any(|other| other.eq_ignore_ascii_case(name)) {
            return Err(format!("`columns` names {name} twice"));
        }
        seen.push(name.clone());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SecretString, salesforce::Auth};

    fn mapping(columns: &[(&str, &str)]) -> Result<ColumnMapping, String> {
        let auth = Auth::ClientCredentials {
            client_id: "app".into(),
            client_secret: SecretString::from("secret"),
        };
        let mut settings = SalesforceSettings::new("https://x", auth, "Contact", "ExternalId__c");
        settings.columns =
            columns.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        ColumnMapping::new(&settings)
    }

    #[test]
    fn columns_that_cannot_work_are_refused_at_once() {
        for (columns, says) in [
            (&[][..], "at least one"),
            (&[("First Name", "a")], "not a column"),
            (&[("User:Owner", "a")], "not a column"),
            (&[("A.B.C", "a")], "not a column"),
            (&[("Name", "")], "empty"),
            (&[("Name", "payload:name")], "`/`"),
            (&[("ExternalId__c", "a")], "is added"),
            (&[("externalid__C", "a")], "is added"),
            (&[("Id", "a")], "is added"),
            (&[("Name", "a"), ("name", "b")], "twice"),
            (&[("Account.A__c", "a"), ("Account.B__c", "b")], "twice"),
        ] {
            assert!(mapping(columns).unwrap_err().contains(says), "{columns:?}");
        }
    }

    #[test]
    fn records_for_collections_keep_types_and_name_relations() {
        let mapping = mapping(&[
            ("LastName", "a"),
            ("Age__c", "b"),
            ("Email", "c"),
            ("Phone", "d"),
            ("Account.ExternalId__c", "e"),
            ("User:Owner.Email", "f"),
            ("ReportsTo.ExternalId__c", "g"),
            ("Block__r.ExternalId__c", "h"),
        ])
        .unwrap();
        let cells = [
            Cell::Text("D\"oe\n".into()),
            Cell::Plain("9007199254740993".into()),
            Cell::Null,
            Cell::Absent,
            Cell::Text("A-1".into()),
            Cell::Text("x@example.org".into()),
            Cell::Null,
            Cell::Null,
        ];
        let expected = concat!(
            r#"{"attributes":{"type":"Contact"},"ExternalId__c":"M-1","LastName":"D\"oe\n","#,
            r#""Age__c":9007199254740993,"Email":null,"Account":{"ExternalId__c":"A-1"},"#,
            r#""Owner":{"attributes":{"type":"User"},"Email":"x@example.org"},"ReportsToId":null,"Block__c":null}"#,
        );
        assert_eq!(mapping.json("Contact", "M-1", &cells), expected);
    }
}
