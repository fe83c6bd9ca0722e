//! What the people at the desk ask.

use deadpool_postgres::Transaction;
use relais_core::{
    dead_letter::{DeadLetter, Origin, Resolution, STATUS_CONFLICT, Verdict},
    delivery::Problem,
    desk::{
        Attempt, AuditEntry, AuditFilter, CODE_OPERATOR_FAILED, Decided, Desk, Edit, FailRow,
        IDS_MAX, IdKind,
    },
    inbox::{InboxRow, InboxStatus},
    json,
    outbox::{OnDeadLetter, OutboxRow},
    query::{PAGE_MAX, ParkedKey},
    store::{StoreError, StoreFuture},
};
use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};
use uuid::Uuid;

use super::session::Client;
use super::{
    PostgresStore,
    error::Failure,
    outbox,
    row::{self, Micros},
};

/// Open rows looked at for what waits behind parked keys; of each destination, fresh and waiting.
const LOOK_MAX: i64 = 100_000;

impl Desk for PostgresStore {
    fn edit_dead_letter(&self, id: Uuid, edit: Edit) -> StoreFuture<'_, Decided> {
        self.run_other((id, edit), |client, _, (id, edit)| Box::pin(write_edit(client, *id, edit)))
    }

    fn discard_serde_error(&self, id: i64, verdict: Verdict) -> StoreFuture<'_, Decided> {
        self.run_other((id, verdict), |client, _, (id, verdict)| {
            Box::pin(discard(client, *id, verdict))
        })
    }

    fn fail_outbox(&self, id: i64, fail: FailRow) -> StoreFuture<'_, Decided> {
        self.run((id, fail), |client, _, (id, fail)| Box::pin(fail_outbox(client, *id, fail)))
    }

    fn note_delivered(&self, rows: Vec<i64>, worker: String) -> StoreFuture<'_, u64> {
        self.run_other((rows, worker), |client, _, (rows, worker)| {
            Box::pin(async move {
                let statement = client.prepare_cached(sql!("note_delivered")).await?;
                Ok(client.execute(&statement, &[rows, worker]).await?)
            })
        })
    }

    fn ids_between(&self, kind: IdKind, low: Uuid, high: Uuid) -> StoreFuture<'_, Vec<Uuid>> {
        self.run_other((kind, low, high), |client, _, (kind, low, high)| {
            let sql = match kind {
                IdKind::DeadLetter => sql!("dead_letter_ids"),
                IdKind::Process => sql!("process_ids"),
                IdKind::Message => sql!("message_ids"),
            };
            Box::pin(async move {
                let rows = client.query(sql, &[low, high, &row::count(IDS_MAX)]).await?;
                Ok(rows.iter().map(|row| row.get(0)).collect())
            })
        })
    }

    fn attempts(&self, origin: Origin, origin_id: i64) -> StoreFuture<'_, Vec<Attempt>> {
        self.run_other((origin, origin_id), |client, _, (origin, origin_id)| {
            Box::pin(attempts(client, *origin, *origin_id))
        })
    }

    fn parked_keys(&self, limit: usize) -> StoreFuture<'_, Vec<ParkedKey>> {
        self.run_other(limit, |client, _, limit| Box::pin(parked_keys(client, *limit)))
    }

    fn dead_letters_of(&self, message_id: String) -> StoreFuture<'_, Vec<DeadLetter>> {
        self.run_other(message_id, |client, _, message_id| {
            Box::pin(dead_letters_of(client, message_id))
        })
    }

    fn received_as(&self, message_id: String) -> StoreFuture<'_, Vec<InboxRow>> {
        self.run_other(message_id, |client, _, message_id| {
            Box::pin(received_as(client, message_id))
        })
    }

    fn sent_as(&self, message_id: Uuid) -> StoreFuture<'_, Vec<OutboxRow>> {
        self.run(message_id, |client, _, message_id| Box::pin(sent_as(client, *message_id)))
    }

    fn caused_by(&self, message_id: String) -> StoreFuture<'_, Vec<OutboxRow>> {
        self.run_other(message_id, |client, _, message_id| Box::pin(caused_by(client, message_id)))
    }

    fn list_audit(&self, filter: AuditFilter) -> StoreFuture<'_, Vec<AuditEntry>> {
        self.run_other(filter, |client, _, filter| Box::pin(list_audit(client, filter)))
    }
}

async fn write_edit(client: &mut Client<'_>, id: Uuid, edit: &Edit) -> Result<Decided, Failure> {
    let Edit { payload, actor, reason } = edit;
    json::check(payload.as_bytes()).map_err(|error| StoreError::invalid(error.to_string()))?;
    let transaction = client.transaction().await?;
    let values: [&(dyn ToSql + Sync); 3] = [&id, payload, actor];
    let Some(found) = transaction.query_opt(sql!("edit_dead_letter"), &values).await? else {
        let there = transaction.query_opt(sql!("find_dead_letter"), &[&id]).await?;
        return Ok(there.map_or(Decided::NotFound, |_| Decided::ResolvedBefore));
    };
    let (origin_id, failed_status): (Option<i64>, &str) = (found.get(1), found.get(2));
    let row = match row::known(&found, 0)? {
        // Another message under the id of that row: only the dead letter has its payload.
        Origin::Inbox if failed_status == STATUS_CONFLICT => None,
        Origin::Inbox => Some(sql!("edit_inbox")),
        Origin::Outbox => Some(sql!("edit_outbox")),
        Origin::Process => return Err(not_editable().into()),
    };
    if let Some(row) = row {
        transaction.execute(row, &[&origin_id, payload]).await?;
    }
    audit(&transaction, actor, "dead-letter.edited", &id.to_string(), reason).await?;
    crate::fail_point!("edit.before_commit");
    transaction.commit().await?;
    Ok(Decided::Done)
}

fn not_editable() -> StoreError {
    StoreError::invalid(
        "the data of a process cannot be edited; retry or skip its step, or compensate it",
    )
}

async fn discard(client: &mut Client<'_>, id: i64, verdict: &Verdict) -> Result<Decided, Failure> {
    if verdict.resolution == Resolution::Retried {
        let text = "what cannot be read cannot be retried; repair it, or skip it";
        return Err(StoreError::invalid(text).into());
    }
    let transaction = client.transaction().await?;
    let Some(found) = transaction.query_opt(sql!("inbox_to_repair"), &[&id]).await? else {
        return Ok(Decided::NotFound);
    };
    if InboxStatus::parse(found.get(0)) != Some(InboxStatus::SerdeError) {
        return Ok(Decided::ResolvedBefore);
    }
    let Verdict { actor, reason, .. } = verdict;
    transaction.execute(sql!("discard_serde_error"), &[&id, actor, reason]).await?;
    audit(&transaction, actor, "inbox.discarded", &id.to_string(), reason).await?;
    crate::fail_point!("discard.before_commit");
    transaction.commit().await?;
    Ok(Decided::Done)
}

async fn audit(
    transaction: &Transaction<'_>,
    actor: &str,
    action: &str,
    target: &str,
    reason: &str,
) -> Result<(), Failure> {
    transaction.execute(sql!("audit"), &[&actor, &action, &target, &reason]).await?;
    Ok(())
}

async fn attempts(
    client: &Client<'_>,
    origin: Origin,
    origin_id: i64,
) -> Result<Vec<Attempt>, Failure> {
    let statement = client.prepare_cached(sql!("attempts")).await?;
    let values: [&(dyn ToSql + Sync); 3] = [&origin.as_str(), &origin_id, &row::count(PAGE_MAX)];
    let rows = client.query(&statement, &values).await?;
    let read = |row: &Row| Attempt {
        origin,
        origin_id,
        attempt: u32::try_from(row.get::<_, i32>(0)).unwrap_or(0),
        at: row.get::<_, Micros>(1).0,
        outcome: row.get(2),
        error_code: row.get(3),
        error_message: row.get(4),
        worker: row.get(5),
    };
    Ok(rows.iter().map(read).collect())
}

async fn parked_keys(client: &Client<'_>, limit: usize) -> Result<Vec<ParkedKey>, Failure> {
    let limit = row::count(limit.min(PAGE_MAX));
    let rows = client.query(sql!("parked_keys"), &[&limit, &LOOK_MAX]).await?;
    let read = |row: &Row| {
        Ok(ParkedKey {
            origin: row::known(row, 0)?,
            destination: Some(row.get(1)).filter(|name: &String| !name.is_empty()),
            msg_key: row.get(2),
            parked_at: row.get::<_, Micros>(3).0,
            dead_letter_id: row.get(4),
            backlog: row::amount(row.get(5)),
        })
    };
    rows.iter().map(read).collect()
}

async fn fail_outbox(client: &mut Client<'_>, id: i64, fail: &FailRow) -> Result<Decided, Failure> {
    let FailRow { on_dead_letter, actor, reason } = fail;
    let park = *on_dead_letter == OnDeadLetter::Park;
    let Problem { code, message } = Problem::new(CODE_OPERATOR_FAILED, reason).fitted();
    let bury = client.prepare_cached(sql!("bury_outbox")).await?;
    let transaction = client.transaction().await?;
    let failed = transaction.query(sql!("fail_pending"), &[&id, &code, &message, &park]).await?;
    if failed.is_empty() {
        let found = transaction.query_opt(sql!("find_outbox"), &[&Some(id), &None::<Uuid>]).await?;
        return Ok(if found.is_some() { Decided::ResolvedBefore } else { Decided::NotFound });
    }
    outbox::bury(&transaction, &bury, &failed, actor).await?;
    // A job ends with its last row.
    if let Some(job_id) = failed[0].get::<_, Option<String>>(2)
        && let Ok(job) = Uuid::try_parse(&job_id)
        && transaction.execute(sql!("finish_bulk"), &[&job, &job_id]).await? > 0
    {
        transaction.execute(sql!("announce_bulk"), &[&job]).await?;
    }
    let target = id.to_string();
    transaction.execute(sql!("audit"), &[actor, &"outbox.failed", &target, reason]).await?;
    crate::fail_point!("fail_row.before_commit");
    transaction.commit().await?;
    Ok(Decided::Done)
}

async fn dead_letters_of(
    client: &Client<'_>,
    message_id: &str,
) -> Result<Vec<DeadLetter>, Failure> {
    let as_uuid = Uuid::try_parse(message_id).ok().map(|id| id.to_string());
    let statement = client.prepare_cached(sql!("dead_letters_of")).await?;
    let rows = client.query(&statement, &[&message_id, &as_uuid, &row::count(PAGE_MAX)]).await?;
    Ok(rows.iter().map(row::dead_letter).collect::<Result<_, _>>()?)
}

async fn received_as(client: &Client<'_>, message_id: &str) -> Result<Vec<InboxRow>, Failure> {
    let statement = client.prepare_cached(sql!("received_as")).await?;
    let rows = client.query(&statement, &[&message_id, &row::count(PAGE_MAX)]).await?;
    Ok(rows.iter().map(row::inbox_row).collect::<Result<_, _>>()?)
}

async fn sent_as(client: &Client<'_>, message_id: Uuid) -> Result<Vec<OutboxRow>, Failure> {
    let statement = client.prepare_cached(sql!("sent_as")).await?;
    let rows = client.query(&statement, &[&message_id, &row::count(PAGE_MAX)]).await?;
    Ok(rows.iter().map(row::outbox_row).collect::<Result<_, _>>()?)
}

async fn caused_by(client: &Client<'_>, message_id: &str) -> Result<Vec<OutboxRow>, Failure> {
    let statement = client.prepare_cached(sql!("caused_by")).await?;
    let rows = client.query(&statement, &[&message_id, &row::count(PAGE_MAX)]).await?;
    Ok(rows.iter().map(row::outbox_row).collect::<Result<_, _>>()?)
}

/// Not prepared: the best plan depends on which filters are set.
async fn list_audit(client: &Client<'_>, filter: &AuditFilter) -> Result<Vec<AuditEntry>, Failure> {
    let limit = row::count(filter.limit.min(PAGE_MAX));
    let values: [(&(dyn ToSql + Sync), Type); 4] = [
        (&filter.actor, Type::TEXT),
        (&filter.target, Type::TEXT),
        (&filter.before, Type::INT8),
        (&limit, Type::INT8),
    ];
    let rows = client.query_typed(sql!("list_audit"), &values).await?;
    let read = |row: &Row| AuditEntry {
        id: row.get(0),
        at: row.get::<_, Micros>(1).0,
        actor: row.get(2),
        action: row.get(3),
        target: row.get(4),
        reason: row.get(5),
    };
    Ok(rows.iter().map(read).collect())
}
