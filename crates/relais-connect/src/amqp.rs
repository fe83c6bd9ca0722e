//! AMQP 1.0 in both directions, for any broker that speaks it.
//!
//! Read in this order: `peer` has the address and the login of a broker, `connection` opens a connection
//! with `tls` and `sasl` and `claims`, and watches it. A message is sent by `publisher` and `call`: `outgoing` builds it, `links` has the
//! links that it is sent on, and `classify` classifies the answer. Messages are received by `source` on
//! a link of `receiving`; `delivery` maps one to an inbox row, and `value` the values in it.

pub(crate) mod claims;
mod connection;
pub(crate) mod peer;
mod sasl;
mod tls;

mod call;
mod classify;
mod links;
pub(crate) mod outgoing;
mod publisher;

pub(crate) mod delivery;
pub(crate) mod receiving;
mod source;
mod value;

pub(crate) mod probe;

pub use crate::{
    amqp_settings::AmqpEnvelope,
    rabbitmq_settings::{HiddenBrokerUrl, WithoutId},
    template::RoutingTemplate,
};
pub use connection::AmqpConnection;
pub use publisher::{AmqpPublisher, AmqpPublisherSettings};
pub use source::{AmqpSource, AmqpSourceSettings, AmqpSourceState};
