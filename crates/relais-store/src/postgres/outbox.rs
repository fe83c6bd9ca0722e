//! The outbox: written, fetched in order, settled under the fence.

use deadpool_postgres::Transaction;
use futures_util::future::{try_join, try_join3, try_join4};
use relais_core::{
    lane::{Fence, Scope},
    message::NewMessage,
    outbox::{OutboxFate, OutboxRow, OutboxSettlement},
    store::{Fetch, SettleOutcome, StoreError},
};
use tokio_postgres::{Row, Statement};

use super::session::Client;
use super::{
    adopt::{self, AdoptedTables},
    enqueue,
    error::Failure,
    fence::{Dead, LaneProof, Retry, Value, settled},
    low_water_mark::{FETCHES_MAX, FetchFindings, FetchVerdict, MarkAnswer, Marks, Plan, SeenRow},
    row,
};

/// Writes messages in a transaction of their own.
pub(super) async fn write(
    client: &mut Client<'_>,
    messages: &[NewMessage],
) -> Result<Vec<i64>, Failure> {
    let transaction = client.transaction().await?;
    let messages: Vec<_> = messages.iter().collect();
    let ids = enqueue::enqueue(&*transaction, &messages).await?;
    transaction.commit().await?;
    Ok(ids)
}

/// Rows that may go out now.
pub(super) async fn fetch(
    client: &Client<'_>,
    marks: &Marks,
    fetch: &Fetch,
) -> Result<Vec<OutboxRow>, Failure> {
    let destination = destination(&fetch.scope)?;
    if fetch.lanes.is_empty() || fetch.limit == 0 {
        return Ok(Vec::new());
    }
    let scope = fetch.scope.to_string();
    for _ in 0..FETCHES_MAX {
        let plan = marks.begin(&scope, &fetch.lanes);
        let result = read(client, destination, fetch, plan).await;
        let (rows, found) = result.inspect_err(|_| marks.forget(&scope))?;
        if marks.end(&scope, plan, found) == FetchVerdict::Sound {
            return Ok(rows);
        }
    }
    // Operators decide faster than this reads; the next fetch returns the rows.
    Ok(Vec::new())
}

/// All statements of a fetch in one round trip: they run one after the other in the order in which
/// they are polled first: `highest`, then `writers`, then `lowest`, and `decisions` after the rows.
async fn read(
    client: &Client<'_>,
    destination: &str,
    fetch: &Fetch,
    plan: Plan,
) -> Result<(Vec<OutboxRow>, FetchFindings), Failure> {
    let lanes: Vec<i16> = fetch.lanes.iter().map(|lane| lane.lane).collect();
    let limit = row::count(fetch.limit);
    let statement = client.prepare_cached(sql!("fetch_outbox")).await?;
    let decisions = client.prepare_cached(sql!("decisions")).await?;
    let Fetch { skip_keys, skip_ids, .. } = fetch;
    let bytes = fetch.payloads.bytes().map(row::count);
    let values: [Value<'_>; 7] =
        [&destination, &lanes, &plan.from, &limit, skip_keys, skip_ids, &bytes];
    let mut seen = Vec::new();
    let rows = row::each(client, &statement, &values, |row| {
        seen.push(SeenRow::of(row)?);
        row::outbox_row(row)
    });
    let decided = async { Ok(client.query_one(&decisions, &[]).await?) };
    let rows = try_join(rows, decided);
    let (answer, (rows, decisions)) = match plan.ask {
        None => (None, rows.await?),
        Some(_) => {
            let highest = client.prepare_cached(sql!("highest_outbox")).await?;
            let writers = client.prepare_cached(sql!("writers")).await?;
            let lowest = client.prepare_cached(sql!("lowest_outbox")).await?;
            let from: [Value<'_>; 3] = [&destination, &lanes, &plan.from];
            let (highest, writers, lowest, rows) = try_join4(
                async { Ok(client.query_one(&highest, &from).await?) },
                async { Ok(client.query(&writers, &[&"relais_outbox"]).await?) },
                async { Ok(client.query_opt(&lowest, &from).await?) },
                rows,
            )
            .await?;
            (Some(MarkAnswer::of(&highest, &writers, lowest.as_ref())), rows)
        }
    };
    Ok((rows, FetchFindings { rows: seen, decisions: decisions.get(0), answer }))
}

/// Settles a batch, and records deliveries of rows that an operator failed meanwhile.
pub(super) async fn settle(
    client: &mut Client<'_>,
    adopted: &AdoptedTables,
    fence: &Fence,
    settlements: &[OutboxSettlement],
) -> Result<SettleOutcome, Failure> {
    let settled = settle_batch(client, adopted, fence, settlements).await?;
    if settled.refused > 0 {
        let delivered = settlements.iter().filter(|row| row.fate == OutboxFate::Dispatched);
        let delivered: Vec<i64> = delivered.map(|row| row.id).collect();
        // Not repeated here: the batch may be committed already.
        let noted = note_delivered(client, &delivered, &fence.worker).await;
        noted.map_err(|failure| Failure::Final(failure.into_store()))?;
    }
    Ok(settled)
}

async fn note_delivered(client: &Client<'_>, rows: &[i64], worker: &str) -> Result<(), Failure> {
    let statement = client.prepare_cached(sql!("note_delivered")).await?;
    client.execute(&statement, &[&rows, &worker]).await?;
    Ok(())
}

/// One statement when all went well, else one transaction.
async fn settle_batch(
    client: &mut Client<'_>,
    adopted: &AdoptedTables,
    fence: &Fence,
    settlements: &[OutboxSettlement],
) -> Result<SettleOutcome, Failure> {
    let destination = destination(&fence.scope)?;
    let scope = fence.scope.to_string();
    let owner: [Value<'_>; 3] = [&scope, &fence.worker, &destination];
    let (done, retries, dead) = by_fate(settlements);
    let asked = done.len() + retries.proof.len() + dead.proof.len();
    if asked == 0 {
        return Ok(SettleOutcome::default());
    }
    let mark = client.prepare_cached(sql!("mark_dispatched")).await?;
    let is_adopted = adopted.may_have(destination);
    if done.len() == asked && !is_adopted {
        return Ok(settled(asked, client.execute(&mark, &done.values(&owner)).await?));
    }
    let retry = client.prepare_cached(sql!("retry_outbox")).await?;
    let fail = client.prepare_cached(sql!("fail_outbox")).await?;
    let bury_all = client.prepare_cached(sql!("bury_outbox")).await?;
    let mut transaction = client.transaction().await?;
    let (done, retries, dead) = (done.values(&owner), retries.values(&owner), dead.values(&owner));
    let (dispatched, retried, failed) = try_join3(
        transaction.execute(&mark, &done),
        transaction.query_one(&retry, &retries),
        transaction.query(&fail, &dead),
    )
    .await?;
    bury(&transaction, &bury_all, &failed, &fence.worker).await?;
    if is_adopted {
        let ids: Vec<i64> = settlements.iter().map(|row| row.id).collect();
        adopt::write_back(&mut transaction, &adopted.all(), Some(destination), &ids).await?;
    }
    crate::fail_point!("settle_outbox.before_commit");
    transaction.commit().await?;
    let retried = row::amount(retried.get(0));
    Ok(settled(asked, dispatched + retried + failed.len() as u64))
}

/// Writes the dead letters of rows that were marked `FAILED`: their ids, and whether to park the key.
pub(super) async fn bury(
    transaction: &Transaction<'_>,
    statement: &Statement,
    failed: &[Row],
    worker: &str,
) -> Result<(), Failure> {
    if failed.is_empty() {
        return Ok(());
    }
    crate::fail_point!("bury.before_letter");
    let ids: Vec<i64> = failed.iter().map(|row| row.get(0)).collect();
    let parks: Vec<bool> = failed.iter().map(|row| row.get(1)).collect();
    transaction.execute(statement, &[&ids, &parks, &worker]).await?;
    Ok(())
}

/// Untouched rows are in none of the parts.
pub(super) fn by_fate(settlements: &[OutboxSettlement]) -> (LaneProof, Retry<'_>, Dead<'_>) {
    let (mut done, mut retries, mut dead) =
        (LaneProof::default(), Retry::default(), Dead::default());
    for row in settlements {
        let proof = (row.id, row.lane, row.epoch);
        match &row.fate {
            OutboxFate::Dispatched => done.push(proof),
            OutboxFate::Retry { attempts, pause, problem } => {
                retries.push(proof, Some(*attempts), *pause, problem, 0);
            }
            OutboxFate::Wait { pause, problem, lost_workers } => {
                retries.push(proof, None, *pause, problem, *lost_workers);
            }
            OutboxFate::Dead { attempts, problem, park } => {
                dead.push(proof, *attempts, *park, problem);
            }
            OutboxFate::Untouched => {}
        }
    }
    (done, retries, dead)
}

pub(super) fn destination(scope: &Scope) -> Result<&str, StoreError> {
    match scope {
        Scope::Outbox(destination) => Ok(destination),
        Scope::Inbox | Scope::NamedInbox(_) => {
            Err(StoreError::invalid("the inbox is no destination"))
        }
    }
}
