//! sObject Collections: up to 200 records per call, with one result each, in order.

use std::sync::Arc;

use hyper::Method;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use crate::{
    data::{parse_some, version::Version},
    faults::UnknownField,
    http::call::HttpCall,
    id::Id,
    org::OrgState,
    reply::ApiReply,
    row_error::RowError,
    schema::{Schema, SchemaObject},
    store::{
        AppliedWrite, Operation, RefusedWrite, change::RowChange, repeated::repeated,
        transaction::OrgTransaction,
    },
};

const RECORDS_MAX: usize = 200;
/// Maximum number of records in a call that only reads.
const RETRIEVE_MAX: usize = 2_000;
/// Maximum number of changes of the type from one record to the next.
const RUNS_MAX: usize = 10;

#[derive(Deserialize)]
struct CollectionBody {
    #[serde(default, rename = "allOrNone")]
    all_or_none: bool,
    records: Vec<Map<String, Json>>,
}

/// One record of the call, ready to be written.
struct CollectionItem {
    object: Arc<SchemaObject>,
    operation: Operation,
    change: Result<RowChange, RowError>,
}

type WriteResult = Result<AppliedWrite, RefusedWrite>;

pub(crate) fn route(
    org: &mut OrgState,
    call: &HttpCall,
    version: Version,
    rest: &[&str],
    body: &[u8],
) -> ApiReply {
    let unknown = org.faults.faults().collections.unknown_field;
    let (mut transaction, ledger) = org.begin();
    let request = CollectionCall {
        version,
        method: &call.method,
        rest,
        query: &call.query,
        body: parse_some(body).ok(),
        unknown,
    };
    let reply = run(&mut transaction, &request);
    if reply.is_success() {
        transaction.commit(ledger);
    }
    reply
}

/// A call to `/composite/sobjects/…`, alone or within a composite.
#[derive(Debug)]
pub(crate) struct CollectionCall<'a> {
    pub(crate) version: Version,
    pub(crate) method: &'a Method,
    /// The path after `composite/sobjects`.
    pub(crate) rest: &'a [&'a str],
    pub(crate) query: &'a [(String, String)],
    pub(crate) body: Option<Json>,
    pub(crate) unknown: UnknownField,
}

pub(crate) fn run(transaction: &mut OrgTransaction<'_>, request: &CollectionCall<'_>) -> ApiReply {
    attempt(transaction, request).unwrap_or_else(|reply| reply)
}

fn attempt(
    transaction: &mut OrgTransaction<'_>,
    request: &CollectionCall<'_>,
) -> Result<ApiReply, ApiReply> {
    let upsert = request.rest.len() == 2;
    let since = if upsert { Version::COLLECTION_UPSERT } else { Version::COLLECTIONS };
    if request.version < since {
        return Err(ApiReply::not_found());
    }
    let schema = Arc::clone(&transaction.tables.schema);
    let (items, all_or_none) = match (request.method, request.rest) {
        (&Method::POST, []) => records(&schema, request, |_| Ok(Operation::Insert))?,
        (&Method::PATCH, []) => records(&schema, request, |_| Ok(Operation::Update))?,
        (&Method::PATCH, [name, field]) => upserts(&schema, request, name, field)?,
        (&Method::DELETE, []) => deletes(&schema, request)?,
        (&Method::GET | &Method::POST, [name]) => return retrieve(transaction, request, name),
        _ => return Err(ApiReply::method_not_allowed("DELETE,GET,PATCH,POST")),
    };
    let outcomes = write_all(transaction, items, all_or_none);
    let answers = outcomes.iter().map(|outcome| answer(outcome, upsert));
    Ok(ApiReply::json(200, answers.collect::<Vec<Json>>().into()))
}

fn body(request: &CollectionCall<'_>) -> Result<CollectionBody, ApiReply> {
    let json = request.body.clone().ok_or_else(|| ApiReply::bad_json("the body must be JSON"))?;
    let body: CollectionBody =
        serde_json::from_value(json).map_err(|error| ApiReply::bad_json(&error.to_string()))?;
    check_count(body.records.len(), RECORDS_MAX)?;
    Ok(body)
}

fn check_count(count: usize, max: usize) -> Result<(), ApiReply> {
    if count <= max {
        return Ok(());
    }
    let message =
        format!("record limit reached. cannot submit more than {max} records into this call");
    Err(ApiReply::error(400, "EXCEEDED_ID_LIMIT", &message))
}

fn records(
    schema: &Schema,
    request: &CollectionCall<'_>,
    operation: impl Fn(&SchemaObject) -> Result<Operation, ApiReply>,
) -> Result<(Vec<CollectionItem>, bool), ApiReply> {
    let body = body(request)?;
    let mut items = Vec::new();
    for record in &body.records {
        let kind = record.get("attributes").and_then(|it| it.get("type")).and_then(Json::as_str);
        let kind = kind.ok_or_else(no_type)?;
        let object = schema.object(kind).ok_or_else(|| {
            let message = format!("sObject type '{kind}' is not supported.");
            ApiReply::error(400, "INVALID_TYPE", &message)
        })?;
        let change = change(schema, object, record, request.unknown)?;
        items.push(CollectionItem {
            operation: operation(object)?,
            object: Arc::clone(object),
            change,
        });
    }
    let runs = items.chunk_by(|a, b| a.object.index == b.object.index).count();
    if runs > RUNS_MAX {
        let message = format!("the type changes more than {RUNS_MAX} times: sort the records");
        return Err(ApiReply::error(400, "INVALID_INPUT", &message));
    }
    Ok((items, body.all_or_none))
}

fn no_type() -> ApiReply {
    let message = "An entity specified in the request has no attributes.type";
    ApiReply::error(400, "INVALID_INPUT", message)
}

fn upserts(
    schema: &Schema,
    request: &CollectionCall<'_>,
    name: &str,
    field: &str,
) -> Result<(Vec<CollectionItem>, bool), ApiReply> {
    let object = schema.object(name).ok_or_else(ApiReply::not_found)?;
    let index = object.field(field).filter(|index| object.fields[*index].is_key());
    let index = index.ok_or_else(|| {
        let message =
            format!("Provided external ID field does not exist or is not accessible: {field}");
        ApiReply::error(404, "NOT_FOUND", &message)
    })?;
    let body = body(request)?;
    let mut items = Vec::new();
    for record in &body.records {
        let kind = record.get("attributes").and_then(|it| it.get("type")).and_then(Json::as_str);
        let kind = kind.ok_or_else(no_type)?;
        if !kind.eq_ignore_ascii_case(&object.name) {
            let message = "all records must be of the type in the address";
            return Err(ApiReply::error(400, "INVALID_INPUT", message));
        }
        let change = change(schema, object, record, request.unknown)?;
        let operation = Operation::Upsert(index);
        items.push(CollectionItem { object: Arc::clone(object), operation, change });
    }
    Ok((items, body.all_or_none))
}

fn change(
    schema: &Schema,
    object: &SchemaObject,
    record: &Map<String, Json>,
    unknown: UnknownField,
) -> Result<Result<RowChange, RowError>, ApiReply> {
    let change = RowChange::from_json(schema, object, record);
    match change {
        Err(error) if unknown == UnknownField::Call || error.code == "JSON_PARSER_ERROR" => {
            Err(ApiReply::refused(&error))
        }
        other => Ok(other),
    }
}

fn deletes(
    schema: &Schema,
    request: &CollectionCall<'_>,
) -> Result<(Vec<CollectionItem>, bool), ApiReply> {
    let value = |name| crate::http::call::value_of(request.query, name);
    let ids = value("ids")
        .filter(|ids| !ids.is_empty())
        .ok_or_else(|| ApiReply::error(400, "INVALID_INPUT", "the parameter ids is missing"))?;
    let ids: Vec<&str> = ids.split(',').map(str::trim).collect();
    check_count(ids.len(), RECORDS_MAX)?;
    let item = |id: &&str| {
        let object = Id::parse(id)
            .and_then(|id| schema.objects.iter().find(|object| object.key_prefix == id.prefix()));
        let known = object.is_some();
        let object = Arc::clone(object.unwrap_or(&schema.objects[0]));
        let malformed = RowError::new("MALFORMED_ID", format!("malformed id {id}"));
        let change = RowChange { id: Some((*id).to_owned()), ..RowChange::default() };
        let change = if known { Ok(change) } else { Err(malformed) };
        CollectionItem { object, operation: Operation::Delete, change }
    };
    Ok((ids.iter().map(item).collect(), value("allOrNone") == Some("true")))
}

/// Writes all records; with `all_or_none`, all or none.
fn write_all(
    transaction: &mut OrgTransaction<'_>,
    items: Vec<CollectionItem>,
    all_or_none: bool,
) -> Vec<WriteResult> {
    let point = transaction.savepoint();
    let repeated = repeated_keys(&items);
    let write = |(item, repeated): (CollectionItem, Option<RowError>)| {
        if let Some(error) = repeated {
            return Err(error.into());
        }
        transaction.write(&item.object, item.operation, item.change?)
    };
    let outcomes: Vec<WriteResult> = items.into_iter().zip(repeated).map(write).collect();
    if !all_or_none || outcomes.iter().all(Result::is_ok) {
        return outcomes;
    }
    transaction.roll_back_to(point);
    let rolled_back = |_| {
        let message = "Record rolled back because not all records were valid and the request was \
                       using AllOrNone header";
        Err(RowError::new("ALL_OR_NONE_OPERATION_ROLLED_BACK", message).into())
    };
    outcomes.into_iter().map(|outcome| outcome.and_then(rolled_back)).collect()
}

/// Returns the errors of records whose key is repeated in the call: all of them fail.
fn repeated_keys(items: &[CollectionItem]) -> Vec<Option<RowError>> {
    let rows = items.iter().map(|item| {
        item.change.as_ref().ok().map(|change| (&*item.object, item.operation, change))
    });
    repeated(rows)
}

fn answer(outcome: &WriteResult, upsert: bool) -> Json {
    let mut json = match outcome {
        Ok(done) => json!({"id": done.id, "success": true, "errors": []}),
        Err(refused) => json!({"success": false, "errors": [refused.error.in_collection()]}),
    };
    if upsert {
        json["created"] = outcome.as_ref().is_ok_and(|done| done.created).into();
    }
    json
}

/// Handles `GET …?ids=a,b&fields=x,y`, or the same as `POST` with a body; null for missing records.
fn retrieve(
    transaction: &OrgTransaction<'_>,
    request: &CollectionCall<'_>,
    name: &str,
) -> Result<ApiReply, ApiReply> {
    #[derive(Deserialize)]
    struct RetrieveRequest {
        ids: Vec<String>,
        fields: Vec<String>,
    }
    let schema = &transaction.tables.schema;
    let object = schema.object(name).ok_or_else(ApiReply::not_found)?;
    let list = |name| {
        let text = crate::http::call::value_of(request.query, name).unwrap_or_default();
        text.split(',').map(|part| part.trim().to_owned()).collect::<Vec<String>>()
    };
    let wanted = match &request.body {
        Some(json) => serde_json::from_value(json.clone())
            .map_err(|error| ApiReply::bad_json(&error.to_string()))?,
        None => RetrieveRequest { ids: list("ids"), fields: list("fields") },
    };
    check_count(wanted.ids.len(), RETRIEVE_MAX)?;
    let mut fields = Vec::new();
    for name in &wanted.fields {
        let no_column = || crate::store::change::no_such_column(object, name);
        fields.push(object.field(name).ok_or_else(no_column)?);
    }
    let one = |id: &String| {
        let record = transaction.tables.get(object.index, Id::parse(id)?)?;
        let whole = record.to_json(object, &request.version.to_string());
        let names = fields.iter().map(|field| object.fields[*field].name.as_str());
        let part = names.chain(["attributes"]).map(|name| (name.to_owned(), whole[name].clone()));
        Some(Json::Object(part.collect()))
    };
    let found: Vec<Json> = wanted.ids.iter().map(|id| one(id).unwrap_or_default()).collect();
    Ok(ApiReply::json(200, found.into()))
}
