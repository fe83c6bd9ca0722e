//! Checks of the source that only RabbitMQ needs.

use lapin::{
    BasicProperties,
    options::{BasicPublishOptions, QueueDeclareOptions},
    types::FieldTable,
};
use relais_connect::rabbitmq::{RabbitSource, RabbitSourceSettings};
use relais_core::{
    inbox::AcceptOutcome,
    message::HEADER_MESSAGE_ID,
    source::{Source, SourceError},
};
use relais_testkit::connector::{SourceFixture, WireMessage, soon};

use crate::fixture::{World, classic, quorum};

async fn send_without_id(world: &World, body: &[u8]) {
    let options = BasicPublishOptions::default();
    let sent = world
        .channel
        .basic_publish(
            "".into(),
            world.name.as_str().into(),
            options,
            body,
            BasicProperties::default(),
        )
        .await;
    sent.unwrap().await.unwrap();
}

#[tokio::test]
async fn a_missing_queue_is_named_and_read_once_it_exists() {
    let Some(world) = classic().await else { return };
    let queue = format!("{}-later", world.name);
    let settings = RabbitSourceSettings { queue: queue.clone(), ..world.origin() };
    let mut source = RabbitSource::new(settings).unwrap();
    let Err(SourceError::Unavailable(why)) = soon("it answers", source.next(10)).await else {
        panic!("the queue does not exist")
    };
    assert!(why.contains(&queue) && why.contains("create it"), "{why}");
    assert!(!source.state().is_connected());
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let made = world.channel.queue_declare(queue.as_str().into(), options, FieldTable::default());
    made.await.unwrap();
    let (body, properties) = (b"{}", BasicProperties::default().with_message_id("m-1".into()));
    let options = BasicPublishOptions::default();
    let sent =
        world.channel.basic_publish("".into(), queue.as_str().into(), options, body, properties);
    sent.await.unwrap().await.unwrap();
    let batch = soon("it is read", source.next(10)).await.unwrap();
    assert_eq!(batch.messages[0].message_id, "m-1");
    assert!(source.state().is_connected());
    source.close().await;
    assert!(!source.state().is_connected());
}

#[tokio::test]
async fn a_deleted_queue_is_an_unavailable_source() {
    let Some(world) = classic().await else { return };
    let mut source = RabbitSource::new(world.origin()).unwrap();
    world.send(&[WireMessage::new("m-1", "k", b"{}")]).await;
    let batch = soon("it is read", source.next(10)).await.unwrap();
    source.acknowledge(vec![AcceptOutcome::Stored; batch.messages.len()]).await.unwrap();
    world.channel.queue_delete(world.name.as_str().into(), Default::default()).await.unwrap();
    let ended = soon("it notices", source.next(10)).await;
    assert!(matches!(ended, Err(SourceError::Unavailable(_))), "{ended:?}");
}

#[tokio::test]
async fn a_redelivery_without_an_id_has_the_same_derived_id() {
    let Some(world) = quorum().await else { return };
    send_without_id(&world, b"{\"a\": 1}").await;
    let mut first = RabbitSource::new(world.origin()).unwrap();
    let batch = soon("it is read", first.next(10)).await.unwrap();
    let row = batch.messages[0].clone();
    assert_eq!(row.headers.get(HEADER_MESSAGE_ID), Some("hash"));
    drop(first);
    let mut second = RabbitSource::new(world.origin()).unwrap();
    let batch = soon("it is read again", second.next(10)).await.unwrap();
    assert_eq!(batch.messages[0].message_id, row.message_id);
    assert_eq!(batch.messages[0].content, row.content);
    second.close().await;
}

#[tokio::test]
async fn large_messages_reduce_the_prefetch_and_all_arrive_once() {
    let Some(world) = classic().await else { return };
    let settings = RabbitSourceSettings { prefetch_bytes: 200_000, ..world.origin() };
    let mut source = RabbitSource::new(settings).unwrap();
    let body = |n: usize, bytes: usize| format!("{{\"n\": {n}, \"x\": \"{}\"}}", "x".repeat(bytes));
    let sent: Vec<WireMessage> = (0..60)
        .map(|n| {
            let bytes = if (20..40).contains(&n) { 90_000 } else { 10 };
            WireMessage::new(&format!("m-{n}"), "k", body(n, bytes).as_bytes())
        })
        .collect();
    world.send(&sent).await;
    let mut ids = Vec::new();
    while ids.len() < sent.len() {
        let batch = soon("more", source.next(10)).await.unwrap();
        source.acknowledge(vec![AcceptOutcome::Stored; batch.messages.len()]).await.unwrap();
        ids.extend(batch.messages.into_iter().map(|row| row.message_id));
    }
    assert_eq!(ids, sent.into_iter().map(|message| message.id).collect::<Vec<_>>());
    source.close().await;
}
