//! Checks of the publisher that only Service Bus needs.

use std::time::Duration;

use relais_connect::servicebus::{
    ServiceBusConnection, ServiceBusPublisher, ServiceBusPublisherSettings,
};
use relais_core::{delivery::Delivery, publisher::Publisher};
use relais_testkit::connector::{outbox_row, soon};

use crate::fixture::{World, with_header};

fn code(delivery: &Delivery) -> &str {
    delivery.problem().map_or("", |(problem, _)| problem.code.as_str())
}

#[tokio::test]
async fn a_message_has_the_properties_of_service_bus() {
    let world = World::new("orders", "orders").await;
    assert_eq!(world.publish(&[outbox_row(0, "k-0")]).await, [Delivery::Accepted]);
    let stored = world.sim.messages("orders");
    let properties = stored[0].properties.as_ref().unwrap();
    assert_eq!(properties.subject.as_deref(), Some("OrderCreated"));
    assert_eq!(properties.group_id.as_deref(), Some("k-0"), "the session id is the key");
    assert_eq!(properties.content_type.as_ref().unwrap().as_str(), "application/json");
    let id = outbox_row(0, "k-0").message_id.to_string();
    assert_eq!(properties.message_id, Some(id.into()));
}

#[tokio::test]
async fn a_message_that_is_sent_twice_is_stored_once() {
    let world = World::new("once", "once").await;
    for _ in 0..2 {
        assert_eq!(world.publish(&[outbox_row(0, "k")]).await, [Delivery::Accepted]);
    }
    assert_eq!((world.sim.len("once"), world.sim.duplicates("once")), (1, 1));
}

#[tokio::test]
async fn a_scheduled_message_waits_in_the_queue() {
    let world = World::new("orders", "orders").await;
    let later = with_header(0, "k-0", "scheduled-enqueue-time", "2100-01-01T00:00:00Z");
    let now = outbox_row(1, "k-1");
    let deliveries = world.publish(&[later, now.clone()]).await;
    assert_eq!(deliveries, [Delivery::Accepted, Delivery::Accepted]);
    assert_eq!(world.sim.len("orders"), 2);
    let mut source =
        relais_connect::servicebus::ServiceBusSource::new(world.origin_settings()).unwrap();
    use relais_core::source::Source;
    let batch = soon("it is read", source.next(10)).await.unwrap();
    assert_eq!(batch.messages.len(), 1);
    assert_eq!(batch.messages[0].message_id, now.message_id.to_string());
    source.close().await;
}

#[tokio::test]
async fn a_wrong_key_and_a_missing_queue_are_configuration_errors() {
    let world = World::new("orders", "orders").await;
    let place = world.sim.address().to_string();
    let string = world.sim.connection_string(&place);
    let wrong = string.replace("SharedAccessKey=", "SharedAccessKey=CANARY");
    let settings = |connection: &str, address: &str| {
        let connection = ServiceBusConnection::new(connection).unwrap();
        ServiceBusPublisherSettings::new("orders", connection, address)
    };
    for (settings, expected) in [
        (settings(&wrong, "orders"), "AMQP_AUTHENTICATION"),
        (settings(&string, "missing"), "AMQP_UNKNOWN_ADDRESS"),
    ] {
        let publisher = ServiceBusPublisher::new(settings).unwrap();
        let deliveries = soon("it answers", publisher.publish(&[outbox_row(0, "k")])).await;
        assert_eq!(code(&deliveries[0]), expected, "{deliveries:?}");
        assert!(matches!(deliveries[0], Delivery::Misconfigured { after: Some(_), .. }));
        assert!(!format!("{deliveries:?}").contains("CANARY"));
    }
    let connection = ServiceBusConnection::new(&string).unwrap();
    assert!(connection.probe_destination("orders").await.is_ok());
    assert!(connection.probe_source("orders").await.is_ok());
    let missing = connection.probe_source("missing").await.unwrap_err().to_string();
    assert!(missing.contains("does not exist"), "{missing}");
    let wrong = ServiceBusConnection::new(&wrong).unwrap();
    let refused = wrong.probe_destination("orders").await.unwrap_err().to_string();
    assert!(refused.contains("refuses the login"), "{refused}");
}

#[tokio::test]
async fn the_token_is_renewed_before_it_expires() {
    let world = World::new("orders", "orders").await;
    let connection =
        ServiceBusConnection { token_lifetime: Duration::from_secs(3), ..world.connection() };
    let settings = ServiceBusPublisherSettings { connection, ..world.target_settings() };
    let publisher = ServiceBusPublisher::new(settings).unwrap();
    let mut number = 0;
    let sending = async {
        // Longer than the life of the first token: the simulator ends links whose token has expired.
        while world.sim.tokens() < 3 {
            let deliveries = publisher.publish(&[outbox_row(number, "k")]).await;
            assert_eq!(deliveries, [Delivery::Accepted], "{number}");
            number += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon("the token is renewed", sending).await;
    assert_eq!(world.sim.len("orders"), number);
    publisher.close().await;
}
