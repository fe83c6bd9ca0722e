//! The service for dead letters, which validates with the configured routes and processes.

use std::sync::Arc;

use relais::{App, dead_letters::DeadLetters};
use relais_core::{outbox::OnDeadLetter, store::StoreDriver};

use super::handler;
use crate::settings::{DestinationConfig, Settings};

/// Nothing is started and nothing is connected to.
pub(crate) fn dead_letters(settings: &Settings, store: Arc<dyn StoreDriver>) -> DeadLetters {
    let mut app = App::new(store).inbox(&settings.inbox_name);
    for route in &settings.routes {
        app = app.route(route.route.clone());
    }
    for process in &settings.processes {
        app = app.process(process.definition.clone());
    }
    for handler in &settings.handlers {
        // `check` and `run` report one that cannot be built.
        if let Ok(made) = handler::make(handler) {
            app = handler::add(app, handler, made);
        }
    }
    let skips = |d: &&DestinationConfig| d.on_dead_letter == OnDeadLetter::Skip;
    let skipping = settings.destinations.iter().filter(skips).map(|d| d.name.clone());
    app.dead_letters().skipping(skipping)
}
