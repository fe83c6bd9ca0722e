//! The bare loops on PostgreSQL, with the statements of the project's own benchmark.

use std::{fmt, time::Instant};

use relais::postgres::PostgresStore;
use uuid::Uuid;

use super::{
    Name,
    figures::{BATCH, DESTINATION, SEND_TIME, key, payload},
};
use crate::failure::{Done, Failure};

pub(super) async fn make_schema(server: &PostgresStore, schema: &str) -> Done {
    let client = server.pool().get().await.map_err(away)?;
    client.batch_execute(&named(include_str!("sql/make_schema.sql"), schema)).await.map_err(
        |error| {
            Failure::failed(format!(
                "cannot make the schema {schema}, where a benchmark works: {error}"
            ))
        },
    )
}

pub(super) async fn drop_schema(server: &PostgresStore, schema: &str) -> Done {
    let client = server.pool().get().await.map_err(away)?;
    let dropped = client.batch_execute(&named(include_str!("sql/drop_schema.sql"), schema)).await;
    dropped.map_err(|error| {
        Failure::failed(format!("the schema {schema} is still there, drop it: {error}"))
    })
}

/// Names cannot be parameters; this one is made of letters and a number.
fn named(statement: &str, schema: &str) -> String {
    statement.replace("{schema}", schema)
}

pub(super) async fn make_tables(store: &PostgresStore) -> Done {
    let client = store.pool().get().await.map_err(away)?;
    client.batch_execute(sql!("postgres/plain")).await.map_err(away)
}

pub(super) async fn raw(store: &PostgresStore, name: Name, rows: u64) -> Result<f64, Failure> {
    match name {
        Name::Send => send(store).await,
        Name::Accept => accept(store, rows).await,
        Name::Relay => relay(store, rows).await,
    }
}

fn away(error: impl fmt::Display) -> Failure {
    Failure::failed(error)
}

async fn send(store: &PostgresStore) -> Result<f64, Failure> {
    let client = store.pool().get().await.map_err(away)?;
    let insert = client.prepare(sql!("postgres/send_plain")).await.map_err(away)?;
    let none = None::<String>;
    let started = Instant::now();
    let mut sent = 0_u64;
    while started.elapsed() < SEND_TIME {
        sent += 1;
        let (id, key, payload) = (Uuid::now_v7(), key(sent), payload(sent));
        client
            .execute(
                &insert,
                &[
                    &id,
                    &"event",
                    &"Order",
                    &key,
                    &"OrderChanged",
                    &1_i32,
                    &payload,
                    &"{}",
                    &DESTINATION,
                    &key,
                    &none,
                    &none,
                    &none,
                ],
            )
            .await
            .map_err(away)?;
    }
    Ok(sent as f64 / started.elapsed().as_secs_f64())
}

async fn accept(store: &PostgresStore, rows: u64) -> Result<f64, Failure> {
    let client = store.pool().get().await.map_err(away)?;
    let insert = client.prepare(sql!("postgres/insert_plain")).await.map_err(away)?;
    let arrived: Vec<u64> = (0..rows).collect();
    let arrived = arrived.chunks(BATCH).map(|numbers| {
        let ids: Vec<String> = numbers.iter().map(|_| Uuid::now_v7().to_string()).collect();
        let keys: Vec<String> = numbers.iter().map(|number| key(*number)).collect();
        (ids, keys, numbers.iter().map(|number| payload(*number)).collect())
    });
    let arrived: Vec<(Vec<String>, Vec<String>, Vec<String>)> = arrived.collect();
    let started = Instant::now();
    for (ids, keys, payloads) in &arrived {
        client.execute(&insert, &[ids, keys, payloads]).await.map_err(away)?;
    }
    Ok(rows as f64 / started.elapsed().as_secs_f64())
}

/// Reads a batch, marks it, commits, until nothing is pending.
async fn relay(store: &PostgresStore, rows: u64) -> Result<f64, Failure> {
    let mut client = store.pool().get().await.map_err(away)?;
    let (to, keys) = (rows.cast_signed(), 10_000_i64);
    let payload = payload(1);
    client
        .execute(sql!("postgres/fill_plain"), &[&1_i64, &to, &keys, &DESTINATION, &payload])
        .await
        .map_err(away)?;
    let read = client.prepare(sql!("postgres/read_plain")).await.map_err(away)?;
    let mark = client.prepare(sql!("postgres/mark_plain")).await.map_err(away)?;
    let limit = i64::try_from(BATCH).unwrap_or(i64::MAX);
    let started = Instant::now();
    loop {
        let tx = client.transaction().await.map_err(away)?;
        let found = tx.query(&read, &[&limit]).await.map_err(away)?;
        let ids: Vec<i64> = found.iter().map(|row| row.get(0)).collect();
        // As any publisher has to.
        let columns = found.iter().map(|row| [2, 3, 4, 5, 6, 7].map(|n| row.get::<_, String>(n)));
        let published: Vec<[String; 6]> = columns.collect();
        tx.execute(&mark, &[&ids]).await.map_err(away)?;
        tx.commit().await.map_err(away)?;
        if published.is_empty() {
            return Ok(rows as f64 / started.elapsed().as_secs_f64());
        }
    }
}
