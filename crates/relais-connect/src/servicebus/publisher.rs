//! Messages to a queue or topic of Service Bus.
//!
//! The message id is that of the row in every attempt, so that duplicate detection of the queue
//! recognises one that was sent twice. The key is the session id.

use std::{fmt, time::Duration};

use relais_core::{
    InvalidSettings, async_trait,
    delivery::Delivery,
    outbox::OutboxRow,
    publisher::{Batching, Publisher},
};

use super::{AmqpEnvelope, ServiceBusConnection};
use crate::{
    amqp::{AmqpPublisher, outgoing::AmqpMessageFormat},
    servicebus_settings::SCHEDULE_HEADER,
};

/// The target of a [`ServiceBusPublisher`]. Start from [`ServiceBusPublisherSettings::new`].
#[derive(Clone, Debug)]
pub struct ServiceBusPublisherSettings {
    /// The name of the destination, a part of the container id.
    pub destination: String,
    /// The namespace.
    pub connection: ServiceBusConnection,
    /// The queue or topic.
    pub address: String,
    /// The envelope around the payload.
    pub envelope: AmqpEnvelope,
    /// A message with this header is enqueued at the time in it.
    pub schedule_header: String,
    /// The queue or topic to which commands ask for replies.
    pub reply_to: Option<String>,
    /// Time limit of the whole call.
    pub timeout: Duration,
}

impl ServiceBusPublisherSettings {
    /// Sets a default for everything except the namespace and the queue or topic.
    pub fn new(destination: &str, connection: ServiceBusConnection, address: &str) -> Self {
        Self {
            destination: destination.to_owned(),
            connection,
            address: address.to_owned(),
            envelope: AmqpEnvelope::None,
            schedule_header: SCHEDULE_HEADER.to_owned(),
            reply_to: None,
            timeout: Duration::from_secs(30),
        }
    }
}

/// Sends messages to a queue or topic of Service Bus.
///
/// ```
/// use relais_connect::servicebus::{
///     ServiceBusConnection, ServiceBusPublisher, ServiceBusPublisherSettings,
/// };
///
/// let connection = ServiceBusConnection::new(
///     "Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=relais;SharedAccessKey=secret",
/// )?;
/// let settings = ServiceBusPublisherSettings::new("orders", connection, "orders");
/// let publisher = ServiceBusPublisher::new(settings)?;
/// assert_eq!(format!("{publisher:?}"), r#"ServiceBusPublisher("orders")"#);
/// # Ok::<(), String>(())
/// ```
pub struct ServiceBusPublisher {
    name: String,
    publisher: AmqpPublisher,
}

impl ServiceBusPublisher {
    /// Validates the settings, without connecting. The error says which setting to change.
    pub fn new(settings: ServiceBusPublisherSettings) -> Result<Self, InvalidSettings> {
        let ServiceBusPublisherSettings {
            destination: name,
            connection,
            address,
            envelope,
            schedule_header,
            reply_to,
            timeout,
        } = settings;
        let peer = connection.peer(&address)?;
        let format = AmqpMessageFormat {
            address: address.parse()?,
            envelope,
            message_bytes_max: None,
            schedule_header: Some(schedule_header),
            reply_to,
        };
        let publisher = AmqpPublisher::of_peer(name.clone(), peer, None, format, timeout);
        Ok(Self { name, publisher })
    }
}

#[async_trait]
impl Publisher for ServiceBusPublisher {
    async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery> {
        self.publisher.publish(messages).await
    }

    fn batching(&self) -> Batching {
        self.publisher.batching()
    }

    async fn close(&self) {
        self.publisher.close().await;
    }
}

impl fmt::Debug for ServiceBusPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServiceBusPublisher").field(&self.name).finish()
    }
}
