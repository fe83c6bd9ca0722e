//! The model's numbers as the store's values.

use std::time::Duration;

use relais_core::{
    dead_letter::Origin,
    delivery::Problem,
    inbox::{Content, NewInbox},
    lane::{Fence, LANES, OwnedLane, Scope},
    message::NewMessage,
};
use relais_testkit::build;
use uuid::Uuid;

use crate::model::{DESTINATIONS, INBOX, KEYS, UNDECODABLE, WORKERS};

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

pub(crate) fn scope(number: usize) -> Scope {
    match number {
        INBOX => Scope::Inbox,
        _ => Scope::Outbox(DESTINATIONS[number - 1].to_owned()),
    }
}

pub(crate) fn fence(number: usize, worker: usize) -> Fence {
    Fence { scope: scope(number), worker: WORKERS[worker].to_owned() }
}

pub(crate) fn origin(number: usize) -> Origin {
    if number == INBOX { Origin::Inbox } else { Origin::Outbox }
}

/// The destination a parked key belongs to; empty for the inbox.
pub(crate) fn place(number: usize) -> String {
    if number == INBOX { String::new() } else { DESTINATIONS[number - 1].to_owned() }
}

pub(crate) fn all_lanes() -> Vec<OwnedLane> {
    (0..).take(usize::from(LANES)).map(owned).collect()
}

pub(crate) fn owned(lane: i16) -> OwnedLane {
    OwnedLane { lane, epoch: 0, unclean: false }
}

pub(crate) fn pause(due: bool) -> Duration {
    if due { Duration::ZERO } else { HOUR }
}

pub(crate) fn message(id: u128, destination: usize, key: usize) -> NewMessage {
    NewMessage {
        message_id: Uuid::from_u128(id),
        ..build::message(DESTINATIONS[destination], KEYS[key])
    }
}

pub(crate) fn message_id(message: u8) -> String {
    format!("m-{message}")
}

pub(crate) fn arrival(message: u8, variant: u8) -> NewInbox {
    let key = KEYS[usize::from(message) % KEYS.len()];
    let content = match variant {
        UNDECODABLE => Content::Undecodable {
            bytes: vec![0xff, message],
            problem: Problem::new("NOT_UTF8", "not UTF-8"),
        },
        _ => Content::Json(format!(r#"{{"variant":{variant}}}"#)),
    };
    NewInbox { content, ..build::arrival_for(&message_id(message), key) }
}

/// Returns true if a conflict's payload is that of [`arrival`]'s variant.
pub(crate) fn is_of_variant(payload: Option<&str>, variant: u8) -> bool {
    let payload = payload.expect("a conflict keeps its payload");
    match variant {
        UNDECODABLE => payload.starts_with('"'),
        _ => payload == format!(r#"{{"variant":{variant}}}"#),
    }
}
