//! Reasons to stop working on a bulk job: its lease is lost, or this process stops.
//!
//! Invariant: once a lease is lost, no call and no pause for its job continues.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// The reason why this worker does not continue a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// Another worker may own it now.
    Lost,
    /// This process stops: the job is released.
    Stop,
}

/// The tokens of both reasons.
#[derive(Clone, Debug)]
pub(crate) struct Halts {
    pub(crate) lost: CancellationToken,
    pub(crate) stop: CancellationToken,
}

impl Halts {
    pub(crate) fn check(&self) -> Result<(), Halt> {
        if self.lost.is_cancelled() {
            Err(Halt::Lost)
        } else if self.stop.is_cancelled() {
            Err(Halt::Stop)
        } else {
            Ok(())
        }
    }

    /// Rests, unless there is a reason to halt.
    pub(crate) async fn rest(&self, pause: Duration) -> Result<(), Halt> {
        tokio::select! {
            biased;
            () = self.lost.cancelled() => Err(Halt::Lost),
            () = self.stop.cancelled() => Err(Halt::Stop),
            () = tokio::time::sleep(pause) => Ok(()),
        }
    }

    /// Completes `work` unless the job is lost; a stop waits for it.
    pub(crate) async fn unless_lost<T>(&self, work: impl Future<Output = T>) -> Result<T, Halt> {
        tokio::select! {
            biased;
            () = self.lost.cancelled() => Err(Halt::Lost),
            done = work => Ok(done),
        }
    }
}
