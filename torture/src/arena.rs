//! One database, its writers, its processes and its faults: phase one with faults, phase two without,
//! in which everything must drain.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use relais_testkit::proxy::FaultProxy;

use crate::{
    base::Base,
    check::{self, Findings},
    dice::Dice,
    faults::{self, Toll},
    history::Flow,
    node::Program,
    settings,
    sink::Sink,
    writers::{self, Desk, Keys},
};

/// How long a writer may wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long phase two may take.
const DRAIN_MAX: Duration = Duration::from_secs(120);
/// How often it is looked whether everything has drained.
const LOOK: Duration = Duration::from_millis(500);
/// Writers of each kind, and the keys of each.
const WRITERS: u32 = 2;
const KEYS: usize = 100;

/// What is wanted of a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// How long phase one is.
    pub(crate) time: Duration,
    pub(crate) nodes: usize,
    /// Messages written into the outbox, and posted.
    pub(crate) sent: u64,
    pub(crate) heard: u64,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) store: &'static str,
    pub(crate) findings: Findings,
    pub(crate) messages: u64,
    pub(crate) rolled_back: u64,
    /// Copies beyond the first.
    pub(crate) duplicates: u64,
    pub(crate) kills: u64,
    pub(crate) zombies: u64,
    pub(crate) refusals: u64,
    pub(crate) network: u64,
    pub(crate) sessions: u64,
    pub(crate) unanswered: u64,
    pub(crate) busy: u64,
    pub(crate) drained_in: Duration,
}

pub(crate) async fn run(base: Base, program: Program, plan: Plan) -> Result<Outcome> {
    let (sink, target) = Sink::start(Dice::new(plan.seed, 1)).await?;
    let to_sink = Arc::new(FaultProxy::to(target).await?);
    let to_base = match &base {
        Base::Postgres { .. } => Some(Arc::new(FaultProxy::to(base.address()?).await?)),
        Base::Sqlite(_) => None,
    };
    let through = to_base.as_ref().map(|proxy| proxy.address());
    let settings = settings::text(&base.url(through)?, to_sink.address());
    std::fs::write(program.folder.join("relais.toml"), settings)?;
    program.call(&["migrate"]).await?;
    base.prepare().await?;

    let (desk, toll) = (Arc::new(Desk::default()), Arc::new(Toll::default()));
    let http = reqwest::Client::builder().no_proxy().timeout(ANSWER_MAX).build()?;
    let mut disturbers = vec![tokio::spawn(faults::disturb(
        Arc::clone(&to_sink),
        Dice::new(plan.seed, 2),
        Arc::clone(&toll),
    ))];
    if let Some(proxy) = &to_base {
        let dice = Dice::new(plan.seed, 3);
        disturbers.push(tokio::spawn(faults::disturb(Arc::clone(proxy), dice, Arc::clone(&toll))));
        let dice = Dice::new(plan.seed, 4);
        disturbers.push(tokio::spawn(faults::end_sessions(base.clone(), dice, Arc::clone(&toll))));
    }
    let haunted: Vec<_> = (0..plan.nodes)
        .map(|place| {
            let dice = Dice::new(plan.seed, 100 + place as u64);
            let (desk, toll) = (Arc::clone(&desk), Arc::clone(&toll));
            tokio::spawn(faults::haunt(program.clone(), place, dice, desk, toll, http.clone()))
        })
        .collect();
    let writers = Writers::start(&base, &plan, &desk, &http);

    tokio::time::sleep(plan.time).await;
    toll.over.store(true, Relaxed);
    for disturber in disturbers {
        disturber.await?;
    }
    sink.recover();
    let mut nodes = Vec::new();
    for node in haunted {
        nodes.push(node.await??);
    }
    desk.closed.store(true, Relaxed);
    let posted = writers.finish().await?;
    let drained_in = drain(&base).await?;
    for node in nodes {
        node.stop().await?;
    }
    let closed = sink.arrivals.close();
    let findings = check::check(&base, &posted, &closed).await?;
    let copies: u64 = closed.arrived.values().map(|arrival| u64::from(arrival.copies)).sum();
    Ok(Outcome {
        store: base.name(),
        findings,
        messages: closed.arrived.len() as u64,
        rolled_back: desk.rolled_back.load(Relaxed),
        duplicates: copies - closed.arrived.len() as u64,
        kills: toll.kills.load(Relaxed),
        zombies: toll.zombies.load(Relaxed),
        refusals: toll.refusals.load(Relaxed),
        network: toll.network.load(Relaxed),
        sessions: toll.sessions.load(Relaxed),
        unanswered: desk.unanswered.load(Relaxed),
        busy: sink.busy(),
        drained_in,
    })
}

/// Those at work.
struct Writers {
    senders: Vec<tokio::task::JoinHandle<Result<()>>>,
    posters: Vec<tokio::task::JoinHandle<Keys>>,
}

impl Writers {
    fn start(base: &Base, plan: &Plan, desk: &Arc<Desk>, http: &reqwest::Client) -> Self {
        let each = u64::from(WRITERS);
        let pace = (plan.sent / each / plan.time.as_secs().max(1)).max(1) * 2;
        let keys = |flow, writer: u32| Keys::new(flow, writer * 1_000, KEYS);
        let senders = (0..WRITERS).map(|writer| {
            let dice = Dice::new(plan.seed, 200 + u64::from(writer));
            let keys = keys(Flow::Sent, writer);
            let send =
                writers::send(base.clone(), Arc::clone(desk), keys, dice, plan.sent / each, pace);
            match base {
                // SQLite blocks the thread it is used on.
                Base::Sqlite(_) => {
                    let handle = tokio::runtime::Handle::current();
                    tokio::task::spawn_blocking(move || handle.block_on(send))
                }
                Base::Postgres { .. } => tokio::spawn(send),
            }
        });
        let posters = (0..WRITERS * 4).map(|writer| {
            let dice = Dice::new(plan.seed, 300 + u64::from(writer));
            let keys = keys(Flow::Heard, writer);
            let count = plan.heard / each / 4;
            tokio::spawn(writers::post(Arc::clone(desk), keys, dice, http.clone(), count))
        });
        Self { senders: senders.collect(), posters: posters.collect() }
    }

    async fn finish(self) -> Result<Vec<Keys>> {
        for sender in self.senders {
            sender.await??;
        }
        let mut posted = Vec::new();
        for poster in self.posters {
            posted.push(poster.await?);
        }
        Ok(posted)
    }
}

/// Waits until no row is on its way any more.
async fn drain(base: &Base) -> Result<Duration> {
    let started = Instant::now();
    loop {
        let open = check::open_rows(base).await?;
        if open == 0 {
            return Ok(started.elapsed());
        }
        ensure!(started.elapsed() < DRAIN_MAX, "{open} rows have not drained in {DRAIN_MAX:?}");
        tokio::time::sleep(LOOK).await;
    }
}
