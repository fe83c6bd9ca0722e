//! Rows of a handler in another process: called within the limits of its target, then settled like others.
//!
//! Invariant: no call holds a connection to the database. Its answer is committed by the next settlement,
//! which the fence refuses if the lane has another owner by then.

use std::{
    collections::{HashSet, VecDeque},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use relais_core::{
    breaker::BreakerState,
    delivery::{Delivery, TIMEOUT},
    fault::{Judgement, Outlook},
    handler::Outcome,
    inbox::{InboxFate, InboxRow, decide},
    message::{Category, NewMessage},
    outbox::{OnDeadLetter, OutboxFate, settle},
    process::handler_step,
    publisher::Batching,
    remote_handler::{RemoteHandler, RemoteReply},
};

use super::{HandlerEnd, InboxWorker};
use crate::{
    app::DestinationSettings,
    key_queues::RowInFlight,
    limits::SharedLimits,
    observe::{DestinationCounters, trace::HandlingSpan},
    permit::{Permit, ProbedKeys},
    quarantine::inbox_fate,
    random::random,
};

/// The handler in another process that an inbox worker calls, with its limits.
pub(crate) struct RemoteWork {
    handler: Arc<dyn RemoteHandler>,
    settings: DestinationSettings,
    limits: SharedLimits,
    counters: Arc<DestinationCounters>,
    probed: ProbedKeys,
    /// Calls in flight whose key's last call failed.
    doubtful: usize,
}

/// A call that returned; its answer is not committed.
pub(super) struct ReturnedCall {
    reply: RemoteReply,
    began: Instant,
    /// The last call of its key failed.
    doubtful: bool,
    handling: Option<HandlingSpan>,
}

/// The decision about a row after its call.
enum CallDecision {
    /// The row is handled, with these messages. If it is the command of a process, its answer is among them.
    Handled(Vec<NewMessage>),
    Settle(InboxFate),
    /// Nothing is written: the target is unavailable, the row waits as it was.
    Untouched,
}

impl RemoteWork {
    pub(crate) fn new(
        handler: Arc<dyn RemoteHandler>,
        settings: DestinationSettings,
        counters: Arc<DestinationCounters>,
    ) -> Self {
        let limits = SharedLimits::new(&settings);
        let probed = ProbedKeys::default();
        Self { handler, settings, limits, counters, probed, doubtful: 0 }
    }

    pub(crate) fn limits(&self) -> SharedLimits {
        self.limits.clone()
    }

    fn is_doubtful(&self, key: &str) -> bool {
        self.limits.outlook(key) == Outlook::Bad
    }

    /// Learns from a reply and decides about its row.
    fn assess(
        &mut self,
        entry: &RowInFlight<InboxRow>,
        reply: RemoteReply,
        began: Instant,
    ) -> CallDecision {
        let row = &entry.row;
        let delivery = match &reply {
            // Any valid answer shows that the service works.
            RemoteReply::Done { .. } | RemoteReply::Refused(_) => Delivery::Accepted,
            RemoteReply::Invalid(problem) => {
                Delivery::Retry { problem: problem.clone(), after: None }
            }
            RemoteReply::Failed(delivery) => delivery.clone(),
            _ => Delivery::Held,
        };
        let called = std::iter::once((row.msg_key.as_str(), Category::Event));
        let assessment = self.limits.learn(called, std::slice::from_ref(&delivery), began);
        let judgement = assessment.judgements.first().copied().unwrap_or(Judgement::TARGET);
        match reply {
            RemoteReply::Done { mut messages, data } => {
                self.counters.handled(row.received_at);
                if handler_step::is_command(row) {
                    messages.push(handler_step::done(row, data.as_deref()));
                }
                CallDecision::Handled(messages)
            }
            RemoteReply::Refused(outcome @ Outcome::Park { .. }) => self.refused(row, outcome),
            RemoteReply::Refused(outcome) => answered(row, self.refused(row, outcome)),
            RemoteReply::Invalid(problem) if self.limits.state() == BreakerState::Closed => {
                self.refused(row, Outcome::Retry { problem, after: None })
            }
            RemoteReply::Failed(Delivery::Reject { .. }) => {
                answered(row, self.failed(entry, delivery, judgement))
            }
            // Many answers in a row were not valid: that is not the fault of this message.
            RemoteReply::Invalid(_) => self.failed(entry, delivery, Judgement::TARGET),
            _ => self.failed(entry, delivery, judgement),
        }
    }

    /// Decides about a row that the service did not handle.
    fn refused(&self, row: &InboxRow, outcome: Outcome) -> CallDecision {
        let parks = matches!(outcome, Outcome::Park { .. });
        let skips = !parks && self.settings.on_dead_letter == OnDeadLetter::Skip;
        let asks_again = matches!(outcome, Outcome::Retry { .. });
        let repeats = asks_again && self.settings.on_dead_letter == OnDeadLetter::Retry;
        match decide(&self.settings.retry, row.attempts, outcome, random()) {
            None => CallDecision::Handled(Vec::new()),
            Some(InboxFate::Dead { attempts, problem, .. }) if repeats => {
                self.counters.retried(&problem);
                let pause = self.settings.retry.max;
                CallDecision::Settle(InboxFate::Retry { attempts, pause, problem })
            }
            Some(InboxFate::Dead { attempts, problem, park }) => {
                self.counters.failed(&problem);
                let park = park && !skips;
                CallDecision::Settle(InboxFate::Dead { attempts, problem, park })
            }
            Some(fate) => {
                if let InboxFate::Retry { problem, .. } = &fate {
                    self.counters.retried(problem);
                }
                CallDecision::Settle(fate)
            }
        }
    }

    /// Decides about a row whose call failed, as the relay of a destination does.
    fn failed(
        &mut self,
        entry: &RowInFlight<InboxRow>,
        delivery: Delivery,
        judgement: Judgement,
    ) -> CallDecision {
        let row = &entry.row;
        let DestinationSettings { retry, on_dead_letter, .. } = &self.settings;
        let asked = match &delivery {
            Delivery::Retry { after, .. } | Delivery::Busy { after, .. } => *after,
            _ => None,
        };
        let fate = settle(retry, *on_dead_letter, row.attempts, delivery, judgement, random());
        CallDecision::Settle(match fate {
            OutboxFate::Retry { attempts, pause, problem } => {
                self.counters.retried(&problem);
                InboxFate::Retry { attempts, pause, problem }
            }
            OutboxFate::Dead { attempts, problem, park } => {
                self.counters.failed(&problem);
                InboxFate::Dead { attempts, problem, park }
            }
            OutboxFate::Wait { mut pause, problem, lost_workers } => {
                self.counters.outage(&problem);
                if self.limits.is_open() {
                    self.probed.insert(&row.msg_key);
                    if asked.is_none() {
                        // It is called again as soon as the breaker permits calls.
                        pause = Duration::ZERO;
                        if !entry.is_noted() {
                            return CallDecision::Untouched;
                        }
                    }
                }
                InboxFate::Wait { pause, problem, lost_workers }
            }
            OutboxFate::Dispatched | OutboxFate::Untouched => return CallDecision::Untouched,
        })
    }
}

/// Turns a dead letter of a command into an answer: the service has said that it did not do it, so the process
/// decides what follows. A call without a valid answer may have had an effect; its dead letter stays.
fn answered(row: &InboxRow, decision: CallDecision) -> CallDecision {
    match decision {
        CallDecision::Settle(InboxFate::Dead { problem, .. }) if handler_step::is_command(row) => {
            CallDecision::Handled(vec![handler_step::failed(row, &problem)])
        }
        other => other,
    }
}

impl InboxWorker {
    /// Calls this handler for rows with [`EventAction::Remote`](super::EventAction::Remote).
    pub(crate) fn remote(mut self, remote: RemoteWork) -> Self {
        // The limits decide; an operator can change them.
        self.handlers_max = relais_core::control::CONCURRENCY_MAX as usize;
        self.remote = Some(remote);
        self
    }

    /// Returns whether no call may start: the handler is paused, or its breaker is open.
    pub(super) fn is_resting(&self) -> bool {
        self.remote.as_ref().is_some_and(|remote| remote.limits.is_resting())
    }

    /// Returns the next rows to call within the limits of the handler. Quarantined rows are settled.
    pub(super) fn admit_calls(&mut self) -> Vec<RowInFlight<InboxRow>> {
        let (mut entries, mut deferred) = (Vec::new(), None);
        let mut doubtful = self.remote.as_ref().map_or(0, |remote| remote.doubtful);
        self.reader.drop_lost_lanes();
        loop {
            if deferred.is_none() {
                deferred = self.defer_failing_keys(doubtful);
            }
            if !self.permit_call(entries.len()) {
                break;
            }
            let Some(entry) = self.reader.take(Batching::Single).pop() else { break };
            match inbox_fate(entry.treatment, &entry.row) {
                Some(fate) => self.set_aside(&entry, fate),
                None => {
                    let remote = self.remote.as_ref();
                    let is_doubtful = |r: &RemoteWork| r.is_doubtful(&entry.row.msg_key);
                    doubtful += usize::from(remote.is_some_and(is_doubtful));
                    entries.push(entry);
                }
            }
        }
        if let Some(keys) = deferred {
            self.reader.queues.readmit_keys(keys);
        }
        entries
    }

    /// Defers failing keys once enough calls of such keys are in flight: slow calls of theirs must not delay
    /// all other keys.
    fn defer_failing_keys(&mut self, doubtful: usize) -> Option<VecDeque<String>> {
        let remote = self.remote.as_ref().filter(|r| doubtful >= r.limits.doubtful_max())?;
        Some(self.reader.queues.defer_keys(|key| remote.is_doubtful(key)))
    }

    /// Requests a call beside those in flight and those admitted in this pass.
    fn permit_call(&mut self, admitted: usize) -> bool {
        let Some(remote) = &mut self.remote else { return false };
        if !self.reader.queues.has_ready() {
            return false;
        }
        match remote.limits.permit(self.handlers.len() + admitted) {
            Permit::Go => {
                remote.probed.choose(&remote.limits, &mut self.reader.queues);
                true
            }
            Permit::Wait(wait) => {
                self.pass_after(wait);
                false
            }
            Permit::Full => false,
        }
    }

    /// Starts the call for a row.
    pub(super) fn start_call(&mut self, entry: RowInFlight<InboxRow>) {
        let Some(remote) = &mut self.remote else { return self.meet_unknown(&entry) };
        let handling = self.counters.tracer.as_ref().map(|tracer| tracer.handling(&entry.row));
        let mut row = entry.row.clone();
        if let Some(handling) = &handling {
            handling.pass_on(&mut row.headers);
        }
        let doubtful = remote.is_doubtful(&row.msg_key);
        remote.doubtful += usize::from(doubtful);
        let (handler, limit) = (Arc::clone(&remote.handler), remote.settings.timeout);
        let (counters, began) = (Arc::clone(&remote.counters), Instant::now());
        self.handlers.spawn(async move {
            crate::fail_point!("handler.before_call");
            let reply = call(handler.as_ref(), &row, limit).await;
            crate::fail_point!("handler.after_call");
            counters.called(began.elapsed());
            (entry, HandlerEnd::Called(ReturnedCall { reply, began, doubtful, handling }))
        });
    }

    /// Decides about a row whose call returned. The decision is committed by the next settlement.
    pub(super) fn end_call(&mut self, entry: &RowInFlight<InboxRow>, call: ReturnedCall) {
        let ReturnedCall { reply, began, doubtful, handling } = call;
        let Some(remote) = &mut self.remote else { return };
        remote.doubtful -= usize::from(doubtful);
        let problem = reply.problem().cloned();
        let decision = remote.assess(entry, reply, began);
        let tracer = self.counters.tracer.clone();
        if let (Some(tracer), Some(handling), Some(problem)) = (tracer, &handling, &problem) {
            tracer.end(handling.open.clone(), Some(problem));
        }
        let mut forget = HashSet::new();
        match decision {
            CallDecision::Handled(messages) => self.push_handled(entry, messages, handling),
            CallDecision::Settle(fate) => {
                self.reader.request_read();
                forget.insert(entry.row.msg_key.clone());
                self.push(entry, fate);
            }
            CallDecision::Untouched => {
                self.reader.request_read();
                return self.give_back(entry);
            }
        }
        self.reader.queues.complete(std::slice::from_ref(entry), &forget);
    }

    /// Drops queued rows while the handler is unavailable or paused: they may be handled elsewhere.
    pub(super) fn rest_if_needed(&mut self) {
        if self.is_resting() {
            self.reader.queues.drop_queued();
            self.reader.request_read();
        }
    }

    /// Publishes the state of the handler's breaker, and logs its changes.
    pub(super) fn report_remote(&mut self) {
        let Some(remote) = &mut self.remote else { return };
        let keeper = self.reader.keeper();
        let state = remote.limits.report(&keeper.fence().scope);
        remote.counters.set_state(remote.limits.view(), keeper.owned(), self.handlers.len());
        remote.probed.update(state);
        if state == BreakerState::Open {
            let wait = remote.limits.wait();
            self.pass_after(wait);
        }
    }

    /// Makes the next pass come after at most this long.
    fn pass_after(&mut self, wait: Duration) {
        let due = Instant::now().checked_add(wait);
        self.retry_at = [self.retry_at, due].into_iter().flatten().min();
    }
}

/// Calls the handler, limited in time; a panic is a failed call.
async fn call(handler: &dyn RemoteHandler, row: &InboxRow, limit: Duration) -> RemoteReply {
    let caught = AssertUnwindSafe(handler.call(row)).catch_unwind();
    match tokio::time::timeout(limit, caught).await {
        Ok(Ok(RemoteReply::Failed(Delivery::Accepted | Delivery::Held))) => {
            RemoteReply::invalid("the handler returned `Failed` for a call that did not fail")
        }
        Ok(Ok(reply)) => reply,
        Ok(Err(_)) => {
            let text = "the code that calls the handler panicked; see the log of the program";
            RemoteReply::Failed(Delivery::retry("HANDLER_PANIC", text))
        }
        Err(_) => {
            let text = format!("no answer within {limit:?}; the service may still work on it");
            RemoteReply::Failed(Delivery::retry(TIMEOUT, &text))
        }
    }
}
