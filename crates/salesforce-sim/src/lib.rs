//! A simulator of the Salesforce API, for tests of programs that write to it.
//!
//! It answers what Salesforce answers, keeps records like an org, and counts every applied write in
//! a ledger, so that a test can prove that an effect happened once. Faults make it fail as the real
//! one does. In reading order: a call comes in through `http`, `api` decides its fate and finds
//! its resource (`auth`, `data`, `rows`, `collections`, `composite`, `bulk`, `soql`),
//! which writes through a transaction of `store` into the ledger.
//!
//! ```no_run
//! # async fn example() -> std::io::Result<()> {
//! use salesforce_sim::{Config, Simulator};
//!
//! let sim = Simulator::start(Config::default()).await?;
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
mod page;
mod reply;
mod row_error;
mod rows;
mod schema;
mod sim;
mod simulator;
mod soql;
mod store;
mod value;

pub use config::{AuthConfig, Config, TlsConfig};
pub use faults::Faults;
pub use id::Id;
pub use ledger::{Effect, EffectKind, Entry, Ledger};
pub use schema::{Schema, SchemaError};
pub use simulator::{Running, Simulator};
