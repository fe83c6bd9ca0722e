//! The outline of an app, for a console or a metrics page.

use std::sync::Arc;

use relais_core::{process::handler_step::inbox_destination, store::StoreDriver};

use super::{
    App, DestinationSettings, destination::DestinationSetup, remote::own_inbox_settings,
    remote_target,
};
use crate::observe::Observer;

/// The outline of an app.
#[non_exhaustive]
pub struct Outline {
    /// The store.
    pub store: Arc<dyn StoreDriver>,
    /// The counters.
    pub observer: Arc<Observer>,
    /// Names of sources.
    pub sources: Vec<String>,
    /// Names of destinations, with their settings. Remote handlers are among them: `@name`.
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
    /// Returns the outline of the app, for a console or a metrics page.
    pub fn outline(&self) -> Outline {
        let settings = |destination: &DestinationSetup| match destination {
            DestinationSetup::Single(_, settings) => settings.clone(),
            DestinationSetup::Bulk(_, settings) => settings.destination.clone(),
        };
        let destinations = self.destinations.iter();
        let destinations = destinations.map(|(name, d)| (name.clone(), settings(d)));
        let handlers = self.subscribers.iter().filter_map(|(name, subscriber)| {
            Some((remote_target(name), subscriber.remote.as_ref()?.1.clone()))
        });
        let has_steps = !self.processes.handler_commands().is_empty();
        let own_inbox = has_steps.then(|| (inbox_destination(&self.inbox), own_inbox_settings()));
        Outline {
            store: Arc::clone(&self.store),
            observer: Arc::clone(&self.observer),
            sources: self.sources.iter().map(|(name, _)| name.clone()).collect(),
            destinations: destinations.chain(handlers).chain(own_inbox).collect(),
        }
    }
}
