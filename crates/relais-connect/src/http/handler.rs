//! Handlers behind HTTP: one `POST` per message, the payload as body, everything else in headers; the JSON
//! answer has the outcome and the messages to send.
//!
//! Invariant: only a complete answer of at most 1 MiB counts. A call that failed is classified as a failed
//! delivery is; evidence decides who is at fault.

use std::{fmt, sync::Arc, time::Duration};

use relais_core::{
    InvalidSettings, async_trait,
    delivery::Delivery,
    inbox::{InboxRow, original_source},
    process::handler_step::step_key,
    remote_handler::{RemoteHandler, RemoteReply},
    text,
};
use reqwest::Response;
use secrecy::SecretString;

use super::{
    HttpPublisherSettings, WebhookSecret,
    answer::{self, ANSWER_MAX, AnswerContext},
    classify::{self, StatusVerdict},
    outgoing::{HEADER_INVALID, OURS_IN_CALLS, RequestHeaders},
    private_address::SystemLookup,
    request::unix_seconds,
    target::{DRAIN_MAX, HttpTarget, read},
};
use crate::ProbeError;

/// Maximum number of bytes of an invalid answer that a problem shows.
const SHOWN_MAX: usize = 300;

/// The settings of a [`HttpHandler`]. Start from [`HttpHandlerSettings::new`].
#[derive(Clone)]
pub struct HttpHandlerSettings {
    /// The name of the handler. The idempotency keys of its calls depend on it.
    pub name: String,
    /// The address that is called.
    pub url: String,
    /// Sent with every call, e.g. `authorization`. They override headers of the message.
    pub headers: Vec<(String, SecretString)>,
    /// If any, calls are signed with each of them (Standard Webhooks).
    pub secrets: Vec<WebhookSecret>,
    /// The destinations that an answer may name.
    pub destinations: Vec<String>,
    /// Allows connections to addresses that are not public.
    pub allow_private: bool,
    /// Time limit of the whole call.
    pub timeout: Duration,
    /// Time limit of the connection; at most three quarters of `timeout`.
    pub connect_timeout: Duration,
}

impl HttpHandlerSettings {
    /// Sets a default for everything except the name and the URL. Without `destinations` no answer can send
    /// messages.
    pub fn new(name: &str, url: &str) -> Self {
        let HttpPublisherSettings { url, headers, secrets, allow_private, timeout, .. } =
            HttpPublisherSettings::new(url);
        Self {
            name: name.to_owned(),
            url,
            headers,
            secrets,
            destinations: Vec::new(),
            allow_private,
            timeout,
            connect_timeout: Duration::from_secs(5),
        }
    }

    fn request(&self) -> HttpPublisherSettings {
        HttpPublisherSettings {
            headers: self.headers.clone(),
            secrets: self.secrets.clone(),
            allow_private: self.allow_private,
            timeout: self.timeout,
            connect_timeout: self.connect_timeout,
            ..HttpPublisherSettings::new(&self.url)
        }
    }
}

impl fmt::Debug for HttpHandlerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpHandlerSettings")
            .field("name", &self.name)
            .field("request", &self.request())
            .field("destinations", &self.destinations)
            .finish()
    }
}

/// Calls a service for each message, and takes outcome and messages from its answer.
///
/// ```
/// use relais_connect::http::{HttpHandler, HttpHandlerSettings};
///
/// let mut settings = HttpHandlerSettings::new("billing", "https://billing.example.org/relais");
/// settings.destinations.push("shipping".into());
/// let handler = HttpHandler::new(settings)?;
/// assert_eq!(format!("{handler:?}"), r#"HttpHandler("POST https://billing.example.org")"#);
/// # Ok::<(), String>(())
/// ```
///
/// The body is the payload, byte for byte. Headers: `idempotency-key` (the same in every call about the
/// message), `message-id`, `source-system`, `event-type`, `aggregate-id`, `message-key`, `attempt`,
/// `received-at`, `event-time`, and those of the message itself, including `traceparent`.
pub struct HttpHandler {
    name: String,
    target: HttpTarget,
    destinations: Vec<String>,
}

impl HttpHandler {
    /// Validates the settings and builds the client, without connecting. The error says which
    /// setting to change.
    pub fn new(settings: HttpHandlerSettings) -> Result<Self, InvalidSettings> {
        let target = HttpTarget::new(settings.request(), OURS_IN_CALLS, Arc::new(SystemLookup))?;
        let HttpHandlerSettings { name, destinations, .. } = settings;
        Ok(Self { name, target, destinations })
    }

    /// Connects and requests the root of the host (`HEAD /`), without the configured headers. Any
    /// response is a success. The error says what is wrong and what to do.
    pub async fn probe(&self) -> Result<String, ProbeError> {
        self.target.probe().await.map_err(ProbeError::from)
    }

    /// Returns the id of every call about a message: message ids are unique in their source system only, and
    /// one service may have several handlers. It is equal for every attempt of a step of a process.
    fn call_id(&self, row: &InboxRow) -> String {
        if let Some(step) = step_key(row) {
            return text::stable_uuid(&["handler step", &self.name, step]).to_string();
        }
        let source = original_source(&row.source_system);
        text::stable_uuid(&["handler", &self.name, &source, &row.message_id]).to_string()
    }

    async fn answer(&self, row: &InboxRow, call_id: &str, mut response: Response) -> RemoteReply {
        let status = response.status().as_u16();
        match status {
            204 => {
                read(&mut response, DRAIN_MAX).await;
                return RemoteReply::Done { messages: Vec::new(), data: None };
            }
            200 => {}
            _ if classify::by_status(status) == StatusVerdict::Accepted => {
                let call = &self.target.call;
                let text = format!("{call} answered {status}; a handler answers 200 or 204");
                return RemoteReply::invalid(&text);
            }
            _ => return RemoteReply::Failed(self.target.failure(response).await),
        }
        let body = match self.body(&mut response).await {
            Ok(body) => body,
            Err(reply) => return reply,
        };
        let context = AnswerContext { row, call_id, destinations: &self.destinations };
        answer::parse(&body, &context).unwrap_or_else(|why| {
            let shown = self.target.excerpt(&body[..body.len().min(SHOWN_MAX)]);
            let text = format!("the answer of {} {why}; it was: {shown}", self.target.call);
            RemoteReply::invalid(&text)
        })
    }

    /// Returns the whole body of an answer.
    async fn body(&self, response: &mut Response) -> Result<Vec<u8>, RemoteReply> {
        let mut body = Vec::new();
        loop {
            match response.chunk().await {
                Ok(None) => return Ok(body),
                Ok(Some(chunk)) if body.len() + chunk.len() > ANSWER_MAX => {
                    let call = &self.target.call;
                    let text = format!(
                        "the answer of {call} has more than {ANSWER_MAX} bytes; send fewer messages, or \
                         write them to relais_outbox"
                    );
                    return Err(RemoteReply::invalid(&text));
                }
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Err(error) => {
                    let failed = classify::failed(&error, &self.target.call);
                    return Err(RemoteReply::Failed(failed));
                }
            }
        }
    }
}

#[async_trait]
impl RemoteHandler for HttpHandler {
    async fn call(&self, row: &InboxRow) -> RemoteReply {
        let builder = RequestHeaders {
            fixed: &self.target.fixed,
            secrets: &self.target.secrets,
            cloudevents: false,
            now_seconds: unix_seconds(),
        };
        let call_id = self.call_id(row);
        let body = row.payload.as_deref().unwrap_or("null");
        let headers = match builder.call_headers(row, &call_id, body) {
            Ok(headers) => headers,
            Err(why) => return RemoteReply::Failed(Delivery::reject(HEADER_INVALID, &why)),
        };
        match self.target.send(headers, body.to_owned()).await {
            Ok(response) => self.answer(row, &call_id, response).await,
            Err(delivery) => RemoteReply::Failed(delivery),
        }
    }
}

impl fmt::Debug for HttpHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HttpHandler").field(&self.target.call).finish()
    }
}
