//! Puts sources, handlers, routes and destinations together and runs the workers.

mod destination;
mod handlers;
mod outline;
mod remote;
mod start;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use relais_core::{
    bulk::BulkTarget,
    inbox::{INBOX_SEPARATOR, SUBSCRIBER_SEPARATOR},
    outbox::OnDeadLetter,
    process::{Definition, TIMER_FIRED},
    publisher::Publisher,
    query::Retention,
    route::Route,
    source::Source,
    store::StoreDriver,
    unknown::UNKNOWN_TYPE_WAIT,
};

use crate::{
    bulk::BulkSettings, inbox::EventAction, observe::Observer, process::registry::Registry,
    running::WorkerPanicked, signal,
};

pub(crate) use self::handlers::ActionsByInbox;
pub use self::{
    destination::DestinationSettings,
    handlers::{HandlerSettings, IntoHandler},
    outline::Outline,
    remote::remote_target,
};
use self::{destination::DestinationSetup, handlers::Subscriber};

/// The default lease of a lane without a heartbeat.
const LEASE: Duration = Duration::from_secs(10);

/// The sources, handlers, routes and destinations of a program: built up, then started.
pub struct App {
    pub(crate) store: Arc<dyn StoreDriver>,
    sources: Vec<(String, Box<dyn Source>)>,
    pub(crate) actions: HashMap<String, EventAction>,
    pub(crate) processes: Registry,
    pub(crate) subscribers: BTreeMap<String, Subscriber>,
    destinations: BTreeMap<String, DestinationSetup>,
    /// Destinations that other programs serve.
    external: BTreeSet<String>,
    pub(crate) inbox: String,
    handlers: HandlerSettings,
    unknown_type_wait: Duration,
    retention: Retention,
    follows_adopted: bool,
    lease: Duration,
    poll_interval: Duration,
    observer: Arc<Observer>,
    /// Digests of configurations, by destination.
    configurations: BTreeMap<String, String>,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App")
            .field("sources", &self.sources.iter().map(|s| &s.0).collect::<Vec<_>>())
            .field("event_types", &self.actions.keys().collect::<Vec<_>>())
            .field("destinations", &self.destinations.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl App {
    /// Returns an app without sources, handlers or destinations.
    pub fn new(store: Arc<dyn StoreDriver>) -> Self {
        Self {
            store,
            sources: Vec::new(),
            actions: HashMap::new(),
            processes: Registry::default(),
            subscribers: BTreeMap::new(),
            destinations: BTreeMap::new(),
            external: BTreeSet::new(),
            inbox: String::new(),
            handlers: HandlerSettings::default(),
            unknown_type_wait: UNKNOWN_TYPE_WAIT,
            retention: Retention::default(),
            follows_adopted: false,
            lease: LEASE,
            poll_interval: Duration::ZERO,
            observer: Arc::default(),
            configurations: BTreeMap::new(),
        }
    }

    /// Receives from a source.
    #[must_use]
    pub fn source(mut self, name: &str, source: Box<dyn Source>) -> Self {
        self.sources.push((name.to_owned(), source));
        self
    }

    /// Handles an event type with user code; see each store's `handler`. For several handlers of one event
    /// type see [`App::subscribe`].
    ///
    /// # Panics
    /// If the event type has a handler, a route or a process already: two of them cannot share one commit.
    #[must_use]
    pub fn handle(mut self, event_type: &str, handler: impl IntoHandler) -> Self {
        let handler = EventAction::Handler(handler.into_handler());
        let before = self.actions.insert(event_type.to_owned(), handler);
        assert!(
            before.is_none(),
            "event type `{event_type}` has a handler, route or process already; for several handlers give \
             each a name: `App::subscribe`"
        );
        self
    }

    /// Turns messages of an event type into outbox messages; several routes may have the same event type.
    ///
    /// # Panics
    /// If the event type is ignored, has a handler or a process, or a route to the same destination that differs
    /// in its payload only: their messages would have the same ids.
    #[must_use]
    pub fn route(mut self, route: Route) -> Self {
        let action = self.actions.entry(route.on.clone());
        match action.or_insert_with(|| EventAction::Routes(Vec::new())) {
            EventAction::Routes(routes) => {
                assert!(
                    !routes.iter().any(|other| other.shares_ids(&route)),
                    "cannot add a second route of `{}` to `{}`: its messages would have the ids of the \
                     first; give one of them another event type",
                    route.on,
                    route.destination
                );
                routes.push(route);
            }
            _ => {
                panic!("event type `{}` has a handler or process already, or is ignored", route.on)
            }
        }
        self
    }

    /// Runs processes of this definition. Several types may wait for one event type. Several versions of a
    /// type may run at once: new processes get the highest, running ones finish with the version they were
    /// started with.
    ///
    /// Programs that share a database may run different processes: a message is handled by a live worker
    /// that has its definition and version, and waits if there is none ([`App::unknown_type_wait`]).
    ///
    /// # Panics
    /// If one of its event types has a handler or a route, or this version was added already.
    #[must_use]
    pub fn process(mut self, definition: Definition) -> Self {
        let name = definition.process_type().to_owned();
        for event_type in definition.event_types().into_iter().chain([TIMER_FIRED]) {
            let action =
                self.actions.entry(event_type.to_owned()).or_insert(EventAction::Processes);
            assert!(
                matches!(action, EventAction::Processes),
                "event type `{event_type}` of process `{name}` has a handler or route already"
            );
        }
        self.processes.add(definition);
        self
    }

    /// Delivers messages to this destination, with default settings.
    #[must_use]
    pub fn destination(self, name: &str, publisher: Arc<dyn Publisher>) -> Self {
        self.destination_with(name, publisher, DestinationSettings::default())
    }

    /// Delivers messages to this destination.
    #[must_use]
    pub fn destination_with(
        mut self,
        name: &str,
        publisher: Arc<dyn Publisher>,
        settings: DestinationSettings,
    ) -> Self {
        self.destinations.insert(name.to_owned(), DestinationSetup::Single(publisher, settings));
        self
    }

    /// Delivers messages to this destination in bulk jobs.
    #[must_use]
    pub fn bulk_destination(
        mut self,
        name: &str,
        target: Arc<dyn BulkTarget>,
        settings: BulkSettings,
    ) -> Self {
        self.destinations.insert(name.to_owned(), DestinationSetup::Bulk(target, settings));
        self
    }

    /// Names a destination that another program serves: relais does not warn about its messages.
    #[must_use]
    pub fn external(mut self, name: &str) -> Self {
        self.external.insert(name.to_owned());
        self
    }

    /// Returns the destinations whose dead letters park no key.
    pub(crate) fn skipping(&self) -> Vec<String> {
        let skips = |destination: &DestinationSetup| {
            let settings = match destination {
                DestinationSetup::Single(_, settings) => settings,
                DestinationSetup::Bulk(_, settings) => &settings.destination,
            };
            settings.on_dead_letter == OnDeadLetter::Skip
        };
        let names = self.destinations.iter().filter(|(_, destination)| skips(destination));
        names.map(|(name, _)| name.clone()).collect()
    }

    /// Uses an inbox of its own. Only programs with the same inbox handle what its sources receive, and a
    /// message is a duplicate only of one in the same inbox. Without a name all programs share one inbox.
    ///
    /// The `source_system` of its messages is the name and the source: `billing::crm`.
    ///
    /// # Panics
    /// If the name contains `::` or `@`.
    #[must_use]
    pub fn inbox(mut self, name: &str) -> Self {
        assert!(!name.contains(INBOX_SEPARATOR), "inbox `{name}` contains `{INBOX_SEPARATOR}`");
        assert!(!name.contains(SUBSCRIBER_SEPARATOR), "inbox `{name}` contains `@`");
        name.clone_into(&mut self.inbox);
        self
    }

    /// Sets how long a message waits for a live worker that knows its event type, before it becomes a dead
    /// letter that parks its key. The default is 15 minutes: longer than a rolling deployment.
    #[must_use]
    pub fn unknown_type_wait(mut self, wait: Duration) -> Self {
        self.unknown_type_wait = wait;
        self
    }

    /// Sets how long finished rows are kept.
    #[must_use]
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// Handles what applications change in tables that the store has adopted.
    #[must_use]
    pub fn follow_adopted(mut self) -> Self {
        self.follows_adopted = true;
        self
    }

    /// Sets the shortest pause between two polls for rows that other programs wrote. By default they are found
    /// within some 40 ms.
    #[must_use]
    pub fn poll_interval(mut self, pause: Duration) -> Self {
        self.poll_interval = pause;
        self
    }

    /// Sets the lease: the lanes of a lost worker wait this long for the next owner.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the observer, for a program that starts its workers more than once and continues to count, or
    /// that wants [spans](Observer::with_spans).
    #[must_use]
    pub fn observer(mut self, observer: Arc<Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// Runs until Ctrl-C or SIGTERM, then finishes what is in flight and releases its lanes.
    pub async fn run(self) -> Result<(), WorkerPanicked> {
        let mut running = self.start();
        tokio::select! {
            () = signal::terminated() => running.stop().await,
            failed = running.failed() => {
                running.stop().await;
                return Err(WorkerPanicked(failed));
            }
        }
        Ok(())
    }
}
