//! Checks of the publisher that only RabbitMQ needs.

use relais_connect::rabbitmq::{
    RabbitConnection, RabbitEnvelope, RabbitPublisher, RabbitPublisherSettings, RoutingTemplate,
};
use relais_core::{delivery::Delivery, publisher::Publisher};
use relais_testkit::connector::{outbox_row, soon};

use crate::fixture::{World, classic, text};

fn code(delivery: &Delivery) -> &str {
    delivery.problem().map_or("", |(problem, _)| problem.code.as_str())
}

fn template(text: &str) -> RoutingTemplate {
    text.parse().unwrap()
}

async fn publish(
    settings: RabbitPublisherSettings,
    numbers: std::ops::Range<usize>,
) -> Vec<Delivery> {
    let publisher = RabbitPublisher::new(settings).unwrap();
    let rows: Vec<_> = numbers.map(|n| outbox_row(n, &format!("k-{n}"))).collect();
    soon("it answers", publisher.publish(&rows)).await
}

#[tokio::test]
async fn a_message_is_persistent_and_has_the_properties_of_amqp() {
    let Some(world) = classic().await else { return };
    assert_eq!(publish(world.target(), 0..1).await, [Delivery::Accepted]);
    let taken = world.take(1).await;
    let properties = &taken[0].properties;
    assert_eq!(*properties.delivery_mode(), Some(2));
    assert_eq!(properties.kind().as_ref().unwrap().as_str(), "OrderCreated");
    assert_eq!(properties.content_type().as_ref().unwrap().as_str(), "application/json");
    assert_eq!(*properties.timestamp(), Some(1_794_744_000));
    assert_eq!(taken[0].routing_key.as_str(), "OrderCreated");
}

#[tokio::test]
async fn an_unroutable_address_pauses_the_destination_only_if_every_message_has_it() {
    let Some(world) = classic().await else { return };
    for (key, is_fixed) in [("nowhere", true), ("nowhere.{{key}}", false)] {
        let settings = RabbitPublisherSettings { routing_key: template(key), ..world.target() };
        for delivery in publish(settings, 0..3).await {
            match &delivery {
                Delivery::Misconfigured { after: Some(_), .. } => assert!(is_fixed, "{delivery:?}"),
                Delivery::Reject { .. } => assert!(!is_fixed, "{delivery:?}"),
                _ => panic!("{delivery:?}"),
            }
            let (problem, _) = delivery.problem().unwrap();
            assert_eq!(problem.code, "RABBITMQ_UNROUTABLE");
            assert!(problem.message.contains("312 NO_ROUTE"), "{problem:?}");
            assert!(problem.message.contains("`nowhere"), "{problem:?}");
        }
    }
}

#[tokio::test]
async fn a_missing_exchange_pauses_the_destination_only_if_every_message_has_it() {
    let Some(world) = classic().await else { return };
    let settings = RabbitPublisherSettings { exchange: template("missing"), ..world.target() };
    for delivery in publish(settings, 0..3).await {
        assert!(matches!(delivery, Delivery::Misconfigured { after: Some(_), .. }), "{delivery:?}");
        assert_eq!(code(&delivery), "RABBITMQ_UNKNOWN_EXCHANGE");
    }
    let exchange = template(&format!("{}{{{{payload:/end}}}}", world.name));
    let publisher =
        RabbitPublisher::new(RabbitPublisherSettings { exchange, ..world.target() }).unwrap();
    let mut rows: Vec<_> = (0..4).map(|n| outbox_row(n, &format!("k-{n}"))).collect();
    for (row, end) in rows.iter_mut().zip(["", "", "-missing", ""]) {
        row.payload = format!("{{\"end\": \"{end}\"}}");
    }
    let deliveries = publisher.publish(&rows).await;
    let codes: Vec<&str> = deliveries.iter().map(code).collect();
    assert_eq!(codes, ["", "", "RABBITMQ_UNKNOWN_EXCHANGE", ""]);
    assert!(matches!(deliveries[2], Delivery::Reject { .. }));
}

#[tokio::test]
async fn a_full_queue_uses_no_attempt_and_takes_messages_again_later() {
    let full = [
        ("x-max-length", lapin::types::AMQPValue::LongInt(2)),
        ("x-overflow", text("reject-publish")),
    ];
    let Some(world) = World::new(&full).await else { return };
    let deliveries = publish(world.target(), 0..10).await;
    let refused: Vec<_> = deliveries.iter().filter(|one| **one != Delivery::Accepted).collect();
    assert!(!refused.is_empty());
    for delivery in refused {
        assert!(matches!(delivery, Delivery::Wait { .. }), "{delivery:?}");
        assert_eq!(code(delivery), "RABBITMQ_NACK");
    }
    let fixed = RabbitPublisherSettings { routing_key: template("OrderCreated"), ..world.target() };
    for delivery in publish(fixed, 11..13).await {
        assert!(matches!(delivery, Delivery::Outage { .. }), "{delivery:?}");
    }
    world.take(2).await;
    assert_eq!(publish(world.target(), 10..11).await, [Delivery::Accepted]);
}

#[tokio::test]
async fn a_queue_that_does_not_exist_is_to_be_declared() {
    let Some(world) = classic().await else { return };
    let settings = RabbitPublisherSettings {
        exchange: template(""),
        routing_key: template("nowhere"),
        ..world.target()
    };
    let deliveries = publish(settings, 0..1).await;
    let (problem, _) = deliveries[0].problem().unwrap();
    assert!(problem.message.contains("declare the queue"), "{problem:?}");
    assert!(!problem.message.contains("bind"), "{problem:?}");
}

#[tokio::test]
async fn headers_larger_than_a_frame_are_rejected_and_the_connection_survives() {
    let Some(world) = classic().await else { return };
    let publisher = RabbitPublisher::new(world.target()).unwrap();
    let mut rows = [outbox_row(0, "a"), outbox_row(1, "b")];
    rows[0].headers.set("large", &"x".repeat(140_000));
    let deliveries = publisher.publish(&rows).await;
    assert_eq!((code(&deliveries[0]), &deliveries[1]), ("RABBITMQ_TOO_LARGE", &Delivery::Accepted));
}

#[tokio::test]
async fn a_refused_login_and_an_unknown_virtual_host_are_configuration_errors() {
    let Some(world) = classic().await else { return };
    let wrong = |from: &str, to: &str, expected: &'static str| {
        let connection = RabbitConnection::new(&world.url.replace(from, to)).unwrap();
        (RabbitPublisherSettings { connection, ..world.target() }, expected)
    };
    for (settings, expected) in [
        wrong("guest:guest", "guest:CANARY", "RABBITMQ_AUTHENTICATION"),
        wrong("/%2f", "/missing", "RABBITMQ_VIRTUAL_HOST"),
        wrong("/%2f", "/", "RABBITMQ_VIRTUAL_HOST"),
    ] {
        let is_empty = settings.connection.url.to_string().ends_with('/');
        let deliveries = publish(settings, 0..1).await;
        let names_default = format!("{deliveries:?}").contains("/%2f");
        assert_eq!(names_default, is_empty, "{deliveries:?}");
        assert_eq!(code(&deliveries[0]), expected, "{deliveries:?}");
        assert!(matches!(deliveries[0], Delivery::Misconfigured { after: Some(_), .. }));
        assert!(!format!("{deliveries:?}").contains("CANARY"));
    }
}

#[tokio::test]
async fn an_envelope_of_masstransit_comes_back_as_the_payload() {
    let Some(world) = classic().await else { return };
    let settings = RabbitPublisherSettings {
        envelope: RabbitEnvelope::MassTransit,
        namespace: Some("Company.Orders".to_owned()),
        ..world.target()
    };
    assert_eq!(publish(settings, 0..1).await, [Delivery::Accepted]);
    let mut origin = world.origin();
    origin.envelope = RabbitEnvelope::MassTransit;
    let mut source = relais_connect::rabbitmq::RabbitSource::new(origin).unwrap();
    use relais_core::source::Source;
    let batch = soon("it arrives", source.next(10)).await.unwrap();
    let (row, sent) = (&batch.messages[0], outbox_row(0, "k-0"));
    assert_eq!(row.message_id, sent.message_id.to_string());
    assert_eq!(row.content, relais_core::inbox::Content::Json(sent.payload));
    assert_eq!(row.headers.get("event-type"), Some("OrderCreated"));
    assert_eq!(row.headers.get("content-type"), Some("application/vnd.masstransit+json"));
    source.close().await;
}

#[tokio::test]
async fn a_cloudevent_comes_back_as_the_payload() {
    let Some(world) = classic().await else { return };
    let envelope = RabbitEnvelope::CloudEvents;
    let settings = RabbitPublisherSettings { envelope, ..world.target() };
    assert_eq!(publish(settings, 0..1).await, [Delivery::Accepted]);
    let mut origin = world.origin();
    origin.envelope = envelope;
    let mut source = relais_connect::rabbitmq::RabbitSource::new(origin).unwrap();
    use relais_core::source::Source;
    let batch = soon("it arrives", source.next(10)).await.unwrap();
    let (row, sent) = (&batch.messages[0], outbox_row(0, "k-0"));
    assert_eq!(row.message_id, sent.message_id.to_string());
    assert_eq!(row.content, relais_core::inbox::Content::Json(sent.payload));
    assert_eq!(row.headers.get("event-type"), Some("OrderCreated"));
    assert_eq!(row.headers.get("cloudEvents:specversion"), Some("1.0"), "as it is sent");
    assert_eq!(row.headers.get("ce-subject"), Some("k-0"));
    source.close().await;
}

#[tokio::test]
async fn a_check_names_what_is_missing() {
    let Some(world) = classic().await else { return };
    let connection = world.connection();
    let (exchange, default) = (template(&world.name), template(""));
    let (fixed, place) = (template("missing"), template("{{key}}"));
    let found = connection.probe_destination(&exchange, &fixed, None).await.unwrap();
    assert!(found.contains(&world.name) && !found.contains("guest"), "{found}");
    assert!(found.contains("bindings are not checked"), "{found}");
    assert!(connection.probe_destination(&default, &place, None).await.is_ok());
    let found = connection.probe_destination(&default, &exchange, Some(&world.name)).await.unwrap();
    assert!(found.contains(&format!("queue `{}`", world.name)), "{found}");
    for (exchange, key, reply_to) in [
        (&default, &fixed, None),
        (&exchange, &place, Some("missing")),
        (&default, &place, Some("missing")),
    ] {
        let missing = connection.probe_destination(exchange, key, reply_to).await.unwrap_err();
        let missing = missing.to_string();
        assert!(missing.contains("`missing`: the queue does not exist"), "{missing}");
    }
    assert!(connection.probe_source(&world.name).await.unwrap().contains("0 messages"));
    let missing = connection.probe_destination(&fixed, &place, None).await.unwrap_err().to_string();
    assert!(missing.contains("exchange does not exist"), "{missing}");
    let missing = connection.probe_source("missing").await.unwrap_err().to_string();
    assert!(missing.contains("queue does not exist"), "{missing}");
}
