//! Descriptions of resources, objects and fields.

use serde_json::{Value as Json, json};

use super::{OrgCaller, version::Version};
use crate::{
    auth,
    http::call::HttpCall,
    org::OrgState,
    reply::ApiReply,
    schema::{FieldKind, Schema, SchemaField, SchemaObject},
    store::attributes,
};

/// Number of records on the page of an object.
const RECENT_MAX: usize = 5;

/// Handles `GET /services/data/vXX.X`.
pub(super) fn resources(call: &HttpCall, caller: OrgCaller) -> ApiReply {
    let at = |name: &str| format!("/services/data/{}/{name}", caller.version);
    let names = ["sobjects", "query", "queryAll", "limits", "composite", "jobs"];
    let mut map: serde_json::Map<String, Json> =
        names.iter().map(|name| ((*name).to_owned(), at(name).into())).collect();
    let identity = format!("{}/id/{}/{}", call.base, auth::org_id(), caller.user);
    map.insert("identity".to_owned(), identity.into());
    ApiReply::json(200, Json::Object(map))
}

pub(super) fn all(schema: &Schema, version: Version) -> ApiReply {
    let objects: Vec<Json> = schema.objects.iter().map(|object| summary(object, version)).collect();
    ApiReply::json(200, json!({"encoding": "UTF-8", "maxBatchSize": 200, "sobjects": objects}))
}

pub(super) fn basic(org: &OrgState, name: &str, version: Version) -> ApiReply {
    let Some(object) = org.tables.schema.object(name) else { return ApiReply::not_found() };
    let recent = org.tables.all(object.index).rev().take(RECENT_MAX);
    let recent: Vec<Json> = recent
        .map(|record| {
            let attributes = attributes(object, record.id, &version.to_string());
            json!({"attributes": attributes, "Id": record.id})
        })
        .collect();
    let describe = summary(object, version);
    ApiReply::json(200, json!({"objectDescribe": describe, "recentItems": recent}))
}

pub(super) fn object(schema: &Schema, name: &str, version: Version) -> ApiReply {
    let Some(object) = schema.object(name) else { return ApiReply::not_found() };
    let mut json = summary(object, version);
    let fields: Vec<Json> = object.fields.iter().map(|one| field(schema, one)).collect();
    json["fields"] = fields.into();
    json["childRelationships"] = children(schema, object).into();
    for name in ["actionOverrides", "namedLayoutInfos", "recordTypeInfos"] {
        json[name] = json!([]);
    }
    for name in ["compactLayoutable", "searchLayoutable"] {
        json[name] = true.into();
    }
    let none =
        ["defaultImplementation", "extendedBy", "extendsInterfaces", "listviewable"].into_iter();
    for name in none.chain(["lookupLayoutable", "networkScopeFieldName"]) {
        json[name] = Json::Null;
    }
    json["sobjectDescribeOption"] = "FULL".into();
    json["supportedScopes"] = json!([{"label": "All records", "name": "everything"}]);
    ApiReply::json(200, json)
}

/// Returns the properties that the list of objects and the page of an object share. It has every
/// documented name, because typed clients need them all.
fn summary(object: &SchemaObject, version: Version) -> Json {
    let url = format!("/services/data/{version}/sobjects/{}", object.name);
    let mut json = json!({
        "name": object.name,
        "label": object.label,
        "labelPlural": format!("{}s", object.label),
        "keyPrefix": object.key_prefix,
        "custom": object.name.ends_with("__c"),
        "urls": {
            "sobject": url,
            "describe": format!("{url}/describe"),
            "rowTemplate": format!("{url}/{{ID}}"),
        },
    });
    for name in [
        "createable",
        "deletable",
        "layoutable",
        "queryable",
        "replicateable",
        "retrieveable",
        "triggerable",
        "updateable",
    ] {
        json[name] = true.into();
    }
    for name in [
        "activateable",
        "customSetting",
        "deepCloneable",
        "deprecatedAndHidden",
        "feedEnabled",
        "hasSubtypes",
        "isInterface",
        "isSubtype",
        "mergeable",
        "mruEnabled",
        "searchable",
        "undeletable",
    ] {
        json[name] = false.into();
    }
    for name in ["associateEntityType", "associateParentEntity", "implementedBy"] {
        json[name] = Json::Null;
    }
    json["implementsInterfaces"] = Json::Null;
    json
}

fn field(schema: &Schema, field: &SchemaField) -> Json {
    let writable = field.system.is_none();
    let is_number =
        matches!(field.kind, FieldKind::Double | FieldKind::Currency | FieldKind::Percent);
    let to: Vec<&str> =
        field.lookup.iter().map(|lookup| schema.objects[lookup.to].name.as_str()).collect();
    let values: Vec<Json> = field
        .values
        .iter()
        .map(|value| json!({"active": true, "defaultValue": false, "label": value, "value": value}))
        .collect();
    let mut json = json!({
        "name": field.name,
        "label": field.label,
        "type": field.kind.described(),
        "soapType": soap_type(field.kind),
        "byteLength": field.length * 3,
        "digits": 0,
        "precision": if is_number { 18 } else { 0 },
        "scale": 0,
        "nameField": field.name == "Name",
        "permissionable": writable && !field.required,
        "length": field.length,
        "custom": field.name.ends_with("__c"),
        "nillable": !field.required && writable && field.kind != FieldKind::Boolean,
        "defaultedOnCreate": !writable || field.kind == FieldKind::Boolean,
        "createable": writable,
        "updateable": writable,
        "unique": field.unique,
        "caseSensitive": field.case_sensitive,
        "externalId": field.external_id,
        "idLookup": field.is_key(),
        "filterable": field.kind != FieldKind::TextArea,
        "referenceTo": to,
        "relationshipName": field.lookup.as_ref().map(|lookup| &lookup.relationship),
        "restrictedPicklist": field.kind == FieldKind::Picklist,
        "picklistValues": values,
    });
    for name in ["aggregatable", "groupable", "sortable"] {
        json[name] = (field.kind != FieldKind::TextArea).into();
    }
    for name in [
        "aiPredictionField",
        "autoNumber",
        "calculated",
        "cascadeDelete",
        "dependentPicklist",
        "deprecatedAndHidden",
        "displayLocationInDecimal",
        "encrypted",
        "formulaTreatNullNumberAsZero",
        "highScaleNumber",
        "htmlFormatted",
        "namePointing",
        "polymorphicForeignKey",
        "queryByDistance",
        "restrictedDelete",
        "searchPrefilterable",
        "writeRequiresMasterRead",
    ] {
        json[name] = false.into();
    }
    for name in FIELD_NULLS {
        json[name] = Json::Null;
    }
    json
}

/// Properties that no field of the simulator has.
const FIELD_NULLS: [&str; 12] = [
    "calculatedFormula",
    "compoundFieldName",
    "controllerName",
    "defaultValue",
    "defaultValueFormula",
    "extraTypeInfo",
    "filteredLookupInfo",
    "inlineHelpText",
    "mask",
    "maskType",
    "referenceTargetField",
    "relationshipOrder",
];

fn soap_type(kind: FieldKind) -> &'static str {
    match kind {
        FieldKind::Id | FieldKind::Lookup => "tns:ID",
        FieldKind::Boolean => "xsd:boolean",
        FieldKind::Int => "xsd:int",
        FieldKind::Double | FieldKind::Currency | FieldKind::Percent => "xsd:double",
        FieldKind::Date => "xsd:date",
        FieldKind::DateTime => "xsd:dateTime",
        _ => "xsd:string",
    }
}

fn children(schema: &Schema, parent: &SchemaObject) -> Vec<Json> {
    let fields = schema
        .objects
        .iter()
        .flat_map(|object| object.fields.iter().map(move |field| (object, field)));
    let here = |field: &SchemaField| field.lookup.as_ref().is_some_and(|it| it.to == parent.index);
    fields.filter(|(_, field)| here(field)).map(|(object, field)| child(object, field)).collect()
}

fn child(object: &SchemaObject, field: &SchemaField) -> Json {
    json!({
        "childSObject": object.name,
        "field": field.name,
        "relationshipName": null,
        "cascadeDelete": false,
        "deprecatedAndHidden": false,
        "restrictedDelete": false,
        "junctionIdListNames": [],
        "junctionReferenceTo": [],
    })
}
