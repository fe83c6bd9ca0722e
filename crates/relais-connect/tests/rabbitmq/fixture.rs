//! An exchange and a queue of a test's own, at the broker that `cargo xtask test` starts.

use std::{collections::BTreeSet, future::poll_fn, pin::Pin};

use futures_core::Stream;
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind,
    message::Delivery,
    options::{
        BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions,
        ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
    },
    types::{AMQPValue, FieldTable},
};
use relais_connect::rabbitmq::{
    RabbitConnection, RabbitPublisher, RabbitPublisherSettings, RabbitSource, RabbitSourceSettings,
};
use relais_core::{
    async_trait,
    extract::{Mapping, Pick},
    outbox::OutboxRow,
    publisher::Publisher,
    source::Source,
};
use relais_testkit::{
    connector::{PublisherFixture, SourceFixture, WireMessage, outbox_row, soon},
    proxy::FaultProxy,
};
use uuid::Uuid;

/// The event type that the queue is bound to.
const ROUTED: &str = "OrderCreated";

/// Returns the value of a variable; without it the test is left out, except in continuous integration.
pub(crate) fn server(variable: &str) -> Option<String> {
    let found = std::env::var(variable).ok();
    assert!(found.is_some() || std::env::var_os("CI").is_none(), "CI is set and {variable} is not");
    if found.is_none() {
        eprintln!("NOT TESTED: {variable} is not set");
    }
    found
}

/// A topic exchange with a queue.
pub(crate) struct World {
    pub(crate) url: String,
    /// The name of both.
    pub(crate) name: String,
    pub(crate) channel: Channel,
    proxy: FaultProxy,
    connection: Connection,
}

pub(crate) async fn classic() -> Option<World> {
    World::new(&[("x-queue-type", text("classic"))]).await
}

pub(crate) async fn quorum() -> Option<World> {
    World::new(&[("x-queue-type", text("quorum"))]).await
}

pub(crate) fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

impl World {
    pub(crate) async fn new(arguments: &[(&str, AMQPValue)]) -> Option<Self> {
        let url = server("RELAIS_TEST_RABBITMQ")?;
        let (_, rest) = url.split_once('@').unwrap();
        let address = rest.split('/').next().unwrap().parse().unwrap();
        let proxy = FaultProxy::to(address).await.unwrap();
        let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        let name = format!("test-{}", Uuid::now_v7());
        let world = Self { url, name, channel, proxy, connection };
        world.declare(arguments).await;
        Some(world)
    }

    async fn declare(&self, arguments: &[(&str, AMQPValue)]) {
        let (name, channel) = (self.name.as_str(), &self.channel);
        let mut table = FieldTable::default();
        for (name, value) in arguments {
            table.insert((*name).into(), value.clone());
        }
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(name.into(), durable, table).await.unwrap();
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        let none = FieldTable::default;
        channel.exchange_declare(name.into(), ExchangeKind::Topic, durable, none()).await.unwrap();
        let options = QueueBindOptions::default();
        channel.queue_bind(name.into(), name.into(), ROUTED.into(), options, none()).await.unwrap();
    }

    /// Returns the broker behind the proxy.
    pub(crate) fn connection(&self) -> RabbitConnection {
        let (login, rest) = self.url.split_once('@').unwrap();
        let (_, vhost) = rest.split_once('/').unwrap();
        let url = format!("{login}@{}/{vhost}", self.proxy.address());
        RabbitConnection::new(&url).unwrap()
    }

    pub(crate) fn target(&self) -> RabbitPublisherSettings {
        let (exchange, key) = (self.name.parse().unwrap(), "{{event_type}}".parse().unwrap());
        RabbitPublisherSettings::new("orders", self.connection(), exchange, key)
    }

    pub(crate) fn origin(&self) -> RabbitSourceSettings {
        let mapping = Mapping::json("test").aggregate_id(Pick::Key);
        RabbitSourceSettings::new("orders", self.connection(), &self.name, mapping)
    }

    /// Takes messages from the queue until `count` different ones have arrived.
    pub(crate) async fn take(&self, count: usize) -> Vec<Delivery> {
        // A channel of its own: it ends the consumer when it is dropped.
        let channel = self.connection.create_channel().await.unwrap();
        let (tag, options) = ("".into(), BasicConsumeOptions::default());
        let consuming =
            channel.basic_consume(self.name.as_str().into(), tag, options, FieldTable::default());
        let mut consumer = consuming.await.unwrap();
        let taking = async {
            let (mut taken, mut ids) = (Vec::new(), BTreeSet::new());
            while ids.len() < count {
                let next = poll_fn(|cx| Pin::new(&mut consumer).poll_next(cx)).await;
                let delivery = next.unwrap().unwrap();
                delivery.ack(BasicAckOptions::default()).await.unwrap();
                ids.insert(format!("{:?}", delivery.properties.message_id()));
                taken.push(delivery);
            }
            taken
        };
        let taken = soon("the messages are in the queue", taking).await;
        channel.close(200, "done".into()).await.unwrap();
        taken
    }
}

#[async_trait]
impl SourceFixture for World {
    async fn source(&self) -> Box<dyn Source> {
        Box::new(RabbitSource::new(self.origin()).unwrap())
    }

    fn reads_ahead(&self) -> bool {
        true
    }

    async fn send(&self, messages: &[WireMessage]) {
        for message in messages {
            let mut table = FieldTable::default();
            table.insert("message-key".into(), text(&message.key));
            for (name, value) in &message.headers {
                table.insert(name.as_str().into(), AMQPValue::LongString(value.clone().into()));
            }
            let properties = BasicProperties::default()
                .with_message_id(message.id.as_str().into())
                .with_delivery_mode(2)
                .with_headers(table);
            let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
            let sent = self
                .channel
                .basic_publish(
                    "".into(),
                    self.name.as_str().into(),
                    options,
                    &message.body,
                    properties,
                )
                .await;
            assert!(sent.unwrap().await.unwrap().is_ack());
        }
    }

    fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }
}

#[async_trait]
impl PublisherFixture for World {
    async fn publisher(&self) -> Box<dyn Publisher> {
        Box::new(RabbitPublisher::new(self.target()).unwrap())
    }

    async fn unreachable(&self) -> Box<dyn Publisher> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("amqp://{}", listener.local_addr().unwrap());
        drop(listener);
        let connection = RabbitConnection::new(&url).unwrap();
        let settings = RabbitPublisherSettings { connection, ..self.target() };
        Box::new(RabbitPublisher::new(settings).unwrap())
    }

    async fn received(&self, count: usize) -> Vec<WireMessage> {
        self.take(count).await.iter().map(wire).collect()
    }

    fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }

    fn oversized(&self) -> usize {
        // `max_message_size` of the test broker is 1 MiB.
        (1 << 20) + 1
    }

    fn unroutable(&self, number: usize) -> Option<OutboxRow> {
        let mut row = outbox_row(number, &format!("k-{number}"));
        row.event_type = "Nowhere".to_owned();
        Some(row)
    }
}

fn wire(delivery: &Delivery) -> WireMessage {
    let properties = &delivery.properties;
    let string = |text: &Option<lapin::types::ShortString>| {
        text.as_ref().map(|text| text.as_str().to_owned()).unwrap_or_default()
    };
    let mut message = WireMessage::new(&string(properties.message_id()), "", &delivery.data);
    if let Some(table) = properties.headers() {
        for (name, value) in table.inner() {
            if let AMQPValue::LongString(value) = value {
                message.headers.push((name.to_string(), value.as_bytes().to_vec()));
            }
        }
    }
    let correlation = string(properties.correlation_id());
    message.headers.push(("correlation-id".to_owned(), correlation.into_bytes()));
    let key = message.header("message-key").unwrap_or_default().to_vec();
    message.key = String::from_utf8(key).unwrap();
    message
}
