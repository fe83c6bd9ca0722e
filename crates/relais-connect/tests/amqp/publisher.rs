//! Checks of the publisher that only AMQP 1.0 needs, with each broker.

use fe2o3_amqp_types::messaging::MessageId;
use relais_connect::amqp::{
    AmqpConnection, AmqpEnvelope, AmqpPublisher, AmqpPublisherSettings, AmqpSource, RoutingTemplate,
};
use relais_core::{
    delivery::Delivery, inbox::Content, outbox::OutboxRow, publisher::Publisher, source::Source,
};
use relais_testkit::connector::{outbox_row, soon};

use crate::fixture::{Broker, World, server};

fn code(delivery: &Delivery) -> &str {
    delivery.problem().map_or("", |(problem, _)| problem.code.as_str())
}

fn template(text: &str) -> RoutingTemplate {
    text.parse().unwrap()
}

fn rows(numbers: std::ops::Range<usize>) -> Vec<OutboxRow> {
    numbers.map(|n| outbox_row(n, &format!("k-{n}"))).collect()
}

async fn publish(settings: AmqpPublisherSettings, rows: &[OutboxRow]) -> Vec<Delivery> {
    let publisher = AmqpPublisher::new(settings).unwrap();
    soon("it answers", publisher.publish(rows)).await
}

#[tokio::test]
async fn a_message_is_durable_and_has_the_properties_of_amqp() {
    for broker in Broker::ALL {
        let Some(world) = World::new(broker).await else { return };
        assert_eq!(publish(world.target(), &rows(0..1)).await, [Delivery::Accepted]);
        let taken = world.take(1).await;
        assert!(taken[0].header.as_ref().unwrap().durable);
        let properties = taken[0].properties.as_ref().unwrap();
        assert_eq!(properties.subject.as_deref(), Some("OrderCreated"));
        assert_eq!(properties.group_id.as_deref(), Some("k-0"));
        assert_eq!(properties.content_type.as_ref().unwrap().as_str(), "application/json");
        assert_eq!(properties.creation_time.as_ref().unwrap().milliseconds(), 1_794_744_000_123);
        let id = MessageId::String(outbox_row(0, "k-0").message_id.to_string());
        assert_eq!(properties.message_id, Some(id));
    }
}

#[tokio::test]
async fn a_missing_address_pauses_the_destination_only_if_every_message_has_it() {
    for broker in Broker::ALL {
        let Some(world) = World::new(broker).await else { return };
        let missing = template(broker.missing());
        let settings = AmqpPublisherSettings { address: missing, ..world.target() };
        for delivery in publish(settings, &rows(0..3)).await {
            let is_paused = matches!(delivery, Delivery::Misconfigured { after: Some(_), .. });
            assert!(is_paused, "{broker:?}: {delivery:?}");
            assert_eq!(code(&delivery), "AMQP_UNKNOWN_ADDRESS");
        }
        let mut rows = rows(0..4);
        for (n, row) in rows.iter_mut().enumerate() {
            let address = if n == 2 { broker.missing() } else { &world.name };
            row.headers.set("address", address);
        }
        let address = template("{{header:address}}");
        let settings = AmqpPublisherSettings { address, ..world.target() };
        let deliveries = publish(settings, &rows).await;
        for (n, delivery) in deliveries.iter().enumerate() {
            assert_eq!(
                matches!(delivery, Delivery::Reject { .. }),
                n == 2,
                "{broker:?}: {delivery:?}"
            );
        }
        assert_eq!(world.take(3).await.len(), 3);
    }
}

#[tokio::test]
async fn a_full_queue_uses_no_attempt() {
    for broker in Broker::ALL {
        let Some(world) = World::new(broker).await else { return };
        let address = template(&broker.failing());
        let settings = AmqpPublisherSettings { address, ..world.target() };
        let publisher = AmqpPublisher::new(settings).unwrap();
        let mut deliveries = Vec::new();
        for mut row in rows(0..20) {
            row.payload = format!("\"{}\"", "x".repeat(10_000));
            deliveries.extend(soon("it answers", publisher.publish(&[row])).await);
        }
        let refused: Vec<_> = deliveries.iter().filter(|one| **one != Delivery::Accepted).collect();
        assert!(
            !refused.is_empty() && refused.len() < deliveries.len(),
            "{broker:?}: {deliveries:?}"
        );
        for delivery in refused {
            assert!(matches!(delivery, Delivery::Outage { .. }), "{broker:?}: {delivery:?}");
        }
    }
}

#[tokio::test]
async fn a_broker_without_credit_is_an_outage() {
    let Some(world) = World::new(Broker::Artemis).await else { return };
    let address = template(&format!("blocking.{}", uuid::Uuid::now_v7()));
    let settings = AmqpPublisherSettings { address, ..world.target() };
    let publisher = AmqpPublisher::new(settings).unwrap();
    let mut blocked = None;
    for number in 0..200 {
        let mut row = outbox_row(number, "k");
        row.payload = format!("\"{}\"", "x".repeat(10_000));
        let deliveries = soon("it answers", publisher.publish(&[row])).await;
        if deliveries[0] != Delivery::Accepted {
            blocked = Some(deliveries[0].clone());
            break;
        }
    }
    let blocked = blocked.expect("the address is full");
    assert!(matches!(blocked, Delivery::Outage { .. }), "{blocked:?}");
    assert_eq!(code(&blocked), "AMQP_NO_CREDIT");
}

#[tokio::test]
async fn a_refused_login_is_a_configuration_error() {
    for broker in Broker::ALL {
        let Some(world) = World::new(broker).await else { return };
        let wrong = world.url.replace("guest:guest", "guest:CANARY");
        let connection = AmqpConnection::new(&wrong).unwrap();
        let settings = AmqpPublisherSettings { connection, ..world.target() };
        let deliveries = publish(settings, &rows(0..1)).await;
        assert_eq!(code(&deliveries[0]), "AMQP_AUTHENTICATION", "{broker:?}: {deliveries:?}");
        assert!(matches!(deliveries[0], Delivery::Misconfigured { after: Some(_), .. }));
        assert!(!format!("{deliveries:?}").contains("CANARY"));
    }
}

#[tokio::test]
async fn an_address_without_permission_pauses_the_destination() {
    let Some(world) = World::new(Broker::Artemis).await else { return };
    let address = template("forbidden.orders");
    let settings = AmqpPublisherSettings { address, ..world.target() };
    let deliveries = publish(settings, &rows(0..1)).await;
    assert_eq!(code(&deliveries[0]), "AMQP_ACCESS_REFUSED", "{deliveries:?}");
}

#[tokio::test]
async fn a_broker_without_logins_is_reached_anonymously() {
    let (Some(url), Some(world)) =
        (server("RELAIS_TEST_QPID_OPEN"), World::new(Broker::Qpid).await)
    else {
        return;
    };
    let connection = AmqpConnection::new(&url).unwrap();
    let settings = AmqpPublisherSettings { connection, ..world.target() };
    assert_eq!(publish(settings, &rows(0..1)).await, [Delivery::Accepted]);
    // The listener with passwords does not offer it.
    let (scheme, address) = (world.url.split_once("guest:guest@")).unwrap();
    let connection = AmqpConnection::new(&format!("{scheme}{address}")).unwrap();
    let settings = AmqpPublisherSettings { connection, ..world.target() };
    let deliveries = publish(settings, &rows(0..1)).await;
    assert!(matches!(deliveries[0], Delivery::Misconfigured { .. }), "{deliveries:?}");
}

#[tokio::test]
async fn a_cloudevent_comes_back_as_the_payload() {
    for broker in Broker::ALL {
        let Some(world) = World::new(broker).await else { return };
        let envelope = AmqpEnvelope::CloudEvents;
        let settings = AmqpPublisherSettings { envelope, ..world.target() };
        assert_eq!(publish(settings, &rows(0..1)).await, [Delivery::Accepted]);
        let mut origin = world.origin();
        origin.envelope = envelope;
        let mut source = AmqpSource::new(origin).unwrap();
        let batch = soon("it arrives", source.next(10)).await.unwrap();
        let (row, sent) = (&batch.messages[0], outbox_row(0, "k-0"));
        assert_eq!(row.message_id, sent.message_id.to_string());
        assert_eq!(row.content, Content::Json(sent.payload));
        assert_eq!(row.headers.get("event-type"), Some("OrderCreated"));
        assert_eq!(row.headers.get("cloudEvents:specversion"), Some("1.0"), "as it is sent");
        assert_eq!(row.headers.get("ce-subject"), Some("k-0"));
        source.close().await;
    }
}

#[tokio::test]
async fn a_check_names_what_is_missing() {
    for broker in Broker::ALL {
        let Some(world) = World::new(broker).await else { return };
        let connection = world.connection();
        let address = template(&world.name);
        let found = connection.probe_destination(&address, None).await.unwrap();
        assert!(found.contains(&world.name) && !found.contains("guest"), "{found}");
        assert!(connection.probe_destination(&template("{{key}}"), None).await.is_ok());
        assert!(connection.probe_source(&world.name, None).await.is_ok());
        let missing = template(broker.missing());
        let why = connection.probe_destination(&missing, None).await.unwrap_err().to_string();
        assert!(why.contains("does not exist"), "{why}");
        let why = connection.probe_source(broker.missing(), None).await.unwrap_err().to_string();
        assert!(why.contains("does not exist"), "{why}");
    }
}
