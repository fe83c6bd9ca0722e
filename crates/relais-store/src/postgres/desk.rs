//! What the people at the desk ask.

use relais_core::{
    dead_letter::{DeadLetter, Origin, Verdict},
    desk::{Attempt, AuditEntry, AuditFilter, Decided, Desk, Edit},
    outbox::OutboxRow,
    query::ParkedKey,
    store::{StoreError, StoreFuture},
};
use uuid::Uuid;

use super::{PostgresStore, people};

fn later<'a, T: Send + 'a>() -> StoreFuture<'a, T> {
    Box::pin(async { Err(StoreError::Invalid("not built yet".into())) })
}

impl Desk for PostgresStore {
    fn edit_dead_letter(&self, _id: Uuid, _edit: Edit) -> StoreFuture<'_, Decided> {
        later()
    }

    fn discard_serde_error(&self, _id: i64, _verdict: Verdict) -> StoreFuture<'_, Decided> {
        later()
    }

    fn attempts(&self, _origin: Origin, _origin_id: i64) -> StoreFuture<'_, Vec<Attempt>> {
        later()
    }

    fn parked_keys(&self, limit: usize) -> StoreFuture<'_, Vec<ParkedKey>> {
        self.run(limit, |client, _, limit| Box::pin(people::parked_keys(client, *limit)))
    }

    fn dead_letters_of(&self, _message_id: String) -> StoreFuture<'_, Vec<DeadLetter>> {
        later()
    }

    fn caused_by(&self, _message_id: String) -> StoreFuture<'_, Vec<OutboxRow>> {
        later()
    }

    fn list_audit(&self, _filter: AuditFilter) -> StoreFuture<'_, Vec<AuditEntry>> {
        later()
    }
}
