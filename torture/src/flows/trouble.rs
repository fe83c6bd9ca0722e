//! Ordinary trouble: a target with outages, slow answers, large messages and a few poison keys.
//!
//! Two destinations go to it: `patient` has the default retry, `strict` has few attempts. An outage must
//! not make a dead letter of a message in either of them. A poison key never succeeds: in `strict` it must
//! become a dead letter, in `patient` it waits, because 20 attempts take an hour. Messages behind it wait.
//!
//! The processes have a configuration of their own: the short retention of the others is refused with the
//! default retry, which takes longer.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::Result;
use axum::{
    Router,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, StatusCode},
    routing::post,
};
use relais_testkit::proxy::{Fault, FaultProxy};
use tokio::{net::TcpListener, task::JoinHandle};

use super::{FlowContext, rate};
use crate::{
    base::DatabaseClient,
    check::{self, Findings},
    faults::{self, LEASE, NodeSlot},
    history::{Arrivals, Flow, MessageName, Poison},
    node::NodeProcess,
    rng::Rng,
    writers::{self, WriterKeys},
};

/// Messages a second to each destination, and how many keys they have.
const MESSAGES_A_SECOND: u64 = 15;
const KEYS: usize = 200;
/// Processes that deliver them, and their configuration.
const NODES: usize = 2;
const SETTINGS: &str = "trouble.toml";
/// Longer than a process of the other slots works: an outage must be seen by the same process for a while.
const LIFE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(6));
/// Time between two outages, and duration of one.
const WELL: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(5));
const OUTAGE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(4));
/// Share of slow answers, which are still faster than the time-out of a call.
const SLOW_PERCENT: u64 = 3;
const SLOW: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(900));

/// The target, and those who write for it.
pub(crate) struct TroubleFlow {
    target: TroubleTarget,
    proxy: Arc<FaultProxy>,
    disturber: Option<JoinHandle<()>>,
    senders: Vec<JoinHandle<Result<()>>>,
    large: u64,
    dead_letters: u64,
}

/// The target of both destinations.
#[derive(Clone)]
struct TroubleTarget {
    arrivals: Arc<Arrivals>,
    /// The status that every call gets during an outage; 0 if there is none.
    outage: Arc<AtomicU16>,
    rng: Arc<Mutex<Rng>>,
    slow: Arc<AtomicU64>,
    /// Calls of poison keys.
    poison: Arc<AtomicU64>,
}

/// The fate of every call during an outage.
#[derive(Clone, Copy, Debug)]
enum Outage {
    Answer(StatusCode),
    Network(Fault),
}

impl TroubleFlow {
    /// Starts the target.
    pub(crate) async fn start(context: &FlowContext) -> Result<Self> {
        let target = TroubleTarget {
            arrivals: Arc::default(),
            outage: Arc::default(),
            rng: Arc::new(Mutex::new(Rng::new(context.plan.seed, 70))),
            slow: Arc::default(),
            poison: Arc::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let proxy = Arc::new(FaultProxy::to(listener.local_addr()?).await?);
        let router = Router::new()
            .route("/trouble", post(take))
            .layer(DefaultBodyLimit::disable())
            .with_state(target.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let (disturber, senders) = (None, Vec::new());
        Ok(Self { target, proxy, disturber, senders, large: 0, dead_letters: 0 })
    }

    /// Writes the configuration of its processes.
    pub(crate) fn write_settings(&self, context: &FlowContext) -> Result<()> {
        let text = settings(&context.base.url(context.through)?, self.proxy.address());
        Ok(std::fs::write(context.program.folder.join(SETTINGS), text)?)
    }

    /// Begins to write, with outages; returns the processes that deliver.
    pub(crate) fn go(&mut self, context: &FlowContext) -> Vec<JoinHandle<Result<NodeProcess>>> {
        let FlowContext { plan, control, event_log, http, base, shared, .. } = context;
        let outages = outages(self.target.clone(), Arc::clone(&self.proxy), context.clone());
        self.disturber = Some(tokio::spawn(outages));
        let (messages, pace) = rate(plan, MESSAGES_A_SECOND);
        self.senders = [(Flow::Patient, 72), (Flow::Strict, 73)]
            .map(|(flow, part)| {
                let (keys, rng) = (WriterKeys::new(flow, 0, KEYS), Rng::new(plan.seed, part));
                let shared = Arc::clone(shared);
                let send = writers::send(base.clone(), shared, keys, rng, messages, pace);
                writers::spawn(base, send)
            })
            .into();
        let mut program = context.program.clone();
        program.args.push(format!("--config={SETTINGS}"));
        let disrupt_node = |number| {
            let rng = Rng::new(plan.seed, 74 + number as u64);
            let mut slot = NodeSlot::new(program.clone(), format!("trouble-{number}"), rng);
            slot.life = LIFE;
            let (control, event_log) = (Arc::clone(control), event_log.clone());
            tokio::spawn(faults::disrupt_node(slot, control, event_log, http.clone()))
        };
        (0..NODES).map(disrupt_node).collect()
    }

    /// Waits for the end of the last outage.
    pub(crate) async fn calm(&mut self) -> Result<()> {
        if let Some(disturber) = self.disturber.take() {
            disturber.await?;
        }
        Ok(())
    }

    /// Waits for the writers.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        for sender in self.senders.drain(..) {
            sender.await??;
        }
        Ok(())
    }

    pub(crate) async fn check(
        &mut self,
        client: &mut DatabaseClient,
        findings: &mut Findings,
    ) -> Result<()> {
        let mut written = check::orders(client, Flow::Patient).await?;
        written.extend(check::orders(client, Flow::Strict).await?);
        written.waiting = check::waiting(client).await?;
        findings.compare(&written, &self.target.arrivals.close());
        self.large = written.names().filter(|name| name.large_megabytes().is_some()).count() as u64;
        self.dead_letters = check::deserved_dead_letters(client).await?;
        Ok(())
    }

    pub(crate) fn counts(&self) -> [(&'static str, u64); 4] {
        [
            ("deserved dead letters", self.dead_letters),
            ("calls of poison keys", self.target.poison.load(Relaxed)),
            ("slow answers", self.target.slow.load(Relaxed)),
            ("large rows", self.large),
        ]
    }
}

async fn take(State(target): State<TroubleTarget>, headers: HeaderMap, body: String) -> StatusCode {
    // 0 is no status.
    if let Ok(status) = StatusCode::from_u16(target.outage.load(Relaxed)) {
        return status;
    }
    let body: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    let name = body["name"].as_str().unwrap_or_default();
    let poison = MessageName::parse(name).and_then(MessageName::poison);
    target.poison.fetch_add(u64::from(poison.is_some()), Relaxed);
    match poison {
        Some(Poison::Status(status)) => {
            return StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        }
        Some(Poison::NoAnswer) => std::future::pending().await,
        None => {}
    }
    let id = headers.get("message-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
    target.arrivals.note(name, id);
    if let Some(time) = target.slow_answer() {
        tokio::time::sleep(time).await;
    }
    StatusCode::OK
}

impl TroubleTarget {
    /// Returns how long the next answer takes, if it is a slow one.
    fn slow_answer(&self) -> Option<Duration> {
        let mut rng = self.rng.lock().expect("the lock is not poisoned");
        let time = rng.percent(SLOW_PERCENT).then(|| rng.between(SLOW.0, SLOW.1));
        self.slow.fetch_add(u64::from(time.is_some()), Relaxed);
        time
    }
}

/// Makes one outage after the other until the faults are over; in lulls too, in which processes live long
/// enough to use up attempts.
async fn outages(target: TroubleTarget, proxy: Arc<FaultProxy>, context: FlowContext) {
    let mut rng = Rng::new(context.plan.seed, 71);
    while context.control.pass(rng.between(WELL.0, WELL.1)).await {
        let outage = match rng.below(5) {
            0 => Outage::Answer(StatusCode::INTERNAL_SERVER_ERROR),
            1 | 2 => Outage::Answer(StatusCode::SERVICE_UNAVAILABLE),
            3 => Outage::Network(Fault::Cut),
            _ => Outage::Network(Fault::BlackHole),
        };
        context.event_log.note(format_args!("outage: {outage:?}"));
        match outage {
            Outage::Answer(status) => target.outage.store(status.as_u16(), Relaxed),
            Outage::Network(fault) => proxy.set(fault),
        }
        context.control.pass(rng.between(OUTAGE.0, OUTAGE.1)).await;
        target.outage.store(0, Relaxed);
        proxy.set(Fault::None);
        context.event_log.note("the outage is over");
        context.control.add("outages", 1);
    }
}

/// An inbox of its own, in which nothing arrives: routes are the matter of the other processes.
fn settings(store: &str, target: SocketAddr) -> String {
    let lease = LEASE.as_secs();
    let destination = |name| {
        format!(
            r#"
[[destination]]
name = "{name}"
kind = "http"
url = "http://{target}/trouble"
allow_private = true

[destination.limits]
timeout = "2s"
"#
        )
    };
    let (patient, strict) = (destination("patient"), destination("strict"));
    format!(
        r#"[store]
url = "{store}"
migrate = false

[lanes]
lease = "{lease}s"

[inbox]
name = "trouble"

[admin]
listen = "127.0.0.1:0"

[[source]]
name = "trouble"
kind = "http"
listen = "127.0.0.1:0"
source_system = "shop"
message_id = "header:message-id"
event_type = "payload:/type"
aggregate_id = "payload:/key"
{patient}{strict}
[destination.retry]
attempts = 5
first = "50ms"
max = "400ms"
"#
    )
}
