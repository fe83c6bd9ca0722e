//! Writes a row that was decoded again, and records it, in one transaction.
//!
//! Invariant: the row is written before the audit's id is drawn, as in every decision of an operator:
//! see `low_water_mark.rs`.

use deadpool_postgres::Transaction;
use relais_core::{
    inbox::InboxStatus,
    query::{PAGE_MAX, SerdeErrors},
    repair::{self, CODE_DUPLICATE, Mode, Repair, ReprocessOutcome, RewrittenRow, Twin},
    store::StoreError,
};
use tokio_postgres::{
    error::SqlState,
    types::{ToSql, Type},
};

use super::session::Client;
use super::{error::Failure, row};

pub(super) async fn repair(
    client: &mut Client<'_>,
    id: i64,
    repair: &Repair,
    mode: Mode,
) -> Result<ReprocessOutcome, Failure> {
    let transaction = client.transaction().await?;
    let Some(found) = transaction.query_opt(sql!("inbox_to_repair"), &[&id]).await? else {
        return Ok(ReprocessOutcome::Refused { status: None });
    };
    let status = row::known(&found, 0)?;
    if status != InboxStatus::SerdeError {
        return Ok(ReprocessOutcome::Refused { status: Some(status) });
    }
    let new = &repair.rewritten;
    let twin = if found.get::<_, &str>(1) == new.message_id {
        None
    } else {
        twin(&transaction, found.get(2), new, found.get(3)).await?
    };
    let repaired = repair::decide(twin);
    if mode == Mode::Try {
        return Ok(repaired);
    }
    let action = match repaired {
        ReprocessOutcome::Received => {
            write(&transaction, id, new).await?;
            "inbox.repaired"
        }
        ReprocessOutcome::Duplicate { of } => {
            let message = repair::duplicate_message(of);
            transaction
                .execute(sql!("settle_duplicate"), &[&id, &CODE_DUPLICATE, &message])
                .await?;
            "inbox.duplicate"
        }
        ReprocessOutcome::Conflict { .. } | ReprocessOutcome::Refused { .. } => {
            return Ok(repaired);
        }
    };
    transaction
        .execute(sql!("audit"), &[&repair.actor, &action, &id.to_string(), &repair.reason])
        .await?;
    crate::fail_point!("repair.before_commit");
    transaction.commit().await?;
    Ok(repaired)
}

/// The row that has the id already.
async fn twin(
    transaction: &Transaction<'_>,
    source_system: &str,
    new: &RewrittenRow,
    raw: Option<&str>,
) -> Result<Option<Twin>, Failure> {
    let found = transaction
        .query_opt(
            sql!("compare_inbox"),
            &[&vec![source_system], &vec![&new.message_id], &vec![&new.payload], &vec![raw]],
        )
        .await?;
    Ok(found.map(|row| Twin { id: row.get(1), same: row.get(2) }))
}

async fn write(transaction: &Transaction<'_>, id: i64, new: &RewrittenRow) -> Result<(), Failure> {
    let written = transaction
        .execute(
            sql!("repair_inbox"),
            &[
                &id,
                &new.message_id,
                &new.msg_key,
                &new.aggregate_id,
                &new.event_type,
                &new.payload,
                &new.headers.to_json(),
            ],
        )
        .await;
    match written {
        Ok(_) => Ok(()),
        // Received after the comparison: the next try finds it.
        Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
            let text = "another message took the id at the same moment; try again";
            Err(Failure::Again(StoreError::unavailable(text)))
        }
        Err(error) => Err(error.into()),
    }
}

/// Not prepared: the best plan depends on which filters are set.
pub(super) async fn serde_errors(
    client: &Client<'_>,
    wanted: &SerdeErrors,
) -> Result<Vec<i64>, Failure> {
    let limit = row::count(wanted.limit.min(PAGE_MAX));
    let values: [(&(dyn ToSql + Sync), Type); 6] = [
        (&wanted.after, Type::INT8),
        (&wanted.source_system, Type::TEXT),
        (&wanted.error_code, Type::TEXT),
        (&wanted.key, Type::TEXT),
        (&wanted.since_seconds, Type::INT8),
        (&limit, Type::INT8),
    ];
    let rows = client.query_typed(sql!("list_serde_errors"), &values).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}
