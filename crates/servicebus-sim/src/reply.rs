//! Performatives that the simulator sends, as values.

use fe2o3_amqp_types::{
    definitions::{Error, ErrorCondition, Handle, Role},
    messaging::{DeliveryState, Rejected, Source},
    performatives::{Attach, Begin, Detach, Disposition, Flow, Open},
    primitives::Symbol,
};

use crate::{link::SimSession, wire::FRAME_MAX};

/// Frames that either side may send before the other answers. The tests never reach it.
const WINDOW: u32 = 0x7fff_0000;
/// Milliseconds after which the client counts as lost.
const IDLE_MS: u32 = 120_000;

pub(crate) fn open() -> Open {
    Open {
        container_id: "servicebus-sim".to_owned(),
        hostname: None,
        max_frame_size: FRAME_MAX.into(),
        channel_max: 255.into(),
        idle_time_out: Some(IDLE_MS),
        outgoing_locales: None,
        incoming_locales: None,
        offered_capabilities: None,
        desired_capabilities: None,
        properties: None,
    }
}

pub(crate) fn begin(channel: u16) -> Begin {
    Begin {
        remote_channel: Some(channel),
        next_outgoing_id: 0,
        incoming_window: WINDOW,
        outgoing_window: WINDOW,
        handle_max: Handle(255),
        offered_capabilities: None,
        desired_capabilities: None,
        properties: None,
    }
}

/// Returns the answer to an attach, with what the client asked for.
pub(crate) fn attach(asked: &Attach, message_bytes_max: u64) -> Attach {
    let (role, count) = match asked.role {
        Role::Sender => (Role::Receiver, None),
        Role::Receiver => (Role::Sender, Some(0)),
    };
    Attach {
        role,
        initial_delivery_count: count,
        unsettled: None,
        max_message_size: Some(message_bytes_max),
        ..asked.clone()
    }
}

/// Returns the answer to an attach that is refused: the detach with the reason follows it.
pub(crate) fn refused(asked: &Attach) -> Attach {
    let mut answer = attach(asked, 0);
    match asked.role {
        Role::Sender => answer.target = None,
        Role::Receiver => answer.source = None::<Box<Source>>,
    }
    answer
}

pub(crate) fn detach(handle: u32, error: Option<(&str, String)>) -> Detach {
    let error = error.map(|(condition, text)| broker_error(condition, text));
    Detach { handle: Handle(handle), closed: true, error }
}

pub(crate) fn broker_error(condition: &str, text: String) -> Error {
    Error::new(ErrorCondition::Custom(Symbol::from(condition)), Some(text), None)
}

pub(crate) fn flow(session: &SimSession, handle: u32, count: u32, credit: u32) -> Flow {
    Flow {
        next_incoming_id: Some(session.next_incoming_id),
        incoming_window: WINDOW,
        next_outgoing_id: session.next_outgoing_id,
        outgoing_window: WINDOW,
        handle: Some(Handle(handle)),
        delivery_count: Some(count),
        link_credit: Some(credit),
        available: None,
        drain: false,
        echo: false,
        properties: None,
    }
}

pub(crate) fn disposition(role: Role, id: u32, state: DeliveryState) -> Disposition {
    Disposition { role, first: id, last: None, settled: true, state: Some(state), batchable: false }
}

pub(crate) fn rejected(condition: &str, text: String) -> DeliveryState {
    DeliveryState::Rejected(Rejected { error: Some(broker_error(condition, text)) })
}
