//! What happens to the processes and to the network while the writers write.

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
    diary::Diary,
    dice::Dice,
    disk::Disk,
    node::{Node, Program},
    writers::Desk,
};

/// The lease of the lanes; a frozen process that stands longer is a zombie when it goes on.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// It storms, and then it does not: while everything dies nothing moves, and what has not moved cannot
/// be doubled. The first kills of a storm meet processes that are in the midst of their work.
const STORM: (Duration, Duration) = (Duration::from_secs(6), Duration::from_secs(10));
const LULL: (Duration, Duration) = (Duration::from_secs(7), Duration::from_secs(9));
const FIRST_LULL: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(4));
/// How long a process works in a storm before something happens to it: most die before they have lanes,
/// because those of the dead are leased for a while; some live on.
const LIFE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(700));
const LONG_LIFE: (Duration, Duration) =
    (Duration::from_millis(1_000), Duration::from_millis(4_500));
const LONG_LIFE_PERCENT: u64 = 10;
/// And one that sleeps well, between two naps: enough to get lanes.
const SLEEPER_LIFE: (Duration, Duration) =
    (Duration::from_millis(300), Duration::from_millis(1_500));
/// How long it stands still.
const FROZEN: (Duration, Duration) = (Duration::from_millis(2_100), Duration::from_millis(3_500));
/// What it may do afterwards, before it is asked what the fence refused.
const AWAKE: Duration = Duration::from_millis(400);
/// Of a hundred faults of a process, so many are a freeze; the others are kills. Of one that sleeps well,
/// nearly all: such a process has lanes to lose.
const FREEZE_PERCENT: u64 = 38;
const SLEEPER_FREEZE_PERCENT: u64 = 80;
/// Of a hundred that stood still, so many go on as if nothing had happened; the others are killed.
const GOES_ON_PERCENT: u64 = 50;
/// How long the network is well, and unwell.
const NETWORK_WELL: (Duration, Duration) =
    (Duration::from_millis(800), Duration::from_millis(3_000));
const NETWORK_UNWELL: (Duration, Duration) =
    (Duration::from_millis(50), Duration::from_millis(400));
/// Between two times that every session of the database is ended.
const SESSIONS: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(9));

/// The network between relais and its target, by the name of [`disturb`].
pub(crate) const SINK: &str = "the sink";
/// Of a hundred processes, so many are killed while they start, and when.
const STILLBORN_PERCENT: u64 = 50;
const BIRTH: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(300));
/// Between two hard restarts of the database.
const RESTARTS: (Duration, Duration) = (Duration::from_secs(18), Duration::from_secs(35));
/// Between two times that the disk is full, and how long it is.
const DISK_WELL: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(12));
const DISK_FULL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(600));
/// The longest wait in which nobody looks whether the faults are over.
const SLICE: Duration = Duration::from_millis(100);
/// How long a program is started again and again that does not come up: its database may be recovering.
const STARTING_MAX: Duration = Duration::from_secs(120);

/// What was done to them, and to their surroundings.
#[derive(Debug, Default)]
pub(crate) struct Toll {
    counts: Mutex<BTreeMap<&'static str, u64>>,
    /// When the network of the sink was not well.
    unwell: Mutex<Vec<(Instant, Instant)>>,
    /// No new faults for now.
    lull: AtomicBool,
    /// The faults are over.
    pub(crate) over: AtomicBool,
}

impl Toll {
    /// Counts something under a name, which is shown in the line of figures.
    pub(crate) fn add(&self, what: &'static str, count: u64) {
        *self.counts.lock().expect("nobody panics with the toll").entry(what).or_default() += count;
    }

    pub(crate) fn count(&self, what: &'static str) -> u64 {
        let counts = self.counts.lock().expect("nobody panics with the toll");
        counts.get(what).copied().unwrap_or_default()
    }

    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        let counts = self.counts.lock().expect("nobody panics with the toll");
        counts.iter().map(|(what, count)| (*what, *count)).collect()
    }

    pub(crate) fn unwell(&self) -> Vec<(Instant, Instant)> {
        self.unwell.lock().expect("nobody panics with the toll").clone()
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
pub(crate) async fn weather(mut dice: Dice, toll: Arc<Toll>, diary: Diary) {
    let mut lull = FIRST_LULL;
    loop {
        diary.note("a lull");
        toll.lull.store(true, Relaxed);
        toll.pass(dice.between(lull.0, lull.1)).await;
        toll.lull.store(false, Relaxed);
        diary.note("a storm");
        toll.add("storms", 1);
        if !toll.pass(dice.between(STORM.0, STORM.1)).await {
            return;
        }
        lull = LULL;
    }
}

/// A process that is never well for long.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) program: Program,
    /// Names its log, and what is done to it in the history.
    pub(crate) name: String,
    pub(crate) dice: Dice,
    /// Where posters find it, by its number among the sources.
    pub(crate) source: Option<(Arc<Desk>, usize)>,
    /// How long it works before something happens to it.
    pub(crate) life: (Duration, Duration),
    pub(crate) freeze_percent: u64,
}

impl Place {
    /// One of the usual kind.
    pub(crate) fn new(program: Program, name: String, dice: Dice) -> Self {
        Self { program, name, dice, source: None, life: LIFE, freeze_percent: FREEZE_PERCENT }
    }

    /// One that stands still more often than it dies.
    pub(crate) fn sleeper(program: Program, name: String, dice: Dice) -> Self {
        Self {
            freeze_percent: SLEEPER_FREEZE_PERCENT,
            life: SLEEPER_LIFE,
            ..Self::new(program, name, dice)
        }
    }

    fn life(&mut self) -> Duration {
        let Self { dice, life, .. } = self;
        let (from, to) = if dice.percent(LONG_LIFE_PERCENT) {
            (life.0.max(LONG_LIFE.0), life.1.max(LONG_LIFE.1))
        } else {
            *life
        };
        dice.between(from, to)
    }
}

/// Keeps one process running, but not well, until the faults are over; then gives it back.
pub(crate) async fn haunt(
    mut place: Place,
    toll: Arc<Toll>,
    diary: Diary,
    http: reqwest::Client,
) -> Result<Node> {
    let mut node = enter(&mut place, &toll, &diary).await?;
    let mut refused = 0;
    while toll.wait(place.life()).await {
        if place.dice.percent(place.freeze_percent) {
            diary.note(format_args!("freeze {}", place.name));
            node.freeze()?;
            tokio::time::sleep(place.dice.between(FROZEN.0, FROZEN.1)).await;
            node.thaw()?;
            toll.add("zombies", 1);
            tokio::time::sleep(AWAKE).await;
            let all = node.refusals(&http).await.unwrap_or(refused);
            toll.add("fence refusals", all.saturating_sub(refused));
            diary.note(format_args!(
                "thawed {}, refused {}",
                place.name,
                all.saturating_sub(refused)
            ));
            refused = all;
            if place.dice.percent(GOES_ON_PERCENT) {
                continue;
            }
        }
        kill(node, &place, &toll, &diary).await?;
        node = enter(&mut place, &toll, &diary).await?;
        refused = 0;
    }
    Ok(node)
}

async fn kill(node: Node, place: &Place, toll: &Toll, diary: &Diary) -> Result<()> {
    diary.note(format_args!("kill {}", place.name));
    toll.add("kills", 1);
    node.kill().await
}

/// Starts the next process of this place, now and then several times because it is killed while it
/// starts; posts go to it as soon as it listens.
async fn enter(place: &mut Place, toll: &Toll, diary: &Diary) -> Result<Node> {
    let since = Instant::now();
    loop {
        diary.note(format_args!("start {}", place.name));
        let mut node = place.program.start(&place.name)?;
        if place.program.is_ahead() {
            toll.add("starts a day ahead", 1);
        }
        if place.dice.percent(STILLBORN_PERCENT) && !toll.over.load(Relaxed) {
            tokio::time::sleep(place.dice.between(BIRTH.0, BIRTH.1)).await;
            kill(node, place, toll, diary).await?;
            continue;
        }
        match node.ready().await {
            Ok(address) => {
                place.listens(address);
                return Ok(node);
            }
            // A program whose database is away at the start says so and ends; whoever runs it starts
            // it again.
            Err(_) if since.elapsed() < STARTING_MAX => {
                diary.note(format_args!("no start {}", place.name))
            }
            Err(error) => return Err(error),
        }
    }
}

impl Place {
    fn listens(&self, address: SocketAddr) {
        let Some((desk, number)) = &self.source else { return };
        let mut sources = desk.sources.lock().expect("nobody panics with the list");
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
    mut dice: Dice,
    toll: Arc<Toll>,
    diary: Diary,
) {
    while toll.wait(dice.between(NETWORK_WELL.0, NETWORK_WELL.1)).await {
        let fault = match dice.below(10) {
            0..4 => Fault::DropReplies,
            4..6 => Fault::Reset,
            6 => Fault::Cut,
            7 => Fault::BlackHole,
            _ => Fault::Delay(Duration::from_millis(30)),
        };
        diary.note(format_args!("network of {what}: {fault:?}"));
        let from = Instant::now();
        proxy.set(fault);
        tokio::time::sleep(dice.between(NETWORK_UNWELL.0, NETWORK_UNWELL.1)).await;
        proxy.set(Fault::None);
        diary.note(format_args!("network of {what} is well"));
        toll.add("network faults", 1);
        if what == SINK {
            let window = (from, Instant::now());
            toll.unwell.lock().expect("nobody panics with the toll").push(window);
        }
    }
}

/// Ends the sessions of the database now and then.
pub(crate) async fn end_sessions(base: Base, mut dice: Dice, toll: Arc<Toll>, diary: Diary) {
    while toll.wait(dice.between(SESSIONS.0, SESSIONS.1)).await {
        // A server that is away has none.
        let ended = base.end_sessions().await.unwrap_or_default();
        diary.note(format_args!("ended {ended} sessions"));
        toll.add("sessions ended", ended);
    }
}

/// Restarts the database now and then, as if its machine had failed; `script` does it and returns when
/// it serves again.
pub(crate) async fn restart_database(
    script: PathBuf,
    mut dice: Dice,
    toll: Arc<Toll>,
    diary: Diary,
) -> Result<()> {
    while toll.wait(dice.between(RESTARTS.0, RESTARTS.1)).await {
        diary.note("the database is restarted");
        let output = Command::new("sh").arg(&script).stdin(Stdio::null()).output().await?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the database does not start again: {said}");
        diary.note("the database is back");
        toll.add("database restarts", 1);
    }
    Ok(())
}

/// Fills the disk of the database now and then, for a moment.
pub(crate) async fn fill_disk(disk: Arc<Disk>, mut dice: Dice, toll: Arc<Toll>, diary: Diary) {
    while toll.wait(dice.between(DISK_WELL.0, DISK_WELL.1)).await {
        diary.note("the disk is full");
        // What has no room for the ballast is full as well.
        let _ = disk.fill();
        tokio::time::sleep(dice.between(DISK_FULL.0, DISK_FULL.1)).await;
        disk.free();
        diary.note("the disk has room");
        toll.add("full disks", 1);
    }
}
