//! Helpers for the publisher: rows to send, and a plain consumer that reads them.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    message::OwnedMessage,
};
use relais_connect::kafka::{KafkaConnection, KafkaPublisher, KafkaPublisherSettings};
use relais_core::{delivery::Delivery, outbox::OutboxRow, publisher::Publisher};
use uuid::Uuid;

use crate::testing;

/// Returns the broker of this run; without one the test prints clearly that it did not run.
pub(crate) fn broker(what: &str) -> Option<String> {
    server("RELAIS_TEST_KAFKA", what)
}

pub(crate) fn server(variable: &str, what: &str) -> Option<String> {
    match std::env::var(variable) {
        Ok(address) => Some(address),
        Err(_) if std::env::var_os("CI").is_some() => panic!("{variable} is not set"),
        Err(_) => {
            eprintln!("NOT TESTED: {what}; set {variable} to the address of a broker");
            None
        }
    }
}

/// Creates a topic for one test.
pub(crate) async fn topic(brokers: &str, partitions: i32, config: &[(&str, &str)]) -> String {
    let name = format!("publisher-{}", Uuid::now_v7());
    create(brokers, &name, partitions, config).await;
    name
}

pub(crate) async fn create(brokers: &str, name: &str, partitions: i32, config: &[(&str, &str)]) {
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", brokers).create().unwrap();
    let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
    for (key, value) in config {
        topic = topic.set(key, value);
    }
    let options = AdminOptions::new().operation_timeout(Some(LONG));
    for made in admin.create_topics([&topic], &options).await.unwrap() {
        made.unwrap();
    }
}

/// Time limit of a test.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) fn settings(brokers: &str, topic: &str) -> KafkaPublisherSettings {
    KafkaPublisherSettings::new("test", KafkaConnection::new(brokers), topic)
}

pub(crate) fn publisher(brokers: &str, topic: &str) -> KafkaPublisher {
    KafkaPublisher::new(settings(brokers, topic)).unwrap()
}

/// Returns row number `id`, with a payload that contains the number.
pub(crate) fn row(id: i64, key: &str) -> OutboxRow {
    OutboxRow {
        id,
        message_id: Uuid::now_v7(),
        aggregate_id: key.into(),
        event_version: 1,
        msg_key: key.into(),
        ..testing::row(&format!("{{\"id\":{id}}}"))
    }
}

/// Returns a row whose payload is JSON of about this many bytes.
pub(crate) fn large(id: i64, key: &str, bytes: usize) -> OutboxRow {
    let mut row = row(id, key);
    row.payload = format!("{{\"id\":{id},\"fill\":\"{}\"}}", "x".repeat(bytes));
    row
}

pub(crate) fn codes(deliveries: &[Delivery]) -> Vec<&str> {
    let code = |delivery: &'_ Delivery| match delivery {
        Delivery::Accepted => "accepted",
        Delivery::Held => "held",
        Delivery::Retry { .. } => "retry",
        Delivery::Busy { .. } => "busy",
        Delivery::Misconfigured { .. } => "misconfigured",
        Delivery::Reject { .. } => "reject",
        Delivery::Outage { .. } => "outage",
        Delivery::Wait { .. } => "wait",
        _ => "unknown",
    };
    deliveries.iter().map(code).collect()
}

/// Returns the problem of a delivery that has one.
pub(crate) fn problem(delivery: &Delivery) -> (String, String) {
    let Some((problem, _)) = delivery.problem() else { panic!("{delivery:?} has no problem") };
    (problem.code.clone(), problem.message.clone())
}

/// Repeats calls like the relay until everything is accepted. Returns the number of calls.
pub(crate) async fn deliver(publisher: &KafkaPublisher, rows: &[OutboxRow]) -> usize {
    let mut left = rows.to_vec();
    let started = std::time::Instant::now();
    for call in 1.. {
        let deliveries = publisher.publish(&left).await;
        let mut answers = deliveries.into_iter();
        left.retain(|_| answers.next() != Some(Delivery::Accepted));
        if left.is_empty() {
            return call;
        }
        assert!(started.elapsed() < LONG, "{} rows are left", left.len());
    }
    unreachable!("the loop ends by itself")
}

/// Reads everything in the topic, partition by partition, in order.
pub(crate) fn read(brokers: &str, topic: &str) -> Vec<OwnedMessage> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", format!("reader-{}", Uuid::now_v7()))
        .set("enable.auto.commit", "false")
        .set("fetch.message.max.bytes", "20000000")
        .create()
        .unwrap();
    let metadata = consumer.fetch_metadata(Some(topic), LONG).unwrap();
    let mut found = Vec::new();
    let until = Instant::now() + LONG;
    for partition in metadata.topics()[0].partitions() {
        let (low, high) = consumer.fetch_watermarks(topic, partition.id(), LONG).unwrap();
        let mut only = TopicPartitionList::new();
        only.add_partition_offset(topic, partition.id(), Offset::Beginning).unwrap();
        consumer.assign(&only).unwrap();
        let mut next = low;
        while next < high {
            // A poll ends early, without a record, when the client has handled another event.
            let Some(record) = consumer.poll(until.saturating_duration_since(Instant::now()))
            else {
                assert!(Instant::now() < until, "no record came in time");
                continue;
            };
            let record = record.unwrap();
            next = record.offset() + 1;
            found.push(record.detach());
        }
    }
    found
}

/// Returns the ids in the payloads, by key, in order of arrival.
pub(crate) fn by_key(records: &[OwnedMessage]) -> HashMap<String, Vec<i64>> {
    let mut keys: HashMap<String, Vec<i64>> = HashMap::new();
    for record in records {
        let key = String::from_utf8(record.key().unwrap().to_vec()).unwrap();
        keys.entry(key).or_default().push(id(record));
    }
    keys
}

pub(crate) fn id(record: &OwnedMessage) -> i64 {
    let payload: serde_json::Value = serde_json::from_slice(record.payload().unwrap()).unwrap();
    payload["id"].as_i64().unwrap()
}

/// Checks that every key has its rows in order; a repeated row counts at its first arrival.
pub(crate) fn assert_in_order(rows: &[OutboxRow], records: &[OwnedMessage]) {
    let arrived = by_key(records);
    let mut sent: HashMap<&str, Vec<i64>> = HashMap::new();
    for row in rows {
        sent.entry(row.msg_key.as_str()).or_default().push(row.id);
    }
    for (key, ids) in sent {
        let mut first = Vec::new();
        for id in arrived.get(key).map(Vec::as_slice).unwrap_or_default() {
            if !first.contains(id) {
                first.push(*id);
            }
        }
        assert_eq!(first, ids, "key {key}");
    }
}
