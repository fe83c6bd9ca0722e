//! The life of a bulk job: many outbox rows sent in one upload, whose results come later.
//!
//! Invariant: every phase is committed before and after the call it stands for, so that a worker that
//! takes a job over follows it instead of sending its rows again. A row belongs to at most one open
//! job; while it does, the job's lease stands for the row's lane.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    async_trait,
    delivery::{Delivery, Problem},
    lane::{Fence, OwnedLane},
    outbox::OutboxRow,
    time::Timestamp,
};

/// The last committed phase of a job. The text is in the `phase` column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Phase {
    /// Its rows are chosen.
    Planned,
    /// The target was asked to make the job, and did not answer yet.
    Creating,
    /// The target has an empty job; its id is known.
    Created,
    /// The upload is in flight, or its answer was lost.
    Uploading,
    /// The upload was answered.
    Uploaded,
    /// The target was asked to begin, and did not answer yet.
    Closing,
    /// The target has closed the job and works on it.
    Closed,
    /// The target is done with it; the results are not all in our rows yet.
    Finished,
    /// Every row is settled.
    Reconciled,
    /// Given up before the target did anything; its rows go again.
    Abandoned,
}

impl Phase {
    /// All phases, in order.
    pub const ALL: [Self; 10] = [
        Self::Planned,
        Self::Creating,
        Self::Created,
        Self::Uploading,
        Self::Uploaded,
        Self::Closing,
        Self::Closed,
        Self::Finished,
        Self::Reconciled,
        Self::Abandoned,
    ];

    /// Returns the phase as it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Planned => "PLANNED",
            Self::Creating => "CREATING",
            Self::Created => "CREATED",
            Self::Uploading => "UPLOADING",
            Self::Uploaded => "UPLOADED",
            Self::Closing => "CLOSING",
            Self::Closed => "CLOSED",
            Self::Finished => "FINISHED",
            Self::Reconciled => "RECONCILED",
            Self::Abandoned => "ABANDONED",
        }
    }

    /// Parses a stored phase; `None` if this program does not know it.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == text)
    }

    /// Returns whether nothing is left to do.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Reconciled | Self::Abandoned)
    }

    /// Returns whether the upload was not begun: the rows are only in the worker's memory.
    pub fn is_before_upload(self) -> bool {
        matches!(self, Self::Planned | Self::Creating | Self::Created)
    }
}

/// The state of a job at the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remote {
    /// Made, not begun; it is unknown whether an upload arrived.
    Open,
    /// Waits or runs.
    Running,
    /// Done with every row, whatever became of it.
    Complete,
    /// Stopped as a whole; rows done before stay done.
    Failed(Problem),
    /// The job was aborted.
    Aborted,
    /// Unknown there: deleted, or too old.
    Gone,
}

/// The next step of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkStep {
    /// Create the job at the target.
    Create,
    /// Upload the rows.
    Upload,
    /// Close the job, so that the target begins to work on it.
    Close,
    /// Ask again later.
    Wait,
    /// Read the results and settle the rows.
    Reconcile,
    /// Nothing was done there: abort it if it has an id, and let its rows go again.
    Abandon,
    /// Its results are lost: every row goes again as of unknown outcome.
    Lose,
    /// Ask the target what it is.
    Look,
}

/// Decides the next step after a pause of any length, from the committed phase and the state at the target.
///
/// Without `remote` only phases that need no question get an answer other than [`BulkStep::Look`].
pub fn next(phase: Phase, remote: Option<&Remote>) -> BulkStep {
    match (phase, remote) {
        // Asked without result, or not at all: a job made by a lost answer is empty and does nothing.
        (Phase::Planned | Phase::Creating, _) => BulkStep::Create,
        (Phase::Finished, _) => BulkStep::Reconcile,
        (Phase::Reconciled | Phase::Abandoned, _) => BulkStep::Wait,
        (_, None) => BulkStep::Look,
        (_, Some(Remote::Gone)) => BulkStep::Lose,
        (_, Some(Remote::Complete | Remote::Failed(_) | Remote::Aborted)) => BulkStep::Reconcile,
        (_, Some(Remote::Running)) => BulkStep::Wait,
        (Phase::Created, Some(Remote::Open)) => BulkStep::Upload,
        // An upload cannot be repeated and an open job has done nothing: a new one is safe.
        (Phase::Uploading, Some(Remote::Open)) => BulkStep::Abandon,
        (Phase::Uploaded | Phase::Closing | Phase::Closed, Some(Remote::Open)) => BulkStep::Close,
    }
}

/// One row of `relais_bulk_job`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BulkJob {
    /// The id that relais gave the job.
    pub id: Uuid,
    /// The destination of its rows.
    pub destination: String,
    /// The target's own id, once known.
    pub remote_id: Option<String>,
    /// The last committed phase.
    pub phase: Phase,
    /// The number of rows that were planned.
    pub row_count: u64,
    /// The worker that holds it; the epoch is raised at every change of owner.
    pub owner: Option<String>,
    /// The epoch of the lease: it rises with each worker that takes the job.
    pub epoch: i64,
    /// The time at which it was planned.
    pub created_at: Timestamp,
    /// The time at which it was reconciled or abandoned.
    pub finished_at: Option<Timestamp>,
    /// The last remark for an operator.
    pub error_message: Option<String>,
}

/// A job that a worker holds: planned, taken over or renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobTakeover {
    /// The job.
    pub job: BulkJob,
    /// The last worker did not release it: one of its rows may be the reason.
    pub after_loss: bool,
}

/// Proof that a worker holds a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFence {
    /// The id of the job.
    pub job: Uuid,
    /// The worker that holds it.
    pub worker: String,
    /// The epoch under which the worker took it.
    pub epoch: i64,
}

/// A committed change of phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advance {
    /// The phase that the job must be in.
    pub from: Phase,
    /// The phase afterwards.
    pub to: Phase,
    /// Set when the target named it.
    pub remote_id: Option<String>,
    /// A remark about the job for operators.
    pub note: Option<String>,
}

/// A change of the lease of a bulk job. Only database time decides.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BulkLease {
    /// Makes a job of rows whose lanes are held, in phase `PLANNED`, leased to the fence's worker. Nothing
    /// changes if the destination has an open job, or a lane or row is no longer the worker's.
    Plan { fence: Fence, job: Uuid, rows: Vec<(i64, OwnedLane)>, lease: Duration },
    /// Takes the destination's open job if no worker holds it (no owner, or the lease has expired), with a
    /// higher epoch.
    Take { destination: String, worker: String, lease: Duration },
    /// Extends the lease of a job that the worker still holds.
    Renew { fence: JobFence, lease: Duration },
    /// Gives the lease back; the phase stays.
    Release { fence: JobFence },
}

/// The reason why a call to the target failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallProblem {
    /// It did nothing, or repeating it is harmless: repeated after a pause. No attempt is used.
    Outage {
        /// The reason.
        problem: Problem,
        /// The shortest time until the next call, if the target gave one.
        after: Option<Duration>,
    },
    /// It may or may not have happened.
    Unclear(Problem),
    /// The job is in another state than expected: read its state.
    OtherState(Problem),
    /// The target refuses the call (credentials, settings): an operator must act. Rows stay.
    Refused(Problem),
}

/// A part of an upload, and the rows that are not in it.
#[derive(Debug, Default)]
pub struct EncodedRows {
    /// Empty if it has no row.
    pub body: Vec<u8>,
    /// Number of rows in the body.
    pub count: u64,
    /// Deliveries of rows that are not in the body. `Held`: the upload is full, or another row is
    /// sent first.
    pub left_out: Vec<(i64, Delivery)>,
}

/// A target that accepts many rows in one job: the counterpart of `Publisher`.
#[async_trait]
pub trait BulkTarget: Send + Sync {
    /// Returns the maximum number of rows in one job.
    fn rows_max(&self) -> usize;

    /// Encodes the next part of an upload that has `bytes_before` bytes so far, with fresh data.
    /// Each row is either in it or left out with a delivery. No two rows of one job have the same
    /// key or external id, so that parts are independent.
    async fn encode(
        &self,
        rows: &[OutboxRow],
        bytes_before: usize,
    ) -> Result<EncodedRows, CallProblem>;

    /// Creates an empty job. Returns its id.
    async fn create(&self) -> Result<String, CallProblem>;
    /// Sends the parts of an upload, in this order, as one body.
    async fn upload(&self, remote_id: &str, parts: Vec<Vec<u8>>) -> Result<(), CallProblem>;
    /// Starts the job.
    async fn close(&self, remote_id: &str) -> Result<(), CallProblem>;
    /// Aborts a job that was not started.
    async fn abort(&self, remote_id: &str) -> Result<(), CallProblem>;
    /// Returns the state of a job.
    async fn state(&self, remote_id: &str) -> Result<Remote, CallProblem>;

    /// Returns the deliveries of the rows with these external ids (`aggregate_id`), in order:
    /// `Held` for rows that were never tried, `Retry` for those in no result. If the job failed for
    /// a reason that no row can cause (a quota, the configuration), rows that were never tried get
    /// `Outage`.
    async fn results(
        &self,
        remote_id: &str,
        external_ids: &[String],
    ) -> Result<Vec<Delivery>, CallProblem>;

    /// Aborts our jobs at the target that are not in `known` and old enough to be orphans of a lost
    /// response. Returns how many.
    async fn sweep(&self, known: &[String]) -> Result<usize, CallProblem>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_has_one_text() {
        for phase in Phase::ALL {
            assert_eq!(Phase::parse(phase.as_str()), Some(phase));
            assert_eq!(serde_json::to_value(phase).unwrap(), phase.as_str());
        }
    }

    #[test]
    fn an_upload_of_unknown_outcome_is_never_repeated() {
        assert_eq!(next(Phase::Uploading, None), BulkStep::Look);
        assert_eq!(next(Phase::Uploading, Some(&Remote::Open)), BulkStep::Abandon);
        assert_eq!(next(Phase::Uploading, Some(&Remote::Running)), BulkStep::Wait);
    }

    #[test]
    fn the_targets_word_goes_before_ours() {
        for phase in [Phase::Created, Phase::Uploading, Phase::Uploaded, Phase::Closing] {
            assert_eq!(next(phase, Some(&Remote::Complete)), BulkStep::Reconcile);
            assert_eq!(next(phase, Some(&Remote::Aborted)), BulkStep::Reconcile);
            assert_eq!(next(phase, Some(&Remote::Gone)), BulkStep::Lose);
        }
        assert_eq!(next(Phase::Closing, Some(&Remote::Open)), BulkStep::Close);
        assert_eq!(next(Phase::Created, Some(&Remote::Open)), BulkStep::Upload);
    }

    #[test]
    fn a_creation_without_answer_is_repeated() {
        assert_eq!(next(Phase::Creating, None), BulkStep::Create);
        assert_eq!(next(Phase::Planned, None), BulkStep::Create);
    }
}
