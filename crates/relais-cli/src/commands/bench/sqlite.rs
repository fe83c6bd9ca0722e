//! The bare loops on SQLite, with the statements of the project's own benchmark.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rusqlite::{Connection, Result, TransactionBehavior, params};
use uuid::Uuid;

use super::{
    Measurement,
    figures::{BATCH, DESTINATION, SEND_TIME, key, payload},
};
use crate::failure::{CommandError, Done};

/// Time limit for the transaction of another connection.
const BUSY: Duration = Duration::from_secs(10);

pub(super) async fn make_tables(folder: PathBuf) -> Done {
    on_connection(folder, |db| db.execute_batch(sql!("sqlite/plain"))).await
}

pub(super) async fn raw(
    folder: PathBuf,
    name: Measurement,
    rows: u64,
) -> std::result::Result<f64, CommandError> {
    on_connection(folder, move |db| match name {
        Measurement::Send => send(db),
        Measurement::Accept => accept(db, rows),
        Measurement::Relay => relay(db, rows),
    })
    .await
}

async fn on_connection<T: Send + 'static>(
    folder: PathBuf,
    work: impl FnOnce(&mut Connection) -> Result<T> + Send + 'static,
) -> std::result::Result<T, CommandError> {
    let task = tokio::task::spawn_blocking(move || work(&mut connect(&folder)?));
    task.await.map_err(CommandError::failed)?.map_err(CommandError::failed)
}

/// Opens a connection with the settings of relais.
fn connect(folder: &Path) -> Result<Connection> {
    let db = Connection::open(folder.join("bench.db"))?;
    db.busy_timeout(BUSY)?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "FULL")?;
    Ok(db)
}

fn send(db: &mut Connection) -> Result<f64> {
    let started = Instant::now();
    let mut sent = 0_u64;
    while started.elapsed() < SEND_TIME {
        sent += 1;
        let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        tx.prepare_cached(sql!("sqlite/send_plain"))?.execute(params![
            DESTINATION,
            key(sent),
            "OrderChanged",
            payload(sent)
        ])?;
        tx.commit()?;
    }
    Ok(sent as f64 / started.elapsed().as_secs_f64())
}

fn accept(db: &mut Connection, rows: u64) -> Result<f64> {
    let arrived = |number| (Uuid::now_v7().to_string(), key(number), payload(number));
    let arrived: Vec<_> = (0..rows).map(arrived).collect();
    let started = Instant::now();
    for batch in arrived.chunks(BATCH) {
        let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        {
            let mut insert = tx.prepare_cached(sql!("sqlite/insert_plain"))?;
            for (id, key, payload) in batch {
                insert.execute(params![id, key, payload])?;
            }
        }
        tx.commit()?;
    }
    Ok(rows as f64 / started.elapsed().as_secs_f64())
}

fn relay(db: &mut Connection, rows: u64) -> Result<f64> {
    db.execute(
        sql!("sqlite/fill_plain"),
        params![rows.cast_signed(), 10_000, DESTINATION, payload(1)],
    )?;
    let started = Instant::now();
    while relay_batch(db)? > 0 {}
    Ok(rows as f64 / started.elapsed().as_secs_f64())
}

/// Reads a batch, marks it, commits.
fn relay_batch(db: &mut Connection) -> Result<usize> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut published = Vec::new();
    {
        let mut read = tx.prepare_cached(sql!("sqlite/read_plain"))?;
        let mut rows = read.query([BATCH as i64])?;
        while let Some(row) = rows.next()? {
            let columns: Vec<String> = (1..8).map(|n| row.get(n)).collect::<Result<_>>()?;
            published.push((row.get::<_, i64>(0)?, columns));
        }
        let mut mark = tx.prepare_cached(sql!("sqlite/mark_plain"))?;
        for (id, _) in &published {
            mark.execute([id])?;
        }
    }
    tx.commit()?;
    Ok(published.len())
}
