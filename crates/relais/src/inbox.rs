//! Inbox rows → handlers, routes and processes → settled.
//!
//! A handler's changes, its messages and the row's `PROCESSED` share one commit, made by the driver's
//! own transaction. Routes and processes are pure, so many rows share one commit of the store.
//!
//! - `admit`: which rows are worked on next
//! - `calls`: handlers that run
//! - `settle`: what becomes of rows, in batches
//! - `processes`: rows that concern processes
//! - `sessions`: handlers that lost their database session
//! - `unknown`: rows of event types that this worker does not know

mod admit;
mod calls;
mod processes;
mod sessions;
mod settle;
mod unknown;
mod write_size;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use relais_core::{
    BoxFuture,
    delivery::Problem,
    handler::{Handled, Handler, Outcome},
    inbox::{InboxFate, InboxRow, InboxSettlement, SUBSCRIBER_SEPARATOR, source_of},
    process::{SOURCE_SYSTEM, TIMER_FIRED},
    quarantine::Treatment,
    retry::RetryPolicy,
    route::Route,
    store::{Store, StoreError},
    time::Timestamp,
};
use relais_store::Transaction;
use tokio::task::JoinSet;

pub(crate) use self::processes::ProcessWork;
use self::{sessions::Sessions, unknown::UnknownTypes, write_size::WriteSize};
use crate::{
    app::HandlerSettings,
    flight::Job,
    intake::Intake,
    lanes::LaneKeeper,
    observe::{InboxCounters, trace::Open},
    worker::{Progress, Worker},
};

/// `true` the first time this handler sees this message, inside the user's own transaction: for
/// consumers that do not run in relais.
pub async fn once<T: Transaction + ?Sized>(
    tx: &mut T,
    handler: &str,
    message_id: &str,
) -> Result<bool, StoreError> {
    tx.once(handler, message_id).await
}

/// The longest rest between two looks at the inbox.
const REST_MAX: Duration = Duration::from_secs(1);
/// Rows whose routes share one commit.
const ROUTED_MAX: usize = 500;
/// How long a stopping worker waits for handlers under way.
const STOP_GRACE: Duration = Duration::from_secs(30);

/// What is done with an event type.
#[derive(Clone)]
pub(crate) enum Action {
    Handler(Arc<dyn Handler>),
    Routes(Vec<Route>),
    /// It starts processes or is a reply for them; the definitions know which.
    Processes,
}

type Landed = (Job<InboxRow>, Handled, Option<Open>);

/// A row that is processed as soon as its settlement is committed.
struct Processing {
    id: i64,
    received_at: Timestamp,
    span: Option<Open>,
}

pub(crate) struct InboxWorker {
    store: Arc<dyn Store>,
    intake: Intake<InboxRow>,
    actions: HashMap<String, Action>,
    /// The inboxes that get copies, by event type.
    copies: HashMap<String, Vec<String>>,
    retry: RetryPolicy,
    counters: Arc<InboxCounters>,
    handlers: JoinSet<Landed>,
    landed: Vec<Landed>,
    settlements: Vec<InboxSettlement>,
    /// Those of them that finish a row.
    processing: Vec<Processing>,
    /// What they write.
    size: WriteSize,
    processes: ProcessWork,
    unknown: UnknownTypes,
    handler_timeout: Duration,
    handlers_max: usize,
    retry_at: Option<Instant>,
    /// A handler could not reach the database: rest before the next.
    trouble: Option<String>,
    sessions: Sessions,
}

impl InboxWorker {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        keeper: LaneKeeper,
        actions: HashMap<String, Action>,
        retry: RetryPolicy,
        counters: Arc<InboxCounters>,
    ) -> Self {
        let keeper = keeper.knowing(actions.keys().cloned());
        let intake = Intake::new(Arc::clone(&store), keeper, |s, fetch| s.fetch_inbox(fetch));
        Self {
            store,
            intake,
            actions,
            copies: HashMap::new(),
            retry,
            counters,
            handlers: JoinSet::new(),
            landed: Vec::new(),
            settlements: Vec::new(),
            processing: Vec::new(),
            size: WriteSize::default(),
            processes: ProcessWork::default(),
            unknown: UnknownTypes::default(),
            handler_timeout: Duration::MAX,
            handlers_max: HandlerSettings::default().concurrency,
            retry_at: None,
            trouble: None,
            sessions: Sessions::default(),
        }
    }

    /// Copies the messages of an event type to these inboxes.
    pub(crate) fn copies(mut self, copies: HashMap<String, Vec<String>>) -> Self {
        self.copies = copies;
        self
    }

    /// The inboxes that get a copy of a row.
    fn copies_of(&self, row: &InboxRow) -> Vec<String> {
        let event_type = row.event_type.as_deref().unwrap_or_default();
        self.copies.get(event_type).cloned().unwrap_or_default()
    }

    /// Knows these processes.
    pub(crate) fn processes(mut self, processes: ProcessWork) -> Self {
        self.processes = processes;
        self
    }

    /// Lets rows of a type that no live worker knows wait for this long.
    pub(crate) fn unknown_type_wait(mut self, wait: Duration) -> Self {
        self.unknown.wait = wait;
        self
    }

    /// Runs so many handlers at once, each no longer than the limit.
    pub(crate) fn handlers(mut self, settings: &HandlerSettings) -> Self {
        self.handler_timeout = settings.timeout;
        self.handlers_max = settings.concurrency;
        self
    }

    fn is_subscriber(&mut self) -> bool {
        let scope = &self.intake.keeper().fence().scope;
        scope.inbox().is_some_and(|inbox| inbox.contains(SUBSCRIBER_SEPARATOR))
    }

    pub(crate) fn intake(&mut self) -> &mut Intake<InboxRow> {
        &mut self.intake
    }

    async fn pass(&mut self) -> Result<Progress, StoreError> {
        self.collect();
        self.judge_lost_sessions().await;
        let mut done = self.settle().await?;
        if let Some(trouble) = self.trouble.take() {
            return Err(StoreError::unavailable(trouble));
        }
        done += self.intake.top_up().await?;
        done += self.launch().await?;
        done += self.settle().await?;
        // The gauge is about the inbox that sources write to.
        if !self.is_subscriber() {
            self.counters.set_lanes(self.intake.keeper().owned());
        }
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
        for (job, handled, span) in std::mem::take(&mut self.landed) {
            let mut forget = HashSet::new();
            self.end_span(&handled, span);
            match handled {
                Handled::Committed => {
                    relais_store::fail_point!("handler.after_commit");
                    self.sessions.lost.remove(&job.row.id);
                    self.counters.processed(1);
                    self.counters.took(job.row.received_at);
                    told(&job.row, "handled");
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
                    self.put_back(&job, &error);
                    continue;
                }
                Handled::SessionLost(error) => {
                    self.sessions.to_judge.push((job, error));
                    continue;
                }
            }
            if !forget.is_empty() {
                self.intake.look();
            }
            self.intake.flight.land(&[job], &forget);
        }
    }

    /// Starts handlers up to the limit, applies routes at once, and advances processes in the end.
    async fn launch(&mut self) -> Result<usize, StoreError> {
        let mut started = 0;
        while self.handlers.len() < self.handlers_max
            && self.settlements.len() + self.processes.waiting() < ROUTED_MAX
            && !self.size.is_full()
        {
            let jobs = self.admit().await?;
            if jobs.is_empty() {
                break;
            }
            started += jobs.len();
            let mut jobs = jobs.into_iter();
            while let Some(job) = jobs.next() {
                if self.size.is_full() {
                    self.give_back(&job);
                } else if let Err(error) = self.begin(&job).await {
                    jobs.for_each(|job| self.give_back(&job));
                    return Err(error);
                }
            }
        }
        Ok(started + self.advance().await?)
    }

    async fn begin(&mut self, job: &Job<InboxRow>) -> Result<(), StoreError> {
        let event_type = job.row.event_type.as_deref().unwrap_or_default();
        match self.actions.get(event_type).cloned() {
            Some(Action::Handler(handler)) => {
                self.settle_before(job).await?;
                self.start(handler, job.clone());
            }
            Some(Action::Routes(routes)) => self.route(job, &routes),
            Some(Action::Processes) => self.processes.await_round(job.clone()),
            // Only relais may send it: refused here as in a worker that runs processes.
            None if event_type == TIMER_FIRED
                && source_of(&job.row.source_system) != SOURCE_SYSTEM =>
            {
                self.processes.await_round(job.clone());
            }
            None => self.meet_unknown(job),
        }
        if job.treatment == Treatment::SendAlone {
            // A loss must not find it unsettled beside others.
            self.advance().await?;
            self.settle().await?;
        }
        Ok(())
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

    fn route(&mut self, job: &Job<InboxRow>, routes: &[Route]) {
        let messages: Result<Vec<_>, Problem> =
            routes.iter().map(|route| route.apply(&job.row)).collect();
        match messages {
            Ok(messages) => {
                let messages: Vec<_> = messages.into_iter().flatten().collect();
                relais_store::fail_point!("inbox.after_route");
                let copies = self.copies_of(&job.row);
                self.push(job, InboxFate::Processed { messages, changes: Vec::new(), copies });
                self.intake.flight.land(std::slice::from_ref(job), &HashSet::new());
            }
            Err(problem) => self.finish(job, Outcome::Fail { problem }),
        }
    }
}

fn told(row: &InboxRow, what: &str) {
    let (source, message_id, key) = (&row.source_system, &row.message_id, &row.msg_key);
    tracing::debug!(source, message_id, key, id = row.id, event_type = row.event_type, "{what}");
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
            tokio::select! {
                Some(done) = self.handlers.join_next() => self.take_in(done),
                () = self.intake.keeper().arrived() => self.intake.look(),
            }
        })
    }

    #[cfg(test)]
    fn under_way(&self) -> usize {
        self.handlers.len() + self.landed.len()
    }

    fn stop(&mut self, patience: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.intake.flight.drop_queued();
            self.give_back_waiting();
            let all = async {
                while let Some(done) = self.handlers.join_next().await {
                    self.take_in(done);
                }
            };
            if tokio::time::timeout(patience.min(STOP_GRACE), all).await.is_err() {
                tracing::warn!(
                    "dropped handlers that still ran at stop; their lanes expire by themselves"
                );
                self.handlers.shutdown().await;
            }
            self.collect();
            self.put_back_lost_sessions();
            if let Err(error) = self.settle().await {
                tracing::warn!(%error, "not settled at stop; these messages are handled again");
            }
            self.intake.leave().await;
        })
    }
}
