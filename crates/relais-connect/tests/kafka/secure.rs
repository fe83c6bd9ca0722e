//! TLS and passwords with a real listener that requires both: options reach the client, and secrets
//! appear nowhere else.

use std::time::Duration;

use relais_connect::{
    SecretString,
    kafka::{KafkaConnection, KafkaPublisher, KafkaPublisherSettings},
};
use relais_core::{publisher::Publisher, source::Source};

use crate::{
    incoming::World,
    outgoing::{broker, codes, problem, read, row, server, topic},
};

/// The plain listener for helpers, and the one with TLS.
fn listeners() -> Option<(String, String)> {
    let what = "TLS and passwords";
    Some((broker(what)?, server("RELAIS_TEST_KAFKA_SECURE", what)?))
}

fn options(user: &str, password: &str) -> Option<Vec<(&'static str, String)>> {
    let certificate = server("RELAIS_TEST_KAFKA_CERTIFICATE", "TLS and passwords")?;
    Some(vec![
        ("security.protocol", "SASL_SSL".into()),
        ("ssl.ca.location", certificate),
        ("sasl.mechanism", "PLAIN".into()),
        ("sasl.username", user.into()),
        ("sasl.password", password.into()),
    ])
}

fn publisher(
    secure: &str,
    topic: &str,
    options: Vec<(&'static str, String)>,
) -> (KafkaPublisher, String) {
    let mut connection = KafkaConnection::new(secure);
    for (name, value) in options {
        connection.options.push((name.to_owned(), SecretString::from(value.as_str())));
    }
    let mut settings = KafkaPublisherSettings::new("test", connection, topic);
    settings.timeout = Duration::from_secs(8);
    let shown = format!("{settings:?}");
    (KafkaPublisher::new(settings).unwrap(), shown)
}

#[tokio::test]
async fn messages_are_sent_and_received_over_tls_with_a_password() {
    let Some((plain, secure)) = listeners() else { return };
    let Some(options) = options("relais", "relais-password") else { return };
    let topic = topic(&plain, 2, &[]).await;
    let (publisher, shown) = publisher(&secure, &topic, options.clone());
    assert!(!shown.contains("relais-password"), "{shown}");
    let rows: Vec<_> = (0..20).map(|n| row(n, &format!("k{}", n % 5))).collect();
    assert_eq!(codes(&publisher.publish(&rows).await), vec!["accepted"; 20]);
    publisher.close().await;
    assert_eq!(read(&plain, &topic).len(), 20);

    let mut world = World::at(&secure);
    world.topic = topic;
    world.options = options;
    world.read_until(20).await;
}

#[tokio::test]
async fn a_wrong_password_is_an_outage_that_says_so_without_the_password() {
    let Some((plain, secure)) = listeners() else { return };
    let Some(options) = options("relais", "canary-3141") else { return };
    let topic = topic(&plain, 1, &[]).await;
    let (publisher, _) = publisher(&secure, &topic, options.clone());
    let deliveries = publisher.publish(&[row(1, "k")]).await;
    assert_eq!(codes(&deliveries), ["outage"]);
    let (code, message) = problem(&deliveries[0]);
    assert_eq!(code, "KAFKA_AUTHENTICATION", "{message}");
    assert!(message.contains("sasl") && !message.contains("canary"), "{message}");

    let mut world = World::at(&secure);
    world.topic = topic;
    world.options = options;
    let mut source = world.source();
    let error = world.error(&mut source).await;
    assert!(!error.contains("canary"), "{error}");
    assert!(error.to_lowercase().contains("authentication"), "{error}");
    source.close().await;
}

#[tokio::test]
async fn an_unknown_certificate_is_an_outage_that_names_tls() {
    let Some((plain, secure)) = listeners() else { return };
    let Some(mut options) = options("relais", "relais-password") else { return };
    options.retain(|(name, _)| *name != "ssl.ca.location");
    let topic = topic(&plain, 1, &[]).await;
    let (publisher, _) = publisher(&secure, &topic, options);
    let deliveries = publisher.publish(&[row(1, "k")]).await;
    assert_eq!(codes(&deliveries), ["outage"]);
    assert_eq!(problem(&deliveries[0]).0, "KAFKA_TLS");
}

#[tokio::test]
async fn a_topic_without_write_permission_is_named() {
    let Some((plain, secure)) = listeners() else { return };
    let Some(options) = options("guest", "guest-password") else { return };
    let topic = topic(&plain, 1, &[]).await;
    let (publisher, _) = publisher(&secure, &topic, options);
    let deliveries = publisher.publish(&[row(1, "k")]).await;
    let (code, message) = problem(&deliveries[0]);
    assert_eq!(codes(&deliveries), ["misconfigured"], "{code}: {message}");
    assert!(code.contains("AUTHORIZATION"), "{code}: {message}");
    assert!(read(&plain, &topic).is_empty());
}
