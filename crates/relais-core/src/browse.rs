//! What lists show of rows whose payloads may be of any size: the row, and only the beginning of what it
//! carries.

use serde::Serialize;

use crate::{
    dead_letter::DeadLetter,
    inbox::InboxRow,
    outbox::OutboxRow,
    query::Filter,
    store::{StoreError, StoreFuture},
};

/// Characters that are read of each payload.
pub const PREVIEW_CHARS: i64 = 200;

/// Rows that one page looks at, at most: what is rare is found page by page, and no page takes long however
/// long the history is.
pub const LOOK_MAX: i64 = 5_000;

/// How far back one page looks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// The last row it looks at, for [`Filter::down_to`]; absent if it may look at all there are.
    pub down_to: Option<String>,
    /// Where to look on, for [`Filter::before`]; absent if what comes cannot match.
    pub next: Option<String>,
}

/// A row as a list has it: its payload is cut after [`PREVIEW_CHARS`], and so are the bytes it came as and
/// the payload it had before an edit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed<T> {
    #[serde(flatten)]
    pub row: T,
    /// Bytes of the whole payload, or of what came if nobody could read it.
    pub payload_bytes: u64,
}

/// The store's side of lists for people: as the `list_` methods of [`Store`](crate::store::Store), newest
/// first and at most a page, but without the weight of the payloads.
pub trait Browse: Send + Sync {
    fn browse_inbox(&self, filter: Filter) -> StoreFuture<'_, Vec<Listed<InboxRow>>>;
    fn browse_outbox(&self, filter: Filter) -> StoreFuture<'_, Vec<Listed<OutboxRow>>>;
    fn browse_dead_letters(&self, filter: Filter) -> StoreFuture<'_, Vec<Listed<DeadLetter>>>;

    /// How far back a page of this list is to look: [`LOOK_MAX`] rows, of those in trouble or open if it
    /// asks for these. Rows that wait have an index of their own and are looked at from end to end while
    /// there are no more than that.
    fn reach_inbox(&self, filter: Filter) -> StoreFuture<'_, Reach>;
    fn reach_outbox(&self, filter: Filter) -> StoreFuture<'_, Reach>;
    fn reach_dead_letters(&self, filter: Filter) -> StoreFuture<'_, Reach>;
}

/// A page that looks back no further than its [`Reach`], and where to look on.
pub async fn look_back<'a, T>(
    filter: Filter,
    reach: impl FnOnce(Filter) -> StoreFuture<'a, Reach>,
    browse: impl FnOnce(Filter) -> StoreFuture<'a, Vec<Listed<T>>>,
) -> Result<(Vec<Listed<T>>, Option<String>), StoreError> {
    let Reach { down_to, next } = reach(filter.clone()).await?;
    Ok((browse(Filter { down_to, ..filter }).await?, next))
}
