//! Attacks against a real relais, which must fail.
//!
//! - `routes`: requests without a token see nothing
//! - `ssrf`: where messages must not be sent
//! - `canary`: secrets that must show nowhere
//! - `injection`: messages that pose as log lines, as table rows or as commands to a terminal
//! - `encryption`: both doors over TLS
//! - `limits`: too much, too deep, too slow

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

mod canary;
mod canary_settings;
#[path = "../admin/client.rs"]
#[allow(dead_code)]
mod client;
mod encryption;
mod injection;
mod limits;
mod routes;
mod server;
mod ssrf;
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;
mod traced;

use std::time::{Duration, Instant};

/// Time limit of a condition.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a value is present.
fn wait_for<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
