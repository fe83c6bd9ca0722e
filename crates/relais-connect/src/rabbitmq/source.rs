//! A queue as a source: a consumer with a bounded prefetch.
//!
//! Invariant: a delivery is acknowledged only after its batch is in the database, and only on the
//! channel that delivered it. Deliveries of a refused batch stay here and are returned again; they
//! never go back to the queue, where each return counts towards the queue's delivery limit. After a
//! failure the broker delivers again what was not acknowledged, and the inbox recognises duplicates.

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
};

use futures_core::Stream;
use lapin::{
    Channel, Consumer,
    options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions},
    types::{FieldTable, ShortString},
};
use relais_core::{
    InvalidSettings, async_trait,
    extract::{Mapping, Pick},
    inbox::AcceptOutcome,
    source::{Source, SourceBatch, SourceError},
};

use super::{
    RabbitConnection, RabbitEnvelope, WithoutId,
    classify::RabbitFailure,
    connection::{CONNECT_MAX, OpenConnection, OpenError, next_of},
    delivery::{DeliveryFormat, HeldDelivery},
};
use crate::{
    held::HeldMessages,
    prefetch::PrefetchLimit,
    rabbitmq_settings::{PREFETCH_BYTES_DEFAULT, PREFETCH_DEFAULT},
};

/// The settings of a [`RabbitSource`]. Start from [`RabbitSourceSettings::new`].
#[derive(Clone, Debug)]
pub struct RabbitSourceSettings {
    /// The name of the source, shown in RabbitMQ's list of connections.
    pub name: String,
    /// The connection to the broker.
    pub connection: RabbitConnection,
    /// The queue; it must exist.
    pub queue: String,
    /// The decoder and the places of ids in its messages.
    pub mapping: Mapping,
    /// The most messages that the broker sends ahead of their acknowledgement.
    pub prefetch: u16,
    /// The same in bytes: if messages are large, fewer are sent ahead.
    pub prefetch_bytes: usize,
    /// The envelope that producers put around the payload.
    pub envelope: RabbitEnvelope,
    /// The id of a message that carries none.
    pub without_id: WithoutId,
}

impl RabbitSourceSettings {
    /// Sets a default for everything except these.
    pub fn new(name: &str, connection: RabbitConnection, queue: &str, mapping: Mapping) -> Self {
        Self {
            name: name.to_owned(),
            connection,
            queue: queue.to_owned(),
            mapping,
            prefetch: u16::try_from(PREFETCH_DEFAULT).unwrap_or(u16::MAX),
            prefetch_bytes: PREFETCH_BYTES_DEFAULT,
            envelope: RabbitEnvelope::None,
            without_id: WithoutId::Hash,
        }
    }
}

/// The state of a source; it stays valid after the source is moved.
#[derive(Debug, Default)]
pub struct RabbitSourceState {
    connected: AtomicBool,
}

impl RabbitSourceState {
    /// Returns whether the source has a consumer at the broker.
    pub fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }
}

/// Reads a queue of RabbitMQ.
///
/// ```
/// use relais_connect::rabbitmq::{RabbitConnection, RabbitSource, RabbitSourceSettings};
/// use relais_core::extract::{Mapping, Pick};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mapping = Mapping::json("shop").event_type(Pick::header("event-type"));
/// let connection = RabbitConnection::new("amqp://localhost")?;
/// let settings = RabbitSourceSettings::new("orders", connection, "orders", mapping);
/// let source = RabbitSource::new(settings)?;
/// # let _ = source;
/// # Ok(())
/// # }
/// ```
///
/// Several processes may read one queue. For order by key use a single active consumer, or a
/// consistent-hash exchange with one queue per process.
pub struct RabbitSource {
    name: String,
    connection: RabbitConnection,
    format: DeliveryFormat,
    queue: ShortString,
    prefetch: PrefetchLimit,
    state: Arc<RabbitSourceState>,
    session: Option<ConsumerSession>,
    /// Received and not acknowledged.
    held: HeldMessages<HeldDelivery>,
}

struct ConsumerSession {
    consumer: Consumer,
    channel: Channel,
    prefetch: u16,
    connection: OpenConnection,
}

impl RabbitSource {
    /// Validates the settings as far as possible without a broker. Connects at the first `next`.
    pub fn new(settings: RabbitSourceSettings) -> Result<Self, InvalidSettings> {
        let RabbitSourceSettings {
            name,
            connection,
            queue,
            mapping,
            prefetch,
            prefetch_bytes,
            envelope,
            without_id,
        } = settings;
        connection.validate()?;
        if queue.is_empty() {
            return Err("no queue; set `queue` to its name".into());
        }
        if mapping.message_id == Pick::Position {
            return Err("RabbitMQ has no positions; set `message_id` to another place".into());
        }
        let short = ShortString::try_new(queue.as_str())
            .map_err(|_| "the name of the queue has more than 255 bytes".to_owned())?;
        Ok(Self {
            name,
            connection,
            format: DeliveryFormat { queue, mapping, envelope, without_id },
            queue: short,
            prefetch: PrefetchLimit::new(prefetch, prefetch_bytes),
            state: Arc::default(),
            session: None,
            held: HeldMessages::default(),
        })
    }

    /// Returns the state; it stays valid after the source is moved.
    pub fn state(&self) -> Arc<RabbitSourceState> {
        Arc::clone(&self.state)
    }

    /// Opens the consumer if there is none, or if the size of messages demands another prefetch.
    async fn ensure_session(&mut self) -> Result<(), SourceError> {
        let prefetch = self.prefetch.messages();
        let mut open = None;
        if let Some(session) = &self.session {
            let is_alive = session.channel.status().connected();
            let is_outgrown = self.prefetch.is_outgrown(session.prefetch) && self.held.is_empty();
            if is_alive && !is_outgrown {
                return Ok(());
            }
            self.forget();
            open = self.leave_channel().await;
        }
        match self.consume(prefetch, open).await {
            Ok(session) => {
                let queue = &self.format.queue;
                tracing::debug!(source = self.name, queue, prefetch, "started reading");
                self.session = Some(session);
                self.state.connected.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(failure) => Err(SourceError::Unavailable(format!(
                "cannot read queue `{}`: {}",
                self.format.queue, failure.problem.message
            ))),
        }
    }

    async fn consume(
        &self,
        prefetch: u16,
        open: Option<OpenConnection>,
    ) -> Result<ConsumerSession, RabbitFailure> {
        let connection = match open {
            Some(connection) => connection,
            None => {
                let is_tls = self.connection.url.is_tls();
                let opened = self.connection.open(&self.name).await;
                opened.map_err(|error| RabbitFailure::of_open(&error, is_tls))?
            }
        };
        let consuming = async {
            let channel = connection.channel().await?;
            channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
            let (tag, options) = (ShortString::default(), BasicConsumeOptions::default());
            let consuming =
                channel.basic_consume(self.queue.clone(), tag, options, FieldTable::default());
            Ok((consuming.await?, channel))
        };
        match tokio::time::timeout(CONNECT_MAX, consuming).await {
            Ok(Ok((consumer, channel))) => {
                Ok(ConsumerSession { consumer, channel, prefetch, connection })
            }
            Ok(Err(error)) => Err(RabbitFailure::of_queue(&error)),
            Err(_) => Err(RabbitFailure::of_open(&OpenError::TimedOut, false)),
        }
    }

    /// Ends the consumer. Returns its connection if that can be used again.
    async fn leave_channel(&mut self) -> Option<OpenConnection> {
        let session = self.session.take()?;
        let closing = session.channel.close(200, "another prefetch".into());
        let closed = tokio::time::timeout(CONNECT_MAX, closing).await;
        (matches!(closed, Ok(Ok(()))) && session.connection.is_usable())
            .then_some(session.connection)
    }

    /// Returns the next batch of the consumer; waits until there is one. Cancelled, it loses nothing.
    async fn next_batch(&mut self, max: usize) -> Result<SourceBatch, SourceError> {
        let max = max.max(1);
        loop {
            if let Some(end) = self.collect(max).await {
                return Err(self.lose(end.as_ref()));
            }
            if self.held.has_fresh() {
                return Ok(self.held.next_batch(max));
            }
            let Some(session) = &mut self.session else { return Err(SourceError::Closed) };
            // Cancelled here, the delivery stays in the consumer.
            match next_of(&mut session.consumer).await {
                Some(Ok(delivery)) => self.hold(delivery),
                Some(Err(error)) => return Err(self.lose(Some(&error))),
                None => return Err(self.lose(None)),
            }
        }
    }

    /// Moves what has arrived to `held`, without waiting. Returns the end of the consumer, if any.
    async fn collect(&mut self, max: usize) -> Option<Option<lapin::Error>> {
        while self.held.has_room(max) {
            let consumer = &mut self.session.as_mut()?.consumer;
            let arrived = poll_fn(|cx| match Pin::new(&mut *consumer).poll_next(cx) {
                Poll::Ready(item) => Poll::Ready(Some(item)),
                Poll::Pending => Poll::Ready(None),
            });
            match arrived.await? {
                Some(Ok(delivery)) => self.hold(delivery),
                Some(Err(error)) => return Some(Some(error)),
                None => return Some(None),
            }
        }
        None
    }

    fn hold(&mut self, delivery: lapin::message::Delivery) {
        let held = self.format.held(delivery);
        self.prefetch.note(held.bytes);
        self.held.push(held);
    }

    /// Ends a consumer that has failed.
    fn lose(&mut self, error: Option<&lapin::Error>) -> SourceError {
        self.session = None;
        self.forget();
        let why = match error {
            Some(error) => RabbitFailure::of_queue(error).problem.message,
            None => "the broker ended the consumer; the queue was deleted or moved".to_owned(),
        };
        SourceError::Unavailable(format!("stopped reading queue `{}`: {why}", self.format.queue))
    }

    /// Forgets what the consumer delivered: the broker delivers it again.
    fn forget(&mut self) {
        self.held.clear();
        self.state.connected.store(false, Ordering::Relaxed);
    }

    /// Disconnects.
    async fn leave(&mut self) {
        self.forget();
        if let Some(session) = self.session.take() {
            session.connection.close().await;
        }
    }
}

#[async_trait]
impl Source for RabbitSource {
    async fn next(&mut self, max: usize) -> Result<SourceBatch, SourceError> {
        // Neither acknowledged nor refused: it is returned again.
        self.held.take_back();
        self.ensure_session().await?;
        self.next_batch(max).await
    }

    async fn read_ahead(&mut self, max: usize) -> Result<SourceBatch, SourceError> {
        // The batch before belongs to this consumer: only `next` may open another one.
        let is_fit = |session: &ConsumerSession| !self.prefetch.is_outgrown(session.prefetch);
        if !self.session.as_ref().is_some_and(is_fit) {
            return std::future::pending().await;
        }
        self.next_batch(max).await
    }

    async fn acknowledge(&mut self, _accepted: Vec<AcceptOutcome>) -> Result<(), SourceError> {
        let settled = self.held.settle();
        let (Some(last), Some(session)) = (settled.last(), &self.session) else { return Ok(()) };
        let all_before = BasicAckOptions { multiple: true };
        match session.channel.basic_ack(last.tag, all_before).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.lose(Some(&error))),
        }
    }

    async fn refuse(&mut self, _reason: String) {
        self.held.take_back();
    }

    async fn pause(&mut self) {
        self.leave().await;
    }

    async fn close(&mut self) {
        self.leave().await;
    }
}

impl fmt::Debug for RabbitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RabbitSource").field(&self.name).finish()
    }
}
