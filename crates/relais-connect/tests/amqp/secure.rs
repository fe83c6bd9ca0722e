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
