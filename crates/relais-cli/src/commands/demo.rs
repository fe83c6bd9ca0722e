//! `relais demo`: the whole product in one process, with injected faults, a console, and a proof at the end.
//!
//! Senders post events over HTTP, some twice, some undecodable. relais stores, routes and delivers them: orders
//! to a target that fails at times, is unavailable for a while, and loses replies after doing the work; members
//! and blocks in bulk jobs to a simulated Salesforce with the same faults; checkouts through three services that
//! refuse, are busy, answer late and answer twice. The workers are killed several times. The proof compares the
//! acknowledged messages with the effects at the targets.
//!
//! - `plan`, `sender`: the messages; `target`, `services`, `salesforce`: the targets
//! - `relais.toml`: the configuration of relais
//! - `proof`, `view`: the output

mod environment;
mod plan;
mod proof;
mod salesforce;
mod sender;
mod services;
mod target;
mod view;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::signal::unix::{SignalKind, signal};

use self::{
    environment::{DemoAddresses, DemoEnvironment},
    plan::{DemoEnd, DemoPlan},
    proof::{DemoProof, OperatorActivity},
    sender::Senders,
    view::DemoView,
};
use super::run::Signals;
use crate::{
    args::DemoArgs,
    failure::{CommandError, Done},
    output::Output,
};

/// Messages of `--once` by default.
const MESSAGES: u64 = 1_000;
/// Longest duration of a demo, which keeps all its data in memory and on disk.
const LOOK_MAX: Duration = Duration::from_secs(3_600);
/// Time limit for the deliveries after the last message was sent.
const DRAIN_MAX: Duration = Duration::from_secs(60);
/// Interval of updates of the view.
const FRAME: Duration = Duration::from_millis(200);

/// Runs the demo.
pub(crate) async fn run(output: Output, args: DemoArgs) -> Done {
    // Before any file is created that a signal would leave behind.
    let mut signals = Signals::new()?;
    let seed = args.seed.unwrap_or_else(|| u64::from(std::process::id()));
    let until = match (args.once, args.messages) {
        (false, None) => DemoEnd::Signal,
        (_, messages) => DemoEnd::Messages(messages.unwrap_or(MESSAGES).max(1)),
    };
    let plan = Arc::new(DemoPlan::new(seed, until));
    let mut stage = DemoEnvironment::build(&plan).await?;
    let mut view = DemoView::new(output, &plan, stage.places());
    let proof = play(&plan, &mut stage, &mut view, &mut signals).await?;
    view.summary(&proof)?;
    stage.stop().await;
    if proof.holds { Ok(()) } else { Err(CommandError::Printed) }
}

/// Injects faults until all messages are sent, then waits until all are delivered.
async fn play(
    plan: &Arc<DemoPlan>,
    stage: &mut DemoEnvironment,
    view: &mut DemoView,
    signals: &mut Signals,
) -> Result<DemoProof, CommandError> {
    let mut senders = Senders::start(plan, stage.places().hook);
    let mut trouble = FaultSchedule::new(plan.until);
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
            let prove = |operators| {
                let run = (plan.seed, trouble.kills);
                DemoProof::new(run, &senders.counts, &facts, &stage.target, operators)
            };
            let mut proof = prove(OperatorActivity::None);
            if !proof.holds && stage.operator_activity().await? == OperatorActivity::Decided {
                proof = prove(OperatorActivity::Decided);
            }
            if proof.holds || since.elapsed() > DRAIN_MAX {
                return Ok(proof);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(FRAME) => {}
            name = signals.next() => {
                if is_stopping {
                    return Err(CommandError::failed(format!("received {name} again: stopped without the proof")));
                }
                is_stopping = true;
            }
            // The terminal is closed, so the proof is not printed; the files are removed.
            _ = hangup.recv() => return Err(CommandError::Printed),
        }
        is_stopping |= started.elapsed() > LOOK_MAX;
        if is_stopping && draining.is_none() {
            senders.stop();
        }
    }
}

/// The schedule of killed workers and outages of the target.
struct FaultSchedule {
    until: DemoEnd,
    kills: u64,
    outages: u64,
}

impl FaultSchedule {
    /// Shares of sent messages, in percent, for a demo with a number of messages.
    const KILLS_AT: [u64; 2] = [35, 70];
    const OUTAGES_AT: [u64; 1] = [50];
    /// Seconds until the first fault and between two faults, for a demo without a number of messages.
    const KILL_FIRST_EVERY: (u64, u64) = (8, 30);
    const OUTAGE_FIRST_EVERY: (u64, u64) = (4, 25);

    fn new(until: DemoEnd) -> Self {
        Self { until, kills: 0, outages: 0 }
    }

    async fn make(
        &mut self,
        senders: &Senders,
        elapsed: Duration,
        stage: &mut DemoEnvironment,
        view: &mut DemoView,
    ) -> Done {
        let sent = senders.counts.orders.load(std::sync::atomic::Ordering::Relaxed);
        let is_due = |so_far: u64, at: &[u64], (first, every): (u64, u64)| match self.until {
            DemoEnd::Messages(messages) => {
                let index = usize::try_from(so_far).unwrap_or(usize::MAX);
                at.get(index).is_some_and(|at| sent * 100 / messages >= *at)
            }
            DemoEnd::Signal => elapsed.as_secs() >= first + so_far * every,
        };
        if is_due(self.outages, &Self::OUTAGES_AT, Self::OUTAGE_FIRST_EVERY) {
            self.outages += 1;
            view.event("target unavailable: messages wait, no attempts are used");
            stage.target.go_down(match self.until {
                DemoEnd::Messages(_) => Duration::from_secs(1),
                DemoEnd::Signal => Duration::from_secs(3),
            });
        }
        if is_due(self.kills, &Self::KILLS_AT, Self::KILL_FIRST_EVERY) {
            self.kills += 1;
            view.event(
                "workers killed with messages in flight; new ones take over when the lease expires",
            );
            stage.kill_and_restart().await?;
        }
        Ok(())
    }
}
