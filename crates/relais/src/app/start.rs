//! Starts the workers of an app.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use relais_core::{
    inbox::subscriber_inbox,
    lane::Scope,
    process::TimerOwner,
    query::Retention,
    source::Source,
    store::{Store, StoreDriver},
};
use tokio_util::sync::CancellationToken;

use super::{App, handlers::Subscriber, remote};
use crate::{
    adopted::AdoptedFollower,
    cleanup::Cleanup,
    control::ControlledWorkers,
    inbox::{InboxWorker, ProcessWork},
    ingest::{Ingest, OutageLog, StoredPositions},
    lanes::LaneKeeper,
    lease::WorkerLease,
    process::timers::{Alarm, Timers},
    running::RunningApp,
    unserved::UnservedCheck,
};

/// The pause before an unavailable database is asked for its description again.
const DESCRIBE_RETRY: Duration = Duration::from_secs(5);

impl App {
    /// Starts every worker on this runtime.
    ///
    /// # Panics
    /// If a step of a process names a handler that is not there, or a handler has nothing to do.
    pub fn start(mut self) -> RunningApp {
        let (copies, own) = (self.copy_for_subscribers(), self.scopes());
        let worker = format!("{}-{}", std::process::id(), uuid::Uuid::new_v4().simple());
        let store: Arc<dyn Store> = self.store.clone();
        let mut running = RunningApp::new(&self.store, self.observer);
        running.tasks.spawn(log_warnings(self.store.clone(), running.stop.clone()));
        let observer = running.observer();
        observer.identify(&worker, self.processes.process_types());
        observer.set_configurations(self.configurations);
        let mut controlled = ControlledWorkers::default();
        let lease = WorkerLease::new(Arc::clone(&store), worker.clone(), self.lease);
        let keeper = |scope| {
            let heartbeat = observer.scope(&scope);
            LaneKeeper::under(Arc::clone(&lease), scope).report_to(heartbeat)
        };
        spawn_unserved_check(&mut running, &self.store, own);
        for (name, destination) in self.destinations {
            let counters = running.observer.destination(&name);
            let lanes = (keeper(Scope::Outbox(name.clone())), self.lease);
            let (store, crowd) = (Arc::clone(&self.store), running.crowd.subscribe());
            let (relay, limits) = destination.relay(&name, store, lanes, counters, crowd);
            controlled.destination(&name, limits);
            running.spawn_relay(&name, relay);
        }
        let alarm = Arc::<Alarm>::default();
        if !self.processes.is_empty() {
            let process_types = Some(self.processes.process_types());
            let owner = TimerOwner { process_types, inbox: self.inbox.clone() };
            spawn_timers(&mut running, &store, &alarm, &controlled, owner);
        }
        let inbox = Arc::clone(&running.observer.inbox);
        // Without actions it could handle nothing: it would only take lanes from other workers.
        if !self.actions.is_empty() {
            let keeper = keeper(Scope::of_inbox(&self.inbox)).knowing(self.processes.announced());
            let (store, paused) = (Arc::clone(&store), Arc::clone(&controlled.types));
            let counters = Arc::clone(&running.observer.processes);
            let processes = ProcessWork::new(Arc::new(self.processes), alarm, counters, paused);
            let (retry, inbox) = (self.handlers.retry, Arc::clone(&inbox));
            let mut worker = InboxWorker::new(store, keeper, self.actions, retry, inbox)
                .processes(processes)
                .copies(copies)
                .handlers(&self.handlers)
                .unknown_type_wait(self.unknown_type_wait);
            if self.follows_adopted {
                worker = worker.checking_payloads();
            }
            worker.reader().start_heartbeat(running.inbox.subscribe());
            running.spawn("inbox".into(), Box::new(worker));
        }
        for (name, subscriber) in self.subscribers {
            let keeper = keeper(Scope::of_inbox(&subscriber_inbox(&self.inbox, &name)));
            let Subscriber { settings, remote, actions, .. } = subscriber;
            let (store, counters) = (Arc::clone(&store), Arc::clone(&inbox));
            let mut worker = InboxWorker::new(store, keeper, actions, settings.retry, counters)
                .handlers(&settings)
                .unknown_type_wait(self.unknown_type_wait);
            if let Some(remote) = remote {
                worker = remote::calling(worker, &name, remote, &observer, &mut controlled);
            }
            worker.reader().start_heartbeat(running.inbox.subscribe());
            running.spawn(format!("subscriber {name}"), Box::new(worker));
        }
        start_sources(&mut running, &store, (&self.inbox, &mut controlled), self.sources);
        spawn_cleanup(&mut running, &store, self.retention);
        if self.follows_adopted {
            spawn_adopted_follower(&mut running, &self.store);
        }
        if lease.is_used() {
            running.tasks.spawn(Arc::clone(&lease).run(running.stop.clone()));
        }
        running.spawn_loops(store, controlled, worker, self.poll_interval);
        running
    }
}

fn spawn_unserved_check(
    running: &mut RunningApp,
    store: &Arc<dyn StoreDriver>,
    own: BTreeSet<String>,
) {
    let unserved = UnservedCheck::new(store.clone(), own, running.observer());
    running.spawn("unserved".into(), Box::new(unserved));
}

fn spawn_cleanup(running: &mut RunningApp, store: &Arc<dyn Store>, retention: Retention) {
    let cleanup = Cleanup::new(Arc::clone(store), retention, running.observer());
    running.spawn("cleanup".into(), Box::new(cleanup));
}

fn spawn_adopted_follower(running: &mut RunningApp, store: &Arc<dyn StoreDriver>) {
    let follower = AdoptedFollower::new(Arc::clone(store), running.observer());
    running.spawn("adopted".into(), Box::new(follower));
}

/// Starts the timers of processes.
fn spawn_timers(
    running: &mut RunningApp,
    store: &Arc<dyn Store>,
    alarm: &Arc<Alarm>,
    controlled: &ControlledWorkers,
    owner: TimerOwner,
) {
    let paused = Arc::clone(&controlled.types);
    let counters = Arc::clone(&running.observer.processes);
    let (store, fired) = (Arc::clone(store), running.waker());
    let timers = Timers::new(store, Arc::clone(alarm), counters, paused, fired).of(owner);
    running.spawn("timers".into(), Box::new(timers));
}

/// Logs what an operator should know of the connection to the database, as soon as that is available.
async fn log_warnings(store: Arc<dyn StoreDriver>, stop: CancellationToken) {
    let description = async {
        loop {
            if let Ok(description) = store.describe().await {
                return description;
            }
            tokio::time::sleep(DESCRIBE_RETRY).await;
        }
    };
    if let Some(description) = stop.run_until_cancelled(description).await {
        for warning in description.warnings {
            tracing::warn!("{warning}");
        }
    }
}

/// Starts the workers of the sources of an inbox.
fn start_sources(
    running: &mut RunningApp,
    store: &Arc<dyn Store>,
    (into, controlled): (&str, &mut ControlledWorkers),
    sources: Vec<(String, Box<dyn Source>)>,
) {
    for (name, mut source) in sources {
        source
            .attach(Arc::new(StoredPositions { store: Arc::clone(store), inbox: into.to_owned() }));
        let ingest = Ingest {
            store: Arc::clone(store),
            source,
            ahead: None,
            inbox: Arc::clone(&running.observer.inbox),
            counters: running.observer.source(&name),
            outage: OutageLog::default(),
            name: name.clone(),
            into: into.to_owned(),
            stop: running.stop.clone(),
            gate: controlled.source(&name),
            stored: running.waker(),
        };
        running.spawn(format!("source {name}"), Box::new(ingest));
    }
}
