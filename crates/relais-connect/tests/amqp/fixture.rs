//! A queue of a test's own, at a broker that `cargo xtask test` starts. Both create it on demand.

use std::collections::BTreeSet;

use fe2o3_amqp::{
    Connection, Receiver, Sender, Session, connection::ConnectionHandle, session::SessionHandle,
};
use fe2o3_amqp_types::{
    messaging::{ApplicationProperties, Batch, Body, Data, Header, Message, MessageId, Properties},
    primitives::{Binary, SimpleValue, Value},
};
use relais_connect::amqp::{
    AmqpConnection, AmqpPublisher, AmqpPublisherSettings, AmqpSource, AmqpSourceSettings,
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

/// The largest message of the brokers: Qpid announces it, Artemis has none.
pub(crate) const MESSAGE_MAX: usize = 1 << 20;

/// Returns the value of a variable; without it the test is left out, except in continuous integration.
pub(crate) fn server(variable: &str) -> Option<String> {
    let found = std::env::var(variable).ok();
    assert!(found.is_some() || std::env::var_os("CI").is_none(), "CI is set and {variable} is not");
    if found.is_none() {
        eprintln!("NOT TESTED: {variable} is not set");
    }
    found
}

/// The broker under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broker {
    Artemis,
    Qpid,
}

impl Broker {
    pub(crate) const ALL: [Self; 2] = [Self::Artemis, Self::Qpid];

    pub(crate) fn variable(self, what: &str) -> String {
        let name = match self {
            Self::Artemis => "ARTEMIS",
            Self::Qpid => "QPID",
        };
        format!("RELAIS_TEST_{name}{what}")
    }

    /// Returns an address of a queue that the broker does not create.
    pub(crate) fn missing(self) -> &'static str {
        match self {
            Self::Artemis => "missing.orders",
            Self::Qpid => "missing-orders",
        }
    }

    /// Returns a new address of a queue that is full soon.
    pub(crate) fn failing(self) -> String {
        match self {
            Self::Artemis => format!("failing.{}", Uuid::now_v7()),
            Self::Qpid => format!("failing-{}", Uuid::now_v7()),
        }
    }
}

/// A queue.
pub(crate) struct World {
    pub(crate) broker: Broker,
    pub(crate) url: String,
    pub(crate) name: String,
    proxy: FaultProxy,
    /// A client without relais.
    session: tokio::sync::Mutex<SessionHandle<()>>,
    _connection: ConnectionHandle<()>,
}

pub(crate) async fn artemis() -> Option<World> {
    World::new(Broker::Artemis).await
}

pub(crate) async fn qpid() -> Option<World> {
    World::new(Broker::Qpid).await
}

impl World {
    pub(crate) async fn new(broker: Broker) -> Option<Self> {
        let url = server(&broker.variable(""))?;
        let (_, address) = url.split_once('@').unwrap();
        let proxy = FaultProxy::to(address.parse().unwrap()).await.unwrap();
        let mut connection =
            Connection::open(format!("test-{}", Uuid::now_v7()), url.as_str()).await.unwrap();
        let session = Session::begin(&mut connection).await.unwrap();
        let name = format!("test-{}.OrderCreated", Uuid::now_v7());
        let session = tokio::sync::Mutex::new(session);
        Some(Self { broker, url, name, proxy, session, _connection: connection })
    }

    /// Returns the broker behind the proxy.
    pub(crate) fn connection(&self) -> AmqpConnection {
        let (login, _) = self.url.split_once('@').unwrap();
        AmqpConnection::new(&format!("{login}@{}", self.proxy.address())).unwrap()
    }

    pub(crate) fn target(&self) -> AmqpPublisherSettings {
        let address = self.name.parse().unwrap();
        // Artemis stores messages of any size.
        let limit = (self.broker == Broker::Artemis).then_some(MESSAGE_MAX);
        AmqpPublisherSettings {
            message_bytes_max: limit,
            ..AmqpPublisherSettings::new("orders", self.connection(), address)
        }
    }

    pub(crate) fn origin(&self) -> AmqpSourceSettings {
        let mapping = Mapping::json("test").aggregate_id(Pick::Key);
        AmqpSourceSettings::new("orders", self.connection(), &self.name, mapping)
    }

    /// Sends a message as it is.
    pub(crate) async fn send_raw(&self, address: &str, messages: Vec<Message<Body<Value>>>) {
        let mut session = self.session.lock().await;
        let name = format!("test-{}", Uuid::now_v7());
        let mut sender = Sender::attach(&mut session, name, address).await.unwrap();
        for message in messages {
            assert!(sender.send(message).await.unwrap().is_accepted());
        }
        sender.close().await.unwrap();
    }

    /// Takes messages from the queue until `count` different ones have arrived.
    pub(crate) async fn take(&self, count: usize) -> Vec<Message<Body<Value>>> {
        let mut session = self.session.lock().await;
        let name = format!("test-{}", Uuid::now_v7());
        let mut receiver = Receiver::attach(&mut session, name, self.name.as_str()).await.unwrap();
        let taking = async {
            let (mut taken, mut ids) = (Vec::new(), BTreeSet::new());
            while ids.len() < count {
                let delivery = receiver.recv::<Body<Value>>().await.unwrap();
                receiver.accept(&delivery).await.unwrap();
                let message = delivery.into_message();
                ids.insert(format!("{:?}", message.properties.as_ref().unwrap().message_id));
                taken.push(message);
            }
            taken
        };
        let taken = soon("the messages are in the queue", taking).await;
        receiver.close().await.unwrap();
        taken
    }
}

/// Returns a message with these bytes and nothing else.
pub(crate) fn plain(body: Body<Value>) -> Message<Body<Value>> {
    Message {
        header: Some(Header { durable: true, ..Header::default() }),
        delivery_annotations: None,
        message_annotations: None,
        properties: None,
        application_properties: None,
        body,
        footer: None,
    }
}

pub(crate) fn data(bytes: &[u8]) -> Body<Value> {
    Body::Data(Batch::new(vec![Data(Binary::from(bytes.to_vec()))]))
}

fn sent(message: &WireMessage) -> Message<Body<Value>> {
    let mut properties = ApplicationProperties::default();
    for (name, value) in &message.headers {
        let value = match String::from_utf8(value.clone()) {
            Ok(text) => SimpleValue::String(text),
            Err(_) => SimpleValue::Binary(Binary::from(value.clone())),
        };
        properties.insert(name.clone(), value);
    }
    Message {
        properties: Some(Properties {
            message_id: Some(MessageId::String(message.id.clone())),
            group_id: Some(message.key.clone()),
            ..Properties::default()
        }),
        application_properties: Some(properties),
        ..plain(data(&message.body))
    }
}

fn received(message: Message<Body<Value>>) -> WireMessage {
    let properties = message.properties.unwrap();
    let text = |id: Option<MessageId>| match id {
        Some(MessageId::String(text)) => text,
        None => String::new(),
        other => panic!("{other:?}"),
    };
    let body = match message.body {
        Body::Data(data) => data.into_iter().flat_map(|one| one.0.into_vec()).collect(),
        other => panic!("{other:?}"),
    };
    let key = properties.group_id.unwrap_or_default();
    let mut wire = WireMessage { id: text(properties.message_id), key, headers: Vec::new(), body };
    for (name, value) in message.application_properties.unwrap().0 {
        match value {
            SimpleValue::String(text) => wire.headers.push((name, text.into_bytes())),
            SimpleValue::Binary(bytes) => wire.headers.push((name, bytes.into_vec())),
            _ => {}
        }
    }
    let correlation = text(properties.correlation_id);
    wire.headers.push(("correlation-id".to_owned(), correlation.into_bytes()));
    wire
}

#[async_trait]
impl SourceFixture for World {
    async fn source(&self) -> Box<dyn Source> {
        Box::new(AmqpSource::new(self.origin()).unwrap())
    }

    fn reads_ahead(&self) -> bool {
        true
    }

    async fn send(&self, messages: &[WireMessage]) {
        self.send_raw(&self.name, messages.iter().map(sent).collect()).await;
    }

    fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }
}

#[async_trait]
impl PublisherFixture for World {
    async fn publisher(&self) -> Box<dyn Publisher> {
        // The event type is a part of the address.
        let address = self.name.replace("OrderCreated", "{{event_type}}").parse().unwrap();
        Box::new(AmqpPublisher::new(AmqpPublisherSettings { address, ..self.target() }).unwrap())
    }

    async fn unreachable(&self) -> Box<dyn Publisher> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("amqp://{}", listener.local_addr().unwrap());
        drop(listener);
        let connection = AmqpConnection::new(&url).unwrap();
        let settings = AmqpPublisherSettings { connection, ..self.target() };
        Box::new(AmqpPublisher::new(settings).unwrap())
    }

    async fn received(&self, count: usize) -> Vec<WireMessage> {
        self.take(count).await.into_iter().map(received).collect()
    }

    fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }

    fn oversized(&self) -> usize {
        MESSAGE_MAX + 1
    }

    fn unroutable(&self, number: usize) -> Option<OutboxRow> {
        let mut row = outbox_row(number, &format!("k-{number}"));
        // No broker creates an address that ends with it.
        row.event_type = "Nowhere".to_owned();
        Some(row)
    }
}
