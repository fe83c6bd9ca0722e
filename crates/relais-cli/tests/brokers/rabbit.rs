//! RabbitMQ as a plain client sees it: queues and messages.

use std::time::{Duration, Instant};

use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    message::BasicGetMessage,
    options::{BasicGetOptions, BasicPublishOptions, QueueDeclareOptions},
    types::FieldTable,
};
use uuid::Uuid;

/// Time limit of a condition.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval at which a condition is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// A broker, asked inside of synchronous tests.
pub(crate) struct Rabbit {
    pub(crate) url: String,
    /// The end of all names of the test.
    suffix: String,
    channel: Channel,
    runtime: tokio::runtime::Runtime,
    _connection: Connection,
}

impl Rabbit {
    pub(crate) fn from_environment() -> Option<Self> {
        let url = server("RELAIS_TEST_RABBITMQ")?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let opening = async {
            let connection = Connection::connect(&url, ConnectionProperties::default()).await?;
            let channel = connection.create_channel().await?;
            lapin::Result::Ok((connection, channel))
        };
        let (connection, channel) = runtime.block_on(opening).unwrap();
        let suffix = Uuid::new_v4().simple().to_string();
        Some(Self { url, suffix, channel, runtime, _connection: connection })
    }

    /// Returns a name that only this test uses.
    pub(crate) fn name(&self, name: &str) -> String {
        format!("{name}-{}", self.suffix)
    }

    pub(crate) fn declare(&self, queue: &str) {
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let declaring = self.channel.queue_declare(queue.into(), options, FieldTable::default());
        self.runtime.block_on(declaring).unwrap();
    }

    pub(crate) fn send(&self, queue: &str, id: &str, body: &str) {
        let properties = BasicProperties::default().with_message_id(id.into());
        let options = BasicPublishOptions::default();
        let sending = self.channel.basic_publish(
            "".into(),
            queue.into(),
            options,
            body.as_bytes(),
            properties,
        );
        self.runtime.block_on(sending).unwrap();
    }

    /// Takes one message; waits for it.
    pub(crate) fn take(&self, queue: &str) -> BasicGetMessage {
        let started = Instant::now();
        loop {
            let options = BasicGetOptions { no_ack: true };
            let taking = self.channel.basic_get(queue.into(), options);
            if let Some(message) = self.runtime.block_on(taking).unwrap() {
                return message;
            }
            assert!(started.elapsed() < PATIENCE, "no message in {queue}");
            std::thread::sleep(CHECK_INTERVAL);
        }
    }
}

/// Returns the address of a broker; without it the test is left out, except in continuous integration.
pub(crate) fn server(variable: &str) -> Option<String> {
    let found = std::env::var(variable).ok();
    assert!(found.is_some() || std::env::var_os("CI").is_none(), "CI is set and {variable} is not");
    if found.is_none() {
        eprintln!("NOT TESTED: {variable} is not set");
    }
    found
}
