//! One database, its writers, its processes and its faults: phase one with faults, phase two without,
//! in which everything must drain.

use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use anyhow::Result;
use relais_testkit::proxy::FaultProxy;
use tokio::task::JoinHandle;

use crate::{
    base::Base,
    check::{self, CheckInput},
    disk::Disk,
    event_log::EventLog,
    faults::{self, FaultControl, NodeSlot},
    figures::StoreOutcome,
    flows::{FlowContext, Flows, brokers::BrokerServers},
    history::{ArrivalTable, Flow},
    node::{NodeProcess, NodeProgram},
    rng::Rng,
    settings,
    sink::Sink,
    writers::{self, SharedState, WriterKeys},
};

/// Longest wait of a writer for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Interval of polls, and of progress reports.
const POLL: Duration = Duration::from_millis(200);
const PROGRESS: Duration = Duration::from_secs(10);
/// Number of processes that freeze more often than they die.
const SLEEPERS: usize = 3;
/// Writers of each kind, and the keys of each.
const WRITERS: u32 = 2;
const KEYS: usize = 2_000;

/// The size and length of a run.
#[derive(Clone, Debug)]
pub(crate) struct RunPlan {
    pub(crate) seed: u64,
    /// The length of phase one.
    pub(crate) time: Duration,
    /// Longest phase two.
    pub(crate) drain: Duration,
    pub(crate) nodes: usize,
    /// Factor by which a lull is longer than usual.
    pub(crate) calm: u32,
    /// Most messages on their way: what is left when the faults end must drain in time.
    pub(crate) backlog: u64,
    /// Messages written into the outbox, and posted.
    pub(crate) sent: u64,
    pub(crate) heard: u64,
    /// Messages that all senders together write in a second, at most.
    pub(crate) pace: u64,
    pub(crate) tools: FaultTools,
}

/// Programs and devices that faults need.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultTools {
    /// Restarts the database as a crash would, and returns when it serves again.
    pub(crate) restart: Option<PathBuf>,
    /// The library that gives a program another time of day.
    pub(crate) faketime: Option<PathBuf>,
    /// The disk of the database, if it has its own.
    pub(crate) disk: Option<Arc<Disk>>,
    pub(crate) brokers: BrokerServers,
}

pub(crate) async fn run(
    base: Base,
    program: NodeProgram,
    plan: RunPlan,
    event_log: EventLog,
) -> Result<StoreOutcome> {
    let (sink, target) = Sink::start(Rng::new(plan.seed, 1)).await?;
    let to_sink = Arc::new(FaultProxy::to(target).await?);
    let to_base = match &base {
        Base::Postgres { .. } => Some(Arc::new(FaultProxy::to(base.address()?).await?)),
        Base::Sqlite(_) => None,
    };
    let through = to_base.as_ref().map(|proxy| proxy.address());
    let shared = Arc::new(SharedState::at(&format!("hook-{}", base.name())));
    let control = Arc::new(FaultControl::default());
    let _ = (shared.event_log.set(event_log.clone()), sink.event_log.set(event_log.clone()));
    let http = reqwest::Client::builder().no_proxy().timeout(ANSWER_MAX).build()?;
    let context = FlowContext {
        base: base.clone(),
        through,
        program: program.clone(),
        plan: plan.clone(),
        shared: Arc::clone(&shared),
        control: Arc::clone(&control),
        event_log: event_log.clone(),
        http: http.clone(),
    };
    let mut flows = Flows::start(&context).await?;
    let text = settings::text(&base.url(through)?, to_sink.address(), shared.hook());
    flows.write_settings(&context, &text)?;
    program.call(&["migrate"]).await?;
    base.prepare().await?;

    let fault_tasks =
        FaultTasks { base: &base, plan: &plan, control: &control, event_log: &event_log };
    let disturbers = fault_tasks.start(&to_sink, to_base.as_ref());
    let mut disrupted = fault_tasks.disrupt_node(&program, &shared, &http);
    let writers = Writers::start(&base, &plan, &shared, &http);
    disrupted.extend(flows.go(&context));

    watch(base.name(), &plan, &shared, &control, &sink).await;
    control.over.store(true, Relaxed);
    event_log.note("the faults are over");
    for disturber in disturbers {
        disturber.await??;
    }
    sink.recover();
    let mut nodes = Vec::new();
    for node in disrupted {
        nodes.push(node.await??);
    }
    flows.calm().await?;
    shared.closed.store(true, Relaxed);
    let posted = writers.finish().await?;
    flows.finish().await?;
    let drained_in = drain(&base, &flows, plan.drain).await?;
    let mut stayed = Vec::new();
    for node in nodes {
        stayed.extend(node.stop().await.err().map(|error| format!("{error:#}")));
    }
    let closed = sink.arrivals.close();
    let (posted, unwell) = (&*posted, &*control.unwell());
    let mut findings =
        check::check(CheckInput { base: &base, posted, closed: &closed, unwell }).await?;
    stayed.extend(flows.stop().await.err().map(|error| format!("{error:#}")));
    findings.add("did not end well", stayed);
    flows.check(&base, &mut findings).await?;
    flows.remove().await?;
    let kept = base.connect().await?.number(KEPT).await?;
    let mut counts = counts(&control, &shared, &sink, &closed);
    counts.push(("rows cleaned up", closed.messages.saturating_sub(kept)));
    counts.extend(flows.counts());
    Ok(StoreOutcome { store: base.name(), findings, counts, drained_in })
}

/// Returns the counts of events, the most important first.
fn counts(
    control: &FaultControl,
    shared: &SharedState,
    sink: &Sink,
    closed: &ArrivalTable,
) -> Vec<(&'static str, u64)> {
    let first = ["kills", "zombies", "fence refusals"];
    let others = control.counts().into_iter().filter(|(what, _)| !first.contains(what));
    let mut counts = vec![("messages", closed.messages)];
    counts.extend(first.map(|what| (what, control.count(what))));
    counts.push(("copies", closed.copies));
    counts.extend(others);
    counts.extend([
        ("calls refused", sink.busy()),
        ("posts unanswered", shared.unanswered.load(Relaxed)),
        ("rolled back", shared.rolled_back.load(Relaxed)),
    ]);
    counts
}

/// Rows of the sink's messages that no cleanup has removed.
const KEPT: &str = "SELECT CAST(count(*) AS TEXT) FROM relais_outbox WHERE destination = 'sink'";

/// Those who disturb.
struct FaultTasks<'a> {
    base: &'a Base,
    plan: &'a RunPlan,
    control: &'a Arc<FaultControl>,
    event_log: &'a EventLog,
}

impl FaultTasks<'_> {
    fn rng(&self, part: u64) -> Rng {
        Rng::new(self.plan.seed, part)
    }

    /// Begins to disturb everything but the processes.
    fn start(
        &self,
        to_sink: &Arc<FaultProxy>,
        to_base: Option<&Arc<FaultProxy>>,
    ) -> Vec<JoinHandle<Result<()>>> {
        let (control, event_log) = (|| Arc::clone(self.control), || self.event_log.clone());
        let network = |proxy: &Arc<FaultProxy>, what, part| {
            let disturb =
                faults::disturb(Arc::clone(proxy), what, self.rng(part), control(), event_log());
            tokio::spawn(quietly(disturb))
        };
        let alternate_storms =
            faults::alternate_storms(self.plan.calm, self.rng(7), control(), event_log());
        let mut disturbers =
            vec![tokio::spawn(quietly(alternate_storms)), network(to_sink, faults::SINK, 2)];
        if let Some(proxy) = to_base {
            disturbers.push(network(proxy, "the database", 3));
            let end = faults::end_sessions(self.base.clone(), self.rng(4), control(), event_log());
            disturbers.push(tokio::spawn(quietly(end)));
        }
        if let Some(script) = self.plan.tools.restart.clone() {
            let restart = faults::restart_database(script, self.rng(5), control(), event_log());
            disturbers.push(tokio::spawn(restart));
        }
        if let Some(disk) = self.plan.tools.disk.clone() {
            let fill = faults::fill_disk(disk, self.rng(6), control(), event_log());
            disturbers.push(tokio::spawn(quietly(fill)));
        }
        disturbers
    }

    /// Begins to start processes, and to end them.
    fn disrupt_node(
        &self,
        program: &NodeProgram,
        shared: &Arc<SharedState>,
        http: &reqwest::Client,
    ) -> Vec<JoinHandle<Result<NodeProcess>>> {
        let slots = (0..self.plan.nodes).map(|number| {
            let (program, rng) = (program.clone(), self.rng(100 + number as u64));
            let kind = if number < SLEEPERS { NodeSlot::sleeper } else { NodeSlot::new };
            let mut slot = kind(program, format!("node-{number}"), rng);
            slot.source = Some((Arc::clone(shared), number));
            slot
        });
        let disrupt_node = |slot| {
            let (control, event_log) = (Arc::clone(self.control), self.event_log.clone());
            tokio::spawn(faults::disrupt_node(slot, control, event_log, http.clone()))
        };
        slots.map(disrupt_node).collect()
    }
}

/// One that cannot fail, beside those that can.
async fn quietly(work: impl Future<Output = ()>) -> Result<()> {
    work.await;
    Ok(())
}

/// Lets time pass: slows the writers down while too much is on its way, and says how far it is.
async fn watch(
    store: &str,
    plan: &RunPlan,
    shared: &SharedState,
    control: &FaultControl,
    sink: &Sink,
) {
    let (started, mut reported) = (Instant::now(), Instant::now());
    while started.elapsed() < plan.time {
        tokio::time::sleep(POLL).await;
        let (expected, arrived) = (shared.expected(), sink.arrivals.count());
        shared.full.store(expected.saturating_sub(arrived) > plan.backlog, Relaxed);
        if reported.elapsed() >= PROGRESS {
            reported = Instant::now();
            let (kills, zombies) = (control.count("kills"), control.count("zombies"));
            println!(
                "{store:>8} {:>4} s: {expected} written, {arrived} arrived, {kills} kills, {zombies} zombies",
                started.elapsed().as_secs()
            );
        }
    }
}

/// Those at work.
struct Writers {
    senders: Vec<JoinHandle<Result<()>>>,
    posters: Vec<JoinHandle<WriterKeys>>,
}

impl Writers {
    fn start(
        base: &Base,
        plan: &RunPlan,
        shared: &Arc<SharedState>,
        http: &reqwest::Client,
    ) -> Self {
        let each = u64::from(WRITERS);
        let pace = (plan.pace / each).max(1);
        let keys = |flow, writer: u32| WriterKeys::new(flow, writer * 10_000, KEYS);
        let senders = (0..WRITERS).map(|writer| {
            let rng = Rng::new(plan.seed, 200 + u64::from(writer));
            let keys = keys(Flow::Sent, writer);
            let send =
                writers::send(base.clone(), Arc::clone(shared), keys, rng, plan.sent / each, pace);
            writers::spawn(base, send)
        });
        let posters = (0..WRITERS * 4).map(|writer| {
            let rng = Rng::new(plan.seed, 300 + u64::from(writer));
            let keys = keys(Flow::Heard, writer);
            let count = plan.heard / each / 4;
            tokio::spawn(writers::post(Arc::clone(shared), keys, rng, http.clone(), count))
        });
        Self { senders: senders.collect(), posters: posters.collect() }
    }

    async fn finish(self) -> Result<Vec<WriterKeys>> {
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

/// Waits until no row is on its way any more; what is left then is for the checker to say.
async fn drain(base: &Base, flows: &Flows, most: Duration) -> Result<Duration> {
    let (started, mut reported) = (Instant::now(), Instant::now());
    while started.elapsed() < most {
        let (open, (rows, row)) = (flows.open(base).await?, check::open_rows(base).await?);
        if open.is_empty() && rows == 0 {
            break;
        }
        if reported.elapsed() >= PROGRESS {
            reported = Instant::now();
            let first = open.first().map(String::as_str).unwrap_or_default();
            let (store, others) = (base.name(), open.len());
            println!("{store:>8} drains: {rows} rows ({row}), {others} others {first}");
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(started.elapsed())
}
