//! Worker tests on a real SQLite store: each pass is driven by hand, nothing sleeps for effect.

mod bulk;
mod bulk_crash;
mod inbox;
mod ingest;
mod lanes;
mod relay;
mod remote;
mod repair;
mod support;
