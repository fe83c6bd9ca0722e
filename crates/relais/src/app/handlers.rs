//! Handlers: their settings, and several of them for one event type.
//!
//! A subscriber has an inbox of its own. A message that it subscribes to is copied there, in the commit that
//! marks the message as handled. The copy is handled like any inbox message: in order per key, in one commit
//! with the handler's changes, with attempts, dead letters and parked keys of its own.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use relais_core::{
    handler::Handler,
    inbox::{INBOX_SEPARATOR, SUBSCRIBER_SEPARATOR, inbox_of, subscriber_inbox},
    lane::Scope,
    retry::RetryPolicy,
};

use super::{App, remote::RemoteSetup};
use crate::inbox::EventAction;

/// The default time limit of a handler: shorter than the idle transaction time-out of the database, so that
/// a handler that hangs has failed and does not look like an outage.
const TIMEOUT: Duration = Duration::from_secs(25);
/// The default number of handlers at once.
const CONCURRENCY: usize = 8;

/// The settings of handlers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HandlerSettings {
    /// The maximum attempts of a message, and the pauses between them.
    pub retry: RetryPolicy,
    /// Time limit of one call: then it is dropped, and one attempt is used.
    pub timeout: Duration,
    /// Maximum number of calls at once in this process.
    pub concurrency: usize,
}

relais_core::setters!(HandlerSettings {
    /// Sets the number of attempts and the pauses between them.
    retry: = RetryPolicy,
    /// Sets the longest time of one call.
    timeout: = Duration,
    /// Sets how many calls may run at once in this process.
    concurrency: = usize,
});

impl Default for HandlerSettings {
    fn default() -> Self {
        Self { retry: RetryPolicy::patient(), timeout: TIMEOUT, concurrency: CONCURRENCY }
    }
}

/// A handler of a driver, as `relais::postgres::sqlx_handler` and the other drivers return it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler",
    label = "expected what a driver's `handler` returns",
    note = "wrap the function: `relais::postgres::sqlx_handler(pool, function)`, \
            `relais::sqlite::sqlx_handler(pool, function)`, `relais::postgres::handler(pool, function)` or \
            `relais::sqlite::handler(&store, function)`"
)]
pub trait IntoHandler {
    /// Returns the handler.
    fn into_handler(self) -> Arc<dyn Handler>;
}

impl IntoHandler for Arc<dyn Handler> {
    fn into_handler(self) -> Arc<dyn Handler> {
        self
    }
}

impl<H: Handler + 'static> IntoHandler for Arc<H> {
    fn into_handler(self) -> Arc<dyn Handler> {
        self
    }
}

/// One of several handlers of the same event types.
#[derive(Default)]
pub(crate) struct Subscriber {
    pub(super) settings: HandlerSettings,
    pub(crate) actions: HashMap<String, EventAction>,
    /// The commands of processes that it carries out. They are not copied from the inbox.
    pub(super) commands: BTreeSet<String>,
    /// The handler in another process that is called for all of them.
    pub(super) remote: Option<RemoteSetup>,
}

/// The actions by event type, for each inbox.
pub(crate) struct ActionsByInbox {
    own: HashMap<String, EventAction>,
    subscribers: HashMap<String, HashMap<String, EventAction>>,
}

impl ActionsByInbox {
    /// Returns the actions for messages of a `source_system`.
    pub(crate) fn of(&self, source_system: &str) -> Option<&HashMap<String, EventAction>> {
        let inbox = inbox_of(source_system);
        if inbox.contains(SUBSCRIBER_SEPARATOR) {
            self.subscribers.get(inbox)
        } else {
            Some(&self.own)
        }
    }
}

impl App {
    /// Returns the actions added so far.
    pub(crate) fn actions_by_inbox(&self) -> ActionsByInbox {
        let mut own = self.actions.clone();
        let mut subscribers = HashMap::new();
        for (name, subscriber) in &self.subscribers {
            for event_type in subscriber.actions.keys() {
                own.entry(event_type.clone()).or_insert_with(|| EventAction::Routes(Vec::new()));
            }
            let inbox = subscriber_inbox(&self.inbox, name);
            subscribers.insert(inbox, subscriber.actions.clone());
        }
        for (handler, command, _) in self.processes.handler_commands() {
            let actions = subscribers.entry(subscriber_inbox(&self.inbox, handler)).or_default();
            actions.insert(command.to_owned(), EventAction::Remote);
        }
        ActionsByInbox { own, subscribers }
    }

    /// Sets the retry policy of handlers.
    #[must_use]
    pub fn inbox_retry(mut self, policy: RetryPolicy) -> Self {
        self.handlers.retry = policy;
        self
    }

    /// Sets the time limit of a handler: then it is dropped, and one attempt is used.
    #[must_use]
    pub fn handler_timeout(mut self, limit: Duration) -> Self {
        self.handlers.timeout = limit;
        self
    }

    /// Sets how many handlers run at once in this process; the default is 8. Each uses a connection of its
    /// pool.
    ///
    /// # Panics
    /// If it is 0.
    #[must_use]
    pub fn handler_concurrency(mut self, handlers: usize) -> Self {
        assert!(handlers > 0, "handler concurrency is 0: no handler could run");
        self.handlers.concurrency = handlers;
        self
    }

    /// Ignores an event type: its messages are settled without an effect. They are counted, and `explain`
    /// shows them as ignored by configuration. A message of a type that is neither handled nor ignored waits,
    /// and then becomes a dead letter ([`App::unknown_type_wait`]).
    ///
    /// # Panics
    /// If the event type has a handler, a route, a process or a subscriber.
    #[must_use]
    pub fn ignore(mut self, event_type: &str) -> Self {
        let before = self.actions.insert(event_type.to_owned(), EventAction::Ignored);
        assert!(
            matches!(before, None | Some(EventAction::Ignored)),
            "event type `{event_type}` has a handler, route or process; it cannot be ignored too"
        );
        self
    }

    /// Handles an event type with one of several handlers. Each subscriber gets every message, in a
    /// transaction of its own, with its own attempts, time limit and concurrency ([`App::subscriber`]). One
    /// that fails is retried alone, and its dead letters park keys for itself only.
    ///
    /// A subscriber may have several event types: their messages are handled in order per key. The same event
    /// types may have routes and processes, but no handler of [`App::handle`].
    ///
    /// Name and inbox are stored with the copies: a renamed subscriber does not handle the copies of its old
    /// name.
    ///
    /// # Panics
    /// If the subscriber has this event type already, or its name is empty or contains `::` or `@`.
    #[must_use]
    pub fn subscribe(
        mut self,
        subscriber: &str,
        event_type: &str,
        handler: impl IntoHandler,
    ) -> Self {
        let handler = EventAction::Handler(handler.into_handler());
        let subscriber_of = self.subscriber_named(subscriber);
        assert!(
            subscriber_of.remote.is_none(),
            "`{subscriber}` is a handler in another process; give the subscriber another name"
        );
        let before = subscriber_of.actions.insert(event_type.to_owned(), handler);
        assert!(before.is_none(), "subscriber `{subscriber}` handles `{event_type}` already");
        self
    }

    /// Returns the subscriber of this name, added if it is new.
    ///
    /// # Panics
    /// If the name is empty or contains `::` or `@`.
    pub(super) fn subscriber_named(&mut self, name: &str) -> &mut Subscriber {
        let is_name = !name.is_empty()
            && !name.contains(INBOX_SEPARATOR)
            && !name.contains(SUBSCRIBER_SEPARATOR);
        assert!(is_name, "subscriber `{name}`: a name without `::` and `@` is needed");
        self.subscribers.entry(name.to_owned()).or_default()
    }

    /// Sets the settings of a subscriber.
    ///
    /// # Panics
    /// If its concurrency is 0.
    #[must_use]
    pub fn subscriber(mut self, name: &str, settings: HandlerSettings) -> Self {
        assert!(settings.concurrency > 0, "concurrency is 0: no handler could run");
        self.subscribers.entry(name.to_owned()).or_default().settings = settings;
        self
    }

    /// Returns the scopes that need no other worker: those that this program serves, and external destinations.
    pub(super) fn scopes(&self) -> BTreeSet<String> {
        let outbox = self.destinations.keys().chain(&self.external);
        let outbox = outbox.map(|name| Scope::Outbox(name.clone()));
        let subscribers = self.subscribers.keys().map(|name| subscriber_inbox(&self.inbox, name));
        let own = (!self.actions.is_empty()).then(|| self.inbox.clone());
        let inboxes = subscribers.chain(own).map(|name| Scope::of_inbox(&name));
        outbox.chain(inboxes).map(|scope| scope.to_string()).collect()
    }

    /// Returns the inboxes that get copies, by event type.
    ///
    /// # Panics
    /// If an event type is ignored, or has a handler as well: it cannot share a commit with the copies.
    pub(super) fn copy_for_subscribers(&mut self) -> HashMap<String, Vec<String>> {
        self.connect_steps();
        let mut copies: HashMap<String, Vec<String>> = HashMap::new();
        for (name, subscriber) in &self.subscribers {
            let inbox = subscriber_inbox(&self.inbox, name);
            for event_type in subscriber.actions.keys() {
                let action = self.actions.entry(event_type.clone());
                let action = action.or_insert_with(|| EventAction::Routes(Vec::new()));
                assert!(
                    !matches!(action, EventAction::Handler(_)),
                    "event type `{event_type}` has a handler and a subscriber `{name}`; make the handler a \
                     subscriber too: `App::subscribe`"
                );
                assert!(
                    !matches!(action, EventAction::Ignored),
                    "event type `{event_type}` is ignored and has a subscriber `{name}`; remove one of \
                     the two"
                );
                copies.entry(event_type.clone()).or_default().push(inbox.clone());
            }
        }
        // Commands come from processes, not from the inbox.
        for subscriber in self.subscribers.values_mut() {
            let commands = std::mem::take(&mut subscriber.commands).into_iter();
            subscriber.actions.extend(commands.map(|command| (command, EventAction::Remote)));
        }
        copies
    }
}
