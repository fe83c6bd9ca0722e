//! The connectors of relais: what it reads from and delivers to, one feature each.
//!
//! Invariant: a connector knows its wire and the seams of `relais-core`, never a store. A source
//! acknowledges only what it was told is durable; a publisher classifies every answer and never
//! fails or panics.

#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "log")]
pub mod log;

#[cfg(all(test, any(feature = "http", feature = "log")))]
mod testing;
