//! One statement that writes a batch of outbox rows, in whatever transaction it is given.

use std::collections::HashMap;

use relais_core::{
    message::{MessageIdOrigin, NewMessage},
    store::StoreError,
};
use tokio_postgres::{GenericClient, types::Type};
use uuid::Uuid;

use super::{
    error::Failure,
    prepared::{self, TypedValue},
    row,
};

/// The statement behind `send`, for users of another driver. Its parameters, in order: message id
/// (UUID), category, aggregate type, aggregate id, event type, event version, payload (JSON), headers
/// (JSON), destination, key, delay in milliseconds or NULL, causation id, correlation id. Gives back
/// the row's id and message id; none if the destination has a message of this id already.
pub const ENQUEUE_SQL: &str = sql!("enqueue");
/// The same for many messages: one array for each parameter.
const ENQUEUE_ALL_SQL: &str = sql!("enqueue_all");
/// The statement of one message, by the origin of its id.
pub(super) fn of_one(message: &NewMessage) -> &'static str {
    match message.id_origin {
        MessageIdOrigin::Given => ENQUEUE_SQL,
        MessageIdOrigin::Generated => sql!("enqueue_new"),
    }
}

/// The statement of a batch: the cheaper one if no id was chosen by a sender.
pub(super) fn of_many(messages: &[&NewMessage]) -> &'static str {
    let generated = |message: &&NewMessage| message.id_origin == MessageIdOrigin::Generated;
    match messages.iter().all(generated) {
        true => sql!("enqueue_new_all"),
        false => ENQUEUE_ALL_SQL,
    }
}

/// Finds the rows of messages that were there before.
pub(super) const ENQUEUED_SQL: &str = sql!("enqueued");
/// Most rows of one statement; longer batches take several.
pub(super) const ENQUEUE_MAX: usize = 1_000;

/// Refuses messages without a destination. The table has no check for it: that would cost each send.
pub(super) fn check(messages: &[&NewMessage]) -> Result<(), Failure> {
    match messages.iter().find(|message| message.destination.is_empty()) {
        None => Ok(()),
        Some(message) => Err(StoreError::invalid(format!(
            "cannot send {}: it has no destination; name one",
            message.event_type
        ))
        .into()),
    }
}

/// Writes messages; their ids, in order. Two round trips only if some were there before.
pub(super) async fn enqueue<C: GenericClient>(
    client: &C,
    messages: &[&NewMessage],
) -> Result<Vec<i64>, Failure> {
    check(messages)?;
    let mut ids = Vec::with_capacity(messages.len());
    if let [message] = messages {
        ids.push(enqueue_one(client, message).await?);
    }
    let batches = if messages.len() == 1 { &[] } else { messages };
    for batch in batches.chunks(ENQUEUE_MAX) {
        let columns = Columns::of(batch);
        let values: [TypedValue<'_>; 13] = [
            (&columns.message_ids, Type::UUID_ARRAY),
            (&columns.categories, Type::TEXT_ARRAY),
            (&columns.aggregate_types, Type::TEXT_ARRAY),
            (&columns.aggregate_ids, Type::TEXT_ARRAY),
            (&columns.event_types, Type::TEXT_ARRAY),
            (&columns.event_versions, Type::INT4_ARRAY),
            (&columns.payloads, Type::TEXT_ARRAY),
            (&columns.headers, Type::TEXT_ARRAY),
            (&columns.destinations, Type::TEXT_ARRAY),
            (&columns.msg_keys, Type::TEXT_ARRAY),
            (&columns.delays_ms, Type::INT8_ARRAY),
            (&columns.causation_ids, Type::TEXT_ARRAY),
            (&columns.correlation_ids, Type::TEXT_ARRAY),
        ];
        let found = prepared::query(client, of_many(batch), &values).await?;
        let found = found.iter().map(|row| (row.get(1), row.get(2), row.get(0)));
        ids.extend(written(batch, found));
    }
    let before = missing(messages, &ids);
    let mut found = Vec::with_capacity(before.len());
    for batch in before.chunks(ENQUEUE_MAX) {
        let columns = Columns::of(batch);
        let values: [TypedValue<'_>; 5] = [
            (&columns.message_ids, Type::UUID_ARRAY),
            (&columns.destinations, Type::TEXT_ARRAY),
            (&columns.event_types, Type::TEXT_ARRAY),
            (&columns.msg_keys, Type::TEXT_ARRAY),
            (&columns.payloads, Type::TEXT_ARRAY),
        ];
        let rows = client.query_typed(ENQUEUED_SQL, &values).await?;
        found.extend(rows.iter().map(|row| row.get::<_, Option<i64>>(0)));
    }
    complete(ids, found)
}

/// One message: cheaper to plan than a batch, and most sends are one.
async fn enqueue_one<C: GenericClient>(
    client: &C,
    message: &NewMessage,
) -> Result<Option<i64>, Failure> {
    let (headers, delay_ms) = (message.headers.to_json(), message.delay.map(row::millis));
    let values: [TypedValue<'_>; 13] = [
        (&message.message_id, Type::UUID),
        (&message.category.as_str(), Type::TEXT),
        (&message.aggregate_type, Type::TEXT),
        (&message.aggregate_id, Type::TEXT),
        (&message.event_type, Type::TEXT),
        (&message.event_version, Type::INT4),
        (&message.payload, Type::TEXT),
        (&headers, Type::TEXT),
        (&message.destination, Type::TEXT),
        (&message.msg_key, Type::TEXT),
        (&delay_ms, Type::INT8),
        (&message.causation_id, Type::TEXT),
        (&message.correlation_id, Type::TEXT),
    ];
    let found = prepared::query(client, of_one(message), &values).await?;
    Ok(found.first().map(|row| row.get(0)))
}

/// The rows of the messages that were written just now. Of two messages with one id and destination the
/// first was: the second is compared with it, as with a row from before.
pub(super) fn written<'a>(
    messages: &'a [&NewMessage],
    found: impl Iterator<Item = (Uuid, &'a str, i64)>,
) -> impl Iterator<Item = Option<i64>> {
    let mut found: HashMap<_, _> = found.map(|(id, to, row)| ((id, to), row)).collect();
    messages.iter().map(move |m| found.remove(&(m.message_id, m.destination.as_str())))
}

/// The messages that have no row yet.
pub(super) fn missing<'a>(messages: &[&'a NewMessage], ids: &[Option<i64>]) -> Vec<&'a NewMessage> {
    messages.iter().zip(ids).filter(|(_, id)| id.is_none()).map(|(message, _)| *message).collect()
}

/// One id for each message: those written now, and those found of the missing ones.
pub(super) fn complete(
    ids: Vec<Option<i64>>,
    found: Vec<Option<i64>>,
) -> Result<Vec<i64>, Failure> {
    let mut found = found.into_iter();
    let ids = ids.into_iter().map(|id| id.or_else(|| found.next().flatten()));
    ids.collect::<Option<_>>().ok_or_else(|| {
        // Cleaned up between the two statements, or written by a transaction we cannot see.
        Failure::Again(StoreError::unavailable(
            "a message with this id existed and was removed; try again",
        ))
    })
}

/// Messages turned on their side.
#[derive(Debug, Default)]
pub(super) struct Columns<'a> {
    pub(super) message_ids: Vec<Uuid>,
    pub(super) categories: Vec<&'static str>,
    pub(super) aggregate_types: Vec<&'a str>,
    pub(super) aggregate_ids: Vec<&'a str>,
    pub(super) event_types: Vec<&'a str>,
    pub(super) event_versions: Vec<i32>,
    pub(super) payloads: Vec<&'a str>,
    pub(super) headers: Vec<String>,
    pub(super) destinations: Vec<&'a str>,
    pub(super) msg_keys: Vec<&'a str>,
    pub(super) delays_ms: Vec<Option<i64>>,
    pub(super) causation_ids: Vec<Option<&'a str>>,
    pub(super) correlation_ids: Vec<Option<&'a str>>,
}

impl<'a> Columns<'a> {
    pub(super) fn of(messages: &[&'a NewMessage]) -> Self {
        let mut columns = Self::default();
        for message in messages {
            columns.message_ids.push(message.message_id);
            columns.categories.push(message.category.as_str());
            columns.aggregate_types.push(&message.aggregate_type);
            columns.aggregate_ids.push(&message.aggregate_id);
            columns.event_types.push(&message.event_type);
            columns.event_versions.push(message.event_version);
            columns.payloads.push(&message.payload);
            columns.headers.push(message.headers.to_json());
            columns.destinations.push(&message.destination);
            columns.msg_keys.push(&message.msg_key);
            columns.delays_ms.push(message.delay.map(row::millis));
            columns.causation_ids.push(message.causation_id.as_deref());
            columns.correlation_ids.push(message.correlation_id.as_deref());
        }
        columns
    }
}
