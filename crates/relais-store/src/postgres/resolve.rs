//! Carries out a person's decision about a dead letter and records it, in one transaction.

use deadpool_postgres::Transaction;
use relais_core::{
    dead_letter::{Origin, Resolution, STATUS_CONFLICT, Verdict},
    store::StoreError,
    text,
};
use uuid::Uuid;

use super::session::Client;
use super::{error::Failure, row};

/// `false` if it was resolved before or is not there.
pub(super) async fn resolve(
    client: &mut Client<'_>,
    id: Uuid,
    verdict: &Verdict,
) -> Result<bool, Failure> {
    let transaction = client.transaction().await?;
    let resolution = verdict.resolution.as_str();
    let found = transaction
        .query_opt(
            sql!("resolve_dead_letter"),
            &[&id, &resolution, &verdict.actor, &verdict.reason],
        )
        .await?;
    let Some(found) = found else {
        return Ok(false);
    };
    let buried = Buried {
        id,
        origin: row::known(&found, 0)?,
        origin_id: found.get(1),
        message_id: found.get(2),
        destination: found.get::<_, Option<_>>(3).unwrap_or_default(),
        msg_key: found.get(4),
        payload: found.get::<_, Option<_>>(5).unwrap_or_default(),
        conflict: found.get::<_, &str>(6) == STATUS_CONFLICT,
    };
    if verdict.resolution == Resolution::Retried {
        buried.put_back(&transaction).await?;
    }
    if buried.origin != Origin::Process {
        buried.free_key(&transaction).await?;
    }
    let action = format!("dead-letter.{resolution}");
    transaction
        .execute(sql!("audit"), &[&verdict.actor, &action, &id.to_string(), &verdict.reason])
        .await?;
    crate::fail_point!("resolve.before_commit");
    transaction.commit().await?;
    Ok(true)
}

/// What a decision needs of a dead letter.
struct Buried {
    id: Uuid,
    origin: Origin,
    origin_id: Option<i64>,
    message_id: String,
    destination: String,
    msg_key: String,
    payload: String,
    conflict: bool,
}

impl Buried {
    async fn put_back(&self, transaction: &Transaction<'_>) -> Result<(), Failure> {
        if self.conflict {
            let hash = text::sha256_hex(self.payload.as_bytes());
            let message_id = format!("{}#{}", self.message_id, &hash[..8]);
            transaction.execute(sql!("accept_conflict"), &[&self.id, &message_id]).await?;
            return Ok(());
        }
        let statement = match self.origin {
            Origin::Inbox => sql!("reopen_inbox"),
            Origin::Outbox => sql!("reopen_outbox"),
            // An early return rolls back.
            Origin::Process => return Err(not_by_itself(&self.message_id).into()),
        };
        transaction.execute(statement, &[&self.origin_id]).await?;
        Ok(())
    }

    /// The key goes on, or waits for the next open dead letter of it. Locked first: a row of this
    /// key that is being buried now is seen by the statement after. The table too, before the audit:
    /// the mark may have passed the key's rows (see [`super::mark`]).
    async fn free_key(&self, transaction: &Transaction<'_>) -> Result<(), Failure> {
        let table = match self.origin {
            Origin::Inbox | Origin::Process => sql!("lock_inbox"),
            Origin::Outbox => sql!("lock_outbox"),
        };
        transaction.execute(table, &[]).await?;
        let origin = self.origin.as_str();
        let key: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&origin, &self.destination, &self.msg_key];
        transaction.execute(sql!("lock_key"), &key).await?;
        if transaction.execute(sql!("hand_over_key"), &key).await? == 0 {
            transaction.execute(sql!("free_key"), &key).await?;
        }
        Ok(())
    }
}

fn not_by_itself(process_id: &str) -> StoreError {
    StoreError::invalid(format!(
        "a dead letter of a process is retried with its process; retry the step of process \
         {process_id}, or resume it"
    ))
}
