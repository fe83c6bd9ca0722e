//! What the people at the desk ask: another payload, the end of what nobody can read, and what there is
//! to see of a message.

use relais_core::{
    dead_letter::{DeadLetter, Origin, Resolution, STATUS_CONFLICT, Verdict},
    delivery::Problem,
    desk::{
        Attempt, AuditEntry, AuditFilter, CODE_OPERATOR_FAILED, Decided, Desk, Edit, FailRow,
        IDS_MAX, IdKind,
    },
    inbox::InboxRow,
    json,
    outbox::{OnDeadLetter, OutboxFate, OutboxRow},
    query::{PAGE_MAX, ParkedKey},
    store::{StoreError, StoreFuture},
};
use rusqlite::{Connection, Transaction};
use uuid::Uuid;

use super::{
    SqliteStore, attempt,
    inbox::bury,
    people,
    row::{all, change, first, limit},
};

/// Open rows looked at to count what waits behind parked keys.
const BACKLOG_ROWS_MAX: i64 = 100_000;

impl Desk for SqliteStore {
    fn edit_dead_letter(&self, id: Uuid, edit: Edit) -> StoreFuture<'_, Decided> {
        Box::pin(self.writer().run(move |tx| edit_dead_letter(tx, id, &edit)))
    }

    fn discard_serde_error(&self, id: i64, verdict: Verdict) -> StoreFuture<'_, Decided> {
        Box::pin(self.writer().run(move |tx| discard(tx, id, &verdict)))
    }

    fn fail_outbox(&self, id: i64, fail: FailRow) -> StoreFuture<'_, Decided> {
        Box::pin(self.writer().run(move |tx| fail_outbox(tx, id, &fail)))
    }

    fn note_delivered(&self, rows: Vec<i64>, worker: String) -> StoreFuture<'_, u64> {
        Box::pin(self.writer().run(move |tx| {
            let note = |id| change(tx, include_str!("sql/note_delivered.sql"), (id, &worker));
            rows.iter().map(note).sum()
        }))
    }

    fn ids_between(&self, kind: IdKind, low: Uuid, high: Uuid) -> StoreFuture<'_, Vec<Uuid>> {
        let sql = match kind {
            IdKind::DeadLetter => include_str!("sql/dead_letter_ids.sql"),
            IdKind::Process => include_str!("sql/process_ids.sql"),
            IdKind::Message => include_str!("sql/message_ids.sql"),
        };
        let params = (low.to_string(), high.to_string(), limit(IDS_MAX));
        Box::pin(self.readers().read(move |db| all(db, sql, params, |c| c.uuid(0))))
    }

    fn attempts(&self, origin: Origin, origin_id: i64) -> StoreFuture<'_, Vec<Attempt>> {
        Box::pin(self.readers().read(move |db| attempt::list(db, origin, origin_id)))
    }

    fn parked_keys(&self, keys: usize) -> StoreFuture<'_, Vec<ParkedKey>> {
        Box::pin(self.readers().read(move |db| {
            let params = (limit(keys.min(PAGE_MAX)), BACKLOG_ROWS_MAX);
            all(db, include_str!("sql/parked_keys.sql"), params, |c| c.parked_key())
        }))
    }

    fn dead_letters_of(&self, message_id: String) -> StoreFuture<'_, Vec<DeadLetter>> {
        Box::pin(self.readers().read(move |db| {
            let as_uuid = Uuid::try_parse(&message_id).ok().map(|id| id.to_string());
            let params = (message_id, as_uuid, limit(PAGE_MAX));
            all(db, include_str!("sql/dead_letters_of.sql"), params, |c| c.dead_letter())
        }))
    }

    fn received_as(&self, message_id: String) -> StoreFuture<'_, Vec<InboxRow>> {
        Box::pin(self.readers().read(move |db| {
            let params = (message_id, limit(PAGE_MAX));
            all(db, include_str!("sql/received_as.sql"), params, |c| c.inbox())
        }))
    }

    fn sent_as(&self, message_id: Uuid) -> StoreFuture<'_, Vec<OutboxRow>> {
        Box::pin(self.readers().read(move |db| {
            let params = (message_id.to_string(), limit(PAGE_MAX));
            all(db, include_str!("sql/sent_as.sql"), params, |c| c.outbox())
        }))
    }

    fn caused_by(&self, message_id: String) -> StoreFuture<'_, Vec<OutboxRow>> {
        Box::pin(self.readers().read(move |db| {
            let params = (message_id, limit(PAGE_MAX));
            all(db, include_str!("sql/caused_by.sql"), params, |c| c.outbox())
        }))
    }

    fn list_audit(&self, filter: AuditFilter) -> StoreFuture<'_, Vec<AuditEntry>> {
        Box::pin(self.readers().read(move |db| list_audit(db, &filter)))
    }
}

fn edit_dead_letter(tx: &Transaction<'_>, id: Uuid, edit: &Edit) -> Result<Decided, StoreError> {
    json::check(edit.payload.as_bytes()).map_err(|e| StoreError::invalid(e.to_string()))?;
    let dead_letter = id.to_string();
    let Edit { payload, actor, reason } = edit;
    let sql = include_str!("sql/edit_dead_letter.sql");
    let edited = first(tx, sql, (&dead_letter, payload, actor), |c| {
        (Origin::parse(&c.string(0)), c.integer(1), c.string(2))
    })?;
    let Some((origin, origin_id, failed_status)) = edited else {
        let resolved = people::find_dead_letter(tx, id)?.is_some();
        return Ok(if resolved { Decided::ResolvedBefore } else { Decided::NotFound });
    };
    match origin {
        // Its row is the message that came first; the other content lives in the dead letter alone.
        Some(Origin::Inbox) if failed_status == STATUS_CONFLICT => {}
        Some(Origin::Inbox) => {
            change(tx, include_str!("sql/edit_inbox.sql"), (origin_id, payload))?;
        }
        Some(Origin::Outbox) => {
            change(tx, include_str!("sql/edit_outbox.sql"), (origin_id, payload))?;
        }
        Some(Origin::Process) | None => return Err(process_is_not_edited()),
    }
    let record = (actor, "dead-letter.edited", &dead_letter, reason);
    change(tx, include_str!("sql/audit.sql"), record)?;
    crate::fail_point!("edit.before_commit");
    Ok(Decided::Done)
}

fn fail_outbox(tx: &Transaction<'_>, id: i64, fail: &FailRow) -> Result<Decided, StoreError> {
    let FailRow { on_dead_letter, actor, reason } = fail;
    let problem = Problem::new(CODE_OPERATOR_FAILED, reason).fitted();
    let Some(row) = people::find_outbox(tx, &id.to_string())? else { return Ok(Decided::NotFound) };
    let params = (id, &problem.code, &problem.message);
    if change(tx, include_str!("sql/fail_pending.sql"), params)? == 0 {
        return Ok(Decided::ResolvedBefore);
    }
    let park = *on_dead_letter == OnDeadLetter::Park;
    let fate = OutboxFate::Dead { attempts: row.attempts, problem, park };
    attempt::record_outbox(tx, id, &fate, actor)?;
    bury(tx, include_str!("sql/bury_outbox.sql"), id, actor, park)?;
    // A job ends with its last row.
    if let Some(job_id) = &row.job_id
        && change(tx, include_str!("sql/finish_bulk.sql"), [job_id])? == 1
    {
        change(tx, include_str!("sql/announce_bulk.sql"), [job_id])?;
    }
    let record = (actor, "outbox.failed", id.to_string(), reason);
    change(tx, include_str!("sql/audit.sql"), record)?;
    crate::fail_point!("fail_row.before_commit");
    Ok(Decided::Done)
}

fn process_is_not_edited() -> StoreError {
    StoreError::invalid(
        "the data of a process cannot be edited; retry, skip or compensate its step instead",
    )
}

fn discard(tx: &Transaction<'_>, id: i64, verdict: &Verdict) -> Result<Decided, StoreError> {
    if verdict.resolution == Resolution::Retried {
        return Err(StoreError::invalid(
            "what could not be read is not retried; repair it, or discard it",
        ));
    }
    if change(tx, include_str!("sql/discard_serde_error.sql"), [id])? == 0 {
        let there = first(tx, include_str!("sql/inbox_to_repair.sql"), [id], |_| ())?.is_some();
        return Ok(if there { Decided::ResolvedBefore } else { Decided::NotFound });
    }
    let Verdict { resolution, actor, reason } = verdict;
    let dead_letter = Uuid::new_v4().to_string();
    change(tx, include_str!("sql/bury_inbox.sql"), (&dead_letter, id, actor))?;
    let resolve = include_str!("sql/resolve_dead_letter.sql");
    first(tx, resolve, (&dead_letter, resolution.as_str(), actor, reason), |_| ())?;
    let record = (actor, "inbox.discarded", id.to_string(), reason);
    change(tx, include_str!("sql/audit.sql"), record)?;
    crate::fail_point!("discard.before_commit");
    Ok(Decided::Done)
}

fn list_audit(db: &Connection, filter: &AuditFilter) -> Result<Vec<AuditEntry>, StoreError> {
    let AuditFilter { actor, target, before, limit: most } = filter;
    let params = (actor, target, before, limit((*most).min(PAGE_MAX)));
    all(db, include_str!("sql/list_audit.sql"), params, |c| c.audit_entry())
}
