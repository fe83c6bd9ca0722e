//! Inbox rows → handlers, routes and processes → settled.
//!
//! A handler's changes, its messages and the row's `PROCESSED` share one commit, made by the driver's
//! own transaction. Routes and processes are pure, and a handler in another process has answered: one commit
//! of the store settles many rows.
//!
//! - `admit`: chooses the next rows
//! - `calls`: runs handlers
//! - `settle`: settles rows in batches
//! - `processes`: rows that concern processes
//! - `routes`: rows that routes turn into messages, and payloads that are no JSON
//! - `remote`: rows of handlers in other processes
//! - `sessions`: handlers that lost their database session
//! - `unknown`: rows of event types that this worker does not know

mod admit;
mod calls;
mod processes;
mod remote;
mod routes;
mod sessions;
mod settle;
mod unknown;
mod write_size;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use relais_core::{
    handler::{HandleOutcome, Handler},
    inbox::{InboxRow, InboxSettlement, SUBSCRIBER_SEPARATOR, source_of},
    process::{SOURCE_SYSTEM, TIMER_FIRED},
    quarantine::Treatment,
    retry::RetryPolicy,
    route::Route,
    store::{Store, StoreError},
    time::Timestamp,
};
use relais_store::Transaction;
use tokio::task::JoinSet;

use self::{
    calls::HandlerEnd, routes::PayloadChecks, sessions::LostSessions, unknown::UnknownTypes,
    write_size::WriteSize,
};
pub(crate) use self::{processes::ProcessWork, remote::RemoteWork};
use crate::{
    app::HandlerSettings,
    key_queues::RowInFlight,
    lane_reader::LaneReader,
    lanes::LaneKeeper,
    observe::{InboxCounters, trace::OpenSpan},
    timing::REST_MAX,
    worker::{PassOutcome, Worker},
};

/// Returns `true` the first time this handler gets this message, inside the user's own transaction: for
/// consumers that do not run in relais.
pub async fn once<T: Transaction + ?Sized>(
    tx: &mut T,
    handler: &str,
    message_id: &str,
) -> Result<bool, StoreError> {
    tx.once(handler, message_id).await
}

/// Maximum number of routed rows in one commit.
const ROUTED_MAX: usize = 500;
/// Time that a stopping worker waits for running handlers.
const HANDLER_STOP_GRACE: Duration = Duration::from_secs(30);

/// The action for messages of one event type.
#[derive(Clone)]
pub(crate) enum EventAction {
    Handler(Arc<dyn Handler>),
    /// A handler in another process: the [`RemoteWork`] of the worker.
    Remote,
    Routes(Vec<Route>),
    /// The message starts processes or is a reply to them; the definitions decide which.
    Processes,
    /// The configuration ignores the message.
    Ignored,
}

type FinishedHandler = (RowInFlight<InboxRow>, HandlerEnd);

/// A row that is handled as soon as its settlement is committed.
struct UnsettledRow {
    id: i64,
    received_at: Timestamp,
    span: Option<OpenSpan>,
}

pub(crate) struct InboxWorker {
    store: Arc<dyn Store>,
    reader: LaneReader<InboxRow>,
    actions: HashMap<String, EventAction>,
    /// The inboxes that get copies, by event type.
    copies: HashMap<String, Vec<String>>,
    retry: RetryPolicy,
    counters: Arc<InboxCounters>,
    handlers: JoinSet<FinishedHandler>,
    finished: Vec<FinishedHandler>,
    settlements: Vec<InboxSettlement>,
    /// The settlements that complete a row.
    unsettled: Vec<UnsettledRow>,
    /// The size of what they write.
    size: WriteSize,
    processes: ProcessWork,
    remote: Option<RemoteWork>,
    payload_checks: PayloadChecks,
    unknown: UnknownTypes,
    handler_timeout: Duration,
    handlers_max: usize,
    retry_at: Option<Instant>,
    /// The error of a handler that could not reach the database: the worker rests.
    trouble: Option<String>,
    sessions: LostSessions,
}

impl InboxWorker {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        keeper: LaneKeeper,
        actions: HashMap<String, EventAction>,
        retry: RetryPolicy,
        counters: Arc<InboxCounters>,
    ) -> Self {
        let keeper = keeper.knowing(actions.keys().cloned());
        let reader = LaneReader::new(Arc::clone(&store), keeper, |s, fetch| s.fetch_inbox(fetch));
        Self {
            store,
            reader,
            actions,
            copies: HashMap::new(),
            retry,
            counters,
            handlers: JoinSet::new(),
            finished: Vec::new(),
            settlements: Vec::new(),
            unsettled: Vec::new(),
            size: WriteSize::default(),
            processes: ProcessWork::default(),
            remote: None,
            payload_checks: PayloadChecks::Stored,
            unknown: UnknownTypes::default(),
            handler_timeout: Duration::MAX,
            handlers_max: HandlerSettings::default().concurrency,
            retry_at: None,
            trouble: None,
            sessions: LostSessions::default(),
        }
    }

    /// Copies the messages of an event type to these inboxes.
    pub(crate) fn copies(mut self, copies: HashMap<String, Vec<String>>) -> Self {
        self.copies = copies;
        self
    }

    /// Returns the inboxes that get a copy of a row.
    fn copies_of(&self, row: &InboxRow) -> Vec<String> {
        let event_type = row.event_type.as_deref().unwrap_or_default();
        self.copies.get(event_type).cloned().unwrap_or_default()
    }

    /// Adds processes.
    pub(crate) fn processes(mut self, processes: ProcessWork) -> Self {
        self.processes = processes;
        self
    }

    /// Sets how long rows of a type that no live worker knows wait.
    pub(crate) fn unknown_type_wait(mut self, wait: Duration) -> Self {
        self.unknown.wait = wait;
        self
    }

    /// Sets the concurrency and the time limit of handlers.
    pub(crate) fn handlers(mut self, settings: &HandlerSettings) -> Self {
        self.handler_timeout = settings.timeout;
        self.handlers_max = settings.concurrency;
        self
    }

    fn is_subscriber(&mut self) -> bool {
        let scope = &self.reader.keeper().fence().scope;
        scope.inbox().is_some_and(|inbox| inbox.contains(SUBSCRIBER_SEPARATOR))
    }

    pub(crate) fn reader(&mut self) -> &mut LaneReader<InboxRow> {
        &mut self.reader
    }

    /// Evaluates handlers that have finished, without waiting.
    fn collect(&mut self) {
        while let Some(done) = self.handlers.try_join_next() {
            self.add_finished(done);
        }
        for (entry, end) in std::mem::take(&mut self.finished) {
            let mut forget = HashSet::new();
            let handled = match end {
                HandlerEnd::Ran(handled, span) => {
                    self.end_span(&handled, span);
                    handled
                }
                HandlerEnd::Called(call) => {
                    self.end_call(&entry, call);
                    continue;
                }
            };
            match handled {
                HandleOutcome::Committed => {
                    crate::fail_point!("handler.after_commit");
                    self.sessions.lost.remove(&entry.row.id);
                    self.counters.processed(1);
                    self.counters.took(entry.row.received_at);
                    log_handled(&entry.row);
                    self.reader.queues.release([entry.row.id]);
                }
                HandleOutcome::RolledBack(outcome) => self.judge(&entry, outcome, &mut forget),
                HandleOutcome::Refused => {
                    self.counters.refused(1);
                    self.reader.keeper().distrust();
                    self.reader.queues.release([entry.row.id]);
                    forget.insert(entry.row.msg_key.clone());
                }
                HandleOutcome::Unavailable(error) => {
                    self.put_back(&entry, &error);
                    continue;
                }
                HandleOutcome::SessionLost(error) => {
                    self.sessions.to_judge.push((entry, error));
                    continue;
                }
            }
            if !forget.is_empty() {
                self.reader.request_read();
            }
            self.reader.queues.complete(&[entry], &forget);
        }
        self.rest_if_needed();
    }

    /// Starts handlers up to the limit, applies routes at once, then advances processes.
    async fn launch(&mut self) -> Result<usize, StoreError> {
        let mut started = 0;
        while self.handlers.len() < self.handlers_max
            && self.settlements.len() + self.processes.waiting() < ROUTED_MAX
            && !self.size.is_full()
        {
            let entries = self.admit().await?;
            if entries.is_empty() {
                break;
            }
            started += entries.len();
            let mut entries = entries.into_iter();
            while let Some(entry) = entries.next() {
                if self.size.is_full() {
                    self.give_back(&entry);
                } else if let Err(error) = self.begin(&entry).await {
                    entries.for_each(|entry| self.give_back(&entry));
                    return Err(error);
                }
            }
        }
        Ok(started + self.advance().await?)
    }

    async fn begin(&mut self, entry: &RowInFlight<InboxRow>) -> Result<(), StoreError> {
        let event_type = entry.row.event_type.as_deref().unwrap_or_default();
        match self.actions.get(event_type).cloned() {
            _ if self.is_no_json(&entry.row) => self.refuse_payload(entry),
            Some(EventAction::Handler(handler)) => {
                self.settle_before(entry).await?;
                self.start(handler, entry.clone());
            }
            Some(EventAction::Remote) => self.start_call(entry.clone()),
            Some(EventAction::Routes(routes)) => self.route(entry, &routes),
            Some(EventAction::Processes) => self.processes.await_round(entry.clone()),
            Some(EventAction::Ignored) => self.ignore(entry),
            // Only relais may send it: a worker without processes refuses it too.
            None if event_type == TIMER_FIRED
                && source_of(&entry.row.source_system) != SOURCE_SYSTEM =>
            {
                self.processes.await_round(entry.clone());
            }
            None => self.meet_unknown(entry),
        }
        if entry.treatment == Treatment::SendAlone {
            // No other row may be unsettled if the worker is lost now.
            self.advance().await?;
            self.settle().await?;
        }
        Ok(())
    }

    /// Settles rows of the lane before a handler starts: it commits by itself, and an earlier row of its key
    /// may be among them.
    async fn settle_before(&mut self, entry: &RowInFlight<InboxRow>) -> Result<(), StoreError> {
        if !self.settlements.iter().any(|s| s.lane == entry.lane.lane) {
            return Ok(());
        }
        let settled = self.settle().await;
        if settled.is_err() {
            self.give_back(entry);
        }
        settled.map(drop)
    }
}

fn log_handled(row: &InboxRow) {
    let (source, message_id, key) = (&row.source_system, &row.message_id, &row.msg_key);
    tracing::debug!(source, message_id, key, id = row.id, event_type = row.event_type, "handled");
}

#[async_trait]
impl Worker for InboxWorker {
    fn request_read(&mut self) {
        self.reader.request_read();
    }

    async fn run_once(&mut self) -> Result<PassOutcome, StoreError> {
        self.collect();
        self.judge_lost_sessions().await;
        let mut done = self.settle().await?;
        if let Some(trouble) = self.trouble.take() {
            return Err(StoreError::unavailable(trouble));
        }
        if !self.is_resting() {
            done += self.reader.top_up().await?;
        }
        done += self.launch().await?;
        done += self.settle().await?;
        self.report_remote();
        // The gauge is about the inbox that sources write to.
        if !self.is_subscriber() {
            self.counters.set_lanes(self.reader.keeper().owned());
        }
        Ok(if done > 0 {
            PassOutcome::Worked
        } else {
            let wait = self.retry_at.map(|at| at.saturating_duration_since(Instant::now()));
            if wait == Some(Duration::ZERO) {
                self.retry_at = None;
            }
            let rest = wait.unwrap_or(REST_MAX).max(Duration::from_millis(5));
            PassOutcome::Idle { at_most: self.reader.rest(rest) }
        })
    }

    async fn returned(&mut self) {
        tokio::select! {
            Some(done) = self.handlers.join_next() => self.add_finished(done),
            () = self.reader.keeper().changed() => self.reader.request_read(),
        }
    }

    #[cfg(test)]
    fn in_flight(&self) -> usize {
        self.handlers.len() + self.finished.len()
    }

    async fn stop(&mut self, patience: Duration) {
        self.reader.drop_queued();
        self.give_back_waiting();
        let all = async {
            while let Some(done) = self.handlers.join_next().await {
                self.add_finished(done);
            }
        };
        if tokio::time::timeout(patience.min(HANDLER_STOP_GRACE), all).await.is_err() {
            tracing::warn!(
                "dropped handlers that still ran at stop; the leases of their lanes will expire"
            );
            self.handlers.shutdown().await;
        }
        self.collect();
        self.put_back_lost_sessions();
        if let Err(error) = self.settle().await {
            tracing::warn!(%error, "stopped without settling; these messages are handled again");
        }
        self.reader.leave().await;
    }
}
