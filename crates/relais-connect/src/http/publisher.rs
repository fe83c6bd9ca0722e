//! Messages as HTTP requests: one request for each, the payload as it is, the rest in headers.
//!
//! Invariant: the answer decides (see `classify`); no redirect is followed, no proxy of the
//! environment is used, and unless `allow_private` only public addresses are connected to. No part of
//! the URL but its origin, and no value of a configured header, ever shows in a problem.

use std::{
    fmt,
    str::FromStr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use relais_core::{
    BoxFuture, InvalidSettings,
    delivery::Delivery,
    outbox::OutboxRow,
    publisher::{Batching, Publisher},
};
use reqwest::{
    Client, Response, Url,
    header::{HeaderMap, LOCATION, RETRY_AFTER},
    redirect,
};

use super::{
    Secret, WebhookSecret,
    classify::{self, Verdict, harmless},
    guard::{self, Guard, Lookup, SystemLookup},
    outgoing::{self, Dress, HEADER_INVALID},
    request::unix_seconds,
};

/// How much of an answer is kept for people.
const EXCERPT_MAX: usize = 4 * 1024;
/// How much of an answer is read so that its connection can be used again.
const DRAIN_MAX: usize = 64 * 1024;
/// How long the body of an answer may take. The status has decided by then.
const DRAIN_TIME: Duration = Duration::from_secs(2);
/// Connections kept open while nothing is sent.
const IDLE_CONNECTIONS_MAX: usize = 32;
const IDLE_TIME: Duration = Duration::from_secs(30);
/// Shorter header values are too common to be hidden in answers.
const HIDDEN_MIN: usize = 8;

/// How requests are sent.
///
/// ```
/// use relais_connect::http::Method;
///
/// assert_eq!("patch".parse(), Ok(Method::Patch));
/// assert!("GET".parse::<Method>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    #[default]
    Post,
    Put,
    Patch,
}

impl Method {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
        }
    }
}

impl FromStr for Method {
    type Err = InvalidSettings;

    fn from_str(text: &str) -> Result<Self, InvalidSettings> {
        [Self::Post, Self::Put, Self::Patch]
            .into_iter()
            .find(|method| method.as_str().eq_ignore_ascii_case(text))
            .ok_or_else(|| {
                let text = format!("`{text}` is no method to send with; use POST, PUT or PATCH");
                InvalidSettings::new(text)
            })
    }
}

/// Where and how a [`HttpPublisher`] sends. Start from [`HttpPublisherSettings::new`].
#[derive(Clone)]
pub struct HttpPublisherSettings {
    pub url: String,
    pub method: Method,
    /// Sent with every message, e.g. `authorization`. They win over headers of the message.
    pub headers: Vec<(String, Secret)>,
    /// If any, requests are signed with each of them (Standard Webhooks).
    pub secrets: Vec<WebhookSecret>,
    /// Whether requests are CloudEvents in binary mode.
    pub cloudevents: bool,
    /// Whether addresses that are not public may be connected to.
    pub allow_private: bool,
    /// For the whole call.
    pub timeout: Duration,
    /// For the connection alone; at most three quarters of `timeout`.
    pub connect_timeout: Duration,
}

impl HttpPublisherSettings {
    /// Everything but the URL has a default.
    pub fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            method: Method::Post,
            headers: Vec::new(),
            secrets: Vec::new(),
            cloudevents: false,
            allow_private: false,
            timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
        }
    }
}

impl fmt::Debug for HttpPublisherSettings {
    /// Shows only the origin of the URL: its path or query may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = Url::parse(&self.url).map(|url| url.origin().ascii_serialization());
        f.debug_struct("HttpPublisherSettings")
            .field("url", &origin.unwrap_or_else(|_| "[unreadable]".to_owned()))
            .field("method", &self.method)
            .field("headers", &self.headers)
            .field("secrets", &self.secrets)
            .field("cloudevents", &self.cloudevents)
            .field("allow_private", &self.allow_private)
            .field("timeout", &self.timeout)
            .field("connect_timeout", &self.connect_timeout)
            .finish()
    }
}

/// Sends each message as one request.
///
/// ```
/// use relais_connect::http::{HttpPublisher, HttpPublisherSettings};
///
/// let mut settings = HttpPublisherSettings::new("https://example.org/hook?key=s3cret");
/// settings.headers.push(("authorization".into(), "Bearer t0ken".into()));
/// let publisher = HttpPublisher::new(settings)?;
/// assert_eq!(format!("{publisher:?}"), r#"HttpPublisher("POST https://example.org")"#);
/// # Ok::<(), String>(())
/// ```
///
/// The body is the payload, byte for byte. Headers: `idempotency-key` and `message-id` (the message
/// id), `event-type`, `event-version`, `aggregate-type`, `aggregate-id`, `message-key`,
/// `correlation-id`, `causation-id`, and those of the message itself, `traceparent` among them.
pub struct HttpPublisher {
    client: Client,
    url: Url,
    method: Method,
    fixed: HeaderMap,
    secrets: Vec<WebhookSecret>,
    cloudevents: bool,
    /// What problems call the request: `POST https://example.org`.
    call: String,
    /// Texts that must not show in a problem, even if the target sends them back.
    hidden: Vec<Secret>,
}

impl HttpPublisher {
    /// Checks the settings and makes the client; connects to nobody yet. The error says which
    /// setting to change.
    pub fn new(settings: HttpPublisherSettings) -> Result<Self, InvalidSettings> {
        Self::with_lookup(settings, Arc::new(SystemLookup))
    }

    pub(super) fn with_lookup(
        settings: HttpPublisherSettings,
        lookup: Arc<dyn Lookup>,
    ) -> Result<Self, InvalidSettings> {
        let url = guard::check_url(&settings.url, settings.allow_private)?;
        let fixed = outgoing::fixed(&settings.headers)?;
        let client = client(&settings, &url, lookup)?;
        Ok(Self {
            client,
            call: format!("{} {}", settings.method.as_str(), url.origin().ascii_serialization()),
            hidden: hidden(&settings.headers, &url),
            url,
            method: settings.method,
            fixed,
            secrets: settings.secrets,
            cloudevents: settings.cloudevents,
        })
    }

    /// Connects and asks for the root of the host (`HEAD /`), without any of the configured headers: any
    /// answer will do. The error says what is wrong and what to do.
    pub async fn probe(&self) -> Result<String, String> {
        let origin = self.url.origin().ascii_serialization();
        let call = format!("HEAD {origin}");
        match self.client.head(format!("{origin}/")).send().await {
            Ok(_) if self.url.scheme() == "https" => {
                Ok(format!("{origin} answers, and its certificate is valid"))
            }
            Ok(_) => Ok(format!("{origin} answers")),
            Err(error) => {
                let failed = classify::failed(&error, &call);
                Err(failed.problem().map_or(call, |(problem, _)| problem.message.clone()))
            }
        }
    }

    async fn deliver(&self, row: &OutboxRow) -> Delivery {
        let dress = Dress {
            fixed: &self.fixed,
            secrets: &self.secrets,
            cloudevents: self.cloudevents,
            now_seconds: unix_seconds(),
        };
        let headers = match dress.headers(row) {
            Ok(headers) => headers,
            Err(why) => return Delivery::reject(HEADER_INVALID, &why),
        };
        let method = match self.method {
            Method::Post => reqwest::Method::POST,
            Method::Put => reqwest::Method::PUT,
            Method::Patch => reqwest::Method::PATCH,
        };
        let request = self.client.request(method, self.url.clone()).headers(headers);
        match request.body(row.payload.clone()).send().await {
            Ok(response) => self.judge(response).await,
            Err(error) => classify::failed(&error, &self.call),
        }
    }

    async fn judge(&self, mut response: Response) -> Delivery {
        let status = response.status();
        if classify::by_status(status.as_u16()) == Verdict::Accepted {
            read(&mut response, DRAIN_MAX).await;
            return Delivery::Accepted;
        }
        let after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| classify::retry_after(value.to_str().ok()?, SystemTime::now()));
        let mut message = format!("{} answered {status}", self.call);
        if status.is_redirection() {
            let place = self.place(response.headers());
            message.push_str(&format!(" to {place}; redirects are not followed, change the url"));
        }
        let excerpt = self.excerpt(&read(&mut response, EXCERPT_MAX).await);
        if !excerpt.is_empty() {
            message.push_str(": ");
            message.push_str(&excerpt);
        }
        classify::answered(status.as_u16(), after, &message)
    }

    /// The host a redirect leads to.
    fn place(&self, headers: &HeaderMap) -> String {
        let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
        let target = location.and_then(|location| self.url.join(location).ok());
        let host = target.as_ref().and_then(Url::host_str);
        host.map_or_else(|| "an unknown place".to_owned(), |host| format!("`{host}`"))
    }

    /// An answer as people may see it: cut, harmless, without our secrets.
    fn excerpt(&self, body: &[u8]) -> String {
        let mut text = String::from_utf8_lossy(body).into_owned();
        for secret in &self.hidden {
            text = text.replace(secret.reveal(), "[hidden]");
        }
        harmless(text.trim())
    }
}

impl Publisher for HttpPublisher {
    fn publish<'a>(&'a self, messages: &'a [OutboxRow]) -> BoxFuture<'a, Vec<Delivery>> {
        Box::pin(async move {
            let mut deliveries = Vec::with_capacity(messages.len());
            for row in messages {
                deliveries.push(self.deliver(row).await);
            }
            deliveries
        })
    }

    fn batching(&self) -> Batching {
        Batching::Single
    }
}

impl fmt::Debug for HttpPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HttpPublisher").field(&self.call).finish()
    }
}

fn client(
    settings: &HttpPublisherSettings,
    url: &Url,
    lookup: Arc<dyn Lookup>,
) -> Result<Client, InvalidSettings> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Somebody else may have been faster; then theirs is used.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
    let mut builder = Client::builder()
        .user_agent(concat!("relais/", env!("CARGO_PKG_VERSION")))
        .no_proxy()
        .redirect(redirect::Policy::none())
        .referer(false)
        .retry(reqwest::retry::never())
        // The same request whatever features other connectors need.
        .no_gzip()
        .timeout(settings.timeout)
        .connect_timeout(settings.connect_timeout.min(settings.timeout.mul_f64(0.75)))
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .pool_idle_timeout(IDLE_TIME);
    if !settings.allow_private {
        builder = builder.dns_resolver(Arc::new(Guard(lookup)));
    }
    if url.scheme() == "http" {
        // Without TLS it must work on machines that have no root certificates.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| {
        let why = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        let text = format!(
            "the HTTP client cannot be made ({why}); https needs the system's root certificates"
        );
        InvalidSettings::new(text).caused_by(error)
    })
}

/// What a target might send back and nobody should read: header values, the token in them, the parts
/// of the URL's path and the values in its query. The longest first: one may hold another.
fn hidden(headers: &[(String, Secret)], url: &Url) -> Vec<Secret> {
    let values = headers.iter().map(|(_, value)| value.reveal());
    let values =
        values.flat_map(|value| [Some(value), value.split_once(' ').map(|(_, token)| token)]);
    let written = url.query().unwrap_or_default().split('&');
    let written = written.map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value));
    let mut hidden: Vec<String> = values
        .flatten()
        .chain(url.path().split('/'))
        .chain(written)
        .map(str::to_owned)
        .chain(url.query_pairs().map(|(_, value)| value.into_owned()))
        .filter(|text| text.len() >= HIDDEN_MIN)
        .collect();
    hidden.sort_by_key(|text| std::cmp::Reverse(text.len()));
    hidden.into_iter().map(Secret::from).collect()
}

/// At most `max` bytes of the body; what does not come in time does not come.
async fn read(response: &mut Response, max: usize) -> Vec<u8> {
    let mut body = Vec::new();
    let all = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            body.extend_from_slice(&chunk[..chunk.len().min(max - body.len())]);
            if body.len() == max {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(DRAIN_TIME, all).await;
    body
}
