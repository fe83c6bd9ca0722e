//! A simulator of a test's own, with one queue of each kind.

use std::time::Duration;

use fe2o3_amqp_types::{
    messaging::{Body, Message, MessageId},
    primitives::{SimpleValue, Value},
};
use relais_connect::servicebus::{
    ServiceBusConnection, ServiceBusPublisher, ServiceBusPublisherSettings, ServiceBusSource,
    ServiceBusSourceSettings,
};
use relais_core::{
    async_trait,
    delivery::Delivery,
    extract::{Mapping, Pick},
    message::{HeaderValue, Headers},
    outbox::OutboxRow,
    publisher::Publisher,
    source::Source,
};
use relais_testkit::{
    connector::{PublisherFixture, SourceFixture, WireMessage, outbox_row, soon},
    proxy::FaultProxy,
};
use servicebus_sim::{EntityConfig, NamespaceConfig, ServiceBusSimulator};

const PAUSE: Duration = Duration::from_millis(10);

/// A namespace with the address under test.
pub(crate) struct World {
    pub(crate) sim: ServiceBusSimulator,
    /// The address that messages are sent to.
    pub(crate) target: &'static str,
    /// The address that they are read from.
    pub(crate) origin: &'static str,
    has_sessions: bool,
    proxy: FaultProxy,
}

pub(crate) async fn queue() -> Option<World> {
    Some(World::new("orders", "orders").await)
}

pub(crate) async fn subscription() -> Option<World> {
    Some(World::new("events", "events/Subscriptions/all").await)
}

pub(crate) async fn sessions() -> Option<World> {
    Some(World::new("sessions", "sessions").await)
}

impl World {
    pub(crate) async fn new(target: &'static str, origin: &'static str) -> Self {
        let sessions = EntityConfig { sessions: true, ..EntityConfig::default() };
        let window = Some(Duration::from_secs(600));
        let once = EntityConfig { duplicate_window: window, ..EntityConfig::default() };
        let short = EntityConfig { lock: Duration::from_millis(300), ..EntityConfig::default() };
        let queues = [
            ("orders", EntityConfig::default()),
            ("sessions", sessions),
            ("once", once),
            ("short", short),
        ];
        let config = NamespaceConfig {
            queues: queues.map(|(name, config)| (name.to_owned(), config)).to_vec(),
            topics: vec![("events".to_owned(), vec![("all".to_owned(), EntityConfig::default())])],
            ..NamespaceConfig::default()
        };
        let sim = ServiceBusSimulator::start(config).await.unwrap();
        let proxy = FaultProxy::to(sim.address()).await.unwrap();
        Self { sim, target, origin, has_sessions: origin == "sessions", proxy }
    }

    /// Returns the namespace behind the proxy.
    pub(crate) fn connection(&self) -> ServiceBusConnection {
        let place = self.proxy.address().to_string();
        ServiceBusConnection::new(&self.sim.connection_string(&place)).unwrap()
    }

    pub(crate) fn target_settings(&self) -> ServiceBusPublisherSettings {
        ServiceBusPublisherSettings::new("orders", self.connection(), self.target)
    }

    pub(crate) fn origin_settings(&self) -> ServiceBusSourceSettings {
        let mapping = Mapping::json("test").aggregate_id(Pick::Key);
        let settings =
            ServiceBusSourceSettings::new("orders", self.connection(), self.origin, mapping);
        let settings =
            ServiceBusSourceSettings { session_idle: Duration::from_millis(100), ..settings };
        if self.has_sessions { settings.with_sessions() } else { settings }
    }

    /// Publishes rows with a publisher of its own, past the proxy.
    pub(crate) async fn publish(&self, rows: &[OutboxRow]) -> Vec<Delivery> {
        let place = self.sim.address().to_string();
        let connection = ServiceBusConnection::new(&self.sim.connection_string(&place)).unwrap();
        let settings = ServiceBusPublisherSettings { connection, ..self.target_settings() };
        let publisher = ServiceBusPublisher::new(settings).unwrap();
        let deliveries = soon("it answers", publisher.publish(rows)).await;
        publisher.close().await;
        deliveries
    }

    /// Waits until the origin has this many messages.
    pub(crate) async fn has(&self, count: usize) {
        let arriving = async {
            while self.sim.len(self.origin) < count {
                tokio::time::sleep(PAUSE).await;
            }
        };
        soon("the messages are stored", arriving).await;
    }
}

fn received(message: &Message<Body<Value>>) -> WireMessage {
    let properties = message.properties.as_ref().unwrap();
    let text = |id: &Option<MessageId>| match id {
        Some(MessageId::String(text)) => text.clone(),
        _ => String::new(),
    };
    let Body::Data(data) = &message.body else { panic!("{:?}", message.body) };
    let body = data.iter().flat_map(|one| one.0.to_vec()).collect();
    let key = properties.group_id.clone().unwrap_or_default();
    let mut wire = WireMessage { id: text(&properties.message_id), key, headers: Vec::new(), body };
    for (name, value) in message.application_properties.as_ref().unwrap().0.iter() {
        match value {
            SimpleValue::String(text) => {
                wire.headers.push((name.clone(), text.clone().into_bytes()));
            }
            SimpleValue::Binary(bytes) => wire.headers.push((name.clone(), bytes.to_vec())),
            _ => {}
        }
    }
    let correlation = text(&properties.correlation_id);
    wire.headers.push(("correlation-id".to_owned(), correlation.into_bytes()));
    wire
}

#[async_trait]
impl SourceFixture for World {
    async fn source(&self) -> Box<dyn Source> {
        Box::new(ServiceBusSource::new(self.origin_settings()).unwrap())
    }

    async fn send(&self, messages: &[WireMessage]) {
        self.sim.send(self.target, messages.iter().map(sent).collect());
    }

    fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }

    fn large_body(&self) -> usize {
        200 * 1024
    }
}

/// Builds a message as another client sends it.
fn sent(message: &WireMessage) -> Message<Body<Value>> {
    use fe2o3_amqp_types::{
        messaging::{ApplicationProperties, Batch, Data, Properties},
        primitives::Binary,
    };
    let mut application = ApplicationProperties::default();
    for (name, value) in &message.headers {
        let value = match HeaderValue::from_bytes(value) {
            HeaderValue::Text(text) => SimpleValue::String(text),
            _ => SimpleValue::Binary(Binary::from(value.clone())),
        };
        application.0.insert(name.clone(), value);
    }
    Message {
        header: None,
        delivery_annotations: None,
        message_annotations: None,
        properties: Some(Properties {
            message_id: Some(MessageId::String(message.id.clone())),
            group_id: Some(message.key.clone()),
            ..Properties::default()
        }),
        application_properties: Some(application),
        body: Body::Data(Batch::new(vec![Data(Binary::from(message.body.clone()))])),
        footer: None,
    }
}

#[async_trait]
impl PublisherFixture for World {
    async fn publisher(&self) -> Box<dyn Publisher> {
        Box::new(ServiceBusPublisher::new(self.target_settings()).unwrap())
    }

    async fn unreachable(&self) -> Box<dyn Publisher> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let place = listener.local_addr().unwrap().to_string();
        drop(listener);
        let connection = ServiceBusConnection::new(&self.sim.connection_string(&place)).unwrap();
        let settings = ServiceBusPublisherSettings { connection, ..self.target_settings() };
        Box::new(ServiceBusPublisher::new(settings).unwrap())
    }

    async fn received(&self, count: usize) -> Vec<WireMessage> {
        self.has(count).await;
        self.sim.messages(self.origin).iter().map(received).collect()
    }

    fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }

    fn oversized(&self) -> usize {
        // The simulator announces 256 KiB.
        256 * 1024 + 1
    }

    fn unroutable(&self, _number: usize) -> Option<OutboxRow> {
        // A topic without a subscription accepts messages too.
        None
    }
}

/// Returns a row with this header.
pub(crate) fn with_header(number: usize, key: &str, name: &str, value: &str) -> OutboxRow {
    let mut row = outbox_row(number, key);
    row.headers = Headers::default();
    row.headers.set(name, value);
    row
}
