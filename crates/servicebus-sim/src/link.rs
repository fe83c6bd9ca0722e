//! The links of a connection, and what is in flight on them.

use std::collections::HashMap;

use fe2o3_amqp_types::{
    definitions::{ReceiverSettleMode, SenderSettleMode},
    performatives::Attach,
};

/// The purpose of a link.
#[derive(Clone, Debug)]
pub(crate) enum LinkPurpose {
    /// The client sends to an entity.
    Receives { address: String },
    /// The client receives from an entity, perhaps one session of it.
    Sends { address: String, session: Option<String> },
    /// Requests to the node of claims.
    ClaimRequests,
    /// Responses of the node of claims, to this address.
    ClaimResponses { reply_to: String },
}

impl LinkPurpose {
    /// Returns the entity of the link.
    pub(crate) fn address(&self) -> Option<&str> {
        match self {
            Self::Receives { address } | Self::Sends { address, .. } => Some(address),
            Self::ClaimRequests | Self::ClaimResponses { .. } => None,
        }
    }
}

/// One attached link. Its handle is the same on both sides.
#[derive(Debug)]
pub(crate) struct SimLink {
    pub(crate) number: u64,
    pub(crate) purpose: LinkPurpose,
    pub(crate) credit: u32,
    pub(crate) delivery_count: u32,
    pub(crate) is_draining: bool,
    pub(crate) settles_first: bool,
    /// Deliveries are settled when they are sent.
    pub(crate) is_presettled: bool,
    /// Frames of a delivery that is not complete.
    pub(crate) partial: Vec<u8>,
}

impl SimLink {
    pub(crate) fn new(number: u64, purpose: LinkPurpose, attach: &Attach) -> Self {
        Self {
            number,
            purpose,
            credit: 0,
            delivery_count: 0,
            is_draining: false,
            settles_first: attach.rcv_settle_mode == ReceiverSettleMode::First,
            is_presettled: attach.snd_settle_mode == SenderSettleMode::Settled,
            partial: Vec::new(),
        }
    }
}

/// A delivery that the client has not settled.
#[derive(Debug)]
pub(crate) struct SentDelivery {
    pub(crate) address: String,
    pub(crate) token: u128,
    pub(crate) settles_first: bool,
}

/// A session: links by handle, and deliveries in flight.
#[derive(Debug, Default)]
pub(crate) struct SimSession {
    pub(crate) links: HashMap<u32, SimLink>,
    pub(crate) sent: HashMap<u32, SentDelivery>,
    pub(crate) next_incoming_id: u32,
    pub(crate) next_outgoing_id: u32,
    pub(crate) next_delivery_id: u32,
    /// The id of the delivery that the client is sending.
    pub(crate) receiving_id: u32,
}

/// A link for a session of which none is free yet.
#[derive(Debug)]
pub(crate) struct WaitingAttach {
    pub(crate) channel: u16,
    pub(crate) attach: Attach,
    pub(crate) address: String,
    /// A session by name, or the next that is free.
    pub(crate) wanted: Option<String>,
    pub(crate) number: u64,
    pub(crate) until: std::time::Instant,
}
