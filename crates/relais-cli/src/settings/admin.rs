//! `[admin]` and `[[admin.tokens]]`.

use std::{
    collections::HashSet,
    net::SocketAddr,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use relais_admin::{AdminToken, Role};
use relais_core::{
    setting::{FilePath, Hidden, Listen, NameText, OnOff, SettingForm, Word},
    settings, text_kinds,
    time::Timestamp,
};
use secrecy::SecretString;

use super::reader::Section;

settings! {
    /// `[admin]`
    pub(crate) struct AdminKeys {
        /// an address other than loopback needs `token` or `[[admin.tokens]]`
        listen: Listen = SocketAddr::from(([127, 0, 0, 1], 7070));
        /// one shared token with the role `admin` and the name `admin`
        token: Option<Hidden<SecretString>>;
        /// serve `/metrics` without a token. It shows names of destinations, sources and event types, and counts
        open_metrics: OnOff = false;
        /// signs the sessions of the console; must be equal in all replicas behind one address
        session_key: Option<Hidden<SecretString>> => "`token`, or random";
        /// PEM file with the certificate chain; relais reads it again when it changes: [security.md](security.md#tls-and-proxies)
        tls_certificate: Option<FilePath>;
        /// PEM file with its private key
        tls_key: Option<FilePath>;
    }

    /// `[[admin.tokens]]`
    pub(super) struct AdminTokenKeys {
        /// written to the audit log. Unique; not `admin`
        name: NameText;
        /// `"monitor"`, `"viewer"`, `"operator"` or `"admin"`: [roles](security.md#tokens-and-roles)
        role: Word<Role> => "`relais token NAME --role ROLE` prints the whole block";
        /// the SHA-256 of the token, 64 hexadecimal digits
        sha256: TokenHash => "`relais token NAME --role ROLE` prints the whole block";
        /// first day (UTC) on which it is refused: `"2027-01-31"`
        expires: Option<Day>;
    }
}

text_kinds! {
    /// The hash of a token; it may be the token itself, pasted by mistake.
    pub(super) TokenHash -> [u8; 32], "text", hash,
        form SettingForm::Text("^[0-9A-Fa-f]{64}$"), hidden true;
    /// A day, in UTC.
    pub(super) Day -> SystemTime, "text", date,
        form SettingForm::Text("^[0-9]{4}-[0-9]{2}-[0-9]{2}$");
}

/// Reads both sections; nothing without `[admin]`.
pub(super) fn admin(section: Section<'_>) -> (Option<AdminKeys>, Vec<AdminToken>) {
    let keys: AdminKeys = section.read_with(&());
    let listed = section.children("tokens", "name");
    let is_open = !section.has("token") && listed.is_empty();
    if !keys.listen.ip().is_loopback() && is_open {
        section.error(
            "listen",
            "is not a loopback address; set `admin.token` or [[admin.tokens]], or use 127.0.0.1",
        );
    }
    check_tls(&section);
    let mut names = HashSet::new();
    let tokens = listed.into_iter().filter_map(|section| token(section, &mut names)).collect();
    let is_present = section.is_present();
    section.finish();
    (is_present.then_some(keys), tokens)
}

fn token(section: Section<'_>, names: &mut HashSet<String>) -> Option<AdminToken> {
    let keys = section.read::<AdminTokenKeys>();
    if let Some(AdminTokenKeys { name, .. }) = &keys {
        if name == relais_admin::SHARED_NAME {
            section.error(
                "name",
                "is that of `admin.token`; name the operator or program that has it",
            );
        }
        if !names.insert(name.clone()) {
            section
                .error("name", "another token has this name; each operator needs one of their own");
        }
    }
    section.finish();
    let AdminTokenKeys { name, role, sha256, expires } = keys?;
    Some(AdminToken { name, role, sha256, expires })
}

/// Reports a certificate without its key, and the reverse.
pub(super) fn check_tls(section: &Section<'_>) {
    match (section.has("tls_certificate"), section.has("tls_key")) {
        (true, false) => {
            section.error("tls_certificate", "needs `tls_key`, the file with its private key");
        }
        (false, true) => {
            section.error("tls_key", "needs `tls_certificate`, the file with its certificate");
        }
        _ => {}
    }
}

/// Returns `http`, or `https` with a certificate.
pub(crate) fn scheme(certificate: Option<&PathBuf>) -> &'static str {
    certificate.map_or("http", |_| "https")
}

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

/// Reads the first day on which a token is refused, in UTC.
pub(crate) fn date(text: &str) -> Result<SystemTime, String> {
    let at = Timestamp::parse(&format!("{text}T00:00:00Z"))
        .ok_or_else(|| "is not a day; write for example \"2027-01-31\"".to_owned())?;
    let micros = u64::try_from(at.0).map_err(|_| "is before 1970".to_owned())?;
    Ok(SystemTime::UNIX_EPOCH + Duration::from_micros(micros))
}
