//! Which row is meant: by its number, or by the id of its message.
//!
//! A number may be both, and two sources or destinations may have one message id. Then nothing is guessed: the names of the
//! rows are said, as `relais explain` writes them.

use relais_core::{desk::IdKind, inbox::InboxRow, outbox::OutboxRow, store::Store};
use uuid::Uuid;

use super::not_found;
use crate::{
    args::IdPrefix,
    commands::ids,
    failure::Failure,
    output::{Lines, escape},
};

const MESSAGE: &str = "message:";

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked<'a> {
    Row(i64),
    Message(&'a str),
    /// A number may be either.
    Either(i64, &'a str),
}

/// Reads `17`, `inbox:17` (where `table` is `inbox`), `message:17` and `m-1`.
fn asked<'a>(table: &str, id: &'a str) -> Asked<'a> {
    if let Some(message) = id.strip_prefix(MESSAGE) {
        return Asked::Message(message);
    }
    let named = id.strip_prefix(table).and_then(|rest| rest.strip_prefix(':'));
    if let Some(row) = named.and_then(|row| row.parse().ok()) {
        return Asked::Row(row);
    }
    match id.parse() {
        Ok(number) => Asked::Either(number, id),
        Err(_) => Asked::Message(id),
    }
}

pub(in crate::commands) async fn inbox_row(
    store: &dyn Store,
    id: &str,
) -> Result<InboxRow, Failure> {
    let (number, message) = match asked("inbox", id) {
        Asked::Row(number) => (Some(number), None),
        Asked::Message(message) => (None, Some(message)),
        Asked::Either(number, message) => (Some(number), Some(message)),
    };
    let mut found = Vec::new();
    if let Some(number) = number {
        let row = store.find_inbox(number.to_string()).await?;
        found.extend(row.filter(|row| row.id == number));
    }
    if let Some(message) = message {
        let rows = store.received_as(message.to_owned()).await?;
        found.extend(rows.into_iter().filter(|row| Some(row.id) != number));
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

fn ambiguous(id: &str, table: &str, rows: &[(i64, String)]) -> Failure {
    let named = rows.iter().map(|(row, what)| format!("{table}:{row} is {what}"));
    let named = escape(&named.collect::<Vec<_>>().join(", "), Lines::Escape);
    Failure::Usage(format!(
        "{id} is {} rows: {named}; say which, as in {table}:{}",
        rows.len(),
        rows[0].0
    ))
}

/// The id of a message is a UUID there, so a number is a row.
pub(in crate::commands) async fn outbox_row(
    store: &dyn Store,
    id: &str,
) -> Result<OutboxRow, Failure> {
    let mut found = match asked("outbox", id) {
        Asked::Row(number) | Asked::Either(number, _) => {
            store.find_outbox(number.to_string()).await?.into_iter().collect()
        }
        Asked::Message(message) => match Uuid::try_parse(message) {
            Ok(message_id) => store.sent_as(message_id).await?,
            Err(_) => match IdPrefix::parse(message) {
                Some(prefix) => {
                    let only = ids::only(store, IdKind::Message, &prefix).await?;
                    store.sent_as(only).await?
                }
                None => Vec::new(),
            },
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
    fn full_names_are_told_from_ids_of_messages() {
        assert_eq!(asked("inbox", "17"), Asked::Either(17, "17"));
        assert_eq!(asked("inbox", "inbox:17"), Asked::Row(17));
        assert_eq!(asked("inbox", "message:17"), Asked::Message("17"));
        assert_eq!(asked("inbox", "m-1"), Asked::Message("m-1"));
        assert_eq!(asked("outbox", "inbox:17"), Asked::Message("inbox:17"));
    }
}
