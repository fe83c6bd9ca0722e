//! Webhooks as a source: each request waits until its message is durable.
//!
//! Invariant: `202` is answered only after `acknowledge`. Waiting requests are stored together, in
//! one commit.

use std::{
    fmt, io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use relais_core::{
    async_trait,
    extract::{Mapping, Pick},
    inbox::{AcceptOutcome, Content},
    source::{Source, SourceBatch, SourceError},
};
use relais_listen::Tls;
use tokio::{
    net::TcpListener,
    sync::{Semaphore, mpsc, watch},
};

use super::{
    SecretString, WebhookSecret,
    bodies::Bodies,
    request::{
        IngestAnswer, PAUSED, PendingMessage, RequestReceiver, SECRET_HEADERS, WaitingSender,
    },
    server::{self, CloseHandle},
    settings::BODY_DEFAULT,
    signature,
};

/// A batch ends with the body that reaches this many bytes, because the store copies them.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// The settings of a [`HttpSource`]. Start from [`HttpSourceSettings::new`].
#[derive(Clone, Debug)]
pub struct HttpSourceSettings {
    /// The path of the source, and the topic of its messages.
    pub name: String,
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The decoder and the places of ids in its messages.
    pub mapping: Mapping,
    /// The treatment of a body that is not JSON.
    pub invalid: OnInvalidBody,
    /// If set, requests must send it as `authorization: Bearer …`.
    pub token: Option<SecretString>,
    /// If any, requests must be signed with one of them (Standard Webhooks).
    pub secrets: Vec<WebhookSecret>,
    /// Maximum size of a body, in bytes.
    pub body_max: usize,
    /// Maximum number of bytes of all waiting bodies; at least one body always fits.
    pub buffered_max: usize,
    /// Maximum number of messages that wait to be stored.
    pub queue_max: usize,
    /// Maximum number of open connections. For one more, the longest idle one is closed.
    pub connections_max: usize,
    /// Maximum number of open connections per address.
    pub connections_per_address_max: usize,
    /// Time limit for the headers of a request, and for an idle connection.
    pub header_timeout: Duration,
    /// Time limit for a body.
    pub body_timeout: Duration,
    /// Longest pause within a body.
    pub body_pause_max: Duration,
    /// Time that a sender waits for its message to be stored before it is asked to send again.
    pub answer_timeout: Duration,
    /// Encrypts connections with this certificate.
    pub tls: Option<Tls>,
}

impl HttpSourceSettings {
    /// Sets a default for everything except these.
    pub fn new(name: &str, listen: SocketAddr, mapping: Mapping) -> Self {
        Self {
            name: name.to_owned(),
            listen,
            mapping,
            invalid: OnInvalidBody::Store,
            token: None,
            secrets: Vec::new(),
            body_max: BODY_DEFAULT,
            buffered_max: 32 * 1024 * 1024,
            queue_max: 1_024,
            connections_max: 1_024,
            connections_per_address_max: 512,
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            body_pause_max: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(30),
            tls: None,
        }
    }

    /// Returns whether a header of a request is not stored.
    pub(super) fn is_secret(&self, name: &str) -> bool {
        let is = |secret: &str| secret.eq_ignore_ascii_case(name);
        SECRET_HEADERS.into_iter().any(is) || (!self.secrets.is_empty() && is(signature::SIGNATURE))
    }

    fn check(&self) -> Result<(), HttpSourceError> {
        let wrong = |text: String| Err(HttpSourceError::Settings(text));
        if self.name.is_empty() || self.name.starts_with('/') {
            return wrong(
                "the name of an http source must be a path without the leading `/`".into(),
            );
        }
        match &self.mapping.message_id {
            Pick::Position => wrong(
                "`message_id = \"position\"` has no meaning over HTTP; use `header:NAME`, \
                 `payload:/JSON/POINTER` or `key`"
                    .into(),
            ),
            Pick::Header(name) if self.is_secret(name) => wrong(format!(
                "cannot use `message_id = \"header:{name}\"`: this header is never stored; choose another one"
            )),
            _ => Ok(()),
        }
    }
}

/// The treatment of a body that is not JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnInvalidBody {
    /// Stores it as `SERDE_ERROR` and answers `202`.
    #[default]
    Store,
    /// Answers `400` and does not store it.
    Reject,
}

/// The reason why a [`HttpSource`] cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpSourceError {
    /// A setting is wrong.
    #[error("{0}")]
    Settings(String),
    #[error(
        "cannot listen on {listen}: {reason}; use another address, or stop the process that uses this one"
    )]
    /// The address cannot be listened on.
    Listen {
        /// The address.
        listen: SocketAddr,
        /// The error of the operating system.
        reason: io::Error,
    },
}

/// Receives messages by `POST /name`.
///
/// ```
/// use relais_connect::http::{HttpSource, HttpSourceSettings};
/// use relais_core::extract::{Mapping, Pick};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mapping = Mapping::json("crm").event_type(Pick::payload("/type")); // id: header `message-id`
/// let settings = HttpSourceSettings::new("hook", "127.0.0.1:0".parse()?, mapping);
/// let source = HttpSource::bind(settings).await?;
/// println!("POST http://{}/hook", source.local_addr());
/// # Ok(())
/// # }
/// ```
///
/// Answers are JSON: `202` with `{"status", "message_id"}` when the message is durable, otherwise
/// `{"error", "message"}`. Dropping the source closes it.
pub struct HttpSource {
    local_addr: SocketAddr,
    queue: mpsc::Receiver<PendingMessage>,
    closing: watch::Receiver<bool>,
    close: CloseHandle,
    paused: Arc<AtomicBool>,
    /// The senders of the batch in flight, in its order.
    unanswered: Vec<WaitingSender>,
}

impl HttpSource {
    /// Validates the settings, binds the listener and starts to serve. Needs a tokio runtime.
    pub async fn bind(settings: HttpSourceSettings) -> Result<Self, HttpSourceError> {
        settings.check()?;
        let listen = settings.listen;
        let failed = |reason| HttpSourceError::Listen { listen, reason };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let local_addr = listener.local_addr().map_err(failed)?;
        let (close, finished) = server::close_handle();
        let (sender, queue) = mpsc::channel(settings.queue_max.max(1));
        let buffered_max = settings.buffered_max.max(settings.body_max).min(Semaphore::MAX_PERMITS);
        let tls = settings.tls.clone();
        let paused = Arc::new(AtomicBool::new(false));
        let receiver = RequestReceiver {
            bodies: Bodies::new(buffered_max / 2),
            settings,
            queue: sender,
            buffer: Arc::new(Semaphore::new(buffered_max)),
            closing: close.closing(),
            paused: Arc::clone(&paused),
        };
        tokio::spawn(server::serve(listener, Arc::new(receiver), tls, finished));
        let closing = close.closing();
        Ok(Self { local_addr, queue, closing, close, paused, unanswered: Vec::new() })
    }

    /// Returns the address of the listener; useful with port 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Returns a handle that closes the source from another task.
    pub fn close_handle(&self) -> CloseHandle {
        self.close.clone()
    }
}

fn size(content: &Content) -> usize {
    match content {
        Content::Json(json) => json.len(),
        Content::Undecodable { bytes, .. } => bytes.len(),
    }
}

#[async_trait]
impl Source for HttpSource {
    async fn next(&mut self, max: usize) -> Result<SourceBatch, SourceError> {
        // The last batch was neither acknowledged nor refused: dropping its senders asks them to
        // send again.
        self.unanswered.clear();
        let mut taken = Vec::new();
        let first = tokio::select! {
            biased;
            _ = self.closing.wait_for(|closing| *closing) => None,
            first = self.queue.recv() => first,
        };
        let mut next = first;
        let mut bytes = 0;
        while let Some(pending) = next {
            bytes += size(&pending.message.content);
            taken.push(pending);
            let more = taken.len() < max && bytes < BATCH_BYTES;
            next = if more { self.queue.try_recv().ok() } else { None };
        }
        if taken.is_empty() {
            // Dropping the message asks its waiting sender to send again.
            self.queue.close();
            while self.queue.try_recv().is_ok() {}
            return Err(SourceError::Closed);
        }
        let (messages, out) = taken.into_iter().map(|p| (p.message, p.sender)).unzip();
        self.unanswered = out;
        Ok(SourceBatch { messages, positions: Vec::new() })
    }

    async fn acknowledge(&mut self, accepted: Vec<AcceptOutcome>) -> Result<(), SourceError> {
        for (waiting, accepted) in self.unanswered.drain(..).zip(accepted) {
            // A sender that has disconnected sends again and is answered as a duplicate.
            let _ = waiting.answer.send(IngestAnswer::Accepted(accepted));
        }
        Ok(())
    }

    async fn refuse(&mut self, reason: String) {
        for waiting in self.unanswered.drain(..) {
            let _ = waiting.answer.send(IngestAnswer::Refused(reason.clone()));
        }
    }

    async fn pause(&mut self) {
        self.paused.store(true, Relaxed);
        self.unanswered.clear();
        // Also answers messages that arrived before the pause.
        while let Ok(pending) = self.queue.try_recv() {
            let _ = pending.sender.answer.send(IngestAnswer::Refused(PAUSED.to_owned()));
        }
    }

    async fn resume(&mut self) {
        self.paused.store(false, Relaxed);
    }

    /// Asks the senders of an open batch and of waiting messages to send again, and waits until every response
    /// is sent.
    async fn close(&mut self) {
        self.unanswered.clear();
        self.queue.close();
        while self.queue.try_recv().is_ok() {}
        self.close.close().await;
    }
}

impl fmt::Debug for HttpSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HttpSource").field(&self.local_addr).finish()
    }
}

impl Drop for HttpSource {
    fn drop(&mut self) {
        self.close.start();
    }
}
