//! `relais run`: runs all configured sources, workers and servers until a signal.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use relais::{RunningApp, observe::ObserverSnapshot};
use relais_admin::AdminListener;
use relais_core::{
    control::Control,
    store::{StoreDriver, StoreError},
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info, warn};

use super::{CommandContext, check::IDLE, process, supervisor};
use crate::{
    args::{ColorChoice, LogFormat, RunArgs},
    failure::{CommandError, Done},
    settings::{Settings, SourceOrigin, quantity::show_duration, scheme},
    telemetry::{Traces, start_log},
    wire::{self, AdminServer, Database, WiredApp},
};

/// First pause between two attempts to reach the database.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Longest pause between two attempts to reach the database.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Starts, waits for a signal, and stops.
pub(crate) async fn run(context: &CommandContext, args: &RunArgs, color: ColorChoice) -> Done {
    let (settings, warnings) = context.settings()?;
    let json = context.output.json.then_some(LogFormat::Json);
    start_log(&settings.log, json.or(args.log), color);
    for warning in &warnings {
        warn!("{warning}");
    }
    if settings.is_idle() {
        return Err(CommandError::Usage(IDLE.to_owned()));
    }
    // Before any listener starts, so that no early signal is lost.
    let mut signals = Signals::new()?;
    // Before the database is there: a supervisor must not end a process that only waits.
    let listener = wire::listen(&settings).await.map_err(CommandError::failed)?;
    let ready = until_ready(&settings, listener.as_ref(), &mut signals).await?;
    let Some(database) = ready else { return Ok(()) };
    let store = database.store();
    for orphan in process::undeclared(&settings, store.as_ref()).await? {
        warn!("{orphan}");
    }
    log_pauses(&store.controls().await?);
    let wired = wire::app(&settings, &database, (context.wrap_store)(store.clone())).await;
    let WiredApp { app, listening, states, usage } = wired.map_err(CommandError::failed)?;
    let traces = Traces::start(&settings.telemetry).map_err(CommandError::Failed)?;
    let running = traces.of(app).start();
    for (name, address) in &listening {
        info!(source = name, "listening for POST {}://{address}/{name}", settings.scheme_of(name));
    }
    for destination in &settings.destinations {
        info!(
            destination = destination.name,
            kind = destination.target.kind(),
            "serving destination"
        );
    }
    for process in &settings.processes {
        let starts = process.declared.starts.join(", ");
        info!(process = process.title(), "serving process, which starts with {starts}");
    }
    for source in &settings.sources {
        if let SourceOrigin::Kafka(kafka) = &source.origin {
            let topics = kafka.topics.join(", ");
            info!(source = source.name, group = kafka.group, "reading topics {topics}");
        }
        if let SourceOrigin::Nats(nats) = &source.origin {
            info!(source = source.name, consumer = nats.consumer, "reading stream {}", nats.stream);
        }
        if let SourceOrigin::Amqp(amqp) = &source.origin {
            info!(source = source.name, "reading {}", amqp.address);
        }
        if let SourceOrigin::Servicebus(servicebus) = &source.origin {
            info!(source = source.name, "reading {}", servicebus.address());
        }
        if let SourceOrigin::Rabbitmq(rabbitmq) = &source.origin {
            info!(source = source.name, "reading queue {}", rabbitmq.queue);
        }
    }
    let observer = running.observer();
    observer.watch_sources(states.clone());
    let admin = wire::admin(&settings, listener, store.clone(), observer, states, usage).await;
    let tls = settings.admin.as_ref().and_then(|admin| admin.tls_certificate.as_ref());
    let admin = admin.map(|served| (scheme(tls), served));
    let done = tokio::select! {
        done = work(admin, running, store, &mut signals) => done,
        never = supervisor::keep_alive() => match never {},
    };
    traces.close().await;
    done
}

/// Serves until a signal or a failure, then stops all workers.
async fn work(
    admin: Option<(&str, AdminServer)>,
    mut running: RunningApp,
    store: Arc<dyn StoreDriver>,
    signals: &mut Signals,
) -> Done {
    let serve = admin.map(|(scheme, (address, serve))| {
        info!("admin {scheme}://{address}");
        serve
    });
    info!(version = env!("CARGO_PKG_VERSION"), "running");
    supervisor::ready();
    let broken = tokio::select! {
        name = signals.next() => {
            info!("received {name}: finishing messages in flight; send it again to stop at once");
            None
        }
        reason = running.failed() => Some(reason),
        ended = serve.unwrap_or_else(|| Box::pin(std::future::pending())) => {
            Some(format!("admin: {}", ended.err().map_or("ended".into(), |e| e.to_string())))
        }
    };
    supervisor::stopping();
    stop(running, signals, store.as_ref()).await?;
    broken.map_or(Ok(()), |reason| Err(CommandError::Failed(reason)))
}

/// Connects to the database and prepares it. An unavailable database is tried again until `store.wait` is over,
/// because in most deployments both start at the same time. Returns `None` after a signal.
async fn until_ready(
    settings: &Settings,
    listener: Option<&AdminListener>,
    signals: &mut Signals,
) -> Result<Option<Database>, CommandError> {
    let wait = settings.store.wait;
    let place = settings.store.url.place();
    let deadline = Instant::now().checked_add(wait);
    let mut pause = PAUSE_MIN;
    let starting = |reason: &str| listener.into_iter().for_each(|at| at.set_starting(reason));
    starting(&format!("connecting to the database at {place}"));
    loop {
        let error = match open(settings).await {
            Ok(database) => return Ok(Some(database)),
            Err(error @ StoreError::Unavailable(_)) => error,
            Err(error) => return Err(error.into()),
        };
        let left =
            deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Err(CommandError::failed(format!(
                "cannot start: the database at {place} did not answer within {}: {error}; start it, \
                 or check `store.url` and raise `store.wait`",
                show_duration(wait)
            )));
        }
        starting(&format!("waiting for the database at {place}: {error}"));
        warn!(database = place, "waiting for the database, at most {left:.0?} more: {error}");
        tokio::select! {
            () = tokio::time::sleep(pause.min(left)) => {}
            name = signals.next() => {
                info!("received {name}: stopped while waiting for the database");
                return Ok(None);
            }
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

async fn open(settings: &Settings) -> Result<Database, StoreError> {
    let database = Database::connect(settings).await?;
    prepare(settings, &database).await?;
    Ok(database)
}

/// Migrates the tables if allowed, and refuses a database with unsafe settings.
async fn prepare(settings: &Settings, database: &Database) -> Result<(), StoreError> {
    let store = database.store();
    let server = store.describe().await?.server;
    if settings.store.migrate {
        for name in store.migrate().await?.applied {
            info!("applied migration {name}");
        }
        install(settings, database).await?;
    }
    store.check().await?;
    info!("connected to store {} ({server})", settings.store.url);
    // After the check, which includes adopted tables from here on: a table that has changed makes relais not ready,
    // and does not stop what else it serves.
    database.adopt(settings).await
}

/// Installs the triggers of adopted tables. A table that cannot be adopted is an error of the log and of readiness;
/// the store tries it again.
async fn install(settings: &Settings, database: &Database) -> Result<(), StoreError> {
    let outcome = database.install_repeatedly(settings).await?;
    for one in outcome.installed.iter().filter(|one| one.changed) {
        info!(table = one.table, copied = one.copied, "installed triggers of an adopted table");
    }
    for (_, why) in &outcome.refused {
        error!("{why}; trying again every 10 s");
    }
    Ok(())
}

/// Stops in order; a second signal ends the wait.
async fn stop(running: RunningApp, signals: &mut Signals, store: &dyn StoreDriver) -> Done {
    let observer = running.observer();
    tokio::select! {
        () = running.stop() => {}
        name = signals.next() => {
            return Err(CommandError::failed(format!(
                "received {name} again: stopped at once; messages in flight are delivered again later"
            )));
        }
    }
    log_totals(&observer.snapshot());
    match store.overview().await {
        Ok(overview) => {
            let pending: u64 = overview.backlogs.iter().map(|backlog| backlog.pending).sum();
            info!(pending, dead_letters = overview.dead_letters_open, "stopped; lanes released");
        }
        Err(error) => warn!("stopped; {error}"),
    }
    Ok(())
}

/// Logs the pauses that hold after a restart, because a paused destination looks like a stuck one.
fn log_pauses(controls: &[Control]) {
    for control in controls {
        let Some(pause) = &control.pause else { continue };
        let (kind, name, by) = (control.kind.words(), &control.name, &pause.by);
        let (since, reason) = (pause.at.to_string(), &pause.reason);
        warn!(name, by, since, reason, "{kind} is paused by an operator until it is resumed");
    }
}

fn log_totals(snapshot: &ObserverSnapshot) {
    let inbox = &snapshot.inbox;
    info!(
        stored = inbox.stored,
        duplicates = inbox.duplicates,
        processed = inbox.processed,
        failed = inbox.failed,
        "inbox totals"
    );
    for (destination, counts) in &snapshot.destinations {
        let (dispatched, failed) = (counts.dispatched, counts.failed);
        info!(destination, dispatched, failed, "outbox totals");
    }
}

/// Ctrl-C and SIGTERM.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
