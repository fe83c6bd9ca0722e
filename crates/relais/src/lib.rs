//! relais moves messages between a database and the world so that nothing is lost, nothing happens
//! twice, and order holds, whatever crashes.
//!
//! Write messages in your own transaction with [`Outbox`]; run sources, handlers, routes and
//! destinations with [`App`].
//!
//! Invariant: the engine names no database and no broker; it knows the seams of `relais-core` only.
//! The modules in the order a message meets them:
//!
//! - [`outbox`]: the sender's side, inside the user's transaction; [`aggregate`]: things that record
//!   their events
//! - `worker`: the one loop all workers share; `pulse`: what wakes them
//! - `ingest`: source → inbox → acknowledge
//! - `lanes`: leases and their heartbeat; `intake`: rows of owned lanes, in order per key
//! - [`inbox`]: rows → handlers, routes and processes
//! - [`process`]: several steps in several systems
//! - `relay`: rows → publisher, through `guard`, whose rate and breaker are in `limits`
//! - `bulk`: rows → jobs of a bulk target
//! - `cleanup`: old finished rows; `unserved`: destinations without a worker
//! - [`repair`]: rows that could not be decoded, read again after a fix
//! - [`desk`]: what people do about dead letters; [`explain`]: what became of a message
//! - [`control`]: pauses, limits and resets that operators ask for; `report`: the figures of this process
//!   for all others
//! - [`observe`]: what all of them count; [`health`]: whether they can work

pub mod aggregate;
pub mod control;
pub mod desk;
pub mod explain;
pub mod health;
pub mod inbox;
pub mod observe;
pub mod outbox;
pub mod process;
pub mod repair;

mod app;
mod bulk;
mod cleanup;
mod flight;
mod guard;
mod handover;
mod ingest;
mod intake;
mod lanes;
mod limits;
mod pulse;
mod relay;
mod report;
mod running;
mod signal;
mod unserved;
mod worker;

#[cfg(test)]
mod tests;

pub use aggregate::{Aggregate, Events, Persist, PersistBlocking, Repository, SaveError};
pub use app::{App, DestinationSettings, HandlerSettings, IntoHandler, Outline};
pub use bulk::BulkSettings;
pub use health::{Health, HealthCheck};
pub use outbox::{Outbox, SendError};
pub use relais_core::{
    breaker::BreakerPolicy,
    bulk::BulkTarget,
    dead_letter::{DeadLetter, Resolution, Verdict},
    delivery::{Delivery, Problem},
    handler::{Handled, Handler, HandlerWork, IntoOutcome, Outcome, Received},
    hydrate::Hydrator,
    inbox::{Accepted, InboxRow, InboxStatus, NewInbox},
    message::{Category, Headers, Message, NewMessage},
    outbox::{OnDeadLetter, OutboxRow, OutboxStatus},
    publisher::{Batching, Publisher},
    query::{Filter, Overview, Retention},
    retry::RetryPolicy,
    route::Route,
    source::{Source, SourceBatch, SourceError},
    store::{Store, StoreError},
};
pub use relais_derive::Message;
pub use relais_store::{BlockingTransaction, Transaction};
pub use running::{Running, WorkerPanicked};

#[cfg(feature = "http")]
pub use relais_connect::http;
#[cfg(feature = "kafka")]
pub use relais_connect::kafka;
#[cfg(feature = "log")]
pub use relais_connect::log;
#[cfg(feature = "salesforce")]
pub use relais_connect::salesforce;
#[cfg(feature = "postgres")]
pub use relais_store::postgres;
#[cfg(feature = "sqlite")]
pub use relais_store::sqlite;

/// The seams and types in full, for those who write a store or a connector.
pub use relais_core as core;

/// The code in the tutorial compiles.
#[cfg(all(
    doctest,
    feature = "sqlx-sqlite",
    feature = "sqlx-postgres",
    feature = "http",
    feature = "log"
))]
#[doc = include_str!("../../../docs/library.md")]
#[doc = include_str!("../../../docs/tutorial-rust.md")]
#[doc = include_str!("../../../docs/dead-letters.md")]
struct Library;

/// The code on the page about aggregates runs.
#[cfg(all(doctest, feature = "sqlx-sqlite", feature = "sqlx-postgres"))]
#[doc = include_str!("../../../docs/aggregates.md")]
struct Aggregates;
