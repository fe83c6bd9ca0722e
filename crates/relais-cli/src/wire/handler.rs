//! Handlers in another process.

use std::sync::Arc;

use relais::{
    App,
    http::{HttpHandler, HttpHandlerSettings},
};
use relais_admin::{DestinationInfo, DestinationLimits};

use super::{WireError, guards_of};
use crate::settings::{HandlerConfig, quantity::show_rate};

/// Adds a handler to the app.
pub(super) fn add(app: App, handler: &HandlerConfig, made: HttpHandler) -> App {
    let HandlerConfig { retry, on_dead_letter, limits, breaker, .. } = handler;
    let guards = guards_of(*retry, *on_dead_letter, limits, *breaker);
    let event_types = handler.on.iter().map(String::as_str);
    app.remote_handler(&handler.name, event_types, Arc::new(made), guards)
}

/// Builds the client, without connecting.
pub(super) fn make(handler: &HandlerConfig) -> Result<HttpHandler, WireError> {
    let settings = HttpHandlerSettings {
        timeout: handler.limits.timeout,
        destinations: handler.destinations.clone(),
        ..handler.http.settings(&handler.name)
    };
    HttpHandler::new(settings).map_err(|error| {
        let section = format!("handler[{}]", handler.name);
        WireError { place: handler.place, section, message: error.to_string() }
    })
}

/// Connects to the endpoint, without a message.
pub(super) async fn probe(handler: &HandlerConfig) -> Result<String, String> {
    Ok(make(handler).map_err(|error| error.to_string())?.probe().await?)
}

/// Returns what the console shows of the configured limits.
pub(super) fn limits(handler: &HandlerConfig) -> (String, DestinationLimits) {
    let limits = &handler.limits;
    let shown = DestinationLimits {
        rate: limits.rate.map(show_rate),
        concurrency: limits.concurrency,
        timeout_ms: u64::try_from(limits.timeout.as_millis()).unwrap_or(u64::MAX),
    };
    (handler.target(), shown)
}

/// Returns the kind of the handler, as of a destination.
pub(super) fn info(handler: &HandlerConfig) -> DestinationInfo {
    DestinationInfo { name: handler.target(), kind: "http handler".to_owned(), object: None }
}
