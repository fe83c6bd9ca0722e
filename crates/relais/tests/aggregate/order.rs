//! An aggregate like those of users.

use relais::{Aggregate, Events, Message, OutboxRow, Repository, Store, core::query::Filter};
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

/// Says itself where it goes.
#[derive(Message, Serialize)]
#[message(aggregate = "Order", key = "order_id", destination = "archive")]
pub(crate) struct OrderArchived {
    pub(crate) order_id: String,
}

/// Its id is the user's.
#[derive(Message, Serialize)]
#[message(aggregate = "Order", key = "order_id", id = "event_id")]
pub(crate) struct OrderPaid {
    pub(crate) event_id: Uuid,
    pub(crate) order_id: String,
}

/// Nobody named its destination.
#[derive(Message, Serialize)]
#[message(aggregate = "Order", key = "order_id")]
pub(crate) struct OrderForgotten {
    pub(crate) order_id: String,
}

/// No JSON can be made of it.
#[derive(Message)]
#[message(aggregate = "Order", key = "order_id")]
pub(crate) struct OrderUnsayable {
    pub(crate) order_id: String,
}

impl Serialize for OrderUnsayable {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(S::Error::custom("no words for it"))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) id: String,
    pub(crate) lines: i64,
    pub(crate) events: Events,
    pub(crate) fault: Option<Fault>,
}

/// What goes wrong while its state is written.
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

    fn events(&self) -> &Events {
        &self.events
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
        .event::<OrderUnsayable>("orders")
}

/// Makes the user's table; the same on each database.
pub(crate) const TABLE: &str =
    "CREATE TABLE orders (id TEXT PRIMARY KEY, lines BIGINT NOT NULL, version BIGINT NOT NULL)";
pub(crate) const READ: &str = "SELECT lines, version FROM orders WHERE id = $1";
const INSERT: &str = "INSERT INTO orders (id, lines, version) VALUES ($1, $2, CAST($3 AS BIGINT) + 1) \
                      ON CONFLICT (id) DO NOTHING";
const UPDATE: &str =
    "UPDATE orders SET lines = $2, version = version + 1 WHERE id = $1 AND version = $3";

impl Order {
    /// The statement that writes it: id, lines, version.
    pub(crate) fn statement(&self, version: i64) -> &'static str {
        match (self.fault, version) {
            (Some(Fault::StateRefused), _) => "INSERT INTO orders (id) VALUES ($1 || $2 || $3)",
            (_, 0) => INSERT,
            _ => UPDATE,
        }
    }
}

/// All of the outbox, oldest first.
pub(crate) async fn outbox(store: &dyn Store) -> Vec<OutboxRow> {
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
