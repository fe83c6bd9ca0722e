//! Checks of the source that only NATS needs.

use std::{collections::BTreeMap, time::Duration};

use relais_connect::nats::{NatsSource, NatsSourceSettings};
use relais_core::{
    inbox::AcceptOutcome,
    message::HEADER_MESSAGE_ID,
    source::{Source, SourceError},
};
use relais_testkit::connector::{SourceFixture, WireMessage, soon};
use serde_json::json;

use super::fixture::stream;

const PAUSE: Duration = Duration::from_millis(100);

fn numbered(numbers: std::ops::Range<usize>) -> Vec<WireMessage> {
    numbers
        .map(|n| WireMessage::new(&format!("m-{n:03}"), &format!("k-{}", n % 3), b"{}"))
        .collect()
}

async fn read(source: &mut NatsSource, count: usize) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    while rows.len() < count {
        let batch = soon("more", source.next(10)).await.unwrap();
        source.acknowledge(vec![AcceptOutcome::Stored; batch.messages.len()]).await.unwrap();
        rows.extend(batch.messages.into_iter().map(|row| (row.msg_key, row.message_id)));
    }
    rows
}

fn assert_in_order(rows: &[(String, String)]) {
    let mut last: BTreeMap<&str, &str> = BTreeMap::new();
    for (key, id) in rows {
        let before = last.insert(key, id);
        assert!(before.is_none_or(|before| before < id.as_str()), "{before:?} before {id}");
    }
}

#[tokio::test]
async fn a_missing_stream_is_named_and_read_once_it_exists() {
    let Some(world) = stream().await else { return };
    let name = format!("{}-later", world.name);
    let settings = NatsSourceSettings { stream: name.clone(), ..world.origin() };
    let mut source = NatsSource::new(settings).unwrap();
    let Err(SourceError::Unavailable(why)) = soon("it answers", source.next(10)).await else {
        panic!("the stream does not exist")
    };
    assert!(why.contains(&name) && why.contains("create it"), "{why}");
    assert!(!source.state().is_connected());
    world.create_stream(&name, json!({})).await;
    let sent = world.client.request(format!("{name}.OrderCreated"), "{}".into());
    sent.await.unwrap();
    let batch = soon("it is read", source.next(10)).await.unwrap();
    assert!(batch.messages[0].message_id.starts_with(&format!("{name}:1:")));
    assert!(source.state().is_connected());
    source.close().await;
    assert!(!source.state().is_connected());
}

#[tokio::test]
async fn a_deleted_consumer_is_created_again() {
    let Some(world) = stream().await else { return };
    let mut source = NatsSource::new(world.origin()).unwrap();
    world.send(&numbered(0..1)).await;
    read(&mut source, 1).await;
    let deleted = world.api(&format!("CONSUMER.DELETE.{}.relais", world.name), json!({})).await;
    assert!(deleted["error"].is_null(), "{deleted}");
    let ended = soon("it notices", source.next(10)).await;
    assert!(matches!(ended, Err(SourceError::Unavailable(_))), "{ended:?}");
    let batch = soon("it is read again", source.next(10)).await.unwrap();
    assert_eq!(batch.messages[0].message_id, "m-000");
    source.close().await;
}

#[tokio::test]
async fn a_consumer_that_would_drop_messages_is_refused() {
    let Some(world) = stream().await else { return };
    let config = json!({
        "durable_name": "relais", "ack_policy": "explicit", "max_deliver": 3,
        "deliver_policy": "all", "replay_policy": "instant",
    });
    let request = format!("CONSUMER.DURABLE.CREATE.{}.relais", world.name);
    let made = world.api(&request, json!({"stream_name": world.name, "config": config})).await;
    assert!(made["error"].is_null(), "{made}");
    let mut source = NatsSource::new(world.origin()).unwrap();
    let Err(SourceError::Unavailable(why)) = soon("it answers", source.next(10)).await else {
        panic!("it would lose messages")
    };
    assert!(why.contains("max_deliver"), "{why}");
    let refused = world.connection().probe_source(&world.origin()).await.unwrap_err().to_string();
    assert!(refused.contains("max_deliver"), "{refused}");
}

#[tokio::test]
async fn a_redelivery_without_an_id_has_the_same_derived_id() {
    let Some(world) = stream().await else { return };
    world.client.request(world.subject(), "{\"a\": 1}".into()).await.unwrap();
    let mut first = NatsSource::new(world.origin()).unwrap();
    let batch = soon("it is read", first.next(10)).await.unwrap();
    let row = batch.messages[0].clone();
    assert_eq!(row.headers.get(HEADER_MESSAGE_ID), Some("position"));
    drop(first);
    let mut second = NatsSource::new(world.origin()).unwrap();
    let batch = soon("it is read again", second.next(10)).await.unwrap();
    assert_eq!(batch.messages[0].message_id, row.message_id);
    assert_eq!(batch.messages[0].content, row.content);
    second.close().await;
}

#[tokio::test]
async fn keys_keep_their_order_when_a_process_is_lost() {
    let Some(world) = stream().await else { return };
    world.send(&numbered(0..40)).await;
    let mut lost = NatsSource::new(world.origin()).unwrap();
    let before = read(&mut lost, 10).await;
    soon("it has more", lost.next(10)).await.unwrap();
    drop(lost);
    world.send(&numbered(40..60)).await;
    let mut next = NatsSource::new(world.origin()).unwrap();
    let after = read(&mut next, 60 - before.len()).await;
    assert_in_order(&[before, after].concat());
    next.close().await;
}

#[tokio::test]
async fn a_closed_source_returns_its_messages_in_order_at_once() {
    let Some(world) = stream().await else { return };
    // Longer than the test waits.
    let patient = || NatsSourceSettings { ack_wait: Duration::from_secs(600), ..world.origin() };
    world.send(&numbered(0..40)).await;
    let mut first = NatsSource::new(patient()).unwrap();
    let before = read(&mut first, 10).await;
    let receiving = async {
        while first.next(100).await.unwrap().messages.len() + before.len() < 40 {
            tokio::time::sleep(PAUSE).await;
        }
    };
    soon("it has all of them", receiving).await;
    first.close().await;
    world.send(&numbered(40..60)).await;
    let mut second = NatsSource::new(patient()).unwrap();
    let after = read(&mut second, 60 - before.len()).await;
    assert_in_order(&[before, after].concat());
    second.close().await;
}

#[tokio::test]
async fn an_acknowledgement_is_processed_when_it_returns() {
    let Some(world) = stream().await else { return };
    world.send(&numbered(0..20)).await;
    let mut source = NatsSource::new(world.origin()).unwrap();
    read(&mut source, 20).await;
    assert_eq!(world.unacknowledged().await, 0);
    source.close().await;
}

#[tokio::test]
async fn messages_of_a_slow_database_are_not_delivered_again() {
    let Some(world) = stream().await else { return };
    world.send(&numbered(0..5)).await;
    let mut slow = NatsSource::new(world.origin()).unwrap();
    let batch = soon("it is read", slow.next(10)).await.unwrap();
    let mut other = NatsSource::new(world.origin()).unwrap();
    // Twice as long as the server waits: a second process gets nothing meanwhile.
    for _ in 0..40 {
        let nothing = tokio::time::timeout(PAUSE, other.next(10)).await;
        assert!(nothing.is_err(), "{nothing:?}");
    }
    slow.acknowledge(vec![AcceptOutcome::Stored; batch.messages.len()]).await.unwrap();
    slow.close().await;
    other.close().await;
}

#[tokio::test]
async fn large_messages_reduce_the_prefetch_and_all_arrive_once() {
    let Some(world) = stream().await else { return };
    let settings = NatsSourceSettings { prefetch_bytes: 200_000, ..world.origin() };
    let mut source = NatsSource::new(settings).unwrap();
    let body = |n: usize, bytes: usize| format!("{{\"n\": {n}, \"x\": \"{}\"}}", "x".repeat(bytes));
    let sent: Vec<WireMessage> = (0..60)
        .map(|n| {
            let bytes = if (20..40).contains(&n) { 90_000 } else { 10 };
            WireMessage::new(&format!("m-{n:03}"), "k", body(n, bytes).as_bytes())
        })
        .collect();
    world.send(&sent).await;
    let rows = read(&mut source, sent.len()).await;
    let ids: Vec<String> = rows.into_iter().map(|(_, id)| id).collect();
    assert_eq!(ids, sent.into_iter().map(|message| message.id).collect::<Vec<_>>());
    source.close().await;
}

#[tokio::test]
async fn a_filter_selects_the_messages_of_a_new_consumer() {
    let Some(world) = stream().await else { return };
    let name = format!("{}-parts", world.name);
    let subjects = json!({"subjects": [format!("{name}.>")]});
    world.create_stream(&name, subjects).await;
    for part in ["a", "b", "a"] {
        world.client.request(format!("{name}.{part}"), "{}".into()).await.unwrap();
    }
    let settings = NatsSourceSettings {
        stream: name.clone(),
        filter: Some(format!("{name}.a")),
        ..world.origin()
    };
    let mut source = NatsSource::new(settings).unwrap();
    let rows = read(&mut source, 2).await;
    assert!(rows[0].1.starts_with(&format!("{name}:1:")) && rows[1].1.contains(":3:"), "{rows:?}");
    source.close().await;
}
