//! RabbitMQ (AMQP 0-9-1) in both directions.
//!
//! Read in this order: `connection` opens a connection and watches it. A message is sent by
//! `publisher` and `call`: `outgoing` builds properties and body, and `classify` classifies the
//! answer. Messages are received by `source`; `delivery` maps one to an inbox row. `envelope` has the
//! format of MassTransit.

mod connection;

mod call;
mod classify;
mod outgoing;
mod publisher;

mod delivery;
mod envelope;
mod source;

mod probe;

pub use crate::{
    rabbitmq_settings::{HiddenBrokerUrl, RabbitEnvelope, WithoutId},
    template::RoutingTemplate,
};
pub use connection::RabbitConnection;
pub use publisher::{RabbitPublisher, RabbitPublisherSettings};
pub use source::{RabbitSource, RabbitSourceSettings, RabbitSourceState};
