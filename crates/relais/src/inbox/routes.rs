//! Rows that routes turn into messages, and payloads that are no JSON.

use std::collections::HashSet;

use relais_core::{
    delivery::Problem,
    handler::Outcome,
    inbox::{InboxFate, InboxRow},
    json,
    route::Route,
};

use super::InboxWorker;
use crate::key_queues::RowInFlight;

/// The place where payloads are validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PayloadChecks {
    /// Nothing is stored that is no JSON.
    Stored,
    /// Copies of adopted tables are not validated when they are stored, so that the application's INSERT cannot fail.
    Handled,
}

impl InboxWorker {
    /// Validates payloads before they are handled.
    pub(crate) fn checking_payloads(mut self) -> Self {
        self.payload_checks = PayloadChecks::Handled;
        self
    }

    pub(super) fn is_no_json(&self, row: &InboxRow) -> bool {
        let payload = row.payload.as_deref().unwrap_or("null");
        self.payload_checks == PayloadChecks::Handled && json::check(payload.as_bytes()).is_err()
    }

    /// Makes the row a dead letter.
    pub(super) fn refuse_payload(&mut self, entry: &RowInFlight<InboxRow>) {
        self.finish(entry, Outcome::fail("INVALID_JSON", "the payload is not JSON"));
    }

    pub(super) fn route(&mut self, entry: &RowInFlight<InboxRow>, routes: &[Route]) {
        let messages: Result<Vec<_>, Problem> =
            routes.iter().map(|route| route.apply(&entry.row)).collect();
        match messages {
            Ok(messages) => {
                let messages: Vec<_> = messages.into_iter().flatten().collect();
                crate::fail_point!("inbox.after_route");
                let copies = self.copies_of(&entry.row);
                self.push(entry, InboxFate::Processed { messages, changes: Vec::new(), copies });
                self.reader.queues.complete(std::slice::from_ref(entry), &HashSet::new());
            }
            Err(problem) => self.finish(entry, Outcome::Fail { problem }),
        }
    }
}
