//! What people ask: the store at a glance, lists, single rows.

use std::str::FromStr;

use futures_util::future::{try_join4, try_join5};
use relais_core::{
    browse::{LOOK_MAX, Listed, PREVIEW_CHARS, Reach},
    dead_letter::DeadLetter,
    inbox::{InboxRow, InboxStatus},
    outbox::{OutboxRow, OutboxStatus},
    process::ProcessStatus,
    query::{Backlog, Count, Filter, Overview, PAGE_MAX, WorkerRow},
    store::StoreError,
};
use tokio_postgres::{
    Row,
    types::{FromSql, ToSql, Type},
};
use uuid::Uuid;

use super::session::Client;
use super::{
    error::Failure,
    row::{self, Micros},
};

/// Finished rows are counted one by one up to here; beyond, the server's estimate serves.
const EXACT_MAX: i64 = 20_000;

/// Open rows of each kind that are looked at for those behind parked keys or without a worker.
const PARKED_LOOK_MAX: i64 = 100_000;

pub(super) async fn overview(client: &Client<'_>) -> Result<Overview, Failure> {
    let statement = client.prepare_cached(sql!("overview")).await?;
    let count_inbox = client.prepare_cached(sql!("count_inbox")).await?;
    let count_outbox = client.prepare_cached(sql!("count_outbox")).await?;
    let count_processes = client.prepare_cached(sql!("count_processes")).await?;
    let backlogs = client.prepare_cached(sql!("backlogs")).await?;
    let workers = client.prepare_cached(sql!("workers")).await?;
    let unknown = client.prepare_cached(sql!("unknown_types")).await?;
    let unserved = client.prepare_cached(sql!("unserved_inboxes")).await?;
    let (one, unknown, unserved, (inbox, outbox, processes, backlogs, workers)) = try_join4(
        client.query_one(&statement, &[&PARKED_LOOK_MAX]),
        client.query(&unknown, &[&row::count(PAGE_MAX)]),
        client.query(&unserved, &[&PARKED_LOOK_MAX]),
        try_join5(
            client.query(&count_inbox, &[&EXACT_MAX]),
            client.query(&count_outbox, &[&EXACT_MAX]),
            client.query(&count_processes, &[&EXACT_MAX]),
            client.query(&backlogs, &[&PARKED_LOOK_MAX]),
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
        inbox_parked: row::amount(one.get(6)),
        processes_need_operator: row::amount(one.get(7)),
        inbox: counts(InboxStatus::ALL.map(InboxStatus::as_str), &inbox),
        outbox: counts(OutboxStatus::ALL.map(OutboxStatus::as_str), &outbox),
        processes: counts(ProcessStatus::ALL.map(ProcessStatus::as_str), &processes),
        backlogs: backlogs.iter().map(backlog).collect(),
        unknown_types: unknown.iter().map(count).collect(),
        unserved_inboxes: unserved.iter().map(count).collect(),
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

fn count(row: &Row) -> Count {
    Count { name: row.get(0), rows: row::amount(row.get(1)) }
}

fn backlog(row: &Row) -> Backlog {
    Backlog {
        destination: row.get(0),
        pending: row::amount(row.get(1)),
        oldest: row.get::<_, Option<Micros>>(2).map(|at| at.0),
        parked: row::amount(row.get(3)),
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

/// How much of each payload is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Whole,
    Preview,
}

/// An inbox row has no destination: a filter that names one finds none.
pub(super) async fn list_inbox(
    client: &Client<'_>,
    filter: &Filter,
    part: Part,
) -> Result<Vec<Listed<InboxRow>>, Failure> {
    if filter.destination.is_some() {
        return Ok(Vec::new());
    }
    let span = Span::<i64>::of(filter)?;
    let rows = list(client, sql!("list_inbox"), filter, span.values(Type::INT8), part).await?;
    listed(&rows, row::inbox_row)
}

pub(super) async fn list_outbox(
    client: &Client<'_>,
    filter: &Filter,
    part: Part,
) -> Result<Vec<Listed<OutboxRow>>, Failure> {
    let span = Span::<i64>::of(filter)?;
    let rows = list(client, sql!("list_outbox"), filter, span.values(Type::INT8), part).await?;
    listed(&rows, row::outbox_row)
}

pub(super) async fn list_dead_letters(
    client: &Client<'_>,
    filter: &Filter,
    part: Part,
) -> Result<Vec<Listed<DeadLetter>>, Failure> {
    let span = Span::<Uuid>::of(filter)?;
    let rows =
        list(client, sql!("list_dead_letters"), filter, span.values(Type::UUID), part).await?;
    listed(&rows, row::dead_letter)
}

/// The size is the last column of each list.
fn listed<T>(
    rows: &[Row],
    read: impl Fn(&Row) -> Result<T, tokio_postgres::Error>,
) -> Result<Vec<Listed<T>>, Failure> {
    let one = |row: &Row| {
        let bytes: Option<i32> = row.try_get(row.len() - 1)?;
        Ok(Listed { row: read(row)?, payload_bytes: row::amount(bytes.unwrap_or(0).into()) })
    };
    rows.iter().map(one).collect()
}

/// Not prepared: the best plan depends on which filters are set.
async fn list(
    client: &Client<'_>,
    statement: &str,
    filter: &Filter,
    [before, down_to]: [Typed<'_>; 2],
    part: Part,
) -> Result<Vec<Row>, Failure> {
    let limit = row::count(filter.limit.min(PAGE_MAX));
    let chars = match part {
        Part::Whole => None,
        Part::Preview => i32::try_from(PREVIEW_CHARS).ok(),
    };
    let values: [Typed<'_>; 12] = [
        (&filter.status, Type::TEXT),
        (&filter.event_type, Type::TEXT),
        (&filter.key, Type::TEXT),
        (&filter.since_seconds, Type::INT8),
        before,
        (&limit, Type::INT8),
        (&filter.destination, Type::TEXT),
        (&filter.source, Type::TEXT),
        (&filter.code, Type::TEXT),
        (&chars, Type::INT4),
        down_to,
        (&LOOK_MAX, Type::INT8),
    ];
    Ok(client.query_typed(statement, &values).await?)
}

type Typed<'a> = (&'a (dyn ToSql + Sync), Type);

/// Between which rows a list looks.
struct Span<T> {
    before: Option<T>,
    down_to: Option<T>,
}

impl<T: FromStr + ToSql + Sync> Span<T> {
    fn of(filter: &Filter) -> Result<Self, StoreError> {
        let parse = |text: &String| {
            text.parse()
                .map_err(|_| StoreError::invalid(format!("`{text}` is not an id of a page")))
        };
        Ok(Self {
            before: filter.before.as_ref().map(parse).transpose()?,
            down_to: filter.down_to.as_ref().map(parse).transpose()?,
        })
    }

    fn values(&self, kind: Type) -> [Typed<'_>; 2] {
        [(&self.before, kind.clone()), (&self.down_to, kind)]
    }
}

pub(super) async fn reach_inbox(client: &Client<'_>, filter: &Filter) -> Result<Reach, Failure> {
    reach::<i64>(client, sql!("reach_inbox"), filter, Type::INT8).await
}

pub(super) async fn reach_outbox(client: &Client<'_>, filter: &Filter) -> Result<Reach, Failure> {
    reach::<i64>(client, sql!("reach_outbox"), filter, Type::INT8).await
}

pub(super) async fn reach_dead_letters(
    client: &Client<'_>,
    filter: &Filter,
) -> Result<Reach, Failure> {
    reach::<Uuid>(client, sql!("reach_dead_letters"), filter, Type::UUID).await
}

async fn reach<T>(
    client: &Client<'_>,
    statement: &str,
    filter: &Filter,
    kind: Type,
) -> Result<Reach, Failure>
where
    T: FromStr + ToSql + Sync + ToString + for<'a> FromSql<'a>,
{
    let span = Span::<T>::of(filter)?;
    let values: [Typed<'_>; 4] = [
        (&filter.status, Type::TEXT),
        (&span.before, kind),
        (&LOOK_MAX, Type::INT8),
        (&filter.since_seconds, Type::INT8),
    ];
    let last = client.query_typed(statement, &values).await?;
    Ok(last.first().map_or_else(Reach::default, |row| {
        let id = row.get::<_, T>(0).to_string();
        Reach { next: row.get::<_, bool>(1).then(|| id.clone()), down_to: Some(id) }
    }))
}

pub(super) async fn find_inbox(client: &Client<'_>, id: &str) -> Result<Option<InboxRow>, Failure> {
    let number: Option<i64> = id.parse().ok();
    let found = client.query_opt(sql!("find_inbox"), &[&number, &id]).await?;
    Ok(found.as_ref().map(row::inbox_row).transpose()?)
}

pub(super) async fn find_outbox(
    client: &Client<'_>,
    id: &str,
) -> Result<Option<OutboxRow>, Failure> {
    let number: Option<i64> = id.parse().ok();
    let message_id: Option<Uuid> = id.parse().ok();
    let found = client.query_opt(sql!("find_outbox"), &[&number, &message_id]).await?;
    Ok(found.as_ref().map(row::outbox_row).transpose()?)
}

pub(super) async fn find_dead_letter(
    client: &Client<'_>,
    id: Uuid,
) -> Result<Option<DeadLetter>, Failure> {
    let found = client.query_opt(sql!("find_dead_letter"), &[&id]).await?;
    Ok(found.as_ref().map(row::dead_letter).transpose()?)
}
