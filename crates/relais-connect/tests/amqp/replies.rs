//! Replies to the sender of a command, with each broker.

use fe2o3_amqp::{Connection, Receiver, Session};
use fe2o3_amqp_types::{
    messaging::{Body, MessageId, Source},
    primitives::Value,
};
use relais_connect::amqp::{AmqpPublisher, AmqpPublisherSettings};
use relais_core::{delivery::Delivery, message::Category, outbox::OutboxRow, publisher::Publisher};
use relais_testkit::connector::{outbox_row, soon};

use crate::fixture::{Broker, World};

fn reply(number: usize, to: &str) -> OutboxRow {
    let mut row = outbox_row(number, &format!("k-{number}"));
    row.category = Category::Reply;
    row.correlation_id = Some(format!("c-{number}"));
    row.headers.set("reply-to", to);
    row
}

/// Sends replies to the address in their header.
fn to_sender(world: &World) -> AmqpPublisher {
    let address = "{{header:reply-to}}".parse().unwrap();
    AmqpPublisher::new(AmqpPublisherSettings { address, ..world.target() }).unwrap()
}

#[tokio::test]
async fn a_command_asks_for_its_reply_which_arrives_at_the_address_of_its_sender() {
    for broker in Broker::ALL {
        let Some(world) = World::new(broker).await else { return };
        let asking = AmqpPublisherSettings { reply_to: Some(world.name.clone()), ..world.target() };
        let command = OutboxRow { category: Category::Command, ..outbox_row(0, "k") };
        let asking = AmqpPublisher::new(asking).unwrap();
        let sent = soon("it answers", asking.publish(&[command])).await;
        assert_eq!(sent, [Delivery::Accepted]);
        let command = world.take(1).await.remove(0);
        let address = command.properties.unwrap().reply_to.expect("it asks for a reply");

        let rows = [reply(1, &address), reply(2, broker.missing())];
        let deliveries = soon("it answers", to_sender(&world).publish(&rows)).await;
        assert_eq!(deliveries[0], Delivery::Accepted, "{broker:?}");
        let Delivery::Reject { problem } = &deliveries[1] else { panic!("{deliveries:?}") };
        assert_eq!(problem.code, "AMQP_UNKNOWN_ADDRESS", "{broker:?}");
        let properties = world.take(1).await.remove(0).properties.unwrap();
        assert_eq!(properties.correlation_id, Some(MessageId::String("c-1".into())));
        assert_eq!(properties.reply_to, None, "a reply asks for none");
    }
}

#[tokio::test]
async fn a_client_with_a_temporary_queue_gets_its_reply() {
    for broker in Broker::ALL {
        let Some(world) = World::new(broker).await else { return };
        let mut connection = Connection::open("client", world.url.as_str()).await.unwrap();
        let mut session = Session::begin(&mut connection).await.unwrap();
        let source = Source::builder().dynamic(true).build();
        let mut receiver =
            Receiver::builder().name("replies").source(source).attach(&mut session).await.unwrap();
        let address = receiver.source().as_ref().unwrap().address.clone().unwrap();
        let deliveries = soon("it answers", to_sender(&world).publish(&[reply(1, &address)])).await;
        assert_eq!(deliveries, [Delivery::Accepted], "{broker:?} {address}");
        let received = soon("it arrives", receiver.recv::<Body<Value>>()).await.unwrap();
        receiver.accept(&received).await.unwrap();
        let properties = received.into_message().properties.unwrap();
        assert_eq!(properties.correlation_id, Some(MessageId::String("c-1".into())));
        receiver.close().await.unwrap();
        connection.close().await.unwrap();
    }
}
