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
    check::{self, Known},
    diary::Diary,
    dice::Dice,
    disk::Disk,
    faults::{self, Place, Toll},
    figures::Outcome,
    flows::{Flows, Stage, kafka::Broker},
    history::{Closed, Flow},
    node::{Node, Program},
    settings,
    sink::Sink,
    writers::{self, Desk, Keys},
};

/// How long a writer may wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How often it is looked how far everything is, and said.
const LOOK: Duration = Duration::from_millis(200);
const PROGRESS: Duration = Duration::from_secs(10);
/// Of the processes, so many stand still more often than they die.
const SLEEPERS: usize = 3;
/// Writers of each kind, and the keys of each.
const WRITERS: u32 = 2;
const KEYS: usize = 2_000;

/// What is wanted of a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// How long phase one is.
    pub(crate) time: Duration,
    /// How long phase two may take.
    pub(crate) drain: Duration,
    pub(crate) nodes: usize,
    /// Most messages on their way: what is left when the faults end must drain in time.
    pub(crate) backlog: u64,
    /// Messages written into the outbox, and posted.
    pub(crate) sent: u64,
    pub(crate) heard: u64,
    pub(crate) means: Means,
}

/// What the faults need beside signals.
#[derive(Clone, Debug, Default)]
pub(crate) struct Means {
    /// Restarts the database as a crash would, and returns when it serves again.
    pub(crate) restart: Option<PathBuf>,
    /// The library that gives a program another time of day.
    pub(crate) faketime: Option<PathBuf>,
    /// Where the database is, if its disk is its own.
    pub(crate) disk: Option<Arc<Disk>>,
    pub(crate) kafka: Option<Broker>,
}

pub(crate) async fn run(base: Base, program: Program, plan: Plan, diary: Diary) -> Result<Outcome> {
    let (sink, target) = Sink::start(Dice::new(plan.seed, 1)).await?;
    let to_sink = Arc::new(FaultProxy::to(target).await?);
    let to_base = match &base {
        Base::Postgres { .. } => Some(Arc::new(FaultProxy::to(base.address()?).await?)),
        Base::Sqlite(_) => None,
    };
    let through = to_base.as_ref().map(|proxy| proxy.address());
    let desk = Arc::new(Desk::at(&format!("hook-{}", base.name())));
    let toll = Arc::new(Toll::default());
    let _ = (desk.diary.set(diary.clone()), sink.diary.set(diary.clone()));
    let http = reqwest::Client::builder().no_proxy().timeout(ANSWER_MAX).build()?;
    let stage = Stage {
        base: base.clone(),
        through,
        program: program.clone(),
        plan: plan.clone(),
        desk: Arc::clone(&desk),
        toll: Arc::clone(&toll),
        diary: diary.clone(),
        http: http.clone(),
    };
    let mut flows = Flows::start(&stage).await?;
    let text = settings::text(&base.url(through)?, to_sink.address(), desk.hook());
    flows.write_settings(&stage, &text)?;
    program.call(&["migrate"]).await?;
    base.prepare().await?;

    let trouble = Trouble { base: &base, plan: &plan, toll: &toll, diary: &diary };
    let disturbers = trouble.start(&to_sink, to_base.as_ref());
    let mut haunted = trouble.haunt(&program, &desk, &http);
    let writers = Writers::start(&base, &plan, &desk, &http);
    haunted.extend(flows.go(&stage));

    watch(base.name(), &plan, &desk, &toll, &sink).await;
    toll.over.store(true, Relaxed);
    diary.note("the faults are over");
    for disturber in disturbers {
        disturber.await??;
    }
    sink.recover();
    let mut nodes = Vec::new();
    for node in haunted {
        nodes.push(node.await??);
    }
    flows.calm().await?;
    desk.closed.store(true, Relaxed);
    let posted = writers.finish().await?;
    flows.finish().await?;
    let drained_in = drain(&base, &flows, plan.drain).await?;
    let mut stayed = Vec::new();
    for node in nodes {
        stayed.extend(node.stop().await.err().map(|error| format!("{error:#}")));
    }
    let closed = sink.arrivals.close();
    let (posted, unwell) = (&*posted, &*toll.unwell());
    let mut findings = check::check(Known { base: &base, posted, closed: &closed, unwell }).await?;
    stayed.extend(flows.stop().await.err().map(|error| format!("{error:#}")));
    findings.add("did not end well", stayed);
    flows.check(&base, &mut findings).await?;
    flows.remove().await?;
    let kept = base.connect().await?.number(KEPT).await?;
    let mut counts = counts(&toll, &desk, &sink, &closed);
    counts.push(("rows cleaned up", closed.messages.saturating_sub(kept)));
    counts.extend(flows.counts());
    Ok(Outcome { store: base.name(), findings, counts, drained_in })
}

/// What happened, the most telling first.
fn counts(toll: &Toll, desk: &Desk, sink: &Sink, closed: &Closed) -> Vec<(&'static str, u64)> {
    let first = ["kills", "zombies", "fence refusals"];
    let others = toll.counts().into_iter().filter(|(what, _)| !first.contains(what));
    let mut counts = vec![("messages", closed.messages)];
    counts.extend(first.map(|what| (what, toll.count(what))));
    counts.push(("copies", closed.copies));
    counts.extend(others);
    counts.extend([
        ("calls refused", sink.busy()),
        ("posts unanswered", desk.unanswered.load(Relaxed)),
        ("rolled back", desk.rolled_back.load(Relaxed)),
    ]);
    counts
}

/// Rows of the sink's messages that no cleanup has removed.
const KEPT: &str = "SELECT CAST(count(*) AS TEXT) FROM relais_outbox WHERE destination = 'sink'";

/// Those who disturb.
struct Trouble<'a> {
    base: &'a Base,
    plan: &'a Plan,
    toll: &'a Arc<Toll>,
    diary: &'a Diary,
}

impl Trouble<'_> {
    fn dice(&self, part: u64) -> Dice {
        Dice::new(self.plan.seed, part)
    }

    /// Begins to disturb everything but the processes.
    fn start(
        &self,
        to_sink: &Arc<FaultProxy>,
        to_base: Option<&Arc<FaultProxy>>,
    ) -> Vec<JoinHandle<Result<()>>> {
        let (toll, diary) = (|| Arc::clone(self.toll), || self.diary.clone());
        let network = |proxy: &Arc<FaultProxy>, what, part| {
            let disturb =
                faults::disturb(Arc::clone(proxy), what, self.dice(part), toll(), diary());
            tokio::spawn(quietly(disturb))
        };
        let weather = faults::weather(self.dice(7), toll(), diary());
        let mut disturbers =
            vec![tokio::spawn(quietly(weather)), network(to_sink, faults::SINK, 2)];
        if let Some(proxy) = to_base {
            disturbers.push(network(proxy, "the database", 3));
            let end = faults::end_sessions(self.base.clone(), self.dice(4), toll(), diary());
            disturbers.push(tokio::spawn(quietly(end)));
        }
        if let Some(script) = self.plan.means.restart.clone() {
            let restart = faults::restart_database(script, self.dice(5), toll(), diary());
            disturbers.push(tokio::spawn(restart));
        }
        if let Some(disk) = self.plan.means.disk.clone() {
            let fill = faults::fill_disk(disk, self.dice(6), toll(), diary());
            disturbers.push(tokio::spawn(quietly(fill)));
        }
        disturbers
    }

    /// Begins to start processes, and to end them.
    fn haunt(
        &self,
        program: &Program,
        desk: &Arc<Desk>,
        http: &reqwest::Client,
    ) -> Vec<JoinHandle<Result<Node>>> {
        let places = (0..self.plan.nodes).map(|number| {
            let (program, dice) = (program.clone(), self.dice(100 + number as u64));
            let kind = if number < SLEEPERS { Place::sleeper } else { Place::new };
            let mut place = kind(program, format!("node-{number}"), dice);
            place.source = Some((Arc::clone(desk), number));
            place
        });
        let haunt = |place| {
            let (toll, diary) = (Arc::clone(self.toll), self.diary.clone());
            tokio::spawn(faults::haunt(place, toll, diary, http.clone()))
        };
        places.map(haunt).collect()
    }
}

/// One that cannot fail, beside those that can.
async fn quietly(work: impl Future<Output = ()>) -> Result<()> {
    work.await;
    Ok(())
}

/// Lets time pass: slows the writers down while too much is on its way, and says how far it is.
async fn watch(store: &str, plan: &Plan, desk: &Desk, toll: &Toll, sink: &Sink) {
    let (started, mut told) = (Instant::now(), Instant::now());
    while started.elapsed() < plan.time {
        tokio::time::sleep(LOOK).await;
        let (expected, arrived) = (desk.expected(), sink.arrivals.count());
        desk.full.store(expected.saturating_sub(arrived) > plan.backlog, Relaxed);
        if told.elapsed() >= PROGRESS {
            told = Instant::now();
            let (kills, zombies) = (toll.count("kills"), toll.count("zombies"));
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
    posters: Vec<JoinHandle<Keys>>,
}

impl Writers {
    fn start(base: &Base, plan: &Plan, desk: &Arc<Desk>, http: &reqwest::Client) -> Self {
        let each = u64::from(WRITERS);
        let pace = (plan.sent / each / plan.time.as_secs().max(1)).max(1) * 3;
        let keys = |flow, writer: u32| Keys::new(flow, writer * 10_000, KEYS);
        let senders = (0..WRITERS).map(|writer| {
            let dice = Dice::new(plan.seed, 200 + u64::from(writer));
            let keys = keys(Flow::Sent, writer);
            let send =
                writers::send(base.clone(), Arc::clone(desk), keys, dice, plan.sent / each, pace);
            writers::spawn(base, send)
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

/// Waits until no row is on its way any more; what is left then is for the checker to say.
async fn drain(base: &Base, flows: &Flows, most: Duration) -> Result<Duration> {
    let (started, mut told) = (Instant::now(), Instant::now());
    while started.elapsed() < most {
        let (open, (rows, row)) = (flows.open(base).await?, check::open_rows(base).await?);
        if open.is_empty() && rows == 0 {
            break;
        }
        if told.elapsed() >= PROGRESS {
            told = Instant::now();
            let first = open.first().map(String::as_str).unwrap_or_default();
            let (store, others) = (base.name(), open.len());
            println!("{store:>8} drains: {rows} rows ({row}), {others} others {first}");
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(started.elapsed())
}
