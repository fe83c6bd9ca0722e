//! A stream as a source: a durable pull consumer with a bounded number of messages in memory.
//!
//! Invariant: a message is acknowledged only after its batch is in the database. Messages of a refused
//! batch stay here and are returned again. After a failure the server delivers again what was not
//! acknowledged, and the inbox recognises duplicates; newer messages wait for them. See `session`. After
//! repeated failures at one position they are read from the stream instead. See `reread`.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use relais_core::{
    InvalidSettings, async_trait,
    extract::Mapping,
    inbox::AcceptOutcome,
    source::{Source, SourceBatch, SourceError},
};

use super::{
    NatsConnection, NatsEnvelope, NatsStart,
    api::ConsumerPlan,
    classify::NatsFailure,
    delivery::{StreamFormat, StreamMessage},
    pull::PullEvent,
    reread::LossCount,
    session::PullSession,
};
use crate::{
    held::HeldMessages,
    nats_settings::{
        ACK_WAIT_DEFAULT, MAX_ACK_PENDING_DEFAULT, PREFETCH_BYTES_DEFAULT, PREFETCH_DEFAULT,
    },
    prefetch::PrefetchLimit,
};

/// Status messages that may be in an inbox besides the messages.
const STATUS_MAX: usize = 1_024;

/// The settings of a [`NatsSource`]. Start from [`NatsSourceSettings::new`].
#[derive(Clone, Debug)]
pub struct NatsSourceSettings {
    /// The name of the source, shown in the server's list of connections.
    pub name: String,
    /// The connection to the servers.
    pub connection: NatsConnection,
    /// The stream; it must exist.
    pub stream: String,
    /// The durable consumer; it is created if it does not exist.
    pub consumer: String,
    /// The decoder and the places of ids in its messages.
    pub mapping: Mapping,
    /// Of a consumer that is created: only messages of this subject.
    pub filter: Option<String>,
    /// Of a consumer that is created: its first message.
    pub start: NatsStart,
    /// Of a consumer that is created: the time without a sign of life after which a message is
    /// delivered again.
    pub ack_wait: Duration,
    /// Of a consumer that is created: the most messages of all processes without acknowledgement.
    pub max_ack_pending: u32,
    /// The most messages that the server sends ahead of their acknowledgement.
    pub prefetch: u16,
    /// The same in bytes: if messages are large, fewer are sent ahead.
    pub prefetch_bytes: usize,
    /// The envelope that producers put around the payload.
    pub envelope: NatsEnvelope,
    /// The JetStream domain of the stream.
    pub domain: Option<String>,
}

impl NatsSourceSettings {
    /// Sets a default for everything except these.
    pub fn new(
        name: &str,
        connection: NatsConnection,
        stream: &str,
        consumer: &str,
        mapping: Mapping,
    ) -> Self {
        Self {
            name: name.to_owned(),
            connection,
            stream: stream.to_owned(),
            consumer: consumer.to_owned(),
            mapping,
            filter: None,
            start: NatsStart::All,
            ack_wait: ACK_WAIT_DEFAULT,
            max_ack_pending: MAX_ACK_PENDING_DEFAULT,
            prefetch: u16::try_from(PREFETCH_DEFAULT).unwrap_or(u16::MAX),
            prefetch_bytes: PREFETCH_BYTES_DEFAULT,
            envelope: NatsEnvelope::None,
            domain: None,
        }
    }

    pub(super) fn plan(&self) -> ConsumerPlan {
        ConsumerPlan {
            stream: self.stream.clone(),
            consumer: self.consumer.clone(),
            domain: self.domain.clone(),
            filter: self.filter.clone(),
            start: self.start,
            ack_wait: self.ack_wait,
            max_ack_pending: self.max_ack_pending,
        }
    }
}

/// The state of a source; it stays valid after the source is moved.
#[derive(Debug, Default)]
pub struct NatsSourceState {
    connected: AtomicBool,
}

impl NatsSourceState {
    /// Returns whether the source is connected to its consumer.
    pub fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }
}

/// Reads a stream of JetStream.
///
/// ```
/// use relais_connect::nats::{NatsConnection, NatsSource, NatsSourceSettings};
/// use relais_core::extract::{Mapping, Pick};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mapping = Mapping::json("shop")
///     .message_id(Pick::header("Nats-Msg-Id"))
///     .event_type(Pick::header("event-type"));
/// let connection = NatsConnection::new("nats://localhost")?;
/// let settings = NatsSourceSettings::new("orders", connection, "ORDERS", "relais", mapping);
/// let source = NatsSource::new(settings)?;
/// # let _ = source;
/// # Ok(())
/// # }
/// ```
///
/// Several processes may read one consumer. For order by key one process reads it, or each process
/// reads a consumer with its own part of the subjects.
pub struct NatsSource {
    name: String,
    connection: NatsConnection,
    plan: ConsumerPlan,
    format: StreamFormat,
    prefetch_max: usize,
    prefetch: PrefetchLimit,
    state: Arc<NatsSourceState>,
    session: Option<PullSession>,
    losses: LossCount,
    /// Received and not acknowledged.
    held: HeldMessages<StreamMessage>,
}

impl NatsSource {
    /// Validates the settings as far as possible without a server. Connects at the first `next`.
    pub fn new(settings: NatsSourceSettings) -> Result<Self, InvalidSettings> {
        let plan = settings.plan();
        let NatsSourceSettings {
            name,
            connection,
            stream,
            consumer,
            mapping,
            prefetch,
            prefetch_bytes,
            envelope,
            ..
        } = settings;
        connection.validate()?;
        if stream.is_empty() || consumer.is_empty() {
            return Err("no stream or consumer; set `stream` and `consumer` to their names".into());
        }
        Ok(Self {
            name,
            connection,
            plan,
            format: StreamFormat { mapping, envelope },
            prefetch_max: usize::from(prefetch.max(1)),
            prefetch: PrefetchLimit::new(prefetch, prefetch_bytes),
            state: Arc::default(),
            session: None,
            losses: LossCount::default(),
            held: HeldMessages::default(),
        })
    }

    /// Returns the state; it stays valid after the source is moved.
    pub fn state(&self) -> Arc<NatsSourceState> {
        Arc::clone(&self.state)
    }

    /// Connects to the consumer if there is no connection.
    async fn ensure_session(&mut self) -> Result<(), SourceError> {
        if self.session.is_some() {
            return Ok(());
        }
        let capacity = self.prefetch_max + STATUS_MAX;
        let (plan, connection, losses) = (&self.plan, &self.connection, &mut self.losses);
        let opening = PullSession::open(plan, connection, &self.name, capacity, losses);
        match opening.await {
            Ok(session) => {
                let (stream, consumer) = (&self.plan.stream, &self.plan.consumer);
                tracing::debug!(source = self.name, stream, consumer, "started reading");
                self.session = Some(session);
                self.state.connected.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(why) => Err(SourceError::Unavailable(format!(
                "cannot read stream `{}`: {why}",
                self.plan.stream
            ))),
        }
    }

    /// Takes what has arrived, without waiting, and asks for more as far as memory allows.
    async fn collect(&mut self, max: usize) -> Result<(), NatsFailure> {
        if self.reread(max).await? {
            return Ok(());
        }
        self.receive()?;
        self.ask().await
    }

    /// Takes what has arrived, without waiting.
    fn receive(&mut self) -> Result<(), NatsFailure> {
        while let Some(event) = self.session.as_mut().and_then(PullSession::arrived) {
            self.hold(event)?;
        }
        let released = self.session.as_mut().map(PullSession::released).unwrap_or_default();
        released.into_iter().for_each(|message| self.held.push(message));
        Ok(())
    }

    /// Keeps the message of an event, unless it is here already or must wait for older ones.
    fn hold(&mut self, event: PullEvent) -> Result<(), NatsFailure> {
        let message = match event {
            PullEvent::Message(message) => self.format.read(*message),
            PullEvent::Alive | PullEvent::Ended | PullEvent::Refused => None,
            PullEvent::Failed(failure) => return Err(failure),
        };
        let (Some(message), Some(session)) = (message, &mut self.session) else { return Ok(()) };
        self.prefetch.note(message.bytes);
        session.receive(message).into_iter().for_each(|message| self.held.push(message));
        Ok(())
    }

    /// Waits for a message after those that are being stored. Asks for none: cancelled at that, the request would
    /// count as open.
    async fn receive_ahead(&mut self) -> Result<(), NatsFailure> {
        loop {
            self.receive()?;
            if self.held.has_fresh() {
                return Ok(());
            }
            if !self.session.as_ref().is_some_and(PullSession::is_asking) {
                return std::future::pending().await;
            }
            self.wait().await?;
        }
    }

    /// Asks for as many messages as fit beside those that are held.
    async fn ask(&mut self) -> Result<(), NatsFailure> {
        let limit = usize::from(self.prefetch.messages());
        match &mut self.session {
            Some(session) => session.ask(limit, self.held.len()).await,
            None => Ok(()),
        }
    }

    /// Reads open messages from the stream, if the session began with that. Returns whether there are
    /// some: they are acknowledged before others are asked for.
    async fn reread(&mut self, max: usize) -> Result<bool, NatsFailure> {
        let Some(session) = self.session.as_mut().filter(|session| session.is_rereading()) else {
            return Ok(false);
        };
        while self.held.len() < max.min(usize::from(self.prefetch.messages())) {
            let Some(message) = session.reread(&self.format, &mut self.losses).await? else {
                break;
            };
            self.prefetch.note(message.bytes);
            self.held.push(message);
        }
        if self.held.is_empty() {
            session.end_reread().await?;
        }
        Ok(!self.held.is_empty())
    }

    /// Waits until something has arrived.
    async fn wait(&mut self) -> Result<(), NatsFailure> {
        let Some(session) = &mut self.session else { return Ok(()) };
        let event = session.wait().await?;
        self.hold(event)
    }

    /// Ends a session that has failed.
    fn lose(&mut self, failure: &NatsFailure) -> SourceError {
        self.session = None;
        self.losses.lost();
        self.forget();
        let (stream, why) = (&self.plan.stream, &failure.problem.message);
        let advice = self.losses.advice(stream).unwrap_or_default();
        SourceError::Unavailable(format!("stopped reading stream `{stream}`: {why}{advice}"))
    }

    /// Forgets what was received: the server delivers it again.
    fn forget(&mut self) {
        self.held.clear();
        self.state.connected.store(false, Ordering::Relaxed);
    }

    /// Disconnects. What was not acknowledged goes back to the consumer.
    async fn leave(&mut self) {
        let held = self.held.take();
        self.forget();
        if let Some(session) = self.session.take() {
            session.leave(held).await;
        }
    }
}

#[async_trait]
impl Source for NatsSource {
    async fn next(&mut self, max: usize) -> Result<SourceBatch, SourceError> {
        let max = max.max(1);
        // Neither acknowledged nor refused: it is returned again.
        self.held.take_back();
        self.ensure_session().await?;
        loop {
            if let Err(failure) = self.collect(max).await {
                return Err(self.lose(&failure));
            }
            if !self.held.is_empty() {
                break;
            }
            if let Err(failure) = self.wait().await {
                return Err(self.lose(&failure));
            }
        }
        Ok(self.held.next_batch(max))
    }

    async fn read_ahead(&mut self, max: usize) -> Result<SourceBatch, SourceError> {
        // The batch before belongs to this session: only `next` may open another one. It also decides about
        // messages that wait for older ones.
        if !self.session.as_ref().is_some_and(PullSession::is_in_order) {
            return std::future::pending().await;
        }
        if let Err(failure) = self.receive_ahead().await {
            return Err(self.lose(&failure));
        }
        Ok(self.held.next_batch(max.max(1)))
    }

    async fn acknowledge(&mut self, _accepted: Vec<AcceptOutcome>) -> Result<(), SourceError> {
        let settled = self.held.settle();
        let Some(session) = self.session.as_ref().filter(|_| !settled.is_empty()) else {
            return Ok(());
        };
        let (mut acknowledged, is_in_order) =
            (session.acknowledge(&settled).await, session.is_in_order());
        if acknowledged.is_ok() && is_in_order {
            acknowledged = self.ask().await;
        }
        acknowledged.map_err(|failure| self.lose(&failure))
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

impl fmt::Debug for NatsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NatsSource").field(&self.name).finish()
    }
}
