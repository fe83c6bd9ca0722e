//! Refresh tokens that the org replaces at every use, kept in the database.
//!
//! Invariant: a token is used only by who holds its lease, and the lease ends only after the token that
//! replaces it is stored. What is stored is encrypted, and bound to the login it is for.

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
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::classify::{Class, Failure};
use crate::Secret;

/// Fewest characters of the text a key is made of.
const KEY_CHARS_MIN: usize = 32;
/// How long an exchange of tokens may take before another process takes over: twice a call's time.
const LEASE: Duration = Duration::from_secs(60);
/// How long to wait for another process, and how often to look.
const WAIT_MAX: Duration = Duration::from_secs(70);
const WAIT_STEP: Duration = Duration::from_millis(100);
/// How often a new token is tried to be stored before it is only remembered.
const STORE_TRIES: u32 = 20;
const STORE_PAUSE: Duration = Duration::from_millis(500);

/// Encrypts refresh tokens in the database.
#[derive(Clone)]
pub struct TokenKey([u8; 32]);

impl TokenKey {
    /// Makes a key of a secret text. The error says what is wrong with it, not what it is.
    pub fn new(secret: &Secret) -> Result<Self, InvalidSettings> {
        if secret.reveal().chars().count() < KEY_CHARS_MIN {
            return Err(InvalidSettings::new(format!(
                "`refresh_token_key` must have at least {KEY_CHARS_MIN} characters; \
                 `openssl rand -base64 32` makes one"
            )));
        }
        Ok(Self(Sha256::digest(secret.reveal().as_bytes()).into()))
    }

    fn seal(&self, name: &str, token: &Secret) -> Option<String> {
        let key = RandomizedNonceKey::new(&AES_256_GCM, &self.0).ok()?;
        let mut text = token.reveal().as_bytes().to_vec();
        let aad = Aad::from(name.as_bytes());
        let nonce = key.seal_in_place_append_tag(aad, &mut text).ok()?;
        Some(STANDARD.encode([nonce.as_ref().as_slice(), &text].concat()))
    }

    fn open(&self, name: &str, sealed: &str) -> Option<Secret> {
        let key = RandomizedNonceKey::new(&AES_256_GCM, &self.0).ok()?;
        let mut bytes = STANDARD.decode(sealed).ok()?;
        let (nonce, text) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let text = key.open_in_place(nonce, Aad::from(name.as_bytes()), text).ok()?;
        Some(Secret::new(String::from_utf8(text.to_vec()).ok()?))
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey([hidden])")
    }
}

/// Keeps refresh tokens where every process finds them. Clones are the same vault.
#[derive(Clone)]
pub struct TokenVault(Arc<Vault>);

struct Vault {
    credentials: Arc<dyn Credentials>,
    key: TokenKey,
    /// Tokens that could not be stored, with the version they replace.
    unsaved: Mutex<HashMap<String, (i64, Secret)>>,
}

/// The lease of one token.
#[derive(Debug)]
pub(super) struct HeldToken {
    name: String,
    owner: String,
    version: i64,
    /// `None`: the one of the settings was not replaced yet.
    pub(super) token: Option<Secret>,
}

impl TokenVault {
    pub fn new(credentials: Arc<dyn Credentials>, key: TokenKey) -> Self {
        Self(Arc::new(Vault { credentials, key, unsaved: Mutex::default() }))
    }

    /// Takes the lease of a token, after the process that holds it.
    pub(super) async fn take(&self, name: &str) -> Result<HeldToken, Failure> {
        let owner = Uuid::now_v7().to_string();
        let Credential { version, sealed } = self.lease(name, &owner).await?;
        let mut held = HeldToken { name: name.to_owned(), owner, version, token: None };
        let unsaved = self.unsaved().get(name).filter(|(from, _)| *from == version).cloned();
        held.token = match (unsaved, sealed) {
            (Some((_, token)), _) => Some(token),
            (None, None) => None,
            (None, Some(sealed)) => match self.0.key.open(name, &sealed) {
                Some(token) => Some(token),
                None => {
                    self.release(&held).await;
                    return Err(Failure::new(
                        Class::Settings,
                        "REFRESH_TOKEN_SEALED",
                        "the stored refresh token cannot be decrypted; set `refresh_token_key` to \
                         the key it was stored with, or sign in again and set a new `refresh_token`",
                    ));
                }
            },
        };
        Ok(held)
    }

    async fn lease(&self, name: &str, owner: &str) -> Result<Credential, Failure> {
        let until = Instant::now() + WAIT_MAX;
        loop {
            let taken =
                self.0.credentials.take_credential(name.to_owned(), owner.to_owned(), LEASE);
            match taken.await.map_err(away)? {
                Some(credential) => return Ok(credential),
                None if Instant::now() < until => sleep(WAIT_STEP).await,
                None => {
                    let why = "another process is replacing the refresh token for too long";
                    return Err(Failure::new(Class::Down, "REFRESH_TOKEN_BUSY", why));
                }
            }
        }
    }

    /// Stores the token that replaces the held one, and ends the lease.
    pub(super) async fn keep(&self, mut held: HeldToken, token: Secret) {
        let Some(sealed) = self.0.key.seal(&held.name, &token) else { return };
        // If all else fails this process at least can go on.
        let name = held.name.clone();
        self.unsaved().insert(name.clone(), (held.version, token));
        for _ in 0..STORE_TRIES {
            match self.replace(&mut held, &sealed).await {
                Ok(()) => {
                    self.unsaved().remove(&name);
                    return;
                }
                Err(failure) => tracing::warn!(why = failure.problem.message, "token not stored"),
            }
            sleep(STORE_PAUSE).await;
        }
        tracing::error!(
            "could not store the refresh token that replaced the old one; until it is stored, a \
             restart needs a new sign-in"
        );
    }

    async fn replace(&self, held: &mut HeldToken, sealed: &str) -> Result<(), Failure> {
        let HeldToken { name, owner, version, .. } = &*held;
        let (name, owner) = (name.clone(), owner.clone());
        let stored = self.0.credentials.replace_credential(
            name.clone(),
            owner.clone(),
            *version,
            sealed.to_owned(),
        );
        if stored.await.map_err(away)? {
            return Ok(());
        }
        // The lease was lost. Who took it could not use the old token any more.
        let found = self.lease(&name, &owner).await?;
        if found.version == held.version {
            return Err(Failure::new(Class::Down, "LEASE_LOST", "its lease was lost; taken again"));
        }
        self.release(held).await;
        Ok(())
    }

    /// Ends the lease; the token stays.
    pub(super) async fn release(&self, held: &HeldToken) {
        let (name, owner) = (held.name.clone(), held.owner.clone());
        // Else it runs out.
        let _ = self.0.credentials.release_credential(name, owner).await;
    }

    fn unsaved(&self) -> MutexGuard<'_, HashMap<String, (i64, Secret)>> {
        self.0.unsaved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TokenVault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenVault")
    }
}

fn away(error: StoreError) -> Failure {
    Failure::new(Class::Down, "DATABASE_AWAY", &error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> TokenKey {
        TokenKey::new(&Secret::new(text)).unwrap()
    }

    #[test]
    fn a_token_is_opened_by_its_key_and_for_its_login_only() {
        let one = key("a text of at least thirty-two characters");
        let sealed = one.seal("org", &Secret::new("r3fresh")).unwrap();
        assert!(!sealed.contains("r3fresh"));
        assert_ne!(sealed, one.seal("org", &Secret::new("r3fresh")).unwrap(), "no nonce twice");
        assert_eq!(one.open("org", &sealed).unwrap().reveal(), "r3fresh");
        assert!(one.open("another org", &sealed).is_none());
        assert!(
            key("another text of at least thirty-two characters").open("org", &sealed).is_none()
        );
        for broken in ["", "AAAA", "no Base64!", &sealed[4..]] {
            assert!(one.open("org", broken).is_none(), "{broken}");
        }
        let why = TokenKey::new(&Secret::new("short")).unwrap_err().to_string();
        assert!(why.contains("32 characters") && !why.contains("short"), "{why}");
    }
}
