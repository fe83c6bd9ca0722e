//! Which id is meant by its first digits. Nothing is guessed: several that begin so are named.

use relais_core::{
    desk::{IDS_MAX, IdKind},
    store::Store,
};
use uuid::Uuid;

use crate::{args::IdPrefix, failure::Failure};

/// The only id of its kind that begins so. One that is given whole need not be there.
pub(super) async fn only(
    store: &dyn Store,
    kind: IdKind,
    prefix: &IdPrefix,
) -> Result<Uuid, Failure> {
    if let Some(id) = prefix.whole() {
        return Ok(id);
    }
    let found = store.ids_between(kind, prefix.low, prefix.high).await?;
    let (what, written) = (name(kind), &prefix.written);
    match found.as_slice() {
        [] => Err(Failure::failed(format!("no {what} has an id that begins with {written}"))),
        [only] => Ok(*only),
        several => Err(ambiguous(what, written, several)),
    }
}

/// Every id that begins so, with its kind.
pub(super) async fn any(store: &dyn Store, prefix: &IdPrefix) -> Result<Option<Uuid>, Failure> {
    let mut found = Vec::new();
    for kind in [IdKind::DeadLetter, IdKind::Process, IdKind::Message] {
        found.extend(store.ids_between(kind, prefix.low, prefix.high).await?);
    }
    found.sort_unstable();
    found.dedup();
    match found.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(*only)),
        several => Err(ambiguous("thing", &prefix.written, several)),
    }
}

fn ambiguous(what: &str, written: &str, ids: &[Uuid]) -> Failure {
    let more = if ids.len() >= IDS_MAX { " and more" } else { "" };
    let ids: Vec<String> = ids.iter().map(Uuid::to_string).collect();
    Failure::Usage(format!(
        "{written} is the beginning of more than one {what}: {}{more}; give more digits",
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
