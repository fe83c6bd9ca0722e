//! Worker tests on a real SQLite store: each pass is driven by hand, nothing sleeps for effect.

mod bulk;
mod bulk_crash;
mod control;
mod dead_letters;
mod explain;
mod explain_jobs;
mod explain_waits;
mod fleet;
mod inbox;
mod ingest;
mod lanes;
mod observe;
mod process;
mod process_crash;
mod process_operator;
mod process_support;
mod read_ahead;
mod relay;
mod remote;
mod remote_handler;
mod repair;
mod running;
mod settle;
mod support;
mod waiting_delivery;
