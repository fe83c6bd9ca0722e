//! Refresh tokens that the org rotates at every use, stored in the database.
//!
//! Invariant: only the holder of a token's lease uses it, and the lease ends only after the
//! replacement is stored. Stored tokens are encrypted, and bound to their login.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::{Engine, engine::general_purpose::STANDARD};
use relais_core::{
    InvalidSettings,
    credential::{Credential, Credentials},
    store::StoreError,
};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::classify::{Class, SalesforceFailure};

/// Minimum length of the text that a key is derived from.
const KEY_CHARS_MIN: usize = 32;
/// Time limit of a token exchange before another process takes over: twice the time of a call.
const LEASE: Duration = Duration::from_secs(60);
/// Time to wait for another process, and the poll interval.
const WAIT_MAX: Duration = Duration::from_secs(70);
const WAIT_STEP: Duration = Duration::from_millis(100);
/// Number of tries to store a new token before it is only kept in memory.
const STORE_TRIES: u32 = 20;
const STORE_PAUSE: Duration = Duration::from_millis(500);

/// Encrypts refresh tokens in the database.
#[derive(Clone)]
pub struct TokenKey([u8; 32]);

impl TokenKey {
    /// Derives a key from a secret text. The error does not reveal the text.
    pub fn new(secret: &SecretString) -> Result<Self, InvalidSettings> {
        if secret.expose_secret().chars().count() < KEY_CHARS_MIN {
            return Err(InvalidSettings::new(format!(
                "`refresh_token_key` must have at least {KEY_CHARS_MIN} characters; \
                 `openssl rand -base64 32` makes one"
            )));
        }
        Ok(Self(Sha256::digest(secret.expose_secret().as_bytes()).into()))
    }

    fn seal(&self, name: &str, token: &SecretString) -> Option<String> {
        let key = RandomizedNonceKey::new(&AES_256_GCM, &self.0).ok()?;
        let mut text = token.expose_secret().as_bytes().to_vec();
        let aad = Aad::from(name.as_bytes());
        let nonce = key.seal_in_place_append_tag(aad, &mut text).ok()?;
        Some(STANDARD.encode([nonce.as_ref().as_slice(), &text].concat()))
    }

    fn open(&self, name: &str, sealed: &str) -> Option<SecretString> {
        let key = RandomizedNonceKey::new(&AES_256_GCM, &self.0).ok()?;
        let mut bytes = STANDARD.decode(sealed).ok()?;
        let (nonce, text) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let text = key.open_in_place(nonce, Aad::from(name.as_bytes()), text).ok()?;
        Some(SecretString::from(String::from_utf8(text.to_vec()).ok()?))
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey([hidden])")
    }
}

/// Stores refresh tokens for all processes. Clones are the same vault.
#[derive(Clone)]
pub struct TokenVault(Arc<VaultState>);

struct VaultState {
    credentials: Arc<dyn Credentials>,
    key: TokenKey,
    /// Tokens that could not be stored, with the version they replace.
    unsaved: Mutex<HashMap<String, (i64, SecretString)>>,
}

/// The lease of one token.
#[derive(Debug)]
pub(super) struct TokenLease {
    name: String,
    owner: String,
    version: i64,
    /// `None`: the configured token has not been replaced yet.
    pub(super) token: Option<SecretString>,
}

impl TokenVault {
    /// Keeps refresh tokens in `credentials`, encrypted with `key`.
    pub fn new(credentials: Arc<dyn Credentials>, key: TokenKey) -> Self {
        Self(Arc::new(VaultState { credentials, key, unsaved: Mutex::default() }))
    }

    /// Takes the lease of a token; waits for the process that holds it.
    pub(super) async fn take(&self, name: &str) -> Result<TokenLease, SalesforceFailure> {
        let owner = Uuid::now_v7().to_string();
        let Credential { version, sealed } = self.lease(name, &owner).await?;
        let mut held = TokenLease { name: name.to_owned(), owner, version, token: None };
        let unsaved = self.unsaved().get(name).filter(|(from, _)| *from == version).cloned();
        held.token = match (unsaved, sealed) {
            (Some((_, token)), _) => Some(token),
            (None, None) => None,
            (None, Some(sealed)) => match self.0.key.open(name, &sealed) {
                Some(token) => Some(token),
                None => {
                    self.release(&held).await;
                    return Err(SalesforceFailure::new(
                        Class::Settings,
                        "REFRESH_TOKEN_SEALED",
                        "cannot decrypt the stored refresh token; set `refresh_token_key` to \
                         the key it was stored with, or sign in again and set a new `refresh_token`",
                    ));
                }
            },
        };
        Ok(held)
    }

    async fn lease(&self, name: &str, owner: &str) -> Result<Credential, SalesforceFailure> {
        let until = Instant::now() + WAIT_MAX;
        loop {
            let taken =
                self.0.credentials.take_credential(name.to_owned(), owner.to_owned(), LEASE);
            match taken.await.map_err(unavailable)? {
                Some(credential) => return Ok(credential),
                None if Instant::now() < until => sleep(WAIT_STEP).await,
                None => {
                    let why = "another process holds the lease of the refresh token for too long";
                    return Err(SalesforceFailure::new(Class::Down, "REFRESH_TOKEN_BUSY", why));
                }
            }
        }
    }

    /// Stores the replacement of the leased token, and ends the lease.
    pub(super) async fn keep(&self, mut held: TokenLease, token: SecretString) {
        let Some(sealed) = self.0.key.seal(&held.name, &token) else { return };
        // Kept in memory so that at least this process can continue.
        let name = held.name.clone();
        self.unsaved().insert(name.clone(), (held.version, token));
        for _ in 0..STORE_TRIES {
            match self.replace(&mut held, &sealed).await {
                Ok(()) => {
                    self.unsaved().remove(&name);
                    return;
                }
                Err(failure) => tracing::warn!(
                    why = failure.problem.message,
                    "refresh token not stored; retrying"
                ),
            }
            sleep(STORE_PAUSE).await;
        }
        tracing::error!(
            "refresh token not stored after the last try; until it is stored, a restart needs a new \
             sign-in"
        );
    }

    async fn replace(&self, held: &mut TokenLease, sealed: &str) -> Result<(), SalesforceFailure> {
        let TokenLease { name, owner, version, .. } = &*held;
        let (name, owner) = (name.clone(), owner.clone());
        let stored = self.0.credentials.replace_credential(
            name.clone(),
            owner.clone(),
            *version,
            sealed.to_owned(),
        );
        if stored.await.map_err(unavailable)? {
            return Ok(());
        }
        // The lease was lost. Its new holder could not use the old token any more.
        let found = self.lease(&name, &owner).await?;
        if found.version == held.version {
            return Err(SalesforceFailure::new(
                Class::Down,
                "LEASE_LOST",
                "the lease was lost; taken again",
            ));
        }
        self.release(held).await;
        Ok(())
    }

    /// Ends the lease; the token stays.
    pub(super) async fn release(&self, held: &TokenLease) {
        let (name, owner) = (held.name.clone(), held.owner.clone());
        // Otherwise it expires.
        let _ = self.0.credentials.release_credential(name, owner).await;
    }

    fn unsaved(&self) -> MutexGuard<'_, HashMap<String, (i64, SecretString)>> {
        self.0.unsaved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TokenVault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenVault")
    }
}

fn unavailable(error: StoreError) -> SalesforceFailure {
    SalesforceFailure::new(Class::Down, "DATABASE_AWAY", &error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> TokenKey {
        TokenKey::new(&SecretString::from(text)).unwrap()
    }

    #[test]
    fn a_token_is_decrypted_only_with_its_key_and_for_its_login() {
        let one = key("a text of at least thirty-two characters");
        let sealed = one.seal("org", &SecretString::from("r3fresh")).unwrap();
        assert!(!sealed.contains("r3fresh"));
        assert_ne!(
            sealed,
            one.seal("org", &SecretString::from("r3fresh")).unwrap(),
            "no nonce twice"
        );
        assert_eq!(one.open("org", &sealed).unwrap().expose_secret(), "r3fresh");
        assert!(one.open("another org", &sealed).is_none());
        assert!(
            key("another text of at least thirty-two characters").open("org", &sealed).is_none()
        );
        for broken in ["", "AAAA", "no Base64!", &sealed[4..]] {
            assert!(one.open("org", broken).is_none(), "{broken}");
        }
        let why = TokenKey::new(&SecretString::from("short")).unwrap_err().to_string();
        assert!(why.contains("32 characters") && !why.contains("short"), "{why}");
    }
}
