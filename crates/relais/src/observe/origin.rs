//! The state of sources at their origin, as their connectors report it.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use super::Figures;
use crate::lock::lock;

/// The state of a source at its origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceState {
    /// Records that were deleted before they were read.
    pub missed: u64,
    /// Number of times a partition was deleted and created again.
    pub recreated: u64,
    /// Records that wait to be read, if known.
    pub lag: Option<u64>,
    /// True while the source is connected, if known.
    pub connected: Option<bool>,
}

/// A function that returns the state of a source.
pub type AskSource = Arc<dyn Fn() -> SourceState + Send + Sync>;

/// The sources of this process that report their state, by name.
#[derive(Default)]
pub(super) struct SourceStates(Mutex<Vec<(String, AskSource)>>);

impl fmt::Debug for SourceStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(lock(&self.0).iter().map(|(name, _)| name)).finish()
    }
}

impl SourceStates {
    pub(super) fn set(&self, states: Vec<(String, AskSource)>) {
        *lock(&self.0) = states;
    }

    /// Adds the states to the figures of the sources.
    pub(super) fn add_to(&self, figures: &mut Figures) {
        for (name, ask) in lock(&self.0).iter() {
            let Some(source) = figures.sources.get_mut(name) else { continue };
            let state = ask();
            (source.missed, source.recreated) = (state.missed, state.recreated);
            source.lag = state.lag;
        }
    }
}
