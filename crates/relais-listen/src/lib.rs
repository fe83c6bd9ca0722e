//! The HTTP listener of the admin address and of HTTP sources: limits, deadlines and TLS in one place.
//!
//! Invariant: a client that sends slowly, or nothing, starves no other client. When an address or
//! the listener has too many connections, idle ones are closed, the longest idle first. The
//! connections of one address are bounded, whatever they do.
//!
//! - `serve`: accepts connections and serves each in its own task
//! - `seats`: counts connections by address, and chooses the one to close
//! - `tls`: certificates from files, reloaded when they change

#![warn(missing_docs)]

mod seats;
mod serve;
mod tls;

pub use seats::network;
pub use serve::{ListenLimits, Peer, serve};
pub use tls::{Tls, TlsError};
