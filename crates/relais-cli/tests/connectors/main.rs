//! The example on the page of each connector, with the real program on a real server: one message is sent
//! and delivered. `relais check --connect` accepts the example, and names what is missing otherwise.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

mod amqp;
mod example;
mod http;
mod kafka;
mod nats;
mod rabbitmq;
mod servicebus;
// Some helpers are made for other tests of the program.
#[allow(dead_code)]
#[path = "../support/broker.rs"]
mod broker;
#[allow(dead_code)]
#[path = "../nats/server.rs"]
mod server;
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;

/// Time limit of a delivery.
const LONG: std::time::Duration = std::time::Duration::from_secs(60);
