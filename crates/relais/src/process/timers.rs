//! Timers that are due become inbox rows, and so replies from nobody.
//!
//! Only database time decides what is due. The clock here says when to ask the store again: when the next
//! timer is due, when one was set in this process, and once in a while for those of others.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use relais_core::{
    BoxFuture,
    process::TimerOwner,
    store::{Store, StoreError},
};
use tokio::sync::Notify;

use crate::{
    control::PausedTypes,
    observe::ProcessCounters,
    worker::{Progress, Worker},
};

/// Timers fired in one transaction.
const FIRED_MAX: usize = 500;
/// The longest rest: a process that died may have left timers behind.
const REST_MAX: Duration = Duration::from_secs(1);
/// The shortest, for a timer that is due in less than the clocks can tell.
const REST_MIN: Duration = Duration::from_millis(1);

/// When to look for timers next.
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
    /// A timer was set that is due after so long.
    pub(crate) fn set(&self, after: Duration) {
        if after >= REST_MAX {
            return;
        }
        let due = Instant::now() + after;
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        if due < *at {
            *at = due;
            self.earlier.notify_one();
        }
    }

    /// How long until then; at zero, the next time is put off as far as it goes.
    fn ring(&self) -> Duration {
        let now = Instant::now();
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = at.saturating_duration_since(now);
        if wait.is_zero() {
            *at = now + REST_MAX;
        }
        wait
    }
}

pub(crate) struct Timers {
    store: Arc<dyn Store>,
    alarm: Arc<Alarm>,
    counters: Arc<ProcessCounters>,
    owner: TimerOwner,
    paused: Arc<PausedTypes>,
    /// Called after timers became inbox rows, so that the inbox worker looks at once.
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

    async fn pass(&mut self) -> Result<Progress, StoreError> {
        let wait = self.alarm.ring();
        if !wait.is_zero() {
            return Ok(Progress::Idle { at_most: wait });
        }
        if !self.paused.is_read() {
            return Ok(Progress::Idle { at_most: REST_MAX });
        }
        let mut owner = self.owner.clone();
        if let Some(types) = &mut owner.process_types {
            types.retain(|process_type| !self.paused.contains(process_type));
        }
        let answer = self.store.fire_timers_of(owner, FIRED_MAX).await;
        if answer.is_err() {
            self.alarm.set(Duration::ZERO);
        }
        let answer = answer?;
        if let Some(next) = answer.next {
            self.alarm.set(next.max(REST_MIN));
        }
        if answer.fired == 0 {
            return Ok(Progress::Idle { at_most: REST_MAX });
        }
        relais_store::fail_point!("timers.after_fire");
        self.counters.timers(answer.fired);
        (self.fired)();
        Ok(Progress::Worked)
    }
}

impl Worker for Timers {
    fn run_once(&mut self) -> BoxFuture<'_, Result<Progress, StoreError>> {
        Box::pin(self.pass())
    }

    fn landed(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.alarm.earlier.notified())
    }
}
