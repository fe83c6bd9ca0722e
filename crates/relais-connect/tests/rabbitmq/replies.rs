//! Replies to the sender of a command.

use std::{future::poll_fn, pin::Pin};

use futures_core::Stream;
use lapin::{
    BasicProperties,
    message::Delivery as Received,
    options::{BasicConsumeOptions, BasicPublishOptions},
    types::FieldTable,
};
use relais_connect::rabbitmq::{RabbitPublisher, RabbitPublisherSettings};
use relais_core::{delivery::Delivery, message::Category, outbox::OutboxRow, publisher::Publisher};
use relais_testkit::connector::{outbox_row, soon};

use crate::fixture::{World, classic};

/// A client that waits for replies on its own channel, without a queue.
const DIRECT: &str = "amq.rabbitmq.reply-to";

/// Sends replies to the queue in their header.
fn to_sender(world: &World) -> RabbitPublisher {
    let (exchange, routing_key) = ("".parse().unwrap(), "{{header:reply-to}}".parse().unwrap());
    let settings = RabbitPublisherSettings { exchange, routing_key, ..world.target() };
    RabbitPublisher::new(settings).unwrap()
}

fn reply(number: usize, to: &str) -> OutboxRow {
    let mut row = outbox_row(number, &format!("k-{number}"));
    row.category = Category::Reply;
    row.correlation_id = Some(format!("c-{number}"));
    row.headers.set("reply-to", to);
    row
}

fn reply_to(message: &Received) -> Option<String> {
    message.properties.reply_to().as_ref().map(|text| text.as_str().to_owned())
}

#[tokio::test]
async fn a_command_asks_for_its_reply_which_arrives_in_the_queue_of_its_sender() {
    let Some(world) = classic().await else { return };
    let asking = RabbitPublisherSettings { reply_to: Some(world.name.clone()), ..world.target() };
    let command = OutboxRow { category: Category::Command, ..outbox_row(0, "k") };
    let sent = soon("it answers", RabbitPublisher::new(asking).unwrap().publish(&[command])).await;
    assert_eq!(sent, [Delivery::Accepted]);
    let address = reply_to(&world.take(1).await[0]).expect("the command asks for a reply");

    let deliveries = to_sender(&world).publish(&[reply(1, &address), reply(2, "missing")]).await;
    assert_eq!(deliveries[0], Delivery::Accepted);
    let Delivery::Reject { problem } = &deliveries[1] else { panic!("{deliveries:?}") };
    assert_eq!(problem.code, "RABBITMQ_UNROUTABLE");
    let taken = world.take(1).await;
    assert_eq!(taken[0].properties.correlation_id().as_ref().unwrap().as_str(), "c-1");
    assert_eq!(reply_to(&taken[0]), None, "a reply asks for none");
}

#[tokio::test]
async fn a_client_that_waits_on_its_channel_gets_its_reply() {
    let Some(world) = classic().await else { return };
    let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
    let waiting =
        world.channel.basic_consume(DIRECT.into(), "".into(), options, FieldTable::default());
    let mut waiting = waiting.await.unwrap();
    let properties = BasicProperties::default().with_reply_to(DIRECT.into());
    let (queue, options) = (world.name.as_str().into(), BasicPublishOptions::default());
    let sending = world.channel.basic_publish("".into(), queue, options, b"{}", properties);
    assert!(sending.await.unwrap().await.unwrap().is_ack());
    let address = reply_to(&world.take(1).await[0]).unwrap();
    assert_ne!(address, DIRECT, "the broker names the client");

    let deliveries = to_sender(&world).publish(&[reply(1, &address)]).await;
    assert_eq!(deliveries, [Delivery::Accepted]);
    let next = poll_fn(|context| Pin::new(&mut waiting).poll_next(context));
    let received = soon("the client gets its reply", next).await.unwrap().unwrap();
    assert_eq!(received.properties.correlation_id().as_ref().unwrap().as_str(), "c-1");
}
