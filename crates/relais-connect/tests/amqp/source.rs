//! Checks of the source that only AMQP 1.0 needs, with each broker.

use fe2o3_amqp_types::{
    messaging::{AmqpSequence, AmqpValue, Batch, Body, MessageId, Properties},
    primitives::Value,
};
use relais_connect::amqp::{AmqpSource, AmqpSourceSettings};
use relais_core::{
    inbox::{AcceptOutcome, Content},
    message::HEADER_MESSAGE_ID,
    source::{Source, SourceError},
};
use relais_testkit::connector::{SourceFixture, WireMessage, soon};

use crate::fixture::{Broker, World, data, plain};

#[tokio::test]
async fn a_missing_queue_is_named() {
    for broker in Broker::ALL {
        let Some(world) = World::new(broker).await else { return };
        let address = broker.missing().to_owned();
        let settings = AmqpSourceSettings { address, ..world.origin() };
        let mut source = AmqpSource::new(settings).unwrap();
        let Err(SourceError::Unavailable(why)) = soon("it answers", source.next(10)).await else {
            panic!("the queue does not exist")
        };
        assert!(why.contains(broker.missing()) && why.contains("create it"), "{why}");
        assert!(!source.state().is_connected());
    }
}

#[tokio::test]
async fn a_redelivery_without_an_id_has_the_same_derived_id() {
    for broker in Broker::ALL {
        let Some(world) = World::new(broker).await else { return };
        world.send_raw(&world.name, vec![plain(data(b"{\"a\": 1}"))]).await;
        let mut first = AmqpSource::new(world.origin()).unwrap();
        let batch = soon("it is read", first.next(10)).await.unwrap();
        let row = batch.messages[0].clone();
        assert_eq!(row.headers.get(HEADER_MESSAGE_ID), Some("hash"), "{broker:?}");
        assert!(first.state().is_connected());
        drop(first);
        let mut second = AmqpSource::new(world.origin()).unwrap();
        let batch = soon("it is read again", second.next(10)).await.unwrap();
        assert_eq!(batch.messages[0].message_id, row.message_id, "{broker:?}");
        assert_eq!(batch.messages[0].content, row.content);
        second.close().await;
    }
}

#[tokio::test]
async fn every_body_section_and_kind_of_id_is_read() {
    for broker in Broker::ALL {
        let Some(world) = World::new(broker).await else { return };
        let bodies = [
            (Body::Value(AmqpValue(Value::from("{\"a\": 1}"))), r#"{"a": 1}"#),
            (Body::Value(AmqpValue(Value::Null)), "null"),
            (Body::Value(AmqpValue(Value::Binary(b"[1]".to_vec().into()))), "[1]"),
            (
                Body::Sequence(Batch::new(vec![AmqpSequence(vec![
                    Value::Int(1),
                    Value::from("x"),
                ])])),
                r#"[1,"x"]"#,
            ),
            (data(b""), "null"),
        ];
        let ids = [
            MessageId::Ulong(7),
            MessageId::Uuid(uuid::Uuid::from_u128(7).into_bytes().into()),
            MessageId::Binary(b"bytes".to_vec().into()),
            MessageId::String("text".into()),
            MessageId::String("last".into()),
        ];
        let expected = ["7", "00000000-0000-0000-0000-000000000007", "bytes", "text", "last"];
        let messages = bodies.iter().zip(&ids).map(|((body, _), id)| {
            let mut message = plain(body.clone());
            message.properties =
                Some(Properties { message_id: Some(id.clone()), ..Properties::default() });
            message
        });
        world.send_raw(&world.name, messages.collect()).await;
        let mut source = AmqpSource::new(world.origin()).unwrap();
        let mut rows = Vec::new();
        while rows.len() < bodies.len() {
            let batch = soon("more", source.next(10)).await.unwrap();
            source.acknowledge(vec![AcceptOutcome::Stored; batch.messages.len()]).await.unwrap();
            rows.extend(batch.messages);
        }
        for ((row, (_, content)), id) in rows.iter().zip(&bodies).zip(expected) {
            assert_eq!(row.content, Content::Json((*content).to_owned()), "{broker:?}");
            assert_eq!(row.message_id, id, "{broker:?}");
        }
        source.close().await;
    }
}

#[tokio::test]
async fn large_messages_reduce_the_credit_and_all_arrive_once() {
    for broker in Broker::ALL {
        let Some(world) = World::new(broker).await else { return };
        let settings = AmqpSourceSettings { prefetch_bytes: 200_000, ..world.origin() };
        let mut source = AmqpSource::new(settings).unwrap();
        let body =
            |n: usize, bytes: usize| format!("{{\"n\": {n}, \"x\": \"{}\"}}", "x".repeat(bytes));
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
}
