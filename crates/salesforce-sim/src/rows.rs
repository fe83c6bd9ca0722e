//! Single records: created, read, changed and deleted by id or external id.

use std::sync::Arc;

use hyper::Method;
use serde_json::{Map, Value as Json, json};

use crate::{
    data::version::Version,
    http::call::value_of,
    id::Id,
    reply::ApiReply,
    row_error::RowError,
    schema::{ID, SchemaObject},
    store::{
        AppliedWrite, Operation,
        change::{RowChange, no_such_column},
        transaction::OrgTransaction,
    },
    value::FieldValue,
};

/// A call to `/sobjects/…`, alone or within a composite.
#[derive(Debug)]
pub(crate) struct RowCall<'a> {
    pub(crate) version: Version,
    pub(crate) method: &'a Method,
    /// The path after `sobjects`.
    pub(crate) segments: &'a [String],
    pub(crate) query: &'a [(String, String)],
    pub(crate) body: Option<&'a Json>,
}

/// Executes the call within the transaction. A response that is not a success has changed nothing.
pub(crate) fn call(transaction: &mut OrgTransaction<'_>, call: &RowCall<'_>) -> ApiReply {
    let point = transaction.savepoint();
    let reply = route(transaction, call).unwrap_or_else(|reply| reply);
    if !reply.is_success() {
        transaction.roll_back_to(point);
    }
    reply
}

fn route(transaction: &mut OrgTransaction<'_>, call: &RowCall<'_>) -> Result<ApiReply, ApiReply> {
    let (name, rest) = call.segments.split_first().ok_or_else(ApiReply::not_found)?;
    let schema = Arc::clone(&transaction.tables.schema);
    let object = schema.object(name).ok_or_else(ApiReply::not_found)?;
    match rest {
        [] => match *call.method {
            Method::POST => create(transaction, object, call),
            _ => Err(ApiReply::method_not_allowed("GET,POST")),
        },
        [id] => by_id(transaction, object, id, call),
        [field, value] => by_key(transaction, object, field, value, call),
        _ => Err(ApiReply::not_found()),
    }
}

fn create(
    transaction: &mut OrgTransaction<'_>,
    object: &Arc<SchemaObject>,
    call: &RowCall<'_>,
) -> Result<ApiReply, ApiReply> {
    let change = RowChange::from_json(&transaction.tables.schema, object, record(call)?)?;
    let done = write(transaction, object, Operation::Insert, change)?;
    Ok(created(object, done.id, call.version, false))
}

fn by_id(
    transaction: &mut OrgTransaction<'_>,
    object: &Arc<SchemaObject>,
    text: &str,
    call: &RowCall<'_>,
) -> Result<ApiReply, ApiReply> {
    let tables = &transaction.tables;
    let id = Id::parse(text).ok_or_else(|| no_key_field(text))?;
    if tables.get(object.index, id).is_none() {
        if tables.was_deleted(id) {
            return Err(RowError::new("ENTITY_IS_DELETED", "entity is deleted").into());
        }
        return Err(ApiReply::not_found());
    }
    let mut change = match *call.method {
        Method::PATCH => RowChange::from_json(&tables.schema, object, record(call)?)?,
        _ => RowChange::default(),
    };
    if change.id.is_some() {
        let message = "The Id field should not be specified in the sobject data.";
        return Err(RowError::new("INVALID_FIELD", message).on("Id").into());
    }
    change.id = Some(id.to_string());
    match *call.method {
        Method::GET => read(transaction, object, id, call),
        Method::PATCH => {
            write(transaction, object, Operation::Update, change)?;
            Ok(ApiReply::empty(204))
        }
        Method::DELETE => {
            write(transaction, object, Operation::Delete, change)?;
            Ok(ApiReply::empty(204))
        }
        _ => Err(ApiReply::method_not_allowed("DELETE,GET,PATCH")),
    }
}

fn by_key(
    transaction: &mut OrgTransaction<'_>,
    object: &Arc<SchemaObject>,
    name: &str,
    text: &str,
    call: &RowCall<'_>,
) -> Result<ApiReply, ApiReply> {
    let field = object.field(name).filter(|field| object.fields[*field].is_key());
    let field = field.ok_or_else(|| no_key_field(name))?;
    if field == ID {
        return by_id(transaction, object, text, call);
    }
    let value = FieldValue::from_text(&object.fields[field], text)?;
    let found = transaction.tables.find(object, field, &value);
    if found.len() > 1 {
        let url = |id: &Id| at(object, *id, call.version).into();
        return Err(ApiReply::json(300, found.iter().map(url).collect::<Vec<Json>>().into()));
    }
    let id = found.first().copied();
    match (call.method, id) {
        (&Method::PATCH, id) => upsert(transaction, object, (field, value), id, call),
        (&Method::GET, Some(id)) => read(transaction, object, id, call),
        (&Method::DELETE, Some(id)) => {
            let change = RowChange { id: Some(id.to_string()), ..RowChange::default() };
            write(transaction, object, Operation::Delete, change)?;
            Ok(ApiReply::empty(204))
        }
        (&Method::GET | &Method::DELETE, None) => Err(ApiReply::not_found()),
        _ => Err(ApiReply::method_not_allowed("DELETE,GET,PATCH")),
    }
}

fn upsert(
    transaction: &mut OrgTransaction<'_>,
    object: &Arc<SchemaObject>,
    (field, value): (usize, FieldValue),
    found: Option<Id>,
    call: &RowCall<'_>,
) -> Result<ApiReply, ApiReply> {
    let mut change = RowChange::from_json(&transaction.tables.schema, object, record(call)?)?;
    if change.take(field).is_some() {
        let name = &object.fields[field].name;
        let message = format!("The {name} field should not be specified in the sobject data.");
        return Err(RowError::new("INVALID_FIELD", message).on(name).into());
    }
    if found.is_none() && value_of(call.query, "updateOnly") == Some("true") {
        return Err(ApiReply::not_found());
    }
    change.values.push((field, Some(value)));
    let done = write(transaction, object, Operation::Upsert(field), change)?;
    let says_created = call.version >= Version::UPSERT_SAYS_CREATED;
    Ok(match (done.created, says_created) {
        (true, _) => created(object, done.id, call.version, says_created),
        (false, true) => {
            let body = json!({"id": done.id, "success": true, "errors": [], "created": false});
            ApiReply::json(200, body)
        }
        (false, false) => ApiReply::empty(204),
    })
}

fn read(
    transaction: &OrgTransaction<'_>,
    object: &SchemaObject,
    id: Id,
    call: &RowCall<'_>,
) -> Result<ApiReply, ApiReply> {
    let record = transaction.tables.get(object.index, id).ok_or_else(ApiReply::not_found)?;
    let whole = record.to_json(object, &call.version.to_string());
    let Some(wanted) = value_of(call.query, "fields") else {
        return Ok(ApiReply::json(200, whole));
    };
    let mut part = Map::new();
    part.insert("attributes".to_owned(), whole["attributes"].clone());
    for name in wanted.split(',').map(str::trim).chain(["Id"]) {
        let field = object.field(name).ok_or_else(|| no_such_column(object, name))?;
        let name = &object.fields[field].name;
        part.insert(name.clone(), whole[name].clone());
    }
    Ok(ApiReply::json(200, Json::Object(part)))
}

fn write(
    transaction: &mut OrgTransaction<'_>,
    object: &Arc<SchemaObject>,
    operation: Operation,
    change: RowChange,
) -> Result<AppliedWrite, ApiReply> {
    transaction
        .write(object, operation, change)
        .map_err(|refused| ApiReply::refused(&refused.error))
}

fn created(object: &SchemaObject, id: Id, version: Version, says_created: bool) -> ApiReply {
    let mut body = json!({"id": id, "success": true, "errors": []});
    if says_created {
        body["created"] = true.into();
    }
    ApiReply::json(201, body).with("location", at(object, id, version))
}

fn at(object: &SchemaObject, id: Id, version: Version) -> String {
    format!("/services/data/{version}/sobjects/{}/{id}", object.name)
}

fn record<'a>(call: &RowCall<'a>) -> Result<&'a Map<String, Json>, ApiReply> {
    let object = call.body.and_then(Json::as_object);
    object.ok_or_else(|| ApiReply::bad_json("the body must be a JSON object"))
}

fn no_key_field(name: &str) -> ApiReply {
    let message = format!("Provided external ID field does not exist or is not accessible: {name}");
    ApiReply::error(404, "NOT_FOUND", &message)
}
