//! Handlers in another process.

use std::sync::Arc;

use relais_core::{
    inbox::subscriber_inbox, process::handler_step::inbox_destination,
    remote_handler::RemoteHandler,
};

use super::{App, DestinationSettings, destination::DestinationSetup};
use crate::{
    control::ControlledWorkers,
    inbox::{EventAction, InboxWorker, RemoteWork},
    observe::Observer,
    process::own_inbox::OwnInbox,
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
    /// If a subscriber has this name already, the name is empty or contains `::` or `@`, or the concurrency
    /// is 0. [`App::start`] panics if it has no event type and no step of a process uses it.
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
        subscriber.remote = Some((handler, settings));
        self
    }

    /// Lets handlers carry out the steps that name them: they get the commands, and the inbox is a destination
    /// for commands and answers.
    ///
    /// # Panics
    /// If a step names a handler that is not there, a handler has nothing to do, or a destination has the name
    /// of the inbox.
    pub(super) fn connect_steps(&mut self) {
        let commands = self.processes.handler_commands();
        for (handler, command, process) in &commands {
            let subscriber = self.subscribers.get_mut(*handler).filter(|s| s.remote.is_some());
            let subscriber = subscriber.unwrap_or_else(|| {
                panic!("a step of process `{process}` names handler `{handler}`; add it with `App::remote_handler`")
            });
            subscriber.commands.insert((*command).to_owned());
        }
        let remote = self.subscribers.iter().filter(|(_, subscriber)| subscriber.remote.is_some());
        for (name, subscriber) in remote {
            let is_used = !subscriber.actions.is_empty() || !subscriber.commands.is_empty();
            assert!(
                is_used,
                "handler `{name}` has no event type, and no step of a process uses it"
            );
        }
        if !commands.is_empty() {
            let (name, inbox) = (inbox_destination(&self.inbox), self.inbox.clone());
            let own = Arc::new(OwnInbox { store: self.store.clone(), inbox });
            let settings = own_inbox_settings();
            let setup = DestinationSetup::Single(own, settings);
            let before = self.destinations.insert(name.clone(), setup);
            assert!(before.is_none(), "destination `{name}` has the name of the inbox; rename it");
        }
    }
}

/// Returns the settings of the destination that stands for the inbox: only the database limits it.
pub(super) fn own_inbox_settings() -> DestinationSettings {
    DestinationSettings::default()
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
