//! The seam to secrets that a target replaces while relais runs, such as rotated refresh tokens.
//!
//! Invariant: who replaces a secret holds its lease from before it is used until the new one is stored,
//! so two processes never use the same one. The store gets encrypted text only.

use std::time::Duration;

use crate::{async_trait, store::StoreResult};

/// A stored secret, as it was when its lease was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// Raised by every change; 0 before the first.
    pub version: i64,
    /// Encrypted by the caller. `None` before the first change.
    pub sealed: Option<String>,
}

/// Secrets in the database, by name. Every method is one transaction; only database time decides.
#[async_trait]
pub trait Credentials: Send + Sync {
    /// Takes the lease of a secret and reads it. `None`: another owner holds it.
    async fn take_credential(
        &self,
        name: String,
        owner: String,
        lease: Duration,
    ) -> StoreResult<Option<Credential>>;

    /// Replaces the secret and ends the lease, if the owner still holds it and the version is the one
    /// that was read. `false`: nothing was changed.
    async fn replace_credential(
        &self,
        name: String,
        owner: String,
        version: i64,
        sealed: String,
    ) -> StoreResult<bool>;

    /// Ends the lease without a change.
    async fn release_credential(&self, name: String, owner: String) -> StoreResult<()>;
}
