//! Rows that nothing handles. A row of an unknown event type: its lane is handed over to a live worker that
//! knows the type; without one the row waits. A row of an ignored event type is settled without an effect.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use relais_core::{
    delivery::Problem,
    handler::Outcome,
    inbox::{IGNORED_BY_CONFIGURATION, InboxFate, InboxRow},
    unknown::{UNKNOWN_EVENT_TYPE, UNKNOWN_TYPE_WAIT, await_knowing_worker},
};

use super::InboxWorker;
use crate::key_queues::RowInFlight;

/// A type that no live worker knows is logged this often.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// Types whose last warning is remembered.
const WARNED_MAX: usize = 100;

/// The settings and warnings of a worker about types it does not know.
pub(super) struct UnknownTypes {
    /// Time that a row waits for a worker that knows its type.
    pub(super) wait: Duration,
    warned: HashMap<String, Instant>,
}

impl Default for UnknownTypes {
    fn default() -> Self {
        Self { wait: UNKNOWN_TYPE_WAIT, warned: HashMap::new() }
    }
}

impl UnknownTypes {
    fn is_news(&mut self, event_type: &str) -> bool {
        let now = Instant::now();
        if self.warned.get(event_type).is_some_and(|at| now.duration_since(*at) < WARN_EVERY) {
            return false;
        }
        if self.warned.len() >= WARNED_MAX {
            self.warned.clear();
        }
        self.warned.insert(event_type.to_owned(), now);
        true
    }
}

impl InboxWorker {
    /// Settles a row whose event type is ignored.
    pub(super) fn ignore(&mut self, entry: &RowInFlight<InboxRow>) {
        let event_type = entry.row.event_type.as_deref().unwrap_or_default();
        let text = format!("event type `{event_type}`");
        let problem = Problem::new(IGNORED_BY_CONFIGURATION, &text).fitted();
        self.push(entry, InboxFate::Ignored { problem });
        self.reader.queues.complete(std::slice::from_ref(entry), &HashSet::new());
    }

    /// Decides about a row of an unknown type, the first of its key.
    pub(super) fn meet_unknown(&mut self, entry: &RowInFlight<InboxRow>) {
        let Some(event_type) = entry.row.event_type.as_deref() else {
            // No worker can ever know it, so later rows of its key do not wait for it.
            let text = "the message has no event type; set `event_type` of its source";
            return self.finish(entry, Outcome::fail(UNKNOWN_EVENT_TYPE, text));
        };
        let text = format!(
            "no live worker knows event type `{event_type}`; run one with a handler, route or process \
             for it"
        );
        self.pass_on(entry, event_type, Problem::new(UNKNOWN_EVENT_TYPE, &text));
    }

    /// Hands the lane of a row over to a live worker that announced what the row needs. Without one, the row
    /// waits; it uses no attempt, and later rows of its key wait behind it.
    pub(super) fn pass_on(&mut self, entry: &RowInFlight<InboxRow>, need: &str, problem: Problem) {
        if self.reader.hand_over(entry.lane.lane, need) {
            tracing::debug!(lane = entry.lane.lane, need, "planned to hand the lane over");
            return self.give_back(entry);
        }
        if self.unknown.is_news(need) {
            tracing::warn!(
                event_type = entry.row.event_type,
                source = entry.row.source_system,
                message_id = entry.row.message_id,
                wait = ?self.unknown.wait,
                "messages wait for a worker that knows them, then park their keys: {}",
                problem.message
            );
        }
        let fate = await_knowing_worker(&entry.row, self.unknown.wait, problem);
        self.push(entry, fate);
        self.reader.request_read();
        let key = HashSet::from([entry.row.msg_key.clone()]);
        self.reader.queues.complete(std::slice::from_ref(entry), &key);
    }
}
