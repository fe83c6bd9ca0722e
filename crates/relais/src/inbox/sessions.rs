//! Handlers that lost their database session. An outage uses no attempt; a handler that loses its session
//! each time does.

use std::collections::{HashMap, HashSet};

use relais_core::{handler::Outcome, inbox::InboxRow, store::StoreError};

use super::InboxWorker;
use crate::key_queues::RowInFlight;

/// Losses in a row, each while the store itself answered, after which a loss uses an attempt.
const LOST_SESSIONS_MAX: u32 = 5;
/// Maximum number of rows whose losses are counted. Beyond it the counts begin again.
const ROWS_MAX: usize = 10_000;

#[derive(Default)]
pub(super) struct LostSessions {
    /// Rows whose handler lost its session, not judged yet.
    pub(super) to_judge: Vec<(RowInFlight<InboxRow>, StoreError)>,
    /// Consecutive session losses by row, while the store answered.
    pub(super) lost: HashMap<i64, u32>,
}

impl InboxWorker {
    /// Judges the rows whose handler lost its session. While the store answers too, the loss is counted:
    /// a handler that ends its transaction itself, or stays idle for longer than the server allows, would
    /// otherwise be repeated without end and without a reason in the row.
    pub(super) async fn judge_lost_sessions(&mut self) {
        if self.sessions.to_judge.is_empty() {
            return;
        }
        let answers = self.store.changes().await.is_ok();
        for (entry, error) in std::mem::take(&mut self.sessions.to_judge) {
            if self.sessions.lost.len() >= ROWS_MAX {
                self.sessions.lost.clear();
            }
            let losses = self.sessions.lost.entry(entry.row.id).or_default();
            *losses = if answers { losses.saturating_add(1) } else { 0 };
            if *losses < LOST_SESSIONS_MAX {
                self.put_back(&entry, &error);
            } else {
                let problem = format!(
                    "the handler lost its database session {losses} times in a row while the database \
                     answered others: {error}"
                );
                let mut forget = HashSet::new();
                self.judge(&entry, Outcome::retry("HANDLER_SESSION_LOST", &problem), &mut forget);
                self.reader.queues.complete(&[entry], &forget);
            }
        }
    }

    /// Puts rows back at stop: they are handled again.
    pub(super) fn put_back_lost_sessions(&mut self) {
        for (entry, error) in std::mem::take(&mut self.sessions.to_judge) {
            self.put_back(&entry, &error);
        }
    }

    /// Puts a row back: it is handled again after a rest, without using an attempt.
    pub(super) fn put_back(&mut self, entry: &RowInFlight<InboxRow>, error: &StoreError) {
        self.trouble = Some(error.to_string());
        self.reader.request_read();
        self.give_back(entry);
    }

    pub(super) fn give_back(&mut self, entry: &RowInFlight<InboxRow>) {
        let key = HashSet::from([entry.row.msg_key.clone()]);
        self.reader.queues.complete(std::slice::from_ref(entry), &key);
        self.reader.queues.release([entry.row.id]);
    }
}
