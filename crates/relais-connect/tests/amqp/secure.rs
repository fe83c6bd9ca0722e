//! TLS: certificates of the brokers and of the client.

use std::path::PathBuf;

use relais_connect::amqp::{AmqpConnection, AmqpPublisher, AmqpPublisherSettings};
use relais_core::{delivery::Delivery, publisher::Publisher};
use relais_testkit::connector::{outbox_row, soon};

use crate::fixture::{Broker, World, server};

async fn secure(broker: Broker) -> Option<(World, String, PathBuf)> {
    let url = server(&broker.variable("_SECURE"))?;
    let files = server(&broker.variable("_CERTIFICATES"))?.into();
    Some((World::new(broker).await?, url, files))
}

async fn publish(connection: AmqpConnection, world: &World) -> Delivery {
    let settings = AmqpPublisherSettings { connection, ..world.target() };
    let publisher = AmqpPublisher::new(settings).unwrap();
    let deliveries = soon("it answers", publisher.publish(&[outbox_row(0, "k")])).await;
    deliveries.into_iter().next().unwrap()
}

#[tokio::test]
async fn messages_go_over_tls_with_a_private_authority_and_a_password() {
    let Some((world, url, files)) = secure(Broker::Artemis).await else { return };
    let url = url.replace("amqps://", "amqps://guest:guest@");
    // The broker wants a certificate; the login is that of the URL.
    let connection = AmqpConnection {
        tls_ca: Some(files.join("ca.pem")),
        tls_certificate: Some(files.join("client.pem")),
        tls_key: Some(files.join("client-key.pem")),
        ..AmqpConnection::new(&url).unwrap()
    };
    assert_eq!(publish(connection, &world).await, Delivery::Accepted);
    assert_eq!(world.take(1).await.len(), 1);
}

#[tokio::test]
async fn an_unknown_authority_is_a_configuration_error() {
    for broker in Broker::ALL {
        let Some((world, url, _)) = secure(broker).await else { return };
        let delivery = publish(AmqpConnection::new(&url).unwrap(), &world).await;
        let Delivery::Misconfigured { problem, .. } = &delivery else { panic!("{delivery:?}") };
        assert_eq!(problem.code, "AMQP_TLS", "{problem:?}");
    }
}

#[tokio::test]
async fn a_client_certificate_is_a_login() {
    for broker in Broker::ALL {
        let Some((world, url, files)) = secure(broker).await else { return };
        let connection = AmqpConnection {
            tls_ca: Some(files.join("ca.pem")),
            tls_certificate: Some(files.join("client.pem")),
            tls_key: Some(files.join("client-key.pem")),
            ..AmqpConnection::new(&url).unwrap()
        };
        assert_eq!(publish(connection, &world).await, Delivery::Accepted, "{broker:?}");
    }
}

#[tokio::test]
async fn a_port_that_expects_tls_is_named_if_the_url_has_none() {
    for broker in Broker::ALL {
        let Some((world, url, _)) = secure(broker).await else { return };
        let connection = AmqpConnection::new(&url.replace("amqps://", "amqp://")).unwrap();
        let delivery = publish(connection, &world).await;
        let (problem, _) = delivery.problem().unwrap();
        assert!(problem.message.contains("TLS"), "{broker:?}: {problem:?}");
    }
}

#[tokio::test]
async fn a_missing_file_is_named_with_its_key() {
    let connection = AmqpConnection {
        tls_ca: Some("missing.pem".into()),
        ..AmqpConnection::new("amqps://127.0.0.1").unwrap()
    };
    let settings = AmqpPublisherSettings::new("orders", connection, "orders".parse().unwrap());
    let why = AmqpPublisher::new(settings).unwrap_err().to_string();
    assert!(why.contains("`tls_ca` missing.pem"), "{why}");
}

#[tokio::test]
async fn a_login_that_is_refused_after_the_connection_is_open_has_the_text_of_the_broker() {
    let Some(world) = World::new(Broker::Artemis).await else { return };
    let url = world.url.replace("guest:guest@", "");
    let delivery = publish(AmqpConnection::new(&url).unwrap(), &world).await;
    let Delivery::Misconfigured { problem, .. } = &delivery else { panic!("{delivery:?}") };
    assert_eq!(problem.code, "AMQP_AUTHENTICATION", "{problem:?}");
    assert!(problem.message.contains("Unable to validate user"), "{problem:?}");
}
