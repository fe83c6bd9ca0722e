//! `relais.schema.json`: a JSON schema of the configuration, for editors.

use relais_core::setting::{SettingForm, SettingSpec};
use serde_json::{Map, Value, json};

use super::sections::{SectionSpec, sections};

/// A text with an environment variable in it fits everywhere.
const VARIABLE: &str = "\\$\\{";

/// Returns the schema of the whole file.
pub(crate) fn schema() -> Value {
    let sections = sections();
    let mut properties = Map::new();
    for section in sections.iter().filter(|s| s.kind.is_none() && !s.path.contains('.')) {
        properties.insert(section.path.to_owned(), section_schema(&sections, section));
    }
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "relais.toml",
        "description": "The configuration of relais",
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    })
}

fn section_schema(sections: &[SectionSpec], section: &SectionSpec) -> Value {
    let kinds: Vec<_> = sections
        .iter()
        .filter(|s| s.path == section.path && s.kind.is_some() && s.is_list)
        .collect();
    let one = if kinds.is_empty() {
        table(sections, section.path, None, section.keys.iter())
    } else {
        let of_kind = |kind: &&SectionSpec| {
            table(sections, section.path, kind.kind, section.keys.iter().chain(&kind.keys))
        };
        let mut variants: Vec<Value> = kinds.iter().map(of_kind).collect();
        if let Some(external) = section.keys.iter().find(|spec| spec.name == "external") {
            let keys = section.keys.iter().filter(|spec| spec.name == "name");
            let mut variant = table(&[], "", None, keys);
            variant["properties"]["external"] = constant(external, json!(true));
            variant["required"] = json!(["name", "external"]);
            variants.push(variant);
        }
        json!({ "oneOf": variants })
    };
    if section.is_list { json!({ "type": "array", "items": one }) } else { one }
}

/// Returns a table with these keys and the tables inside it.
fn table<'a>(
    sections: &[SectionSpec],
    path: &str,
    kind: Option<&str>,
    keys: impl Iterator<Item = &'a SettingSpec>,
) -> Value {
    let (mut properties, mut needed) = (Map::new(), Vec::new());
    for spec in keys {
        let schema = match (spec.name, kind) {
            ("kind", Some(kind)) => constant(spec, json!(kind)),
            ("external", Some(_)) => constant(spec, json!(false)),
            _ => key_schema(spec),
        };
        properties.insert(spec.name.to_owned(), schema);
        needed.extend(spec.is_needed.then_some(spec.name));
    }
    for section in sections.iter().filter(|s| s.kind.is_none() || (!s.is_list && s.kind == kind)) {
        let inside = section.path.strip_prefix(path).and_then(|rest| rest.strip_prefix('.'));
        if let Some(name) = inside.filter(|name| !name.contains('.')) {
            properties.insert(name.to_owned(), section_schema(sections, section));
        }
    }
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
        "required": needed,
    })
}

fn constant(spec: &SettingSpec, value: Value) -> Value {
    json!({ "const": value, "description": spec.doc })
}

fn key_schema(spec: &SettingSpec) -> Value {
    let text = json!({ "type": "string" });
    let mut schema = match &spec.form {
        SettingForm::Text("") | SettingForm::Path => text,
        SettingForm::Text(pattern) => {
            json!({ "type": "string", "pattern": format!("(?:{pattern})|{VARIABLE}") })
        }
        SettingForm::Words(words) => {
            json!({ "anyOf": [{ "enum": words }, { "type": "string", "pattern": VARIABLE }] })
        }
        SettingForm::Flag => json!({ "type": "boolean" }),
        SettingForm::Whole => json!({ "type": "integer" }),
        SettingForm::Number => json!({ "type": "number" }),
        SettingForm::List => json!({ "type": "array", "items": text, "minItems": 1 }),
        SettingForm::TextOrList => {
            json!({ "anyOf": [text, { "type": "array", "items": text, "minItems": 1 }] })
        }
        SettingForm::Table => json!({ "type": "object", "additionalProperties": text }),
        SettingForm::DottedTable => json!({ "type": "object" }),
    };
    schema["description"] = json!(spec.doc);
    if let Some(default) = spec.default.as_ref().and_then(|text| serde_json::from_str(text).ok()) {
        schema["default"] = default;
    }
    let number = |text: &str| serde_json::from_str::<Value>(text).ok();
    if let (Some((from, to)), SettingForm::Whole | SettingForm::Number) = (&spec.range, &spec.form)
    {
        schema["minimum"] = number(from).unwrap_or_default();
        schema["maximum"] = number(to).unwrap_or_default();
    }
    schema
}
