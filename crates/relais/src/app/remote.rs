//! Handlers in another process.

use std::sync::Arc;

use relais_core::{inbox::subscriber_inbox, remote_handler::RemoteHandler};

use super::{App, DestinationSettings};
use crate::{
    control::ControlledWorkers,
    inbox::{EventAction, InboxWorker, RemoteWork},
    observe::Observer,
};

/// A handler in another process, with the settings of its target.
pub(super) type RemoteSetup = (Arc<dyn RemoteHandler>, DestinationSettings);

/// Returns the name under which the target of a remote handler is counted, limited and paused: `@billing`.
/// Controls and figures treat it as a destination.
pub fn remote_target(handler: &str) -> String {
    subscriber_inbox("", handler)
}

impl App {
    /// Handles event types in another process: relais calls it for each message, without a transaction, and
    /// commits its answer afterwards. A call is repeated after a crash or a lost answer, so the service must
    /// recognise a message that it has handled.
    ///
    /// The handler is a subscriber ([`App::subscribe`]) with an inbox of its own: it delays no other
    /// handler, and its event types may have routes, processes and other subscribers too. Its limits, circuit
    /// breaker and pause are those of a destination, under the name [`remote_target`].
    ///
    /// # Panics
    /// If a subscriber has this name already, the name is empty or contains `::` or `@`, an event type is
    /// missing, or the concurrency is 0.
    #[must_use]
    pub fn remote_handler<'e>(
        mut self,
        name: &str,
        event_types: impl IntoIterator<Item = &'e str>,
        handler: Arc<dyn RemoteHandler>,
        settings: DestinationSettings,
    ) -> Self {
        assert!(settings.concurrency > 0, "concurrency is 0: no call could start");
        assert!(!self.subscribers.contains_key(name), "a subscriber `{name}` exists already");
        let event_types = event_types.into_iter();
        let actions = event_types.map(|event_type| (event_type.to_owned(), EventAction::Remote));
        let subscriber = self.subscriber_named(name);
        subscriber.actions = actions.collect();
        assert!(!subscriber.actions.is_empty(), "handler `{name}` has no event type");
        subscriber.remote = Some((handler, settings));
        self
    }
}

/// Makes a worker call the handler of this name; operators control its target.
pub(super) fn calling(
    worker: InboxWorker,
    name: &str,
    (handler, settings): RemoteSetup,
    observer: &Observer,
    controlled: &mut ControlledWorkers,
) -> InboxWorker {
    let target = remote_target(name);
    let remote = RemoteWork::new(handler, settings, observer.destination(&target));
    controlled.destination(&target, remote.limits());
    worker.remote(remote)
}
