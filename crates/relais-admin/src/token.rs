//! Tokens with their names and roles.
//!
//! Invariant: only the SHA-256 of a token is stored. A token has 256 random bits, so it cannot be guessed, and
//! a slow hash would add nothing.

use std::{fmt, time::SystemTime};

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::Role;

/// The name of the shared token `admin.token`, whose users name the actor in each request.
pub const SHARED_NAME: &str = "admin";

/// A configured token.
#[derive(Clone)]
pub struct AdminToken {
    /// The owner, recorded as the actor of decisions.
    pub name: String,
    /// The rights of the token.
    pub role: Role,
    /// SHA-256 of the token.
    pub sha256: [u8; 32],
    /// The time of expiry.
    pub expires: Option<SystemTime>,
}

impl AdminToken {
    /// Returns the token of `admin.token`.
    pub fn shared(secret: &str) -> Self {
        let (name, sha256) = (SHARED_NAME.to_owned(), hash(secret));
        Self { name, role: Role::Admin, sha256, expires: None }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.name == SHARED_NAME && self.role == Role::Admin
    }

    pub(crate) fn has_expired(&self, now: SystemTime) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminToken")
            .field("name", &self.name)
            .field("role", &self.role)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

pub(crate) fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// Finds the configured token that equals a presented one and has not expired. All of them are compared, each
/// in constant time.
pub(crate) fn find<'a>(
    tokens: &'a [AdminToken],
    shown: &str,
    now: SystemTime,
) -> Option<&'a AdminToken> {
    let shown = hash(shown);
    let mut found = None;
    for token in tokens {
        if bool::from(token.sha256.ct_eq(&shown)) {
            found = Some(token);
        }
    }
    found.filter(|token| !token.has_expired(now))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_token_is_found_until_it_expires_and_is_never_printed() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let mut ann =
            AdminToken { name: "ann".into(), role: Role::Viewer, ..AdminToken::shared("s3cret") };
        let found =
            |tokens: &[AdminToken], secret| find(tokens, secret, now).map(|t| t.name.clone());
        let tokens = [AdminToken::shared("other"), ann.clone()];
        assert_eq!(found(&tokens, "s3cret").as_deref(), Some("ann"));
        assert_eq!(found(&tokens, "s3cre"), None);
        assert_eq!(found(&[], ""), None);
        ann.expires = Some(now);
        assert_eq!(found(&[ann.clone()], "s3cret"), None);
        assert!(!format!("{ann:?}").contains("sha256"));
    }
}
