//! Sessions of people: a signed cookie, and nothing kept here.
//!
//! Invariant: a session is as good as the token it was begun with; taking that away ends it. It is signed
//! with a secret of its own: who reads the configuration, where only hashes of tokens are, cannot make one.

use std::time::{Duration, SystemTime};

use cookie::{Cookie, CookieJar, Key, SameSite};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::token::Token;

/// The cookie.
pub(crate) const COOKIE: &str = "relais_session";
/// How long a session lasts.
pub(crate) const LIFE: Duration = Duration::from_secs(8 * 3_600);
/// Longest cookie that is read.
const COOKIE_MAX: usize = 1_024;

/// What sessions are signed with.
#[derive(Clone)]
pub struct SessionKey(Key);

impl SessionKey {
    /// The same in every process that knows the secret, and of no use for finding it.
    pub fn of(secret: &str) -> Self {
        let part = |n: u8| Sha256::digest(format!("relais sessions\n{n}\n{secret}"));
        Self(Key::from(&[part(1), part(2)].concat()))
    }

    /// Of this process alone: its sessions end with it.
    pub fn random() -> Self {
        Self(Key::generate())
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

/// A new cookie: which token, until when, and what unsafe requests must repeat.
pub(crate) fn begin(
    key: &SessionKey,
    token: &Token,
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

/// The cookie that ends a session in its browser.
pub(crate) fn end(place: (&str, bool)) -> Cookie<'static> {
    attributes(String::new(), Duration::ZERO, place)
}

/// It is for the path under which the console is, and not for the service around it.
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

/// The session of the cookies of a request and the token it stands for; nothing if it is not ours, has
/// expired, or its token is no longer there.
pub(crate) fn read<'a>(
    key: &SessionKey,
    tokens: &'a [Token],
    cookie: Cookie<'static>,
    now: SystemTime,
) -> Option<(Session, &'a Token)> {
    let mut jar = CookieJar::new();
    jar.add_original(cookie);
    let believed = jar.signed(&key.0).get(COOKIE)?;
    let mut parts = believed.value().split('.');
    let (print, expires, csrf) = (parts.next()?, parts.next()?, parts.next()?);
    let token = tokens.iter().find(|token| fingerprint(token) == print)?;
    let expires: u64 = expires.parse().ok()?;
    let lasts = expires > seconds(now) && !token.has_expired(now) && parts.next().is_none();
    let session = Session { name: token.name.clone(), expires, csrf: csrf.to_owned() };
    lasts.then_some((session, token))
}

/// The cookie among those of a request.
pub(crate) fn of_cookies<'a>(headers: impl Iterator<Item = &'a str>) -> Option<Cookie<'static>> {
    let mut all = headers.flat_map(Cookie::split_parse).filter_map(Result::ok);
    let own = all.find(|cookie| cookie.name() == COOKIE)?;
    (own.value().len() <= COOKIE_MAX).then(|| own.into_owned())
}

/// Names a token with its role, without saying it: what is changed or taken away is not found again.
fn fingerprint(token: &Token) -> String {
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

    /// At the top, and not encrypted.
    const PLAIN: (&str, bool) = ("", false);

    fn key() -> SessionKey {
        SessionKey::of("k3y")
    }

    fn ann() -> Token {
        Token { name: "ann.b=c; ü".into(), role: Role::Operator, ..Token::shared("s3cret") }
    }

    /// As a browser sends it back.
    fn sent(cookie: &Cookie<'_>) -> Cookie<'static> {
        let header = format!("a=1; {}; b=2", cookie.stripped());
        of_cookies([header.as_str()].into_iter()).unwrap()
    }

    #[test]
    fn a_session_is_known_again_until_it_ends_or_its_token_goes() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let tokens = [Token::shared("x"), ann()];
        let cookie = || sent(&begin(&key(), &tokens[1], now, PLAIN));
        let (session, token) = read(&key(), &tokens, cookie(), now).unwrap();
        assert_eq!((session.name.as_str(), token.role), ("ann.b=c; ü", Role::Operator));
        assert_eq!(session.expires, 1_000_000 + LIFE.as_secs());
        assert!(read(&key(), &tokens, cookie(), now + LIFE).is_none());
        assert!(read(&key(), &tokens[..1], cookie(), now).is_none(), "its token was taken away");
        for other in [SessionKey::of("other"), SessionKey::random()] {
            assert!(read(&other, &tokens, cookie(), now).is_none(), "the hashes are not enough");
        }
        let promoted = Token { role: Role::Admin, ..ann() };
        assert!(read(&key(), &[promoted], cookie(), now).is_none(), "its token has another role");
        let over = Token { expires: Some(now), ..ann() };
        assert!(read(&key(), &[over], cookie(), now).is_none());
    }

    #[test]
    fn what_was_changed_is_not_believed() {
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
    fn a_token_that_ends_soon_makes_a_short_session_and_each_has_its_own_csrf() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(5);
        let tokens = [Token { expires: Some(now + Duration::from_secs(60)), ..ann() }];
        let begun = || begin(&key(), &tokens[0], now, PLAIN);
        let session = || read(&key(), &tokens, sent(&begun()), now).unwrap().0;
        assert_eq!(session().expires, 65);
        assert_ne!(session().csrf, session().csrf);
    }

    #[test]
    fn no_page_and_no_other_site_gets_the_cookie() {
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
