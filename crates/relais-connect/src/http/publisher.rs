//! Messages as HTTP requests: one request per message, the payload as body, everything else in
//! headers.
//!
//! Invariant: the response decides (see `classify`). No redirect is followed and no proxy of the
//! environment is used. Without `allow_private` it connects only to public addresses. A problem
//! shows only the origin of the URL and no value of a configured header.

use std::{
    fmt,
    str::FromStr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use relais_core::{
    InvalidSettings, async_trait,
    delivery::Delivery,
    outbox::OutboxRow,
    publisher::{Batching, Publisher},
};
use reqwest::{
    Client, Request, Response, Url,
    header::{HeaderMap, LOCATION, RETRY_AFTER},
    redirect,
};
use secrecy::{ExposeSecret, SecretString};

use super::{
    WebhookSecret,
    classify::{self, StatusVerdict, harmless},
    outgoing::{self, HEADER_INVALID, RequestHeaders},
    private_address::{self, NameLookup, PublicResolver, SystemLookup},
    request::unix_seconds,
};

/// Maximum number of bytes of a response that a problem contains.
const EXCERPT_MAX: usize = 4 * 1024;
/// Maximum number of bytes of a response that are read so that its connection can be reused.
const DRAIN_MAX: usize = 64 * 1024;
/// Time limit for the body of a response. The status has decided by then.
const DRAIN_TIME: Duration = Duration::from_secs(2);
/// Connections that stay open while idle. More than a usual `concurrency`: calls that return together would
/// close the rest, and the next calls would connect again.
const IDLE_CONNECTIONS_MAX: usize = 512;
const IDLE_TIME: Duration = Duration::from_secs(30);
/// Shorter header values are too common to be hidden in responses.
const HIDDEN_MIN: usize = 8;

/// The method of the requests.
///
/// ```
/// use relais_connect::http::Method;
///
/// assert_eq!("patch".parse(), Ok(Method::Patch));
/// assert!("GET".parse::<Method>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// `POST`.
    #[default]
    Post,
    /// `PUT`.
    Put,
    /// `PATCH`.
    Patch,
}

impl Method {
    /// Returns the name of the method.
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
                let text = format!("`{text}` is not a supported method; use POST, PUT or PATCH");
                InvalidSettings::new(text)
            })
    }
}

/// The target of a [`HttpPublisher`]. Start from [`HttpPublisherSettings::new`].
#[derive(Clone)]
pub struct HttpPublisherSettings {
    /// The address that messages are sent to.
    pub url: String,
    /// The method of each request.
    pub method: Method,
    /// Sent with every message, e.g. `authorization`. They override headers of the message.
    pub headers: Vec<(String, SecretString)>,
    /// If any, requests are signed with each of them (Standard Webhooks).
    pub secrets: Vec<WebhookSecret>,
    /// Sends CloudEvents in binary mode.
    pub cloudevents: bool,
    /// Allows connections to addresses that are not public.
    pub allow_private: bool,
    /// Time limit of the whole call.
    pub timeout: Duration,
    /// Time limit of the connection; at most three quarters of `timeout`.
    pub connect_timeout: Duration,
}

impl HttpPublisherSettings {
    /// Sets a default for everything except the URL.
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
            .field("url", &origin.unwrap_or_else(|_| "[invalid]".to_owned()))
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
/// `correlation-id`, `causation-id`, and those of the message itself, including `traceparent`.
pub struct HttpPublisher {
    client: Client,
    url: Url,
    method: Method,
    fixed: HeaderMap,
    secrets: Vec<WebhookSecret>,
    cloudevents: bool,
    /// The name of the request in problems: `POST https://example.org`.
    call: String,
    /// Texts that must not appear in a problem, even if the target echoes them.
    hidden: Vec<SecretString>,
}

impl HttpPublisher {
    /// Validates the settings and builds the client, without connecting. The error says which
    /// setting to change.
    pub fn new(settings: HttpPublisherSettings) -> Result<Self, InvalidSettings> {
        Self::with_lookup(settings, Arc::new(SystemLookup))
    }

    pub(super) fn with_lookup(
        settings: HttpPublisherSettings,
        lookup: Arc<dyn NameLookup>,
    ) -> Result<Self, InvalidSettings> {
        let url = private_address::check_url(&settings.url, settings.allow_private)?;
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

    /// Connects and requests the root of the host (`HEAD /`), without the configured headers. Any
    /// response is a success. The error says what is wrong and what to do.
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

    async fn send(&self, row: &OutboxRow) -> Delivery {
        let builder = RequestHeaders {
            fixed: &self.fixed,
            secrets: &self.secrets,
            cloudevents: self.cloudevents,
            now_seconds: unix_seconds(),
        };
        let headers = match builder.headers(row) {
            Ok(headers) => headers,
            Err(why) => return Delivery::reject(HEADER_INVALID, &why),
        };
        let method = match self.method {
            Method::Post => reqwest::Method::POST,
            Method::Put => reqwest::Method::PUT,
            Method::Patch => reqwest::Method::PATCH,
        };
        // Built whole: a builder would merge and copy the headers once more.
        let mut request = Request::new(method, self.url.clone());
        *request.headers_mut() = headers;
        *request.body_mut() = Some(row.payload.clone().into());
        match self.client.execute(request).await {
            Ok(response) => self.judge(response).await,
            Err(error) => classify::failed(&error, &self.call),
        }
    }

    async fn judge(&self, mut response: Response) -> Delivery {
        let status = response.status();
        if classify::by_status(status.as_u16()) == StatusVerdict::Accepted {
            read(&mut response, DRAIN_MAX).await;
            return Delivery::Accepted;
        }
        let after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| classify::retry_after(value.to_str().ok()?, SystemTime::now()));
        let mut message = format!("{} answered {status}", self.call);
        if status.is_redirection() {
            let host = self.redirect_host(response.headers());
            message.push_str(&format!(" to {host}; redirects are not followed; change the url"));
        }
        let excerpt = self.excerpt(&read(&mut response, EXCERPT_MAX).await);
        if !excerpt.is_empty() {
            message.push_str(": ");
            message.push_str(&excerpt);
        }
        classify::answered(status.as_u16(), after, &message)
    }

    /// Returns the host of a redirect.
    fn redirect_host(&self, headers: &HeaderMap) -> String {
        let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
        let target = location.and_then(|location| self.url.join(location).ok());
        let host = target.as_ref().and_then(Url::host_str);
        host.map_or_else(|| "an unknown host".to_owned(), |host| format!("`{host}`"))
    }

    /// Returns a response as text that is safe to show: shortened, without control characters and
    /// secrets.
    fn excerpt(&self, body: &[u8]) -> String {
        let mut text = String::from_utf8_lossy(body).into_owned();
        for secret in &self.hidden {
            text = text.replace(secret.expose_secret(), "[hidden]");
        }
        harmless(text.trim())
    }
}

#[async_trait]
impl Publisher for HttpPublisher {
    async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery> {
        let mut deliveries = Vec::with_capacity(messages.len());
        for row in messages {
            deliveries.push(self.send(row).await);
        }
        deliveries
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
    lookup: Arc<dyn NameLookup>,
) -> Result<Client, InvalidSettings> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // If another thread installed one first, that one is used.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
    let mut builder = Client::builder()
        .user_agent(concat!("relais/", env!("CARGO_PKG_VERSION")))
        .no_proxy()
        .redirect(redirect::Policy::none())
        .referer(false)
        .retry(reqwest::retry::never())
        // Sends the same request whatever features other connectors enable.
        .no_gzip()
        .timeout(settings.timeout)
        .connect_timeout(settings.connect_timeout.min(settings.timeout.mul_f64(0.75)))
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .pool_idle_timeout(IDLE_TIME);
    if !settings.allow_private {
        builder = builder.dns_resolver(Arc::new(PublicResolver(lookup)));
    }
    if url.scheme() == "http" {
        // Without TLS it must work on machines without root certificates.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| {
        let why = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        let text = format!(
            "cannot build the HTTP client: {why}; https needs the root certificates of the system"
        );
        InvalidSettings::new(text).caused_by(error)
    })
}

/// Returns the secrets that a target might echo: header values, the tokens in them, the segments of
/// the URL's path and the values in its query. The longest come first, because one may contain
/// another.
fn hidden(headers: &[(String, SecretString)], url: &Url) -> Vec<SecretString> {
    let values = headers.iter().map(|(_, value)| value.expose_secret());
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
    hidden.into_iter().map(SecretString::from).collect()
}

/// Reads at most `max` bytes of the body, and only what arrives in time.
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
