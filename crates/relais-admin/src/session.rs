//! Sessions of the console: a signed cookie, without state on the server.
//!
//! Invariant: a session is valid only while the token that opened it is configured with the same role. The
//! cookie is signed with its own secret, so the token hashes in the configuration are not enough to forge one.

use std::time::{Duration, SystemTime};

use cookie::{Cookie, CookieJar, Key, SameSite};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::token::AdminToken;

/// The name of the cookie.
pub(crate) const COOKIE: &str = "relais_session";
/// Lifetime of a session.
pub(crate) const LIFE: Duration = Duration::from_secs(8 * 3_600);
/// Longest accepted cookie.
const COOKIE_MAX: usize = 1_024;

/// The key that signs sessions.
#[derive(Clone)]
pub struct SessionKey(Key);

impl SessionKey {
    /// Derives the key from a secret: the same in every process with the secret, and not reversible.
    pub fn of(secret: &str) -> Self {
        let part = |n: u8| Sha256::digest(format!("relais sessions\n{n}\n{secret}"));
        Self(Key::from(&[part(1), part(2)].concat()))
    }

    /// Creates a random key: sessions end with the process.
    pub fn random() -> Self {
        Self(Key::generate())
    }
}

impl std::fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionKey")
    }
}

/// The content of a verified cookie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConsoleSession {
    pub(crate) name: String,
    /// Seconds since 1970.
    pub(crate) expires: u64,
    /// The token that unsafe requests must repeat in a header.
    pub(crate) csrf: String,
}

/// Creates the cookie of a new session: token fingerprint, expiry and CSRF token.
pub(crate) fn begin(
    key: &SessionKey,
    token: &AdminToken,
    now: SystemTime,
    place: (&str, bool),
) -> Cookie<'static> {
    let life = now + token.expires.map_or(LIFE, |until| LIFE.min(since(until, now)));
    let csrf = Uuid::new_v4().simple();
    let text = format!("{}.{}.{csrf}", fingerprint(token), seconds(life));
    let mut jar = CookieJar::new();
    jar.signed_mut(&key.0).add(Cookie::new(COOKIE, text));
    let signed = jar.get(COOKIE).map(|cookie| cookie.value().to_owned()).unwrap_or_default();
    attributes(signed, LIFE, place)
}

/// Creates the cookie that removes a session from its browser.
pub(crate) fn end(place: (&str, bool)) -> Cookie<'static> {
    attributes(String::new(), Duration::ZERO, place)
}

/// Sets the attributes; the path limits the cookie to the console, without the service around it.
fn attributes(value: String, life: Duration, (base, secure): (&str, bool)) -> Cookie<'static> {
    let seconds = i64::try_from(life.as_secs()).unwrap_or(i64::MAX);
    Cookie::build((COOKIE, value))
        .http_only(true)
        .same_site(SameSite::Strict)
        .path(format!("{base}/"))
        .max_age(cookie::time::Duration::seconds(seconds))
        .secure(secure)
        .build()
}

/// Returns the session of a cookie and its token, or `None` if the signature is wrong, the session has
/// expired, or the token is no longer configured.
pub(crate) fn read<'a>(
    key: &SessionKey,
    tokens: &'a [AdminToken],
    cookie: Cookie<'static>,
    now: SystemTime,
) -> Option<(ConsoleSession, &'a AdminToken)> {
    let mut jar = CookieJar::new();
    jar.add_original(cookie);
    let verified = jar.signed(&key.0).get(COOKIE)?;
    let mut parts = verified.value().split('.');
    let (print, expires, csrf) = (parts.next()?, parts.next()?, parts.next()?);
    let token = tokens.iter().find(|token| fingerprint(token) == print)?;
    let expires: u64 = expires.parse().ok()?;
    let lasts = expires > seconds(now) && !token.has_expired(now) && parts.next().is_none();
    let session = ConsoleSession { name: token.name.clone(), expires, csrf: csrf.to_owned() };
    lasts.then_some((session, token))
}

/// Finds the session cookie of a request.
pub(crate) fn of_cookies<'a>(headers: impl Iterator<Item = &'a str>) -> Option<Cookie<'static>> {
    let mut all = headers.flat_map(Cookie::split_parse).filter_map(Result::ok);
    let own = all.find(|cookie| cookie.name() == COOKIE)?;
    (own.value().len() <= COOKIE_MAX).then(|| own.into_owned())
}

/// Identifies a token and its role without revealing it; a changed token has another fingerprint.
fn fingerprint(token: &AdminToken) -> String {
    let text = [&token.sha256[..], token.role.as_str().as_bytes(), b"\n", token.name.as_bytes()];
    let hash = Sha256::digest(text.concat());
    hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
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

    /// At the root path, without TLS.
    const PLAIN: (&str, bool) = ("", false);

    fn key() -> SessionKey {
        SessionKey::of("k3y")
    }

    fn ann() -> AdminToken {
        AdminToken {
            name: "ann.b=c; ü".into(),
            role: Role::Operator,
            ..AdminToken::shared("s3cret")
        }
    }

    /// Returns the cookie as a browser sends it back.
    fn sent(cookie: &Cookie<'_>) -> Cookie<'static> {
        let header = format!("a=1; {}; b=2", cookie.stripped());
        of_cookies([header.as_str()].into_iter()).unwrap()
    }

    #[test]
    fn a_session_is_valid_until_it_expires_or_its_token_is_removed() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let tokens = [AdminToken::shared("x"), ann()];
        let cookie = || sent(&begin(&key(), &tokens[1], now, PLAIN));
        let (session, token) = read(&key(), &tokens, cookie(), now).unwrap();
        assert_eq!((session.name.as_str(), token.role), ("ann.b=c; ü", Role::Operator));
        assert_eq!(session.expires, 1_000_000 + LIFE.as_secs());
        assert!(read(&key(), &tokens, cookie(), now + LIFE).is_none());
        assert!(read(&key(), &tokens[..1], cookie(), now).is_none(), "its token was removed");
        for other in [SessionKey::of("other"), SessionKey::random()] {
            assert!(read(&other, &tokens, cookie(), now).is_none(), "the hashes are not enough");
        }
        let promoted = AdminToken { role: Role::Admin, ..ann() };
        assert!(read(&key(), &[promoted], cookie(), now).is_none(), "its token has another role");
        let over = AdminToken { expires: Some(now), ..ann() };
        assert!(read(&key(), &[over], cookie(), now).is_none());
    }

    #[test]
    fn a_changed_cookie_is_rejected() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(5);
        let tokens = [ann()];
        let value = begin(&key(), &tokens[0], now, PLAIN).value().to_owned();
        let with = |value: String| read(&key(), &tokens, Cookie::new(COOKIE, value), now);
        assert!(with(value.clone()).is_some());
        for at in 0..value.len() {
            let mut bytes = value.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            assert!(with(String::from_utf8(bytes).unwrap()).is_none(), "{at}");
        }
        for nothing in ["", ".", "...", "a.b.c.d", "é.é.é.é"] {
            assert!(with(nothing.to_owned()).is_none());
        }
        let long = format!("{COOKIE}={}", "x".repeat(100_000));
        assert!(of_cookies([long.as_str()].into_iter()).is_none());
    }

    #[test]
    fn a_session_does_not_outlive_its_token_and_has_its_own_csrf_token() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(5);
        let tokens = [AdminToken { expires: Some(now + Duration::from_secs(60)), ..ann() }];
        let begun = || begin(&key(), &tokens[0], now, PLAIN);
        let session = || read(&key(), &tokens, sent(&begun()), now).unwrap().0;
        assert_eq!(session().expires, 65);
        assert_ne!(session().csrf, session().csrf);
    }

    #[test]
    fn scripts_and_other_sites_cannot_read_the_cookie() {
        let now = SystemTime::UNIX_EPOCH;
        let cookie = begin(&key(), &ann(), now, ("/ops/relais", true)).to_string();
        for attribute in
            ["HttpOnly", "SameSite=Strict", "Path=/ops/relais/", "Max-Age=28800", "Secure"]
        {
            assert!(cookie.contains(attribute), "{cookie}");
        }
        assert!(!begin(&key(), &ann(), now, PLAIN).to_string().contains("Secure"));
        assert!(end(PLAIN).to_string().contains("Path=/; Max-Age=0"));
        let others = ["relais_sessions=1; xrelais_session=2"];
        assert!(of_cookies(others.into_iter()).is_none());
    }
}
