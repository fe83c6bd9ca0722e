//! `/api/openapi.json`: the OpenAPI document.
//!
//! Invariant: paths, methods and roles come from the table of routes; only parameters and schemas are written by
//! hand, in `openapi.json`, and all of them are used.

use std::{borrow::Cow, sync::LazyLock};

use axum::{
    Json,
    extract::OriginalUri,
    http::{Method, Uri},
};
use serde_json::{Map, Value, json};

use crate::{
    mount,
    routes::{ApiRoute, PREFIX, SuccessBody, table},
};

static COMPONENTS: &str = include_str!("openapi.json");
static DOCUMENT: LazyLock<Value> = LazyLock::new(document);

pub(crate) async fn show(original: OriginalUri, uri: Uri) -> Json<Cow<'static, Value>> {
    let base = mount::base(&original, &uri);
    if base.is_empty() {
        return Json(Cow::Borrowed(&DOCUMENT));
    }
    let mut document = DOCUMENT.clone();
    document["servers"] = json!([{ "url": base }]);
    Json(Cow::Owned(document))
}

fn document() -> Value {
    let components: Value = serde_json::from_str(COMPONENTS).expect("openapi.json is JSON");
    let mut paths: Map<String, Value> = Map::new();
    for route in table() {
        let path = format!("{PREFIX}{}", route.path.replace("{*", "{"));
        let method = route.method.as_str().to_lowercase();
        let operations = paths.entry(path.clone()).or_insert_with(|| json!({}));
        operations[method] = operation(&route, &path, &components);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "relais",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The API of a running relais for operators and programs. See \
                            docs/http-api.md.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "token": [] }, { "session": [] }],
        "paths": paths,
        "components": components,
    })
}

fn operation(route: &ApiRoute, path: &str, components: &Value) -> Value {
    let in_path = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameters: Vec<Value> = in_path
        .map(|name| format!("path_{name}"))
        .chain(route.doc.query.iter().map(|name| (*name).to_owned()))
        .map(|name| reference(components, "parameters", &name))
        .collect();
    let mut operation = json!({
        "operationId": operation_id(&route.method, path),
        "summary": route.doc.summary,
        "description": format!("Needs the role {}.", route.role.as_str()),
        "x-role": route.role,
        "parameters": parameters,
        "responses": responses(route, components),
    });
    if let Some(body) = route.doc.body {
        let schema = reference(components, "schemas", body);
        let content = json!({ "application/json": { "schema": schema } });
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    operation
}

/// Returns the responses of a route. Every failure is a problem.
fn responses(route: &ApiRoute, components: &Value) -> Value {
    let content = match route.doc.success {
        SuccessBody::Json(name) => {
            json!({ "application/json": { "schema": reference(components, "schemas", name) } })
        }
        SuccessBody::Text => json!({ "text/plain": { "schema": { "type": "string" } } }),
        SuccessBody::Events => json!({ "text/event-stream": { "schema": {
            "type": "string",
            "description": "Events `overview` with the JSON of GET /api/v1/overview, `sample` with the \
                            newest point of each series of GET /api/v1/history, and, while the \
                            database does not answer, `problem` with a problem in place of the overview",
        } } }),
        SuccessBody::File => json!({
            "text/plain": { "schema": { "type": "string" } },
            "application/octet-stream": { "schema": { "type": "string" } },
        }),
    };
    let mut responses = json!({ "200": { "description": "Success", "content": content } });
    let mut fails = vec![400, 401, 403, 405, 503];
    if route.path.contains('{') || route.method == Method::POST {
        fails.extend([404, 409]);
    }
    if route.method == Method::POST {
        fails.extend([408, 413, 415, 422]);
    }
    for status in fails {
        responses[status.to_string()] = reference(components, "responses", "Problem");
    }
    responses
}

/// `post_dead_letters_uuid_replay`
fn operation_id(method: &Method, path: &str) -> String {
    let words = path.trim_start_matches(PREFIX).replace(['/', '{', '}', '-'], "_");
    let words: Vec<&str> = words.split('_').filter(|word| !word.is_empty()).collect();
    format!("{}_{}", method.as_str().to_lowercase(), words.join("_"))
}

/// Returns a reference to a component, which must exist.
fn reference(components: &Value, kind: &str, name: &str) -> Value {
    assert!(components[kind][name].is_object(), "openapi.json has no {kind}/{name}");
    json!({ "$ref": format!("#/components/{kind}/{name}") })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere_and_everything_is_referred_to() {
        let document = document();
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        let there: BTreeSet<String> = ["parameters", "responses", "schemas"]
            .into_iter()
            .flat_map(|kind| {
                let all = document["components"][kind].as_object().unwrap();
                all.keys().map(move |name| format!("#/components/{kind}/{name}"))
            })
            .collect();
        assert_eq!(found, there);
    }

    #[test]
    fn every_call_is_described_once_with_its_role() {
        let document = document();
        let paths = document["paths"].as_object().unwrap();
        let described: usize = paths.values().map(|path| path.as_object().unwrap().len()).sum();
        assert_eq!(described, table().len());
        let mut ids = BTreeSet::new();
        for operation in paths.values().flat_map(|path| path.as_object().unwrap().values()) {
            assert!(operation["x-role"].is_string());
            assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{operation}");
        }
    }
}
