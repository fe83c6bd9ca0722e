//! Controls of operators: setting them, and applying them to the workers of this process.
//!
//! Invariant: nothing is sent, received or advanced before the pauses were read once, so a restart keeps
//! them. One small read per second serves all workers of the process.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use relais_core::{
    control::{CONCURRENCY_MAX, Control, ControlChange, ControlKind, ControlOrder, LimitChange},
    store::{RowMark, Store, StoreDriver, StoreError},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{limits::SharedLimits, lock::lock, observe::Figures};

/// The interval at which the controls are read.
const READ_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of names that an error lists.
const NAMES_SHOWN: usize = 8;

/// The reason why a control was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// No destination, source or process type has this name.
    #[error("no {} is `{name}`; {known}", kind.words())]
    Unknown {
        /// The kind.
        kind: ControlKind,
        /// The name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The change is not possible for this kind.
    #[error("{0}")]
    Invalid(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Carries out an operator's change and records it in the audit log. Returns `false` if nothing had to be
/// changed: it was paused already, or was not paused.
///
/// `declared` are the names in the configuration, beside those that running processes report and those
/// that rows name.
pub async fn control(
    store: &dyn StoreDriver,
    order: ControlOrder,
    declared: &[String],
) -> Result<bool, ControlError> {
    let ControlOrder { kind, name, change, .. } = &order;
    match change {
        ControlChange::Limit(_) | ControlChange::ResetBreaker
            if *kind != ControlKind::Destination =>
        {
            let text = format!("a {} has no limits and no circuit breaker", kind.words());
            return Err(ControlError::Invalid(text));
        }
        ControlChange::Limit(LimitChange { rate, concurrency }) => {
            let zero = rate.is_some_and(|(calls, period)| calls == 0 || period.is_zero());
            if zero || *concurrency == Some(0) {
                let text = "a limit must be at least 1; use pause to stop deliveries";
                return Err(ControlError::Invalid(text.to_owned()));
            }
            if concurrency.is_some_and(|calls| calls > CONCURRENCY_MAX) {
                let text = format!("the concurrency must be from 1 to {CONCURRENCY_MAX}");
                return Err(ControlError::Invalid(text));
            }
        }
        ControlChange::Pause | ControlChange::Resume | ControlChange::ResetBreaker => {}
    }
    let known = known(store, *kind, declared).await?;
    if !known.contains(name) {
        return Err(ControlError::Unknown {
            kind: *kind,
            name: name.clone(),
            known: listed(&known),
        });
    }
    Ok(store.control(order).await?)
}

/// Returns every name of a kind: declared, reported, controlled, or named by rows.
pub async fn known(
    store: &dyn StoreDriver,
    kind: ControlKind,
    declared: &[String],
) -> Result<BTreeSet<String>, StoreError> {
    let mut names: BTreeSet<String> = declared.iter().cloned().collect();
    for report in store.reports().await? {
        let Ok(figures) = serde_json::from_str::<Figures>(&report.figures) else { continue };
        names.extend(figures.names(kind));
    }
    let controls = store.controls().await?;
    names.extend(controls.into_iter().filter(|c| c.kind == kind).map(|c| c.name));
    if kind == ControlKind::Destination {
        let overview = store.overview().await?;
        names.extend(overview.backlogs.into_iter().map(|backlog| backlog.destination));
    }
    Ok(names)
}

fn listed(known: &BTreeSet<String>) -> String {
    let shown: Vec<&str> = known.iter().take(NAMES_SHOWN).map(String::as_str).collect();
    match known.len() {
        0 => "there are none".to_owned(),
        all if all > NAMES_SHOWN => {
            format!("there are {} and {} more", shown.join(", "), all - NAMES_SHOWN)
        }
        _ => format!("there are {}", shown.join(", ")),
    }
}

/// The permission to read a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// The controls were not read yet.
    Unknown,
    Open,
    Paused,
}

/// The process types that are paused, shared by the inbox worker and the timers.
#[derive(Debug, Default)]
pub(crate) struct PausedTypes {
    /// Absent before the controls were read.
    names: Mutex<Option<HashSet<String>>>,
}

impl PausedTypes {
    /// Returns a set without paused types: for workers that run without controls.
    #[cfg(test)]
    pub(crate) fn none() -> Arc<Self> {
        Arc::new(Self { names: Mutex::new(Some(HashSet::new())) })
    }

    pub(crate) fn is_read(&self) -> bool {
        self.lock().is_some()
    }

    pub(crate) fn contains(&self, process_type: &str) -> bool {
        self.lock().as_ref().is_some_and(|names| names.contains(process_type))
    }

    fn lock(&self) -> MutexGuard<'_, Option<HashSet<String>>> {
        lock(&self.names)
    }
}

/// The workers of this process that controls apply to.
#[derive(Default)]
pub(crate) struct ControlledWorkers {
    pub(crate) destinations: Vec<(String, SharedLimits)>,
    pub(crate) sources: Vec<(String, watch::Sender<Gate>)>,
    pub(crate) types: Arc<PausedTypes>,
    /// The numbers of the last limits and the last reset that were applied, by destination.
    seen: HashMap<String, (i64, i64)>,
    read_before: bool,
    /// A process type was resumed: rows that wait for it may continue.
    type_resumed: bool,
}

impl ControlledWorkers {
    /// Adds a destination; it sends nothing before the controls were read.
    pub(crate) fn destination(&mut self, name: &str, limits: SharedLimits) {
        limits.set_paused(true);
        self.destinations.push((name.to_owned(), limits));
    }

    /// Adds a source; returns its gate.
    pub(crate) fn source(&mut self, name: &str) -> watch::Receiver<Gate> {
        let (sender, receiver) = watch::channel(Gate::Unknown);
        self.sources.push((name.to_owned(), sender));
        receiver
    }

    /// Applies the controls. Returns whether something changed that concerns workers.
    fn apply(&mut self, controls: &[Control]) -> bool {
        let find = |kind, name: &str| controls.iter().find(|c| c.kind == kind && c.name == name);
        let mut changed = !self.read_before;
        for (name, limits) in &self.destinations {
            let control = find(ControlKind::Destination, name);
            changed |= limits.set_paused(control.is_some_and(|control| control.pause.is_some()));
            let Some(control) = control else { continue };
            let now = (control.limits_changed, control.breaker_resets);
            let before = self.seen.insert(name.clone(), now);
            // Limits stay in force after a restart, so that all processes have the same. A reset of the breaker
            // from before the start of this process does not concern it.
            let before = before.unwrap_or(if self.read_before { (0, 0) } else { (0, now.1) });
            if now.0 != before.0 {
                limits.change(control.limits);
                changed = true;
            }
            if now.1 != before.1 {
                limits.reset();
                changed = true;
            }
        }
        for (name, gate) in &self.sources {
            let paused = find(ControlKind::Source, name).is_some_and(|c| c.pause.is_some());
            let now = if paused { Gate::Paused } else { Gate::Open };
            changed |= gate.send_if_modified(|gate| std::mem::replace(gate, now) != now);
        }
        let paused = controls.iter().filter(|c| c.kind == ControlKind::ProcessType);
        let paused = paused.filter(|control| control.pause.is_some());
        let names: HashSet<String> = paused.map(|control| control.name.clone()).collect();
        let before = self.types.lock().replace(names.clone());
        changed |= before.as_ref() != Some(&names);
        self.type_resumed |= before.is_some_and(|before| !before.is_subset(&names));
        self.read_before = true;
        changed
    }
}

/// Reads the controls and applies them to the workers of this process.
pub(crate) struct ControlReader {
    store: Arc<dyn Store>,
    workers: ControlledWorkers,
    wake: Box<dyn Fn() + Send + Sync>,
    troubled: bool,
}

impl ControlReader {
    /// `wake` wakes the workers when something changed.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        workers: ControlledWorkers,
        wake: Box<dyn Fn() + Send + Sync>,
    ) -> Self {
        Self { store, workers, wake, troubled: false }
    }

    /// Reads once a second until `stop`.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        loop {
            self.read().await;
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(READ_EVERY) => {}
            }
        }
    }

    /// Reads once. What was committed before is in force afterwards.
    pub(crate) async fn read(&mut self) {
        match self.store.controls().await {
            Ok(controls) => {
                self.troubled = false;
                let changed = self.workers.apply(&controls);
                // Tried again in a second if it fails.
                if self.workers.type_resumed
                    && self.store.mark_rows(RowMark::ResumedProcessTypes).await.is_ok()
                {
                    self.workers.type_resumed = false;
                }
                if changed {
                    (self.wake)();
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut self.troubled, true) {
                    tracing::warn!(%error, "controls were not read; those of the last read stay in force");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use relais_core::{control::Pause, time::Timestamp};

    use super::*;
    use crate::app::DestinationSettings;

    fn row(kind: ControlKind, name: &str) -> Control {
        Control {
            kind,
            name: name.to_owned(),
            pause: None,
            limits: LimitChange::default(),
            limits_changed: 0,
            breaker_resets: 0,
        }
    }

    fn pause() -> Option<Pause> {
        Some(Pause { at: Timestamp(0), by: "ann".into(), reason: "maintenance".into() })
    }

    /// A change that is committed during a read is in force after the next one: within two seconds.
    #[test]
    fn two_reads_begin_within_two_seconds() {
        assert!(READ_EVERY <= Duration::from_secs(1));
    }

    #[test]
    fn nothing_runs_before_the_first_read() {
        let mut workers = ControlledWorkers::default();
        let limits = SharedLimits::new(&DestinationSettings::default());
        workers.destination("orders", limits.clone());
        let gate = workers.source("hook");
        assert!(limits.is_paused() && !workers.types.is_read());
        assert_eq!(*gate.borrow(), Gate::Unknown);
        assert!(workers.apply(&[]));
        assert!(!limits.is_paused() && workers.types.is_read());
        assert_eq!(*gate.borrow(), Gate::Open);
        assert!(!workers.apply(&[]), "nothing changed");
    }

    #[test]
    fn a_pause_applies_whenever_it_was_set() {
        let mut workers = ControlledWorkers::default();
        let limits = SharedLimits::new(&DestinationSettings::default());
        workers.destination("orders", limits.clone());
        let gate = workers.source("hook");
        let all = [ControlKind::Destination, ControlKind::Source, ControlKind::ProcessType];
        let paused: Vec<Control> = ["orders", "hook", "checkout"]
            .into_iter()
            .zip(all)
            .map(|(name, kind)| Control { pause: pause(), ..row(kind, name) })
            .collect();
        assert!(workers.apply(&paused));
        assert!(limits.is_paused() && workers.types.contains("checkout"));
        assert_eq!(*gate.borrow(), Gate::Paused);
        assert!(workers.apply(&[]));
        assert!(!limits.is_paused() && !workers.types.contains("checkout"));
    }

    #[test]
    fn limits_apply_until_they_are_reset_also_after_a_restart() {
        let limited = |number| Control {
            limits: LimitChange { rate: None, concurrency: Some(2) },
            limits_changed: number,
            ..row(ControlKind::Destination, "orders")
        };
        let mut workers = ControlledWorkers::default();
        let limits = SharedLimits::new(&DestinationSettings::default());
        workers.destination("orders", limits.clone());
        workers.apply(&[limited(1)]);
        assert_eq!(limits.concurrency(), 2, "set before it started");
        workers.apply(&[Control { limits: LimitChange::default(), ..limited(2) }]);
        assert_eq!(limits.concurrency(), 10);
        let mut next = ControlledWorkers::default();
        let limits = SharedLimits::new(&DestinationSettings::default());
        next.destination("orders", limits.clone());
        next.apply(&[]);
        next.apply(&[limited(1)]);
        assert_eq!(limits.concurrency(), 2, "the first row that a destination ever had");
    }
}
