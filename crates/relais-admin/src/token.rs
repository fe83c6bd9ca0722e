//! Tokens: who has which, and what it allows.
//!
//! Invariant: what is kept of a token is its SHA-256. A token has 256 random bits, so nobody finds it by
//! trying, and a slow hash would only be slow.

use std::{fmt, time::SystemTime};

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::Role;

/// The name of the token that several people share: whoever has it says who acts.
pub const SHARED_NAME: &str = "admin";

/// A token somebody was given.
#[derive(Clone)]
pub struct Token {
    /// Who has it; the actor of what is done with it.
    pub name: String,
    pub role: Role,
    /// SHA-256 of the token.
    pub sha256: [u8; 32],
    /// From when on it is no longer taken.
    pub expires: Option<SystemTime>,
}

impl Token {
    /// The one of `admin.token`.
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

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("name", &self.name)
            .field("role", &self.role)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

pub(crate) fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// The token somebody shows, if it is one of these and has not expired. Every one is compared, each in
/// constant time.
pub(crate) fn find<'a>(tokens: &'a [Token], shown: &str, now: SystemTime) -> Option<&'a Token> {
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
    fn a_token_is_found_until_it_expires_and_never_shown() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let mut ann = Token { name: "ann".into(), role: Role::Viewer, ..Token::shared("s3cret") };
        let found = |tokens: &[Token], secret| find(tokens, secret, now).map(|t| t.name.clone());
        let tokens = [Token::shared("other"), ann.clone()];
        assert_eq!(found(&tokens, "s3cret").as_deref(), Some("ann"));
        assert_eq!(found(&tokens, "s3cre"), None);
        assert_eq!(found(&[], ""), None);
        ann.expires = Some(now);
        assert_eq!(found(&[ann.clone()], "s3cret"), None);
        assert!(!format!("{ann:?}").contains("sha256"));
    }
}
