//! Calls to a bulk target, limited by breaker, rate and time limit; a panic is an unclear answer.
//!
//! Invariant: no call starts while the destination is paused, the breaker is open or the lease is lost, and
//! the breaker learns from every answer.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use relais_core::{
    BoxFuture,
    breaker::OpenCause,
    bulk::{BulkTarget, CallProblem},
    delivery::{Delivery, Problem, TIMEOUT},
};

use super::{
    halt::{Halt, Halts},
    settings::JOB_ROWS_MAX,
};
use crate::{limits::SharedLimits, observe::DestinationCounters};

/// The rest of a target that refuses what is sent until an operator acts.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);

/// The rest of a paused job before it checks again.
const PAUSED_REST: Duration = Duration::from_millis(250);

/// The answer of the target, or why it was not called.
pub(crate) type CallAnswer<T> = Result<Result<T, CallProblem>, Halt>;

#[derive(Clone)]
pub(crate) struct BulkCaller {
    pub(crate) target: Arc<dyn BulkTarget>,
    pub(crate) limits: SharedLimits,
    pub(crate) counters: Arc<DestinationCounters>,
    pub(crate) halts: Halts,
}

impl BulkCaller {
    /// Returns the most rows of a job.
    pub(crate) fn rows_max(&self) -> usize {
        self.target.rows_max().clamp(1, JOB_ROWS_MAX as usize)
    }

    /// Makes a call that the rate counts, after waiting for its turn.
    pub(crate) async fn call<'a, T>(
        &'a self,
        limit: Duration,
        call: impl FnOnce(&'a dyn BulkTarget) -> BoxFuture<'a, Result<T, CallProblem>>,
    ) -> CallAnswer<T> {
        self.turn().await?;
        while let Err(wait) = self.limits.take() {
            self.halts.rest(wait).await?;
        }
        let answer = self.run(limit, call).await?;
        match &answer {
            // The target answers, so it is available.
            Ok(_) | Err(CallProblem::OtherState(_)) => self.limits.answered(),
            Err(problem) => self.learn(problem),
        }
        Ok(answer)
    }

    /// Does work of the target on this side; only its failures are evidence for the breaker.
    pub(crate) async fn prepare<'a, T>(
        &'a self,
        limit: Duration,
        call: impl FnOnce(&'a dyn BulkTarget) -> BoxFuture<'a, Result<T, CallProblem>>,
    ) -> CallAnswer<T> {
        self.turn().await?;
        let answer = self.run(limit, call).await?;
        if let Err(problem) = &answer {
            self.learn(problem);
        }
        Ok(answer)
    }

    /// Opens the breaker because the target refused a job as a whole; operators see the reason.
    pub(crate) fn refused(&self, problem: &Problem) {
        self.learn(&CallProblem::Refused(problem.clone()));
    }

    /// Opens the breaker because the answer for a row is about the whole target.
    pub(crate) fn outage(&self, outage: CallProblem) {
        self.learn(&outage);
    }

    /// Waits until the destination is not paused and the breaker is not open.
    async fn turn(&self) -> Result<(), Halt> {
        self.halts.check()?;
        loop {
            let wait = if self.limits.is_paused() {
                PAUSED_REST
            } else if self.limits.is_open() {
                self.limits.wait()
            } else {
                return Ok(());
            };
            self.halts.rest(wait).await?;
        }
    }

    async fn run<'a, T>(
        &'a self,
        limit: Duration,
        call: impl FnOnce(&'a dyn BulkTarget) -> BoxFuture<'a, Result<T, CallProblem>>,
    ) -> CallAnswer<T> {
        let start = Instant::now();
        let caught = AssertUnwindSafe(async { call(self.target.as_ref()).await }).catch_unwind();
        let answer = self.halts.unless_lost(tokio::time::timeout(limit, caught)).await?;
        self.counters.called(start.elapsed());
        Ok(match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => unclear("TARGET_PANIC", "the bulk target panicked"),
            Err(_) => unclear(TIMEOUT, &format!("no answer within {limit:?}")),
        })
    }

    fn learn(&self, problem: &CallProblem) {
        let (reason, cause, after) = match problem {
            CallProblem::Outage { problem, after } => (problem, OpenCause::Unreachable, *after),
            CallProblem::Unclear(problem) | CallProblem::OtherState(problem) => {
                (problem, OpenCause::Failing, None)
            }
            CallProblem::Refused(problem) => {
                (problem, OpenCause::Configuration, Some(REFUSED_PAUSE))
            }
        };
        self.counters.outage(reason);
        self.limits.because(reason);
        self.limits.rest(cause, after);
    }
}

/// Returns the outage of the whole target that a row's answer reports, if any.
pub(crate) fn outage_of(delivery: &Delivery) -> Option<CallProblem> {
    match delivery {
        Delivery::Outage { problem, after } => {
            let after = after.or(Some(REFUSED_PAUSE));
            Some(CallProblem::Outage { problem: problem.clone(), after })
        }
        Delivery::Misconfigured { problem, .. } => Some(CallProblem::Refused(problem.clone())),
        _ => None,
    }
}

fn unclear<T>(code: &str, message: &str) -> Result<T, CallProblem> {
    Err(CallProblem::Unclear(Problem::new(code, message)))
}
