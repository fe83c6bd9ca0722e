//! The links of a publisher: one per address and call, kept for the next call.
//!
//! Invariant: a link belongs to one call at a time. A link with unanswered messages is dropped, never
//! kept.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use fe2o3_amqp::{Sender, link::SendError};
use fe2o3_amqp_types::{
    definitions::SenderSettleMode,
    messaging::Target,
    primitives::{Array, Symbol},
};
use uuid::Uuid;

use super::{
    classify::AmqpFailure,
    connection::{AmqpOpenError, CONNECT_MAX, OpenAmqpConnection},
    peer::AmqpPeer,
};

/// Links that wait for the next call.
const IDLE_MAX: usize = 64;

/// A connection with its links for sending.
pub(crate) struct SendingConnection {
    connection: OpenAmqpConnection,
    /// A capability that links ask for.
    capability: Option<String>,
    idle: Mutex<HashMap<String, Vec<Sender>>>,
}

impl SendingConnection {
    pub(crate) async fn open(
        peer: &AmqpPeer,
        name: &str,
        capability: Option<String>,
    ) -> Result<Self, AmqpOpenError> {
        let connection = peer.open(name).await?;
        Ok(Self { connection, capability, idle: Mutex::default() })
    }

    pub(crate) fn is_usable(&self) -> bool {
        self.connection.is_usable()
    }

    /// Returns a link to the address. The caller gives it back if it is free of unanswered messages,
    /// and drops it otherwise.
    pub(crate) async fn link(&self, address: &str) -> Result<Sender, AmqpFailure> {
        if let Some(link) = self.take_idle(address) {
            return Ok(link);
        }
        let mut target = Target::builder().address(address);
        if let Some(capability) = &self.capability {
            target = target.capabilities(Array(vec![Symbol::from(capability.as_str())]));
        }
        let mut session = self.connection.session().await;
        let attaching = Sender::builder()
            .name(format!("relais-{}", Uuid::now_v7()))
            .target(target.build())
            .sender_settle_mode(SenderSettleMode::Unsettled)
            .attach(&mut *session);
        match tokio::time::timeout(CONNECT_MAX, attaching).await {
            Ok(attached) => attached.map_err(|error| AmqpFailure::of_sender(&error)),
            Err(_) => Err(AmqpFailure::of_open(&AmqpOpenError::TimedOut)),
        }
    }

    pub(crate) fn give_back(&self, address: &str, link: Sender) {
        let mut idle = self.idle();
        if idle.values().map(Vec::len).sum::<usize>() < IDLE_MAX {
            idle.entry(address.to_owned()).or_default().push(link);
        }
    }

    /// Closes the links and the connection.
    pub(crate) async fn close(&self) {
        self.idle().clear();
        self.connection.close().await;
    }

    fn take_idle(&self, address: &str) -> Option<Sender> {
        self.idle().get_mut(address)?.pop()
    }

    fn idle(&self) -> MutexGuard<'_, HashMap<String, Vec<Sender>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether an error is of a link that the broker ended while it was idle.
pub(crate) fn is_stale(error: &SendError) -> bool {
    matches!(error, SendError::Detached(_) | SendError::LinkStateError(_))
}
