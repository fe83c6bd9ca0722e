//! Starts calls within the guards. Suspects that are not sent are settled instead.

use std::{
    collections::{HashSet, VecDeque},
    time::{Duration, Instant},
};

use relais_core::{
    breaker::BreakerState,
    fault::Outlook,
    outbox::{OnDeadLetter, OutboxFate, OutboxRow},
    quarantine::{self, Treatment},
    store::StoreError,
};

use super::{Landed, REST_MAX, Relay, noted::Noted, random};
use crate::{flight::Job, guard::Permit};

impl Relay {
    /// Starts as many calls as the guards allow; how many rows, and how long to rest if none.
    pub(super) async fn launch(&mut self) -> Result<(usize, Duration), StoreError> {
        let (mut started, mut rest) = (0, REST_MAX);
        let mut batches = Vec::new();
        let (mut doubtful, doubtful_max) = (self.doubtful, self.guard.limits().doubtful_max());
        let mut held_back = None;
        loop {
            if held_back.is_none() && doubtful >= doubtful_max {
                held_back = Some(self.hold_back());
            }
            if !self.intake.flight.has_ready() {
                break;
            }
            match self.guard.permit(batches.len()) {
                Permit::Go => {}
                Permit::Wait(wait) => {
                    rest = wait.min(REST_MAX);
                    break;
                }
                Permit::Full => break,
            }
            self.choose_probe();
            let jobs = self.intake.take(self.guard.batching());
            let Some(first) = jobs.first() else { break };
            started += jobs.len();
            match quarantined(first.treatment) {
                Some(fate) => self.set_aside(&jobs, &fate),
                None => {
                    doubtful += usize::from(self.is_doubtful(&jobs));
                    batches.push(jobs);
                }
            }
        }
        if let Some(keys) = held_back {
            self.intake.flight.bring_back(keys);
        }
        self.start_all(batches).await?;
        Ok((started, rest))
    }

    /// Whether it is a call of a key that failed last. A call of several keys is not doubtful for one of them:
    /// it is halved if it fails.
    fn is_doubtful(&self, jobs: &[Job<OutboxRow>]) -> bool {
        let limits = self.guard.limits();
        matches!(jobs, [job] if limits.outlook(&job.row.msg_key) == Outlook::Bad)
    }

    /// Lets the other keys go first: what failing keys wait for must not be waited for by all.
    fn hold_back(&mut self) -> VecDeque<String> {
        let limits = self.guard.limits();
        self.intake.flight.hold_back(|key| limits.outlook(key) == Outlook::Bad)
    }

    /// While the breaker is half open, one call finds out whether the target works: of a key that
    /// succeeded lately, else of any that has not failed, so that bad messages in front cannot keep it open.
    fn choose_probe(&mut self) {
        let limits = self.guard.limits();
        if limits.state() == BreakerState::HalfOpen {
            let rank = |key: &str| (self.probed.contains(key), limits.outlook(key));
            self.intake.flight.put_first(rank, random());
        }
    }

    /// Settles suspects without a call: the guards have nothing to learn from it.
    fn set_aside(&mut self, jobs: &[Job<OutboxRow>], quarantine: &Quarantined) {
        let mut forget = HashSet::new();
        for job in jobs {
            let park = self.settings.on_dead_letter == OnDeadLetter::Park;
            let fate = match quarantine {
                Quarantined::Held => OutboxFate::Wait {
                    pause: quarantine::HOLD_FOR,
                    problem: quarantine::held(),
                    lost_workers: quarantine::HOLD_AFTER,
                },
                Quarantined::Buried => OutboxFate::Dead {
                    attempts: job.row.attempts,
                    problem: quarantine::lost(),
                    park,
                },
            };
            self.settle_as(job, fate, &mut forget);
        }
        self.intake.flight.land(jobs, &forget);
    }

    /// Starts the calls; before that, losses are noted where it is needed.
    async fn start_all(&mut self, batches: Vec<Vec<Job<OutboxRow>>>) -> Result<(), StoreError> {
        let noted = self.intake.note_losses(batches.iter().flatten()).await;
        let may_start = matches!(noted, Ok(true));
        for jobs in batches {
            if may_start || !jobs.iter().any(Job::is_noted) {
                self.start(jobs);
            } else {
                let keys = jobs.iter().map(|job| job.row.msg_key.clone()).collect();
                self.intake.flight.land(&jobs, &keys);
                self.intake.flight.release(jobs.iter().map(|job| job.row.id));
            }
        }
        noted.map(drop)
    }

    fn start(&mut self, jobs: Vec<Job<OutboxRow>>) {
        let doubtful = self.is_doubtful(&jobs);
        self.doubtful += usize::from(doubtful);
        let (lanes, mut rows): (Vec<_>, Vec<_>) =
            jobs.into_iter().map(|job| ((job.lane, job.treatment), job.row)).unzip();
        let noted = Noted::new(&self.counters, &mut rows);
        let call = self.guard.call(rows);
        let began = Instant::now();
        self.calls.spawn(async move {
            relais_store::fail_point!("relay.before_publish");
            let (mut rows, deliveries) = call.await;
            relais_store::fail_point!("relay.after_publish");
            noted.back(&mut rows, &deliveries);
            let jobs = rows.into_iter().zip(lanes);
            let jobs = jobs.map(|(row, (lane, treatment))| Job { row, lane, treatment });
            Landed { jobs: jobs.collect(), deliveries, began, doubtful }
        });
    }
}

/// What the rule about rows that may have killed their worker makes of a row that is not sent.
enum Quarantined {
    Held,
    Buried,
}

fn quarantined(treatment: Treatment) -> Option<Quarantined> {
    match treatment {
        Treatment::Hold => Some(Quarantined::Held),
        Treatment::Bury => Some(Quarantined::Buried),
        Treatment::Send | Treatment::NoteAndSend | Treatment::SendAlone => None,
    }
}
