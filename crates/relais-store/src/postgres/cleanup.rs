//! Removes finished rows past their retention, a bounded number at a time.
//!
//! Old rows have low ids, but some low ids stay (failed rows). So each table has a place
//! from which the next pass continues, and a pass reads a bounded number of rows: neither history
//! nor leftovers make it slow. No index is needed for it, and no producer pays for one.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicI64, Ordering},
};

use relais_core::{
    query::{CleanupCounts, CleanupMode, Retention},
    time::Timestamp,
};
use tokio_postgres::Row;
use uuid::Uuid;

use super::session::Client;
use super::{
    error::Failure,
    row::{self, Micros},
};
use crate::release::RELEASED_ROWS;

/// Rows read for each row that may be removed.
const LOOK_FACTOR: i64 = 4;
/// Rows read in any case.
const LOOK_MIN: i64 = 10_000;

/// Before every row: an id that another program chose may be 0 or negative.
const START: i64 = i64::MIN;

/// Positions from which the next pass continues. Kept in memory: after a restart it starts at the beginning.
#[derive(Debug)]
pub(super) struct Places {
    inbox: AtomicI64,
    outbox: AtomicI64,
    waiting: AtomicI64,
    swept: AtomicI64,
    /// By the time they were made, because their ids have no order.
    processes: Mutex<Option<(Timestamp, Uuid)>>,
    /// By type and id of the aggregate.
    versions: Mutex<(String, String)>,
}

impl Default for Places {
    fn default() -> Self {
        let [inbox, outbox, waiting, swept] = [const { AtomicI64::new(START) }; 4];
        let (processes, versions) = Default::default();
        Self { inbox, outbox, waiting, swept, processes, versions }
    }
}

pub(super) async fn cleanup(
    client: &Client<'_>,
    places: &Places,
    retention: &Retention,
    mode: CleanupMode,
) -> Result<CleanupCounts, Failure> {
    let CleanupMode::Remove { rows_max: asked } = mode else {
        return count(client, retention).await;
    };
    let rows_max = row::count(asked);
    let inbox =
        walk(client, sql!("cleanup_inbox"), &places.inbox, retention.processed_seconds, rows_max);
    let inbox = inbox.await?;
    crate::fail_point!("cleanup.mid_batch");
    let outbox = walk(
        client,
        sql!("cleanup_outbox"),
        &places.outbox,
        retention.dispatched_seconds,
        rows_max,
    );
    let outbox = outbox.await?;
    crate::fail_point!("cleanup.mid_batch");
    let handled = client.prepare_cached(sql!("cleanup_handled")).await?;
    let handled = client.execute(&handled, &[&retention.handled_seconds, &rows_max]).await?;
    let dead = client.prepare_cached(sql!("cleanup_dead_letters")).await?;
    let dead = client.query_one(&dead, &[&retention.resolved_seconds, &rows_max]).await?;
    let dead_letters = row::amount(dead.get(0));
    let processes =
        walk_processes(client, &places.processes, retention.processes_seconds, rows_max).await?;
    let versions =
        walk_versions(client, &places.versions, retention.versions_seconds, rows_max).await?;
    // Few, so they are not counted.
    let jobs = client.prepare_cached(sql!("cleanup_bulk")).await?;
    client.execute(&jobs, &[&retention.dispatched_seconds, &rows_max]).await?;
    let removed = CleanupCounts { inbox, outbox, handled, dead_letters, processes, versions };
    if removed.reached_the_end(asked) {
        sweep(client, places).await?;
    }
    Ok(removed)
}

/// Finds outbox rows that were changed by hand, a bounded part of the tables at a time: see
/// [`super::low_water_mark`].
async fn sweep(client: &Client<'_>, places: &Places) -> Result<(), Failure> {
    let next = |place: &AtomicI64, row: &Row| {
        let (seen, last): (i64, Option<i64>) = (row.get(0), row.get(1));
        let next = last.filter(|_| seen >= LOOK_MIN);
        place.store(next.unwrap_or(START), Ordering::Relaxed);
    };
    let waiting = client.prepare_cached(sql!("sweep_waiting")).await?;
    let from = places.waiting.load(Ordering::Relaxed);
    let row = client.query_one(&waiting, &[&from, &LOOK_MIN]).await?;
    next(&places.waiting, &row);
    let (destinations, keys): (Vec<String>, Vec<String>) = (row.get(2), row.get(3));
    for destination in &destinations {
        let release = client.prepare_cached(sql!("release_waiting")).await?;
        client.execute(&release, &[destination, &keys, &RELEASED_ROWS]).await?;
    }
    let outbox = client.prepare_cached(sql!("sweep_outbox")).await?;
    let from = places.swept.load(Ordering::Relaxed);
    let row = client.query_one(&outbox, &[&from, &LOOK_MIN]).await?;
    next(&places.swept, &row);
    Ok(())
}

/// Counts the rows that all passes together would remove.
async fn count(client: &Client<'_>, retention: &Retention) -> Result<CleanupCounts, Failure> {
    let Retention {
        processed_seconds,
        dispatched_seconds,
        handled_seconds,
        resolved_seconds,
        processes_seconds,
        versions_seconds,
        ..
    } = retention;
    let statement = client.prepare_cached(sql!("count_expired")).await?;
    let counted = client
        .query_one(
            &statement,
            &[
                processed_seconds,
                dispatched_seconds,
                handled_seconds,
                resolved_seconds,
                processes_seconds,
                versions_seconds,
            ],
        )
        .await?;
    let count = |column| row::amount(counted.get(column));
    Ok(CleanupCounts {
        inbox: count(0),
        outbox: count(1),
        handled: count(2),
        dead_letters: count(3),
        processes: count(4),
        versions: count(5),
    })
}

/// Cleans a bounded part of a table; at the end of the old rows it starts over.
async fn walk(
    client: &Client<'_>,
    statement: &str,
    place: &AtomicI64,
    seconds: i64,
    rows_max: i64,
) -> Result<u64, Failure> {
    let look = look(rows_max);
    let from = place.load(Ordering::Relaxed);
    let statement = client.prepare_cached(statement).await?;
    let row = client.query_one(&statement, &[&from, &seconds, &rows_max, &look]).await?;
    let (gone, young, seen): (i64, bool, i64) = (row.get(0), row.get(1), row.get(2));
    let last: Option<i64> = row.get(3);
    let next = match last {
        // More may be removable right here.
        _ if gone >= rows_max => from,
        // Old rows may come behind these leftovers.
        Some(last) if seen >= look && !young => last,
        // Where all rows were written within the retention, all behind them were.
        _ => START,
    };
    place.store(next, Ordering::Relaxed);
    Ok(row::amount(gone))
}

/// The same for processes. Rows that are old enough to be read and still there are leftovers.
async fn walk_processes(
    client: &Client<'_>,
    place: &Mutex<Option<(Timestamp, Uuid)>>,
    seconds: i64,
    rows_max: i64,
) -> Result<u64, Failure> {
    let look = look(rows_max);
    let from = *place.lock().unwrap_or_else(PoisonError::into_inner);
    let (at, id) = from.unwrap_or((Timestamp(i64::MIN), Uuid::nil()));
    let statement = client.prepare_cached(sql!("cleanup_processes")).await?;
    let row = client.query_one(&statement, &[&Micros(at), &id, &seconds, &rows_max, &look]).await?;
    let (gone, seen): (i64, i64) = (row.get(0), row.get(1));
    let last: Option<Micros> = row.get(2);
    let next = match last {
        _ if gone >= rows_max => from,
        Some(last) if seen >= look => Some((last.0, row.get(3))),
        _ => None,
    };
    *place.lock().unwrap_or_else(PoisonError::into_inner) = next;
    Ok(row::amount(gone))
}

/// The same for versions of aggregates, in the order of their primary key.
async fn walk_versions(
    client: &Client<'_>,
    place: &Mutex<(String, String)>,
    seconds: i64,
    rows_max: i64,
) -> Result<u64, Failure> {
    let look = look(rows_max);
    let from = place.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let statement = client.prepare_cached(sql!("cleanup_versions")).await?;
    let row = client.query_one(&statement, &[&from.0, &from.1, &seconds, &rows_max, &look]).await?;
    let (gone, seen): (i64, i64) = (row.get(0), row.get(1));
    let next = match gone >= rows_max {
        true => from,
        false if seen >= look => (row.get(2), row.get(3)),
        false => Default::default(),
    };
    *place.lock().unwrap_or_else(PoisonError::into_inner) = next;
    Ok(row::amount(gone))
}

fn look(rows_max: i64) -> i64 {
    rows_max.saturating_mul(LOOK_FACTOR).max(LOOK_MIN)
}
