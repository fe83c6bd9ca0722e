//! A simulator of the Salesforce API, for tests of programs that write to it.
//!
//! It responds like Salesforce, stores records like an org, and counts every applied write in a
//! ledger, so that a test can prove that an effect happened once. Faults make it fail like the real
//! one. In reading order: a call arrives through `http`; `api` applies faults and routes it to its
//! resource (`auth`, `data`, `rows`, `collections`, `composite`, `bulk`, `soql`), which writes
//! through a transaction of `store` into the ledger.
//!
//! ```no_run
//! # async fn example() -> std::io::Result<()> {
//! use salesforce_sim::{Simulator, SimulatorConfig};
//!
//! let sim = Simulator::start(SimulatorConfig::default()).await?;
//! println!("log in at {}", sim.url());
//! // … run the program under test …
//! assert_eq!(sim.ledger().repeated(), 0);
//! sim.stop().await;
//! # Ok(())
//! # }
//! ```

mod admin;
mod api;
mod auth;
mod bulk;
mod clock;
mod collections;
mod composite;
mod config;
mod data;
pub mod faults;
mod http;
mod id;
mod ledger;
mod limits;
mod org;
mod page;
mod reply;
mod row_error;
mod rows;
mod schema;
mod simulator;
mod soql;
mod store;
mod value;

pub use config::{AuthConfig, SimulatorConfig, TlsConfig};
pub use faults::Faults;
pub use id::Id;
pub use ledger::{EffectKind, EffectLedger, LedgerEntry, WriteEffect};
pub use schema::{Schema, SchemaError};
pub use simulator::{RunningSimulator, Simulator};
