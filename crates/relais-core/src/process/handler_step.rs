//! Steps that a handler in another process carries out. The command goes through the outbox into the inbox of
//! the handler; the answer goes through the outbox into the inbox of the process.
//!
//! Invariant: each way is a message of the outbox with a computed id, committed with the row that caused it
//! and stored once in the inbox. So a command is called for until one answer is committed, and that answer
//! reaches the process once.

use serde::Serialize;

use super::{SOURCE_SYSTEM, advance::command::HEADER_IDEMPOTENCY_KEY};
use crate::{
    delivery::Problem,
    inbox::{InboxRow, NewInbox, SUBSCRIBER_SEPARATOR, in_inbox, inbox_of, subscriber_inbox},
    lane::Scope,
    message::{Category, HEADER_HANDLER, NewMessage, is_reserved_header},
    outbox::OutboxRow,
    text,
};

/// The event type of an answer `done`; its payload is the data of the answer.
pub const HANDLER_DONE: &str = "relais.HandlerDone";
/// The event type of an answer that ends the attempt; its payload is [`HandlerFailure`].
pub const HANDLER_FAILED: &str = "relais.HandlerFailed";

/// The destination of commands before [`address`]: the inbox without a name.
pub(super) const DESTINATION: &str = "inbox";

/// The payload of [`HANDLER_FAILED`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct HandlerFailure {
    /// The code of the answer.
    pub code: String,
    /// The text of the answer.
    pub message: String,
}

/// Returns whether an event type is that of an answer. Only relais writes such rows.
pub fn is_answer(event_type: &str) -> bool {
    matches!(event_type, HANDLER_DONE | HANDLER_FAILED)
}

/// Returns the destination that stands for an inbox: `inbox`, or `inbox:orders`.
pub fn inbox_destination(inbox: &str) -> String {
    Scope::of_inbox(inbox).to_string()
}

/// Sends a command for a handler through the inbox of this program. Other messages stay as they are.
pub fn address(message: &mut NewMessage, inbox: &str) {
    if message.headers.get(HEADER_HANDLER).is_some() {
        message.destination = inbox_destination(inbox);
    }
}

/// Returns a message to an inbox as its future row: a command for a handler, or an answer for a process.
pub fn into_inbox(message: &OutboxRow, inbox: &str) -> NewInbox {
    let handler = message.headers.get(HEADER_HANDLER);
    let to = handler.map(|handler| subscriber_inbox(inbox, handler));
    let source = in_inbox(to.as_deref().unwrap_or(inbox), SOURCE_SYSTEM);
    let id = message.message_id.to_string();
    let mut new = NewInbox::new(&source, &id, &message.event_type, &message.payload);
    new.topic = message.destination.clone();
    new.aggregate_id = Some(message.aggregate_id.clone());
    new.msg_key = message.msg_key.clone();
    new.headers = message.headers.clone();
    new.headers.0.retain(|name, _| name == HEADER_HANDLER || !is_reserved_header(name));
    let ids =
        [("correlation-id", &message.correlation_id), ("causation-id", &message.causation_id)];
    for (name, id) in ids {
        if let Some(id) = id {
            new.headers.set(name, id);
        }
    }
    new
}

/// Returns whether a row of a handler's inbox is a command of a process, which waits for the answer.
pub fn is_command(row: &InboxRow) -> bool {
    row.headers.get(HEADER_HANDLER).is_some()
}

/// Returns the text that is equal in every attempt of a step, if the row is a command of a process.
pub fn step_key(row: &InboxRow) -> Option<&str> {
    row.headers.get(HEADER_IDEMPOTENCY_KEY).filter(|_| is_command(row))
}

/// Returns the message that brings the answer `done` to the process of a command. `data` is JSON.
pub fn done(command: &InboxRow, data: Option<&str>) -> NewMessage {
    answer(command, HANDLER_DONE, data.unwrap_or("null").to_owned())
}

/// Returns the message that brings a failure to the process of a command.
pub fn failed(command: &InboxRow, problem: &Problem) -> NewMessage {
    let Problem { code, message } = problem.clone();
    let failure = HandlerFailure { code, message };
    let payload = serde_json::to_string(&failure).expect("two texts can be written");
    answer(command, HANDLER_FAILED, payload)
}

fn answer(command: &InboxRow, event_type: &str, payload: String) -> NewMessage {
    let process_id = command.headers.get("correlation-id").unwrap_or(&command.msg_key);
    let inbox = inbox_of(&command.source_system);
    let inbox = inbox.split_once(SUBSCRIBER_SEPARATOR).map_or(inbox, |(inbox, _)| inbox);
    let id = text::stable_uuid(&["answer", &command.source_system, &command.message_id]);
    let aggregate = (SOURCE_SYSTEM, process_id);
    NewMessage {
        category: Category::Reply,
        causation_id: Some(command.message_id.clone()),
        correlation_id: Some(process_id.to_owned()),
        ..NewMessage::new(id, aggregate, event_type, &inbox_destination(inbox), payload)
    }
}
