//! Finds a row by its number or by the id of its message.
//!
//! A number may be both, and two sources or destinations may have one message id. Such an ambiguous id is an error
//! that lists the full names of the rows.

use relais_core::{
    id_prefix::{IdKind, IdPrefix},
    inbox::InboxRow,
    inspect::InspectExt,
    outbox::OutboxRow,
    store::StoreDriver,
};
use uuid::Uuid;

use super::not_found;
use crate::{
    commands::ids,
    failure::CommandError,
    output::{LineBreaks, escape},
};

const MESSAGE: &str = "message:";

/// The parsed id of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowQuery<'a> {
    Row(i64),
    Message(&'a str),
    /// A number may be either.
    Either(i64, &'a str),
}

/// Parses `17`, `inbox:17` (with `inbox` as `table`), `message:17` and `m-1`.
fn row_query<'a>(table: &str, id: &'a str) -> RowQuery<'a> {
    if let Some(message) = id.strip_prefix(MESSAGE) {
        return RowQuery::Message(message);
    }
    let named = id.strip_prefix(table).and_then(|rest| rest.strip_prefix(':'));
    if let Some(row) = named.and_then(|row| row.parse().ok()) {
        return RowQuery::Row(row);
    }
    match id.parse() {
        Ok(number) => RowQuery::Either(number, id),
        Err(_) => RowQuery::Message(id),
    }
}

pub(in crate::commands) async fn inbox_row(
    store: &dyn StoreDriver,
    id: &str,
) -> Result<InboxRow, CommandError> {
    let (number, message) = match row_query("inbox", id) {
        RowQuery::Row(number) => (Some(number), None),
        RowQuery::Message(message) => (None, Some(message)),
        RowQuery::Either(number, message) => (Some(number), Some(message)),
    };
    let mut found = Vec::new();
    if let Some(number) = number {
        let row = store.find_inbox(number.to_string()).await?;
        found.extend(row.filter(|row| row.id == number));
    }
    if let Some(message) = message {
        let rows = store.trail(message.to_owned()).await?.received;
        found.extend(rows.into_iter().filter(|row| Some(row.id) != number));
        if found.is_empty()
            && let Some(message) = by_prefix(store, IdKind::InboxMessage, message).await?
        {
            found = store.trail(message).await?.received;
        }
    }
    match found.len() {
        0 => Err(not_found("inbox", id)),
        1 => Ok(found.remove(0)),
        _ => {
            let about =
                |row: &InboxRow| format!("message {} from {}", row.message_id, row.source_system);
            let named = found.iter().map(|row| (row.id, about(row)));
            Err(ambiguous(id, "inbox", &named.collect::<Vec<_>>()))
        }
    }
}

fn ambiguous(id: &str, table: &str, rows: &[(i64, String)]) -> CommandError {
    let named = rows.iter().map(|(row, what)| format!("{table}:{row} is {what}"));
    let named = escape(&named.collect::<Vec<_>>().join(", "), LineBreaks::Escape);
    CommandError::Usage(format!(
        "{id} matches {} rows: {named}; pass one of these names, for example {table}:{}",
        rows.len(),
        rows[0].0
    ))
}

/// Returns the only message id that begins with this text.
async fn by_prefix(
    store: &dyn StoreDriver,
    kind: IdKind,
    text: &str,
) -> Result<Option<String>, CommandError> {
    match IdPrefix::parse(kind, text) {
        Some(prefix) => ids::find(store, &prefix).await,
        None => Ok(None),
    }
}

/// Finds the rows of the only message whose id begins with these digits.
async fn of_digits(store: &dyn StoreDriver, digits: &str) -> Result<Vec<OutboxRow>, CommandError> {
    match by_prefix(store, IdKind::OutboxMessage, digits).await? {
        Some(message) => Ok(store.trail(message).await?.sent),
        None => Ok(Vec::new()),
    }
}

/// Finds an outbox row. Message ids of the outbox are UUIDs: a number is a row, or the first digits of one.
pub(in crate::commands) async fn outbox_row(
    store: &dyn StoreDriver,
    id: &str,
) -> Result<OutboxRow, CommandError> {
    let mut found = match row_query("outbox", id) {
        RowQuery::Row(number) => store.find_outbox(number.to_string()).await?.into_iter().collect(),
        RowQuery::Either(number, digits) => match store.find_outbox(number.to_string()).await? {
            Some(row) => vec![row],
            None => of_digits(store, digits).await?,
        },
        RowQuery::Message(message) => match Uuid::try_parse(message) {
            Ok(_) => store.trail(message.to_owned()).await?.sent,
            Err(_) => of_digits(store, message).await?,
        },
    };
    match found.len() {
        0 => Err(not_found("outbox", id)),
        1 => Ok(found.remove(0)),
        _ => {
            let named = found.iter().map(|row| (row.id, format!("to {}", row.destination)));
            Err(ambiguous(id, "outbox", &named.collect::<Vec<_>>()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_names_are_distinguished_from_message_ids() {
        assert_eq!(row_query("inbox", "17"), RowQuery::Either(17, "17"));
        assert_eq!(row_query("inbox", "inbox:17"), RowQuery::Row(17));
        assert_eq!(row_query("inbox", "message:17"), RowQuery::Message("17"));
        assert_eq!(row_query("inbox", "m-1"), RowQuery::Message("m-1"));
        assert_eq!(row_query("outbox", "inbox:17"), RowQuery::Message("inbox:17"));
    }
}
