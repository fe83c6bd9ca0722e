//! Finds ids by their first characters. An ambiguous prefix is an error that lists the matches.

use relais_core::{
    id_prefix::{IdKind, IdPrefix},
    store::StoreDriver,
};
use uuid::Uuid;

use crate::failure::CommandError;

/// Returns the only UUID with this prefix. A whole id is returned without a check.
pub(super) async fn only(store: &dyn StoreDriver, prefix: &IdPrefix) -> Result<Uuid, CommandError> {
    if let Some(id) = prefix.whole() {
        return Ok(id);
    }
    let found = find(store, prefix).await?;
    found.as_deref().and_then(|id| Uuid::try_parse(id).ok()).ok_or_else(|| {
        let (noun, written) = (prefix.kind().noun(), prefix.written());
        CommandError::failed(format!("no {noun} has an ID that begins with {written}"))
    })
}

/// Returns the only id with this prefix, or `None`.
pub(super) async fn find(
    store: &dyn StoreDriver,
    prefix: &IdPrefix,
) -> Result<Option<String>, CommandError> {
    let found = store.ids_with(prefix.clone()).await?;
    prefix.only(found).map_err(|error| CommandError::Usage(error.to_string()))
}

/// Returns the only id of this kind that the text can mean; the text itself if it means none.
pub(super) async fn or_given(
    store: &dyn StoreDriver,
    kind: IdKind,
    text: String,
) -> Result<String, CommandError> {
    let Some(prefix) = IdPrefix::parse(kind, &text) else { return Ok(text) };
    Ok(find(store, &prefix).await?.unwrap_or(text))
}
