//! relais moves messages between your database and other systems. A message exists if and only if your
//! transaction commits; it is delivered at least once, in order per key, through crashes and restarts.
//!
//! - [`Outbox`] writes messages in your own transaction (sqlx, tokio-postgres, rusqlite).
//! - [`App`] runs the workers: sources, handlers, routes, [processes](process) and destinations.
//! - A handler changes your tables, sends messages and marks its message as handled in one commit.
//! - A message that cannot be delivered becomes a dead letter, and [`App::dead_letters`] decides about it.
//!
//! # Example
//!
#![cfg_attr(all(feature = "sqlite", feature = "log"), doc = "```no_run")]
#![cfg_attr(not(all(feature = "sqlite", feature = "log")), doc = "```ignore")]
//! use std::{path::Path, sync::Arc};
//!
//! use relais::{App, Message, Outbox, log::LogPublisher, sqlite::{SqliteOptions, SqliteStore}};
//!
//! #[derive(Message, serde::Serialize)]
//! #[message(aggregate = "Order", key = "order_id")]
//! struct OrderPlaced { order_id: String, cents: i64 }
//!
//! #[tokio::main]
//! async fn main() -> anyhow::Result<()> {
//!     let store = SqliteStore::open(Path::new("shop.db"), SqliteOptions::default()).await?;
//!     store.migrate().await?; // tables `relais_…` beside yours
//!
//!     // The order and its message are one commit: both are there, or neither.
//!     let mut db = rusqlite::Connection::open("shop.db")?;
//!     let tx = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
//!     tx.execute("INSERT INTO orders (id, cents) VALUES (?1, ?2)", ("o-1", 1_999))?;
//!     let event = OrderPlaced { order_id: "o-1".into(), cents: 1_999 };
//!     Outbox::to("warehouse").send_blocking(&tx, &event)?;
//!     tx.commit()?;
//!
//!     // The workers deliver it, until Ctrl-C or SIGTERM.
//!     let warehouse = Arc::new(LogPublisher::stdout());
//!     App::new(Arc::new(store)).destination("warehouse", warehouse).run().await?;
//!     Ok(())
//! }
//! ```
//!
//! # Features
//!
//! No feature is on by default.
//!
//! | feature | module | for |
//! |---|---|---|
//! | `sqlite` | `sqlite` | the store in a SQLite file, with rusqlite 0.39 |
//! | `postgres` | `postgres` | the store in PostgreSQL, with tokio-postgres 0.7 and deadpool-postgres 0.14 |
//! | `sqlx-sqlite`, `sqlx-postgres` | the same | your transactions and handlers with sqlx 0.9 |
//! | `amqp` | `amqp`, `servicebus` | AMQP 1.0 and Azure Service Bus source and publisher |
//! | `http` | `http` | HTTP source and publisher, signed webhooks |
//! | `kafka` | `kafka` | Kafka source and publisher; compiles librdkafka |
//! | `nats` | `nats` | NATS JetStream source and publisher |
//! | `rabbitmq` | `rabbitmq` | RabbitMQ source and publisher |
//! | `salesforce` | `salesforce` | Salesforce bulk jobs, collections and graphs |
//! | `log` | `log` | JSON lines to stdout or a file |
//! | `fail-points` | | crashes on purpose, for the tests of relais |
//!
//! # Where to go next
//!
//! - [The guide](guide/index.html): concepts, a tutorial, the whole library, examples
//! - [`Publisher`] and [`Source`]: connect another system
//! - [`process`]: several steps in several systems, with compensation
//! - [`aggregate`]: objects of your domain that record their events
//! - [`health`], [`observe`]: readiness, counters and spans for your service
//! - The packages `relais-testkit` (tests of your own handlers) and `relais-admin` (console, API, metrics)

#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]

pub mod aggregate;
pub mod control;
pub mod dead_letters;
pub mod explain;
pub mod health;
pub mod inbox;
pub mod observe;
pub mod outbox;
pub mod process;
pub mod repair;

mod adopted;
mod app;
mod arrivals;
mod bulk;
mod cleanup;
mod handover;
mod ingest;
mod key_queues;
mod lane_reader;
mod lanes;
mod lease;
mod limits;
mod lock;
mod permit;
mod publish_guard;
mod pulse;
mod quarantine;
mod random;
mod refused;
mod relay;
mod report;
mod running;
mod serve;
mod signal;
mod timing;
mod unserved;
mod wake;
mod worker;

#[cfg(test)]
mod tests;

pub use adopted::JsonGate;
pub use aggregate::{Aggregate, Events, Persist, PersistBlocking, Repository, SaveError};
pub use app::{App, DestinationSettings, HandlerSettings, IntoHandler, Outline, remote_target};
pub use bulk::{BulkSettings, JOB_ROWS_MAX};
pub use health::{Health, HealthCheck};
pub use outbox::{Outbox, SendError};
pub use relais_core::{
    BoxFuture, InvalidSettings, async_trait,
    breaker::BreakerPolicy,
    bulk::BulkTarget,
    dead_letter::{DeadLetter, Resolution},
    decode::Decoder,
    delivery::{Delivery, Problem},
    extract::{Mapping, Pick},
    handler::{HandleOutcome, Handler, HandlerWork, IntoOutcome, Outcome, Received},
    hydrate::Hydrator,
    inbox::{AcceptOutcome, InboxRow, InboxStatus, NewInbox, SourcePosition},
    message::{Category, Headers, Message, MessageIdOrigin, NewMessage},
    outbox::{OnDeadLetter, OutboxRow, OutboxStatus},
    publisher::{Batching, Publisher},
    query::{CleanupMode, Filter, Overview, Retention},
    remote_handler::{RemoteHandler, RemoteReply},
    retry::RetryPolicy,
    route::Route,
    source::{Positions, Source, SourceBatch, SourceError},
    store::{DriverError, StoreError},
};
/// The seam between the engine and a database. Unstable: it changes without notice. Applications use the methods of
/// their store.
#[doc(hidden)]
pub use relais_core::{
    inspect::{Inspect, InspectExt},
    store::{Store, StoreDriver},
};
pub use relais_derive::Message;
pub(crate) use relais_fail_points::fail_point;
pub use relais_store::{BlockingTransaction, Transaction};
pub use running::{RunningApp, WorkerPanicked};
pub use signal::terminated;

#[cfg(feature = "amqp")]
pub use relais_connect::amqp;
#[cfg(feature = "http")]
pub use relais_connect::http;
#[cfg(feature = "kafka")]
pub use relais_connect::kafka;
#[cfg(feature = "log")]
pub use relais_connect::log;
#[cfg(feature = "nats")]
pub use relais_connect::nats;
#[cfg(feature = "rabbitmq")]
pub use relais_connect::rabbitmq;
#[cfg(feature = "salesforce")]
pub use relais_connect::salesforce;
#[cfg(feature = "amqp")]
pub use relais_connect::servicebus;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use relais_store::adopt;
#[cfg(feature = "postgres")]
pub use relais_store::postgres;
#[cfg(feature = "sqlite")]
pub use relais_store::sqlite;

/// All of `relais-core`, for relais's own packages. It changes without notice: use what is exported above.
#[doc(hidden)]
pub use relais_core as core;

#[cfg(all(
    any(doc, doctest),
    feature = "sqlx-sqlite",
    feature = "sqlx-postgres",
    feature = "http",
    feature = "log"
))]
pub mod guide;
