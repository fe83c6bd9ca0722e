//! Messages to the addresses of a broker, many per call, in order per key.
//!
//! Invariant: `Accepted` means that the broker has settled the message with the outcome `accepted`. A
//! message starts only after every earlier one of its key was accepted. See `call` for the messages of
//! one call.

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
    AmqpConnection, AmqpEnvelope, RoutingTemplate,
    call::AmqpPublishCall,
    classify::{self, AmqpAddress, AmqpFailure},
    links::SendingConnection,
    outgoing::AmqpMessageFormat,
    peer::AmqpPeer,
};

/// Maximum number of messages in one call.
const CALL_MAX: usize = 1_000;
/// The part of a call's time limit that is reserved to answer.
const MARGIN_MAX: Duration = Duration::from_secs(2);

/// The target of an [`AmqpPublisher`]. Start from [`AmqpPublisherSettings::new`].
#[derive(Clone, Debug)]
pub struct AmqpPublisherSettings {
    /// The name of the destination, a part of the container id that brokers show.
    pub destination: String,
    /// The connection to the broker.
    pub connection: AmqpConnection,
    /// The address that messages are sent to.
    pub address: RoutingTemplate,
    /// A capability of the address, for brokers that need it.
    pub capability: Option<String>,
    /// The envelope around the payload.
    pub envelope: AmqpEnvelope,
    /// A larger payload is rejected before it is sent.
    pub message_bytes_max: Option<usize>,
    /// The address to which commands ask for replies.
    pub reply_to: Option<String>,
    /// Time limit of the whole call.
    pub timeout: Duration,
}

impl AmqpPublisherSettings {
    /// Sets a default for everything except the broker and the address.
    pub fn new(destination: &str, connection: AmqpConnection, address: RoutingTemplate) -> Self {
        Self {
            destination: destination.to_owned(),
            connection,
            address,
            capability: None,
            envelope: AmqpEnvelope::None,
            message_bytes_max: None,
            reply_to: None,
            timeout: Duration::from_secs(30),
        }
    }
}

/// Sends messages to addresses of one broker.
///
/// ```
/// use relais_connect::amqp::{AmqpConnection, AmqpPublisher, AmqpPublisherSettings};
///
/// let connection = AmqpConnection::new("amqps://relais:secret@broker.example")?;
/// let settings = AmqpPublisherSettings::new("orders", connection, "orders".parse()?);
/// let publisher = AmqpPublisher::new(settings)?;
/// assert_eq!(format!("{publisher:?}"), r#"AmqpPublisher("orders")"#);
/// # Ok::<(), String>(())
/// ```
///
/// Messages are durable and sent unsettled: one counts as delivered only after the outcome `accepted`.
/// It connects with the first message, and again after a failure.
pub struct AmqpPublisher {
    name: String,
    peer: AmqpPeer,
    capability: Option<String>,
    format: AmqpMessageFormat,
    /// Time limit of a call, less than that of the destination.
    patience: Duration,
    /// The connection, once it is open. A failed one is replaced by an empty cell.
    open: Mutex<Arc<OnceCell<Arc<SendingConnection>>>>,
}

impl AmqpPublisher {
    /// Validates the settings, without connecting. The error says which setting to change.
    pub fn new(settings: AmqpPublisherSettings) -> Result<Self, InvalidSettings> {
        let AmqpPublisherSettings {
            destination,
            connection,
            address,
            capability,
            envelope,
            message_bytes_max,
            reply_to,
            timeout,
        } = settings;
        let schedule_header = None;
        let format =
            AmqpMessageFormat { address, envelope, message_bytes_max, schedule_header, reply_to };
        Ok(Self::of_peer(destination, connection.peer()?, capability, format, timeout))
    }

    pub(crate) fn of_peer(
        name: String,
        peer: AmqpPeer,
        capability: Option<String>,
        format: AmqpMessageFormat,
        timeout: Duration,
    ) -> Self {
        let patience = timeout.saturating_sub(MARGIN_MAX.min(timeout / 4));
        Self { name, peer, capability, format, patience, open: Mutex::default() }
    }

    pub(super) fn format(&self) -> &AmqpMessageFormat {
        &self.format
    }

    /// Returns whose fault an unknown address is.
    pub(super) fn address(&self) -> AmqpAddress {
        if self.format.address.is_fixed() { AmqpAddress::Fixed } else { AmqpAddress::OfMessage }
    }

    /// Returns the open connection; opens one if there is none. The error is the delivery of every
    /// message that waits for it.
    pub(super) async fn open(&self, deadline: Instant) -> Result<Arc<SendingConnection>, Delivery> {
        let cell = self.usable_cell();
        let opening = cell.get_or_try_init(|| async {
            let opened = SendingConnection::open(&self.peer, &self.name, self.capability.clone());
            opened
                .await
                .map(Arc::new)
                .map_err(|error| AmqpFailure::of_open(&error).delivery(self.address()))
        });
        match tokio::time::timeout_at(deadline, opening).await {
            Ok(opened) => opened.map(Arc::clone),
            Err(_) => Err(classify::timed_out()),
        }
    }

    fn usable_cell(&self) -> Arc<OnceCell<Arc<SendingConnection>>> {
        let mut cell = self.cell();
        if cell.get().is_some_and(|connection| !connection.is_usable()) {
            *cell = Arc::default();
        }
        Arc::clone(&cell)
    }

    fn cell(&self) -> MutexGuard<'_, Arc<OnceCell<Arc<SendingConnection>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Publisher for AmqpPublisher {
    async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery> {
        AmqpPublishCall::new(self, messages, Instant::now() + self.patience).run().await
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

impl fmt::Debug for AmqpPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AmqpPublisher").field(&self.name).finish()
    }
}
