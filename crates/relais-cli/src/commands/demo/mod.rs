//! `relais demo`: the whole product in one process, with faults, and a proof at the end.
//!
//! Senders post events over HTTP, some twice, some as garbage. relais stores, routes and relays them:
//! orders to a target that fails at times, is down for a while, and does the work but loses its reply;
//! members and blocks in bulk jobs to a simulated Salesforce that does the same. The workers are
//! killed in the middle. The proof compares what was sent with what the two did.

mod plan;
mod proof;
mod salesforce;
mod sender;
mod target;
mod view;

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use relais::{
    App, BreakerPolicy, DestinationSettings, Retention, RetryPolicy, Route, Running, Store,
    http::{HttpPublisher, HttpPublisherSettings, HttpSource, HttpSourceSettings},
    sqlite::{SqliteOptions, SqliteStore},
};
use relais_core::{decode::Decoder, extract::Mapping};

use self::{
    plan::Plan, proof::Proof, salesforce::Org, sender::Senders, target::Target, view::View,
};
use crate::{
    args::DemoArgs,
    failure::{Done, Failure},
};

/// Messages of a demo unless said otherwise.
const MESSAGES: u64 = 2_000;
/// The longest a demo may take to drain after the last message was sent.
const DRAIN_MAX: Duration = Duration::from_secs(60);
/// How often the view is drawn.
const FRAME: Duration = Duration::from_millis(100);
/// Short, so that a take-over is something to watch.
const LEASE: Duration = Duration::from_secs(1);
/// The workers are killed when this share of the messages was sent, in percent.
const KILLS_AT: [u64; 2] = [35, 70];
/// The target is down when this share was sent, for this long.
const OUTAGE_AT: u64 = 50;
const OUTAGE_FOR: Duration = Duration::from_secs(1);

/// Runs the demo.
pub(crate) async fn run(args: DemoArgs) -> Done {
    let seed = args.seed.unwrap_or_else(|| u64::from(std::process::id()));
    let plan = Arc::new(Plan::new(seed, args.messages.unwrap_or(MESSAGES).max(1)));
    let stage = Stage::build(&plan).await?;
    let mut view = View::new(seed, &plan, &stage.describe);
    let mut running = Some(stage.start(stage.hook).await?);
    let senders = Senders::start(&plan, stage.hook);
    let proof = stage.play(&plan, &senders, &mut running, &mut view).await?;
    let all_well = proof.holds();
    view.summary(&proof);
    if let Some(running) = running.take() {
        if !args.once && all_well {
            view.stay(stage.hook, &stage.org.url());
            let _ = tokio::signal::ctrl_c().await;
        }
        running.stop().await;
    }
    if all_well { Ok(()) } else { Err(Failure::Said) }
}

/// Everything that stays while workers come and go.
struct Stage {
    store: SqliteStore,
    target: Arc<Target>,
    target_address: SocketAddr,
    org: Org,
    hook: SocketAddr,
    describe: String,
    /// Removed with everything in it at the end.
    _dir: TempDir,
}

impl Stage {
    async fn build(plan: &Arc<Plan>) -> Result<Self, Failure> {
        let dir = TempDir::new()?;
        let path = dir.0.join("relais.db");
        let store = SqliteStore::open(&path, SqliteOptions::default()).await?;
        store.migrate().await?;
        store.check().await?;
        let describe = store.describe().await?;
        let target = Arc::new(Target::new(plan.seed));
        let target_address = Arc::clone(&target).listen().await?;
        let org = Org::start(plan.seed).await?;
        // A free port, found once, so that the address survives the kills.
        let hook = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        Ok(Self { store, target, target_address, org, hook, describe, _dir: dir })
    }

    /// Starts the workers: what `relais run` does, without the file.
    async fn start(&self, listen: SocketAddr) -> Result<Running, Failure> {
        let mapping = Mapping {
            source_system: "shop".into(),
            decoder: Decoder::Json,
            message_id: "header:message-id".parse().map_err(Failure::failed)?,
            event_type: Some("payload:/type".parse().map_err(Failure::failed)?),
            aggregate_id: Some("payload:/order".parse().map_err(Failure::failed)?),
        };
        let settings = HttpSourceSettings::new("hook", listen, mapping);
        let source = HttpSource::bind(settings).await.map_err(Failure::failed)?;
        let mut publisher = HttpPublisherSettings::new(&format!("http://{}/", self.target_address));
        publisher.allow_private = true;
        let publisher = HttpPublisher::new(publisher).map_err(Failure::Failed)?;
        let route = Route {
            on: plan::EVENT_TYPE.into(),
            destination: "warehouse".into(),
            each: None,
            event_type: None,
            aggregate_type: Some("Order".into()),
            version: None,
            payload: None,
        };
        let app = App::new(Arc::new(self.store.clone()))
            .source("hook", Box::new(source))
            .route(route)
            .destination_with("warehouse", Arc::new(publisher), destination_settings())
            .retention(Retention::default())
            .lease(LEASE);
        Ok(self.org.join(app)?.start())
    }

    /// Faults first, then none, until everything is delivered.
    async fn play(
        &self,
        plan: &Arc<Plan>,
        senders: &Senders,
        running: &mut Option<Running>,
        view: &mut View,
    ) -> Result<Proof, Failure> {
        let mut kills = KILLS_AT.iter().copied().peekable();
        let mut outage = Some(OUTAGE_AT);
        let mut last_sent = Instant::now();
        loop {
            let done = senders.done();
            let percent = done * 100 / plan.messages.max(1);
            if kills.next_if(|at| percent >= *at).is_some() {
                view.event(
                    "workers killed in mid-flight; the next ones take over when the lease ends",
                );
                // Dropped, not stopped: no goodbye, as a kill -9 would.
                drop(running.take());
                *running = Some(self.restart().await?);
            }
            if outage.take_if(|at| percent >= *at).is_some() {
                view.event("the target is down; messages wait, nobody's attempts are used");
                self.target.go_down(OUTAGE_FOR);
            }
            if done < plan.messages || senders.light_done() < plan.light_total() {
                last_sent = Instant::now();
            }
            let (overview, seen) = (self.store.overview().await?, self.org.seen());
            view.draw(senders, &overview, &self.target, seen);
            let proof = Proof::new(plan, senders, &overview, &self.target, seen);
            if proof.holds() || last_sent.elapsed() > DRAIN_MAX {
                return Ok(proof);
            }
            tokio::time::sleep(FRAME).await;
        }
    }

    /// The old listener may need a moment to let go of its port.
    async fn restart(&self) -> Result<Running, Failure> {
        const TRIES: usize = 50;
        for _ in 1..TRIES {
            if let Ok(running) = self.start(self.hook).await {
                return Ok(running);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.start(self.hook).await
    }
}

/// Patient enough for every fault, and quick because this is to be watched.
fn destination_settings() -> DestinationSettings {
    DestinationSettings {
        retry: RetryPolicy {
            attempts_max: 12,
            first: Duration::from_millis(20),
            max: Duration::from_millis(500),
            ..RetryPolicy::default()
        },
        timeout: Duration::from_secs(5),
        breaker: BreakerPolicy { open_for: Duration::from_millis(300), ..BreakerPolicy::default() },
        ..DestinationSettings::default()
    }
}

/// A directory of our own under the system's temporary one.
struct TempDir(std::path::PathBuf);

impl TempDir {
    fn new() -> std::io::Result<Self> {
        let name = format!("relais-demo-{}", uuid::Uuid::new_v4().simple());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
