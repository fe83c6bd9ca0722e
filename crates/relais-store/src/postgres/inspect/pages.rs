//! Pages of rows.

use std::str::FromStr;

use relais_core::{
    bulk::BulkJob,
    inspect::{
        AuditEntry, AuditFilter, ListedRow, PREVIEW_CHARS, PageQuery, PageRows, PayloadPart,
        RowPage, SCAN_MAX,
    },
    process::{LogEntry, Process, ProcessFilter, ProcessStatus},
    query::{Filter, PAGE_MAX, ParkedKey},
    store::StoreError,
};
use tokio_postgres::{
    Row,
    types::{FromSql, ToSql, Type},
};
use uuid::Uuid;

use super::all;
use crate::postgres::{
    error::Failure,
    row::{self, Micros},
    session::Client,
};

/// Most open rows that are read to count those behind parked keys; of each destination, fresh and waiting.
const BACKLOG_SCAN_MAX: i64 = 100_000;

pub(super) async fn page(client: &Client<'_>, query: &PageQuery) -> Result<PageRows, Failure> {
    Ok(match query {
        // An inbox row has no destination: a filter that names one matches none.
        PageQuery::Inbox(filter, _) if filter.destination.is_some() => {
            PageRows::Inbox(RowPage { rows: Vec::new(), next: None })
        }
        PageQuery::Inbox(filter, part) => {
            let table = PagedTable {
                list: sql!("list_inbox"),
                reach: sql!("reach_inbox"),
                id: Type::INT8,
                read: row::inbox_row,
            };
            PageRows::Inbox(table.page::<i64>(client, filter, *part).await?)
        }
        PageQuery::Outbox(filter, part) => {
            let table = PagedTable {
                list: sql!("list_outbox"),
                reach: sql!("reach_outbox"),
                id: Type::INT8,
                read: row::outbox_row,
            };
            PageRows::Outbox(table.page::<i64>(client, filter, *part).await?)
        }
        PageQuery::DeadLetters(filter, part) => {
            let table = PagedTable {
                list: sql!("list_dead_letters"),
                reach: sql!("reach_dead_letters"),
                id: Type::UUID,
                read: row::dead_letter,
            };
            PageRows::DeadLetters(table.page::<Uuid>(client, filter, *part).await?)
        }
        PageQuery::Processes(filter) => PageRows::Processes(processes(client, filter).await?),
        PageQuery::ProcessLog { process_id, before, limit } => {
            PageRows::ProcessLog(process_log(client, *process_id, *before, *limit).await?)
        }
        PageQuery::Audit(filter) => PageRows::Audit(list_audit(client, filter).await?),
        PageQuery::BulkJobs { destination, limit } => {
            PageRows::BulkJobs(bulk_jobs(client, destination.as_deref(), *limit).await?)
        }
        PageQuery::ParkedKeys { limit } => PageRows::ParkedKeys(parked_keys(client, *limit).await?),
    })
}

type TypedValue<'a> = (&'a (dyn ToSql + Sync), Type);

/// A table of messages that is read page by page. Its statements are not prepared: the best plan depends on
/// which filters are set.
struct PagedTable<R> {
    list: &'static str,
    /// Finds the last row that a bounded page reads.
    reach: &'static str,
    /// The type of the ids.
    id: Type,
    read: fn(&Row) -> row::Read<R>,
}

impl<R> PagedTable<R> {
    async fn page<I>(
        &self,
        client: &Client<'_>,
        filter: &Filter,
        part: PayloadPart,
    ) -> Result<RowPage<R>, Failure>
    where
        I: FromStr + ToSql + Sync + ToString + for<'a> FromSql<'a>,
    {
        let before: Option<I> = filter.before.as_deref().map(page_id).transpose()?;
        let (down_to, next) = match part {
            PayloadPart::Whole | PayloadPart::Preview => (None, None),
            PayloadPart::BoundedPreview => self.reach(client, filter, before.as_ref()).await?,
        };
        let limit = row::count(filter.limit.min(PAGE_MAX));
        let chars = match part {
            PayloadPart::Whole => None,
            PayloadPart::Preview | PayloadPart::BoundedPreview => i32::try_from(PREVIEW_CHARS).ok(),
        };
        let values: [TypedValue<'_>; 12] = [
            (&filter.status, Type::TEXT),
            (&filter.event_type, Type::TEXT),
            (&filter.key, Type::TEXT),
            (&filter.since_seconds, Type::INT8),
            (&before, self.id.clone()),
            (&limit, Type::INT8),
            (&filter.destination, Type::TEXT),
            (&filter.source, Type::TEXT),
            (&filter.code, Type::TEXT),
            (&chars, Type::INT4),
            (&down_to, self.id.clone()),
            (&SCAN_MAX, Type::INT8),
        ];
        let rows = client.query_typed(self.list, &values).await?;
        let rows = rows.iter().map(|row| self.listed(row)).collect::<Result<_, Failure>>()?;
        Ok(RowPage { rows, next })
    }

    fn listed(&self, row: &Row) -> Result<ListedRow<R>, Failure> {
        let bytes: Option<i32> = row.try_get("payload_bytes")?;
        let payload_bytes = row::amount(bytes.unwrap_or(0).into());
        Ok(ListedRow { row: (self.read)(row)?, payload_bytes })
    }

    /// Returns the last row that a bounded page reads, if it cannot read all, and its id if rows behind it
    /// may match.
    async fn reach<I>(
        &self,
        client: &Client<'_>,
        filter: &Filter,
        before: Option<&I>,
    ) -> Result<(Option<I>, Option<String>), Failure>
    where
        I: ToSql + Sync + ToString + for<'a> FromSql<'a>,
    {
        let values: [TypedValue<'_>; 4] = [
            (&filter.status, Type::TEXT),
            (&before, self.id.clone()),
            (&SCAN_MAX, Type::INT8),
            (&filter.since_seconds, Type::INT8),
        ];
        let last = client.query_typed(self.reach, &values).await?;
        let Some(last) = last.first() else { return Ok((None, None)) };
        let id: I = last.try_get(0)?;
        let next = last.try_get::<_, bool>(1)?.then(|| id.to_string());
        Ok((Some(id), next))
    }
}

fn page_id<I: FromStr>(text: &str) -> Result<I, StoreError> {
    let invalid = |_| StoreError::invalid(format!("`{text}` is not an id of a page"));
    text.parse().map_err(invalid)
}

/// Not prepared: the best plan depends on which filters are set.
async fn processes(client: &Client<'_>, filter: &ProcessFilter) -> Result<Vec<Process>, Failure> {
    let status = filter.status.map(ProcessStatus::as_str);
    let limit = row::count(filter.limit.min(PAGE_MAX));
    let values: [TypedValue<'_>; 6] = [
        (&status, Type::TEXT),
        (&filter.process_type, Type::TEXT),
        (&filter.business_key, Type::TEXT),
        (&filter.since_seconds, Type::INT8),
        (&filter.before, Type::UUID),
        (&limit, Type::INT8),
    ];
    let rows = client.query_typed(sql!("list_processes"), &values).await?;
    all(&rows, row::process)
}

async fn process_log(
    client: &Client<'_>,
    process_id: Uuid,
    before: Option<i64>,
    limit: usize,
) -> Result<Vec<LogEntry>, Failure> {
    let limit = row::count(limit.min(PAGE_MAX));
    let statement = client.prepare_cached(sql!("process_log")).await?;
    let rows = client.query(&statement, &[&process_id, &before, &limit]).await?;
    all(&rows, row::log_entry)
}

/// Not prepared: the best plan depends on which filters are set.
async fn list_audit(client: &Client<'_>, filter: &AuditFilter) -> Result<Vec<AuditEntry>, Failure> {
    let limit = row::count(filter.limit.min(PAGE_MAX));
    let values: [TypedValue<'_>; 4] = [
        (&filter.actor, Type::TEXT),
        (&filter.target, Type::TEXT),
        (&filter.before, Type::INT8),
        (&limit, Type::INT8),
    ];
    let rows = client.query_typed(sql!("list_audit"), &values).await?;
    let read = |row: &Row| AuditEntry {
        id: row.get("id"),
        at: row.get::<_, Micros>("at").0,
        actor: row.get("actor"),
        action: row.get("action"),
        target: row.get("target"),
        reason: row.get("reason"),
    };
    Ok(rows.iter().map(read).collect())
}

async fn bulk_jobs(
    client: &Client<'_>,
    destination: Option<&str>,
    limit: usize,
) -> Result<Vec<BulkJob>, Failure> {
    let statement = client.prepare_cached(sql!("list_bulk")).await?;
    let values: [&(dyn ToSql + Sync); 2] = [&destination, &row::count(limit.min(PAGE_MAX))];
    let jobs = client.query(&statement, &values).await?;
    all(&jobs, row::bulk_job)
}

async fn parked_keys(client: &Client<'_>, limit: usize) -> Result<Vec<ParkedKey>, Failure> {
    let limit = row::count(limit.min(PAGE_MAX));
    let rows = client.query(sql!("parked_keys"), &[&limit, &BACKLOG_SCAN_MAX]).await?;
    let read = |row: &Row| {
        Ok(ParkedKey {
            origin: row::known(row, "origin")?,
            destination: Some(row.get("destination")).filter(|name: &String| !name.is_empty()),
            msg_key: row.get("msg_key"),
            parked_at: row::time(row, "parked_at")?,
            dead_letter_id: row.get("dead_letter_id"),
            backlog: row::amount_in(row, "backlog")?,
        })
    };
    rows.iter().map(read).collect()
}
