//! Pages of rows.

use relais_core::{
    dead_letter::DeadLetter,
    inbox::InboxRow,
    inspect::{
        AuditEntry, AuditFilter, ListedRow, PREVIEW_CHARS, PageQuery, PageRows, PayloadPart,
        RowPage, SCAN_MAX,
    },
    outbox::OutboxRow,
    process::{Process, ProcessFilter, ProcessStatus},
    query::{Filter, PAGE_MAX},
    store::StoreError,
};
use rusqlite::Connection;
use uuid::Uuid;

use crate::sqlite::row::{all, first, limit};

/// Most open rows that are read to count those behind parked keys.
const BACKLOG_ROWS_MAX: i64 = 100_000;

pub(super) fn page(db: &Connection, query: &PageQuery) -> Result<PageRows, StoreError> {
    Ok(match query {
        PageQuery::Inbox(filter, part) => PageRows::Inbox(inbox_page(db, filter, *part)?),
        PageQuery::Outbox(filter, part) => PageRows::Outbox(outbox_page(db, filter, *part)?),
        PageQuery::DeadLetters(filter, part) => {
            PageRows::DeadLetters(dead_letter_page(db, filter, *part)?)
        }
        PageQuery::Processes(filter) => PageRows::Processes(processes(db, filter)?),
        PageQuery::ProcessLog { process_id, before, limit: entries } => {
            let params = (process_id.to_string(), before, limit((*entries).min(PAGE_MAX)));
            let sql = include_str!("../sql/process_log.sql");
            PageRows::ProcessLog(all(db, sql, params, |c| c.log_entry())?)
        }
        PageQuery::Audit(filter) => PageRows::Audit(list_audit(db, filter)?),
        PageQuery::BulkJobs { destination, limit: jobs } => {
            let params = (destination, limit((*jobs).min(PAGE_MAX)));
            let sql = include_str!("../sql/list_bulk.sql");
            PageRows::BulkJobs(all(db, sql, params, |c| c.bulk_job())?)
        }
        PageQuery::ParkedKeys { limit: keys } => {
            let params = (limit((*keys).min(PAGE_MAX)), BACKLOG_ROWS_MAX);
            let sql = include_str!("../sql/parked_keys.sql");
            PageRows::ParkedKeys(all(db, sql, params, |c| c.parked_key())?)
        }
    })
}

/// The characters that are read of each payload.
fn chars(part: PayloadPart) -> Option<i64> {
    match part {
        PayloadPart::Whole => None,
        PayloadPart::Preview | PayloadPart::BoundedPreview => Some(PREVIEW_CHARS),
    }
}

/// The last row that a bounded page reads, if it cannot read all, and its id if rows behind it may match.
struct PageEnd<I> {
    down_to: Option<I>,
    next: Option<String>,
}

impl<I: Clone + ToString> PageEnd<I> {
    fn new(last: Option<(I, bool)>) -> Self {
        let next = last.as_ref().filter(|(_, more)| *more).map(|(id, _)| id.to_string());
        Self { down_to: last.map(|(id, _)| id), next }
    }
}

/// Finds the end of a page of the inbox or the outbox.
fn row_page_end(
    db: &Connection,
    sql: &str,
    filter: &Filter,
    part: PayloadPart,
) -> Result<PageEnd<i64>, StoreError> {
    if part != PayloadPart::BoundedPreview {
        return Ok(PageEnd::new(None));
    }
    let params = (&filter.status, row_id(&filter.before)?, SCAN_MAX, filter.since_seconds);
    Ok(PageEnd::new(first(db, sql, params, |c| (c.integer(0), c.flag(1)))?))
}

fn inbox_page(
    db: &Connection,
    filter: &Filter,
    part: PayloadPart,
) -> Result<RowPage<InboxRow>, StoreError> {
    let PageEnd { down_to, next } =
        row_page_end(db, include_str!("../sql/reach_inbox.sql"), filter, part)?;
    let Filter { status, event_type, key, since_seconds: since, source, code, .. } = filter;
    let (before, page, chars) = (row_id(&filter.before)?, page_rows(filter), chars(part));
    let params =
        (status, event_type, key, since, before, page, source, code, chars, down_to, SCAN_MAX);
    let rows = all(db, include_str!("../sql/list_inbox.sql"), params, |c| ListedRow {
        row: c.inbox(),
        payload_bytes: c.count("payload_bytes"),
    })?;
    Ok(RowPage { rows, next })
}

fn outbox_page(
    db: &Connection,
    filter: &Filter,
    part: PayloadPart,
) -> Result<RowPage<OutboxRow>, StoreError> {
    let PageEnd { down_to, next } =
        row_page_end(db, include_str!("../sql/reach_outbox.sql"), filter, part)?;
    let Filter { status, event_type, key, destination, since_seconds: since, code, .. } = filter;
    let (before, page, chars) = (row_id(&filter.before)?, page_rows(filter), chars(part));
    let params =
        (status, event_type, key, destination, since, before, page, code, chars, down_to, SCAN_MAX);
    let rows = all(db, include_str!("../sql/list_outbox.sql"), params, |c| ListedRow {
        row: c.outbox(),
        payload_bytes: c.count("payload_bytes"),
    })?;
    Ok(RowPage { rows, next })
}

fn dead_letter_page(
    db: &Connection,
    filter: &Filter,
    part: PayloadPart,
) -> Result<RowPage<DeadLetter>, StoreError> {
    let before = dead_letter_id(&filter.before)?;
    let PageEnd { down_to, next } = match part {
        PayloadPart::Whole | PayloadPart::Preview => PageEnd::new(None),
        PayloadPart::BoundedPreview => {
            let params = (&filter.status, &before, SCAN_MAX, filter.since_seconds);
            let sql = include_str!("../sql/reach_dead_letters.sql");
            PageEnd::new(first(db, sql, params, |c| (c.string(0), c.flag(1)))?)
        }
    };
    let Filter { status, event_type, key, destination, source, code, .. } = filter;
    let (since, page, chars) = (filter.since_seconds, page_rows(filter), chars(part));
    let params =
        (status, event_type, key, destination, since, before, page, source, code, chars, down_to);
    let rows = all(db, include_str!("../sql/list_dead_letters.sql"), params, |c| ListedRow {
        row: c.dead_letter(),
        payload_bytes: c.count("payload_bytes"),
    })?;
    Ok(RowPage { rows, next })
}

fn page_rows(filter: &Filter) -> i64 {
    limit(filter.limit.min(PAGE_MAX))
}

fn row_id(text: &Option<String>) -> Result<Option<i64>, StoreError> {
    let Some(text) = text else { return Ok(None) };
    let invalid =
        |_| StoreError::invalid(format!("`before` must be the id of a row, not `{text}`"));
    text.parse().map(Some).map_err(invalid)
}

fn dead_letter_id(text: &Option<String>) -> Result<Option<String>, StoreError> {
    let Some(text) = text else { return Ok(None) };
    let invalid =
        |_| StoreError::invalid(format!("`before` must be the id of a dead letter, not `{text}`"));
    Uuid::try_parse(text).map(|id| Some(id.to_string())).map_err(invalid)
}

fn processes(db: &Connection, filter: &ProcessFilter) -> Result<Vec<Process>, StoreError> {
    let ProcessFilter { status, process_type, business_key, since_seconds, before, .. } = filter;
    let params = (
        status.map(ProcessStatus::as_str),
        process_type,
        business_key,
        since_seconds,
        before.map(|id| id.to_string()),
        limit(filter.limit.min(PAGE_MAX)),
    );
    all(db, include_str!("../sql/list_processes.sql"), params, |c| c.process())
}

fn list_audit(db: &Connection, filter: &AuditFilter) -> Result<Vec<AuditEntry>, StoreError> {
    let AuditFilter { actor, target, before, limit: most } = filter;
    let params = (actor, target, before, limit((*most).min(PAGE_MAX)));
    all(db, include_str!("../sql/list_audit.sql"), params, |c| c.audit_entry())
}
