//! Inbox rows → handlers and routes → settled.
//!
//! A handler's changes, its messages and the row's `PROCESSED` share one commit, made by the driver's
//! own transaction. Routes are pure, so many rows share one commit of the store.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use relais_core::{
    BoxFuture,
    delivery::Problem,
    handler::{Handled, Handler, HandlerWork, Outcome},
    inbox::{InboxFate, InboxRow, InboxSettlement, decide},
    publisher::Batching,
    retry::RetryPolicy,
    route::Route,
    store::{Store, StoreError},
};
use relais_store::Transaction;
use tokio::task::JoinSet;

use crate::{
    flight::Job,
    intake::Intake,
    lanes::LaneKeeper,
    observe::InboxCounters,
    relay::random,
    worker::{Progress, Worker},
};

/// `true` the first time this handler sees this message, inside the user's own transaction: for
/// consumers that do not run in relais.
pub async fn once<T: Transaction + ?Sized>(
    tx: &mut T,
    handler: &str,
    message_id: &str,
) -> Result<bool, StoreError> {
    tx.once(message_id, handler).await
}

/// The longest rest between two looks at the inbox.
const REST_MAX: Duration = Duration::from_secs(1);
/// Handlers running at once.
const HANDLERS_MAX: usize = 8;
/// Rows whose routes share one commit.
const ROUTED_MAX: usize = 500;
/// Messages they may have become; one event can become thousands.
const MADE_MAX: usize = 10_000;
/// How long a stopping worker waits for handlers under way.
const STOP_GRACE: Duration = Duration::from_secs(30);

/// What is done with an event type.
#[derive(Clone)]
pub(crate) enum Action {
    Handler(Arc<dyn Handler>),
    Routes(Vec<Route>),
}

type Landed = (Job<InboxRow>, Handled);

pub(crate) struct InboxWorker {
    store: Arc<dyn Store>,
    intake: Intake<InboxRow>,
    actions: HashMap<String, Action>,
    retry: RetryPolicy,
    counters: Arc<InboxCounters>,
    handlers: JoinSet<Landed>,
    landed: Vec<Landed>,
    settlements: Vec<InboxSettlement>,
    /// Messages in them.
    made: usize,
    retry_at: Option<Instant>,
    /// A handler could not reach the database: rest before the next.
    trouble: Option<String>,
}

impl InboxWorker {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        keeper: LaneKeeper,
        actions: HashMap<String, Action>,
        retry: RetryPolicy,
        counters: Arc<InboxCounters>,
    ) -> Self {
        let intake = Intake::new(Arc::clone(&store), keeper, |s, fetch| s.fetch_inbox(fetch));
        Self {
            store,
            intake,
            actions,
            retry,
            counters,
            handlers: JoinSet::new(),
            landed: Vec::new(),
            settlements: Vec::new(),
            made: 0,
            retry_at: None,
            trouble: None,
        }
    }

    pub(crate) fn intake(&mut self) -> &mut Intake<InboxRow> {
        &mut self.intake
    }

    async fn pass(&mut self) -> Result<Progress, StoreError> {
        self.collect();
        let mut done = self.settle().await?;
        if let Some(trouble) = self.trouble.take() {
            return Err(StoreError::Unavailable(trouble));
        }
        done += self.intake.top_up().await?;
        done += self.launch().await?;
        done += self.settle().await?;
        self.counters.set_lanes(self.intake.keeper().owned());
        Ok(if done > 0 {
            Progress::Worked
        } else {
            let wait = self.retry_at.map(|at| at.saturating_duration_since(Instant::now()));
            if wait == Some(Duration::ZERO) {
                self.retry_at = None;
            }
            let rest = wait.unwrap_or(REST_MAX).max(Duration::from_millis(5));
            Progress::Idle { at_most: self.intake.rest(rest) }
        })
    }

    /// Takes what handlers have finished, without waiting.
    fn collect(&mut self) {
        while let Some(done) = self.handlers.try_join_next() {
            self.take_in(done);
        }
        for (job, handled) in std::mem::take(&mut self.landed) {
            let mut forget = HashSet::new();
            match handled {
                Handled::Committed => {
                    self.counters.processed(1);
                    self.intake.flight.release([job.row.id]);
                }
                Handled::RolledBack(outcome) => self.judge(&job, outcome, &mut forget),
                Handled::Refused => {
                    self.counters.refused(1);
                    self.intake.keeper().distrust();
                    self.intake.flight.release([job.row.id]);
                    forget.insert(job.row.msg_key.clone());
                }
                Handled::Unavailable(error) => {
                    self.trouble = Some(error.to_string());
                    self.intake.flight.release([job.row.id]);
                    forget.insert(job.row.msg_key.clone());
                }
            }
            if !forget.is_empty() {
                self.intake.look();
            }
            self.intake.flight.land(&[job], &forget);
        }
    }

    fn take_in(&mut self, done: Result<Landed, tokio::task::JoinError>) {
        match done {
            Ok(landed) => self.landed.push(landed),
            Err(error) => tracing::error!(%error, "a handler task vanished; its lease runs out"),
        }
    }

    fn judge(&mut self, job: &Job<InboxRow>, outcome: Outcome, forget: &mut HashSet<String>) {
        let Some(fate) = decide(&self.retry, job.row.attempts, outcome, random()) else { return };
        // Later rows of the key are read again once this one is settled.
        self.intake.look();
        forget.insert(job.row.msg_key.clone());
        self.push(job, fate);
    }

    fn push(&mut self, job: &Job<InboxRow>, fate: InboxFate) {
        match &fate {
            InboxFate::Processed { .. } => {}
            InboxFate::Retry { pause, problem, .. } => {
                self.counters.retried(problem);
                let due = Instant::now() + *pause;
                self.retry_at = Some(self.retry_at.map_or(due, |at| at.min(due)));
            }
            InboxFate::Dead { problem, attempts, .. } => {
                self.counters.failed(problem);
                tracing::warn!(
                    source = job.row.source_system,
                    message_id = job.row.message_id,
                    attempts,
                    code = problem.code,
                    "dead letter: {}",
                    problem.message
                );
            }
        }
        let (lane, epoch) = (job.lane.lane, job.lane.epoch);
        self.settlements.push(InboxSettlement { id: job.row.id, lane, epoch, fate });
    }

    /// As in the relay: without an answer everything but dead letters is settled again.
    async fn settle(&mut self) -> Result<usize, StoreError> {
        if self.settlements.is_empty() {
            return Ok(0);
        }
        let fence = self.intake.keeper().fence().clone();
        let settled = match self.store.settle_inbox(fence, self.settlements.clone()).await {
            Ok(settled) => settled,
            Err(error) => {
                let dead = |s: &mut InboxSettlement| matches!(s.fate, InboxFate::Dead { .. });
                let dropped = self.settlements.extract_if(.., dead).map(|s| s.id);
                self.intake.flight.release(dropped);
                return Err(error);
            }
        };
        if settled.refused > 0 {
            self.counters.refused(settled.refused);
            self.intake.keeper().distrust();
        }
        let is_done = |s: &&InboxSettlement| matches!(s.fate, InboxFate::Processed { .. });
        let processed = self.settlements.iter().filter(is_done).count() as u64;
        self.counters.processed(processed.saturating_sub(settled.refused));
        let done = self.settlements.len();
        self.made = 0;
        self.intake.flight.release(self.settlements.drain(..).map(|s| s.id));
        Ok(done)
    }

    /// Starts handlers up to the limit and applies routes at once.
    async fn launch(&mut self) -> Result<usize, StoreError> {
        let mut started = 0;
        while self.handlers.len() < HANDLERS_MAX
            && self.settlements.len() < ROUTED_MAX
            && self.made < MADE_MAX
        {
            let jobs = self.intake.take(Batching::Single);
            let Some(job) = jobs.first() else { break };
            if job.suspect && !self.admit_suspect(job).await? {
                continue;
            }
            started += 1;
            let event_type = job.row.event_type.as_deref().unwrap_or_default();
            match self.actions.get(event_type).cloned() {
                Some(Action::Handler(handler)) => {
                    self.settle_before(job).await?;
                    self.start(handler, job.clone());
                }
                Some(Action::Routes(routes)) => self.route(job, &routes),
                None => self.finish(job, unknown_type(&job.row)),
            }
            if job.suspect {
                // Its attempt is counted: a crash must not find it unsettled beside others that are.
                self.settle().await?;
            }
        }
        Ok(started)
    }

    /// A handler commits by itself: an earlier row of its key that was routed must be settled first.
    async fn settle_before(&mut self, job: &Job<InboxRow>) -> Result<(), StoreError> {
        if !self.settlements.iter().any(|s| s.lane == job.lane.lane) {
            return Ok(());
        }
        let settled = self.settle().await;
        if settled.is_err() {
            self.give_back(job);
        }
        settled.map(drop)
    }

    fn give_back(&mut self, job: &Job<InboxRow>) {
        let key = HashSet::from([job.row.msg_key.clone()]);
        self.intake.flight.land(std::slice::from_ref(job), &key);
        self.intake.flight.release([job.row.id]);
    }

    async fn admit_suspect(&mut self, job: &Job<InboxRow>) -> Result<bool, StoreError> {
        if self.retry.exhausted(job.row.attempts) {
            let outcome = Outcome::park(
                "WORKER_LOST",
                "its worker died each time it was handled; look at the payload before a retry",
            );
            self.landed.push((job.clone(), Handled::RolledBack(outcome)));
            return Ok(false);
        }
        let counted = self.intake.count_suspect(job).await;
        if !matches!(counted, Ok(true)) {
            self.give_back(job);
        }
        counted
    }

    fn start(&mut self, handler: Arc<dyn Handler>, job: Job<InboxRow>) {
        let work = HandlerWork {
            row: job.row.clone(),
            fence: self.intake.keeper().fence().clone(),
            epoch: job.lane.epoch,
        };
        self.handlers.spawn(async move {
            let handled = tokio::spawn(async move { handler.handle(work).await }).await;
            let handled = handled.unwrap_or_else(|_| {
                Handled::RolledBack(Outcome::retry("HANDLER_PANIC", "the handler panicked"))
            });
            (job, handled)
        });
    }

    fn route(&mut self, job: &Job<InboxRow>, routes: &[Route]) {
        let messages: Result<Vec<_>, Problem> =
            routes.iter().map(|route| route.apply(&job.row)).collect();
        match messages {
            Ok(messages) => {
                let messages: Vec<_> = messages.into_iter().flatten().collect();
                self.made += messages.len();
                self.push(job, InboxFate::Processed { messages, changes: Vec::new() });
                self.intake.flight.land(std::slice::from_ref(job), &HashSet::new());
            }
            Err(problem) => self.finish(job, Outcome::Fail { problem }),
        }
    }

    /// Settles a row whose outcome is known without running anything.
    fn finish(&mut self, job: &Job<InboxRow>, outcome: Outcome) {
        let mut forget = HashSet::new();
        self.judge(job, outcome, &mut forget);
        self.intake.flight.land(std::slice::from_ref(job), &forget);
    }
}

fn unknown_type(row: &InboxRow) -> Outcome {
    let text = match row.event_type.as_deref() {
        Some(name) => format!(
            "no route or handler for event type `{name}`; add one, then retry this dead letter"
        ),
        None => "the message has no event type; set `event_type` of its source".to_owned(),
    };
    Outcome::fail("UNKNOWN_EVENT_TYPE", &text)
}

impl Worker for InboxWorker {
    fn look(&mut self) {
        self.intake.look();
    }

    fn run_once(&mut self) -> BoxFuture<'_, Result<Progress, StoreError>> {
        Box::pin(self.pass())
    }

    fn landed(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            match self.handlers.join_next().await {
                Some(done) => self.take_in(done),
                None => std::future::pending().await,
            }
        })
    }

    #[cfg(test)]
    fn under_way(&self) -> usize {
        self.handlers.len() + self.landed.len()
    }

    fn stop(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.intake.flight.drop_queued();
            let all = async {
                while let Some(done) = self.handlers.join_next().await {
                    self.take_in(done);
                }
            };
            if tokio::time::timeout(STOP_GRACE, all).await.is_err() {
                tracing::warn!("handlers still running at stop; their lanes expire by themselves");
            }
            self.collect();
            if let Err(error) = self.settle().await {
                tracing::warn!(%error, "not settled at stop; these messages are handled again");
            }
            self.intake.leave().await;
        })
    }
}
