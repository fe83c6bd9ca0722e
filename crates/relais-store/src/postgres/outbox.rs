//! The outbox: written, fetched in order, settled under the fence.

use deadpool_postgres::Transaction;
use futures_util::future::{try_join, try_join3};
use relais_core::{
    lane::{Fence, LANES, Scope},
    message::NewMessage,
    outbox::{OutboxFate, OutboxRow, OutboxSettlement},
    store::{Fetch, Payloads, SettleOutcome, StoreError},
};
use tokio_postgres::{Row, Statement};

use super::session::Client;
use super::{
    StoreState, adopt, enqueue,
    error::Failure,
    fence::{Dead, LaneProof, Retry, Value, settled},
    low_water_mark::{
        FETCHES_MAX, FetchFindings, FetchVerdict, MarkAnswer, Marks, Plan, SeenRow, WalkStart,
    },
    row,
};
use crate::{adopt::SettledCopies, release::RELEASED_ROWS};

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

/// Rows that may go out now. Blocked rows that it meets are moved to `relais_waiting`.
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
        let position = match marks.position(&scope) {
            Some(position) => position,
            None => position(client, destination).await?,
        };
        let start = WalkStart { position: Some(position), kept: fetch.kept };
        let plan = marks.begin(&scope, &fetch.lanes, start);
        let result = walk(client, destination, fetch, plan).await;
        let (rows, found) = result.inspect_err(|_| marks.forget(&scope))?;
        let waiting = found.rows.iter().filter(|row| !row.fresh).map(|row| row.id);
        marks.note_waiting(&scope, waiting);
        if marks.end(&scope, plan, found) == FetchVerdict::Sound {
            if let Some(next) = marks.next_position(&scope) {
                let statement = client.prepare_cached(sql!("advance_position")).await?;
                client.execute(&statement, &[&destination, &next]).await?;
            }
            return Ok(rows);
        }
    }
    // The position is set back faster than this reads; the next fetch returns the rows.
    Ok(Vec::new())
}

async fn position(client: &Client<'_>, destination: &str) -> Result<i64, Failure> {
    let statement = client.prepare_cached(sql!("outbox_position")).await?;
    Ok(client.query_one(&statement, &[&destination]).await?.get(0))
}

/// Rows that the walk of one statement reads at least, so that blocked rows are passed in large parts.
const WALK_MIN: usize = 500;
/// Most parts of one walk that find blocked rows.
const PARTS_MAX: usize = 100;

/// Walks along the fresh rows in parts, until the limit is reached or no part is cut by blocked rows.
async fn walk(
    client: &Client<'_>,
    destination: &str,
    fetch: &Fetch,
    plan: Plan,
) -> Result<(Vec<OutboxRow>, FetchFindings), Failure> {
    let mut part = fetch.clone();
    let (mut rows, mut seen) = (Vec::new(), Vec::new());
    let mut plan = plan;
    let (mut position, mut answer) = (0, None);
    let mut complete_to = None;
    for _ in 0..PARTS_MAX {
        let mut read = read(client, destination, &part, plan).await?;
        position = read.position;
        answer = answer.or(read.answer);
        let last_seen = read.seen.iter().filter(|row| row.fresh).map(|row| row.id).max();
        let walked = read.seen.iter().filter(|row| row.fresh).count();
        if let Some(last) = last_seen.filter(|_| walked >= part_rows(fetch.limit)) {
            // Before a due row there may be fresh rows of its key that this part did not reach.
            read.rows.retain(|row| row.id <= last);
        }
        part.skip_ids.extend(read.rows.iter().map(|row| row.id));
        let is_passed = pass(client, destination, &part, &read.blocked).await?;
        let bytes: usize = read.rows.iter().map(|row| row.payload.len()).sum();
        let bytes_max = part.payloads.bytes().unwrap_or(usize::MAX);
        let is_cut = read.rows.len() >= part.limit || bytes >= bytes_max;
        part.limit -= read.rows.len().min(part.limit);
        part.payloads = match part.payloads {
            Payloads::UpTo(bytes_max) => Payloads::UpTo(bytes_max.saturating_sub(bytes)),
            Payloads::Omitted => Payloads::Omitted,
        };
        complete_to = match () {
            () if !is_passed || !fetch.skip_keys.is_empty() => None,
            () if is_cut => read.rows.last().map(|row| row.id),
            () if walked >= part_rows(fetch.limit) => last_seen,
            () => Some(i64::MAX),
        };
        let is_blocked = !read.blocked.is_empty() && walked >= part_rows(fetch.limit);
        rows.extend(read.rows);
        seen.extend(read.seen);
        match last_seen {
            // Behind a row that was not passed, no later row of its key may be passed.
            Some(last) if is_passed && is_blocked && !is_cut => plan = plan.behind(last),
            _ => break,
        }
    }
    rows.sort_unstable_by_key(|row: &OutboxRow| row.id);
    let found =
        FetchFindings { rows: seen, decisions: 0, position: Some(position), complete_to, answer };
    Ok((rows, found))
}

/// Rows that one statement walks over.
fn part_rows(limit: usize) -> usize {
    limit.max(WALK_MIN)
}

/// The result of one part of a walk.
struct WalkPart {
    rows: Vec<OutboxRow>,
    blocked: Vec<BlockedRow>,
    /// All of them.
    seen: Vec<SeenRow>,
    position: i64,
    answer: Option<MarkAnswer>,
}

/// A fresh row that may not go out now.
struct BlockedRow {
    id: i64,
    lane: i16,
    /// The waiting row in its way.
    behind: Option<i64>,
}

/// All statements in one round trip: they run one after the other in the order in which they are polled first:
/// `writers`, then `lowest`, then the rows.
async fn read(
    client: &Client<'_>,
    destination: &str,
    fetch: &Fetch,
    plan: Plan,
) -> Result<WalkPart, Failure> {
    let lanes: Vec<i16> = fetch.lanes.iter().map(|lane| lane.lane).collect();
    let (limit, walked) = (row::count(fetch.limit), row::count(part_rows(fetch.limit)));
    let statement = client.prepare_cached(sql!("fetch_outbox")).await?;
    let place = client.prepare_cached(sql!("outbox_position")).await?;
    let Fetch { skip_keys, skip_ids, .. } = fetch;
    let bytes = fetch.payloads.bytes().map(row::count);
    let values: [Value<'_>; 8] =
        [&destination, &lanes, &plan.from, &limit, skip_keys, skip_ids, &bytes, &walked];
    let (mut seen, mut blocked) = (Vec::new(), Vec::new());
    let rows = row::each(client, &statement, &values, |row| {
        let (waits, is_blocked): (bool, bool) = (row.try_get("waits")?, row.try_get("blocked")?);
        seen.push(SeenRow { id: row.try_get("id")?, fresh: !waits });
        if is_blocked {
            let (id, lane) = (row.try_get("id")?, row.try_get("lane")?);
            blocked.push(BlockedRow { id, lane, behind: row.try_get("behind")? });
            return Ok(None);
        }
        row::outbox_row(row).map(Some)
    });
    let rows = try_join(rows, async { Ok(client.query_one(&place, &[&destination]).await?) });
    let (answer, (rows, place)) = match plan.ask {
        None => (None, rows.await?),
        Some(_) => {
            let writers = client.prepare_cached(sql!("writers")).await?;
            let lowest = client.prepare_cached(sql!("lowest_outbox")).await?;
            let has_all = lanes.len() == usize::from(LANES);
            let from = plan.position.filter(|_| !has_all);
            let (writers, lowest, rows) = try_join3(
                async { Ok(client.query(&writers, &[&"relais_outbox"]).await?) },
                async {
                    let Some(mark) = plan.lowest else { return Ok(None) };
                    let values: [Value<'_>; 4] = [&destination, &lanes, &mark, &from];
                    Ok(Some(client.query_one(&lowest, &values).await?))
                },
                rows,
            )
            .await?;
            (Some(MarkAnswer::of_outbox(&writers, lowest.as_ref())), rows)
        }
    };
    let rows = rows.into_iter().flatten().collect();
    Ok(WalkPart { rows, blocked, seen, position: place.get(0), answer })
}

/// Moves blocked rows to `relais_waiting`; returns whether all of them are there.
async fn pass(
    client: &Client<'_>,
    destination: &str,
    fetch: &Fetch,
    blocked: &[BlockedRow],
) -> Result<bool, Failure> {
    if blocked.is_empty() {
        return Ok(true);
    }
    let epoch = |lane| fetch.lanes.iter().find(|owned| owned.lane == lane).map(|l| l.epoch);
    let mut proof = LaneProof::default();
    let mut behind = Vec::with_capacity(blocked.len());
    for row in blocked {
        proof.push((row.id, row.lane, epoch(row.lane).unwrap_or(-1)));
        behind.push(row.behind);
    }
    let scope = fetch.scope.to_string();
    let statement = client.prepare_cached(sql!("pass_outbox")).await?;
    let mut values = proof.values(&[&scope, &destination]);
    values.push(&behind);
    values.push(&fetch.skip_ids);
    Ok(client.execute(&statement, &values).await? == blocked.len() as u64)
}

/// Makes the next rows behind waiting rows of these keys due, at most `rows` of each, after those rows were settled.
pub(super) async fn release(
    transaction: &Transaction<'_>,
    destination: &str,
    keys: &[String],
    rows: i64,
) -> Result<(), Failure> {
    if !keys.is_empty() {
        let statement = transaction.prepare_cached(sql!("release_waiting")).await?;
        transaction.execute(&statement, &[&destination, &keys, &rows]).await?;
    }
    Ok(())
}

/// Settles a batch, and records deliveries of rows that an operator failed meanwhile.
pub(super) async fn settle(
    client: &mut Client<'_>,
    shared: &StoreState,
    fence: &Fence,
    settlements: &[OutboxSettlement],
) -> Result<SettleOutcome, Failure> {
    let settled = settle_batch(client, shared, fence, settlements).await?;
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

/// One statement when all went well and none of the rows waited, else one transaction.
async fn settle_batch(
    client: &mut Client<'_>,
    StoreState { adopted, marks, .. }: &StoreState,
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
    let is_adopted = adopted.concern(SettledCopies::Outbox(Some(destination)));
    let waited = marks.take_waiting(&scope, &done.ids);
    if done.len() == asked && !is_adopted && !waited {
        let row = client.query_one(&mark, &done.values(&owner)).await?;
        let keys: Vec<String> = row.get(1);
        if !keys.is_empty() {
            // An operator failed one of the rows and sent it again meanwhile.
            let release = client.prepare_cached(sql!("release_waiting")).await?;
            client.execute(&release, &[&destination, &keys, &RELEASED_ROWS]).await?;
        }
        return Ok(settled(asked, row::amount(row.get(0))));
    }
    let retry = client.prepare_cached(sql!("retry_outbox")).await?;
    let fail = client.prepare_cached(sql!("fail_outbox")).await?;
    let bury_all = client.prepare_cached(sql!("bury_outbox")).await?;
    let mut transaction = client.transaction().await?;
    let (done, retries, dead) = (done.values(&owner), retries.values(&owner), dead.values(&owner));
    let (dispatched, retried, failed) = try_join3(
        transaction.query_one(&mark, &done),
        transaction.query_one(&retry, &retries),
        transaction.query(&fail, &dead),
    )
    .await?;
    bury(&transaction, &bury_all, &failed, &fence.worker).await?;
    let mut keys: Vec<String> = dispatched.get(1);
    keys.extend(failed.iter().map(|row| row.get::<_, String>(2)));
    release(&transaction, destination, &keys, RELEASED_ROWS).await?;
    if is_adopted {
        let ids: Vec<i64> = settlements.iter().map(|row| row.id).collect();
        adopt::write_back(
            &mut transaction,
            &adopted.all(),
            SettledCopies::Outbox(Some(destination)),
            &ids,
        )
        .await?;
    }
    crate::fail_point!("settle_outbox.before_commit");
    transaction.commit().await?;
    let (dispatched, retried) = (row::amount(dispatched.get(0)), row::amount(retried.get(0)));
    Ok(settled(asked, dispatched + retried + failed.len() as u64))
}

/// Writes the dead letters of rows that were marked `FAILED`: their ids, whether to park the key, and the key.
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
