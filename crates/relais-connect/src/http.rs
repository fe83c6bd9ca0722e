//! HTTP in both directions: [`HttpSource`] receives webhooks, [`HttpPublisher`] sends messages, and
//! [`HttpHandler`] calls the service that handles a message.
//!
//! Read in this order: a request arrives through `server` and `request`, waits in `source` until it
//! is durable, and is answered by `reply`. A message is sent by `publisher` with the headers of
//! `outgoing` by the client of `target`; `private_address` rejects private targets, and `classify`
//! classifies the response. `handler` uses the same, and `answer` reads what its service answers.
//! Both sides share `signature`.

mod bodies;
mod reply;
mod request;
mod server;
mod source;

mod answer;
pub(crate) mod classify;
mod handler;
mod outgoing;
mod private_address;
mod publisher;
mod target;

mod settings;
mod signature;

#[cfg(any(test, fuzzing))]
pub mod fuzz;

pub use handler::{HttpHandler, HttpHandlerSettings};
pub use publisher::{HttpPublisher, HttpPublisherSettings, Method};
pub use relais_listen::Tls;
pub use secrecy::SecretString;
pub use server::CloseHandle;
#[doc(hidden)]
pub use settings::{HiddenUrl, HttpHandlerKeys, HttpSourceKeys, HttpTargetKeys};
pub use signature::WebhookSecret;
pub use source::{HttpSource, HttpSourceError, HttpSourceSettings, OnInvalidBody};
