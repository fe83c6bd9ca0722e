//! Turns due timers into inbox rows.
//!
//! Only database time decides what is due. The clock of this machine only decides when to ask the store
//! again: when the next timer is due, when one was set in this process, and once a second for timers of
//! other processes.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use relais_core::{
    process::TimerOwner,
    store::{Store, StoreError},
};
use tokio::sync::Notify;

use crate::{
    control::PausedTypes,
    lock::lock,
    observe::ProcessCounters,
    timing::REST_MAX,
    worker::{PassOutcome, Worker},
};

/// Maximum number of timers fired in one transaction.
const FIRED_MAX: usize = 500;
/// The shortest rest, for a timer that is due sooner than the clocks can resolve.
const REST_MIN: Duration = Duration::from_millis(1);

/// The time of the next poll for timers.
#[derive(Debug)]
pub(crate) struct Alarm {
    at: Mutex<Instant>,
    earlier: Notify,
}

impl Default for Alarm {
    fn default() -> Self {
        Self { at: Mutex::new(Instant::now()), earlier: Notify::new() }
    }
}

impl Alarm {
    /// Moves the next poll to a timer that is due after `after`, if that is earlier.
    pub(crate) fn set(&self, after: Duration) {
        if after >= REST_MAX {
            return;
        }
        let due = Instant::now() + after;
        let mut at = lock(&self.at);
        if due < *at {
            *at = due;
            self.earlier.notify_one();
        }
    }

    /// Returns the time until the next poll; at zero, the following poll is set to the longest rest.
    fn ring(&self) -> Duration {
        let now = Instant::now();
        let mut at = lock(&self.at);
        let wait = at.saturating_duration_since(now);
        if wait.is_zero() {
            *at = now + REST_MAX;
        }
        wait
    }
}

/// A worker that fires timers.
pub(crate) struct Timers {
    store: Arc<dyn Store>,
    alarm: Arc<Alarm>,
    counters: Arc<ProcessCounters>,
    owner: TimerOwner,
    paused: Arc<PausedTypes>,
    /// Called after timers became inbox rows, so that the inbox worker reads at once.
    fired: Box<dyn Fn() + Send + Sync>,
}

impl Timers {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        alarm: Arc<Alarm>,
        counters: Arc<ProcessCounters>,
        paused: Arc<PausedTypes>,
        fired: Box<dyn Fn() + Send + Sync>,
    ) -> Self {
        Self { store, alarm, counters, owner: TimerOwner::default(), paused, fired }
    }

    /// Fires the timers of these process types only, into this inbox.
    pub(crate) fn of(mut self, owner: TimerOwner) -> Self {
        self.owner = owner;
        self
    }
}

#[async_trait]
impl Worker for Timers {
    async fn run_once(&mut self) -> Result<PassOutcome, StoreError> {
        let wait = self.alarm.ring();
        if !wait.is_zero() {
            return Ok(PassOutcome::Idle { at_most: wait });
        }
        if !self.paused.is_read() {
            return Ok(PassOutcome::Idle { at_most: REST_MAX });
        }
        let mut owner = self.owner.clone();
        if let Some(types) = &mut owner.process_types {
            types.retain(|process_type| !self.paused.contains(process_type));
        }
        let answer = self.store.fire_timers(owner, FIRED_MAX).await;
        if answer.is_err() {
            self.alarm.set(Duration::ZERO);
        }
        let answer = answer?;
        if let Some(next) = answer.next {
            self.alarm.set(next.max(REST_MIN));
        }
        if answer.fired == 0 {
            return Ok(PassOutcome::Idle { at_most: REST_MAX });
        }
        crate::fail_point!("timers.after_fire");
        self.counters.timers(answer.fired);
        (self.fired)();
        Ok(PassOutcome::Worked)
    }

    async fn returned(&mut self) {
        self.alarm.earlier.notified().await;
    }
}
