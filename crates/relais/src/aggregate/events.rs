//! The events that an aggregate has recorded and not saved yet, and the version at which it was read.
//!
//! Invariant: payload and message id of an event are fixed when it is recorded, however often saving it is
//! tried.

use relais_core::{
    json,
    message::{Category, Message},
};
use uuid::Uuid;

/// The events of one aggregate that are not saved yet, in the order they happened. A field of the
/// aggregate.
#[derive(Clone, Debug, Default)]
pub struct Events {
    version: i64,
    recorded: Vec<RecordedEvent>,
}

/// One recorded event.
#[derive(Clone, Debug)]
pub struct RecordedEvent {
    pub(super) message_id: Uuid,
    pub(super) category: Category,
    event_type: &'static str,
    pub(super) event_version: i32,
    /// The destination of its type, if it has one.
    pub(super) destination: Option<&'static str>,
    /// JSON, or why it cannot be written as JSON.
    pub(super) payload: Result<String, String>,
}

impl Events {
    /// Returns the events of an aggregate that is not in the database yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the events of an aggregate that was read from the database at this version.
    pub fn at(version: i64) -> Self {
        Self { version, recorded: Vec::new() }
    }

    /// Records an event. It becomes a message when the aggregate is saved; an event that cannot be written as
    /// JSON fails the save.
    pub fn record<M: Message>(&mut self, event: &M) {
        self.recorded.push(RecordedEvent {
            message_id: event.message_id().unwrap_or_else(Uuid::now_v7),
            category: M::CATEGORY,
            event_type: M::NAME,
            event_version: M::VERSION,
            destination: M::DESTINATION,
            payload: payload(event),
        });
    }

    /// Returns the version at which the aggregate was read or saved; 0 if it is not in the database yet.
    pub fn version(&self) -> i64 {
        self.version
    }

    /// Returns the events that are not saved yet, in order: for tests of the domain without a database.
    pub fn recorded(&self) -> &[RecordedEvent] {
        &self.recorded
    }

    /// Clears the events and increases the version, after a save.
    pub(super) fn saved(&mut self) {
        self.version += 1;
        self.recorded.clear();
    }
}

impl RecordedEvent {
    /// Returns its event type.
    pub fn event_type(&self) -> &'static str {
        self.event_type
    }

    /// Returns the id that its message will have.
    pub fn message_id(&self) -> Uuid {
        self.message_id
    }

    /// Returns its JSON; `None` if it cannot be written as JSON.
    pub fn payload(&self) -> Option<&str> {
        self.payload.as_deref().ok()
    }
}

fn payload<M: Message>(event: &M) -> Result<String, String> {
    let payload = serde_json::to_string(event).map_err(|error| error.to_string())?;
    json::check(payload.as_bytes()).map_err(|error| error.to_string())?;
    Ok(payload)
}
