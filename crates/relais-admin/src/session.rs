//! Sessions of people: a signed cookie, and nothing kept here.
//!
//! Invariant: a session is as good as the token it was begun with; taking that away ends it. It is signed
//! with a secret of its own: who reads the settings, where only hashes of tokens are, cannot make one.

use std::time::{Duration, SystemTime};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use uuid::Uuid;

use crate::token::Token;

/// The cookie.
pub(crate) const COOKIE: &str = "relais_session";
/// How long a session lasts.
pub(crate) const LIFE: Duration = Duration::from_secs(8 * 3_600);
/// Longest cookie that is looked at.
const COOKIE_MAX: usize = 1_024;

/// What sessions are signed with.
#[derive(Clone)]
pub struct SessionKey([u8; 32]);

impl SessionKey {
    /// The same in every process that knows the secret, and of no use for finding it.
    pub fn of(secret: &str) -> Self {
        Self(Sha256::digest(format!("relais sessions\n{secret}")).into())
    }

    /// Of this process alone: its sessions end with it.
    pub fn random() -> Self {
        let (one, two) = (Uuid::new_v4(), Uuid::new_v4());
        Self(Sha256::digest([one.into_bytes(), two.into_bytes()].concat()).into())
    }
}

impl std::fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionKey")
    }
}

/// What the cookie says once it is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) name: String,
    /// Seconds since 1970.
    pub(crate) expires: u64,
    /// What an unsafe request must repeat in a header.
    pub(crate) csrf: String,
}

/// The value of a new cookie.
pub(crate) fn begin(key: &SessionKey, token: &Token, now: SystemTime) -> String {
    let life = now + token.expires.map_or(LIFE, |until| LIFE.min(since(until, now)));
    let said = format!("{}.{}.{}", encode(&token.name), seconds(life), Uuid::new_v4().simple());
    let signature = sign(key, token, "session", &said);
    format!("{said}.{signature}")
}

/// The session of a cookie and the token it stands for; nothing if it is not ours, has expired, or its
/// token is no longer there.
pub(crate) fn read<'a>(
    key: &SessionKey,
    tokens: &'a [Token],
    cookie: &str,
    now: SystemTime,
) -> Option<(Session, &'a Token)> {
    let (said, signature) = cookie.get(..COOKIE_MAX.min(cookie.len()))?.rsplit_once('.')?;
    let mut parts = said.split('.');
    let (name, expires, _nonce) = (parts.next()?, parts.next()?, parts.next()?);
    let name = String::from_utf8(URL_SAFE_NO_PAD.decode(name).ok()?).ok()?;
    let signed = |token: &&Token| {
        let expected = sign(key, token, "session", said);
        token.name == name && bool::from(expected.as_bytes().ct_eq(signature.as_bytes()))
    };
    let token = tokens.iter().find(signed)?;
    let expires: u64 = expires.parse().ok()?;
    let lasts = expires > seconds(now) && !token.has_expired(now) && parts.next().is_none();
    let csrf = sign(key, token, "csrf", said);
    lasts.then_some((Session { name, expires, csrf }, token))
}

/// The value of a cookie among those of a request.
pub(crate) fn of_cookies<'a>(headers: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut pairs = headers.flat_map(|header| header.split(';'));
    pairs.find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

fn sign(SessionKey(key): &SessionKey, token: &Token, purpose: &str, said: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length is a key");
    mac.update(&token.sha256);
    mac.update(format!("relais {purpose}\n{}\n{said}", token.role.as_str()).as_bytes());
    encode(mac.finalize().into_bytes())
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn since(later: SystemTime, earlier: SystemTime) -> Duration {
    later.duration_since(earlier).unwrap_or_default()
}

fn seconds(at: SystemTime) -> u64 {
    since(at, SystemTime::UNIX_EPOCH).as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;

    fn key() -> SessionKey {
        SessionKey::of("k3y")
    }

    fn ann() -> Token {
        Token { name: "ann.b=c; ü".into(), role: Role::Operator, ..Token::shared("s3cret") }
    }

    #[test]
    fn a_session_is_known_again_until_it_ends_or_its_token_goes() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let tokens = [Token::shared("x"), ann()];
        let cookie = begin(&key(), &tokens[1], now);
        assert!(cookie.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)));
        let (session, token) = read(&key(), &tokens, &cookie, now).unwrap();
        assert_eq!((session.name.as_str(), token.role), ("ann.b=c; ü", Role::Operator));
        assert_eq!(session.expires, 1_000_000 + LIFE.as_secs());
        assert!(read(&key(), &tokens, &cookie, now + LIFE).is_none());
        assert!(read(&key(), &tokens[..1], &cookie, now).is_none(), "its token was taken away");
        for other in [SessionKey::of("other"), SessionKey::random()] {
            assert!(
                read(&other, &tokens, &cookie, now).is_none(),
                "the settings alone are not enough"
            );
        }
        let mut promoted = ann();
        promoted.role = Role::Admin;
        assert!(
            read(&key(), &[promoted], &cookie, now).is_none(),
            "its token means something else now"
        );
        let mut over = ann();
        over.expires = Some(now);
        assert!(read(&key(), &[over], &cookie, now).is_none());
    }

    #[test]
    fn what_was_changed_is_not_believed() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(5);
        let tokens = [ann()];
        let cookie = begin(&key(), &tokens[0], now);
        for at in 0..cookie.len() {
            let mut bytes = cookie.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            assert!(read(&key(), &tokens, &changed, now).is_none(), "{at}");
        }
        for nothing in ["", ".", "...", "a.b.c.d", &"x".repeat(100_000), "é.é.é.é"] {
            assert!(read(&key(), &tokens, nothing, now).is_none());
        }
    }

    #[test]
    fn a_token_that_ends_soon_makes_a_short_session_and_each_has_its_own_csrf() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(5);
        let mut token = ann();
        token.expires = Some(now + Duration::from_secs(60));
        let tokens = [token];
        let csrf = || read(&key(), &tokens, &begin(&key(), &tokens[0], now), now).unwrap().0;
        assert_eq!(csrf().expires, 65);
        assert_ne!(csrf().csrf, csrf().csrf);
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let found = of_cookies(["a=1; relais_session=x.y", "b=2"].into_iter());
        assert_eq!(found, Some("x.y"));
        assert_eq!(of_cookies(["relais_sessions=1; xrelais_session=2"].into_iter()), None);
    }
}
