//! `[admin]` and `[[admin.tokens]]`.

use std::{
    collections::HashSet,
    net::SocketAddr,
    path::Path,
    time::{Duration, SystemTime},
};

use relais_admin::{AdminToken, Role};
use relais_core::time::Timestamp;

use super::{encryption::tls, parse::listen_address, reader::Section, types::AdminSettings};

pub(super) fn admin(section: Section<'_>, folder: &Path) -> Option<AdminSettings> {
    let present = section.is_present();
    let listen = section.parsed("listen", listen_address);
    let token = section.secret("token");
    let session_key = section.secret("session_key");
    let open_metrics = section.flag("open_metrics", false);
    let listed = section.children("tokens");
    let is_open = !section.has("token") && listed.is_empty();
    let mut tokens = Vec::new();
    let mut names = HashSet::new();
    for one in listed {
        let read = read_token(&one);
        if let Some(token) = &read
            && !names.insert(token.name.clone())
        {
            one.error("name", "another token has this name; each person gets one of their own");
        }
        one.finish(|_| None);
        tokens.extend(read);
    }
    let listen = listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 7070)));
    if !listen.ip().is_loopback() && is_open {
        section.error(
            "listen",
            "is not a loopback address; set `admin.token` or [[admin.tokens]], or use 127.0.0.1",
        );
    }
    let tls = tls(&section, folder);
    section.finish(|_| None);
    present.then_some(AdminSettings { listen, token, session_key, open_metrics, tokens, tls })
}

fn read_token(section: &Section<'_>) -> Option<AdminToken> {
    let name = section.required_name("name");
    if name.as_deref() == Some(relais_admin::SHARED_NAME) {
        section.error("name", "is that of `admin.token`; name the person or program that has it");
    }
    let role = section.choice("role", &Role::ALL.map(|role| (role.as_str(), role)));
    // Unlike other keys, the text itself is not repeated: it may be a token, pasted by mistake.
    let sha256 = section.text("sha256");
    let sha256 = sha256
        .and_then(|text| hash(&text.value).map_err(|error| section.error("sha256", error)).ok());
    let expires = section.parsed("expires", date);
    for (key, missing) in [("role", role.is_none()), ("sha256", sha256.is_none())] {
        if missing && !section.has(key) {
            section
                .error(key, "is missing; `relais token NAME --role ROLE` prints the whole block");
        }
    }
    Some(AdminToken { name: name?, role: role?, sha256: sha256?, expires })
}

/// 64 hexadecimal digits.
fn hash(text: &str) -> Result<[u8; 32], String> {
    let wrong = || "must be the 64 hexadecimal digits of a SHA-256; see `relais token`".to_owned();
    let digits = text.as_bytes();
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(wrong());
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
    }
    Ok(bytes)
}

/// The day from which on it is no longer taken, in UTC.
pub(crate) fn date(text: &str) -> Result<SystemTime, String> {
    let at = Timestamp::parse(&format!("{text}T00:00:00Z"))
        .ok_or_else(|| "is not a day; write for example \"2027-01-31\"".to_owned())?;
    let micros = u64::try_from(at.0).map_err(|_| "is before 1970".to_owned())?;
    Ok(SystemTime::UNIX_EPOCH + Duration::from_micros(micros))
}
