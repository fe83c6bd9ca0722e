//! Puts sources, handlers, routes and destinations together and runs the workers.

mod destination;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use relais_core::{
    bulk::BulkTarget,
    handler::Handler,
    inbox::INBOX_SEPARATOR,
    lane::{Fence, Scope},
    outbox::OnDeadLetter,
    process::{Definition, TIMER_FIRED, TimerOwner},
    publisher::Publisher,
    query::Retention,
    retry::RetryPolicy,
    route::Route,
    source::Source,
    store::{Store, StoreError},
    unknown::UNKNOWN_TYPE_WAIT,
};
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    bulk::BulkSettings,
    cleanup::Cleanup,
    control::Obedient,
    inbox::{Action, InboxWorker, ProcessWork},
    ingest::{Ingest, StoredPositions},
    lanes::LaneKeeper,
    observe::Observer,
    process::{
        registry::Registry,
        timers::{Alarm, Timers},
    },
    running::Running,
    signal,
};

use self::destination::Destination;
pub use self::destination::DestinationSettings;

/// How long a lane stays ours without a heartbeat, unless set otherwise.
const LEASE: Duration = Duration::from_secs(10);
/// How long a handler may take, unless set otherwise: less than the database's patience with an idle
/// transaction, so that one that hangs has failed and is not taken for an outage.
const HANDLER_TIMEOUT: Duration = Duration::from_secs(25);

/// What a process does: built up, then started.
pub struct App {
    pub(crate) store: Arc<dyn Store>,
    sources: Vec<(String, Box<dyn Source>)>,
    pub(crate) actions: HashMap<String, Action>,
    pub(crate) processes: Registry,
    destinations: BTreeMap<String, Destination>,
    inbox: String,
    inbox_retry: RetryPolicy,
    handler_timeout: Duration,
    unknown_type_wait: Duration,
    retention: Retention,
    lease: Duration,
    observer: Arc<Observer>,
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
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            sources: Vec::new(),
            actions: HashMap::new(),
            processes: Registry::default(),
            destinations: BTreeMap::new(),
            inbox: String::new(),
            inbox_retry: RetryPolicy::patient(),
            handler_timeout: HANDLER_TIMEOUT,
            unknown_type_wait: UNKNOWN_TYPE_WAIT,
            retention: Retention::default(),
            lease: LEASE,
            observer: Arc::default(),
        }
    }

    /// Receives from a source.
    #[must_use]
    pub fn source(mut self, name: &str, source: Box<dyn Source>) -> Self {
        self.sources.push((name.to_owned(), source));
        self
    }

    /// Handles an event type with user code; see each store's `handler`.
    ///
    /// # Panics
    /// If the event type has a handler, a route or a process already: two of them could not share one
    /// commit.
    #[must_use]
    pub fn handle(mut self, event_type: &str, handler: Arc<dyn Handler>) -> Self {
        let before = self.actions.insert(event_type.to_owned(), Action::Handler(handler));
        assert!(
            before.is_none(),
            "event type `{event_type}` has a handler, route or process already"
        );
        self
    }

    /// Turns an event type into outbox messages by rule; several routes may name one event type.
    ///
    /// # Panics
    /// If the event type has a handler or a process, or a route to the same destination that differs
    /// in its payload only: their messages would have the same ids.
    #[must_use]
    pub fn route(mut self, route: Route) -> Self {
        let action =
            self.actions.entry(route.on.clone()).or_insert_with(|| Action::Routes(Vec::new()));
        match action {
            Action::Routes(routes) => {
                assert!(
                    !routes.iter().any(|other| other.shares_ids(&route)),
                    "cannot add a second route of `{}` to `{}`: its messages would have the ids of the \
                     first; give one of them another event type",
                    route.on,
                    route.destination
                );
                routes.push(route);
            }
            Action::Handler(_) | Action::Processes => {
                panic!("event type `{}` has a handler or process already", route.on)
            }
        }
        self
    }

    /// Runs processes of this definition. Several types may wait for one event type, and several
    /// versions of a type may be there at once: new processes get the highest, those under way finish
    /// on the one they were started with.
    ///
    /// Programs that share a database may run different processes: a row goes to a live worker that has
    /// the definition and version it needs, and waits if there is none ([`App::unknown_type_wait`]).
    ///
    /// # Panics
    /// If one of its event types has a handler or a route, or this version is there already.
    #[must_use]
    pub fn process(mut self, definition: Definition) -> Self {
        let name = definition.process_type().to_owned();
        for event_type in definition.event_types().into_iter().chain([TIMER_FIRED]) {
            let action = self.actions.entry(event_type.to_owned()).or_insert(Action::Processes);
            assert!(
                matches!(action, Action::Processes),
                "event type `{event_type}` of process `{name}` has a handler or route already"
            );
        }
        self.processes.add(definition);
        self
    }

    /// Delivers messages that name this destination, with default settings.
    #[must_use]
    pub fn destination(self, name: &str, publisher: Arc<dyn Publisher>) -> Self {
        self.destination_with(name, publisher, DestinationSettings::default())
    }

    /// Delivers messages that name this destination.
    #[must_use]
    pub fn destination_with(
        mut self,
        name: &str,
        publisher: Arc<dyn Publisher>,
        settings: DestinationSettings,
    ) -> Self {
        self.destinations.insert(name.to_owned(), Destination::Single(publisher, settings));
        self
    }

    /// Delivers messages that name this destination in jobs of many rows.
    #[must_use]
    pub fn bulk_destination(
        mut self,
        name: &str,
        target: Arc<dyn BulkTarget>,
        settings: BulkSettings,
    ) -> Self {
        self.destinations.insert(name.to_owned(), Destination::Bulk(target, settings));
        self
    }

    /// The destinations whose dead letters park no key.
    pub(crate) fn skipping(&self) -> Vec<String> {
        let skips = |destination: &Destination| {
            let settings = match destination {
                Destination::Single(_, settings) => settings,
                Destination::Bulk(_, settings) => &settings.destination,
            };
            settings.on_dead_letter == OnDeadLetter::Skip
        };
        let names = self.destinations.iter().filter(|(_, destination)| skips(destination));
        names.map(|(name, _)| name.clone()).collect()
    }

    /// Uses an inbox of its own: what its sources receive is handled by programs with the same inbox only,
    /// and a message is a duplicate only of one in the same inbox. Without a name all programs share one.
    ///
    /// The `source_system` of its messages is the name and the source: `billing::crm`.
    ///
    /// # Panics
    /// If the name contains `::`.
    #[must_use]
    pub fn inbox(mut self, name: &str) -> Self {
        assert!(!name.contains(INBOX_SEPARATOR), "inbox `{name}` contains `{INBOX_SEPARATOR}`");
        name.clone_into(&mut self.inbox);
        self
    }

    /// How often a handler is tried.
    #[must_use]
    pub fn inbox_retry(mut self, policy: RetryPolicy) -> Self {
        self.inbox_retry = policy;
        self
    }

    /// How long a handler may take: then it is dropped, and one attempt is used.
    #[must_use]
    pub fn handler_timeout(mut self, limit: Duration) -> Self {
        self.handler_timeout = limit;
        self
    }

    /// How long a message waits for a live worker that knows its event type, before it becomes a dead
    /// letter that parks its key; 15 minutes unless set otherwise. Longer than a rolling deployment takes.
    #[must_use]
    pub fn unknown_type_wait(mut self, wait: Duration) -> Self {
        self.unknown_type_wait = wait;
        self
    }

    /// How long finished rows stay.
    #[must_use]
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// How long a crashed worker's lanes wait for the next owner.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Counts here, for a program that starts its workers more than once and goes on counting, or wants
    /// [spans](Observer::with_spans).
    #[must_use]
    pub fn observer(mut self, observer: Arc<Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// Starts every worker on this runtime.
    pub fn start(self) -> Running {
        let worker = format!("{}-{}", std::process::id(), uuid::Uuid::new_v4().simple());
        let mut running = Running {
            stop: CancellationToken::new(),
            tasks: JoinSet::new(),
            wake: watch::Sender::new(0),
            crowd: watch::Sender::new(0),
            inbox: watch::Sender::new(0),
            observer: self.observer,
        };
        let observer = running.observer();
        observer.identify(&worker, self.processes.process_types());
        let mut obedient = Obedient::default();
        let keeper = |scope| {
            let heartbeat = observer.scope(&scope);
            let fence = Fence { scope, worker: worker.clone() };
            LaneKeeper::new(Arc::clone(&self.store), fence, self.lease).told_to(heartbeat)
        };
        for (name, destination) in self.destinations {
            let counters = running.observer.destination(&name);
            let lanes = (keeper(Scope::Outbox(name.clone())), self.lease);
            let (store, crowd) = (Arc::clone(&self.store), running.crowd.subscribe());
            let (relay, limits) = destination.relay(&name, store, lanes, counters, crowd);
            obedient.destination(&name, limits);
            running.spawn(format!("relay {name}"), relay);
        }
        let alarm = Arc::<Alarm>::default();
        if !self.processes.is_empty() {
            let (store, alarm) = (Arc::clone(&self.store), Arc::clone(&alarm));
            let (counters, paused) = (Arc::clone(&observer.processes), Arc::clone(&obedient.types));
            let owner = TimerOwner {
                process_types: Some(self.processes.process_types()),
                inbox: self.inbox.clone(),
            };
            let timers = Timers::new(store, alarm, counters, paused, running.waker()).of(owner);
            running.spawn("timers".into(), Box::new(timers));
        }
        let inbox = Arc::clone(&running.observer.inbox);
        // Without actions there is nothing it could handle: it would only hold lanes back.
        if !self.actions.is_empty() {
            let keeper = keeper(Scope::of_inbox(&self.inbox)).knowing(self.processes.announced());
            let (store, paused) = (Arc::clone(&self.store), Arc::clone(&obedient.types));
            let counters = Arc::clone(&running.observer.processes);
            let processes = ProcessWork::new(Arc::new(self.processes), alarm, counters, paused);
            let mut worker =
                InboxWorker::new(store, keeper, self.actions, self.inbox_retry, Arc::clone(&inbox))
                    .processes(processes)
                    .handler_timeout(self.handler_timeout)
                    .unknown_type_wait(self.unknown_type_wait);
            worker.intake().start_heartbeat(running.inbox.subscribe());
            running.spawn("inbox".into(), Box::new(worker));
        }
        for (name, mut source) in self.sources {
            let (store, into) = (Arc::clone(&self.store), self.inbox.clone());
            source.attach(Arc::new(StoredPositions { store, inbox: into.clone() }));
            let ingest = Ingest {
                store: Arc::clone(&self.store),
                source,
                inbox: Arc::clone(&inbox),
                counters: observer.source(&name),
                name: name.clone(),
                into,
                stop: running.stop.clone(),
                gate: obedient.source(&name),
                stored: running.waker(),
            };
            running.spawn(format!("source {name}"), Box::new(ingest));
        }
        let cleanup = Cleanup::new(Arc::clone(&self.store), self.retention);
        running.spawn("cleanup".into(), Box::new(cleanup));
        running.spawn_loops(self.store, obedient, worker);
        running
    }

    /// Runs until Ctrl-C or SIGTERM, then finishes what is under way and hands its lanes over.
    pub async fn run(self) -> Result<(), StoreError> {
        let mut running = self.start();
        tokio::select! {
            () = signal::terminated() => running.stop().await,
            failed = running.failed() => {
                running.stop().await;
                return Err(StoreError::Unavailable(failed));
            }
        }
        Ok(())
    }
}
