//! NATS JetStream in both directions.
//!
//! The JetStream API is JSON in requests of the core client; so only the core client is in the build.
//! Read in this order: `connection` opens a connection and watches it, `api` has the requests. A
//! message is sent by `publisher` and `call`: `outgoing` builds subject, headers and body, and
//! `classify` classifies the answer. Messages are received by `source` through a `session` with a
//! `pull`; `delivery` maps one to an inbox row. Messages
//! that the client library cannot receive are read by `reread`, and `stored` parses them.

mod api;
mod connection;

mod call;
mod classify;
mod outgoing;
mod publisher;

mod delivery;
mod keep_alive;
mod pull;
mod recovery;
mod reread;
mod session;
mod source;
mod stored;

mod probe;

pub use crate::{
    nats_settings::{HiddenNatsUrl, NatsEnvelope, NatsStart},
    template::RoutingTemplate,
};
pub use connection::NatsConnection;
pub use publisher::{NatsPublisher, NatsPublisherSettings};
pub use source::{NatsSource, NatsSourceSettings, NatsSourceState};
