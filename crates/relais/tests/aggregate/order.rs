//! An aggregate as users write it.

use relais::{
    Aggregate, Events, Message, OutboxRow, Repository, StoreDriver, core::inspect::InspectExt,
    core::query::Filter,
};
use serde::{Serialize, Serializer, ser::Error};
use uuid::Uuid;

#[derive(Message, Serialize)]
#[message(aggregate = "Order", key = "order_id")]
pub(crate) struct OrderPlaced {
    pub(crate) order_id: String,
}

#[derive(Message, Serialize)]
#[message(aggregate = "Order", key = "order_id", version = 2, category = "command")]
pub(crate) struct LineAdded {
    pub(crate) order_id: String,
    pub(crate) number: i64,
}

/// An event with its own destination.
#[derive(Message, Serialize)]
#[message(aggregate = "Order", key = "order_id", destination = "archive")]
pub(crate) struct OrderArchived {
    pub(crate) order_id: String,
}

/// An event with an id of the user.
#[derive(Message, Serialize)]
#[message(aggregate = "Order", key = "order_id", id = "event_id")]
pub(crate) struct OrderPaid {
    pub(crate) event_id: Uuid,
    pub(crate) order_id: String,
}

/// An event without a destination.
#[derive(Message, Serialize)]
#[message(aggregate = "Order", key = "order_id")]
pub(crate) struct OrderForgotten {
    pub(crate) order_id: String,
}

/// An event that cannot be written as JSON.
#[derive(Message)]
#[message(aggregate = "Order", key = "order_id")]
pub(crate) struct OrderUnserialisable {
    pub(crate) order_id: String,
}

impl Serialize for OrderUnserialisable {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(S::Error::custom("not serialisable"))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) id: String,
    pub(crate) lines: i64,
    pub(crate) events: Events,
    pub(crate) fault: Option<Fault>,
}

/// The fault while its state is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The statement is refused.
    StateRefused,
    /// The state is written, then the connection dies.
    ConnectionDies,
}

impl Order {
    pub(crate) fn place(id: &str) -> Self {
        let mut events = Events::new();
        events.record(&OrderPlaced { order_id: id.to_owned() });
        Self { id: id.to_owned(), lines: 0, events, fault: None }
    }

    pub(crate) fn read(id: &str, lines: i64, version: i64) -> Self {
        Self { id: id.to_owned(), lines, events: Events::at(version), fault: None }
    }

    pub(crate) fn add_line(&mut self) {
        self.lines += 1;
        self.events.record(&LineAdded { order_id: self.id.clone(), number: self.lines });
    }

    pub(crate) fn with_fault(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }
}

impl Aggregate for Order {
    const TYPE: &'static str = "Order";

    fn id(&self) -> String {
        self.id.clone()
    }

    fn events_mut(&mut self) -> &mut Events {
        &mut self.events
    }
}

pub(crate) fn repository() -> Repository {
    Repository::new()
        .event::<OrderPlaced>("orders")
        .event::<LineAdded>("orders")
        .event::<OrderPaid>("orders")
        .event::<OrderUnserialisable>("orders")
}

/// Creates the user's table; the same on each database.
pub(crate) const TABLE: &str =
    "CREATE TABLE orders (id TEXT PRIMARY KEY, lines BIGINT NOT NULL, version BIGINT NOT NULL)";
pub(crate) const READ: &str = "SELECT lines, version FROM orders WHERE id = $1";
const INSERT: &str = "INSERT INTO orders (id, lines, version) VALUES ($1, $2, CAST($3 AS BIGINT) + 1) \
                      ON CONFLICT (id) DO NOTHING";
const UPDATE: &str =
    "UPDATE orders SET lines = $2, version = version + 1 WHERE id = $1 AND version = $3";

impl Order {
    /// Returns the statement that writes it: id, lines, version.
    pub(crate) fn statement(&self, version: i64) -> &'static str {
        match (self.fault, version) {
            (Some(Fault::StateRefused), _) => "INSERT INTO orders (id) VALUES ($1 || $2 || $3)",
            (_, 0) => INSERT,
            _ => UPDATE,
        }
    }
}

/// Returns all of the outbox, oldest first.
pub(crate) async fn outbox(store: &dyn StoreDriver) -> Vec<OutboxRow> {
    let mut rows = Vec::new();
    let mut before = None;
    loop {
        let filter = Filter { before: before.take(), limit: 500, ..Filter::default() };
        let page = store.list_outbox(filter).await.unwrap();
        before = page.last().map(|row| row.id.to_string());
        if before.is_none() {
            rows.reverse();
            return rows;
        }
        rows.extend(page);
    }
}
