//! Which thing an id means.
//!
//! A number may be a row of the inbox, a row of the outbox, and a message id, and several sources or
//! destinations may have one message id: all of them are found, and the caller asks which one is meant.

use std::collections::HashSet;

use relais_core::{
    dead_letter::{DeadLetter, Origin},
    inbox::InboxRow,
    outbox::OutboxRow,
    process::{Process, ProcessRef},
    store::{Store, StoreError},
};
use uuid::Uuid;

use super::{Kind, Name};

/// Something the story can be about.
#[derive(Clone, Debug)]
pub(super) enum Row {
    Inbox(Box<InboxRow>),
    Outbox(Box<OutboxRow>),
    Process(Box<Process>),
    /// A message whose own row is gone, by its id.
    Gone(String),
}

impl Row {
    pub(super) fn name(&self) -> Name {
        match self {
            Self::Inbox(row) => Name::new(Kind::Inbox, row.id),
            Self::Outbox(row) => Name::new(Kind::Outbox, row.id),
            Self::Process(process) => Name::new(Kind::Process, process.process_id),
            Self::Gone(id) => Name::new(Kind::Message, id),
        }
    }

    pub(super) fn message_id(&self) -> String {
        match self {
            Self::Inbox(row) => row.message_id.clone(),
            Self::Outbox(row) => row.message_id.to_string(),
            Self::Process(process) => process.process_id.to_string(),
            Self::Gone(id) => id.clone(),
        }
    }
}

/// Everything with this id.
pub(super) async fn find(store: &dyn Store, asked: &str) -> Result<Vec<Row>, StoreError> {
    let asked = asked.trim();
    let (kind, id) = split(asked);
    let wanted = |one: Kind| kind.is_none_or(|kind| kind == one);
    let mut rows: Vec<Row> = Vec::new();
    if wanted(Kind::Inbox) {
        rows.extend(inbox_row(store, id).await?.map(boxed_inbox));
    }
    if wanted(Kind::Outbox) {
        rows.extend(outbox_row(store, id).await?.map(boxed_outbox));
    }
    if wanted(Kind::Message) {
        rows.extend(message(store, id).await?);
    }
    if wanted(Kind::Process) {
        rows.extend(process(store, id).await?);
    }
    if wanted(Kind::DeadLetter) {
        rows.extend(of_dead_letter(store, id).await?);
    }
    // A row whose number is its message id too is one thing.
    let mut names = HashSet::new();
    rows.retain(|row| names.insert(row.name()));
    Ok(rows)
}

/// `inbox:17` is a full name; `timer:…` or `sha256:…` are ids of messages.
fn split(asked: &str) -> (Option<Kind>, &str) {
    let named = Kind::ALL.into_iter().find_map(|kind| {
        let id = asked.strip_prefix(kind.as_str())?.strip_prefix(':')?;
        Some((Some(kind), id))
    });
    named.unwrap_or((None, asked))
}

fn boxed_inbox(row: InboxRow) -> Row {
    Row::Inbox(Box::new(row))
}

fn boxed_outbox(row: OutboxRow) -> Row {
    Row::Outbox(Box::new(row))
}

/// By its number.
async fn inbox_row(store: &dyn Store, id: &str) -> Result<Option<InboxRow>, StoreError> {
    let Ok(number) = id.parse::<i64>() else { return Ok(None) };
    Ok(store.find_inbox(id.to_owned()).await?.filter(|row| row.id == number))
}

/// By its number.
async fn outbox_row(store: &dyn Store, id: &str) -> Result<Option<OutboxRow>, StoreError> {
    let Ok(number) = id.parse::<i64>() else { return Ok(None) };
    Ok(store.find_outbox(id.to_owned()).await?.filter(|row| row.id == number))
}

/// By its message id: where it began, if it is in both tables; of every destination or source system
/// that has it.
async fn message(store: &dyn Store, id: &str) -> Result<Vec<Row>, StoreError> {
    let rows = sent_as(store, id).await?;
    if !rows.is_empty() {
        return Ok(rows.into_iter().map(boxed_outbox).collect());
    }
    let rows = store.received_as(id.to_owned()).await?;
    if !rows.is_empty() {
        return Ok(rows.into_iter().map(boxed_inbox).collect());
    }
    let known = !store.caused_by(id.to_owned()).await?.is_empty()
        || !store.process_log_of(id.to_owned()).await?.is_empty()
        || store.dead_letters_of(id.to_owned()).await?.iter().any(|l| l.origin != Origin::Process);
    Ok(known.then(|| Row::Gone(id.to_owned())).into_iter().collect())
}

/// The outbox row of a message: the oldest, where several destinations have one with this id.
pub(super) async fn sent(store: &dyn Store, id: &str) -> Result<Option<OutboxRow>, StoreError> {
    Ok(sent_as(store, id).await?.into_iter().next())
}

async fn sent_as(store: &dyn Store, id: &str) -> Result<Vec<OutboxRow>, StoreError> {
    let Ok(message_id) = Uuid::try_parse(id) else { return Ok(Vec::new()) };
    store.sent_as(message_id).await
}

/// The inbox row of a message: the newest, where several sources use the same id.
pub(super) async fn received(store: &dyn Store, id: &str) -> Result<Option<InboxRow>, StoreError> {
    Ok(store.received_as(id.to_owned()).await?.pop())
}

/// By its id, or by `TYPE/BUSINESS-KEY`.
async fn process(store: &dyn Store, id: &str) -> Result<Option<Row>, StoreError> {
    let wanted = match (Uuid::try_parse(id), id.split_once('/')) {
        (Ok(id), _) => ProcessRef::Id(id),
        (Err(_), Some((process_type, key))) if !process_type.is_empty() && !key.is_empty() => {
            ProcessRef::Key { process_type: process_type.into(), business_key: key.into() }
        }
        _ => return Ok(None),
    };
    let found = store.load_processes(vec![wanted]).await?.pop().flatten();
    Ok(found.map(|process| Row::Process(Box::new(process))))
}

pub(super) async fn load(store: &dyn Store, id: Uuid) -> Result<Option<Process>, StoreError> {
    Ok(store.load_processes(vec![ProcessRef::Id(id)]).await?.pop().flatten())
}

/// What a dead letter is about.
async fn of_dead_letter(store: &dyn Store, id: &str) -> Result<Option<Row>, StoreError> {
    let Ok(id) = Uuid::try_parse(id) else { return Ok(None) };
    let Some(letter) = store.find_dead_letter(id).await? else { return Ok(None) };
    let DeadLetter { origin, origin_id, message_id, .. } = letter;
    let row = origin_id.unwrap_or_default().to_string();
    let found = match origin {
        Origin::Inbox => inbox_row(store, &row).await?.map(boxed_inbox),
        Origin::Outbox => outbox_row(store, &row).await?.map(boxed_outbox),
        Origin::Process => process(store, &message_id).await?,
    };
    Ok(Some(found.unwrap_or(Row::Gone(message_id))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_name_is_told_from_an_id_with_a_colon() {
        assert_eq!(split("inbox:17"), (Some(Kind::Inbox), "17"));
        assert_eq!(split("dead-letter:x"), (Some(Kind::DeadLetter), "x"));
        assert_eq!(split("timer:0192"), (None, "timer:0192"));
        assert_eq!(split("message:inbox:17"), (Some(Kind::Message), "inbox:17"));
        assert_eq!(split("17"), (None, "17"));
    }
}
