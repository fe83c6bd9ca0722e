//! Rate, concurrency, circuit breaker and evidence of one destination, shared by everything that calls it,
//! and their state for operators.

mod answers;

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use relais_core::{
    breaker::{Breaker, BreakerState, FailedCall, OpenCause},
    control::LimitChange,
    delivery::{Delivery, Problem, TargetContact},
    fault::{Evidence, Fault, Judgement, News, Outlook, judge},
    lane::Scope,
    limits::{Concurrency, RateLimit},
    message::Category,
};

use self::answers::{
    excuse, failed_as_a_whole, failure_times, is_answer, last_problem, rests_at_once,
};
use crate::{app::DestinationSettings, lock::lock};

/// The key of a call that carries no message.
const NO_KEY: u64 = 0;
/// Keys whose last call failed get one of this many calls in flight.
const DOUBTFUL_SHARE: usize = 4;
/// A call that fails as a whole is halved at every such failure, also without a sign that the target works.
const HALVED_EVERY: u32 = 3;

/// The limits of a destination. Cheap to clone; clones share the same limits.
#[derive(Clone, Debug)]
pub(crate) struct SharedLimits(Arc<Mutex<LimitsState>>);

#[derive(Debug)]
struct LimitsState {
    configured: LimitChange,
    /// The limits in force: configured, or set by an operator.
    allowed: (Option<(u32, Duration)>, u32),
    rate: Option<RateLimit>,
    concurrency: Concurrency,
    breaker: Breaker,
    /// When the breaker opened whose probe was permitted last.
    probed_ns: Option<u64>,
    /// An operator paused the destination, or the controls were not read yet.
    paused: bool,
    contact: TargetContact,
    evidence: Evidence,
    started: Instant,
    /// The breaker state that was logged last, and the last reason.
    reported: BreakerState,
    reason: Option<Problem>,
}

/// The assessment of a finished call.
#[derive(Debug)]
pub(crate) struct CallAssessment {
    /// One for each delivery.
    pub(crate) judgements: Vec<Judgement>,
    /// The call failed as a whole: halving finds the message that is the reason.
    pub(crate) halve: bool,
}

/// The limits at one moment, for operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitsView {
    pub(crate) breaker: Option<BreakerState>,
    pub(crate) cause: Option<OpenCause>,
    /// The remaining time that the breaker is open.
    pub(crate) open_for: Option<Duration>,
    pub(crate) contact: TargetContact,
    pub(crate) paused: bool,
    pub(crate) rate: Option<(u32, Duration)>,
    pub(crate) concurrency: u32,
}

impl SharedLimits {
    pub(crate) fn new(settings: &DestinationSettings) -> Self {
        Self(Arc::new(Mutex::new(LimitsState::new(settings))))
    }

    pub(crate) fn state(&self) -> BreakerState {
        let mut inner = self.lock();
        let now_ns = inner.now_ns();
        inner.breaker.state(now_ns)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state() == BreakerState::Open
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.lock().paused
    }

    /// Returns whether no call may start: paused, or the breaker is open.
    pub(crate) fn is_resting(&self) -> bool {
        self.is_paused() || self.is_open()
    }

    /// Pauses or resumes; returns whether that is a change.
    pub(crate) fn set_paused(&self, paused: bool) -> bool {
        std::mem::replace(&mut self.lock().paused, paused) != paused
    }

    /// Replaces the limits; what is not named is as configured.
    pub(crate) fn change(&self, limits: LimitChange) {
        let mut inner = self.lock();
        let rate = limits.rate.or(inner.configured.rate);
        let concurrency = limits.concurrency.or(inner.configured.concurrency).unwrap_or(1);
        inner.allowed = (rate, concurrency);
        inner.rate = rate.map(|(calls, period)| RateLimit::new(calls, period));
        inner.concurrency = Concurrency::new(usize::try_from(concurrency).unwrap_or(usize::MAX));
    }

    /// Ends the pause of an open breaker: the next call shows whether the target works again.
    pub(crate) fn reset(&self) {
        let mut inner = self.lock();
        let now_ns = inner.now_ns();
        inner.breaker.probe_now(now_ns);
    }

    /// Returns whether the call that probes the target may start, beside calls from before the breaker opened.
    pub(crate) fn may_probe(&self, in_flight: usize) -> bool {
        let inner = self.lock();
        in_flight == 0 || inner.probed_ns != Some(inner.breaker.opened_ns())
    }

    /// Notes that the target is probed.
    pub(crate) fn note_probe(&self) {
        let mut inner = self.lock();
        inner.probed_ns = Some(inner.breaker.opened_ns());
    }

    /// Returns whether a rate is in force.
    pub(crate) fn has_rate(&self) -> bool {
        self.lock().rate.is_some()
    }

    pub(crate) fn view(&self) -> LimitsView {
        let state = self.state();
        let inner = self.lock();
        LimitsView {
            breaker: Some(state),
            cause: inner.breaker.cause(),
            open_for: (state == BreakerState::Open).then(|| inner.breaker.wait(inner.now_ns())),
            contact: inner.contact,
            paused: inner.paused,
            rate: inner.allowed.0,
            concurrency: inner.allowed.1,
        }
    }

    /// Returns how likely the next call of this key is to succeed.
    pub(crate) fn outlook(&self, key: &str) -> Outlook {
        self.lock().evidence.outlook(Evidence::key(key))
    }

    /// Returns how many calls of keys whose last call failed may run at once, so that slow ones do not delay
    /// all others.
    pub(crate) fn doubtful_max(&self) -> usize {
        (self.concurrency() / DOUBTFUL_SHARE).max(1)
    }

    /// Returns how many calls may run at once now.
    pub(crate) fn concurrency(&self) -> usize {
        self.lock().concurrency.get()
    }

    /// Returns the remaining time that the breaker is open.
    pub(crate) fn wait(&self) -> Duration {
        let inner = self.lock();
        inner.breaker.wait(inner.now_ns())
    }

    /// Takes one call of the rate, or returns how long to wait.
    pub(crate) fn take(&self) -> Result<(), Duration> {
        let mut inner = self.lock();
        let now_ns = inner.now_ns();
        inner.rate.as_mut().map_or(Ok(()), |rate| rate.take(now_ns))
    }

    /// Learns from a finished call that carried messages of these keys and categories and began at `began`.
    pub(crate) fn learn<'k>(
        &self,
        messages: impl Iterator<Item = (&'k str, Category)>,
        deliveries: &[Delivery],
        began: Instant,
    ) -> CallAssessment {
        let (keys, categories): (Vec<u64>, Vec<Category>) =
            messages.map(|(key, category)| (Evidence::key(key), category)).unzip();
        let mut inner = self.lock();
        let (began_ns, now_ns) = (inner.ns_at(began), inner.now_ns());
        inner.learn((&keys, &categories), deliveries, began_ns, now_ns)
    }

    /// Records an answer to a call that carried no message.
    pub(crate) fn answered(&self) {
        let mut inner = self.lock();
        let now_ns = inner.now_ns();
        inner.contact = TargetContact::Succeeded;
        inner.breaker.accepted(NO_KEY, now_ns);
    }

    /// Opens the breaker at once.
    pub(crate) fn rest(&self, cause: OpenCause, pause: Option<Duration>) {
        let mut inner = self.lock();
        let now_ns = inner.now_ns();
        inner.breaker.rest(cause, pause, now_ns);
    }

    /// Sets the reason that is logged if the breaker opens now.
    pub(crate) fn because(&self, problem: &Problem) {
        self.lock().reason = Some(problem.clone());
    }

    /// Logs once when the target becomes unavailable and once when it is available again.
    pub(crate) fn report(&self, scope: &Scope) -> BreakerState {
        let state = self.state();
        let mut inner = self.lock();
        match (inner.reported, state) {
            (BreakerState::Closed, BreakerState::Open) => {
                let reason = inner.reason.take().unwrap_or_else(|| Problem::new("", ""));
                let cause = inner.breaker.cause().map(OpenCause::as_str);
                let Problem { code, message } = reason;
                tracing::warn!(
                    %scope, code, cause, "target is unavailable, its messages wait: {message}"
                );
            }
            (BreakerState::Open, BreakerState::Closed) => {
                tracing::info!(%scope, "target is available again");
            }
            _ => return state,
        }
        inner.reported = state;
        state
    }

    fn lock(&self) -> MutexGuard<'_, LimitsState> {
        lock(&self.0)
    }
}

impl LimitsState {
    fn new(settings: &DestinationSettings) -> Self {
        let concurrency = u32::try_from(settings.concurrency).unwrap_or(u32::MAX);
        Self {
            configured: LimitChange { rate: settings.rate, concurrency: Some(concurrency) },
            allowed: (settings.rate, concurrency),
            rate: settings.rate.map(|(calls, period)| RateLimit::new(calls, period)),
            concurrency: Concurrency::new(settings.concurrency),
            breaker: Breaker::new(settings.breaker),
            probed_ns: None,
            paused: false,
            contact: TargetContact::Unknown,
            evidence: Evidence::new(0),
            started: Instant::now(),
            reported: BreakerState::Closed,
            reason: None,
        }
    }

    fn now_ns(&self) -> u64 {
        self.ns_at(Instant::now())
    }

    fn ns_at(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.started).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Learns from a finished call.
    fn learn(
        &mut self,
        (keys, categories): (&[u64], &[Category]),
        deliveries: &[Delivery],
        began_ns: u64,
        now_ns: u64,
    ) -> CallAssessment {
        self.contact = deliveries.iter().map(Delivery::contact).fold(self.contact, Ord::max);
        if let Some(problem) = last_problem(deliveries) {
            self.reason = Some(problem.clone().fitted());
        }
        // The current state decides which messages are excused.
        let probing = self.breaker.state(now_ns) == BreakerState::HalfOpen;
        let mut assessment = match failed_as_a_whole(deliveries) {
            Some(delivery) => self.learn_whole(keys, delivery, began_ns, now_ns),
            None => self.learn_each((keys, categories), deliveries, began_ns, now_ns),
        };
        if probing || self.breaker.state(now_ns) == BreakerState::Open {
            excuse(&mut assessment.judgements, deliveries);
        }
        assessment
    }

    /// Learns from a call of many messages that failed with one answer: no message is at fault, and it counts
    /// as one failure of its first key.
    fn learn_whole(
        &mut self,
        keys: &[u64],
        delivery: &Delivery,
        began_ns: u64,
        now_ns: u64,
    ) -> CallAssessment {
        let first = keys.first().copied().unwrap_or(NO_KEY);
        let was_failing = self.evidence.is_failing(first);
        let times = failure_times(delivery, began_ns, now_ns);
        let facts = self.evidence.failed(first, times);
        self.evidence.failed_together(keys.get(1..).unwrap_or_default(), times);
        self.failed(first, was_failing, delivery, now_ns);
        let works = matches!(facts.others, Some(News::Good { .. }));
        let halve = works || facts.failures % HALVED_EVERY == 1;
        let judgement = Judgement { fault: Fault::Target, failures: facts.failures };
        CallAssessment { judgements: vec![judgement; keys.len()], halve }
    }

    fn learn_each(
        &mut self,
        (keys, categories): (&[u64], &[Category]),
        deliveries: &[Delivery],
        began_ns: u64,
        now_ns: u64,
    ) -> CallAssessment {
        let was_failing: Vec<bool> =
            keys.iter().map(|key| self.evidence.is_failing(*key)).collect();
        let judgements = keys
            .iter()
            .zip(categories)
            .zip(deliveries)
            .map(|(message, delivery)| self.learn_one(message, delivery, began_ns, now_ns));
        let judgements = judgements.collect();
        let first = deliveries.iter().position(|delivery| delivery.failure().is_some());
        match first {
            Some(at) if !deliveries.iter().any(is_answer) => {
                self.failed(keys[at], was_failing[at], &deliveries[at], now_ns);
            }
            _ => {}
        }
        CallAssessment { judgements, halve: false }
    }

    fn learn_one(
        &mut self,
        (&key, category): (&u64, &Category),
        delivery: &Delivery,
        began_ns: u64,
        now_ns: u64,
    ) -> Judgement {
        match delivery {
            Delivery::Accepted => {
                self.evidence.succeeded(key, began_ns, now_ns);
                self.breaker.accepted(key, now_ns);
                self.concurrency.accepted(now_ns);
                Judgement::MESSAGE
            }
            Delivery::Reject { problem } => {
                self.evidence.rejected(key, now_ns);
                // The address of a reply is its command's: many refused ones say nothing about the others.
                let counted = if *category == Category::Reply { NO_KEY } else { key };
                let spared = self.breaker.rejected(counted, &problem.code, now_ns);
                if spared { Judgement::TARGET } else { Judgement::MESSAGE }
            }
            Delivery::Held => Judgement::TARGET,
            // Wait, Retry, Busy, Misconfigured, Outage.
            _ => {
                let times = failure_times(delivery, began_ns, now_ns);
                let facts = self.evidence.failed(key, times);
                if let Some(cause) = rests_at_once(delivery) {
                    let asked = delivery.problem().and_then(|(_, after)| after);
                    self.breaker.rest(cause, asked, now_ns);
                }
                // A message that waits says nothing about its target.
                let fault = delivery.failure().map_or(Fault::Target, |kind| judge(kind, &facts));
                Judgement { fault, failures: facts.failures }
            }
        }
    }

    /// Learns from a failed call in which no message was accepted or rejected.
    fn failed(&mut self, key: u64, was_failing: bool, delivery: &Delivery, now_ns: u64) {
        let asked = delivery.problem().and_then(|(_, after)| after);
        if let Some(cause) = rests_at_once(delivery) {
            self.breaker.rest(cause, asked, now_ns);
            return;
        }
        if matches!(delivery, Delivery::Busy { .. }) {
            self.concurrency.busy(key, now_ns);
        }
        if matches!(delivery, Delivery::Outage { .. }) {
            self.breaker.unreachable(now_ns);
        } else {
            let misconfigured = matches!(delivery, Delivery::Misconfigured { .. });
            self.breaker.failed(FailedCall { key, was_failing, misconfigured, asked }, now_ns);
        }
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_an_open_breaker_is_the_last_rejection() {
        let limits = SharedLimits::new(&DestinationSettings::default());
        let learn = |key: &str, delivery: Delivery| {
            limits.learn([(key, Category::Event)].into_iter(), &[delivery], Instant::now());
        };
        for n in 0..5 {
            assert_eq!(limits.state(), BreakerState::Closed);
            learn(&format!("k{n}"), Delivery::reject("HTTP_422", &format!("refused {n}")));
        }
        assert_eq!(limits.state(), BreakerState::Open);
        let waiting = Problem::new("TOPIC", "it does not exist");
        learn("w", Delivery::Wait { problem: waiting, after: None });
        let reason = limits.lock().reason.clone();
        assert_eq!(reason, Some(Problem::new("HTTP_422", "refused 4")));
    }
}
