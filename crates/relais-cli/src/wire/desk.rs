//! The dead-letter desk, with what the settings would make of a message.

use std::sync::Arc;

use relais::{App, desk::Desk};
use relais_core::{outbox::OnDeadLetter, store::Store};

use crate::settings::{DestinationConfig, Settings};

/// Nothing is started and nothing is connected to.
pub(crate) fn desk(settings: &Settings, store: Arc<dyn Store>) -> Desk {
    let mut app = App::new(store);
    for route in &settings.routes {
        app = app.route(route.route.clone());
    }
    for process in &settings.processes {
        app = app.process(process.definition.clone());
    }
    let skips = |d: &&DestinationConfig| d.on_dead_letter == OnDeadLetter::Skip;
    let skipping = settings.destinations.iter().filter(skips).map(|d| d.name.clone());
    app.desk().skipping(skipping)
}
