//! What an app consists of, for those who show it.

use std::sync::Arc;

use relais_core::store::Store;

use super::{App, DestinationSettings, destination::Destination};
use crate::observe::Observer;

/// What an app consists of.
#[non_exhaustive]
pub struct Outline {
    pub store: Arc<dyn Store>,
    pub observer: Arc<Observer>,
    /// Names of sources.
    pub sources: Vec<String>,
    /// Names of destinations, with how their messages are treated.
    pub destinations: Vec<(String, DestinationSettings)>,
}

impl std::fmt::Debug for Outline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outline")
            .field("sources", &self.sources)
            .field("destinations", &self.destinations)
            .finish_non_exhaustive()
    }
}

impl App {
    /// Returns what the app consists of, for a console or a metrics page.
    pub fn outline(&self) -> Outline {
        let settings = |destination: &Destination| match destination {
            Destination::Single(_, settings) => settings.clone(),
            Destination::Bulk(_, settings) => settings.destination.clone(),
        };
        let destinations = self.destinations.iter();
        Outline {
            store: Arc::clone(&self.store),
            observer: Arc::clone(&self.observer),
            sources: self.sources.iter().map(|(name, _)| name.clone()).collect(),
            destinations: destinations.map(|(name, d)| (name.clone(), settings(d))).collect(),
        }
    }
}
