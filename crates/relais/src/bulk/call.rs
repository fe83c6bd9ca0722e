//! Calls to a bulk target through the guards: breaker, rate, time limit; a panic is an unclear answer.
//!
//! Invariant: no call starts while the destination is paused, the breaker is open or the lease is lost, and every answer teaches
//! the breaker.

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
    delivery::{Delivery, Problem},
};

use super::halt::{Halt, Halts};
use crate::{limits::Limits, observe::DestinationCounters};

/// How long a target rests that will not take what we send until a person acts.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);

/// How long a paused job rests before it looks again.
const PAUSED_REST: Duration = Duration::from_millis(250);

/// What the target said, or why it was not asked.
pub(crate) type Answer<T> = Result<Result<T, CallProblem>, Halt>;

#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) target: Arc<dyn BulkTarget>,
    pub(crate) limits: Limits,
    pub(crate) counters: Arc<DestinationCounters>,
    pub(crate) halts: Halts,
}

impl Caller {
    /// One call that the rate counts. Waits for its turn.
    pub(crate) async fn call<'a, T>(
        &'a self,
        limit: Duration,
        call: impl FnOnce(&'a dyn BulkTarget) -> BoxFuture<'a, Result<T, CallProblem>>,
    ) -> Answer<T> {
        self.turn().await?;
        while let Err(wait) = self.limits.take() {
            self.halts.rest(wait).await?;
        }
        let answer = self.run(limit, call).await?;
        match &answer {
            // It answers, so it is there.
            Ok(_) | Err(CallProblem::OtherState(_)) => self.limits.answered(),
            Err(problem) => self.learn(problem),
        }
        Ok(answer)
    }

    /// Work on our side of the target; only what goes wrong teaches the breaker.
    pub(crate) async fn prepare<'a, T>(
        &'a self,
        limit: Duration,
        call: impl FnOnce(&'a dyn BulkTarget) -> BoxFuture<'a, Result<T, CallProblem>>,
    ) -> Answer<T> {
        self.turn().await?;
        let answer = self.run(limit, call).await?;
        if let Err(problem) = &answer {
            self.learn(problem);
        }
        Ok(answer)
    }

    /// The target refused what we sent as a whole: it rests, and a person learns why.
    pub(crate) fn refused(&self, problem: &Problem) {
        self.learn(&CallProblem::Refused(problem.clone()));
    }

    /// The answer for a row says that the target takes none now: it rests.
    pub(crate) fn outage(&self, outage: CallProblem) {
        self.learn(&outage);
    }

    /// Waits until no operator's pause and no breaker holds calls back.
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
    ) -> Answer<T> {
        let start = Instant::now();
        let calm = AssertUnwindSafe(async { call(self.target.as_ref()).await }).catch_unwind();
        let answer = self.halts.unless_lost(tokio::time::timeout(limit, calm)).await?;
        self.counters.called(start.elapsed());
        Ok(match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => unclear("TARGET_PANIC", "the bulk target panicked"),
            Err(_) => unclear("TIMEOUT", &format!("no answer within {limit:?}")),
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

/// What a row's answer says about the whole target.
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
