//! The number of waiting rows of a key that become due together when the row before them is settled.

/// Behind a row that was sent by itself; the next ones follow when these are settled.
pub(crate) const RELEASED_ROWS: i64 = 200;
/// Behind a row of a bulk job: a job has one row of each key.
pub(crate) const RELEASED_FROM_JOB: i64 = 1;
