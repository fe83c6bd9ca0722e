//! Azure Service Bus in both directions, over AMQP 1.0 (`crate::amqp`).
//!
//! `connection` maps a connection string to a broker whose addresses tokens open. `publisher` and
//! `source` are those of AMQP with what only Service Bus has: scheduled messages and sessions.

mod connection;
mod publisher;
mod source;

pub use crate::{
    amqp_settings::AmqpEnvelope, rabbitmq_settings::WithoutId,
    servicebus_settings::ServiceBusConnectionString,
};
pub use connection::ServiceBusConnection;
pub use publisher::{ServiceBusPublisher, ServiceBusPublisherSettings};
pub use source::{ServiceBusSource, ServiceBusSourceSettings, ServiceBusSourceState};
