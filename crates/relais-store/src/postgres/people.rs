//! What people ask: the store at a glance, lists, single rows.

use deadpool_postgres::Client;
use futures_util::future::{try_join, try_join5};
use relais_core::{
    dead_letter::DeadLetter,
    inbox::{InboxRow, InboxStatus},
    outbox::{OutboxRow, OutboxStatus},
    process::ProcessStatus,
    query::{Backlog, Count, Filter, Overview, PAGE_MAX, WorkerRow},
    store::StoreError,
};
use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};
use uuid::Uuid;

use super::{
    error::Failure,
    row::{self, Micros},
};

/// Finished rows are counted one by one up to here; beyond, the server's estimate serves.
const EXACT_MAX: i64 = 100_000;

pub(super) async fn overview(client: &Client) -> Result<Overview, Failure> {
    let statement = client.prepare_cached(sql!("overview")).await?;
    let count_inbox = client.prepare_cached(sql!("count_inbox")).await?;
    let count_outbox = client.prepare_cached(sql!("count_outbox")).await?;
    let count_processes = client.prepare_cached(sql!("count_processes")).await?;
    let backlogs = client.prepare_cached(sql!("backlogs")).await?;
    let workers = client.prepare_cached(sql!("workers")).await?;
    let (one, (inbox, outbox, processes, backlogs, workers)) = try_join(
        client.query_one(&statement, &[]),
        try_join5(
            client.query(&count_inbox, &[&EXACT_MAX]),
            client.query(&count_outbox, &[&EXACT_MAX]),
            client.query(&count_processes, &[&EXACT_MAX]),
            client.query(&backlogs, &[]),
            client.query(&workers, &[]),
        ),
    )
    .await?;
    Ok(Overview {
        now: one.get::<_, Micros>(0).0,
        schema_version: one.get(1),
        dead_letters_open: row::amount(one.get(2)),
        parked_keys: row::amount(one.get(3)),
        timers_due: row::amount(one.get(4)),
        inbox_oldest: one.get::<_, Option<Micros>>(5).map(|at| at.0),
        inbox: counts(InboxStatus::ALL.map(InboxStatus::as_str), &inbox),
        outbox: counts(OutboxStatus::ALL.map(OutboxStatus::as_str), &outbox),
        processes: counts(ProcessStatus::ALL.map(ProcessStatus::as_str), &processes),
        backlogs: backlogs.iter().map(backlog).collect(),
        workers: workers.iter().map(worker).collect(),
    })
}

/// Every status, whether the database has rows of it or not.
fn counts<const N: usize>(statuses: [&str; N], rows: &[Row]) -> Vec<Count> {
    let find = |status: &str| rows.iter().find(|row| row.get::<_, &str>(0) == status);
    statuses
        .into_iter()
        .map(|status| Count {
            name: status.to_owned(),
            rows: find(status).map_or(0, |row| row::amount(row.get(1))),
        })
        .collect()
}

fn backlog(row: &Row) -> Backlog {
    Backlog {
        destination: row.get(0),
        pending: row::amount(row.get(1)),
        oldest: row.get::<_, Option<Micros>>(2).map(|at| at.0),
    }
}

fn worker(row: &Row) -> WorkerRow {
    WorkerRow {
        scope: row.get(0),
        worker: row.get(1),
        lanes: row::amount(row.get(2)),
        alive: row.get(3),
    }
}

/// An inbox row has no destination: a filter that names one finds none.
pub(super) async fn list_inbox(client: &Client, filter: &Filter) -> Result<Vec<InboxRow>, Failure> {
    if filter.destination.is_some() {
        return Ok(Vec::new());
    }
    let before = before::<i64>(filter)?;
    let rows = list(client, sql!("list_inbox"), filter, (&before, Type::INT8)).await?;
    Ok(rows.iter().map(row::inbox_row).collect::<Result<_, _>>()?)
}

pub(super) async fn list_outbox(
    client: &Client,
    filter: &Filter,
) -> Result<Vec<OutboxRow>, Failure> {
    let before = before::<i64>(filter)?;
    let rows = list(client, sql!("list_outbox"), filter, (&before, Type::INT8)).await?;
    Ok(rows.iter().map(row::outbox_row).collect::<Result<_, _>>()?)
}

pub(super) async fn list_dead_letters(
    client: &Client,
    filter: &Filter,
) -> Result<Vec<DeadLetter>, Failure> {
    let before = before::<Uuid>(filter)?;
    let rows = list(client, sql!("list_dead_letters"), filter, (&before, Type::UUID)).await?;
    Ok(rows.iter().map(row::dead_letter).collect::<Result<_, _>>()?)
}

/// Not prepared: the best plan depends on which filters are set.
async fn list(
    client: &Client,
    statement: &str,
    filter: &Filter,
    before: (&(dyn ToSql + Sync), Type),
) -> Result<Vec<Row>, Failure> {
    let limit = row::count(filter.limit.min(PAGE_MAX));
    let values: [(&(dyn ToSql + Sync), Type); 7] = [
        (&filter.status, Type::TEXT),
        (&filter.event_type, Type::TEXT),
        (&filter.key, Type::TEXT),
        (&filter.since_seconds, Type::INT8),
        before,
        (&limit, Type::INT8),
        (&filter.destination, Type::TEXT),
    ];
    Ok(client.query_typed(statement, &values).await?)
}

fn before<T: std::str::FromStr>(filter: &Filter) -> Result<Option<T>, StoreError> {
    let parse = |text: &String| {
        text.parse().map_err(|_| StoreError::Invalid(format!("`{text}` is not an id of a page")))
    };
    filter.before.as_ref().map(parse).transpose()
}

pub(super) async fn find_inbox(client: &Client, id: &str) -> Result<Option<InboxRow>, Failure> {
    let number: Option<i64> = id.parse().ok();
    let found = client.query_opt(sql!("find_inbox"), &[&number, &id]).await?;
    Ok(found.as_ref().map(row::inbox_row).transpose()?)
}

pub(super) async fn find_outbox(client: &Client, id: &str) -> Result<Option<OutboxRow>, Failure> {
    let number: Option<i64> = id.parse().ok();
    let message_id: Option<Uuid> = id.parse().ok();
    let found = client.query_opt(sql!("find_outbox"), &[&number, &message_id]).await?;
    Ok(found.as_ref().map(row::outbox_row).transpose()?)
}

pub(super) async fn find_dead_letter(
    client: &Client,
    id: Uuid,
) -> Result<Option<DeadLetter>, Failure> {
    let found = client.query_opt(sql!("find_dead_letter"), &[&id]).await?;
    Ok(found.as_ref().map(row::dead_letter).transpose()?)
}
