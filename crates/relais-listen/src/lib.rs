//! The HTTP listener of the admin address and of HTTP sources: limits, deadlines and TLS in one place.
//!
//! Invariant: a client that sends slowly, or nothing, starves no other client. Connections that wait for a
//! request are closed, the longest waiting first, when their address or the listener has too many. All
//! connections of one address together are bounded, whatever they do.
//!
//! - `serve`: accepts connections and serves each in its own task
//! - `seats`: who has how many connections, and which one has to go
//! - `tls`: certificates from files, read again when they change

mod seats;
mod serve;
mod tls;

pub use seats::network;
pub use serve::{Limits, Peer, serve};
pub use tls::{Tls, TlsError};
