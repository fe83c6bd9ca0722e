//! The service for dead letters, which validates with the configured routes and processes.

use std::sync::Arc;

use relais::{App, dead_letters::DeadLetters};
use relais_core::{outbox::OnDeadLetter, store::StoreDriver};

use crate::settings::{DestinationConfig, Settings};

/// Nothing is started and nothing is connected to.
pub(crate) fn dead_letters(settings: &Settings, store: Arc<dyn StoreDriver>) -> DeadLetters {
    let mut app = App::new(store);
    for route in &settings.routes {
        app = app.route(route.route.clone());
    }
    for process in &settings.processes {
        app = app.process(process.definition.clone());
    }
    let skips = |d: &&DestinationConfig| d.on_dead_letter == OnDeadLetter::Skip;
    let skipping = settings.destinations.iter().filter(skips).map(|d| d.name.clone());
    app.dead_letters().skipping(skipping)
}
