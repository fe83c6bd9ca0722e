//! Domain events: an aggregate records its events, and saving it writes its state and its events in the
//! user's own transaction.
//!
//! Invariant: [`Repository::save`] is `Ok` only if the state was written from the version at which the
//! aggregate was read, and every recorded event is an outbox row of the same transaction, in the order of
//! recording. An error leaves the aggregate unchanged: its events are kept for the next attempt.
//!
#![cfg_attr(feature = "sqlx-sqlite", doc = "```")]
#![cfg_attr(not(feature = "sqlx-sqlite"), doc = "```ignore")]
//! # async fn example() -> anyhow::Result<()> {
//! use relais::{Aggregate, Events, Message, Persist, Repository};
//! use sqlx::SqliteConnection;
//!
//! #[derive(Message, serde::Serialize)]
//! #[message(aggregate = "Order", key = "order_id")]
//! struct OrderPlaced { order_id: String, cents: i64 }
//!
//! struct Order { id: String, cents: i64, events: Events }
//!
//! impl Order {
//!     fn place(id: &str, cents: i64) -> Self {
//!         let mut events = Events::new();
//!         events.record(&OrderPlaced { order_id: id.into(), cents });
//!         Self { id: id.into(), cents, events }
//!     }
//! }
//!
//! impl Aggregate for Order {
//!     const TYPE: &'static str = "Order";
//!     fn id(&self) -> String { self.id.clone() }
//!     fn events_mut(&mut self) -> &mut Events { &mut self.events }
//! }
//!
//! impl Persist<SqliteConnection> for Order {
//!     type Error = sqlx::Error;
//!
//!     async fn persist(&self, tx: &mut SqliteConnection, version: i64) -> sqlx::Result<u64> {
//!         let sql = match version {
//!             0 => "INSERT INTO orders (id, cents, version) VALUES (?1, ?2, 1) ON CONFLICT DO NOTHING",
//!             _ => "UPDATE orders SET cents = ?2, version = version + 1 WHERE id = ?1 AND version = ?3",
//!         };
//!         let done = sqlx::query(sql).bind(&self.id).bind(self.cents).bind(version);
//!         Ok(done.execute(tx).await?.rows_affected())
//!     }
//! }
//!
//! # use relais::{Inspect, Store, sqlite::{SqliteOptions, SqliteStore}};
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("shop.db");
//! # let store = SqliteStore::open(&path, SqliteOptions::default()).await?;
//! # store.migrate().await?;
//! # let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path);
//! # let pool = sqlx::SqlitePool::connect_with(options).await?;
//! # sqlx::query("CREATE TABLE orders (id TEXT PRIMARY KEY, cents INTEGER, version INTEGER)").execute(&pool).await?;
//! let repository = Repository::new().event::<OrderPlaced>("orders");
//! let mut order = Order::place("o-1", 1_999);
//!
//! let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
//! repository.save(&mut *tx, &mut order).await?;
//! tx.commit().await?;
//!
//! assert_eq!(order.events.version(), 1);
//! assert_eq!(store.overview().await?.backlogs[0].pending, 1);
//! # Ok(()) }
//! # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
//! ```

mod events;

use std::{
    collections::{HashMap, HashSet},
    error::Error,
    future::Future,
};

use relais_core::{
    message::{Headers, Message, NewMessage},
    store::StoreError,
    text,
};
use relais_store::{BlockingTransaction, Transaction};
use uuid::Uuid;

pub use self::events::{Events, RecordedEvent};
use crate::wake;

/// Maximum number of events of one save: an aggregate with more of them has a loop.
pub const EVENTS_MAX: usize = 10_000;

/// An entity of the user's domain that changes as a whole and records its events.
pub trait Aggregate {
    /// The type of the aggregate, e.g. `Order`: the `aggregate_type` of its events.
    const TYPE: &'static str;

    /// Returns its id: the `aggregate_id` of its events, and their ordering key.
    fn id(&self) -> String;

    /// Returns the events recorded since it was read, with the version at which it was read.
    fn events_mut(&mut self) -> &mut Events;
}

/// Writes the state of an aggregate with one driver: `C` is the type of that driver's transaction, e.g.
/// `sqlx::PgConnection`.
pub trait Persist<C: ?Sized>: Aggregate {
    /// The error of the driver.
    type Error: Into<Box<dyn Error + Send + Sync>>;

    /// Writes the state if it is still at `version` (0: not stored yet), and increases its version by one.
    /// Returns the number of changed rows; 0 means that another transaction saved it first.
    fn persist(
        &self,
        tx: &mut C,
        version: i64,
    ) -> impl Future<Output = Result<u64, Self::Error>> + Send;
}

/// [`Persist`] for a driver that blocks, such as rusqlite.
pub trait PersistBlocking<C: ?Sized>: Aggregate {
    /// The error of the driver.
    type Error: Into<Box<dyn Error + Send + Sync>>;

    /// As [`Persist::persist`].
    fn persist(&self, tx: &C, version: i64) -> Result<usize, Self::Error>;
}

/// The reason why an aggregate was not saved. Roll the transaction back, as dropping it does; the aggregate
/// keeps its events and its version.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SaveError {
    /// Nothing was written.
    #[error(
        "unknown event type `{event_type}`, recorded by {aggregate}; set its destination with \
         `Repository::event`"
    )]
    UnknownEvent {
        /// Type and id of the aggregate.
        aggregate: String,
        /// The event type.
        event_type: &'static str,
    },
    /// Nothing was written.
    #[error("cannot store event `{event_type}` of {aggregate}: {reason}")]
    Unstorable {
        /// Type and id of the aggregate.
        aggregate: String,
        /// The event type.
        event_type: &'static str,
        /// The reason.
        reason: String,
    },
    /// Nothing was written.
    #[error(
        "cannot save {aggregate}: it has {events} events, at most {EVENTS_MAX} can be saved at once"
    )]
    TooMany {
        /// Type and id of the aggregate.
        aggregate: String,
        /// The number of recorded events.
        events: usize,
    },
    /// Another transaction saved it first, it was deleted, or it was saved in a transaction that was rolled
    /// back: read it again, and decide again.
    #[error(
        "cannot save {aggregate}: it is not at version {version} any more; read it again and decide again"
    )]
    Conflict {
        /// Type and id of the aggregate.
        aggregate: String,
        /// The version at which it was read.
        version: i64,
    },
    /// The state could not be written.
    #[error("cannot write the state of {aggregate}: {source}")]
    State {
        /// Type and id of the aggregate.
        aggregate: String,
        /// The cause.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The events could not be written.
    #[error("cannot write the events of {aggregate}: {source}")]
    Events {
        /// Type and id of the aggregate.
        aggregate: String,
        /// The cause.
        source: StoreError,
    },
}

/// Saves aggregates; has the destination of each event type. Cheap enough to create one per message.
#[derive(Clone, Debug, Default)]
pub struct Repository {
    destinations: HashMap<&'static str, String>,
    headers: Headers,
    correlation_id: Option<String>,
    causation_id: Option<String>,
}

impl Repository {
    /// Returns a repository without destinations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the destination of events of this type, unless the type has its own
    /// (`#[message(destination = "…")]`).
    ///
    /// # Panics
    /// If the event type has another destination already: a message has one.
    #[must_use]
    pub fn event<M: Message>(mut self, destination: &str) -> Self {
        assert!(!destination.is_empty(), "event type `{}` needs a destination", M::NAME);
        let before = self.destinations.insert(M::NAME, destination.to_owned());
        if let Some(before) = before.filter(|before| before != destination) {
            panic!("event type `{}` goes to `{before}` already, not to `{destination}`", M::NAME);
        }
        self
    }

    /// Adds a header to every event.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.set(name, value);
        self
    }

    /// Sets the correlation id and the causation id of every event.
    #[must_use]
    pub fn because_of(mut self, correlation_id: &str, causation_id: &str) -> Self {
        self.correlation_id = Some(correlation_id.to_owned());
        self.causation_id = Some(causation_id.to_owned());
        self
    }

    /// Writes the state and the recorded events, clears the events and increases the version. Returns the ids
    /// of the messages, in the order of recording.
    ///
    /// The changes take effect when the transaction commits. If it is rolled back after an `Ok`, the
    /// aggregate in memory is ahead of the database: read it again. Saving it again instead is a
    /// [`SaveError::Conflict`], so that its state is never written without the events.
    pub async fn save<T, A>(&self, tx: &mut T, aggregate: &mut A) -> Result<Vec<Uuid>, SaveError>
    where
        T: Transaction + ?Sized,
        A: Persist<T>,
    {
        let rows = self.rows(aggregate)?;
        let version = aggregate.events_mut().version();
        let written = aggregate.persist(tx, version).await;
        prove(aggregate, version, written.map_err(Into::into).map(|rows| rows > 0))?;
        if !rows.is_empty() {
            tx.enqueue(&rows).await.map_err(|source| unsent(aggregate, source))?;
        }
        Ok(saved(aggregate, &rows))
    }

    /// [`Repository::save`] for a driver that blocks, such as rusqlite.
    pub fn save_blocking<T, A>(&self, tx: &T, aggregate: &mut A) -> Result<Vec<Uuid>, SaveError>
    where
        T: BlockingTransaction + ?Sized,
        A: PersistBlocking<T>,
    {
        let rows = self.rows(aggregate)?;
        let version = aggregate.events_mut().version();
        let written = aggregate.persist(tx, version);
        prove(aggregate, version, written.map_err(Into::into).map(|rows| rows > 0))?;
        if !rows.is_empty() {
            tx.enqueue(&rows).map_err(|source| unsent(aggregate, source))?;
        }
        Ok(saved(aggregate, &rows))
    }

    /// Returns the outbox rows of the recorded events, or the error of the first event that cannot be stored.
    fn rows<A: Aggregate>(&self, aggregate: &mut A) -> Result<Vec<NewMessage>, SaveError> {
        let (aggregate_id, name) = (aggregate.id(), name(aggregate));
        let events = aggregate.events_mut().recorded();
        if events.len() > EVENTS_MAX {
            return Err(SaveError::TooMany { aggregate: name, events: events.len() });
        }
        let usable_id = text::aggregate_id(&aggregate_id);
        let msg_key = text::identity(&aggregate_id, text::KEY_MAX);
        let mut ids = HashSet::with_capacity(events.len());
        let row = |event: &RecordedEvent| {
            let event_type = event.event_type();
            let refused = |reason: &str| SaveError::Unstorable {
                aggregate: name.clone(),
                event_type,
                reason: reason.to_owned(),
            };
            usable_id.as_ref().map_err(|reason| refused(reason))?;
            let registered = self.destinations.get(event_type).map(String::as_str);
            let Some(destination) = event.destination.or(registered) else {
                return Err(SaveError::UnknownEvent { aggregate: name.clone(), event_type });
            };
            let payload = event.payload.as_ref().map_err(|reason| refused(reason))?;
            if !ids.insert(event.message_id) {
                // The outbox keeps one row per message id: the second event would be lost.
                return Err(refused("another event to save has the same message id"));
            }
            let aggregate = (A::TYPE, aggregate_id.as_str());
            let payload = payload.clone();
            Ok(NewMessage {
                category: event.category,
                event_version: event.event_version,
                headers: self.headers.clone(),
                msg_key: msg_key.clone(),
                correlation_id: self.correlation_id.clone(),
                causation_id: self.causation_id.clone(),
                ..NewMessage::new(event.message_id, aggregate, event_type, destination, payload)
            })
        };
        events.iter().map(row).collect()
    }
}

/// Checks that the state was written from the version at which it was read.
fn prove<A: Aggregate>(
    aggregate: &A,
    version: i64,
    changed: Result<bool, Box<dyn Error + Send + Sync>>,
) -> Result<(), SaveError> {
    match changed {
        Ok(true) => Ok(()),
        Ok(false) => Err(SaveError::Conflict { aggregate: name(aggregate), version }),
        Err(source) => Err(SaveError::State { aggregate: name(aggregate), source }),
    }
}

fn unsent<A: Aggregate>(aggregate: &A, source: StoreError) -> SaveError {
    SaveError::Events { aggregate: name(aggregate), source }
}

fn saved<A: Aggregate>(aggregate: &mut A, rows: &[NewMessage]) -> Vec<Uuid> {
    aggregate.events_mut().saved();
    wake::sent_to(rows.iter().map(|row| row.destination.as_str()));
    rows.iter().map(|row| row.message_id).collect()
}

/// Returns its name in errors: `Order o-1`.
fn name<A: Aggregate>(aggregate: &A) -> String {
    format!("{} {}", A::TYPE, aggregate.id())
}
