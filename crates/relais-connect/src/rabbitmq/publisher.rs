//! Messages to the exchanges of a broker, many per call, in order per key.
//!
//! Invariant: `Accepted` means that the broker has confirmed the message and that a queue received
//! it. A message starts only after the broker has confirmed every earlier one of its key. See `call`
//! for the messages of one call.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use relais_core::{
    InvalidSettings, async_trait,
    delivery::Delivery,
    outbox::OutboxRow,
    publisher::{Batching, Publisher},
};
use tokio::{sync::OnceCell, time::Instant};

use super::{
    RabbitConnection, RabbitEnvelope, RoutingTemplate,
    call::RabbitPublishCall,
    classify::{self, RabbitAddress, RabbitFailure},
    connection::OpenConnection,
    outgoing::MessageFormat,
};

/// Maximum number of messages in one call.
const CALL_MAX: usize = 1_000;
/// The part of a call's time limit that is reserved to answer.
const MARGIN_MAX: Duration = Duration::from_secs(2);

/// The target of a [`RabbitPublisher`]. Start from [`RabbitPublisherSettings::new`].
#[derive(Clone, Debug)]
pub struct RabbitPublisherSettings {
    /// The name of the destination, shown in RabbitMQ's list of connections.
    pub destination: String,
    /// The connection to the broker.
    pub connection: RabbitConnection,
    /// The exchange that messages are sent to.
    pub exchange: RoutingTemplate,
    /// The routing key of a message.
    pub routing_key: RoutingTemplate,
    /// The envelope around the payload.
    pub envelope: RabbitEnvelope,
    /// The .NET namespace of message types, for MassTransit.
    pub namespace: Option<String>,
    /// The queue to which commands ask for replies.
    pub reply_to: Option<String>,
    /// Time limit of the whole call.
    pub timeout: Duration,
}

impl RabbitPublisherSettings {
    /// Sets a default for everything except the broker and the address.
    pub fn new(
        destination: &str,
        connection: RabbitConnection,
        exchange: RoutingTemplate,
        routing_key: RoutingTemplate,
    ) -> Self {
        Self {
            destination: destination.to_owned(),
            connection,
            exchange,
            routing_key,
            envelope: RabbitEnvelope::None,
            namespace: None,
            reply_to: None,
            timeout: Duration::from_secs(30),
        }
    }
}

/// Sends messages to exchanges of one broker.
///
/// ```
/// use relais_connect::rabbitmq::{RabbitConnection, RabbitPublisher, RabbitPublisherSettings};
///
/// let connection = RabbitConnection::new("amqps://relais:secret@rabbit.example/%2f")?;
/// let (exchange, routing_key) = ("orders".parse()?, "{{event_type}}".parse()?);
/// let settings = RabbitPublisherSettings::new("orders", connection, exchange, routing_key);
/// let publisher = RabbitPublisher::new(settings)?;
/// assert_eq!(format!("{publisher:?}"), r#"RabbitPublisher("orders")"#);
/// # Ok::<(), String>(())
/// ```
///
/// Messages are persistent and mandatory: one that no queue receives is rejected with the broker's
/// reason. It connects with the first message, and again after a failure.
pub struct RabbitPublisher {
    name: String,
    connection: RabbitConnection,
    format: MessageFormat,
    /// Time limit of a call, less than that of the destination.
    patience: Duration,
    /// The connection, once it is open. A failed one is replaced by an empty cell.
    open: Mutex<Arc<OnceCell<Arc<OpenConnection>>>>,
}

impl RabbitPublisher {
    /// Validates the settings, without connecting. The error says which setting to change.
    pub fn new(settings: RabbitPublisherSettings) -> Result<Self, InvalidSettings> {
        let RabbitPublisherSettings {
            destination: name,
            connection,
            exchange,
            routing_key,
            envelope,
            namespace,
            reply_to,
            timeout,
        } = settings;
        connection.validate()?;
        if envelope == RabbitEnvelope::MassTransit && namespace.is_none() {
            return Err("no namespace; MassTransit needs the one of its message types".into());
        }
        let namespace = namespace.unwrap_or_default();
        let format = MessageFormat { exchange, routing_key, envelope, namespace, reply_to };
        let patience = timeout.saturating_sub(MARGIN_MAX.min(timeout / 4));
        Ok(Self { name, connection, format, patience, open: Mutex::default() })
    }

    pub(super) fn format(&self) -> &MessageFormat {
        &self.format
    }

    /// Returns whose fault an unknown exchange is.
    pub(super) fn address(&self) -> RabbitAddress {
        if self.format.exchange.is_fixed() {
            RabbitAddress::Fixed
        } else {
            RabbitAddress::OfMessage
        }
    }

    /// Returns whose fault it is if no queue is bound for exchange and routing key.
    pub(super) fn route(&self) -> RabbitAddress {
        if self.format.routing_key.is_fixed() { self.address() } else { RabbitAddress::OfMessage }
    }

    /// Returns the open connection; opens one if there is none. The error is the delivery of every
    /// message that waits for it.
    pub(super) async fn open(&self, deadline: Instant) -> Result<Arc<OpenConnection>, Delivery> {
        let cell = self.usable_cell();
        let opening = cell.get_or_try_init(|| async {
            let opened = self.connection.open(&self.name).await;
            opened.map(Arc::new).map_err(|error| {
                RabbitFailure::of_open(&error, self.connection.url.is_tls())
                    .delivery(self.address())
            })
        });
        match tokio::time::timeout_at(deadline, opening).await {
            Ok(opened) => opened.map(Arc::clone),
            Err(_) => Err(classify::timed_out()),
        }
    }

    fn usable_cell(&self) -> Arc<OnceCell<Arc<OpenConnection>>> {
        let mut cell = self.cell();
        if cell.get().is_some_and(|connection| !connection.is_usable()) {
            *cell = Arc::default();
        }
        Arc::clone(&cell)
    }

    fn cell(&self) -> MutexGuard<'_, Arc<OnceCell<Arc<OpenConnection>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Publisher for RabbitPublisher {
    async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery> {
        RabbitPublishCall::new(self, messages, Instant::now() + self.patience).run().await
    }

    fn batching(&self) -> Batching {
        Batching::InOrder { max: CALL_MAX }
    }

    async fn close(&self) {
        let connection = self.cell().get().cloned();
        if let Some(connection) = connection {
            connection.close().await;
        }
    }
}

impl fmt::Debug for RabbitPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RabbitPublisher").field(&self.name).finish()
    }
}
