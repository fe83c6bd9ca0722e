//! The stage: the store, the workers and everything they talk to, in one process and one directory that
//! goes away with it.
//!
//! Invariant: whatever a worker has, the next one gets by reading `relais.toml` again, as after a crash.

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
    desk::AuditFilter,
    process::ProcessFilter,
    query::PAGE_MAX,
    store::{Store, StoreError},
};

use super::{
    plan::Plan,
    proof::{Facts, People},
    salesforce::Org,
    services::Services,
    target::Target,
};
use crate::{
    failure::Failure,
    settings::{self, Settings},
    wire::{self, Database, Wired},
};

/// The settings, with places to fill in.
const SETTINGS: &str = include_str!("relais.toml");

/// Where things are, for those who want to look.
pub(super) struct Places {
    pub(super) store: String,
    pub(super) console: SocketAddr,
    pub(super) hook: SocketAddr,
    pub(super) org: String,
    pub(super) settings: String,
}

/// Everything that stays while workers come and go.
pub(super) struct Stage {
    pub(super) target: Arc<Target>,
    services: Services,
    org: Org,
    settings: Settings,
    database: Database,
    store: Arc<dyn Store>,
    running: Option<RunningApp>,
    /// Counts on while workers come and go: the console belongs to the process.
    observer: Arc<Observer>,
    usage: Usage,
    places: Places,
    /// Removed with everything in it at the end.
    _dir: TempDir,
}

/// The calls used of each destination, as the workers of the moment know them.
type Usage = Arc<Mutex<Vec<(String, ApiUsage)>>>;

impl Stage {
    /// Everything listens and works from here on.
    pub(super) async fn build(plan: &Plan) -> Result<Self, Failure> {
        let dir = TempDir::new()?;
        let target = Arc::new(Target::new(plan.seed));
        let target_address = Arc::clone(&target).listen().await?;
        let org = Org::start(plan.seed).await?;
        // Free ports, found once, so that the addresses survive the kills.
        let [hook, console] = free_ports()?;
        let (services, services_address) = Services::start(hook).await?;
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
        let describe = store.describe().await?;
        let places =
            Places { store: describe, console, hook, org: org.url(), settings: show(&file) };
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

    pub(super) fn places(&self) -> &Places {
        &self.places
    }

    /// Starts the workers, as `relais run` does.
    async fn start(&mut self) -> Result<(), Failure> {
        let wired = wire::app(&self.settings, &self.database, self.database.store())
            .await
            .map_err(Failure::failed)?;
        let Wired { app, usage, .. } = wired;
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner) = usage;
        self.running = Some(app.observer(Arc::clone(&self.observer)).start());
        Ok(())
    }

    /// Dropped, not stopped: no goodbye, as a kill -9 would.
    pub(super) async fn kill_and_restart(&mut self) -> Result<(), Failure> {
        // The old listener may need a moment to let go of its port.
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
    async fn serve_console(&self) -> Result<(), Failure> {
        let (store, observer) = (Arc::clone(&self.store), Arc::clone(&self.observer));
        let usage = self.usage_of_the_moment();
        let served = wire::admin(&self.settings, store, observer, Vec::new(), usage).await;
        if let Some((_, serve)) = served.map_err(Failure::failed)? {
            tokio::spawn(serve);
        }
        Ok(())
    }

    /// Each asks whoever is at work then.
    fn usage_of_the_moment(&self) -> Vec<(String, ApiUsage)> {
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

    pub(super) async fn facts(&self) -> Result<Facts, StoreError> {
        Ok(Facts {
            overview: self.store.overview().await?,
            parked: self.store.parked_keys(PAGE_MAX).await?,
            seen: self.org.seen(),
            done: self.services.done(),
        })
    }

    /// Whether a person has decided about a message or a process, through the console or elsewhere.
    pub(super) async fn people(&self) -> Result<People, StoreError> {
        let audit = AuditFilter { limit: 1, ..AuditFilter::default() };
        if !self.store.list_audit(audit).await?.is_empty() {
            return Ok(People::Acted);
        }
        let mut before = None;
        loop {
            let filter = ProcessFilter { before, limit: PAGE_MAX, ..ProcessFilter::default() };
            let page = self.store.list_processes(filter).await?;
            for process in &page {
                let log = self.store.process_log(process.process_id, None, PAGE_MAX).await?;
                if log.iter().any(|line| line.entry.actor.is_some()) {
                    return Ok(People::Acted);
                }
            }
            before = page.last().map(|process| process.process_id);
            if page.len() < PAGE_MAX {
                return Ok(People::Looked);
            }
        }
    }

    pub(super) async fn stop(mut self) {
        if let Some(running) = self.running.take() {
            running.stop().await;
        }
    }
}

/// Both at once, so that they differ.
fn free_ports() -> std::io::Result<[SocketAddr; 2]> {
    let (one, other) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
    Ok([one.local_addr()?, other.local_addr()?])
}

fn show(path: &Path) -> String {
    path.display().to_string()
}

/// A directory of our own under the system's temporary one.
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
