//! Worker tests on a real SQLite store: each pass is driven by hand, nothing sleeps for effect.

mod inbox;
mod ingest;
mod lanes;
mod relay;
mod repair;
mod support;
