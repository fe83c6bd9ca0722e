//! Writes a row that was decoded again, and records it.

use relais_core::{
    inbox::InboxStatus,
    query::{PAGE_MAX, SerdeErrors},
    repair::{self, CODE_DUPLICATE, Mode, Repair, ReprocessOutcome, RewrittenRow, Twin},
    store::StoreError,
};
use rusqlite::{Connection, Transaction};

use super::row::{all, change, first, limit};

pub(super) fn repair(
    tx: &Transaction<'_>,
    id: i64,
    repair: &Repair,
    mode: Mode,
) -> Result<ReprocessOutcome, StoreError> {
    let Some(broken) = broken(tx, id)? else {
        return Ok(ReprocessOutcome::Refused { status: None });
    };
    if broken.status != Some(InboxStatus::SerdeError) {
        return Ok(ReprocessOutcome::Refused { status: broken.status });
    }
    let new = &repair.rewritten;
    let twin = if broken.message_id == new.message_id { None } else { twin(tx, &broken, new)? };
    let repaired = repair::decide(twin);
    if mode == Mode::Try {
        return Ok(repaired);
    }
    let action = match repaired {
        ReprocessOutcome::Received => {
            write(tx, id, new)?;
            "inbox.repaired"
        }
        ReprocessOutcome::Duplicate { of } => {
            let message = repair::duplicate_message(of);
            change(tx, include_str!("sql/settle_duplicate.sql"), (id, CODE_DUPLICATE, message))?;
            "inbox.duplicate"
        }
        ReprocessOutcome::Conflict { .. } | ReprocessOutcome::Refused { .. } => {
            return Ok(repaired);
        }
    };
    let record = (&repair.actor, action, id.to_string(), &repair.reason);
    change(tx, include_str!("sql/audit.sql"), record)?;
    crate::fail_point!("repair.before_commit");
    Ok(repaired)
}

/// The columns of the row that a repair needs.
struct UndecodableRow {
    status: Option<InboxStatus>,
    message_id: String,
    source_system: String,
    raw: Option<String>,
}

fn broken(tx: &Transaction<'_>, id: i64) -> Result<Option<UndecodableRow>, StoreError> {
    first(tx, include_str!("sql/inbox_to_repair.sql"), [id], |c| UndecodableRow {
        status: InboxStatus::parse(&c.string(0)),
        message_id: c.string(1),
        source_system: c.string(2),
        raw: c.text(3),
    })
}

/// The row that has the id already.
fn twin(
    tx: &Transaction<'_>,
    broken: &UndecodableRow,
    new: &RewrittenRow,
) -> Result<Option<Twin>, StoreError> {
    let wanted = (&broken.source_system, &new.message_id, &new.payload, &broken.raw);
    let compare = include_str!("sql/compare_inbox.sql");
    first(tx, compare, wanted, |c| Twin { id: c.integer(0), same: c.flag(1) })
}

fn write(tx: &Transaction<'_>, id: i64, new: &RewrittenRow) -> Result<(), StoreError> {
    let params = rusqlite::params![
        id,
        new.message_id,
        new.msg_key,
        new.aggregate_id,
        new.event_type,
        new.payload,
        new.headers.to_json(),
    ];
    change(tx, include_str!("sql/repair_inbox.sql"), params).map(drop)
}

pub(super) fn serde_errors(db: &Connection, wanted: &SerdeErrors) -> Result<Vec<i64>, StoreError> {
    let SerdeErrors { source_system, error_code, key, since_seconds, after, limit: most } = wanted;
    let most = limit((*most).min(PAGE_MAX));
    let params = (after, source_system, error_code, key, since_seconds, most);
    all(db, include_str!("sql/list_serde_errors.sql"), params, |c| c.integer(0))
}
