//! Chooses the next rows to handle. Quarantined rows are settled instead.

use std::collections::HashSet;

use relais_core::{
    inbox::{InboxFate, InboxRow},
    publisher::Batching,
    store::StoreError,
};

use super::InboxWorker;
use crate::{key_queues::RowInFlight, quarantine::inbox_fate};

impl InboxWorker {
    /// Returns the next rows to handle, with losses noted on suspects; settles quarantined rows.
    pub(super) async fn admit(&mut self) -> Result<Vec<RowInFlight<InboxRow>>, StoreError> {
        if !self.processes.is_ready() {
            return Ok(Vec::new());
        }
        let mut entries =
            if self.remote.is_some() { self.admit_calls() } else { self.admit_handlers() };
        let noted = self.reader.note_losses(entries.iter()).await;
        if !matches!(noted, Ok(true)) {
            entries.drain(..).for_each(|entry| self.give_back(&entry));
        }
        noted.map(|_| entries)
    }

    fn admit_handlers(&mut self) -> Vec<RowInFlight<InboxRow>> {
        let room = self.handlers_max.saturating_sub(self.handlers.len());
        let mut entries = Vec::new();
        while entries.len() < room
            && let Some(entry) = self.reader.take(Batching::Single).pop()
        {
            match inbox_fate(entry.treatment, &entry.row) {
                Some(fate) => self.set_aside(&entry, fate),
                None => entries.push(entry),
            }
        }
        entries
    }

    /// Settles a row without handling it.
    pub(super) fn set_aside(&mut self, entry: &RowInFlight<InboxRow>, fate: InboxFate) {
        self.push(entry, fate);
        self.reader.request_read();
        let key = HashSet::from([entry.row.msg_key.clone()]);
        self.reader.queues.complete(std::slice::from_ref(entry), &key);
    }
}
