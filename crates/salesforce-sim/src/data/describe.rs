//! What there is: resources, objects, fields.

use serde_json::{Value as Json, json};

use super::{Caller, version::Version};
use crate::{
    auth,
    http::call::Call,
    reply::Reply,
    schema::{Field, Kind, Object, Schema},
    sim::Org,
    store::attributes,
};

/// Records that an object's page shows.
const RECENT_MAX: usize = 5;

/// `GET /services/data/vXX.X`.
pub(super) fn resources(call: &Call, caller: Caller) -> Reply {
    let at = |name: &str| format!("/services/data/{}/{name}", caller.version);
    let names = ["sobjects", "query", "queryAll", "limits", "composite", "jobs"];
    let mut map: serde_json::Map<String, Json> =
        names.iter().map(|name| ((*name).to_owned(), at(name).into())).collect();
    let identity = format!("{}/id/{}/{}", call.base, auth::org_id(), caller.user);
    map.insert("identity".to_owned(), identity.into());
    Reply::json(200, Json::Object(map))
}

pub(super) fn all(schema: &Schema, version: Version) -> Reply {
    let objects: Vec<Json> = schema.objects.iter().map(|object| summary(object, version)).collect();
    Reply::json(200, json!({"encoding": "UTF-8", "maxBatchSize": 200, "sobjects": objects}))
}

pub(super) fn basic(org: &Org, name: &str, version: Version) -> Reply {
    let Some(object) = org.tables.schema.object(name) else { return Reply::not_found() };
    let recent = org.tables.all(object.index).rev().take(RECENT_MAX);
    let recent: Vec<Json> = recent
        .map(|record| {
            let attributes = attributes(object, record.id, &version.to_string());
            json!({"attributes": attributes, "Id": record.id})
        })
        .collect();
    let describe = summary(object, version);
    Reply::json(200, json!({"objectDescribe": describe, "recentItems": recent}))
}

pub(super) fn object(schema: &Schema, name: &str, version: Version) -> Reply {
    let Some(object) = schema.object(name) else { return Reply::not_found() };
    let mut json = summary(object, version);
    let fields: Vec<Json> = object.fields.iter().map(|one| field(schema, one)).collect();
    json["fields"] = fields.into();
    json["childRelationships"] = children(schema, object).into();
    json["recordTypeInfos"] = json!([]);
    Reply::json(200, json)
}

fn summary(object: &Object, version: Version) -> Json {
    let url = format!("/services/data/{version}/sobjects/{}", object.name);
    json!({
        "name": object.name,
        "label": object.label,
        "labelPlural": format!("{}s", object.label),
        "keyPrefix": object.key_prefix,
        "custom": object.name.ends_with("__c"),
        "createable": true,
        "updateable": true,
        "deletable": true,
        "queryable": true,
        "retrieveable": true,
        "searchable": false,
        "urls": {
            "sobject": url,
            "describe": format!("{url}/describe"),
            "rowTemplate": format!("{url}/{{ID}}"),
        },
    })
}

fn field(schema: &Schema, field: &Field) -> Json {
    let writable = field.system.is_none();
    let to: Vec<&str> =
        field.lookup.iter().map(|lookup| schema.objects[lookup.to].name.as_str()).collect();
    let values: Vec<Json> = field
        .values
        .iter()
        .map(|value| json!({"active": true, "defaultValue": false, "label": value, "value": value}))
        .collect();
    json!({
        "name": field.name,
        "label": field.label,
        "type": field.kind.described(),
        "length": field.length,
        "custom": field.name.ends_with("__c"),
        "nillable": !field.required && writable && field.kind != Kind::Boolean,
        "defaultedOnCreate": !writable || field.kind == Kind::Boolean,
        "createable": writable,
        "updateable": writable,
        "unique": field.unique,
        "caseSensitive": field.case_sensitive,
        "externalId": field.external_id,
        "idLookup": field.is_key(),
        "filterable": field.kind != Kind::TextArea,
        "referenceTo": to,
        "relationshipName": field.lookup.as_ref().map(|lookup| &lookup.relationship),
        "restrictedPicklist": field.kind == Kind::Picklist,
        "picklistValues": values,
    })
}

fn children(schema: &Schema, parent: &Object) -> Vec<Json> {
    let fields = schema
        .objects
        .iter()
        .flat_map(|object| object.fields.iter().map(move |field| (object, field)));
    let here = |field: &Field| field.lookup.as_ref().is_some_and(|it| it.to == parent.index);
    fields
        .filter(|(_, field)| here(field))
        .map(|(object, field)| json!({"childSObject": object.name, "field": field.name}))
        .collect()
}
