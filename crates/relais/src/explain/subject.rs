//! Finds the thing with an id.
//!
//! A number may be a row of the inbox, a row of the outbox, and a message id, and several sources or
//! destinations may have one message id: all of them are found, and the caller chooses one.

use std::collections::HashSet;

use relais_core::{
    bulk::BulkJob,
    dead_letter::{DeadLetter, Origin, Resolution, STATUS_CONFLICT, retried_conflict_id},
    id_prefix::{IdKind, IdPrefix},
    inbox::{InboxRow, original_source},
    inspect::InspectExt,
    outbox::OutboxRow,
    process::{Process, ProcessRef},
    query::PAGE_MAX,
    store::{StoreDriver, StoreError},
};
use uuid::Uuid;

use super::{ThingKind, ThingName};

/// A row that can be explained.
#[derive(Clone, Debug)]
pub(super) enum SubjectRow {
    Inbox(Box<InboxRow>),
    Outbox(Box<OutboxRow>),
    Process(Box<Process>),
    Job(Box<BulkJob>),
    /// A message whose row was removed, by its id.
    Removed(String),
}

impl SubjectRow {
    pub(super) fn name(&self) -> ThingName {
        match self {
            Self::Inbox(row) => ThingName::new(ThingKind::Inbox, row.id),
            Self::Outbox(row) => ThingName::new(ThingKind::Outbox, row.id),
            Self::Process(process) => ThingName::new(ThingKind::Process, process.process_id),
            Self::Job(job) => ThingName::new(ThingKind::Job, job.id),
            Self::Removed(id) => ThingName::new(ThingKind::Message, id),
        }
    }

    /// Returns the id of the message; a process and a job have their own.
    pub(super) fn message_id(&self) -> String {
        match self {
            Self::Inbox(row) => row.message_id.clone(),
            Self::Outbox(row) => row.message_id.to_string(),
            Self::Process(process) => process.process_id.to_string(),
            Self::Job(job) => job.id.to_string(),
            Self::Removed(id) => id.clone(),
        }
    }
}

/// Returns everything with this id.
pub(super) async fn find(
    store: &dyn StoreDriver,
    name: &str,
) -> Result<Vec<SubjectRow>, StoreError> {
    let (kind, id) = split(name.trim());
    let wanted = |one: ThingKind| kind.is_none_or(|kind| kind == one);
    let mut rows: Vec<SubjectRow> = Vec::new();
    if wanted(ThingKind::Inbox) {
        rows.extend(inbox_row(store, id).await?.map(boxed_inbox));
    }
    if wanted(ThingKind::Outbox) {
        rows.extend(outbox_row(store, id).await?.map(boxed_outbox));
    }
    if wanted(ThingKind::Message) {
        rows.extend(message(store, id).await?);
    }
    if wanted(ThingKind::Process) {
        rows.extend(process(store, id).await?);
    }
    if wanted(ThingKind::DeadLetter) {
        rows.extend(of_dead_letter(store, id).await?);
    }
    if wanted(ThingKind::Job) && (kind.is_some() || rows.is_empty()) {
        let named =
            |job: &BulkJob| job.id.to_string() == id || job.remote_id.as_deref() == Some(id);
        rows.extend(jobs(store, named).await?);
    }
    // A row whose number is its message id too is one thing.
    Ok(distinct(rows))
}

/// Rows whose ids begin with a prefix.
pub(super) struct PrefixedRows {
    pub(super) rows: Vec<SubjectRow>,
    /// `true` if the only row may be another one than was meant.
    pub(super) is_doubtful: bool,
}

/// Returns everything whose id begins with this prefix, for a bounded number of ids of each kind.
pub(super) async fn find_by_prefix(
    store: &dyn StoreDriver,
    name: &str,
) -> Result<PrefixedRows, StoreError> {
    let (kind, prefix) = split(name.trim());
    let mut rows: Vec<SubjectRow> = Vec::new();
    let mut is_doubtful = false;
    for id_kind in IdKind::ALL {
        let found_as = match id_kind {
            IdKind::DeadLetter => ThingKind::DeadLetter,
            IdKind::Process => ThingKind::Process,
            IdKind::OutboxMessage | IdKind::InboxMessage => ThingKind::Message,
        };
        if kind.is_some_and(|kind| kind != found_as) {
            continue;
        }
        let Some(prefix) = IdPrefix::parse(id_kind, prefix) else { continue };
        for id in store.ids_with(prefix.clone()).await? {
            is_doubtful |= !prefix.means(&id);
            rows.extend(find(store, &ThingName::new(found_as, id).to_string()).await?);
        }
    }
    if kind.is_none_or(|kind| kind == ThingKind::Job)
        && let Some(prefix) = IdPrefix::parse(IdKind::Process, prefix)
    {
        let (first, last) = prefix.range();
        let within = |job: &BulkJob| (first..=last).contains(&job.id.to_string().as_str());
        rows.extend(jobs(store, within).await?);
    }
    Ok(PrefixedRows { rows: distinct(rows), is_doubtful })
}

/// Returns bulk jobs, of those that are open and the newest.
async fn jobs(
    store: &dyn StoreDriver,
    is_wanted: impl Fn(&BulkJob) -> bool,
) -> Result<Vec<SubjectRow>, StoreError> {
    let jobs = store.list_bulk(None, PAGE_MAX).await?.into_iter();
    Ok(jobs.filter(is_wanted).map(|job| SubjectRow::Job(Box::new(job))).collect())
}

/// Removes rows that were found twice.
fn distinct(mut rows: Vec<SubjectRow>) -> Vec<SubjectRow> {
    let mut names = HashSet::new();
    rows.retain(|row| names.insert(row.name()));
    rows
}

/// Splits a full name such as `inbox:17`; `timer:…` and `sha256:…` are ids of messages.
fn split(name: &str) -> (Option<ThingKind>, &str) {
    let named = ThingKind::ALL.into_iter().find_map(|kind| {
        let id = name.strip_prefix(kind.as_str())?.strip_prefix(':')?;
        Some((Some(kind), id))
    });
    named.unwrap_or((None, name))
}

fn boxed_inbox(row: InboxRow) -> SubjectRow {
    SubjectRow::Inbox(Box::new(row))
}

fn boxed_outbox(row: OutboxRow) -> SubjectRow {
    SubjectRow::Outbox(Box::new(row))
}

/// Returns an inbox row by its number.
async fn inbox_row(store: &dyn StoreDriver, id: &str) -> Result<Option<InboxRow>, StoreError> {
    let Ok(number) = id.parse::<i64>() else { return Ok(None) };
    Ok(store.find_inbox(id.to_owned()).await?.filter(|row| row.id == number))
}

/// Returns an outbox row by its number.
async fn outbox_row(store: &dyn StoreDriver, id: &str) -> Result<Option<OutboxRow>, StoreError> {
    let Ok(number) = id.parse::<i64>() else { return Ok(None) };
    Ok(store.find_outbox(id.to_owned()).await?.filter(|row| row.id == number))
}

/// Returns the rows of a message id, of every destination or source system that has it. If it is in both
/// tables, those of the outbox.
async fn message(store: &dyn StoreDriver, id: &str) -> Result<Vec<SubjectRow>, StoreError> {
    let trail = store.trail(id.to_owned()).await?;
    if !trail.sent.is_empty() {
        return Ok(trail.sent.into_iter().map(boxed_outbox).collect());
    }
    if !trail.received.is_empty() {
        return Ok(originals(trail.received).into_iter().map(boxed_inbox).collect());
    }
    let known = !trail.caused.is_empty()
        || !trail.process_log.is_empty()
        || trail.dead_letters.iter().any(|letter| letter.origin != Origin::Process);
    Ok(known.then(|| SubjectRow::Removed(id.to_owned())).into_iter().collect())
}

/// Leaves out the copies for subscribers (`@billing::shop`) beside the row itself: they are effects of it. A copy
/// whose row was removed stays.
fn originals(rows: Vec<InboxRow>) -> Vec<InboxRow> {
    let systems: HashSet<String> = rows.iter().map(|row| row.source_system.clone()).collect();
    let is_copy = |row: &InboxRow| {
        let original = original_source(&row.source_system);
        original != row.source_system && systems.contains(&original)
    };
    rows.into_iter().filter(|row| !is_copy(row)).collect()
}

/// Returns the copies of an inbox row for subscribers.
pub(super) async fn copies(
    store: &dyn StoreDriver,
    row: &InboxRow,
) -> Result<Vec<InboxRow>, StoreError> {
    let mut rows = store.trail(row.message_id.clone()).await?.received;
    rows.retain(|copy| {
        copy.id != row.id && original_source(&copy.source_system) == row.source_system
    });
    Ok(rows)
}

/// Returns the messages that operators made of conflicts with an inbox row.
pub(super) async fn retried_conflicts(
    store: &dyn StoreDriver,
    row: &InboxRow,
) -> Result<Vec<InboxRow>, StoreError> {
    let mut rows = Vec::new();
    for letter in store.trail(row.message_id.clone()).await?.dead_letters {
        let is_retried = letter.failed_status == STATUS_CONFLICT
            && letter.origin_id == Some(row.id)
            && letter.resolution.as_deref() == Some(Resolution::Retried.as_str());
        if is_retried && rows.len() < PAGE_MAX {
            let payload = letter.payload.unwrap_or_default();
            let id = retried_conflict_id(&row.message_id, &payload);
            let found = store.trail(id).await?.received.into_iter();
            rows.extend(found.filter(|found| found.source_system == row.source_system));
        }
    }
    Ok(rows)
}

/// Returns the outbox row of a message: the oldest, if several destinations have one with this id.
pub(super) async fn sent(
    store: &dyn StoreDriver,
    id: &str,
) -> Result<Option<OutboxRow>, StoreError> {
    Ok(store.trail(id.to_owned()).await?.sent.into_iter().next())
}

/// Returns the inbox row of a message: the newest, if several sources use the same id.
pub(super) async fn received(
    store: &dyn StoreDriver,
    id: &str,
) -> Result<Option<InboxRow>, StoreError> {
    Ok(originals(store.trail(id.to_owned()).await?.received).pop())
}

/// Returns a process by its id, or by `TYPE/BUSINESS-KEY`.
async fn process(store: &dyn StoreDriver, id: &str) -> Result<Option<SubjectRow>, StoreError> {
    let Ok(wanted) = id.parse::<ProcessRef>() else { return Ok(None) };
    let found = store.load_processes(vec![wanted]).await?.pop().flatten();
    Ok(found.map(|process| SubjectRow::Process(Box::new(process))))
}

pub(super) async fn load(store: &dyn StoreDriver, id: Uuid) -> Result<Option<Process>, StoreError> {
    Ok(store.load_processes(vec![ProcessRef::Id(id)]).await?.pop().flatten())
}

/// Returns the row of a dead letter.
async fn of_dead_letter(
    store: &dyn StoreDriver,
    id: &str,
) -> Result<Option<SubjectRow>, StoreError> {
    let Ok(id) = Uuid::try_parse(id) else { return Ok(None) };
    let Some(letter) = store.find_dead_letter(id).await? else { return Ok(None) };
    let DeadLetter { origin, origin_id, message_id, .. } = letter;
    let row = origin_id.unwrap_or_default().to_string();
    let found = match origin {
        Origin::Inbox => inbox_row(store, &row).await?.map(boxed_inbox),
        Origin::Outbox => outbox_row(store, &row).await?.map(boxed_outbox),
        Origin::Process => process(store, &message_id).await?,
    };
    Ok(Some(found.unwrap_or(SubjectRow::Removed(message_id))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_name_is_distinguished_from_an_id_with_a_colon() {
        assert_eq!(split("inbox:17"), (Some(ThingKind::Inbox), "17"));
        assert_eq!(split("dead-letter:x"), (Some(ThingKind::DeadLetter), "x"));
        assert_eq!(split("timer:0192"), (None, "timer:0192"));
        assert_eq!(split("message:inbox:17"), (Some(ThingKind::Message), "inbox:17"));
        assert_eq!(split("17"), (None, "17"));
    }
}
