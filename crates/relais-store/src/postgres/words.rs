//! Connection strings in libpq's words.
//!
//! The driver knows most of them. What it does not know is taken out here: the words about certificates,
//! the `sslmode`s that check one, and the names of `target_session_attrs` that PostgreSQL 14 added.
//!
//! Invariant: no error repeats a value, or a name that is unknown; it may be a password.

use std::path::PathBuf;

use relais_core::store::StoreError;
use tokio_postgres::{
    Config,
    config::{SslMode, TargetSessionAttrs},
};

use super::error::with_sources;

/// Words that libpq has and relais does not support, each with the next step.
const REFUSED: [(&str, &str); 5] = [
    ("sslpassword", "store the private key without a password, readable by relais only"),
    ("sslcrl", "remove it"),
    ("gssencmode", "remove it; relais encrypts with TLS only"),
    ("passfile", "write the password into the URL, e.g. from the environment"),
    ("service", "write host, user and database into the URL"),
];

/// Words that the driver knows.
const DRIVER: [&str; 17] = [
    "user",
    "password",
    "dbname",
    "options",
    "application_name",
    "sslnegotiation",
    "host",
    "hostaddr",
    "port",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "channel_binding",
    "load_balance_hosts",
];

/// The check of the certificate of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Not at all: encryption against listeners that cannot interfere.
    Unchecked,
    /// A known authority issued it.
    Authority,
    /// A known authority issued it, for this host.
    Host,
}

/// The encryption settings of a connection string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Encryption {
    /// The use of encryption.
    pub(super) mode: SslMode,
    pub(super) trust: Trust,
    /// The file with the trusted authorities; those of the machine without it.
    pub(super) root: Option<PathBuf>,
    /// The files of the client certificate and of its private key.
    pub(super) certificate: Option<(PathBuf, PathBuf)>,
}

/// Reads a URL or a string of `key=value` pairs.
pub(super) fn parse(text: &str) -> Result<(Config, Encryption), StoreError> {
    let mut words = Words::default();
    let rest = match text.split_once('?') {
        Some((place, query)) if is_url(text) => {
            let mut kept: Vec<&str> = Vec::new();
            for (at, pair) in query.split('&').enumerate().filter(|(_, pair)| !pair.is_empty()) {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                if !words.take(at, name, &decode(value))? {
                    kept.push(pair);
                }
            }
            format!("{place}?{}", kept.join("&"))
        }
        _ if is_url(text) => text.to_owned(),
        _ => {
            let mut kept = Vec::new();
            for (at, (pair, name, value)) in pairs(text).into_iter().enumerate() {
                if !words.take(at, name, &value)? {
                    kept.push(pair);
                }
            }
            kept.join(" ")
        }
    };
    let mut config: Config = rest.parse().map_err(|error| {
        StoreError::setup(format!(
            "cannot read the database URL: {}; use \
             postgres://user:password@host:5432/database?sslmode=verify-full",
            with_sources(&error)
        ))
    })?;
    if words.writable {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    Ok((config, words.encryption()?))
}

#[derive(Debug, Default)]
struct Words {
    sslmode: Option<String>,
    root: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    /// Only a server that can be written to.
    writable: bool,
}

impl Words {
    /// Takes a word that the driver does not know; `false` for those that it knows. One that is unknown
    /// is named by its place only: it may be a part of a password with a `?` in it.
    fn take(&mut self, at: usize, name: &str, value: &str) -> Result<bool, StoreError> {
        if let Some((_, next)) = REFUSED.into_iter().find(|(word, _)| *word == name) {
            return refuse(format!("`{name}` is not supported; {next}"));
        }
        match name {
            "sslmode" => self.sslmode = Some(value.to_owned()),
            "sslrootcert" => self.root = Some(value.into()),
            "sslcert" => self.certificate = Some(value.into()),
            "sslkey" => self.key = Some(value.into()),
            "target_session_attrs" => self.writable = session_attrs(value)?,
            known if DRIVER.contains(&known) => return Ok(false),
            _ => {
                let number = at + 1;
                return refuse(format!(
                    "parameter {number} is unknown; check its name, and encode `?`, `&` and `@` in a \
                     password as %3F, %26 and %40"
                ));
            }
        }
        Ok(true)
    }

    fn encryption(self) -> Result<Encryption, StoreError> {
        let system = self.root.as_deref().is_some_and(|root| root.as_os_str() == "system");
        let root = self.root.filter(|_| !system);
        let default = if system { "verify-full" } else { "prefer" };
        // As in libpq, a file with authorities makes `require` check the certificate.
        let required = if root.is_some() { Trust::Authority } else { Trust::Unchecked };
        let (mode, trust) = match self.sslmode.as_deref().unwrap_or(default) {
            "disable" => (SslMode::Disable, Trust::Unchecked),
            "allow" | "prefer" => (SslMode::Prefer, Trust::Unchecked),
            "require" => (SslMode::Require, required),
            "verify-ca" => (SslMode::Require, Trust::Authority),
            "verify-full" => (SslMode::Require, Trust::Host),
            _ => {
                return refuse(
                    "`sslmode` must be disable, allow, prefer, require, verify-ca or verify-full"
                        .into(),
                );
            }
        };
        if system && trust != Trust::Host {
            return refuse("`sslrootcert=system` needs `sslmode=verify-full`".into());
        }
        let certificate = match (self.certificate, self.key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (Some(_), None) => return refuse("`sslcert` needs `sslkey`, its private key".into()),
            (None, Some(_)) => return refuse("`sslkey` needs `sslcert`, its certificate".into()),
        };
        Ok(Encryption { mode, trust, root, certificate })
    }
}

/// Returns true if the server must be writable. The driver asks each host whether its session
/// is read-only, which that of a standby always is.
fn session_attrs(value: &str) -> Result<bool, StoreError> {
    match value {
        "any" => Ok(false),
        "read-write" | "primary" => Ok(true),
        _ => refuse(
            "`target_session_attrs` must be any, read-write or primary: relais writes".into(),
        ),
    }
}

fn refuse<T>(text: String) -> Result<T, StoreError> {
    Err(StoreError::setup(format!("cannot read the database URL: {text}")))
}

fn is_url(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

fn decode(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, others @ ..] = rest {
        let hex = |digit: u8| char::from(digit).to_digit(16);
        rest = match (first, others) {
            (b'%', [high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    bytes.push(u8::try_from(high * 16 + low).unwrap_or_default());
                    after
                }
                _ => {
                    bytes.push(*first);
                    others
                }
            },
            _ => {
                bytes.push(*first);
                others
            }
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The pairs of `key=value key='quoted value'`: each as written, its name and its value.
fn pairs(text: &str) -> Vec<(&str, &str, String)> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while let Some((name, after)) = rest.split_once('=') {
        let after_spaces = after.trim_start();
        let (mut value, mut escaped, mut end) = (String::new(), false, after_spaces.len());
        let quoted = after_spaces.starts_with('\'');
        for (at, character) in after_spaces.char_indices().skip(usize::from(quoted)) {
            match character {
                _ if escaped => {
                    value.push(character);
                    escaped = false;
                }
                '\\' => escaped = true,
                '\'' if quoted => {
                    end = at + 1;
                    break;
                }
                space if !quoted && space.is_whitespace() => {
                    end = at;
                    break;
                }
                other => value.push(other),
            }
        }
        let tail = &after_spaces[end..];
        found.push((&rest[..rest.len() - tail.len()], name.trim(), value));
        rest = tail.trim_start();
    }
    // What is no pair is left for the driver to refuse.
    if !rest.is_empty() {
        found.push((rest, rest, String::new()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Encryption {
        parse(text).unwrap().1
    }

    fn refused(text: &str) -> String {
        let error = parse(text).unwrap_err().to_string();
        assert!(!error.contains("CANARY"), "{error}");
        error
    }

    #[test]
    fn a_url_says_how_to_encrypt_and_whom_to_trust() {
        let plain = check("postgres://u@h/d");
        assert_eq!((plain.mode, plain.trust), (SslMode::Prefer, Trust::Unchecked));
        let required = check("postgres://u@h/d?sslmode=require");
        assert_eq!((required.mode, required.trust), (SslMode::Require, Trust::Unchecked));
        let with_root = check("postgres://u@h/d?sslrootcert=/ca.pem&sslmode=require");
        assert_eq!(with_root.trust, Trust::Authority);
        let full = check(
            "postgresql://u:p@h/d?sslmode=verify-full&application_name=a&sslrootcert=%2Fmy%20ca.pem\
             &sslcert=c.pem&sslkey=k.pem",
        );
        assert_eq!((full.mode, full.trust), (SslMode::Require, Trust::Host));
        assert_eq!(full.root, Some("/my ca.pem".into()));
        assert_eq!(full.certificate, Some(("c.pem".into(), "k.pem".into())));
        let system = check("postgres://u@h/d?sslrootcert=system");
        assert_eq!((system.trust, system.root), (Trust::Host, None));
        assert_eq!(check("postgres://u@h/d?sslmode=disable").mode, SslMode::Disable);
    }

    #[test]
    fn pairs_say_the_same_as_a_url() {
        let text = "host=a,b port=1,2 user=u password='p \\' x=y' sslmode=verify-ca \
                    sslrootcert='/my ca.pem' dbname = d target_session_attrs=primary";
        let (config, encryption) = parse(text).unwrap();
        assert_eq!(config.get_password(), Some(&b"p ' x=y"[..]));
        assert_eq!((config.get_hosts().len(), config.get_dbname()), (2, Some("d")));
        assert_eq!(config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        assert_eq!(encryption.trust, Trust::Authority);
        assert_eq!(encryption.root, Some("/my ca.pem".into()));
    }

    #[test]
    fn what_is_wrong_is_named_without_its_value() {
        let of = |query: &str| refused(&format!("postgres://u:CANARY@h/d?{query}"));
        assert!(of("sslmode=CANARY").contains("verify-full"));
        assert!(of("sslcert=CANARY").contains("`sslcert` needs `sslkey`"));
        assert!(of("sslkey=CANARY").contains("`sslkey` needs `sslcert`"));
        assert!(of("sslpassword=CANARY").contains("without a password"));
        assert!(of("sslrootcert=system&sslmode=require").contains("verify-full"));
        assert!(of("target_session_attrs=standby").contains("relais writes"));
        assert!(of("sslmode=require&CANARY=1").contains("parameter 2 is unknown"));
        assert!(of("connect_timeout=CANARY").contains("connect_timeout"));
        assert!(refused("CANARY").contains("cannot read the database URL"));
    }
}
