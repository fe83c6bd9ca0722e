//! The environment of the demo: store, workers and targets in one process and one temporary directory.
//!
//! Invariant: restarted workers get their state only from `relais.toml` and the store, as after a crash.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use relais::{RunningApp, observe::Observer};
use relais_admin::ApiUsage;
use relais_core::{
    inspect::{AuditFilter, InspectExt},
    process::ProcessFilter,
    query::PAGE_MAX,
    store::{StoreDriver, StoreError},
};

use super::{
    plan::DemoPlan,
    proof::{DemoFacts, OperatorActivity},
    salesforce::DemoOrg,
    services::DemoServices,
    target::DemoTarget,
};
use crate::{
    failure::CommandError,
    settings::{self, Settings},
    wire::{self, Database, WiredApp},
};

/// The configuration, with placeholders.
const SETTINGS: &str = include_str!("relais.toml");

/// The addresses that the demo prints.
pub(super) struct DemoAddresses {
    pub(super) store: String,
    pub(super) console: SocketAddr,
    pub(super) hook: SocketAddr,
    pub(super) org: String,
    pub(super) settings: String,
}

/// The environment, which outlives killed workers.
pub(super) struct DemoEnvironment {
    pub(super) target: Arc<DemoTarget>,
    services: DemoServices,
    org: DemoOrg,
    settings: Settings,
    database: Database,
    store: Arc<dyn StoreDriver>,
    running: Option<RunningApp>,
    /// Keeps counting after workers were killed, because the console belongs to the process.
    observer: Arc<Observer>,
    usage: Usage,
    places: DemoAddresses,
    /// Removed at the end.
    _dir: TempDir,
}

/// The used API calls of each destination, from the current workers.
type Usage = Arc<Mutex<Vec<(String, ApiUsage)>>>;

impl DemoEnvironment {
    /// Starts all listeners and workers.
    pub(super) async fn build(plan: &DemoPlan) -> Result<Self, CommandError> {
        let dir = TempDir::new()?;
        let target = Arc::new(DemoTarget::new(plan.seed));
        let target_address = Arc::clone(&target).listen().await?;
        let org = DemoOrg::start(plan.seed).await?;
        // The ports are chosen once, so that the addresses stay the same after a kill.
        let [hook, console] = free_ports()?;
        let (services, services_address) = DemoServices::start(hook).await?;
        let file = dir.0.join("relais.toml");
        let text = SETTINGS
            .replace("@admin@", &console.to_string())
            .replace("@hook@", &hook.to_string())
            .replace("@target@", &target_address.to_string())
            .replace("@services@", &services_address.to_string())
            .replace("@salesforce@", &org.url())
            .replace("@linger@", plan.linger());
        fs::write(&file, text)?;
        let (settings, _) = settings::load(&file)?;
        let database = Database::connect(&settings).await?;
        let store = database.store();
        store.migrate().await?;
        store.check().await?;
        let describe = store.describe().await?.server;
        let places =
            DemoAddresses { store: describe, console, hook, org: org.url(), settings: show(&file) };
        let (observer, usage) = (Arc::default(), Usage::default());
        let mut stage = Self {
            target,
            services,
            org,
            settings,
            database,
            store,
            running: None,
            observer,
            usage,
            places,
            _dir: dir,
        };
        stage.start().await?;
        stage.serve_console().await?;
        Ok(stage)
    }

    pub(super) fn places(&self) -> &DemoAddresses {
        &self.places
    }

    /// Starts the workers, as `relais run` does.
    async fn start(&mut self) -> Result<(), CommandError> {
        let wired = wire::app(&self.settings, &self.database, self.database.store())
            .await
            .map_err(CommandError::failed)?;
        let WiredApp { app, usage, .. } = wired;
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner) = usage;
        self.running = Some(app.observer(Arc::clone(&self.observer)).start());
        Ok(())
    }

    /// Drops the workers without a shutdown, as `kill -9` does.
    pub(super) async fn kill_and_restart(&mut self) -> Result<(), CommandError> {
        // The old listener may need a moment to release its port.
        const TRIES: usize = 50;
        drop(self.running.take());
        for _ in 1..TRIES {
            if self.start().await.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.start().await
    }

    /// Serves until the process ends.
    async fn serve_console(&self) -> Result<(), CommandError> {
        let (store, observer) = (Arc::clone(&self.store), Arc::clone(&self.observer));
        let usage = self.current_usage();
        let listener = wire::listen(&self.settings).await.map_err(CommandError::failed)?;
        let served =
            wire::admin(&self.settings, listener, store, observer, Vec::new(), usage).await;
        if let Some((_, serve)) = served {
            tokio::spawn(serve);
        }
        Ok(())
    }

    /// Returns functions that read the usage from the workers that run at that time.
    fn current_usage(&self) -> Vec<(String, ApiUsage)> {
        let now = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        let later = now.iter().map(|(name, _)| {
            let (usage, wanted) = (Arc::clone(&self.usage), name.clone());
            let ask: ApiUsage = Arc::new(move || {
                let usage = usage.lock().unwrap_or_else(PoisonError::into_inner);
                usage.iter().find(|(name, _)| *name == wanted).and_then(|(_, ask)| ask())
            });
            (name.clone(), ask)
        });
        later.collect()
    }

    pub(super) async fn facts(&self) -> Result<DemoFacts, StoreError> {
        Ok(DemoFacts {
            overview: self.store.overview().await?,
            parked: self.store.parked_keys(PAGE_MAX).await?,
            seen: self.org.seen(),
            done: self.services.done(),
        })
    }

    /// Returns whether an operator has decided about a message or a process.
    pub(super) async fn operator_activity(&self) -> Result<OperatorActivity, StoreError> {
        let audit = AuditFilter { limit: 1, ..AuditFilter::default() };
        if !self.store.list_audit(audit).await?.is_empty() {
            return Ok(OperatorActivity::Decided);
        }
        let mut before = None;
        loop {
            let filter = ProcessFilter { before, limit: PAGE_MAX, ..ProcessFilter::default() };
            let page = self.store.list_processes(filter).await?;
            for process in &page {
                let log = self.store.process_log(process.process_id, None, PAGE_MAX).await?;
                if log.iter().any(|line| line.entry.actor.is_some()) {
                    return Ok(OperatorActivity::Decided);
                }
            }
            before = page.last().map(|process| process.process_id);
            if page.len() < PAGE_MAX {
                return Ok(OperatorActivity::None);
            }
        }
    }

    pub(super) async fn stop(mut self) {
        if let Some(running) = self.running.take() {
            running.stop().await;
        }
    }
}

/// Returns two free ports; both are bound at once, so that they differ.
fn free_ports() -> std::io::Result<[SocketAddr; 2]> {
    let (one, other) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
    Ok([one.local_addr()?, other.local_addr()?])
}

fn show(path: &Path) -> String {
    path.display().to_string()
}

/// A directory under the system's temporary one.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> std::io::Result<Self> {
        let name = format!("relais-demo-{}", uuid::Uuid::new_v4().simple());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
