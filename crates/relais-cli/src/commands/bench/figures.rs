//! What is measured, through relais.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use relais::{App, Batching, Delivery, OutboxRow, Publisher};
use relais_core::{
    async_trait,
    inbox::{Content, NewInbox},
    message::{Headers, NewMessage},
    store::Store,
};
use uuid::Uuid;

use super::Name;
use crate::failure::Failure;

pub(super) const DESTINATION: &str = "bench";
/// Rows of one transaction, and of one call.
pub(super) const BATCH: usize = 1_000;
/// How long messages are sent one by one.
pub(super) const SEND_TIME: Duration = Duration::from_secs(1);
/// Different ordering keys.
const KEYS: u64 = 10_000;
/// What makes a payload about 400 bytes long.
const NOTE_BYTES: usize = 350;
/// How long a backlog may take.
const PATIENCE: Duration = Duration::from_secs(600);
/// How often we look whether all of it is settled.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Messages a second.
pub(super) async fn measure(name: Name, store: &Arc<dyn Store>, rows: u64) -> Result<f64, Failure> {
    match name {
        Name::Send => send(store.as_ref()).await,
        Name::Accept => accept(store.as_ref(), rows).await,
        Name::Relay => relay(store, rows).await,
    }
}

pub(super) fn key(number: u64) -> String {
    format!("order-{:05}", number % KEYS)
}

pub(super) fn payload(number: u64) -> String {
    format!(r#"{{"orderId":"{}","note":"{}"}}"#, key(number), "n".repeat(NOTE_BYTES))
}

/// Sent in the background to nobody: that they wait disturbs no later figure.
const NOBODY: &str = "bench-nobody";

async fn send(store: &dyn Store) -> Result<f64, Failure> {
    let started = Instant::now();
    let mut sent = 0;
    while started.elapsed() < SEND_TIME {
        sent += 1;
        store.enqueue(vec![message(sent, NOBODY)]).await?;
    }
    Ok(sent as f64 / started.elapsed().as_secs_f64())
}

fn message(number: u64, destination: &str) -> NewMessage {
    let key = key(number);
    NewMessage::new(Uuid::now_v7(), ("Order", &key), "OrderChanged", destination, payload(number))
}

async fn accept(store: &dyn Store, rows: u64) -> Result<f64, Failure> {
    let arrived: Vec<NewInbox> = (0..rows).map(arrival).collect();
    let started = Instant::now();
    for batch in arrived.chunks(BATCH) {
        store.accept(batch.to_vec(), Vec::new()).await?;
    }
    Ok(rows as f64 / started.elapsed().as_secs_f64())
}

fn arrival(number: u64) -> NewInbox {
    let key = key(number);
    NewInbox {
        source_system: "bench".to_owned(),
        message_id: Uuid::now_v7().to_string(),
        topic: "orders".to_owned(),
        partition_num: 0,
        offset_num: i64::try_from(number).unwrap_or(i64::MAX),
        key_str: Some(key.clone()),
        msg_key: key.clone(),
        aggregate_id: Some(key),
        event_type: Some("OrderChanged".to_owned()),
        content: Content::Json(payload(number)),
        headers: Headers::default(),
        event_ts: None,
    }
}

async fn relay(store: &Arc<dyn Store>, rows: u64) -> Result<f64, Failure> {
    let mut number = 0;
    while number < rows {
        let upto = rows.min(number + BATCH as u64);
        store.enqueue((number..upto).map(|number| message(number, DESTINATION)).collect()).await?;
        number = upto;
    }
    let started = Instant::now();
    let app = App::new(Arc::clone(store)).destination(DESTINATION, Arc::new(Nothing));
    let running = app.start();
    let observer = running.observer();
    let settled = || {
        let snapshot = observer.snapshot();
        snapshot.destinations.get(DESTINATION).map_or(0, |counts| counts.dispatched)
    };
    while settled() < rows && started.elapsed() < PATIENCE {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let (took, done) = (started.elapsed(), settled());
    running.stop().await;
    if done < rows {
        return Err(Failure::failed(format!("{done} of {rows} rows were relayed in {PATIENCE:?}")));
    }
    Ok(rows as f64 / took.as_secs_f64())
}

/// Takes everything at once.
struct Nothing;

#[async_trait]
impl Publisher for Nothing {
    async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery> {
        vec![Delivery::Accepted; messages.len()]
    }

    fn batching(&self) -> Batching {
        Batching::InOrder { max: BATCH }
    }
}
