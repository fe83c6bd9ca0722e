//! Decides whether a call to a target may start, and which key goes first while the target is probed.

use std::{collections::HashSet, time::Duration};

use relais_core::breaker::BreakerState;

use crate::{
    key_queues::{KeyQueues, QueueRow},
    limits::SharedLimits,
    random::random,
};

/// The rest of a paused target; a resume wakes it.
const PAUSED_REST: Duration = Duration::from_secs(1);

/// The permission to start a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Permit {
    Go,
    /// Ask again after this long.
    Wait(Duration),
    /// Ask again when a call returned.
    Full,
}

impl SharedLimits {
    /// Requests one call beside those in flight and those that were permitted and have not begun. After `Go`
    /// the call must follow: it is counted by the rate.
    pub(crate) fn permit(&self, in_flight: usize) -> Permit {
        if self.is_paused() {
            return Permit::Wait(PAUSED_REST);
        }
        let state = self.state();
        if state == BreakerState::Open {
            return Permit::Wait(self.wait());
        }
        if in_flight >= self.concurrency() {
            return Permit::Full;
        }
        let probes = state == BreakerState::HalfOpen;
        if probes && !self.may_probe(in_flight) {
            return Permit::Full;
        }
        if let Err(wait) = self.take() {
            return Permit::Wait(wait);
        }
        if probes {
            self.note_probe();
        }
        Permit::Go
    }
}

/// The keys that failed since the breaker opened: they and other keys probe the target in turn.
#[derive(Debug, Default)]
pub(crate) struct ProbedKeys {
    failed: HashSet<String>,
    /// The next probe is one of them: a target may fail the first call of every message.
    again: bool,
}

impl ProbedKeys {
    pub(crate) fn insert(&mut self, key: &str) {
        self.failed.insert(key.to_owned());
    }

    /// Forgets the keys once the breaker is closed.
    pub(crate) fn update(&mut self, state: BreakerState) {
        if state == BreakerState::Closed {
            *self = Self::default();
        }
    }

    /// Chooses the key of the one call that probes the target while the breaker is half open: a key that
    /// succeeded lately, else one that has not failed, and every second time one that failed. So bad messages
    /// in front cannot keep the breaker open.
    pub(crate) fn choose<R: QueueRow>(&mut self, limits: &SharedLimits, queues: &mut KeyQueues<R>) {
        if limits.state() == BreakerState::HalfOpen {
            let rank = |key: &str| (self.failed.contains(key) != self.again, limits.outlook(key));
            queues.put_first(rank, random());
            self.again = !self.again;
        }
    }
}
