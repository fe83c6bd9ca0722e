//! A link that receives, with its connection.
//!
//! Invariant: the broker never sends more messages ahead than the credit that it was given. A link
//! settles only deliveries of its own.

use std::time::Duration;

use fe2o3_amqp::{
    Receiver,
    link::{
        RecvError,
        delivery::{Delivery, DeliveryInfo},
        receiver::CreditMode,
    },
};
use fe2o3_amqp_types::{
    definitions::{AmqpError, Error, Fields},
    messaging::{Body, Source},
    primitives::{Array, Symbol, Value},
};
use futures_util::FutureExt;
use uuid::Uuid;

use super::{
    classify::AmqpFailure,
    connection::{AmqpOpenError, CONNECT_MAX, OpenAmqpConnection},
    peer::AmqpPeer,
};

/// Time that closing a link waits for the broker.
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// Time that a broker waits for a session.
const SESSION_MAX: Duration = Duration::from_secs(30);
const SESSION_FILTER: &str = "com.microsoft:session-filter";

/// The address that a link receives from.
#[derive(Clone, Debug)]
pub(crate) struct LinkPlan {
    pub(crate) address: String,
    /// A capability that the link asks for.
    pub(crate) capability: Option<String>,
    /// The link receives one session of Service Bus, and gives it back after this time without a
    /// message.
    pub(crate) session_idle: Option<Duration>,
}

impl LinkPlan {
    fn source(&self) -> Source {
        let mut source = Source::builder().address(self.address.as_str());
        if let Some(capability) = &self.capability {
            source = source.capabilities(Array(vec![Symbol::from(capability.as_str())]));
        }
        if self.session_idle.is_some() {
            // No name: the next session that is free.
            let filter = [(Symbol::from(SESSION_FILTER), Value::Null)];
            source = source.filter(filter.into_iter().collect());
        }
        source.build()
    }

    /// Returns the time to attach: the broker waits for a session.
    fn patience(&self) -> Duration {
        if self.session_idle.is_some() { SESSION_MAX + CONNECT_MAX } else { CONNECT_MAX }
    }

    fn properties(&self) -> Option<Fields> {
        self.session_idle?;
        let millis = u32::try_from(SESSION_MAX.as_millis()).unwrap_or(u32::MAX);
        Some([(Symbol::from("com.microsoft:timeout"), Value::Uint(millis))].into_iter().collect())
    }
}

pub(crate) struct ReceivingLink {
    receiver: Receiver,
    connection: OpenAmqpConnection,
}

impl ReceivingLink {
    /// Connects and attaches. The link has no credit yet.
    pub(crate) async fn open(
        peer: &AmqpPeer,
        name: &str,
        plan: &LinkPlan,
    ) -> Result<Self, AmqpFailure> {
        let opened = peer.open(name).await;
        let connection = opened.map_err(|error| AmqpFailure::of_open(&error))?;
        let mut session = connection.session().await;
        let builder = Receiver::builder()
            .name(format!("relais-{}", Uuid::now_v7()))
            .source(plan.source())
            .credit_mode(CreditMode::Manual)
            .auto_accept(false);
        let builder = match plan.properties() {
            Some(properties) => builder.properties(properties),
            None => builder,
        };
        let attached = tokio::time::timeout(plan.patience(), builder.attach(&mut *session)).await;
        drop(session);
        let receiver = match attached {
            Ok(attached) => attached.map_err(|error| AmqpFailure::of_receiver(&error))?,
            Err(_) => return Err(AmqpFailure::of_open(&AmqpOpenError::TimedOut)),
        };
        Ok(Self { receiver, connection })
    }

    /// Returns how many messages the broker may still send.
    pub(crate) fn credit(&self) -> u32 {
        self.receiver.credit()
    }

    /// Lets the broker send up to this many messages ahead. Sends that only when it matters. Credit is
    /// never taken back: the broker may have used it, and the library counts such messages as an error.
    pub(crate) async fn allow(&mut self, credit: u32) -> Result<(), AmqpFailure> {
        let current = self.receiver.credit();
        if credit > current && current <= credit / 2 {
            let granting = self.receiver.set_credit(credit).await;
            granting.map_err(|error| AmqpFailure::of_receive(&error.into()))?;
        }
        Ok(())
    }

    /// Waits for the next delivery. Cancelled, it loses none.
    pub(crate) async fn next(&mut self) -> Result<Delivery<Body<Value>>, AmqpFailure> {
        loop {
            let received = self.receiver.recv::<Body<Value>>().await;
            if let Some(delivery) = self.checked(received).await? {
                return Ok(delivery);
            }
        }
    }

    /// Returns a delivery that has already arrived.
    pub(crate) async fn arrived(&mut self) -> Result<Option<Delivery<Body<Value>>>, AmqpFailure> {
        loop {
            let Some(received) = self.receiver.recv::<Body<Value>>().now_or_never() else {
                return Ok(None);
            };
            if let Some(delivery) = self.checked(received).await? {
                return Ok(Some(delivery));
            }
        }
    }

    /// Rejects a delivery that is no AMQP message: the broker moves it to its dead letters.
    async fn checked(
        &self,
        received: Result<Delivery<Body<Value>>, RecvError>,
    ) -> Result<Option<Delivery<Body<Value>>>, AmqpFailure> {
        match received {
            Ok(delivery) => Ok(Some(delivery)),
            Err(RecvError::MessageDecode(undecodable)) => {
                let why = undecodable.source.to_string();
                tracing::warn!(reason = why, "rejected a delivery that is no AMQP message");
                let error = Error::new(AmqpError::DecodeError, Some(why), None);
                let rejecting = self.receiver.reject(undecodable.info, error).await;
                rejecting.map_err(|error| AmqpFailure::of_receive(&error.into()))?;
                Ok(None)
            }
            Err(error) => Err(AmqpFailure::of_receive(&error)),
        }
    }

    /// Settles deliveries as accepted.
    pub(crate) async fn accept(&self, deliveries: Vec<DeliveryInfo>) -> Result<(), AmqpFailure> {
        let accepting = self.receiver.accept_all(deliveries).await;
        accepting.map_err(|error| AmqpFailure::of_receive(&error.into()))
    }

    /// Closes the link, then the connection: the broker has processed all settlements when it answers.
    pub(crate) async fn close(self) {
        let _ = tokio::time::timeout(CLOSE_MAX, self.receiver.close()).await;
        self.connection.close().await;
    }
}
