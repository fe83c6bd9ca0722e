//! Faults of processes, network, database and disk during phase one.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::PathBuf,
    process::Stdio,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use relais_testkit::proxy::{Fault, FaultProxy};
use tokio::process::Command;

use crate::{
    base::Base,
    disk::Disk,
    event_log::EventLog,
    node::{NodeProcess, NodeProgram},
    rng::Rng,
    writers::SharedState,
};

/// The lease of the lanes; a process frozen for longer is a zombie when it continues.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// It storms, and then it does not: while everything dies nothing moves, and what has not moved cannot
/// be doubled. The first kills of a storm meet processes that are in the midst of their work.
const STORM: (Duration, Duration) = (Duration::from_secs(6), Duration::from_secs(10));
const LULL: (Duration, Duration) = (Duration::from_secs(7), Duration::from_secs(9));
const FIRST_LULL: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(4));
/// Time in a storm until the next fault of a process. Most die before they have lanes, because lanes of
/// killed processes stay leased for a while; some live longer.
const LIFE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(700));
const LONG_LIFE: (Duration, Duration) =
    (Duration::from_millis(1_000), Duration::from_millis(4_500));
const LONG_LIFE_PERCENT: u64 = 10;
/// And one that sleeps well, between two naps: enough to get lanes.
const SLEEPER_LIFE: (Duration, Duration) =
    (Duration::from_millis(300), Duration::from_millis(1_500));
/// Duration of a freeze.
const FROZEN: (Duration, Duration) = (Duration::from_millis(2_100), Duration::from_millis(3_500));
/// Time it continues afterwards, before it is asked for the refusals of the fence.
const AWAKE: Duration = Duration::from_millis(400);
/// Share of freezes among the faults of a process; the others are kills. Of a sleeper nearly all are
/// freezes: such a process has lanes to lose.
const FREEZE_PERCENT: u64 = 38;
const SLEEPER_FREEZE_PERCENT: u64 = 80;
/// Share of frozen processes that continue; the others are killed.
const CONTINUES_PERCENT: u64 = 50;
/// Time between two network faults, and duration of one.
const NETWORK_WELL: (Duration, Duration) =
    (Duration::from_millis(800), Duration::from_millis(3_000));
const NETWORK_UNWELL: (Duration, Duration) =
    (Duration::from_millis(50), Duration::from_millis(400));
/// Between two times that every session of the database is ended.
const SESSIONS: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(9));

/// The network between relais and its target, by the name of [`disturb`].
pub(crate) const SINK: &str = "the sink";
/// Share of processes that are killed while they start, and the time of the kill.
const STILLBORN_PERCENT: u64 = 50;
const BIRTH: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(300));
/// Between two hard restarts of the database.
const RESTARTS: (Duration, Duration) = (Duration::from_secs(18), Duration::from_secs(35));
/// Between two times that the disk is full, and how long it is.
const DISK_WELL: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(12));
const DISK_FULL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(600));
/// Longest wait without a check for the end of the faults.
const SLICE: Duration = Duration::from_millis(100);
/// Longest time of repeated starts: the database may be recovering.
const STARTING_MAX: Duration = Duration::from_secs(120);

/// Counts of faults, and the switches that start and end them.
#[derive(Debug, Default)]
pub(crate) struct FaultControl {
    counts: Mutex<BTreeMap<&'static str, u64>>,
    /// When the network of the sink was not well.
    unwell: Mutex<Vec<(Instant, Instant)>>,
    /// No new faults for now.
    lull: AtomicBool,
    /// The faults are over.
    pub(crate) over: AtomicBool,
}

impl FaultControl {
    /// Counts something under a name, which is shown in the line of figures.
    pub(crate) fn add(&self, what: &'static str, count: u64) {
        *self.counts.lock().expect("the lock is not poisoned").entry(what).or_default() += count;
    }

    pub(crate) fn count(&self, what: &'static str) -> u64 {
        let counts = self.counts.lock().expect("the lock is not poisoned");
        counts.get(what).copied().unwrap_or_default()
    }

    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        let counts = self.counts.lock().expect("the lock is not poisoned");
        counts.iter().map(|(what, count)| (*what, *count)).collect()
    }

    pub(crate) fn unwell(&self) -> Vec<(Instant, Instant)> {
        self.unwell.lock().expect("the lock is not poisoned").clone()
    }

    /// Waits, and for the end of a lull, but not beyond the end of the faults; false when they are over.
    pub(crate) async fn wait(&self, time: Duration) -> bool {
        let mut there = self.pass(time).await;
        while there && self.lull.load(Relaxed) {
            there = self.pass(SLICE).await;
        }
        there
    }

    /// Lets time pass, but not beyond the end of the faults; false when they are over.
    pub(crate) async fn pass(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while !self.over.load(Relaxed) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            tokio::time::sleep(left.min(SLICE)).await;
        }
        false
    }
}

/// Lulls and storms, until the faults are over.
pub(crate) async fn alternate_storms(
    calm: u32,
    mut rng: Rng,
    control: Arc<FaultControl>,
    event_log: EventLog,
) {
    let mut lull = FIRST_LULL;
    loop {
        event_log.note("a lull");
        control.lull.store(true, Relaxed);
        control.pass(rng.between(lull.0, lull.1)).await;
        control.lull.store(false, Relaxed);
        event_log.note("a storm");
        control.add("storms", 1);
        if !control.pass(rng.between(STORM.0, STORM.1)).await {
            return;
        }
        lull = (LULL.0 * calm, LULL.1 * calm);
    }
}

/// A process that is never well for long.
#[derive(Debug)]
pub(crate) struct NodeSlot {
    pub(crate) program: NodeProgram,
    /// Names its log, and what is done to it in the history.
    pub(crate) name: String,
    pub(crate) rng: Rng,
    /// The list of sources that posters use, and its index there.
    pub(crate) source: Option<(Arc<SharedState>, usize)>,
    /// Time until the next fault.
    pub(crate) life: (Duration, Duration),
    pub(crate) freeze_percent: u64,
}

impl NodeSlot {
    /// One of the usual kind.
    pub(crate) fn new(program: NodeProgram, name: String, rng: Rng) -> Self {
        Self { program, name, rng, source: None, life: LIFE, freeze_percent: FREEZE_PERCENT }
    }

    /// One that stands still more often than it dies.
    pub(crate) fn sleeper(program: NodeProgram, name: String, rng: Rng) -> Self {
        Self {
            freeze_percent: SLEEPER_FREEZE_PERCENT,
            life: SLEEPER_LIFE,
            ..Self::new(program, name, rng)
        }
    }

    fn life(&mut self) -> Duration {
        let Self { rng, life, .. } = self;
        let (from, to) = if rng.percent(LONG_LIFE_PERCENT) {
            (life.0.max(LONG_LIFE.0), life.1.max(LONG_LIFE.1))
        } else {
            *life
        };
        rng.between(from, to)
    }
}

/// Keeps one process running, but not well, until the faults are over; then gives it back.
pub(crate) async fn disrupt_node(
    mut slot: NodeSlot,
    control: Arc<FaultControl>,
    event_log: EventLog,
    http: reqwest::Client,
) -> Result<NodeProcess> {
    let mut node = enter(&mut slot, &control, &event_log).await?;
    let mut refused = 0;
    while control.wait(slot.life()).await {
        if slot.rng.percent(slot.freeze_percent) {
            event_log.note(format_args!("freeze {}", slot.name));
            node.freeze()?;
            tokio::time::sleep(slot.rng.between(FROZEN.0, FROZEN.1)).await;
            node.thaw()?;
            control.add("zombies", 1);
            tokio::time::sleep(AWAKE).await;
            let all = node.refusals(&http).await.unwrap_or(refused);
            control.add("fence refusals", all.saturating_sub(refused));
            event_log.note(format_args!(
                "thawed {}, refused {}",
                slot.name,
                all.saturating_sub(refused)
            ));
            refused = all;
            if slot.rng.percent(CONTINUES_PERCENT) {
                continue;
            }
        }
        kill(node, &slot, &control, &event_log).await?;
        node = enter(&mut slot, &control, &event_log).await?;
        refused = 0;
    }
    Ok(node)
}

async fn kill(
    node: NodeProcess,
    slot: &NodeSlot,
    control: &FaultControl,
    event_log: &EventLog,
) -> Result<()> {
    event_log.note(format_args!("kill {}", slot.name));
    control.add("kills", 1);
    node.kill().await
}

/// Starts the next process of this slot, now and then several times because it is killed while it
/// starts; posts go to it as soon as it listens.
async fn enter(
    slot: &mut NodeSlot,
    control: &FaultControl,
    event_log: &EventLog,
) -> Result<NodeProcess> {
    let since = Instant::now();
    loop {
        event_log.note(format_args!("start {}", slot.name));
        let mut node = slot.program.start(&slot.name)?;
        if slot.program.is_ahead() {
            control.add("starts a day ahead", 1);
        }
        if slot.rng.percent(STILLBORN_PERCENT) && !control.over.load(Relaxed) {
            tokio::time::sleep(slot.rng.between(BIRTH.0, BIRTH.1)).await;
            kill(node, slot, control, event_log).await?;
            continue;
        }
        match node.ready().await {
            Ok(address) => {
                slot.listens(address);
                return Ok(node);
            }
            // A program whose database is unavailable at the start logs it and ends; a supervisor
            // starts it again.
            Err(_) if since.elapsed() < STARTING_MAX => {
                event_log.note(format_args!("no start {}", slot.name))
            }
            Err(error) => return Err(error),
        }
    }
}

impl NodeSlot {
    fn listens(&self, address: SocketAddr) {
        let Some((shared, number)) = &self.source else { return };
        let mut sources = shared.sources.lock().expect("the lock is not poisoned");
        if sources.len() <= *number {
            sources.resize(number + 1, address);
        }
        sources[*number] = address;
    }
}

/// Disturbs one connection of the network until the faults are over.
pub(crate) async fn disturb(
    proxy: Arc<FaultProxy>,
    what: &'static str,
    mut rng: Rng,
    control: Arc<FaultControl>,
    event_log: EventLog,
) {
    while control.wait(rng.between(NETWORK_WELL.0, NETWORK_WELL.1)).await {
        let fault = match rng.below(10) {
            0..4 => Fault::DropReplies,
            4..6 => Fault::Reset,
            6 => Fault::Cut,
            7 => Fault::BlackHole,
            _ => Fault::Delay(Duration::from_millis(30)),
        };
        event_log.note(format_args!("network of {what}: {fault:?}"));
        let from = Instant::now();
        proxy.set(fault);
        tokio::time::sleep(rng.between(NETWORK_UNWELL.0, NETWORK_UNWELL.1)).await;
        proxy.set(Fault::None);
        event_log.note(format_args!("network of {what} is well"));
        control.add("network faults", 1);
        if what == SINK {
            let window = (from, Instant::now());
            control.unwell.lock().expect("the lock is not poisoned").push(window);
        }
    }
}

/// Ends the sessions of the database now and then.
pub(crate) async fn end_sessions(
    base: Base,
    mut rng: Rng,
    control: Arc<FaultControl>,
    event_log: EventLog,
) {
    while control.wait(rng.between(SESSIONS.0, SESSIONS.1)).await {
        // An unavailable server has none.
        let ended = base.end_sessions().await.unwrap_or_default();
        event_log.note(format_args!("ended {ended} sessions"));
        control.add("sessions ended", ended);
    }
}

/// Restarts the database now and then, as if its machine had failed; `script` does it and returns when
/// it serves again.
pub(crate) async fn restart_database(
    script: PathBuf,
    mut rng: Rng,
    control: Arc<FaultControl>,
    event_log: EventLog,
) -> Result<()> {
    while control.wait(rng.between(RESTARTS.0, RESTARTS.1)).await {
        event_log.note("the database is restarted");
        let output = Command::new("sh").arg(&script).stdin(Stdio::null()).output().await?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the database does not start again: {said}");
        event_log.note("the database is back");
        control.add("database restarts", 1);
    }
    Ok(())
}

/// Fills the disk of the database now and then, for a moment.
pub(crate) async fn fill_disk(
    disk: Arc<Disk>,
    mut rng: Rng,
    control: Arc<FaultControl>,
    event_log: EventLog,
) {
    while control.wait(rng.between(DISK_WELL.0, DISK_WELL.1)).await {
        event_log.note("the disk is full");
        // What has no room for the ballast is full as well.
        let _ = disk.fill();
        tokio::time::sleep(rng.between(DISK_FULL.0, DISK_FULL.1)).await;
        disk.free();
        event_log.note("the disk has room");
        control.add("full disks", 1);
    }
}
