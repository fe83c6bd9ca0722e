//! The inbox: fetched in order, settled under the fence together with what follows from it.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use deadpool_postgres::Transaction;
use futures_util::future::{try_join, try_join3, try_join4};
use relais_core::{
    delivery::Problem,
    inbox::{InboxFate, InboxRow, InboxSettlement},
    lane::Fence,
    message::NewMessage,
    process::Change,
    store::{Fetch, OutOfOrder, SettleOutcome},
    text,
};

use super::session::Client;
use super::{
    adopt::{self, PostgresAdoptions},
    enqueue,
    error::Failure,
    fence::{Dead, LaneProof, Retry, Value, settled},
    low_water_mark::{
        FETCHES_MAX, FetchFindings, FetchVerdict, MarkAnswer, Marks, Plan, SeenRow, WalkStart,
    },
    process::{self, Claims, SortedChanges},
    row,
};
use crate::adopt::{SettledCopies, leaves_the_result_to_its_copy};

/// Rows that may be handled now.
pub(super) async fn fetch(
    client: &Client<'_>,
    marks: &Marks,
    fetch: &Fetch,
) -> Result<Vec<InboxRow>, Failure> {
    if fetch.lanes.is_empty() || fetch.limit == 0 {
        return Ok(Vec::new());
    }
    let scope = fetch.scope.to_string();
    for _ in 0..FETCHES_MAX {
        let plan = marks.begin(&scope, &fetch.lanes, WalkStart::default());
        let result = read(client, fetch, plan).await;
        let (rows, found) = result.inspect_err(|_| marks.forget(&scope))?;
        if marks.end(&scope, plan, found) == FetchVerdict::Sound {
            return Ok(rows);
        }
    }
    // Operators decide faster than this reads; the next fetch returns the rows.
    Ok(Vec::new())
}

/// As for the outbox: one round trip; `highest`, `writers`, `lowest`, the rows, `decisions`.
async fn read(
    client: &Client<'_>,
    fetch: &Fetch,
    plan: Plan,
) -> Result<(Vec<InboxRow>, FetchFindings), Failure> {
    let lanes: Vec<i16> = fetch.lanes.iter().map(|lane| lane.lane).collect();
    let limit = row::count(fetch.limit);
    let statement = client.prepare_cached(sql!("fetch_inbox")).await?;
    let decisions = client.prepare_cached(sql!("decisions")).await?;
    let Fetch { skip_keys, skip_ids, .. } = fetch;
    let bytes = row::count(fetch.inbox_bytes()?);
    let inbox = fetch.scope.inbox().unwrap_or_default();
    let values: [Value<'_>; 7] = [&lanes, &plan.from, &limit, skip_keys, skip_ids, &bytes, &inbox];
    let mut seen = Vec::new();
    let rows = row::each(client, &statement, &values, |row| {
        seen.push(SeenRow::of(row)?);
        row::inbox_row(row)
    });
    let decided = async { Ok(client.query_one(&decisions, &[]).await?) };
    let rows = try_join(rows, decided);
    let (answer, (rows, decisions)) = match plan.ask {
        None => (None, rows.await?),
        Some(_) => {
            let highest = client.prepare_cached(sql!("highest_inbox")).await?;
            let writers = client.prepare_cached(sql!("writers")).await?;
            let lowest = client.prepare_cached(sql!("lowest_inbox")).await?;
            let from: [Value<'_>; 3] = [&lanes, &plan.from, &inbox];
            let (highest, writers, lowest, rows) = try_join4(
                async { Ok(client.query_one(&highest, &from).await?) },
                async { Ok(client.query(&writers, &[&"relais_inbox"]).await?) },
                async { Ok(client.query_opt(&lowest, &from).await?) },
                rows,
            )
            .await?;
            (Some(MarkAnswer::of(&highest, &writers, lowest.as_ref())), rows)
        }
    };
    let found = FetchFindings {
        rows: seen,
        decisions: decisions.get(0),
        position: None,
        complete_to: None,
        answer,
    };
    Ok((rows, found))
}

/// Settles a batch, with the messages, changes of processes and dead letters that follow, in one
/// transaction.
pub(super) async fn settle(
    client: &mut Client<'_>,
    adopted: &PostgresAdoptions,
    fence: &Fence,
    settlements: &[InboxSettlement],
) -> Result<SettleOutcome, Failure> {
    let owner: [Value<'_>; 1] = [&fence.worker];
    let scope = fence.scope.to_string();
    let (rows, mut stale) = process::distinct(settlements)?;
    let (done, retries, dead) = by_fate(&rows);
    let claims = Claims::of_rows(&rows);
    client.carries(
        rows.iter().flat_map(|row| row.fate.messages()).map(|message| message.payload.len()).sum(),
    );
    let mut done = done.values(&owner);
    let mark = if claims.is_empty() {
        sql!("settle_processed")
    } else {
        done.extend(claims.values());
        sql!("settle_changed")
    };
    done.push(&scope);
    let mark = client.prepare_cached(mark).await?;
    let retry = client.prepare_cached(sql!("retry_inbox")).await?;
    let bury = client.prepare_cached(sql!("bury_inbox")).await?;
    let mut transaction = client.transaction().await?;
    let (mut retries, mut dead) = (retries.values(&owner), dead.values(&owner));
    retries.push(&scope);
    dead.push(&scope);
    let (marked, retried, buried) = try_join3(
        transaction.query(&mark, &done),
        transaction.query_one(&retry, &retries),
        transaction.query_one(&bury, &dead),
    )
    .await?;
    let (late, processed): (Vec<_>, Vec<_>) = marked.iter().partition(|row| row.get(1));
    stale.extend(late.iter().map(|row| row.get::<_, i64>(0)));
    stale.sort_unstable();
    let reached = processed.len() as u64 + row::amount(retried.get(0)) + row::amount(buried.get(0));
    let processed: HashSet<i64> = processed.iter().map(|row| row.get(0)).collect();
    let copied = copies(&rows, &processed);
    let by_type = ignored_types(&rows, &processed);
    let (messages, changes) = consequences(&rows, processed);
    crate::fail_point!("settle_inbox.after_mark");
    let (ids, messages): (Vec<i64>, Vec<_>) = messages.into_iter().unzip();
    let older = write(&transaction, messages.clone(), changes, &fence.worker).await?;
    let ignored = by_row(&ids, &messages, &older);
    let of_order = ignored.iter().map(|row| (row.id, &row.problem));
    record_ignored(&transaction, of_order.chain(by_type).collect(), &fence.worker).await?;
    let settled_copies = copy(&transaction, copied).await?;
    if adopted.concern(SettledCopies::Inbox) {
        let own = rows.iter().filter(|row| !leaves_the_result_to_its_copy(&row.fate));
        let ids: Vec<i64> = own.map(|row| row.id).chain(settled_copies).collect();
        adopt::write_back(&mut transaction, &adopted.all(), SettledCopies::Inbox, &ids).await?;
    }
    crate::fail_point!("settle_inbox.before_commit");
    transaction.commit().await?;
    let asked = settlements.len() - stale.len();
    Ok(SettleOutcome { stale, ignored, ..settled(asked, reached) })
}

/// The messages that were not sent, by the row they follow from.
fn by_row(ids: &[i64], messages: &[&NewMessage], older: &BTreeSet<usize>) -> Vec<OutOfOrder> {
    let mut rows: BTreeMap<i64, Vec<&NewMessage>> = BTreeMap::new();
    for at in older {
        rows.entry(ids[*at]).or_default().push(messages[*at]);
    }
    rows.iter().map(|(id, older)| OutOfOrder::new(*id, older)).collect()
}

async fn record_ignored(
    transaction: &Transaction<'_>,
    ignored: Vec<(i64, &Problem)>,
    worker: &str,
) -> Result<(), Failure> {
    if ignored.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = ignored.iter().map(|(id, _)| *id).collect();
    let codes: Vec<&str> = ignored.iter().map(|(_, problem)| problem.code.as_str()).collect();
    let texts: Vec<&str> = ignored.iter().map(|(_, problem)| problem.message.as_str()).collect();
    let statement = transaction.prepare_cached(sql!("record_ignored")).await?;
    transaction.execute(&statement, &[&worker, &ids, &codes, &texts]).await?;
    Ok(())
}

fn by_fate<'a>(settlements: &[&'a InboxSettlement]) -> (LaneProof, Retry<'a>, Dead<'a>) {
    let (mut done, mut retries, mut dead) =
        (LaneProof::default(), Retry::default(), Dead::default());
    for settlement in settlements {
        let proof = (settlement.id, settlement.lane, settlement.epoch);
        match &settlement.fate {
            InboxFate::Processed { .. } | InboxFate::Ignored { .. } => done.push(proof),
            InboxFate::Retry { attempts, pause, problem } => {
                retries.push(proof, Some(*attempts), *pause, problem, 0);
            }
            InboxFate::Wait { pause, problem, lost_workers } => {
                retries.push(proof, None, *pause, problem, *lost_workers);
            }
            InboxFate::Dead { attempts, problem, park } => {
                dead.push(proof, *attempts, *park, problem);
            }
        }
    }
    (done, retries, dead)
}

/// Returns the consequences of the rows that were `processed`, in order; messages with the row they follow from.
fn consequences<'a>(
    settlements: &[&'a InboxSettlement],
    mut processed: HashSet<i64>,
) -> (Vec<(i64, &'a NewMessage)>, Vec<&'a Change>) {
    let (mut messages, mut changes) = (Vec::new(), Vec::new());
    for settlement in settlements {
        let InboxFate::Processed { messages: sent, changes: moved, .. } = &settlement.fate else {
            continue;
        };
        // A row named twice has the effect of the first.
        if processed.remove(&settlement.id) {
            let sent = sent.iter().chain(moved.iter().flat_map(|change| &change.messages));
            messages.extend(sent.map(|message| (settlement.id, message)));
            changes.extend(moved);
        }
    }
    (messages, changes)
}

/// Rows that were `processed` and whose event type is ignored, with the reason.
fn ignored_types<'a>(
    settlements: &[&'a InboxSettlement],
    processed: &HashSet<i64>,
) -> Vec<(i64, &'a Problem)> {
    let done = settlements.iter().filter(|settlement| processed.contains(&settlement.id));
    let of_row = |settlement: &&'a InboxSettlement| match &settlement.fate {
        InboxFate::Ignored { problem } => Some((settlement.id, problem)),
        _ => None,
    };
    done.filter_map(of_row).collect()
}

/// The copies of the rows that were `processed`: rows and the inboxes they go to.
fn copies<'a>(
    settlements: &[&'a InboxSettlement],
    processed: &HashSet<i64>,
) -> (Vec<i64>, Vec<&'a str>) {
    let mut left = processed.clone();
    // A row named twice has the effect of the first.
    let done = settlements.iter().filter(move |settlement| left.remove(&settlement.id));
    let of_row = |settlement: &&'a InboxSettlement| match &settlement.fate {
        InboxFate::Processed { copies, .. } => {
            let id = settlement.id;
            copies.iter().map(|inbox| (id, inbox.as_str())).collect()
        }
        _ => Vec::new(),
    };
    done.flat_map(of_row).unzip()
}

/// Returns the copies that were there already and have a result, which rows of adopted tables get.
async fn copy(
    transaction: &Transaction<'_>,
    (ids, inboxes): (Vec<i64>, Vec<&str>),
) -> Result<Vec<i64>, Failure> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let statement = transaction.prepare_cached(sql!("copy_inbox")).await?;
    let copies = transaction.query(&statement, &[&ids, &inboxes]).await?;
    Ok(copies.iter().filter(|copy| copy.get(1)).map(|copy| copy.get(0)).collect())
}

/// Messages, but none that is older than what was seen of its aggregate, and changes of processes that
/// are locked, in one round trip. Returns the places of the messages that are older.
pub(super) async fn write(
    transaction: &Transaction<'_>,
    messages: Vec<&NewMessage>,
    changes: Vec<&Change>,
    worker: &str,
) -> Result<BTreeSet<usize>, Failure> {
    let older = older(transaction, &messages).await?;
    let current = messages.into_iter().enumerate().filter(|(at, _)| !older.contains(at));
    let current: Vec<_> = current.map(|(_, message)| message).collect();
    let changes = SortedChanges::of(changes);
    let written = changes.write(transaction, worker);
    try_join(written, enqueue::enqueue(&**transaction, &current)).await?;
    Ok(older)
}

/// Type and id.
type Aggregate<'a> = (&'a str, String);

/// The places of the messages that are older than what was seen of their aggregates.
///
/// One statement takes at most one message of each aggregate, so an aggregate that comes several
/// times takes as many rounds.
async fn older(
    transaction: &Transaction<'_>,
    messages: &[&NewMessage],
) -> Result<BTreeSet<usize>, Failure> {
    let mut rounds: Vec<BTreeMap<Aggregate<'_>, (usize, i64)>> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let Some(version) = message.as_of_version else { continue };
        // A long id by its hash: an index entry is bounded.
        let id = text::identity(&message.aggregate_id, text::MESSAGE_ID_MAX);
        let aggregate = (message.aggregate_type.as_str(), id);
        match rounds.iter_mut().find(|round| !round.contains_key(&aggregate)) {
            Some(round) => round.insert(aggregate, (at, version)),
            None => {
                rounds.push(BTreeMap::from([(aggregate, (at, version))]));
                None
            }
        };
    }
    let mut older = BTreeSet::new();
    for mut round in rounds {
        let statement = transaction.prepare_cached(sql!("see_version")).await?;
        let types: Vec<_> = round.keys().map(|aggregate| aggregate.0).collect();
        let ids: Vec<_> = round.keys().map(|aggregate| aggregate.1.as_str()).collect();
        let versions: Vec<_> = round.values().map(|(_, version)| *version).collect();
        let newest = transaction.query(&statement, &[&types, &ids, &versions]).await?;
        for row in &newest {
            round.remove(&(row.get(0), row.get(1)));
        }
        older.extend(round.into_values().map(|(at, _)| at));
    }
    Ok(older)
}

/// `true` the first time for this message and handler.
pub(super) async fn once(
    client: &Client<'_>,
    handler: &str,
    message_id: &str,
) -> Result<bool, Failure> {
    let statement = client.prepare_cached(sql!("once")).await?;
    Ok(client.execute(&statement, &[&message_id, &handler]).await? == 1)
}
