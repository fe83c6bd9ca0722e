//! The publisher while the broker is killed and restarted. It is a test binary of its own, because
//! every other test would lose its broker too.
#![cfg(feature = "kafka")]
#![allow(clippy::unwrap_used)]

use std::{collections::HashSet, process::Command, sync::Arc};

use outgoing::{LONG, assert_in_order, broker, codes, publisher, read, row, server, topic};
use relais_connect::kafka::KafkaPublisher;
use relais_core::{delivery::Delivery, outbox::OutboxRow, publisher::Publisher};
use tokio::sync::watch;

#[allow(dead_code)]
#[path = "kafka/outgoing.rs"]
mod outgoing;
#[path = "../src/testing.rs"]
mod testing;

/// Rows per call, calls per writer, and parallel writers.
const ROWS: i64 = 100;
const CALLS: i64 = 30;
const WRITERS: i64 = 3;

/// One test, because there is one broker to kill.
#[tokio::test]
async fn a_killed_broker_has_everything_in_order_once_it_is_back() {
    let what = "publishing while the broker is killed";
    let Some(program) = server("RELAIS_TEST_KAFKA_RESTART", what) else { return };
    let Some(brokers) = broker(what) else { return };
    let topic = topic(&brokers, 4, &[]).await;
    let publisher = Arc::new(publisher(&brokers, &topic));
    let calls = watch::Sender::new(0);
    let writers = (0..WRITERS).map(|writer| {
        let (publisher, calls) = (Arc::clone(&publisher), calls.clone());
        tokio::spawn(async move {
            let mut sent = Vec::new();
            for call in 0..CALLS {
                let first = (writer * CALLS + call) * ROWS;
                let key = |id: i64| format!("w{writer}-{}", id % 7);
                let rows: Vec<_> = (first..first + ROWS).map(|id| row(id, &key(id))).collect();
                deliver(&publisher, &rows).await;
                calls.send_modify(|calls| *calls += 1);
                sent.extend(rows);
            }
            sent
        })
    });
    let writers: Vec<_> = writers.collect();
    for part in 1..=2 {
        let enough = WRITERS * CALLS * part / 4;
        calls.subscribe().wait_for(|calls| *calls >= enough).await.unwrap();
        for half in ["stop", "start"] {
            let mut command = Command::new(&program);
            command.arg(half);
            let done = tokio::task::spawn_blocking(move || command.status()).await;
            assert!(done.unwrap().unwrap().success(), "{half}");
        }
    }
    let mut rows: Vec<OutboxRow> = Vec::new();
    for writer in writers {
        rows.extend(writer.await.unwrap());
    }
    let records = read(&brokers, &topic);
    let arrived: HashSet<i64> = records.iter().map(outgoing::id).collect();
    assert_eq!(arrived.len(), rows.len());
    assert_in_order(&rows, &records);
}

/// Repeats calls like the relay. No call may use an attempt: the messages are valid.
async fn deliver(publisher: &KafkaPublisher, rows: &[OutboxRow]) {
    let mut left = rows.to_vec();
    let started = std::time::Instant::now();
    while !left.is_empty() {
        let deliveries = publisher.publish(&left).await;
        let harmless = |code: &&str| ["accepted", "outage", "held"].contains(code);
        assert!(codes(&deliveries).iter().all(harmless), "{deliveries:?}");
        let mut answers = deliveries.into_iter();
        left.retain(|_| answers.next() != Some(Delivery::Accepted));
        assert!(started.elapsed() < LONG * 3, "{} rows are left", left.len());
    }
}
