//! TLS: certificates of the broker and of the client.

use std::path::PathBuf;

use relais_connect::rabbitmq::{RabbitConnection, RabbitPublisher, RabbitPublisherSettings};
use relais_core::{delivery::Delivery, publisher::Publisher};
use relais_testkit::connector::{outbox_row, soon};

use crate::fixture::{classic, server};

struct Secure {
    url: String,
    files: PathBuf,
}

fn secure() -> Option<Secure> {
    let files = server("RELAIS_TEST_RABBITMQ_CERTIFICATES")?.into();
    Some(Secure { url: server("RELAIS_TEST_RABBITMQ_SECURE")?, files })
}

async fn publish(connection: RabbitConnection, queue: &str) -> Delivery {
    let (exchange, key) = ("".parse().unwrap(), queue.parse().unwrap());
    let settings = RabbitPublisherSettings::new("orders", connection, exchange, key);
    let publisher = RabbitPublisher::new(settings).unwrap();
    let deliveries = soon("it answers", publisher.publish(&[outbox_row(0, "k")])).await;
    deliveries.into_iter().next().unwrap()
}

#[tokio::test]
async fn messages_go_over_tls_with_a_private_authority() {
    let (Some(secure), Some(world)) = (secure(), classic().await) else { return };
    let connection = RabbitConnection {
        tls_ca: Some(secure.files.join("ca.pem")),
        ..RabbitConnection::new(&secure.url).unwrap()
    };
    assert_eq!(publish(connection, &world.name).await, Delivery::Accepted);
    assert_eq!(world.take(1).await.len(), 1);
}

#[tokio::test]
async fn an_unknown_authority_is_a_configuration_error() {
    let (Some(secure), Some(world)) = (secure(), classic().await) else { return };
    let delivery = publish(RabbitConnection::new(&secure.url).unwrap(), &world.name).await;
    let Delivery::Misconfigured { problem, .. } = &delivery else { panic!("{delivery:?}") };
    assert_eq!(problem.code, "RABBITMQ_TLS", "{problem:?}");
}

#[tokio::test]
async fn a_client_certificate_is_a_login() {
    let (Some(secure), Some(world)) = (secure(), classic().await) else { return };
    let connection = RabbitConnection {
        tls_ca: Some(secure.files.join("ca.pem")),
        tls_certificate: Some(secure.files.join("client.pem")),
        tls_key: Some(secure.files.join("client-key.pem")),
        ..RabbitConnection::new(&secure.url.replace("guest:guest@", "")).unwrap()
    };
    assert_eq!(publish(connection, &world.name).await, Delivery::Accepted);
}

#[tokio::test]
async fn a_port_that_expects_tls_is_named_if_the_url_has_none() {
    let (Some(secure), Some(world)) = (secure(), classic().await) else { return };
    let url = secure.url.replace("amqps://", "amqp://");
    let delivery = publish(RabbitConnection::new(&url).unwrap(), &world.name).await;
    let Delivery::Outage { problem, .. } = &delivery else { panic!("{delivery:?}") };
    assert!(problem.message.contains("use amqps://"), "{problem:?}");
}

#[tokio::test]
async fn a_missing_file_is_named_with_its_key() {
    let connection = RabbitConnection {
        tls_ca: Some("missing.pem".into()),
        ..RabbitConnection::new("amqps://127.0.0.1").unwrap()
    };
    let (exchange, key) = ("".parse().unwrap(), "q".parse().unwrap());
    let settings = RabbitPublisherSettings::new("orders", connection, exchange, key);
    let why = RabbitPublisher::new(settings).unwrap_err().to_string();
    assert!(why.contains("`tls_ca` missing.pem"), "{why}");
}
