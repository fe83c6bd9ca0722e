//! Rate and breaker of one destination, shared by everything that calls it, and what people are told
//! of them.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use relais_core::{
    delivery::Problem,
    lane::Scope,
    limits::{Breaker, BreakerState, RateLimit},
};

use crate::app::DestinationSettings;

/// Cheap to clone; all clones are the same limits.
#[derive(Clone, Debug)]
pub(crate) struct Limits(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    rate: Option<RateLimit>,
    breaker: Breaker,
    started: Instant,
    /// The breaker as it was last told in the log, and the last reason it had.
    told: BreakerState,
    reason: Option<Problem>,
}

impl Limits {
    pub(crate) fn new(settings: &DestinationSettings) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            rate: settings.rate.map(|(calls, period)| RateLimit::new(calls, period)),
            breaker: Breaker::new(settings.breaker),
            started: Instant::now(),
            told: BreakerState::Closed,
            reason: None,
        })))
    }

    pub(crate) fn state(&self) -> BreakerState {
        let mut inner = self.lock();
        let now_ns = inner.now_ns();
        inner.breaker.state(now_ns)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state() == BreakerState::Open
    }

    /// Whether the call under way is a probe of a target that failed too often.
    pub(crate) fn is_probing(&self) -> bool {
        self.lock().breaker.is_probing()
    }

    /// How long the breaker stays open.
    pub(crate) fn wait(&self) -> Duration {
        let inner = self.lock();
        inner.breaker.wait(inner.now_ns())
    }

    /// Takes one call of the rate, or says how long to wait.
    pub(crate) fn take(&self) -> Result<(), Duration> {
        let mut inner = self.lock();
        let now_ns = inner.now_ns();
        inner.rate.as_mut().map_or(Ok(()), |rate| rate.take(now_ns))
    }

    pub(crate) fn succeeded(&self) {
        self.lock().breaker.succeeded();
    }

    pub(crate) fn failed(&self) {
        let mut inner = self.lock();
        let now_ns = inner.now_ns();
        inner.breaker.failed(now_ns);
    }

    pub(crate) fn outage(&self, after: Option<Duration>) {
        let mut inner = self.lock();
        let now_ns = inner.now_ns();
        inner.breaker.outage(now_ns, after);
    }

    /// What people are told if the breaker opens now.
    pub(crate) fn because(&self, problem: &Problem) {
        self.lock().reason = Some(problem.clone());
    }

    /// Tells a person once when the target goes away and once when it is back.
    pub(crate) fn tell(&self, scope: &Scope) -> BreakerState {
        let state = self.state();
        let mut inner = self.lock();
        match (inner.told, state) {
            (BreakerState::Closed, BreakerState::Open) => {
                let reason = inner.reason.take().unwrap_or_else(|| Problem::new("", ""));
                let Problem { code, message } = reason;
                tracing::warn!(%scope, code, "target is away, its messages wait: {message}");
            }
            (BreakerState::Open, BreakerState::Closed) => tracing::info!(%scope, "target is back"),
            _ => return state,
        }
        inner.told = state;
        state
    }

    /// No lock is held across an await; a poisoned one still has sound contents.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
