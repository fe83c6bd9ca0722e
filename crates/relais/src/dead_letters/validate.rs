//! Validation of an inbox row: the routes are applied, the process advanced, the handler run in
//! a transaction that is rolled back.
//!
//! Invariant: nothing is written, and what is asked is what the inbox worker asks.

use std::sync::Arc;

use relais_core::{
    BoxFuture,
    handler::{Handler, Outcome, panicked},
    inbox::InboxRow,
    route::Route,
    store::StoreError,
};

use super::{DeadLetters, PayloadValidator};
use crate::{App, app::ActionsByInbox, inbox::EventAction, process::Operator};

impl App {
    /// Returns the service for dead letters, which validates with the handlers, routes and processes added so
    /// far.
    pub fn dead_letters(&self) -> DeadLetters {
        let store = Arc::clone(&self.store);
        let operator = Operator::with(Arc::clone(&store), Arc::new(self.processes.clone()));
        let validator =
            AppValidator { actions: self.actions_by_inbox(), operator: operator.clone() };
        DeadLetters::new(store, Arc::new(validator)).operator(operator).skipping(self.skipping())
    }
}

struct AppValidator {
    /// Of the inbox of the app, and of those of its subscribers.
    actions: ActionsByInbox,
    operator: Operator,
}

impl PayloadValidator for AppValidator {
    fn validate(&self, row: InboxRow) -> BoxFuture<'_, Result<Outcome, StoreError>> {
        Box::pin(async {
            let event_type = row.event_type.as_deref().unwrap_or_default();
            let actions = self.actions.of(&row.source_system);
            match actions.and_then(|actions| actions.get(event_type)) {
                Some(EventAction::Handler(handler)) => handled(Arc::clone(handler), row).await,
                Some(EventAction::Routes(routes)) => Ok(routed(routes, &row)),
                Some(EventAction::Processes) => self.operator.validate(&row).await,
                // A call would have effects: only the service can validate.
                Some(EventAction::Remote | EventAction::Ignored) => Ok(Outcome::Done),
                None => Ok(unknown(&row)),
            }
        })
    }
}

/// In a task of its own, because a handler may panic.
async fn handled(handler: Arc<dyn Handler>, row: InboxRow) -> Result<Outcome, StoreError> {
    let run = tokio::spawn(async move { handler.validate(row).await });
    run.await.unwrap_or_else(|error| {
        let panic = error.try_into_panic().map_err(|error| error.to_string());
        Ok(panic.map_or_else(|text| Outcome::retry("HANDLER_PANIC", &text), |p| panicked(&*p)))
    })
}

fn routed(routes: &[Route], row: &InboxRow) -> Outcome {
    let applied = routes.iter().try_for_each(|route| route.apply(row).map(drop));
    applied.map_or_else(|problem| Outcome::Fail { problem }, |()| Outcome::Done)
}

fn unknown(row: &InboxRow) -> Outcome {
    let text = match &row.event_type {
        Some(name) => format!(
            "nothing here handles event type `{name}`, so it cannot be validated; force it if another \
             program does"
        ),
        None => "the message has no event type; set `event_type` of its source".to_owned(),
    };
    Outcome::fail("UNKNOWN_EVENT_TYPE", &text)
}
