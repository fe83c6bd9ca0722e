//! Checks of the publisher that only NATS needs.

use relais_connect::nats::{
    NatsConnection, NatsEnvelope, NatsPublisher, NatsPublisherSettings, RoutingTemplate,
};
use relais_core::{delivery::Delivery, publisher::Publisher};
use relais_testkit::connector::{outbox_row, soon};
use serde_json::json;

use super::fixture::{World, stream};

fn code(delivery: &Delivery) -> &str {
    delivery.problem().map_or("", |(problem, _)| problem.code.as_str())
}

fn template(text: &str) -> RoutingTemplate {
    text.parse().unwrap()
}

async fn publish(
    settings: NatsPublisherSettings,
    numbers: std::ops::Range<usize>,
) -> Vec<Delivery> {
    let publisher = NatsPublisher::new(settings).unwrap();
    let rows: Vec<_> = numbers.map(|n| outbox_row(n, &format!("k-{n}"))).collect();
    soon("it answers", publisher.publish(&rows)).await
}

#[tokio::test]
async fn a_message_that_is_sent_again_is_stored_once() {
    let Some(world) = stream().await else { return };
    for _ in 0..3 {
        assert_eq!(publish(world.target(), 0..2).await, [Delivery::Accepted, Delivery::Accepted]);
    }
    assert_eq!(publish(world.target(), 2..3).await, [Delivery::Accepted]);
    let stored = world.stored(3).await;
    assert_eq!(stored.len(), 3, "the stream recognises `Nats-Msg-Id`");
    assert_eq!(stored[0].header("content-type"), Some(&b"application/json"[..]));
}

#[tokio::test]
async fn an_unroutable_subject_pauses_the_destination_only_if_every_message_has_it() {
    let Some(world) = stream().await else { return };
    let subject = format!("{}.nowhere", world.name);
    for (text, is_fixed) in [(subject.clone(), true), (format!("{subject}.{{{{key}}}}"), false)] {
        let settings = NatsPublisherSettings { subject: template(&text), ..world.target() };
        for delivery in publish(settings, 0..3).await {
            match &delivery {
                Delivery::Misconfigured { after: Some(_), .. } => assert!(is_fixed, "{delivery:?}"),
                Delivery::Reject { .. } => assert!(!is_fixed, "{delivery:?}"),
                _ => panic!("{delivery:?}"),
            }
            let (problem, _) = delivery.problem().unwrap();
            assert_eq!(problem.code, "NATS_UNROUTABLE");
            assert!(problem.message.contains("503 no responders"), "{problem:?}");
            assert!(problem.message.contains(&subject), "{problem:?}");
        }
    }
}

#[tokio::test]
async fn a_full_stream_uses_no_attempt_and_takes_messages_again_later() {
    for limit in [json!({"max_msgs": 2}), json!({"max_bytes": 1_000})] {
        let mut config = limit;
        config["discard"] = json!("new");
        let Some(world) = World::new(config).await else { return };
        let deliveries = publish(world.target(), 0..10).await;
        let refused: Vec<_> = deliveries.iter().filter(|one| **one != Delivery::Accepted).collect();
        assert!(!refused.is_empty() && refused.len() < 10, "{deliveries:?}");
        for delivery in refused {
            assert!(matches!(delivery, Delivery::Wait { .. }), "{delivery:?}");
            assert_eq!(code(delivery), "NATS_STREAM_FULL", "{delivery:?}");
        }
        let fixed = NatsPublisherSettings { subject: template(&world.subject()), ..world.target() };
        let deliveries = publish(fixed, 11..12).await;
        assert!(matches!(deliveries[0], Delivery::Outage { .. }), "{deliveries:?}");
        let purged = world.api(&format!("STREAM.PURGE.{}", world.name), json!({})).await;
        assert!(purged["error"].is_null(), "{purged}");
        assert_eq!(publish(world.target(), 10..11).await, [Delivery::Accepted]);
    }
}

#[tokio::test]
async fn a_full_subject_uses_no_attempt() {
    let config = json!({
        "max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": true,
    });
    let Some(world) = World::new(config).await else { return };
    assert_eq!(publish(world.target(), 0..1).await, [Delivery::Accepted]);
    let deliveries = publish(world.target(), 1..2).await;
    assert!(matches!(deliveries[0], Delivery::Wait { .. }), "{deliveries:?}");
    assert_eq!(code(&deliveries[0]), "NATS_SUBJECT_FULL");
}

#[tokio::test]
async fn a_message_that_is_too_large_for_the_stream_is_rejected() {
    let Some(world) = World::new(json!({"max_msg_size": 500})).await else { return };
    let mut rows = [outbox_row(0, "a"), outbox_row(1, "b")];
    rows[0].payload = format!("\"{}\"", "x".repeat(600));
    let publisher = NatsPublisher::new(world.target()).unwrap();
    let deliveries = soon("it answers", publisher.publish(&rows)).await;
    assert_eq!((code(&deliveries[0]), &deliveries[1]), ("NATS_TOO_LARGE", &Delivery::Accepted));
    assert!(matches!(deliveries[0], Delivery::Reject { .. }), "{deliveries:?}");
}

#[tokio::test]
async fn a_refused_login_is_a_configuration_error() {
    let Some(world) = stream().await else { return };
    let (start, address) = world.url.rsplit_once(':').unwrap();
    let (start, password) = start.rsplit_once(':').unwrap();
    let host = password.rsplit_once('@').unwrap().1;
    let connection = NatsConnection::new(&format!("{start}:CANARY@{host}:{address}")).unwrap();
    let deliveries = publish(NatsPublisherSettings { connection, ..world.target() }, 0..1).await;
    assert_eq!(code(&deliveries[0]), "NATS_AUTHENTICATION", "{deliveries:?}");
    assert!(matches!(deliveries[0], Delivery::Misconfigured { after: Some(_), .. }));
    assert!(!format!("{deliveries:?}").contains("CANARY"));
}

#[tokio::test]
async fn a_cloudevent_comes_back_as_the_payload() {
    let Some(world) = stream().await else { return };
    let settings = NatsPublisherSettings { envelope: NatsEnvelope::CloudEvents, ..world.target() };
    assert_eq!(publish(settings, 0..1).await, [Delivery::Accepted]);
    let mut origin = world.origin();
    origin.envelope = NatsEnvelope::CloudEvents;
    let mut source = relais_connect::nats::NatsSource::new(origin).unwrap();
    use relais_core::source::Source;
    let batch = soon("it arrives", source.next(10)).await.unwrap();
    let (row, sent) = (&batch.messages[0], outbox_row(0, "k-0"));
    assert_eq!(row.message_id, sent.message_id.to_string());
    assert_eq!(row.content, relais_core::inbox::Content::Json(sent.payload));
    assert_eq!(row.headers.get("event-type"), Some("OrderCreated"));
    assert_eq!(row.headers.get("ce-subject"), Some("k-0"));
    source.close().await;
}

#[tokio::test]
async fn a_check_names_what_is_missing() {
    let Some(world) = stream().await else { return };
    let connection = world.connection();
    let found = connection.probe_destination(&template(&world.subject())).await.unwrap();
    assert!(found.contains(&world.name), "{found}");
    let any = connection.probe_destination(&template("{{key}}")).await.unwrap();
    assert!(any.contains("accepts the login"), "{any}");
    let missing = connection.probe_destination(&template("missing")).await.unwrap_err().to_string();
    assert!(missing.contains("no stream has the subject `missing`"), "{missing}");
    let created = connection.probe_source(&world.origin()).await.unwrap();
    assert!(created.contains("is created at the start"), "{created}");
    let mut origin = world.origin();
    origin.stream = "missing".to_owned();
    let missing = connection.probe_source(&origin).await.unwrap_err().to_string();
    assert!(missing.contains("stream does not exist"), "{missing}");
}
