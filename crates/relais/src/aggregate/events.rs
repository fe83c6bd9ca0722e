//! What an aggregate has recorded and not saved yet, and the version it was read at.
//!
//! Invariant: an event is fixed when it is recorded: its payload and its message id do not change any
//! more, however often saving it is tried.

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
    recorded: Vec<Event>,
}

/// One recorded event.
#[derive(Clone, Debug)]
pub struct Event {
    pub(super) message_id: Uuid,
    pub(super) category: Category,
    event_type: &'static str,
    pub(super) event_version: i32,
    /// Where its type says it always goes.
    pub(super) destination: Option<&'static str>,
    /// JSON, or why it is none.
    pub(super) payload: Result<String, String>,
}

impl Events {
    /// For an aggregate that is not in the database yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// For an aggregate that was read from the database at this version.
    pub fn at(version: i64) -> Self {
        Self { version, recorded: Vec::new() }
    }

    /// Something has happened. It becomes a message when the aggregate is saved; that it cannot be
    /// written as JSON is said there too.
    pub fn record<M: Message>(&mut self, event: &M) {
        self.recorded.push(Event {
            message_id: event.message_id().unwrap_or_else(Uuid::now_v7),
            category: M::CATEGORY,
            event_type: M::NAME,
            event_version: M::VERSION,
            destination: M::DESTINATION,
            payload: payload(event),
        });
    }

    /// The version the aggregate has in the database, as far as it knows; 0 if it is not there yet.
    pub fn version(&self) -> i64 {
        self.version
    }

    /// What is not saved yet, in order: for tests of the domain, without a database.
    pub fn recorded(&self) -> &[Event] {
        &self.recorded
    }

    /// The state and all events are written.
    pub(super) fn saved(&mut self) {
        self.version += 1;
        self.recorded.clear();
    }
}

impl Event {
    pub fn event_type(&self) -> &'static str {
        self.event_type
    }

    /// The id its message will have.
    pub fn message_id(&self) -> Uuid {
        self.message_id
    }

    /// Its JSON; `None` if it cannot be written as such.
    pub fn payload(&self) -> Option<&str> {
        self.payload.as_deref().ok()
    }
}

fn payload<M: Message>(event: &M) -> Result<String, String> {
    let payload = serde_json::to_string(event).map_err(|error| error.to_string())?;
    json::check(payload.as_bytes()).map_err(|error| error.to_string())?;
    Ok(payload)
}
