//! HTTP in both directions: [`HttpSource`] takes webhooks in, [`HttpPublisher`] sends messages out.
//!
//! Read in this order: a request comes in through `server` and `request`, waits in `source` until it
//! is durable and is answered by `reply`. A message goes out through `publisher`, dressed by
//! `outgoing`, kept from private addresses by `guard`, and its answer is judged by `classify`. Both
//! sides share `signature`.

mod bodies;
mod reply;
mod request;
mod server;
mod source;

pub(crate) mod classify;
mod guard;
mod outgoing;
mod publisher;

mod signature;

#[cfg(any(test, fuzzing))]
pub mod fuzz;

pub use crate::Secret;
pub use publisher::{HttpPublisher, HttpPublisherSettings, Method};
pub use relais_listen::Tls;
pub use server::CloseHandle;
pub use signature::WebhookSecret;
pub use source::{HttpSource, HttpSourceError, HttpSourceSettings, Invalid};
