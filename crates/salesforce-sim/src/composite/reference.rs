//! References from one call to the response of an earlier one: `@{name.field}`.

use std::collections::{HashMap, HashSet};

use serde_json::Value as Json;

/// The responses that can be referred to.
pub(super) type Answers = HashMap<String, Json>;

/// Checks that reference ids have letters, digits and underscores only, and are unique.
pub(super) fn check_ids<'a>(ids: impl Iterator<Item = &'a str>) -> Result<(), &'static str> {
    let mut seen = HashSet::new();
    for id in ids {
        let plain = id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if id.is_empty() || !plain || id.starts_with('_') {
            return Err("a referenceId has letters, digits and underscores only");
        }
        if !seen.insert(id) {
            return Err("a referenceId is there twice");
        }
    }
    Ok(())
}

/// Returns the names that a text refers to.
pub(super) fn names(text: &str) -> Vec<&str> {
    let parts = text.split("@{").skip(1);
    parts.filter_map(|part| part.split('}').next()?.split('.').next()).collect()
}

/// Replaces the references in a text by their values.
pub(super) fn resolved(text: &str, answers: &Answers) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("@{") {
        let Some((path, after)) = after.split_once('}') else { break };
        out.push_str(before);
        out.push_str(&value(path, answers)?);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// Replaces the references in all texts of a JSON value.
pub(super) fn resolved_json(json: &Json, answers: &Answers) -> Result<Json, String> {
    Ok(match json {
        Json::String(text) => Json::String(resolved(text, answers)?),
        Json::Array(items) => {
            let items = items.iter().map(|item| resolved_json(item, answers));
            Json::Array(items.collect::<Result<_, _>>()?)
        }
        Json::Object(map) => {
            let pairs =
                map.iter().map(|(name, json)| Ok((name.clone(), resolved_json(json, answers)?)));
            Json::Object(pairs.collect::<Result<_, String>>()?)
        }
        other => other.clone(),
    })
}

fn value(path: &str, answers: &Answers) -> Result<String, String> {
    let (name, field) = path.split_once('.').unwrap_or((path, ""));
    let missing = || format!("Invalid reference specified. No value for {path} found in {name}");
    let mut found = answers.get(name).ok_or_else(missing)?;
    for part in field.split('.') {
        let (part, index) = match part.split_once('[') {
            Some((part, index)) => (part, index.trim_end_matches(']').parse::<usize>().ok()),
            None => (part, None),
        };
        if !part.is_empty() {
            found = found.get(part).ok_or_else(missing)?;
        }
        if let Some(index) = index {
            found = found.get(index).ok_or_else(missing)?;
        }
    }
    match found {
        Json::String(text) => Ok(text.clone()),
        Json::Null | Json::Array(_) | Json::Object(_) => Err(missing()),
        other => Ok(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_replaced_and_case_matters() {
        let answers = Answers::from([("a1".to_owned(), json!({"id": "001", "list": [{"x": 5}]}))]);
        assert_eq!(resolved("/A/@{a1.id}/b", &answers).unwrap(), "/A/001/b");
        assert_eq!(resolved("@{a1.list[0].x}", &answers).unwrap(), "5");
        assert!(resolved("@{a1.Id}", &answers).is_err());
        assert!(resolved("@{a2.id}", &answers).is_err());
        assert_eq!(resolved("no @{ end", &answers).unwrap(), "no @{ end");
        assert_eq!(names("/x/@{a1.id}?y=@{b.id}"), ["a1", "b"]);
    }
}
