//! The commands of a process and their ids.
//!
//! Invariant: an id is made of the process, step, way and attempt, and of nothing else, so
//! that the reply to one attempt differs from that to another without a list of sent commands.

use uuid::Uuid;

use super::{progress::Way, work::ChangeCause};
use crate::{
    message::{Category, HEADER_HANDLER, NewMessage},
    process::{
        Process,
        definition::{Call, CallTarget},
        handler_step,
    },
    text,
};

/// The last attempts of a step whose replies are recognised by their command; a reply to an older one
/// counts as one that does not name its command.
const ATTEMPTS_KNOWN_MAX: usize = 100;

/// Names what the receiver must do once only, whichever attempt it is.
pub(crate) const HEADER_IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The id of one attempt's command, and of the timer that watches it.
pub(super) fn command_id(process_id: Uuid, step: &str, way: Way, attempt: u32) -> Uuid {
    id("command", process_id, step, way, attempt)
}

/// The id of the timer before one attempt; not that of its command, whose own timer comes later.
pub(super) fn rest_id(process_id: Uuid, step: &str, way: Way, attempt: u32) -> Uuid {
    id("rest", process_id, step, way, attempt)
}

/// Which of `sent` attempts a command was.
pub(super) fn attempt_of(
    wanted: Uuid,
    process_id: Uuid,
    step: &str,
    way: Way,
    sent: u32,
) -> Option<u32> {
    let mut latest = (1..=sent).rev().take(ATTEMPTS_KNOWN_MAX);
    latest.find(|attempt| command_id(process_id, step, way, *attempt) == wanted)
}

/// The message that asks for one attempt.
pub(super) fn command(
    process: &Process,
    call: &Call,
    (step, way): (&str, Way),
    command_id: Uuid,
    payload: String,
    cause: &ChangeCause<'_>,
) -> NewMessage {
    let process_id = process.process_id.to_string();
    let aggregate = (process.process_type.as_str(), process_id.as_str());
    let mut headers = cause.trace.clone();
    let undo = match way {
        Way::Forward => "",
        Way::Undo => "/undo",
    };
    headers.set(HEADER_IDEMPOTENCY_KEY, &format!("{process_id}/{step}{undo}"));
    let destination = match &call.target {
        CallTarget::Destination(name) => name,
        CallTarget::Handler(name) => {
            headers.set(HEADER_HANDLER, name);
            handler_step::DESTINATION
        }
    };
    NewMessage {
        category: Category::Command,
        headers,
        causation_id: cause.message_id.map(str::to_owned),
        correlation_id: Some(process_id.clone()),
        ..NewMessage::new(command_id, aggregate, &call.command, destination, payload)
    }
}

fn id(what: &str, process_id: Uuid, step: &str, way: Way, attempt: u32) -> Uuid {
    let way = match way {
        Way::Forward => "forward",
        Way::Undo => "undo",
    };
    text::stable_uuid(&[what, &process_id.to_string(), step, way, &attempt.to_string()])
}
