//! The publisher with a real broker.

use std::{sync::Arc, time::Duration};

use rdkafka::{
    Message,
    message::{Headers as _, OwnedMessage},
};
use relais_connect::kafka::KafkaPublisher;
use relais_core::{
    message::{HEADER_VALUE, Headers},
    outbox::OutboxRow,
    publisher::{Batching, Publisher},
};

use crate::outgoing::{
    assert_in_order, broker, codes, deliver, id, large, problem, publisher, read, row, settings,
    topic,
};

fn headers(record: &OwnedMessage) -> Vec<(String, Option<Vec<u8>>)> {
    let headers = record.headers().unwrap();
    headers.iter().map(|h| (h.key.to_owned(), h.value.map(<[u8]>::to_vec))).collect()
}

#[tokio::test]
async fn a_plain_consumer_sees_key_value_and_headers() {
    let Some(brokers) = broker("what a consumer sees of a published message") else { return };
    let topic = topic(&brokers, 1, &[]).await;
    let mut row = row(1, "grüße");
    row.payload = r#"{"id":1,"text":"ä\u0000"}"#.into();
    row.correlation_id = Some("c-1".into());
    row.headers = Headers::from_json(
        r#"{"traceparent":"00-abc","bytes":{"base64":"/wA="},"many":["a",null,"","b"]}"#,
    );
    let publisher = publisher(&brokers, &topic);
    assert_eq!(codes(&publisher.publish(&[row.clone()]).await), ["accepted"]);
    let records = read(&brokers, &topic);
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].key(), Some("grüße".as_bytes()));
    assert_eq!(records[0].payload(), Some(row.payload.as_bytes()));
    let text = |name: &str, value: &str| (name.to_owned(), Some(value.as_bytes().to_vec()));
    let expected = [
        text("message-id", &row.message_id.to_string()),
        text("event-type", "OrderCreated"),
        text("event-version", "1"),
        text("aggregate-type", "Order"),
        text("aggregate-id", "grüße"),
        text("correlation-id", "c-1"),
        ("bytes".to_owned(), Some(vec![0xFF, 0])),
        text("many", "a"),
        ("many".to_owned(), None),
        text("many", ""),
        text("many", "b"),
        text("traceparent", "00-abc"),
    ];
    assert_eq!(headers(&records[0]), expected);
}

#[tokio::test]
async fn each_message_goes_to_the_topic_that_it_names_and_keys_keep_their_order() {
    let Some(brokers) = broker("a topic for each message") else { return };
    let (orders, members) = (topic(&brokers, 1, &[]).await, topic(&brokers, 1, &[]).await);
    let publisher = publisher(&brokers, "{{aggregate_type}}");
    let to =
        |id, key: &str, topic: &str| OutboxRow { aggregate_type: topic.into(), ..row(id, key) };
    let rows = [
        to(1, "a", &orders),
        to(2, "b", &members),
        to(3, "a", &orders),
        // Behind one of another topic: it waits for the next call.
        to(4, "a", &members),
        to(5, "c", "no topic"),
        to(6, "c", &orders),
    ];
    let deliveries = publisher.publish(&rows).await;
    let expected = ["accepted", "accepted", "accepted", "held", "reject", "held"];
    assert_eq!(codes(&deliveries), expected);
    assert!(problem(&deliveries[4]).1.contains("`no topic` is not the name of a topic"));
    assert_eq!(codes(&publisher.publish(&rows[3..4]).await), ["accepted"]);
    let ids = |topic: &str| read(&brokers, topic).iter().map(id).collect::<Vec<_>>();
    assert_eq!((ids(&orders), ids(&members)), (vec![1, 3], vec![2, 4]));
    // A message to a topic that does not exist waits, and no other one.
    let missing = format!("missing-{}", uuid::Uuid::now_v7());
    let rows = [to(7, "d", &missing), to(8, "e", &orders)];
    let deliveries = publisher.publish(&rows).await;
    assert_eq!(codes(&deliveries), ["wait", "accepted"], "{deliveries:?}");
}

#[tokio::test]
async fn cloudevents_have_the_headers_of_the_kafka_binding() {
    let Some(brokers) = broker("CloudEvents on Kafka") else { return };
    let topic = topic(&brokers, 1, &[]).await;
    let mut settings = settings(&brokers, &topic);
    settings.cloudevents = true;
    let row = row(1, "a");
    let publisher = KafkaPublisher::new(settings).unwrap();
    assert_eq!(codes(&publisher.publish(std::slice::from_ref(&row)).await), ["accepted"]);
    let headers = headers(&read(&brokers, &topic)[0]);
    for (name, value) in [
        ("ce_specversion", "1.0"),
        ("ce_id", &row.message_id.to_string()),
        ("ce_source", "/relais/Order"),
        ("ce_type", "OrderCreated"),
        ("ce_subject", "a"),
        ("ce_time", "2026-11-15T12:00:00.123Z"),
        ("content-type", "application/json"),
    ] {
        let expected = (name.to_owned(), Some(value.as_bytes().to_vec()));
        assert!(headers.contains(&expected), "{name}: {headers:?}");
    }
}

#[tokio::test]
async fn tombstones_and_empty_values_arrive_as_such() {
    let Some(brokers) = broker("tombstones") else { return };
    let topic = topic(&brokers, 1, &[("cleanup.policy", "compact")]).await;
    let mut rows = [row(1, "a"), row(2, "a"), row(3, "a")];
    rows[1].headers.set(HEADER_VALUE, "tombstone");
    rows[2].headers.set(HEADER_VALUE, "empty");
    let publisher = publisher(&brokers, &topic);
    assert_eq!(codes(&publisher.publish(&rows).await), ["accepted"; 3]);
    let records = read(&brokers, &topic);
    let values: Vec<_> = records.iter().map(Message::payload).collect();
    assert_eq!(values, [Some(&br#"{"id":1}"#[..]), None, Some(&b""[..])]);
    assert!(headers(&records[1]).iter().all(|(name, _)| name != HEADER_VALUE));
}

/// The hash of Kafka's Java clients, with the wrapping arithmetic of Java.
fn murmur2(data: &[u8]) -> i32 {
    const M: i32 = 0x5bd1_e995;
    let length = i32::try_from(data.len()).unwrap();
    let mut h = 0x9747_b28c_u32.cast_signed() ^ length;
    let mut chunks = data.chunks_exact(4);
    for chunk in &mut chunks {
        let mut k = i32::from_le_bytes(chunk.try_into().unwrap()).wrapping_mul(M);
        k ^= (k.cast_unsigned() >> 24).cast_signed();
        h = h.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        for (at, byte) in rest.iter().enumerate() {
            h ^= i32::from(*byte) << (8 * at);
        }
        h = h.wrapping_mul(M);
    }
    h ^= (h.cast_unsigned() >> 13).cast_signed();
    h = h.wrapping_mul(M);
    h ^ (h.cast_unsigned() >> 15).cast_signed()
}

#[test]
fn the_hash_of_java_is_known_here() {
    // From Kafka's own tests of Utils.murmur2.
    for (text, hash) in [
        ("21", -973_932_308),
        ("foobar", -790_332_482),
        ("a-little-bit-long-string", -985_981_536),
        ("a-little-bit-longer-string", -1_486_304_829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
        ("abc", 479_470_107),
    ] {
        assert_eq!(murmur2(text.as_bytes()), hash, "{text}");
    }
}

#[tokio::test]
async fn a_key_goes_to_the_same_partition_as_with_java() {
    let Some(brokers) = broker("the partitions of keys") else { return };
    let topic = topic(&brokers, 7, &[]).await;
    let keys = (0..300).map(|n| match n % 3 {
        0 => format!("{n}"),
        1 => format!("order-{n}-ü"),
        _ => "k".repeat(n),
    });
    let rows: Vec<_> = keys.zip(0..).map(|(key, id)| row(id, &key)).collect();
    let publisher = publisher(&brokers, &topic);
    assert_eq!(codes(&publisher.publish(&rows).await), vec!["accepted"; 300]);
    let records = read(&brokers, &topic);
    assert_eq!(records.len(), 300);
    for record in records {
        let key = record.key().unwrap();
        assert_eq!(record.partition(), (murmur2(key) & 0x7fff_ffff) % 7);
    }
}

#[tokio::test]
async fn parallel_calls_keep_the_order_of_each_key() {
    let Some(brokers) = broker("many calls beside each other") else { return };
    let topic = topic(&brokers, 8, &[]).await;
    let publisher = Arc::new(publisher(&brokers, &topic));
    let Batching::InOrder { max } = publisher.batching() else { panic!("in order") };
    let calls: Vec<_> = (0..4_i64)
        .map(|call| {
            let publisher = Arc::clone(&publisher);
            tokio::spawn(async move {
                let mut sent = Vec::new();
                for batch in 0..3_i64 {
                    let from = (call * 3 + batch) * 10_000;
                    let key = |id: i64| format!("c{call}-{}", id % 50);
                    let rows: Vec<_> = (from..).take(max).map(|id| row(id, &key(id))).collect();
                    assert_eq!(codes(&publisher.publish(&rows).await), vec!["accepted"; max]);
                    sent.extend(rows);
                }
                sent
            })
        })
        .collect();
    let mut rows: Vec<OutboxRow> = Vec::new();
    for call in calls {
        rows.extend(call.await.unwrap());
    }
    let records = read(&brokers, &topic);
    assert_eq!(records.len(), rows.len());
    assert_in_order(&rows, &records);
}

#[tokio::test]
async fn ten_megabytes_are_sent_and_a_message_beyond_the_topic_limit_fails_alone() {
    let Some(brokers) = broker("large messages") else { return };
    let topic = topic(&brokers, 2, &[("max.message.bytes", "12000000")]).await;
    let mut settings = settings(&brokers, &topic);
    let limit = ("message.max.bytes".to_owned(), "16000000".into());
    settings.connection.options.push(limit);
    let publisher = KafkaPublisher::new(settings).unwrap();
    let rows = [
        row(1, "a"),
        large(2, "a", 10_000_000),
        row(3, "a"),
        large(4, "b", 14_000_000),
        row(5, "b"),
        large(6, "c", 17_000_000),
        row(7, "c"),
        row(8, "d"),
    ];
    let deliveries = publisher.publish(&rows).await;
    let expected =
        ["accepted", "accepted", "accepted", "reject", "held", "reject", "held", "accepted"];
    assert_eq!(codes(&deliveries), expected, "{deliveries:?}");
    assert_eq!(problem(&deliveries[3]).0, "KAFKA_TOO_LARGE");
    let mut arrived: Vec<i64> = read(&brokers, &topic).iter().map(id).collect();
    arrived.sort_unstable();
    arrived.dedup();
    assert_eq!(arrived, [1, 2, 3, 8]);
}

#[tokio::test]
async fn with_a_small_topic_limit_only_the_large_message_fails() {
    let Some(brokers) = broker("a topic that takes little") else { return };
    let topic = topic(&brokers, 1, &[("max.message.bytes", "3000")]).await;
    let publisher = publisher(&brokers, &topic);
    let mut rows: Vec<_> = (0..200).map(|id| row(id, &format!("k{}", id % 10))).collect();
    rows[0] = large(0, "k0", 5_000);
    rows[53] = large(53, "k3", 5_000);
    let deliveries = publisher.publish(&rows).await;
    for (row, code) in rows.iter().zip(codes(&deliveries)) {
        let expected = match (row.id, row.id % 10) {
            (0 | 53, _) => "reject",
            (_, 0) => "held",
            (id, 3) if id > 53 => "held",
            _ => "accepted",
        };
        assert_eq!(code, expected, "row {}", row.id);
    }
    let delivered: Vec<_> = rows
        .iter()
        .zip(codes(&deliveries))
        .filter(|(_, code)| *code == "accepted")
        .map(|(row, _)| row.clone())
        .collect();
    assert_in_order(&delivered, &read(&brokers, &topic));
}

#[tokio::test]
async fn nothing_overtakes_a_refused_message() {
    let Some(brokers) = broker("what follows a refused message") else { return };
    for before in [0, 0, 0, 1, 3] {
        let topic = topic(&brokers, 1, &[("max.message.bytes", "140000")]).await;
        let publisher = publisher(&brokers, &topic);
        // The broker accepts any first request of a producer, whatever it has refused before. Here
        // the refused one and those after it are separate requests.
        let mut rows: Vec<_> = (0..before).map(|id| row(id, "a")).collect();
        rows.push(large(before, "a", 150_000));
        rows.extend((before + 1..40).map(|id| large(id, "a", 10_000)));
        let deliveries = publisher.publish(&rows).await;
        for (row, code) in rows.iter().zip(codes(&deliveries)) {
            let expected = match row.id.cmp(&before) {
                std::cmp::Ordering::Less => "accepted",
                std::cmp::Ordering::Equal => "reject",
                std::cmp::Ordering::Greater => "held",
            };
            assert_eq!(code, expected, "row {} behind {before}", row.id);
        }
        let arrived = read(&brokers, &topic);
        assert!(arrived.iter().all(|record| id(record) < before), "{before}");
    }
}

#[tokio::test]
async fn an_unknown_topic_is_a_configuration_error_until_it_exists() {
    let Some(brokers) = broker("an unknown topic") else { return };
    let name = format!("publisher-{}", uuid::Uuid::now_v7());
    let publisher = publisher(&brokers, &name);
    let deliveries = publisher.publish(&[row(1, "a"), row(2, "a"), row(3, "b")]).await;
    assert_eq!(codes(&deliveries), ["misconfigured", "held", "misconfigured"]);
    let (code, message) = problem(&deliveries[0]);
    assert_eq!(code, "KAFKA_UNKNOWN_TOPIC");
    assert!(message.contains(&name) && message.contains("create it"), "{message}");
    crate::outgoing::create(&brokers, &name, 1, &[]).await;
    assert_eq!(codes(&publisher.publish(&[row(4, "a")]).await), ["accepted"]);
}

#[tokio::test]
async fn messages_of_an_unknown_topic_wait_if_each_message_names_its_topic() {
    let Some(brokers) = broker("an unknown topic of some messages") else { return };
    let name = format!("publisher-{}", uuid::Uuid::now_v7());
    let topic = |end: &str| format!("{name}-{end}");
    crate::outgoing::create(&brokers, &topic("known"), 1, &[]).await;
    let publisher = publisher(&brokers, &format!("{name}-{{{{payload:/end}}}}"));
    let row = |id: i64, key: &str, end: &str| {
        let mut row = row(id, key);
        row.payload = format!("{{\"id\":{id},\"end\":\"{end}\"}}");
        row
    };
    let rows = [
        row(1, "a", "missing"),
        row(2, "a", "missing"),
        row(3, "b", "known"),
        row(4, "c", "not a name"),
        row(5, "d", "missing"),
    ];
    // The second call knows that the topic is missing.
    for _ in 0..2 {
        let deliveries = publisher.publish(&rows).await;
        assert_eq!(codes(&deliveries), ["wait", "held", "accepted", "reject", "wait"]);
        assert_eq!(problem(&deliveries[0]).0, "KAFKA_UNKNOWN_TOPIC");
        assert!(problem(&deliveries[0]).1.contains("-missing`: the topic does not exist"));
    }
    crate::outgoing::create(&brokers, &topic("missing"), 1, &[]).await;
    let waiting = [rows[0].clone(), rows[1].clone(), rows[4].clone()];
    crate::outgoing::deliver(&publisher, &waiting).await;
    let mut ids: Vec<i64> = read(&brokers, &topic("missing")).iter().map(id).collect();
    assert!(ids.iter().position(|id| *id == 1) < ids.iter().position(|id| *id == 2), "{ids:?}");
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 5]);
}

#[tokio::test]
async fn a_refused_connection_is_an_outage() {
    let mut settings = settings("127.0.0.1:1", "orders");
    settings.timeout = Duration::from_secs(60);
    let publisher = KafkaPublisher::new(settings).unwrap();
    let deliveries = publisher.publish(&[row(1, "a"), row(2, "b")]).await;
    assert_eq!(codes(&deliveries), ["outage", "outage"]);
    let (code, message) = problem(&deliveries[0]);
    assert_eq!(code, "KAFKA_UNREACHABLE", "{message}");
    assert!(message.contains("127.0.0.1:1"), "{message}");
}

#[tokio::test]
async fn compression_is_an_option() {
    let Some(brokers) = broker("compression") else { return };
    let topic = topic(&brokers, 2, &[]).await;
    for codec in ["gzip", "snappy", "lz4", "zstd"] {
        let mut settings = settings(&brokers, &topic);
        settings.connection.options.push(("compression.type".into(), codec.into()));
        let publisher = KafkaPublisher::new(settings).unwrap();
        let rows: Vec<_> = (0..100).map(|id| row(id, "a")).collect();
        assert_eq!(codes(&publisher.publish(&rows).await), vec!["accepted"; 100], "{codec}");
    }
    assert_eq!(read(&brokers, &topic).len(), 400);
}

#[tokio::test]
async fn closing_waits_for_messages_in_flight() {
    let Some(brokers) = broker("closing") else { return };
    let topic = topic(&brokers, 4, &[]).await;
    let publisher = publisher(&brokers, &topic);
    let rows: Vec<_> = (0..1_000).map(|id| row(id, &format!("k{id}"))).collect();
    let (deliveries, ()) = tokio::join!(biased; publisher.publish(&rows), publisher.close());
    assert_eq!(codes(&deliveries), vec!["accepted"; 1_000]);
    assert_eq!(read(&brokers, &topic).len(), 1_000);
    deliver(&publisher, &rows[..1]).await;
}

#[test]
fn invalid_settings_are_refused_at_once_without_a_secret() {
    for (name, value, expected) in [
        ("acks", "1", "acks"),
        ("max.in.flight", "6", "max.in.flight"),
        ("batch.size", "hunter2", "batch.size"),
        ("ssl.ca.location", "/hunter2/nowhere.pem", "ssl.ca.location"),
        ("sasl.mechanism", "GSSAPI", "GSSAPI"),
    ] {
        let mut settings = settings("127.0.0.1:1", "orders");
        let secure = if name.starts_with("ssl") { "ssl" } else { "sasl_plaintext" };
        if !["acks", "max.in.flight", "batch.size"].contains(&name) {
            settings.connection.options.push(("security.protocol".into(), secure.into()));
        }
        settings.connection.options.push((name.into(), value.into()));
        let error = KafkaPublisher::new(settings).unwrap_err().to_string();
        assert!(error.contains(expected), "{name}: {error}");
        assert!(!error.contains("batch.size") || !error.contains("hunter2"), "{error}");
    }
}
