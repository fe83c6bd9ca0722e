//! Figures that each process reports, so that any of them can show the sum of all.

use std::time::Duration;

use serde::Serialize;

use crate::time::Timestamp;

/// A report without news is written this often; one with news once a second.
pub const REPORT_EVERY: Duration = Duration::from_secs(10);
/// A process whose last report is older than this is lost.
pub const REPORT_VALID: Duration = Duration::from_secs(30);
/// Reports that are older than this are removed.
pub const REPORT_KEPT: Duration = Duration::from_secs(600);
/// Most reports that are read.
pub const REPORTS_MAX: usize = 1_000;

/// The report of a process about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewReport {
    /// The name of its workers: unique to one run of one process.
    pub worker: String,
    pub host: String,
    pub pid: u32,
    /// The version of relais.
    pub version: String,
    /// JSON.
    pub figures: String,
}

/// One row of `relais_report`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    pub worker: String,
    pub host: String,
    pub pid: u32,
    pub version: String,
    pub started_at: Timestamp,
    pub reported_at: Timestamp,
    /// True if it reported within [`REPORT_VALID`].
    pub alive: bool,
    #[serde(skip)]
    pub figures: String,
}

/// A change of the report of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportUpdate {
    /// Replaces it.
    Write(NewReport),
    /// Removes it: the process stops.
    Remove { worker: String },
}
