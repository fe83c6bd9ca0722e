//! The keys of kind `http` in the configuration, of a source and of a destination.

use std::{fmt, net::SocketAddr, ops::Deref};

use relais_core::{
    InvalidSettings,
    extract::Pick,
    setting::{
        ByteSize, FilePath, Hidden, HiddenList, HiddenTable, HiddenText, JsonDecoder, Listen,
        OnOff, Selector, SettingWords, Word,
    },
    settings, text_kinds,
};
use reqwest::{Url, header::HeaderName};

use super::{
    HttpHandlerSettings, HttpPublisherSettings, Method, OnInvalidBody, SecretString, WebhookSecret,
    private_address,
};

/// The largest body of a request unless the configuration has another.
pub(super) const BODY_DEFAULT: usize = 8 << 20;
/// The largest body that a source can be configured for.
const BODY_MAX: usize = 256 << 20;

settings! {
    /// `[[source]]` of kind `http`
    pub struct HttpSourceKeys {
        /// each source needs its own
        listen: Listen = SocketAddr::from(([127, 0, 0, 1], 7071));
        /// the id by which duplicates are recognised
        message_id: Selector = Pick::Header("message-id".to_owned());
        /// `"json"` (UTF-8) or `"json-latin1"` (ISO 8859-1)
        decoder: JsonDecoder = relais_core::decode::Decoder::Json;
        /// a body that is not JSON: `"store"` keeps it as `SERDE_ERROR` and answers 202, `"reject"` answers 400
        invalid: Word<OnInvalidBody> = OnInvalidBody::default();
        /// the largest body
        body_max: ByteSize = BODY_DEFAULT, 1..=BODY_MAX;
        /// PEM file with the certificate chain
        tls_certificate: Option<FilePath>;
        /// PEM file with its private key
        tls_key: Option<FilePath>;
        /// senders must add `authorization: Bearer …`
        token: Option<Hidden<SecretString>>;
        /// senders must sign (Standard Webhooks)
        secret: Option<Hidden<WebhookSecret>>;
        /// instead of `secret`: 1 to 8, of which any one is accepted
        secrets: HiddenList<WebhookSecret>;
    }

    /// `[[destination]]` of kind `http`
    pub struct HttpTargetKeys {
        /// `https://` or `http://`, without credentials
        url: TargetUrl => "write for example \"https://example.com/orders\"";
        /// `"POST"`, `"PUT"` or `"PATCH"`
        method: Word<Method> = Method::default();
        /// sent with every message; they replace headers of the message. Never shown
        headers: HiddenTable<SecretString>;
        /// sign each request (Standard Webhooks). After `whsec_` it is Base64
        secret: Option<Hidden<WebhookSecret>>;
        /// instead of `secret`: 1 to 8; each request has a signature of each
        secrets: HiddenList<WebhookSecret>;
        /// add the headers of CloudEvents 1.0
        cloudevents: OnOff = false;
        /// allow connections to private addresses
        allow_private: OnOff = false;
    }

    /// `[[handler]]` of kind `http`
    pub struct HttpHandlerKeys {
        /// `https://` or `http://`, without credentials
        url: TargetUrl => "write for example \"https://billing.example.com/relais\"";
        /// sent with every call; they replace headers of the message. Never shown
        headers: HiddenTable<SecretString>;
        /// sign each call (Standard Webhooks). After `whsec_` it is Base64
        secret: Option<Hidden<WebhookSecret>>;
        /// instead of `secret`: 1 to 8; each call has a signature of each
        secrets: HiddenList<WebhookSecret>;
        /// allow connections to private addresses
        allow_private: OnOff = false;
    }
}

text_kinds! {
    /// A URL to send to. It may have a key in its path or query, so it is never shown.
    pub TargetUrl -> HiddenUrl, "text", |text| match Url::parse(text) {
            Err(_) => Err("is not a url; write for example \"https://example.com/orders\"".to_owned()),
            Ok(url) => HiddenUrl::new(url, "put it in a header instead").map_err(String::from),
        }, hidden true;
}

/// A URL of which only the origin is shown.
#[derive(Clone)]
pub struct HiddenUrl(Url);

impl HiddenUrl {
    /// Returns the URL if it is one of HTTP without credentials; `instead` names where those belong.
    pub fn new(url: Url, instead: &str) -> Result<Self, InvalidSettings> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err("must start with https:// or http://".into());
        }
        if !url.has_host() {
            return Err("names no host".into());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(format!("has a login in it; {instead}").into());
        }
        Ok(Self(url))
    }
}

impl Deref for HiddenUrl {
    type Target = Url;

    fn deref(&self) -> &Url {
        &self.0
    }
}

impl fmt::Display for HiddenUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = if self.path() == "/" && self.query().is_none() { "" } else { "/…" };
        write!(f, "{}{rest}", self.origin().ascii_serialization())
    }
}

impl fmt::Debug for HiddenUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl HttpSourceKeys {
    /// Reports keys that do not fit together, by name.
    pub fn check(&self, report: &mut dyn FnMut(&str, String)) {
        check_secrets(self.secret.is_some(), &self.secrets, report);
    }

    /// Returns the secrets of which each request must be signed with one.
    pub fn signing(&self) -> Vec<WebhookSecret> {
        self.secret.iter().chain(&self.secrets).cloned().collect()
    }
}

impl HttpTargetKeys {
    /// Reports keys that do not fit together, by name.
    pub fn check(&self, report: &mut dyn FnMut(&str, String)) {
        check_secrets(self.secret.is_some(), &self.secrets, report);
        check_target(&self.url, self.allow_private, &self.headers, report);
    }

    /// Returns the settings of the publisher.
    pub fn settings(&self) -> HttpPublisherSettings {
        HttpPublisherSettings {
            method: self.method,
            headers: self.headers.clone(),
            secrets: self.secret.iter().chain(&self.secrets).cloned().collect(),
            cloudevents: self.cloudevents,
            allow_private: self.allow_private,
            ..HttpPublisherSettings::new(self.url.as_str())
        }
    }
}

impl HttpHandlerKeys {
    /// Reports keys that do not fit together, by name.
    pub fn check(&self, report: &mut dyn FnMut(&str, String)) {
        check_secrets(self.secret.is_some(), &self.secrets, report);
        check_target(&self.url, self.allow_private, &self.headers, report);
    }

    /// Returns the secrets of which each call has a signature.
    pub fn signing(&self) -> Vec<WebhookSecret> {
        self.secret.iter().chain(&self.secrets).cloned().collect()
    }

    /// Returns the settings of the handler of this name.
    pub fn settings(&self, name: &str) -> HttpHandlerSettings {
        HttpHandlerSettings {
            headers: self.headers.clone(),
            secrets: self.signing(),
            allow_private: self.allow_private,
            ..HttpHandlerSettings::new(name, self.url.as_str())
        }
    }
}

fn check_target(
    url: &Url,
    allow_private: bool,
    headers: &[(String, SecretString)],
    report: &mut dyn FnMut(&str, String),
) {
    for (name, _) in headers {
        if HeaderName::from_bytes(name.as_bytes()).is_err() {
            report("headers", format!("`{name}` is not a header name"));
        }
    }
    let host = url.host_str().unwrap_or_default();
    let is_local = host == "localhost" || host.ends_with(".localhost");
    let is_public = private_address::check_url(url.as_str(), allow_private).is_ok();
    if !allow_private && (is_local || !is_public) {
        let text = "is a private address; set `allow_private = true` if that is meant";
        report("url", text.to_owned());
    }
}

fn check_secrets(has_one: bool, several: &[WebhookSecret], report: &mut dyn FnMut(&str, String)) {
    if has_one && !several.is_empty() {
        report("secrets", "give either `secret` or `secrets`, not both".to_owned());
    }
}

impl HiddenText for WebhookSecret {
    fn hide(text: String) -> Result<Self, String> {
        Ok(text.parse::<Self>()?)
    }
}

impl SettingWords for Method {
    const WORDS: &'static [(&'static str, Self)] =
        &[("POST", Self::Post), ("PUT", Self::Put), ("PATCH", Self::Patch)];
}

impl SettingWords for OnInvalidBody {
    const WORDS: &'static [(&'static str, Self)] =
        &[("store", Self::Store), ("reject", Self::Reject)];
}
