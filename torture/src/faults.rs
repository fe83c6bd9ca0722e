//! What happens to the processes and to the network while the writers write.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::Result;
use relais_testkit::proxy::{Fault, FaultProxy};

use crate::{
    base::Base,
    dice::Dice,
    node::{Node, Program},
    writers::Desk,
};

/// The lease of the lanes; a frozen process that stands longer is a zombie when it goes on.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// How long a process works before something happens to it.
const LIFE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(1_200));
/// How long it stands still.
const FROZEN: (Duration, Duration) = (Duration::from_millis(2_200), Duration::from_millis(4_000));
/// What it may do afterwards, before it is asked what the fence refused.
const AWAKE: Duration = Duration::from_millis(400);
/// Of a hundred faults of a process, so many are a freeze; the others are kills.
const FREEZE_PERCENT: u64 = 25;
/// How long the network is well, and unwell.
const NETWORK_WELL: (Duration, Duration) =
    (Duration::from_millis(800), Duration::from_millis(3_000));
const NETWORK_UNWELL: (Duration, Duration) =
    (Duration::from_millis(50), Duration::from_millis(400));
/// Between two times that every session of the database is ended.
const SESSIONS: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(9));

/// Most processes of one place, over a whole run.
const STARTS_MAX: u64 = 100_000;

/// What was done to them.
#[derive(Debug, Default)]
pub(crate) struct Toll {
    pub(crate) kills: AtomicU64,
    pub(crate) zombies: AtomicU64,
    /// Settlements of zombies that the fence refused.
    pub(crate) refusals: AtomicU64,
    pub(crate) network: AtomicU64,
    pub(crate) sessions: AtomicU64,
    /// The faults are over.
    pub(crate) over: AtomicBool,
}

/// Keeps one process running, but not well, until the faults are over; then gives it back.
pub(crate) async fn haunt(
    program: Program,
    place: usize,
    mut dice: Dice,
    desk: Arc<Desk>,
    toll: Arc<Toll>,
    http: reqwest::Client,
) -> Result<Node> {
    let mut round = 0;
    let mut node = enter(&program, place, &mut round, &desk).await?;
    while !toll.over.load(Relaxed) {
        tokio::time::sleep(dice.between(LIFE.0, LIFE.1)).await;
        if dice.percent(FREEZE_PERCENT) {
            node.freeze()?;
            tokio::time::sleep(dice.between(FROZEN.0, FROZEN.1)).await;
            node.thaw()?;
            toll.zombies.fetch_add(1, Relaxed);
            tokio::time::sleep(AWAKE).await;
            toll.refusals.fetch_add(node.refusals(&http).await.unwrap_or_default(), Relaxed);
        }
        node.kill().await?;
        toll.kills.fetch_add(1, Relaxed);
        node = enter(&program, place, &mut round, &desk).await?;
    }
    Ok(node)
}

/// Starts the next process of this place; posts go to it as soon as it listens.
async fn enter(program: &Program, place: usize, round: &mut u64, desk: &Desk) -> Result<Node> {
    // A program whose database is away at the start says so and ends; whoever runs it starts it again.
    let (node, address) = loop {
        *round += 1;
        let mut node = program.start(&format!("node-{place}"))?;
        match node.ready().await {
            Ok(address) => break (node, address),
            Err(error) if *round > STARTS_MAX => return Err(error),
            Err(_) => {}
        }
    };
    let mut sources = desk.sources.lock().expect("nobody panics with the list");
    if sources.len() <= place {
        sources.resize(place + 1, address);
    }
    sources[place] = address;
    drop(sources);
    Ok(node)
}

/// Disturbs one connection of the network until the faults are over.
pub(crate) async fn disturb(proxy: Arc<FaultProxy>, mut dice: Dice, toll: Arc<Toll>) {
    while !toll.over.load(Relaxed) {
        tokio::time::sleep(dice.between(NETWORK_WELL.0, NETWORK_WELL.1)).await;
        let fault = match dice.below(10) {
            0..4 => Fault::DropReplies,
            4..6 => Fault::Reset,
            6 => Fault::Cut,
            7 => Fault::BlackHole,
            _ => Fault::Delay(Duration::from_millis(30)),
        };
        proxy.set(fault);
        tokio::time::sleep(dice.between(NETWORK_UNWELL.0, NETWORK_UNWELL.1)).await;
        proxy.set(Fault::None);
        toll.network.fetch_add(1, Relaxed);
    }
}

/// Ends the sessions of the database now and then.
pub(crate) async fn end_sessions(base: Base, mut dice: Dice, toll: Arc<Toll>) {
    while !toll.over.load(Relaxed) {
        tokio::time::sleep(dice.between(SESSIONS.0, SESSIONS.1)).await;
        // A server that is away has none.
        let ended = base.end_sessions().await.unwrap_or_default();
        toll.sessions.fetch_add(ended, Relaxed);
    }
}
