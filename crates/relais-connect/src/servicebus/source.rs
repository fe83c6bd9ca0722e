//! A queue or subscription of Service Bus as a source.
//!
//! Invariant: with sessions, each link has one session at a time, which no other receiver has. A batch
//! is of one link; the others keep what they have received until it is settled.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::select_all;
use relais_core::{
    InvalidSettings, async_trait,
    extract::Mapping,
    inbox::AcceptOutcome,
    source::{Source, SourceBatch, SourceError},
};

use super::{AmqpEnvelope, ServiceBusConnection, WithoutId};
use crate::{
    amqp::{AmqpSource, AmqpSourceState, delivery::AmqpDeliveryFormat, receiving::LinkPlan},
    amqp_settings::PREFETCH_BYTES_DEFAULT,
    prefetch::PrefetchLimit,
    servicebus_settings::{PREFETCH_DEFAULT, SESSION_IDLE_DEFAULT, SESSIONS_DEFAULT},
};

/// The settings of a [`ServiceBusSource`]. Start from [`ServiceBusSourceSettings::new`].
#[derive(Clone, Debug)]
pub struct ServiceBusSourceSettings {
    /// The name of the source, a part of the container id.
    pub name: String,
    /// The namespace.
    pub connection: ServiceBusConnection,
    /// `QUEUE`, `TOPIC/Subscriptions/NAME`, or either with `/$deadletterqueue`.
    pub address: String,
    /// The decoder and the places of ids in its messages.
    pub mapping: Mapping,
    /// The most sessions at a time; `None` for a queue without sessions.
    pub sessions: Option<usize>,
    /// A session without messages for this time is given back.
    pub session_idle: Duration,
    /// The most messages that are sent ahead of their settlement, per link.
    pub prefetch: u16,
    /// The same in bytes: if messages are large, fewer are sent ahead.
    pub prefetch_bytes: usize,
    /// The envelope that producers put around the payload.
    pub envelope: AmqpEnvelope,
    /// The id of a message that carries none.
    pub without_id: WithoutId,
}

impl ServiceBusSourceSettings {
    /// Sets a default for everything except these.
    pub fn new(
        name: &str,
        connection: ServiceBusConnection,
        address: &str,
        mapping: Mapping,
    ) -> Self {
        Self {
            name: name.to_owned(),
            connection,
            address: address.to_owned(),
            mapping,
            sessions: None,
            session_idle: SESSION_IDLE_DEFAULT,
            prefetch: u16::try_from(PREFETCH_DEFAULT).unwrap_or(u16::MAX),
            prefetch_bytes: PREFETCH_BYTES_DEFAULT,
            envelope: AmqpEnvelope::None,
            without_id: WithoutId::Hash,
        }
    }

    /// Reads by session, up to the default number at a time.
    #[must_use]
    pub fn with_sessions(self) -> Self {
        Self { sessions: usize::try_from(SESSIONS_DEFAULT).ok(), ..self }
    }
}

/// The state of a source; it stays valid after the source is moved.
#[derive(Debug)]
pub struct ServiceBusSourceState {
    links: Vec<Arc<AmqpSourceState>>,
}

impl ServiceBusSourceState {
    /// Returns whether the source has a link. Without messages a source with sessions has none.
    pub fn is_connected(&self) -> bool {
        self.links.iter().any(|link| link.is_connected())
    }
}

/// Reads a queue or subscription of Service Bus.
///
/// ```
/// use relais_connect::servicebus::{
///     ServiceBusConnection, ServiceBusSource, ServiceBusSourceSettings,
/// };
/// use relais_core::extract::{Mapping, Pick};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let connection = ServiceBusConnection::new(
///     "Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=relais;SharedAccessKey=secret",
/// )?;
/// let mapping = Mapping::json("shop").event_type(Pick::header("subject"));
/// let settings = ServiceBusSourceSettings::new("orders", connection, "orders", mapping);
/// let source = ServiceBusSource::new(settings.with_sessions())?;
/// # let _ = source;
/// # Ok(())
/// # }
/// ```
pub struct ServiceBusSource {
    name: String,
    links: Vec<AmqpSource>,
    /// The link of the last batch.
    active: usize,
    /// The last batch was not settled: it is returned again before any other.
    is_open: bool,
}

impl ServiceBusSource {
    /// Validates the settings as far as possible without a connection. Connects at the first `next`.
    pub fn new(settings: ServiceBusSourceSettings) -> Result<Self, InvalidSettings> {
        let ServiceBusSourceSettings {
            name,
            connection,
            address,
            mapping,
            sessions,
            session_idle,
            prefetch,
            prefetch_bytes,
            envelope,
            without_id,
        } = settings;
        let peer = connection.peer(&address)?;
        let session_idle = sessions.map(|_| session_idle);
        let plan = LinkPlan { address: address.clone(), capability: None, session_idle };
        let format = AmqpDeliveryFormat { address, mapping, envelope, without_id };
        let count = sessions.unwrap_or(1).max(1);
        let one = || {
            let prefetch = PrefetchLimit::new(prefetch, prefetch_bytes / count);
            AmqpSource::of_peer(name.clone(), peer.clone(), plan.clone(), format.clone(), prefetch)
        };
        let links = (0..count).map(|_| one()).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { name, links, active: 0, is_open: false })
    }

    /// Returns the state; it stays valid after the source is moved.
    pub fn state(&self) -> ServiceBusSourceState {
        ServiceBusSourceState { links: self.links.iter().map(AmqpSource::state).collect() }
    }
}

#[async_trait]
impl Source for ServiceBusSource {
    async fn next(&mut self, max: usize) -> Result<SourceBatch, SourceError> {
        // Fair: the link after the last one is asked first. A dropped `next` loses nothing.
        let count = self.links.len();
        let first = if self.is_open { self.active } else { (self.active + 1) % count };
        let (low, high) = self.links.split_at_mut(first);
        let waiting = high.iter_mut().chain(low).map(|link| link.next(max));
        let (batch, at, others) = select_all(waiting).await;
        drop(others);
        self.active = (first + at) % count;
        self.is_open = batch.is_ok();
        batch
    }

    async fn acknowledge(&mut self, accepted: Vec<AcceptOutcome>) -> Result<(), SourceError> {
        self.is_open = false;
        self.links[self.active].acknowledge(accepted).await
    }

    async fn refuse(&mut self, reason: String) {
        self.links[self.active].refuse(reason).await;
    }

    async fn pause(&mut self) {
        self.close().await;
    }

    async fn close(&mut self) {
        self.is_open = false;
        futures_util::future::join_all(self.links.iter_mut().map(|link| link.close())).await;
    }
}

impl fmt::Debug for ServiceBusSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServiceBusSource").field(&self.name).finish()
    }
}
