//! Messages to subjects of JetStream, many per call, in order per key.
//!
//! Invariant: `Accepted` means that a stream has acknowledged the message. A message starts only after
//! every earlier one of its key is acknowledged. See `call` for the messages of one call.

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
    NatsConnection, NatsEnvelope, RoutingTemplate,
    call::NatsPublishCall,
    classify::{NatsAddress, NatsFailure},
    connection::OpenNatsConnection,
    outgoing::SubjectFormat,
};

/// Maximum number of messages in one call.
const CALL_MAX: usize = 1_000;
/// The part of a call's time limit that is reserved to answer.
const MARGIN_MAX: Duration = Duration::from_secs(2);
/// Messages of a subscription; a publisher has none.
const CAPACITY: usize = 16;

/// The target of a [`NatsPublisher`]. Start from [`NatsPublisherSettings::new`].
#[derive(Clone, Debug)]
pub struct NatsPublisherSettings {
    /// The name of the destination, shown in the server's list of connections.
    pub destination: String,
    /// The connection to the servers.
    pub connection: NatsConnection,
    /// The subject of a message; a stream must have it.
    pub subject: RoutingTemplate,
    /// The envelope around the payload.
    pub envelope: NatsEnvelope,
    /// The subject to which commands ask for replies.
    pub reply_to: Option<String>,
    /// Time limit of the whole call.
    pub timeout: Duration,
}

impl NatsPublisherSettings {
    /// Sets a default for everything except the servers and the subject.
    pub fn new(destination: &str, connection: NatsConnection, subject: RoutingTemplate) -> Self {
        Self {
            destination: destination.to_owned(),
            connection,
            subject,
            envelope: NatsEnvelope::None,
            reply_to: None,
            timeout: Duration::from_secs(30),
        }
    }
}

/// Sends messages to streams of JetStream.
///
/// ```
/// use relais_connect::nats::{NatsConnection, NatsPublisher, NatsPublisherSettings};
///
/// let connection = NatsConnection::new("tls://relais:secret@nats.example:4222")?;
/// let subject = "orders.{{event_type}}".parse()?;
/// let settings = NatsPublisherSettings::new("orders", connection, subject);
/// let publisher = NatsPublisher::new(settings)?;
/// assert_eq!(format!("{publisher:?}"), r#"NatsPublisher("orders")"#);
/// # Ok::<(), String>(())
/// ```
///
/// The stable message id is in `Nats-Msg-Id`, so that the stream recognises a message that is sent
/// again. A message whose subject no stream has is rejected; if all have that subject, the destination pauses. It connects with the first message, and
/// again after a failure.
pub struct NatsPublisher {
    name: String,
    connection: NatsConnection,
    format: SubjectFormat,
    /// Time limit of a call, less than that of the destination.
    patience: Duration,
    /// The connection, once it is open. A failed one is replaced by an empty cell.
    open: Mutex<Arc<OnceCell<Arc<OpenNatsConnection>>>>,
}

impl NatsPublisher {
    /// Validates the settings, without connecting. The error says which setting to change.
    pub fn new(settings: NatsPublisherSettings) -> Result<Self, InvalidSettings> {
        let NatsPublisherSettings {
            destination: name,
            connection,
            subject,
            envelope,
            reply_to,
            timeout,
        } = settings;
        connection.validate()?;
        let format = SubjectFormat { subject, envelope, reply_to };
        let patience = timeout.saturating_sub(MARGIN_MAX.min(timeout / 4));
        Ok(Self { name, connection, format, patience, open: Mutex::default() })
    }

    pub(super) fn format(&self) -> &SubjectFormat {
        &self.format
    }

    /// Returns whose fault a refused subject is.
    pub(super) fn address(&self) -> NatsAddress {
        if self.format.subject.is_fixed() { NatsAddress::Fixed } else { NatsAddress::OfMessage }
    }

    /// Returns the open connection; opens one if there is none.
    pub(super) async fn open(
        &self,
        deadline: Instant,
    ) -> Result<Arc<OpenNatsConnection>, NatsFailure> {
        let cell = self.usable_cell();
        let opening = cell.get_or_try_init(|| async {
            let opened = self.connection.open(&self.name, CAPACITY).await;
            opened.map(Arc::new).map_err(|error| NatsFailure::of_open(&error))
        });
        match tokio::time::timeout_at(deadline, opening).await {
            Ok(opened) => opened.map(Arc::clone),
            Err(_) => Err(NatsFailure::timed_out()),
        }
    }

    /// Opens another connection for the next round.
    pub(super) fn forget(&self, connection: &Arc<OpenNatsConnection>) {
        let mut cell = self.cell();
        if cell.get().is_some_and(|open| Arc::ptr_eq(open, connection)) {
            *cell = Arc::default();
        }
    }

    fn usable_cell(&self) -> Arc<OnceCell<Arc<OpenNatsConnection>>> {
        let mut cell = self.cell();
        if cell.get().is_some_and(|connection| !connection.is_usable()) {
            *cell = Arc::default();
        }
        Arc::clone(&cell)
    }

    fn cell(&self) -> MutexGuard<'_, Arc<OnceCell<Arc<OpenNatsConnection>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Publisher for NatsPublisher {
    async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery> {
        NatsPublishCall::new(self, messages, Instant::now() + self.patience).run().await
    }

    fn batching(&self) -> Batching {
        Batching::InOrder { max: CALL_MAX }
    }

    async fn close(&self) {
        let cell = std::mem::take(&mut *self.cell());
        if let Some(connection) = cell.get() {
            connection.flush().await;
        }
    }
}

impl fmt::Debug for NatsPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NatsPublisher").field(&self.name).finish()
    }
}
