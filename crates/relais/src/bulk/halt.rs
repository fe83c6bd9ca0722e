//! When to let a bulk job be: its lease is lost, or this process stops.
//!
//! Invariant: once a lease is lost, no call and no pause for its job goes on.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Why a job is not worked on any further here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// Somebody else may have it by now.
    Lost,
    /// It is to be handed over.
    Stop,
}

/// Both reasons, as they come.
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

    /// Rests for so long, unless there is a reason to halt.
    pub(crate) async fn rest(&self, pause: Duration) -> Result<(), Halt> {
        tokio::select! {
            biased;
            () = self.lost.cancelled() => Err(Halt::Lost),
            () = self.stop.cancelled() => Err(Halt::Stop),
            () = tokio::time::sleep(pause) => Ok(()),
        }
    }

    /// Lets `work` come to its end while the job is ours; a stop waits for it.
    pub(crate) async fn unless_lost<T>(&self, work: impl Future<Output = T>) -> Result<T, Halt> {
        tokio::select! {
            biased;
            () = self.lost.cancelled() => Err(Halt::Lost),
            done = work => Ok(done),
        }
    }
}
