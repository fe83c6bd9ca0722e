//! Finds ids by their first digits. An ambiguous prefix is an error that lists the matches.

use relais_core::{
    inspect::{IDS_MAX, IdKind},
    store::StoreDriver,
};
use uuid::Uuid;

use crate::{args::IdPrefix, failure::CommandError};

/// Returns the only id of its kind with this prefix. A whole id is returned without a check.
pub(super) async fn only(
    store: &dyn StoreDriver,
    kind: IdKind,
    prefix: &IdPrefix,
) -> Result<Uuid, CommandError> {
    if let Some(id) = prefix.whole() {
        return Ok(id);
    }
    let found = store.ids_between(kind, prefix.low, prefix.high).await?;
    let (what, written) = (name(kind), &prefix.written);
    match found.as_slice() {
        [] => Err(CommandError::failed(format!("no {what} has an ID that begins with {written}"))),
        [only] => Ok(*only),
        several => Err(ambiguous(what, written, several)),
    }
}

/// Returns the only id of any kind with this prefix.
pub(super) async fn any(
    store: &dyn StoreDriver,
    prefix: &IdPrefix,
) -> Result<Option<Uuid>, CommandError> {
    let mut found = Vec::new();
    for kind in [IdKind::DeadLetter, IdKind::Process, IdKind::Message] {
        found.extend(store.ids_between(kind, prefix.low, prefix.high).await?);
    }
    found.sort_unstable();
    found.dedup();
    match found.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(*only)),
        several => Err(ambiguous("ID", &prefix.written, several)),
    }
}

fn ambiguous(what: &str, written: &str, ids: &[Uuid]) -> CommandError {
    let more = if ids.len() >= IDS_MAX { " and more" } else { "" };
    let ids: Vec<String> = ids.iter().map(Uuid::to_string).collect();
    CommandError::Usage(format!(
        "{written} matches more than one {what}: {}{more}; pass more digits",
        ids.join(", ")
    ))
}

fn name(kind: IdKind) -> &'static str {
    match kind {
        IdKind::DeadLetter => "dead letter",
        IdKind::Process => "process",
        IdKind::Message => "message",
    }
}
