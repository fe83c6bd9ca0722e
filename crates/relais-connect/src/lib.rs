//! The connectors of relais: what it reads from and delivers to, one feature each.
//!
//! Invariant: a connector knows its wire and the seams of `relais-core`, never a store. A source
//! acknowledges only what it was told is durable; a publisher classifies every answer and never
//! fails or panics.

#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "log")]
pub mod log;
#[cfg(feature = "salesforce")]
pub mod salesforce;

#[cfg(any(feature = "http", feature = "kafka"))]
mod secret;
#[cfg(any(feature = "http", feature = "kafka"))]
pub use secret::Secret;

#[cfg(all(any(test, fuzzing), any(feature = "http", feature = "kafka", feature = "log")))]
mod testing;

#[cfg(all(any(test, fuzzing), any(feature = "http", feature = "kafka")))]
#[path = "../../../fuzz/parts.rs"]
mod fuzz_parts;
#[cfg(all(test, any(feature = "http", feature = "kafka")))]
#[path = "../../../fuzz/run.rs"]
mod fuzz_run;
