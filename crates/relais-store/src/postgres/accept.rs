//! Received messages into the inbox, with how far their sources are read, in one transaction.

use std::{
    collections::{BTreeMap, HashSet},
    sync::atomic::{AtomicU32, Ordering},
};

use base64::Engine;
use deadpool_postgres::Transaction;
use futures_util::future::try_join;
use relais_core::{
    inbox::{AcceptOutcome, Content, NewInbox, SourcePosition},
    store::StoreError,
    text,
};
use tokio_postgres::error::SqlState;
use uuid::Uuid;

use super::session::Client;
use super::{error::Failure, fence::Value, row::Micros};

/// Stores messages and positions; one answer for each message, in order.
pub(super) async fn accept(
    client: &mut Client<'_>,
    duplicates: &DuplicateHint,
    messages: &[NewInbox],
    positions: &[SourcePosition],
) -> Result<Vec<AcceptOutcome>, Failure> {
    let columns = Columns::of(messages);
    client.carries(columns.payload_bytes());
    let read = Positions::of(positions);
    let mut accepted = vec![AcceptOutcome::Stored; messages.len()];
    // Behind a pooler a duplicate would end the transaction that the whole call is in.
    if !client.is_in_transaction() && !duplicates.are_expected() {
        if accept_new(client, &columns, &read).await? {
            return Ok(accepted);
        }
        duplicates.expect();
    }
    let insert = client.prepare_cached(sql!("accept_inbox")).await?;
    let position = client.prepare_cached(sql!("set_position")).await?;
    let transaction = client.transaction().await?;
    let (stored, _) = try_join(
        transaction.query(&insert, &columns.values()),
        transaction.execute(&position, &read.values()),
    )
    .await?;
    if stored.len() == messages.len() {
        duplicates.saw_none();
    } else {
        duplicates.expect();
        let mut new: HashSet<(&str, &str)> =
            stored.iter().map(|row| (row.get(0), row.get(1))).collect();
        // The first of a pair was stored; what comes after it in the batch was not.
        let before: Vec<usize> = (0..messages.len())
            .filter(|&at| !new.remove(&(columns.source_systems[at], columns.message_ids[at])))
            .collect();
        compare(&transaction, messages, &columns, &before, &mut accepted).await?;
    }
    crate::fail_point!("accept.before_commit");
    transaction.commit().await?;
    Ok(accepted)
}

/// Stores all of it in one statement; `false` if one of the messages was there, and nothing is stored.
async fn accept_new(
    client: &Client<'_>,
    columns: &Columns<'_>,
    read: &Positions<'_>,
) -> Result<bool, Failure> {
    let insert = client.prepare_cached(sql!("accept_new")).await?;
    let values: Vec<Value<'_>> = columns.values().into_iter().chain(read.values()).collect();
    match client.execute(&insert, &values).await {
        Ok(_) => Ok(true),
        Err(error) if is_duplicate(&error) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether a message was there. Any other unique violation is not about a message.
fn is_duplicate(error: &tokio_postgres::Error) -> bool {
    let constraint = error.as_db_error().and_then(|answer| answer.constraint());
    error.code() == Some(&SqlState::UNIQUE_VIOLATION) && constraint == Some("relais_inbox_dedupe")
}

/// A hint that batches may have duplicates. [`accept_new`] is far cheaper without them; with one it does its
/// work without result, and leaves an error in the server's log.
#[derive(Debug, Default)]
pub(super) struct DuplicateHint {
    batches_left: AtomicU32,
}

/// Batches in a row without a duplicate after which none is expected. Each costs about a quarter more with the
/// dearer statement; the cheaper one fails as a whole for a duplicate. So a failure is worth about four batches,
/// and even a duplicate in every twentieth batch costs little more than with the best choice.
const DUPLICATE_BATCHES: u32 = 16;

impl DuplicateHint {
    fn are_expected(&self) -> bool {
        self.batches_left.load(Ordering::Relaxed) > 0
    }

    fn expect(&self) {
        self.batches_left.store(DUPLICATE_BATCHES, Ordering::Relaxed);
    }

    /// Counts a batch without a duplicate.
    fn saw_none(&self) {
        let one_less = |left: u32| left.checked_sub(1);
        // An error means that there was nothing left.
        let _ = self.batches_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
    }
}

/// Marks each message that was there before as duplicate, or as conflict if it is not the same, and keeps
/// conflicts.
async fn compare(
    transaction: &Transaction<'_>,
    messages: &[NewInbox],
    columns: &Columns<'_>,
    before: &[usize],
    accepted: &mut [AcceptOutcome],
) -> Result<(), Failure> {
    let statement = transaction.prepare_cached(sql!("compare_inbox")).await?;
    let pick = |column: &[&str]| -> Vec<String> {
        before.iter().map(|&at| column[at].to_owned()).collect()
    };
    let payloads: Vec<_> = before.iter().map(|&at| columns.payloads[at]).collect();
    let raws: Vec<_> = before.iter().map(|&at| columns.raws[at].as_deref()).collect();
    let found = transaction
        .query(
            &statement,
            &[&pick(&columns.source_systems), &pick(&columns.message_ids), &payloads, &raws],
        )
        .await?;
    if found.len() < before.len() {
        // Cleaned up between the two statements: now it can be stored.
        return Err(Failure::Again(StoreError::unavailable("a duplicate vanished")));
    }
    let mut conflicts = Conflicts::default();
    for row in &found {
        let place = usize::try_from(row.get::<_, i64>(0)).unwrap_or(0).saturating_sub(1);
        let at = before[place];
        accepted[at] = if row.get(2) { AcceptOutcome::Duplicate } else { AcceptOutcome::Conflict };
        if accepted[at] == AcceptOutcome::Conflict {
            conflicts.push(&messages[at], columns.raws[at].as_deref(), row.get(1));
        }
    }
    if conflicts.ids.is_empty() {
        return Ok(());
    }
    let keep = transaction.prepare_cached(sql!("keep_conflict")).await?;
    transaction
        .execute(
            &keep,
            &[
                &conflicts.ids,
                &conflicts.origin_ids,
                &conflicts.message_ids,
                &conflicts.source_systems,
                &conflicts.event_types,
                &conflicts.msg_keys,
                &conflicts.payloads,
                &conflicts.headers,
            ],
        )
        .await?;
    Ok(())
}

/// Returns the positions up to which a source has been read.
pub(super) async fn positions(
    client: &Client<'_>,
    source: &str,
) -> Result<Vec<SourcePosition>, Failure> {
    let statement = client.prepare_cached(sql!("positions")).await?;
    let rows = client.query(&statement, &[&source]).await?;
    let read = |row: &tokio_postgres::Row| SourcePosition {
        source: source.to_owned(),
        partition: row.get(0),
        position: row.get(1),
    };
    Ok(rows.iter().map(read).collect())
}

/// Messages turned on their side.
#[derive(Debug, Default)]
struct Columns<'a> {
    message_ids: Vec<&'a str>,
    source_systems: Vec<&'a str>,
    topics: Vec<&'a str>,
    partitions: Vec<i32>,
    offsets: Vec<i64>,
    key_strs: Vec<Option<&'a str>>,
    msg_keys: Vec<&'a str>,
    aggregate_ids: Vec<Option<&'a str>>,
    event_types: Vec<Option<&'a str>>,
    payloads: Vec<Option<&'a str>>,
    headers: Vec<String>,
    raws: Vec<Option<String>>,
    event_times: Vec<Option<Micros>>,
    error_codes: Vec<Option<&'a str>>,
    error_messages: Vec<Option<&'a str>>,
}

impl<'a> Columns<'a> {
    fn payload_bytes(&self) -> usize {
        let payloads = self.payloads.iter().flatten().map(|payload| payload.len());
        payloads.chain(self.raws.iter().flatten().map(String::len)).sum()
    }

    fn of(messages: &'a [NewInbox]) -> Self {
        let mut columns = Self::default();
        for message in messages {
            columns.message_ids.push(&message.message_id);
            columns.source_systems.push(&message.source_system);
            columns.topics.push(&message.topic);
            columns.partitions.push(message.partition_num);
            columns.offsets.push(message.offset_num);
            columns.key_strs.push(message.key_str.as_deref());
            columns.msg_keys.push(&message.msg_key);
            columns.aggregate_ids.push(message.aggregate_id.as_deref());
            columns.event_types.push(message.event_type.as_deref());
            columns.headers.push(message.headers.to_json());
            columns.event_times.push(message.event_ts.map(Micros));
            let (payload, raw, problem) = match &message.content {
                Content::Json(json) => (Some(json.as_str()), None, None),
                Content::Undecodable { bytes, problem } => {
                    let base64 = base64::engine::general_purpose::STANDARD.encode(bytes);
                    (None, Some(base64), Some(problem))
                }
            };
            columns.payloads.push(payload);
            columns.raws.push(raw);
            columns.error_codes.push(problem.map(|problem| problem.code.as_str()));
            columns.error_messages.push(problem.map(|problem| problem.message.as_str()));
        }
        columns
    }

    /// In the order of the statements' parameters.
    fn values(&self) -> [Value<'_>; 15] {
        [
            &self.message_ids,
            &self.source_systems,
            &self.topics,
            &self.partitions,
            &self.offsets,
            &self.key_strs,
            &self.msg_keys,
            &self.aggregate_ids,
            &self.event_types,
            &self.payloads,
            &self.headers,
            &self.raws,
            &self.event_times,
            &self.error_codes,
            &self.error_messages,
        ]
    }
}

/// Positions turned on their side, in one order everywhere so that two nodes cannot deadlock, and
/// each partition once: the last one counts.
#[derive(Debug, Default)]
struct Positions<'a> {
    sources: Vec<&'a str>,
    partitions: Vec<&'a str>,
    positions: Vec<i64>,
}

impl<'a> Positions<'a> {
    fn values(&self) -> [Value<'_>; 3] {
        [&self.sources, &self.partitions, &self.positions]
    }

    fn of(positions: &'a [SourcePosition]) -> Self {
        let last: BTreeMap<(&str, &str), i64> = positions
            .iter()
            .map(|p| ((p.source.as_str(), p.partition.as_str()), p.position))
            .collect();
        let mut columns = Self::default();
        for ((source, partition), position) in last {
            columns.sources.push(source);
            columns.partitions.push(partition);
            columns.positions.push(position);
        }
        columns
    }
}

/// Messages whose ids came before with other content.
#[derive(Debug, Default)]
struct Conflicts<'a> {
    ids: Vec<Uuid>,
    origin_ids: Vec<i64>,
    message_ids: Vec<&'a str>,
    source_systems: Vec<&'a str>,
    event_types: Vec<Option<&'a str>>,
    msg_keys: Vec<&'a str>,
    payloads: Vec<String>,
    headers: Vec<String>,
}

impl<'a> Conflicts<'a> {
    fn push(&mut self, message: &'a NewInbox, raw: Option<&str>, stored: i64) {
        let payload = match &message.content {
            Content::Json(json) => json.clone(),
            // Base64 has nothing that JSON would have to escape.
            Content::Undecodable { .. } => format!("\"{}\"", raw.unwrap_or_default()),
        };
        self.ids.push(conflict_id(message, &payload));
        self.origin_ids.push(stored);
        self.message_ids.push(&message.message_id);
        self.source_systems.push(&message.source_system);
        self.event_types.push(message.event_type.as_deref());
        self.msg_keys.push(&message.msg_key);
        self.payloads.push(payload);
        self.headers.push(message.headers.to_json());
    }
}

/// The same content under the same id is the same dead letter, on every node and every time.
fn conflict_id(message: &NewInbox, payload: &str) -> Uuid {
    let text = format!("{}\0{}\0{payload}", message.source_system, message.message_id);
    let hash = text::sha256_hex(text.as_bytes());
    Uuid::try_parse(&hash[..32]).expect("32 hexadecimal digits are a UUID")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duplicate_is_expected_again_for_a_few_batches_only() {
        let hint = DuplicateHint::default();
        assert!(!hint.are_expected());
        hint.expect();
        for _ in 0..DUPLICATE_BATCHES {
            assert!(hint.are_expected());
            hint.saw_none();
        }
        assert!(!hint.are_expected());
        hint.saw_none();
        assert!(!hint.are_expected(), "no count below none");
    }
}
