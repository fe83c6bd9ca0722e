//! An address as a source: a receiving link with bounded credit.
//!
//! Invariant: a delivery is settled only after its batch is in the database, and only on the link that
//! delivered it. Deliveries of a refused batch stay here and are returned again; they never go back to
//! the broker, where each return counts as a delivery. After a failure the broker delivers again what
//! was not settled, and the inbox recognises duplicates.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use fe2o3_amqp::link::delivery::Delivery;
use fe2o3_amqp_types::{messaging::Body, primitives::Value};
use relais_core::{
    InvalidSettings, async_trait,
    extract::{Mapping, Pick},
    inbox::AcceptOutcome,
    source::{Source, SourceBatch, SourceError},
};
use tokio::task::JoinHandle;

use super::{
    AmqpConnection, AmqpEnvelope, WithoutId,
    classify::AmqpFailure,
    delivery::{AmqpDeliveryFormat, HeldAmqpDelivery},
    peer::AmqpPeer,
    receiving::{LinkPlan, ReceivingLink},
};
use crate::{
    amqp_settings::{PREFETCH_BYTES_DEFAULT, PREFETCH_DEFAULT},
    held::HeldMessages,
    prefetch::PrefetchLimit,
};

/// The settings of an [`AmqpSource`]. Start from [`AmqpSourceSettings::new`].
#[derive(Clone, Debug)]
pub struct AmqpSourceSettings {
    /// The name of the source, a part of the container id that brokers show.
    pub name: String,
    /// The connection to the broker.
    pub connection: AmqpConnection,
    /// The queue, or another address that the broker can send from.
    pub address: String,
    /// A capability of the address, for brokers that need it.
    pub capability: Option<String>,
    /// The decoder and the places of ids in its messages.
    pub mapping: Mapping,
    /// The most messages that the broker sends ahead of their settlement.
    pub prefetch: u16,
    /// The same in bytes: if messages are large, fewer are sent ahead.
    pub prefetch_bytes: usize,
    /// The envelope that producers put around the payload.
    pub envelope: AmqpEnvelope,
    /// The id of a message that carries none.
    pub without_id: WithoutId,
}

impl AmqpSourceSettings {
    /// Sets a default for everything except these.
    pub fn new(name: &str, connection: AmqpConnection, address: &str, mapping: Mapping) -> Self {
        Self {
            name: name.to_owned(),
            connection,
            address: address.to_owned(),
            capability: None,
            mapping,
            prefetch: u16::try_from(PREFETCH_DEFAULT).unwrap_or(u16::MAX),
            prefetch_bytes: PREFETCH_BYTES_DEFAULT,
            envelope: AmqpEnvelope::None,
            without_id: WithoutId::Hash,
        }
    }
}

/// The state of a source; it stays valid after the source is moved.
#[derive(Debug, Default)]
pub struct AmqpSourceState {
    connected: AtomicBool,
}

impl AmqpSourceState {
    /// Returns whether the source has a link at the broker.
    pub fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }
}

/// Reads an address of an AMQP 1.0 broker.
///
/// ```
/// use relais_connect::amqp::{AmqpConnection, AmqpSource, AmqpSourceSettings};
/// use relais_core::extract::{Mapping, Pick};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mapping = Mapping::json("shop").event_type(Pick::header("subject"));
/// let connection = AmqpConnection::new("amqp://localhost")?;
/// let settings = AmqpSourceSettings::new("orders", connection, "orders", mapping);
/// let source = AmqpSource::new(settings)?;
/// # let _ = source;
/// # Ok(())
/// # }
/// ```
///
/// Several processes may read one queue. For order by key use message groups of the broker, or an
/// exclusive consumer.
pub struct AmqpSource {
    name: String,
    peer: AmqpPeer,
    plan: LinkPlan,
    format: AmqpDeliveryFormat,
    prefetch: PrefetchLimit,
    state: Arc<AmqpSourceState>,
    /// The task that opens the link; a cancelled call of `next` leaves it running.
    opening: Option<JoinHandle<Result<ReceivingLink, AmqpFailure>>>,
    link: Option<ReceivingLink>,
    /// Received and not settled.
    held: HeldMessages<HeldAmqpDelivery>,
}

impl AmqpSource {
    /// Validates the settings as far as possible without a broker. Connects at the first `next`.
    pub fn new(settings: AmqpSourceSettings) -> Result<Self, InvalidSettings> {
        let AmqpSourceSettings {
            name,
            connection,
            address,
            capability,
            mapping,
            prefetch,
            prefetch_bytes,
            envelope,
            without_id,
        } = settings;
        if address.is_empty() {
            return Err("no address; set `address` to the name of a queue".into());
        }
        let plan = LinkPlan { address: address.clone(), capability, session_idle: None };
        let format = AmqpDeliveryFormat { address, mapping, envelope, without_id };
        let prefetch = PrefetchLimit::new(prefetch, prefetch_bytes);
        Self::of_peer(name, connection.peer()?, plan, format, prefetch)
    }

    pub(crate) fn of_peer(
        name: String,
        peer: AmqpPeer,
        plan: LinkPlan,
        format: AmqpDeliveryFormat,
        prefetch: PrefetchLimit,
    ) -> Result<Self, InvalidSettings> {
        if format.mapping.message_id == Pick::Position {
            return Err("AMQP has no positions; set `message_id` to another place".into());
        }
        Ok(Self {
            name,
            peer,
            plan,
            format,
            prefetch,
            state: Arc::default(),
            opening: None,
            link: None,
            held: HeldMessages::default(),
        })
    }

    /// Returns the state; it stays valid after the source is moved.
    pub fn state(&self) -> Arc<AmqpSourceState> {
        Arc::clone(&self.state)
    }

    /// Opens the link if there is none, or if the size of messages demands less credit.
    async fn ensure_link(&mut self) -> Result<(), SourceError> {
        if let Some(link) = &self.link {
            let wanted = u32::from(self.prefetch.messages());
            if link.credit() <= wanted || !self.held.is_empty() {
                return Ok(());
            }
            self.leave().await;
        }
        if self.opening.is_none() {
            self.opening = Some(self.open());
        }
        let Some(opening) = &mut self.opening else { return Err(SourceError::Closed) };
        let mut opened = opening.await;
        self.opening = None;
        while self.plan.session_idle.is_some()
            && matches!(&opened, Ok(Err(failure)) if failure.is_without_session())
        {
            opened = self.opening.insert(self.open()).await;
            self.opening = None;
        }
        let address = &self.plan.address;
        match opened {
            Ok(Ok(link)) => {
                tracing::debug!(source = self.name, address, "started reading");
                self.link = Some(link);
                self.state.connected.store(true, Ordering::Relaxed);
                Ok(())
            }
            Ok(Err(failure)) => Err(SourceError::Unavailable(format!(
                "cannot read `{address}`: {}",
                failure.problem.message
            ))),
            Err(_) => {
                Err(SourceError::Unavailable(format!("cannot read `{address}`: interrupted")))
            }
        }
    }

    fn open(&self) -> JoinHandle<Result<ReceivingLink, AmqpFailure>> {
        let (peer, name, plan) = (self.peer.clone(), self.name.clone(), self.plan.clone());
        tokio::spawn(async move { ReceivingLink::open(&peer, &name, &plan).await })
    }

    /// Moves what has arrived to `held`, without waiting for more, except for the first delivery. A
    /// session without messages ends with nothing in `held`.
    async fn collect(&mut self, max: usize) -> Result<(), AmqpFailure> {
        while self.held.has_room(max) {
            self.give_credit().await?;
            let Some(link) = &mut self.link else { return Ok(()) };
            let delivery = if self.held.is_empty() {
                // Cancelled here, the delivery stays in the link.
                match self.plan.session_idle {
                    None => link.next().await?,
                    Some(idle) => match tokio::time::timeout(idle, link.next()).await {
                        Ok(delivery) => delivery?,
                        Err(_) => return Ok(()),
                    },
                }
            } else {
                match link.arrived().await? {
                    Some(delivery) => delivery,
                    None => return Ok(()),
                }
            };
            self.hold(delivery);
        }
        Ok(())
    }

    /// Waits for a delivery after those that are being stored, and moves what has arrived to `held`. Gives no
    /// credit: cancelled at that, the link would count credit that the broker does not know.
    async fn collect_ahead(&mut self, max: usize) -> Result<(), AmqpFailure> {
        while self.held.has_room(max) {
            let Some(link) = &mut self.link else { return Ok(()) };
            let delivery = match self.held.has_fresh() {
                // Cancelled here, the delivery stays in the link.
                false => link.next().await?,
                true => match link.arrived().await? {
                    Some(delivery) => delivery,
                    None => return Ok(()),
                },
            };
            self.hold(delivery);
        }
        Ok(())
    }

    /// Lets the broker send as many messages as fit beside those that are held.
    async fn give_credit(&mut self) -> Result<(), AmqpFailure> {
        let ahead = usize::from(self.prefetch.messages()).saturating_sub(self.held.len());
        match &mut self.link {
            Some(link) => link.allow(u32::try_from(ahead).unwrap_or(u32::MAX)).await,
            None => Ok(()),
        }
    }

    fn hold(&mut self, delivery: Delivery<Body<Value>>) {
        let held = self.format.held(delivery);
        self.prefetch.note(held.bytes);
        self.held.push(held);
    }

    /// Ends a link that has failed.
    fn lose(&mut self, failure: &AmqpFailure) -> SourceError {
        self.link = None;
        self.forget();
        let (address, why) = (&self.plan.address, &failure.problem.message);
        SourceError::Unavailable(format!("stopped reading `{address}`: {why}"))
    }

    /// Forgets what the link delivered: the broker delivers it again.
    fn forget(&mut self) {
        self.held.clear();
        self.state.connected.store(false, Ordering::Relaxed);
    }

    /// Disconnects.
    async fn leave(&mut self) {
        self.forget();
        if let Some(opening) = self.opening.take() {
            opening.abort();
        }
        if let Some(link) = self.link.take() {
            link.close().await;
        }
    }
}

#[async_trait]
impl Source for AmqpSource {
    async fn next(&mut self, max: usize) -> Result<SourceBatch, SourceError> {
        let max = max.max(1);
        // Neither acknowledged nor refused: it is returned again.
        self.held.take_back();
        loop {
            self.ensure_link().await?;
            if let Err(failure) = self.collect(max).await {
                return Err(self.lose(&failure));
            }
            if !self.held.is_empty() {
                break;
            }
            // The next session.
            self.leave().await;
        }
        Ok(self.held.next_batch(max))
    }

    async fn read_ahead(&mut self, max: usize) -> Result<SourceBatch, SourceError> {
        let wanted = u32::from(self.prefetch.messages());
        // The batch before belongs to this link: only `next` may open another one, or end a session.
        let is_fit = self.plan.session_idle.is_none()
            && self.link.as_ref().is_some_and(|link| link.credit() <= wanted);
        if !is_fit {
            return std::future::pending().await;
        }
        let max = max.max(1);
        match self.collect_ahead(max).await {
            Ok(()) => Ok(self.held.next_batch(max)),
            Err(failure) => Err(self.lose(&failure)),
        }
    }

    async fn acknowledge(&mut self, _accepted: Vec<AcceptOutcome>) -> Result<(), SourceError> {
        let settled = self.held.settle();
        let Some(link) = self.link.as_ref().filter(|_| !settled.is_empty()) else { return Ok(()) };
        let accepting = link.accept(settled.into_iter().map(|held| held.info).collect());
        let settled = match accepting.await {
            Ok(()) => self.give_credit().await,
            Err(failure) => Err(failure),
        };
        settled.map_err(|failure| self.lose(&failure))
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

impl Drop for AmqpSource {
    fn drop(&mut self) {
        if let Some(opening) = &self.opening {
            opening.abort();
        }
    }
}

impl fmt::Debug for AmqpSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AmqpSource").field(&self.name).finish()
    }
}
