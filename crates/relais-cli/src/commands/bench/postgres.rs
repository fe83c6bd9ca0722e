//! The bare loops on PostgreSQL, with the statements of the project's own benchmark.

use std::time::Instant;

use relais::postgres::PostgresStore;
use uuid::Uuid;

use super::{
    Measurement,
    figures::{BATCH, DESTINATION, SEND_TIME, key, payload},
};
use crate::failure::{CommandError, Done};

pub(super) async fn make_schema(server: &PostgresStore, schema: &str) -> Done {
    let client = server.pool().get().await.map_err(CommandError::failed)?;
    client.batch_execute(&named(include_str!("sql/make_schema.sql"), schema)).await.map_err(
        |error| {
            CommandError::failed(format!(
                "cannot create the schema {schema} for the benchmark: {error}"
            ))
        },
    )
}

pub(super) async fn drop_schema(server: &PostgresStore, schema: &str) -> Done {
    let client = server.pool().get().await.map_err(CommandError::failed)?;
    let dropped = client.batch_execute(&named(include_str!("sql/drop_schema.sql"), schema)).await;
    dropped.map_err(|error| {
        CommandError::failed(format!("cannot drop the schema {schema}: {error}; drop it by hand"))
    })
}

/// Inserts the schema name, which cannot be a parameter; it consists of letters and a number.
fn named(statement: &str, schema: &str) -> String {
    statement.replace("{schema}", schema)
}

pub(super) async fn make_tables(store: &PostgresStore) -> Done {
    let client = store.pool().get().await.map_err(CommandError::failed)?;
    client.batch_execute(sql!("postgres/plain")).await.map_err(CommandError::failed)
}

pub(super) async fn raw(
    store: &PostgresStore,
    name: Measurement,
    rows: u64,
) -> Result<f64, CommandError> {
    match name {
        Measurement::Send => send(store).await,
        Measurement::Accept => accept(store, rows).await,
        Measurement::Relay => relay(store, rows).await,
    }
}

async fn send(store: &PostgresStore) -> Result<f64, CommandError> {
    let client = store.pool().get().await.map_err(CommandError::failed)?;
    let insert = client.prepare(sql!("postgres/send_plain")).await.map_err(CommandError::failed)?;
    let started = Instant::now();
    let mut sent = 0_u64;
    while started.elapsed() < SEND_TIME {
        sent += 1;
        let (key, payload) = (key(sent), payload(sent));
        client
            .execute(&insert, &[&DESTINATION, &key, &"OrderChanged", &payload])
            .await
            .map_err(CommandError::failed)?;
    }
    Ok(sent as f64 / started.elapsed().as_secs_f64())
}

async fn accept(store: &PostgresStore, rows: u64) -> Result<f64, CommandError> {
    let client = store.pool().get().await.map_err(CommandError::failed)?;
    let insert =
        client.prepare(sql!("postgres/insert_plain")).await.map_err(CommandError::failed)?;
    let arrived: Vec<u64> = (0..rows).collect();
    let arrived = arrived.chunks(BATCH).map(|numbers| {
        let ids: Vec<String> = numbers.iter().map(|_| Uuid::now_v7().to_string()).collect();
        let keys: Vec<String> = numbers.iter().map(|number| key(*number)).collect();
        (ids, keys, numbers.iter().map(|number| payload(*number)).collect())
    });
    let arrived: Vec<(Vec<String>, Vec<String>, Vec<String>)> = arrived.collect();
    let started = Instant::now();
    for (ids, keys, payloads) in &arrived {
        client.execute(&insert, &[ids, keys, payloads]).await.map_err(CommandError::failed)?;
    }
    Ok(rows as f64 / started.elapsed().as_secs_f64())
}

/// Reads a batch, marks it, commits, until nothing is pending.
async fn relay(store: &PostgresStore, rows: u64) -> Result<f64, CommandError> {
    let mut client = store.pool().get().await.map_err(CommandError::failed)?;
    let (to, keys) = (rows.cast_signed(), 10_000_i64);
    let payload = payload(1);
    client
        .execute(sql!("postgres/fill_plain"), &[&1_i64, &to, &keys, &DESTINATION, &payload])
        .await
        .map_err(CommandError::failed)?;
    let read = client.prepare(sql!("postgres/read_plain")).await.map_err(CommandError::failed)?;
    let mark = client.prepare(sql!("postgres/mark_plain")).await.map_err(CommandError::failed)?;
    let limit = i64::try_from(BATCH).unwrap_or(i64::MAX);
    let started = Instant::now();
    loop {
        let tx = client.transaction().await.map_err(CommandError::failed)?;
        let found = tx.query(&read, &[&limit]).await.map_err(CommandError::failed)?;
        let ids: Vec<i64> = found.iter().map(|row| row.get(0)).collect();
        // Any publisher has to read the columns.
        let columns = found.iter().map(|row| [2, 3, 4, 5, 6, 7].map(|n| row.get::<_, String>(n)));
        let published: Vec<[String; 6]> = columns.collect();
        tx.execute(&mark, &[&ids]).await.map_err(CommandError::failed)?;
        tx.commit().await.map_err(CommandError::failed)?;
        if published.is_empty() {
            return Ok(rows as f64 / started.elapsed().as_secs_f64());
        }
    }
}
