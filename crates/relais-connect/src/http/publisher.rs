//! Messages as HTTP requests: one request per message, the payload as body, everything else in
//! headers.
//!
//! Invariant: the response decides (see `classify`). No redirect is followed and no proxy of the
//! environment is used. Without `allow_private` it connects only to public addresses. A problem
//! shows only the origin of the URL and no value of a configured header.

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use relais_core::{
    InvalidSettings, async_trait,
    delivery::Delivery,
    outbox::OutboxRow,
    publisher::{Batching, Publisher},
};
use reqwest::Url;
use secrecy::SecretString;

use super::{
    WebhookSecret,
    classify::{self, StatusVerdict},
    outgoing::{HEADER_INVALID, OURS, RequestHeaders},
    private_address::{NameLookup, SystemLookup},
    request::unix_seconds,
    target::{DRAIN_MAX, HttpTarget, read},
};
use crate::ProbeError;

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
    target: HttpTarget,
    cloudevents: bool,
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
        let cloudevents = settings.cloudevents;
        Ok(Self { target: HttpTarget::new(settings, OURS, lookup)?, cloudevents })
    }

    /// Connects and requests the root of the host (`HEAD /`), without the configured headers. Any
    /// response is a success. The error says what is wrong and what to do.
    pub async fn probe(&self) -> Result<String, ProbeError> {
        self.target.probe().await.map_err(ProbeError::from)
    }

    async fn send(&self, row: &OutboxRow) -> Delivery {
        let builder = RequestHeaders {
            fixed: &self.target.fixed,
            secrets: &self.target.secrets,
            cloudevents: self.cloudevents,
            now_seconds: unix_seconds(),
        };
        let headers = match builder.headers(row) {
            Ok(headers) => headers,
            Err(why) => return Delivery::reject(HEADER_INVALID, &why),
        };
        let mut response = match self.target.send(headers, row.payload.clone()).await {
            Ok(response) => response,
            Err(delivery) => return delivery,
        };
        if classify::by_status(response.status().as_u16()) != StatusVerdict::Accepted {
            return self.target.failure(response).await;
        }
        read(&mut response, DRAIN_MAX).await;
        Delivery::Accepted
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
        f.debug_tuple("HttpPublisher").field(&self.target.call).finish()
    }
}
