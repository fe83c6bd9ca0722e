//! The measurements with relais.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use relais::{App, Batching, Delivery, OutboxRow, Publisher};
use relais_core::{
    async_trait,
    inbox::{Content, NewInbox},
    message::{Headers, NewMessage},
    store::StoreDriver,
};
use uuid::Uuid;

use super::Measurement;
use crate::failure::CommandError;

pub(super) const DESTINATION: &str = "bench";
/// Rows of one transaction and of one call.
pub(super) const BATCH: usize = 1_000;
/// Duration of sending messages one by one.
pub(super) const SEND_TIME: Duration = Duration::from_secs(1);
/// Number of ordering keys.
const KEYS: u64 = 10_000;
/// Length of a note that makes a payload about 400 bytes long.
const NOTE_BYTES: usize = 350;
/// Time limit for a backlog.
const RELAY_MAX: Duration = Duration::from_secs(600);
/// Interval of checks whether all rows are settled.
const CHECK_EVERY: Duration = Duration::from_millis(2);

/// Returns messages per second.
pub(super) async fn measure(
    name: Measurement,
    store: &Arc<dyn StoreDriver>,
    rows: u64,
) -> Result<f64, CommandError> {
    match name {
        Measurement::Send => send(store.as_ref()).await,
        Measurement::Accept => accept(store.as_ref(), rows).await,
        Measurement::Relay => relay(store, rows).await,
    }
}

pub(super) fn key(number: u64) -> String {
    format!("order-{:05}", number % KEYS)
}

pub(super) fn payload(number: u64) -> String {
    format!(r#"{{"orderId":"{}","note":"{}"}}"#, key(number), "n".repeat(NOTE_BYTES))
}

/// A destination without a worker: its rows wait and do not disturb later measurements.
const UNSERVED: &str = "bench-unserved";

async fn send(store: &dyn StoreDriver) -> Result<f64, CommandError> {
    let started = Instant::now();
    let mut sent = 0;
    while started.elapsed() < SEND_TIME {
        sent += 1;
        store.enqueue(vec![message(sent, UNSERVED)]).await?;
    }
    Ok(sent as f64 / started.elapsed().as_secs_f64())
}

fn message(number: u64, destination: &str) -> NewMessage {
    let key = key(number);
    NewMessage::new(Uuid::now_v7(), ("Order", &key), "OrderChanged", destination, payload(number))
}

async fn accept(store: &dyn StoreDriver, rows: u64) -> Result<f64, CommandError> {
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

async fn relay(store: &Arc<dyn StoreDriver>, rows: u64) -> Result<f64, CommandError> {
    let mut number = 0;
    while number < rows {
        let upto = rows.min(number + BATCH as u64);
        store.enqueue((number..upto).map(|number| message(number, DESTINATION)).collect()).await?;
        number = upto;
    }
    let started = Instant::now();
    let app = App::new(Arc::clone(store)).destination(DESTINATION, Arc::new(AcceptAll));
    let running = app.start();
    let observer = running.observer();
    let settled = || {
        let snapshot = observer.snapshot();
        snapshot.destinations.get(DESTINATION).map_or(0, |counts| counts.dispatched)
    };
    while settled() < rows && started.elapsed() < RELAY_MAX {
        tokio::time::sleep(CHECK_EVERY).await;
    }
    let (took, done) = (started.elapsed(), settled());
    running.stop().await;
    if done < rows {
        return Err(CommandError::failed(format!(
            "only {done} of {rows} rows were delivered within {RELAY_MAX:?}"
        )));
    }
    Ok(rows as f64 / took.as_secs_f64())
}

/// A publisher that accepts everything at once.
struct AcceptAll;

#[async_trait]
impl Publisher for AcceptAll {
    async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery> {
        vec![Delivery::Accepted; messages.len()]
    }

    fn batching(&self) -> Batching {
        Batching::InOrder { max: BATCH }
    }
}
