//! The connectors of relais: sources and publishers, one feature per system.
//!
//! Invariant: a connector knows its wire protocol and the seams of `relais-core`, never a store. A
//! source acknowledges a message only after it is durable. A publisher classifies every response
//! and never fails or panics.

#![warn(missing_docs)]

#[cfg(feature = "amqp")]
pub mod amqp;
#[cfg(any(feature = "amqp", feature = "http"))]
#[doc(hidden)]
#[path = "amqp/settings.rs"]
#[cfg_attr(
    not(feature = "amqp"),
    allow(dead_code, reason = "a build without the connector checks the settings only")
)]
pub mod amqp_settings;
#[cfg(any(feature = "amqp", feature = "nats", feature = "rabbitmq"))]
mod cloudevent;
#[cfg(any(feature = "amqp", feature = "nats", feature = "rabbitmq"))]
mod held;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(any(feature = "http", feature = "kafka"))]
#[doc(hidden)]
#[path = "kafka/settings.rs"]
pub mod kafka_settings;
#[cfg(any(feature = "amqp", feature = "nats", feature = "rabbitmq"))]
mod key_rounds;
#[cfg(feature = "log")]
pub mod log;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(any(feature = "http", feature = "nats"))]
#[doc(hidden)]
#[path = "nats/settings.rs"]
#[cfg_attr(
    not(feature = "nats"),
    allow(dead_code, reason = "a build without the connector checks the settings only")
)]
pub mod nats_settings;
#[cfg(any(feature = "amqp", feature = "nats", feature = "rabbitmq"))]
#[cfg_attr(
    not(feature = "rabbitmq"),
    allow(dead_code, reason = "only RabbitMQ replaces a consumer")
)]
mod prefetch;
mod probe_error;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
#[cfg(any(feature = "amqp", feature = "http", feature = "rabbitmq"))]
#[doc(hidden)]
#[path = "rabbitmq/settings.rs"]
pub mod rabbitmq_settings;
#[cfg(any(feature = "amqp", feature = "nats", feature = "rabbitmq"))]
mod reply;
#[cfg(feature = "salesforce")]
pub mod salesforce;
#[cfg(feature = "amqp")]
pub mod servicebus;
#[cfg(any(feature = "amqp", feature = "http"))]
#[doc(hidden)]
#[path = "servicebus/settings.rs"]
#[cfg_attr(
    not(feature = "amqp"),
    allow(dead_code, reason = "a build without the connector checks the settings only")
)]
pub mod servicebus_settings;
#[cfg(any(
    feature = "amqp",
    feature = "http",
    feature = "kafka",
    feature = "nats",
    feature = "rabbitmq"
))]
#[cfg_attr(
    not(any(feature = "amqp", feature = "kafka", feature = "nats", feature = "rabbitmq")),
    allow(dead_code, reason = "a build without a broker checks the settings only")
)]
mod template;
#[cfg(any(feature = "amqp", feature = "http", feature = "nats", feature = "rabbitmq"))]
mod tls_files;

pub use probe_error::ProbeError;
#[cfg(any(
    feature = "amqp",
    feature = "http",
    feature = "kafka",
    feature = "nats",
    feature = "rabbitmq"
))]
pub use secrecy::SecretString;

#[cfg(all(
    any(test, fuzzing),
    any(
        feature = "amqp",
        feature = "http",
        feature = "kafka",
        feature = "log",
        feature = "nats",
        feature = "rabbitmq"
    )
))]
mod testing;

#[cfg(all(any(test, fuzzing), any(feature = "http", feature = "kafka")))]
#[path = "../../../fuzz/parts.rs"]
mod fuzz_parts;
#[cfg(all(test, any(feature = "http", feature = "kafka")))]
#[path = "../../../fuzz/run.rs"]
mod fuzz_run;
