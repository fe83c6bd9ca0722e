//! The keys of kind `nats` in the configuration, of a source and of a destination.
//!
//! A build without NATS reads them too: it reports the missing feature, not unknown keys.

use std::{fmt, time::Duration};

use relais_core::{
    decode::Decoder,
    extract::Pick,
    setting::{
        ByteSize, FilePath, Hidden, Integer, PlainDecoder, Selector, SettingForm, SettingWords,
        TimeSpan, Word,
    },
    settings, text_kinds,
};
use secrecy::{ExposeSecret, SecretString};

use crate::{template::RoutingTemplate, tls_files::check_tls_files};

/// The header by which a stream recognises duplicates.
pub(crate) const MESSAGE_ID: &str = "Nats-Msg-Id";
/// The most bytes of a subject; a line of the protocol has 4096 by default.
pub(crate) const SUBJECT_BYTES_MAX: usize = 1_024;
/// The most bytes of the name of a stream or a consumer.
const NAME_BYTES_MAX: usize = 255;
/// The most messages that one process may hold without acknowledgement.
const PREFETCH_MAX: u32 = 65_535;
/// Two batches: one that is being stored, and the next one.
pub(crate) const PREFETCH_DEFAULT: u32 = 2_000;
pub(crate) const PREFETCH_BYTES_DEFAULT: usize = 64 << 20;
pub(crate) const ACK_WAIT_DEFAULT: Duration = Duration::from_secs(30);
const ACK_WAIT_MIN: Duration = Duration::from_secs(1);
const ACK_WAIT_MAX: Duration = Duration::from_secs(3_600);
pub(crate) const MAX_ACK_PENDING_DEFAULT: u32 = 10_000;
const MAX_ACK_PENDING_MAX: u32 = 1_000_000;

settings! {
    /// `[[source]]` of kind `nats`
    pub struct NatsSourceKeys {
        /// `nats://` or `tls://USER:PASSWORD@HOST:PORT`; several servers of one cluster are separated by commas. Never shown
        url: NatsUrl => "write for example \"tls://relais:${PASSWORD}@nats.example:4222\"";
        /// it must exist
        stream: NatsName => "write for example \"ORDERS\"";
        /// the durable pull consumer. relais creates it if it does not exist, and never changes it
        consumer: NatsName => "write for example \"relais\"";
        /// of a consumer that relais creates: only messages of this subject; `*` is one part, `>` the rest
        filter: Option<SubjectFilter>;
        /// of a consumer that relais creates: `"all"` begins with the oldest message of the stream, `"new"` with the next one
        start: Word<NatsStart> = NatsStart::default();
        /// of a consumer that relais creates: the server delivers a message again after this time without a sign of life of its process
        ack_wait: TimeSpan = ACK_WAIT_DEFAULT, ACK_WAIT_MIN..=ACK_WAIT_MAX;
        /// of a consumer that relais creates: the most messages of all processes without acknowledgement
        max_ack_pending: Integer = MAX_ACK_PENDING_DEFAULT, 1..=MAX_ACK_PENDING_MAX;
        /// messages that the server sends one process ahead of their acknowledgement
        prefetch: Integer = PREFETCH_DEFAULT, 1..=PREFETCH_MAX;
        /// the same in bytes; fewer messages are sent ahead if they are large
        prefetch_bytes: ByteSize = PREFETCH_BYTES_DEFAULT, 1..=(4 << 30);
        /// the id by which duplicates are recognised; a message without it has its position for an id. `"position"`: stream, sequence and time, which recognises a message *read* twice, not one *sent* twice
        message_id: Selector = Pick::Header(MESSAGE_ID.to_owned());
        /// `"none"` or `"cloudevents"`
        envelope: Word<NatsEnvelope> = NatsEnvelope::default();
        /// `"json"`, `"json-latin1"`, `"confluent-json"`, `"text"` or `"bytes"`
        decoder: PlainDecoder = Decoder::default();
        /// the JetStream domain of the stream, for example of a leaf node
        domain: Option<NatsName>;
        /// the seed of an nkey (`SU…`), instead of a login in `url`
        nkey: Option<Hidden<NkeySeed>>;
        /// credentials file (JWT and seed), instead of a login in `url`
        credentials: Option<FilePath>;
        /// PEM file with the certificates that sign the server's, instead of those of the system
        tls_ca: Option<FilePath>;
        /// PEM file with the client's certificate chain
        tls_certificate: Option<FilePath>;
        /// PEM file with its private key
        tls_key: Option<FilePath>;
    }

    /// `[[destination]]` of kind `nats`
    pub struct NatsTargetKeys {
        /// `nats://` or `tls://USER:PASSWORD@HOST:PORT`; several servers of one cluster are separated by commas. Never shown
        url: NatsUrl => "write for example \"tls://relais:${PASSWORD}@nats.example:4222\"";
        /// a stream must have it. May contain [places](nats.md#subject)
        subject: SubjectName => "write for example \"orders.{{event_type}}\"";
        /// the subject to which commands ask for replies, in the header `reply-to`. A stream must have it, which a source reads
        reply_to: Option<FixedSubject>;
        /// `"none"` or `"cloudevents"`
        envelope: Word<NatsEnvelope> = NatsEnvelope::default();
        /// the seed of an nkey (`SU…`), instead of a login in `url`
        nkey: Option<Hidden<NkeySeed>>;
        /// credentials file (JWT and seed), instead of a login in `url`
        credentials: Option<FilePath>;
        /// PEM file with the certificates that sign the server's, instead of those of the system
        tls_ca: Option<FilePath>;
        /// PEM file with the client's certificate chain
        tls_certificate: Option<FilePath>;
        /// PEM file with its private key
        tls_key: Option<FilePath>;
    }
}

text_kinds! {
    /// The addresses of servers; they may have a password, so they are never shown.
    pub NatsUrl -> HiddenNatsUrl, "text", HiddenNatsUrl::parse, hidden true;
    /// The name of a stream, a consumer or a domain.
    pub NatsName -> String, "text", nats_name, show String::clone,
        form SettingForm::Text("^[^\\s.*>/\\\\]+$");
    /// A subject that may have wildcards.
    pub SubjectFilter -> String, "text", |text| {
            check_subject(text, Wildcards::Allowed).map(|()| text.to_owned())
        }, show String::clone, form SettingForm::Text("^\\S+$");
    /// A subject that a message can have.
    pub FixedSubject -> String, "text", |text| {
            check_subject(text, Wildcards::Refused).map(|()| text.to_owned())
        }, show String::clone, form SettingForm::Text("^\\S+$");
    /// A subject with places of the message.
    pub SubjectName -> RoutingTemplate, "text", subject_name, show ToString::to_string,
        form SettingForm::Text(".+");
}

fn nats_name(text: &str) -> Result<String, String> {
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || ".*>/\\".contains(c);
    if text.is_empty() || text.len() > NAME_BYTES_MAX || text.chars().any(is_odd) {
        return Err(format!(
            "must have 1 to {NAME_BYTES_MAX} bytes without spaces, `.`, `*`, `>`, `/` and `\\`"
        ));
    }
    Ok(text.to_owned())
}

fn subject_name(text: &str) -> Result<RoutingTemplate, String> {
    let template: RoutingTemplate = text.parse()?;
    if template.is_fixed() {
        check_subject(text, Wildcards::Refused)?;
    } else if template.fixed_bytes() > SUBJECT_BYTES_MAX {
        return Err(format!("must have at most {SUBJECT_BYTES_MAX} bytes"));
    }
    Ok(template)
}

/// The use of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wildcards {
    /// To subscribe.
    Allowed,
    /// To publish.
    Refused,
}

/// Checks a subject. The error does not repeat it.
pub(crate) fn check_subject(subject: &str, wildcards: Wildcards) -> Result<(), String> {
    if subject.is_empty() || subject.len() > SUBJECT_BYTES_MAX {
        return Err(format!("must have 1 to {SUBJECT_BYTES_MAX} bytes"));
    }
    if subject.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("has a space or a control character in it".to_owned());
    }
    if subject.split('.').any(str::is_empty) {
        return Err("has an empty part; parts are separated by one `.`".to_owned());
    }
    if wildcards == Wildcards::Refused && subject.split('.').any(|part| ["*", ">"].contains(&part))
    {
        return Err("has a wildcard; a message has one subject".to_owned());
    }
    Ok(())
}

/// The addresses of servers, of which only scheme, host and port are shown.
#[derive(Clone)]
pub struct HiddenNatsUrl(SecretString);

/// The login in a URL, as it is written there.
#[derive(Clone, Copy)]
pub(crate) enum UrlLogin<'a> {
    None,
    Token(&'a str),
    User(&'a str, &'a str),
}

impl HiddenNatsUrl {
    /// Checks the form of the URLs. The error does not repeat them.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.chars().any(char::is_whitespace) {
            return Err("has a space in it; write it percent-encoded".to_owned());
        }
        let mut is_tls = None;
        for url in text.split(',') {
            let (scheme, rest) = split(url).ok_or("must start with tls:// or nats://")?;
            if rest.rsplit_once('@').map_or(rest, |(_, host)| host).is_empty() {
                return Err("names no host".to_owned());
            }
            if *is_tls.get_or_insert(scheme == "tls") != (scheme == "tls") {
                return Err("has servers with and without TLS; use one of both".to_owned());
            }
        }
        Ok(Self(SecretString::from(text.to_owned())))
    }

    /// Returns whether the connection is encrypted in any case.
    pub fn is_tls(&self) -> bool {
        self.expose().starts_with("tls:")
    }

    fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// Returns each server without its login.
    pub(crate) fn servers(&self) -> impl Iterator<Item = String> {
        self.expose().split(',').filter_map(|url| {
            let (scheme, rest) = split(url)?;
            let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
            Some(format!("{scheme}://{host}"))
        })
    }

    /// Returns the login of the first server that has one.
    pub(crate) fn login(&self) -> UrlLogin<'_> {
        let mut logins = self.expose().split(',').filter_map(|url| split(url)?.1.rsplit_once('@'));
        match logins.next() {
            None => UrlLogin::None,
            Some((login, _)) => match login.split_once(':') {
                Some((user, password)) => UrlLogin::User(user, password),
                None => UrlLogin::Token(login),
            },
        }
    }
}

/// Returns scheme and the rest, without a path.
fn split(url: &str) -> Option<(&'static str, &str)> {
    let (scheme, rest) = ["nats", "tls"].into_iter().find_map(|scheme| {
        let rest = url.strip_prefix(scheme)?.strip_prefix("://")?;
        Some((scheme, rest))
    })?;
    // A `/` before an `@` is part of a password.
    let host_at = rest.rfind('@').map_or(0, |at| at + 1);
    let end = rest[host_at..].find(['/', '?', '#']).map_or(rest.len(), |at| host_at + at);
    Some((scheme, &rest[..end]))
}

impl fmt::Display for HiddenNatsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<String> = self.servers().collect();
        f.write_str(&servers.join(","))
    }
}

impl fmt::Debug for HiddenNatsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The seed of an nkey.
#[derive(Clone, Debug)]
pub struct NkeySeed(SecretString);

impl NkeySeed {
    #[cfg(feature = "nats")]
    pub(crate) fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl relais_core::setting::HiddenText for NkeySeed {
    fn hide(text: String) -> Result<Self, String> {
        let is_seed = text.starts_with("SU") && text.chars().all(|c| c.is_ascii_alphanumeric());
        if !is_seed {
            return Err("is not the seed of a user's nkey; it starts with `SU`".to_owned());
        }
        Ok(Self(SecretString::from(text)))
    }
}

/// The form of the body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NatsEnvelope {
    /// The body is the payload.
    #[default]
    None,
    /// CloudEvents: sent in binary mode, received in binary or structured mode.
    CloudEvents,
}

impl SettingWords for NatsEnvelope {
    const WORDS: &'static [(&'static str, Self)] =
        &[("none", Self::None), ("cloudevents", Self::CloudEvents)];
}

/// The first message of a new consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NatsStart {
    /// The oldest message of the stream.
    #[default]
    All,
    /// The first message after the consumer was created.
    New,
}

impl SettingWords for NatsStart {
    const WORDS: &'static [(&'static str, Self)] = &[("all", Self::All), ("new", Self::New)];
}

impl NatsSourceKeys {
    /// Reports keys that do not fit together, by name.
    pub fn check(&self, report: &mut dyn FnMut(&str, String)) {
        check_login(&self.url, self.nkey.is_some(), self.credentials.is_some(), report);
        check_tls_files(
            (self.url.is_tls(), "tls"),
            [&self.tls_ca, &self.tls_certificate, &self.tls_key],
            report,
        );
    }
}

impl NatsTargetKeys {
    /// Reports keys that do not fit together, by name.
    pub fn check(&self, report: &mut dyn FnMut(&str, String)) {
        check_login(&self.url, self.nkey.is_some(), self.credentials.is_some(), report);
        check_tls_files(
            (self.url.is_tls(), "tls"),
            [&self.tls_ca, &self.tls_certificate, &self.tls_key],
            report,
        );
    }
}

fn check_login(
    url: &HiddenNatsUrl,
    nkey: bool,
    credentials: bool,
    report: &mut dyn FnMut(&str, String),
) {
    let in_url = !matches!(url.login(), UrlLogin::None);
    if nkey && (in_url || credentials) {
        report("nkey", "is a second login; use one of `url`, `nkey` and `credentials`".to_owned());
    } else if credentials && in_url {
        let why = "is a second login; use one of `url`, `nkey` and `credentials`";
        report("credentials", why.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_login() {
        for (text, shown) in [
            ("nats://a:secret@n:4222", "nats://n:4222"),
            ("tls://secret@n.example", "tls://n.example"),
            ("tls://a:se/cr@et@n1,tls://n2:1/x?secret", "tls://n1,tls://n2:1"),
            ("nats://n", "nats://n"),
        ] {
            let url = HiddenNatsUrl::parse(text).unwrap();
            assert_eq!((url.to_string(), format!("{url:?}")), (shown.into(), shown.into()));
            assert_eq!(url.is_tls(), text.starts_with("tls"));
        }
        let wrong =
            ["http://secret", "nats://", "tls://a:secret@", "nats://secret,tls://b", "nats://a b"];
        for wrong in wrong {
            let why = HiddenNatsUrl::parse(wrong).unwrap_err();
            assert!(!why.contains("secret"), "{why}");
        }
    }

    #[test]
    fn a_login_is_a_user_or_a_token() {
        let url = |text| HiddenNatsUrl::parse(text).unwrap();
        assert!(matches!(url("nats://n").login(), UrlLogin::None));
        assert!(matches!(url("nats://t@n").login(), UrlLogin::Token("t")));
        assert!(matches!(url("nats://n,nats://a:p:q@m").login(), UrlLogin::User("a", "p:q")));
    }

    #[test]
    fn a_subject_has_parts_and_a_message_has_no_wildcard() {
        for good in ["a", "orders.eu.created", "$KV.a", "a*b.c>"] {
            assert_eq!(check_subject(good, Wildcards::Refused), Ok(()), "{good}");
        }
        for wildcard in ["orders.*", "orders.>", ">"] {
            assert!(check_subject(wildcard, Wildcards::Refused).is_err());
            assert_eq!(check_subject(wildcard, Wildcards::Allowed), Ok(()));
        }
        for bad in ["", ".", "a..b", "a.", "a b", "a\n", &"a".repeat(2_000)] {
            assert!(check_subject(bad, Wildcards::Allowed).is_err(), "{bad}");
        }
        assert!(subject_name("orders.*").is_err());
        assert!(subject_name("orders.{{key}}").is_ok());
    }

    #[test]
    fn a_seed_is_not_shown() {
        use relais_core::setting::HiddenText;
        let seed = NkeySeed::hide("SUACANARY".to_owned()).unwrap();
        assert!(!format!("{seed:?}").contains("CANARY"));
        assert!(!NkeySeed::hide("CANARY".to_owned()).unwrap_err().contains("CANARY"));
    }
}
