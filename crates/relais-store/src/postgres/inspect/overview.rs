//! The store at a glance.

use futures_util::future::{try_join, try_join3, try_join4};
use relais_core::{
    inbox::InboxStatus,
    outbox::OutboxStatus,
    process::ProcessStatus,
    query::{
        Backlog, Count, EXACT_COUNT_MAX, FAILING_READ_MAX, FailingRow, Overview, PAGE_MAX,
        WorkerRow,
    },
};
use tokio_postgres::Row;

use crate::postgres::{
    error::Failure,
    row::{self, Micros},
    session::Client,
};

/// Finished rows are counted one by one up to here; beyond, the server's estimate serves.
const EXACT_MAX: i64 = EXACT_COUNT_MAX as i64;

/// Most open rows of each kind that are read to find those behind parked keys or without a worker.
const PARKED_LOOK_MAX: i64 = 100_000;

pub(super) async fn overview(client: &Client<'_>) -> Result<Overview, Failure> {
    let statement = client.prepare_cached(sql!("overview")).await?;
    let count_inbox = client.prepare_cached(sql!("count_inbox")).await?;
    let count_outbox = client.prepare_cached(sql!("count_outbox")).await?;
    let count_processes = client.prepare_cached(sql!("count_processes")).await?;
    let backlogs = client.prepare_cached(sql!("backlogs")).await?;
    let failing = client.prepare_cached(sql!("failing_keys")).await?;
    let workers = client.prepare_cached(sql!("workers")).await?;
    let unknown = client.prepare_cached(sql!("unknown_types")).await?;
    let unserved = client.prepare_cached(sql!("unserved_inboxes")).await?;
    let count_outbox = async {
        let backlogs = client.query(&backlogs, &[&PARKED_LOOK_MAX]).await?;
        let mut backlogs: Vec<Backlog> = backlogs.iter().map(backlog).collect();
        let pending: u64 = backlogs.iter().map(|backlog| backlog.pending).sum();
        let pending = i64::try_from(pending).unwrap_or(i64::MAX);
        let names: Vec<&str> = backlogs.iter().map(|b| b.destination.as_str()).collect();
        let (failing, counts) = try_join(
            client.query(&failing, &[&names, &row::count(FAILING_READ_MAX)]),
            client.query(&count_outbox, &[&EXACT_MAX, &pending]),
        )
        .await?;
        failing.iter().for_each(|found| add_failing(&mut backlogs, found));
        Ok((backlogs, counts))
    };
    let ((backlogs, outbox), (unknown, unserved), (one, inbox, processes, workers)) = try_join3(
        count_outbox,
        try_join(
            client.query(&unknown, &[&row::count(PAGE_MAX)]),
            client.query(&unserved, &[&PARKED_LOOK_MAX]),
        ),
        try_join4(
            client.query_one(&statement, &[&PARKED_LOOK_MAX]),
            client.query(&count_inbox, &[&EXACT_MAX]),
            client.query(&count_processes, &[&EXACT_MAX]),
            client.query(&workers, &[]),
        ),
    )
    .await?;
    Ok(Overview {
        now: one.get::<_, Micros>("now").0,
        schema_version: one.get("schema_version"),
        dead_letters_open: row::amount(one.get("dead_letters_open")),
        parked_keys: row::amount(one.get("parked_keys")),
        timers_due: row::amount(one.get("timers_due")),
        inbox_oldest: one.get::<_, Option<Micros>>("inbox_oldest").map(|at| at.0),
        inbox_parked: row::amount(one.get("inbox_parked")),
        processes_need_operator: row::amount(one.get("processes_need_operator")),
        inbox: counts(InboxStatus::ALL.map(InboxStatus::as_str), &inbox),
        outbox: counts(OutboxStatus::ALL.map(OutboxStatus::as_str), &outbox),
        processes: counts(ProcessStatus::ALL.map(ProcessStatus::as_str), &processes),
        backlogs,
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
        destination: row.get("destination"),
        pending: row::amount(row.get("pending")),
        oldest: row.get::<_, Option<Micros>>("oldest").map(|at| at.0),
        parked: row::amount(row.get("parked")),
        ..Backlog::default()
    }
}

fn add_failing(backlogs: &mut [Backlog], row: &Row) {
    let name: &str = row.get("destination");
    let Some(backlog) = backlogs.iter_mut().find(|b| b.destination == name) else { return };
    backlog.failing_keys = row::amount(row.get("keys"));
    backlog.failing = Some(FailingRow {
        id: row.get("id"),
        msg_key: row.get("msg_key"),
        since: row.get::<_, Micros>("since").0,
        attempts: u32::try_from(row.get::<_, i32>("attempts")).unwrap_or_default(),
        next_attempt_at: row.get::<_, Option<Micros>>("next_attempt_at").map(|at| at.0),
        error_code: row.get("error_code"),
        error_message: row.get("error_message"),
    });
}

fn worker(row: &Row) -> WorkerRow {
    WorkerRow {
        scope: row.get("scope"),
        worker: row.get("worker"),
        lanes: row::amount(row.get("lanes")),
        alive: row.get("alive"),
    }
}
