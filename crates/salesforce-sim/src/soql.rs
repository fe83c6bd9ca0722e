//! A subset of SOQL to read records: `SELECT … FROM … WHERE … ORDER BY … LIMIT … OFFSET …`.

mod parse;
mod run;
mod token;

use std::collections::VecDeque;

use serde_json::{Value as Json, json};

use crate::{
    data::version::Version, http::call::HttpCall, id::Id, org::OrgState, reply::ApiReply,
    row_error::RowError, store::OrgTables,
};

/// Rows per page, unless the client requests another number.
const PAGE_ROWS: usize = 2_000;
const PAGE_ROWS_MIN: usize = 200;
/// Maximum number of open cursors; the oldest is removed first.
const CURSORS_MAX: usize = 10;

/// Results of which a part was sent.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    open: VecDeque<(Id, Vec<Json>, usize, Version)>,
    opened: u64,
}

pub(crate) fn query(org: &mut OrgState, call: &HttpCall, version: Version) -> ApiReply {
    let Some(text) = call.query("q") else {
        return ApiReply::error(400, "MALFORMED_QUERY", "unexpected token: <EOF>");
    };
    let found = parse::parse(text).and_then(|query| run::run(&org.tables, &query, version));
    let rows = match found {
        Ok(run::QueryOutput::Rows(rows)) => rows,
        Ok(run::QueryOutput::Count(count)) => return counted(count),
        Err(error) => return ApiReply::refused(&error),
    };
    let size = page_rows(call);
    if rows.len() <= size {
        return page(&rows, rows.len(), None);
    }
    let cursors = &mut org.cursors;
    cursors.opened += 1;
    let id = Id::new("01g", cursors.opened);
    let reply = page(&rows[..size], rows.len(), Some(next(version, id, size)));
    cursors.open.push_back((id, rows, size, version));
    if cursors.open.len() > CURSORS_MAX {
        cursors.open.pop_front();
    }
    reply
}

/// Returns the next page of a result, by `<cursor>-<start>`.
pub(crate) fn more(org: &OrgState, locator: &str) -> ApiReply {
    let wrong = || ApiReply::error(400, "INVALID_QUERY_LOCATOR", "invalid query locator");
    let Some((id, start)) = locator.split_once('-') else { return wrong() };
    let cursor = org.cursors.open.iter().find(|(open, ..)| Id::parse(id) == Some(*open));
    let (Some((id, rows, size, version)), Ok(start)) = (cursor, start.parse::<usize>()) else {
        return wrong();
    };
    let end = rows.len().min(start.saturating_add(*size));
    let Some(part) = rows.get(start..end) else { return wrong() };
    let next = (end < rows.len()).then(|| next(*version, *id, end));
    page(part, rows.len(), next)
}

/// Returns all rows at once, for a query within a composite.
pub(crate) fn whole(tables: &OrgTables, text: &str, version: Version) -> ApiReply {
    match parse::parse(text).and_then(|query| run::run(tables, &query, version)) {
        Ok(run::QueryOutput::Rows(rows)) => page(&rows, rows.len(), None),
        Ok(run::QueryOutput::Count(count)) => counted(count),
        Err(error) => ApiReply::refused(&error),
    }
}

/// The result of a bulk query.
#[derive(Debug)]
pub(crate) struct QueryTable {
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// Checks the query of a bulk job. Returns its object.
pub(crate) fn object_of(tables: &OrgTables, text: &str) -> Result<String, RowError> {
    let query = parse::parse(text)?;
    if query.select == parse::Select::Count {
        let message = "Aggregate Relationships not supported in Bulk Query";
        return Err(RowError::new("FUNCTIONALITY_NOT_ENABLED", message));
    }
    run::table(tables, &query)?;
    let object = tables.schema.object(&query.object);
    Ok(object.map_or(query.object, |object| object.name.clone()))
}

/// Returns all rows, for a bulk job.
pub(crate) fn table(tables: &OrgTables, text: &str) -> Result<QueryTable, RowError> {
    let (columns, rows) = run::table(tables, &parse::parse(text)?)?;
    Ok(QueryTable { columns, rows })
}

fn counted(count: usize) -> ApiReply {
    ApiReply::json(200, json!({"totalSize": count, "done": true, "records": []}))
}

fn next(version: Version, id: Id, start: usize) -> String {
    format!("/services/data/{version}/query/{id}-{start}")
}

fn page(rows: &[Json], total: usize, next: Option<String>) -> ApiReply {
    let mut json = json!({"totalSize": total, "done": next.is_none(), "records": rows});
    if let Some(next) = next {
        json["nextRecordsUrl"] = next.into();
    }
    ApiReply::json(200, json)
}

/// Reads `Sforce-Query-Options: batchSize=500`.
fn page_rows(call: &HttpCall) -> usize {
    let options = call.header("sforce-query-options").unwrap_or_default();
    let asked = options.split_once("batchSize=").and_then(|(_, size)| size.trim().parse().ok());
    asked.unwrap_or(PAGE_ROWS).clamp(PAGE_ROWS_MIN, PAGE_ROWS)
}
