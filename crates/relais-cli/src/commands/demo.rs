//! `relais demo`: the whole product in one process, with faults, a console to look at, and a proof at
//! the end.
//!
//! Senders post events over HTTP, some twice, some as garbage. relais stores, routes and relays them:
//! orders to a target that fails at times, is down for a while, and does the work but loses its reply;
//! members and blocks in bulk jobs to a simulated Salesforce that does the same; checkouts through three
//! services that refuse, are busy, answer late and answer twice. The workers are killed in the middle.
//! The proof compares what was acknowledged with what all of these did.
//!
//! - `plan`, `sender`: what is sent; `target`, `services`, `salesforce`: where it ends
//! - `relais.toml`: what runs in between, as it would for a user
//! - `proof`, `view`: what is shown

mod plan;
mod proof;
mod salesforce;
mod sender;
mod services;
mod stage;
mod target;
mod view;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::signal::unix::{SignalKind, signal};

use self::{
    plan::{Plan, Until},
    proof::{People, Proof},
    sender::Senders,
    stage::{Places, Stage},
    view::View,
};
use super::run::Signals;
use crate::{
    args::DemoArgs,
    failure::{Done, Failure},
    output::Output,
};

/// Messages of `--once` unless said otherwise.
const MESSAGES: u64 = 1_000;
/// Nobody looks for longer; everything a demo has made is kept until it ends.
const LOOK_MAX: Duration = Duration::from_secs(3_600);
/// The longest a demo may take to drain after the last message was sent.
const DRAIN_MAX: Duration = Duration::from_secs(60);
/// How often the view is drawn.
const FRAME: Duration = Duration::from_millis(200);

/// Runs the demo.
pub(crate) async fn run(output: Output, args: DemoArgs) -> Done {
    // Before anything is made that a signal would leave behind.
    let mut signals = Signals::new()?;
    let seed = args.seed.unwrap_or_else(|| u64::from(std::process::id()));
    let until = match (args.once, args.messages) {
        (false, None) => Until::Told,
        (_, messages) => Until::Messages(messages.unwrap_or(MESSAGES).max(1)),
    };
    let plan = Arc::new(Plan::new(seed, until));
    let mut stage = Stage::build(&plan).await?;
    let mut view = View::new(output, &plan, stage.places());
    let proof = play(&plan, &mut stage, &mut view, &mut signals).await?;
    view.summary(&proof)?;
    stage.stop().await;
    if proof.holds { Ok(()) } else { Err(Failure::Said) }
}

/// Faults until everything was sent, then none until everything is delivered.
async fn play(
    plan: &Arc<Plan>,
    stage: &mut Stage,
    view: &mut View,
    signals: &mut Signals,
) -> Result<Proof, Failure> {
    let mut senders = Senders::start(plan, stage.places().hook);
    let mut trouble = Trouble::new(plan.until);
    let started = Instant::now();
    let mut draining: Option<Instant> = None;
    let mut is_stopping = false;
    let mut hangup = signal(SignalKind::hangup())?;
    loop {
        if draining.is_none() && senders.finished() {
            draining = Some(Instant::now());
        }
        if draining.is_none() && !is_stopping {
            trouble.make(&senders, started.elapsed(), stage, view).await?;
        }
        let facts = stage.facts().await?;
        view.draw(&senders.counts, &facts, &stage.target);
        if let Some(since) = draining {
            let prove = |people| {
                let run = (plan.seed, trouble.kills);
                Proof::new(run, &senders.counts, &facts, &stage.target, people)
            };
            let mut proof = prove(People::Looked);
            if !proof.holds && stage.people().await? == People::Acted {
                proof = prove(People::Acted);
            }
            if proof.holds || since.elapsed() > DRAIN_MAX {
                return Ok(proof);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(FRAME) => {}
            name = signals.next() => {
                if is_stopping {
                    return Err(Failure::failed(format!("{name} again: ended without the proof")));
                }
                is_stopping = true;
            }
            // The terminal is gone: nobody reads the proof, and nothing may stay behind.
            _ = hangup.recv() => return Err(Failure::Said),
        }
        is_stopping |= started.elapsed() > LOOK_MAX;
        if is_stopping && draining.is_none() {
            senders.stop();
        }
    }
}

/// When the workers are killed and the target is down.
struct Trouble {
    until: Until,
    kills: u64,
    outages: u64,
}

impl Trouble {
    /// With a number of messages: when these shares of them were sent, in percent.
    const KILLS_AT: [u64; 2] = [35, 70];
    const OUTAGES_AT: [u64; 1] = [50];
    /// Without one: first after this many seconds, then each time so many later.
    const KILL_FIRST_EVERY: (u64, u64) = (8, 30);
    const OUTAGE_FIRST_EVERY: (u64, u64) = (4, 25);

    fn new(until: Until) -> Self {
        Self { until, kills: 0, outages: 0 }
    }

    async fn make(
        &mut self,
        senders: &Senders,
        elapsed: Duration,
        stage: &mut Stage,
        view: &mut View,
    ) -> Done {
        let sent = senders.counts.orders.load(std::sync::atomic::Ordering::Relaxed);
        let is_due = |so_far: u64, at: &[u64], (first, every): (u64, u64)| match self.until {
            Until::Messages(messages) => {
                let index = usize::try_from(so_far).unwrap_or(usize::MAX);
                at.get(index).is_some_and(|at| sent * 100 / messages >= *at)
            }
            Until::Told => elapsed.as_secs() >= first + so_far * every,
        };
        if is_due(self.outages, &Self::OUTAGES_AT, Self::OUTAGE_FIRST_EVERY) {
            self.outages += 1;
            view.event("the target is down; messages wait, nobody's attempts are used");
            stage.target.go_down(match self.until {
                Until::Messages(_) => Duration::from_secs(1),
                Until::Told => Duration::from_secs(3),
            });
        }
        if is_due(self.kills, &Self::KILLS_AT, Self::KILL_FIRST_EVERY) {
            self.kills += 1;
            view.event("workers killed in mid-flight; the next ones take over when the lease ends");
            stage.kill_and_restart().await?;
        }
        Ok(())
    }
}
