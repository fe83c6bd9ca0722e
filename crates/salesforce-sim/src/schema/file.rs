//! The schema file: TOML, parsed and validated.

use std::{collections::HashSet, sync::Arc};

use serde::Deserialize;

use super::{FieldKind, FieldLookup, Schema, SchemaField, SchemaObject, System};

/// The error of a schema file.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    #[error("the schema is not valid TOML or has an unknown key: {0}")]
    Toml(#[from] toml::de::Error),
    #[error("{0}")]
    Content(String),
}

/// Maximum length of a name.
const NAME_MAX: usize = 80;
/// Limits of a schema.
const OBJECTS_MAX: usize = 100;
const FIELDS_MAX: usize = 900;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SchemaFile {
    #[serde(default)]
    object: Vec<ObjectEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ObjectEntry {
    name: String,
    label: Option<String>,
    key_prefix: Option<String>,
    version_field: Option<String>,
    older_version_message: Option<String>,
    #[serde(default)]
    field: Vec<FieldEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FieldEntry {
    name: String,
    label: Option<String>,
    #[serde(rename = "type")]
    kind: FieldKind,
    length: Option<usize>,
    #[serde(default)]
    required: bool,
    #[serde(default)]
    unique: bool,
    #[serde(default)]
    external_id: bool,
    #[serde(default)]
    case_sensitive: bool,
    #[serde(default)]
    values: Vec<String>,
    to: Option<String>,
    relationship: Option<String>,
}

pub(super) fn read(table: toml::Table) -> Result<Schema, SchemaError> {
    let file: SchemaFile = table.try_into()?;
    check_objects(&file.object)?;
    let names: Vec<String> = file.object.iter().map(|object| object.name.clone()).collect();
    let entries = file.object.into_iter().enumerate();
    let objects = entries.map(|(index, entry)| object(index, entry, &names).map(Arc::new));
    Ok(Schema { objects: objects.collect::<Result<_, _>>()? })
}

fn check_objects(objects: &[ObjectEntry]) -> Result<(), SchemaError> {
    if objects.is_empty() || objects.len() > OBJECTS_MAX {
        return content(format!("the schema needs 1 to {OBJECTS_MAX} [[object]] sections"));
    }
    let (mut names, mut prefixes) = (HashSet::new(), HashSet::new());
    for (index, object) in objects.iter().enumerate() {
        check_name(&object.name)?;
        let prefix = prefix_of(index, object);
        if prefix.len() != 3 || !prefix.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return content(format!("{}: key_prefix has three letters or digits", object.name));
        }
        if !names.insert(object.name.to_ascii_lowercase()) || !prefixes.insert(prefix) {
            return content(format!("{}: its name or key_prefix is used twice", object.name));
        }
    }
    Ok(())
}

fn prefix_of(index: usize, object: &ObjectEntry) -> String {
    object.key_prefix.clone().unwrap_or_else(|| format!("z{index:02}"))
}

fn object(index: usize, entry: ObjectEntry, names: &[String]) -> Result<SchemaObject, SchemaError> {
    let key_prefix = prefix_of(index, &entry);
    let ObjectEntry { name, label, version_field, older_version_message, field, .. } = entry;
    if field.is_empty() || field.len() > FIELDS_MAX {
        return content(format!("{name}: it needs 1 to {FIELDS_MAX} [[object.field]] sections"));
    }
    let mut fields = system_fields();
    for entry in field {
        if fields.iter().any(|known| known.name.eq_ignore_ascii_case(&entry.name)) {
            return content(format!("{name}.{}: this field is defined twice", entry.name));
        }
        fields.push(field_of(&name, entry, names)?);
    }
    let place = |wanted: String| {
        let found = fields.iter().position(|field| field.name.eq_ignore_ascii_case(&wanted));
        found.ok_or_else(|| {
            SchemaError::Content(format!("{name}: version_field is not a field: {wanted}"))
        })
    };
    let version_field = version_field.map(place).transpose()?;
    let label = label.unwrap_or_else(|| plain(&name));
    Ok(SchemaObject {
        index,
        name,
        label,
        key_prefix,
        fields,
        version_field,
        older_version_message,
    })
}

fn field_of(object: &str, entry: FieldEntry, names: &[String]) -> Result<SchemaField, SchemaError> {
    check_name(&entry.name)?;
    let lookup = lookup_of(object, &entry, names)?;
    let named = format!("{object}.{}", entry.name);
    if entry.kind == FieldKind::Id {
        return content(format!("{named}: only the field Id, which is always there, has type id"));
    }
    if entry.kind == FieldKind::Picklist && entry.values.is_empty() {
        return content(format!("{named}: a picklist needs values = [...]"));
    }
    if entry.required && entry.kind == FieldKind::Boolean {
        return content(format!("{named}: a boolean always has a value, leave out required"));
    }
    let length = match entry.kind {
        FieldKind::Text | FieldKind::Picklist | FieldKind::Url => 255,
        FieldKind::TextArea => 32_000,
        FieldKind::Email => 80,
        FieldKind::Phone => 40,
        FieldKind::Lookup => 18,
        _ => 0,
    };
    Ok(SchemaField {
        label: entry.label.unwrap_or_else(|| plain(&entry.name)),
        name: entry.name,
        kind: entry.kind,
        length: entry.length.unwrap_or(length),
        required: entry.required,
        unique: entry.unique,
        external_id: entry.external_id,
        case_sensitive: entry.case_sensitive,
        values: entry.values,
        lookup,
        system: None,
    })
}

fn lookup_of(
    object: &str,
    entry: &FieldEntry,
    names: &[String],
) -> Result<Option<FieldLookup>, SchemaError> {
    let named = format!("{object}.{}", entry.name);
    match (entry.kind, &entry.to, &entry.relationship) {
        (FieldKind::Lookup, Some(to), Some(relationship)) => {
            let found = names.iter().position(|name| name.eq_ignore_ascii_case(to));
            let Some(to) = found else {
                return content(format!("{named}: `to` is not an object of this file: {to}"));
            };
            Ok(Some(FieldLookup { to, relationship: relationship.clone() }))
        }
        (FieldKind::Lookup, ..) => {
            content(format!("{named}: a lookup needs `to` and `relationship`"))
        }
        (_, None, None) => Ok(None),
        _ => content(format!("{named}: only a lookup has `to` and `relationship`")),
    }
}

fn system_fields() -> Vec<SchemaField> {
    let field = |name: &str, kind, system| SchemaField {
        name: name.to_owned(),
        label: name.to_owned(),
        kind,
        length: if kind == FieldKind::Id { 18 } else { 0 },
        required: false,
        unique: false,
        external_id: false,
        case_sensitive: false,
        values: Vec::new(),
        lookup: None,
        system: Some(system),
    };
    vec![
        field("Id", FieldKind::Id, System::Id),
        field("IsDeleted", FieldKind::Boolean, System::IsDeleted),
        field("CreatedDate", FieldKind::DateTime, System::CreatedDate),
        field("LastModifiedDate", FieldKind::DateTime, System::LastModifiedDate),
        field("SystemModstamp", FieldKind::DateTime, System::Modstamp),
    ]
}

fn check_name(name: &str) -> Result<(), SchemaError> {
    let letters = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if letters && name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.len() <= NAME_MAX {
        return Ok(());
    }
    content(format!(
        "{name:?} is not an API name: use a letter, then letters, digits and underscores"
    ))
}

/// Returns the label that Salesforce would give: `Family__c` becomes `Family`.
fn plain(name: &str) -> String {
    name.strip_suffix("__c").unwrap_or(name).replace('_', " ")
}

fn content<T>(text: String) -> Result<T, SchemaError> {
    Err(SchemaError::Content(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_schema_has_what_is_promised() {
        let schema = Schema::builtin();
        for (object, required, others) in [
            ("Account", &["Name"][..], &["ExternalId__c"][..]),
            ("Contact", &["LastName"], &["FirstName", "Email", "Family__c", "ExternalId__c"]),
            ("Block__c", &[], &["Family__c", "Type__c", "ExternalId__c"]),
        ] {
            let object = schema.object(object).unwrap();
            let is_required = |f: &&SchemaField| f.required;
            let names: Vec<&str> =
                object.fields.iter().filter(is_required).map(|f| f.name.as_str()).collect();
            assert_eq!(names, required);
            assert!(others.iter().all(|name| object.field(name).is_some()));
            let key = &object.fields[object.key_field().unwrap()];
            assert_eq!((key.name.as_str(), key.unique, key.length), ("ExternalId__c", true, 255));
        }
    }

    #[test]
    fn an_invalid_schema_is_refused_with_the_reason() {
        let field = "[[object.field]]\nname='F__c'\n";
        let one = |rest: &str| format!("[[object]]\nname='A'\n{field}{rest}");
        for (text, part) in [
            (String::new(), "1 to 100 [[object]]"),
            ("[[object]]\nname='A'".to_owned(), "[[object.field]]"),
            (one("type='lookup'"), "a lookup needs"),
            (one("type='lookup'\nto='B'\nrelationship='B'"), "is not an object"),
            (one("type='text'\nto='A'"), "only a lookup"),
            (one("type='picklist'"), "values"),
            (one("type='money'"), "unknown variant"),
            (one("type='text'\nuniqe=true"), "uniqe"),
            (one(&format!("type='text'\n{field}type='text'")), "twice"),
            (
                format!("[[object]]\nname='A'\nversion_field='V'\n{field}type='text'"),
                "is not a field",
            ),
            (format!("[[object]]\nname='A B'\n{field}type='text'"), "not an API name"),
        ] {
            let error = Schema::from_toml(&text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
