//! Webhooks as a source: each request waits until its message is durable.
//!
//! Invariant: `202` is answered only after `acknowledge`. Requests that wait together are stored
//! together: one commit serves all of them.

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
    BoxFuture,
    extract::{Mapping, Pick},
    inbox::{Accepted, Content},
    source::{Source, SourceBatch, SourceError},
};
use relais_listen::Tls;
use tokio::{
    net::TcpListener,
    sync::{Semaphore, mpsc, watch},
};

use super::{
    Secret, WebhookSecret,
    bodies::Bodies,
    request::{Answer, PAUSED, Pending, Receiver, SECRET_HEADERS, Waiting},
    server::{self, CloseHandle},
    signature,
};

/// Bodies stored in one transaction end with the one that reaches so many bytes: the store copies them.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// How a [`HttpSource`] listens. Start from [`HttpSourceSettings::new`].
#[derive(Clone, Debug)]
pub struct HttpSourceSettings {
    /// The path it listens at, and the topic of its messages.
    pub name: String,
    pub listen: SocketAddr,
    pub mapping: Mapping,
    /// What happens to a body that is not JSON.
    pub invalid: Invalid,
    /// If set, requests must send it as `authorization: Bearer …`.
    pub token: Option<Secret>,
    /// If any, requests must be signed with one of them (Standard Webhooks).
    pub secrets: Vec<WebhookSecret>,
    /// Largest body, in bytes.
    pub body_max: usize,
    /// Most bytes of all bodies that wait at the same time; at least one body always fits.
    pub buffered_max: usize,
    /// Most messages that wait to be stored.
    pub queue_max: usize,
    /// Most open connections. For one more, the longest idle one is closed.
    pub connections_max: usize,
    /// Most open connections of one address.
    pub connections_per_address_max: usize,
    /// How long a sender may take for its headers, and keep a connection open without a request.
    pub header_timeout: Duration,
    /// How long a sender may take for its body.
    pub body_timeout: Duration,
    /// How long a sender may pause within its body.
    pub body_pause_max: Duration,
    /// How long a sender waits for its message to be stored before it is told to send again.
    pub answer_timeout: Duration,
    /// Encrypts connections with this certificate.
    pub tls: Option<Tls>,
}

impl HttpSourceSettings {
    /// Everything but these has a default.
    pub fn new(name: &str, listen: SocketAddr, mapping: Mapping) -> Self {
        Self {
            name: name.to_owned(),
            listen,
            mapping,
            invalid: Invalid::Store,
            token: None,
            secrets: Vec::new(),
            body_max: 8 * 1024 * 1024,
            buffered_max: 48 * 1024 * 1024,
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

    /// Whether a header of a request is kept out of the inbox.
    pub(super) fn is_secret(&self, name: &str) -> bool {
        let is = |secret: &str| secret.eq_ignore_ascii_case(name);
        SECRET_HEADERS.into_iter().any(is) || (!self.secrets.is_empty() && is(signature::SIGNATURE))
    }

    fn check(&self) -> Result<(), HttpSourceError> {
        let wrong = |text: String| Err(HttpSourceError::Settings(text));
        if self.name.is_empty() || self.name.starts_with('/') {
            return wrong("the name of a http source must be a path without its first `/`".into());
        }
        match &self.mapping.message_id {
            Pick::Position => wrong(
                "`message_id = \"position\"` means nothing over HTTP; use `header:NAME`, \
                 `payload:/JSON/POINTER` or `key`"
                    .into(),
            ),
            Pick::Header(name) if self.is_secret(name) => wrong(format!(
                "`message_id = \"header:{name}\"` cannot be used: that header is never stored"
            )),
            _ => Ok(()),
        }
    }
}

/// What happens to a body that is not JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Invalid {
    /// It is stored as `SERDE_ERROR` and answered `202`.
    #[default]
    Store,
    /// It is answered `400` and not kept.
    Reject,
}

/// Why a [`HttpSource`] cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpSourceError {
    #[error("{0}")]
    Settings(String),
    #[error("cannot listen on {listen}: {reason}; choose another address or stop who uses it")]
    Listen { listen: SocketAddr, reason: io::Error },
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
    queue: mpsc::Receiver<Pending>,
    closing: watch::Receiver<bool>,
    close: CloseHandle,
    paused: Arc<AtomicBool>,
    /// The senders of the batch that is being stored, in its order.
    out: Vec<Waiting>,
}

impl HttpSource {
    /// Checks the settings, listens and starts to serve. Needs a tokio runtime.
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
        let receiver = Receiver {
            bodies: Bodies::new(buffered_max / 2),
            settings,
            queue: sender,
            buffer: Arc::new(Semaphore::new(buffered_max)),
            closing: close.closing(),
            paused: Arc::clone(&paused),
        };
        tokio::spawn(server::serve(listener, Arc::new(receiver), tls, finished));
        let closing = close.closing();
        Ok(Self { local_addr, queue, closing, close, paused, out: Vec::new() })
    }

    /// The address it listens at; useful when the settings left the port open.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Closes the source from elsewhere.
    pub fn close_handle(&self) -> CloseHandle {
        self.close.clone()
    }

    async fn take(&mut self, max: usize) -> Result<SourceBatch, SourceError> {
        // Senders of a batch nobody settled: they are told to send again.
        self.out.clear();
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
            // Every sender that still waits is told so by the drop of its message.
            self.queue.close();
            while self.queue.try_recv().is_ok() {}
            return Err(SourceError::Closed);
        }
        let (messages, out) = taken.into_iter().map(|p| (p.message, p.sender)).unzip();
        self.out = out;
        Ok(SourceBatch { messages, positions: Vec::new() })
    }
}

fn size(content: &Content) -> usize {
    match content {
        Content::Json(json) => json.len(),
        Content::Undecodable { bytes, .. } => bytes.len(),
    }
}

impl Source for HttpSource {
    fn next(&mut self, max: usize) -> BoxFuture<'_, Result<SourceBatch, SourceError>> {
        Box::pin(self.take(max))
    }

    fn acknowledge(&mut self, accepted: Vec<Accepted>) -> BoxFuture<'_, Result<(), SourceError>> {
        for (waiting, accepted) in self.out.drain(..).zip(accepted) {
            // A sender that went away sends again and hears that it is a duplicate.
            let _ = waiting.answer.send(Answer::Accepted(accepted));
        }
        Box::pin(async { Ok(()) })
    }

    fn refuse(&mut self, reason: String) -> BoxFuture<'_, ()> {
        for waiting in self.out.drain(..) {
            let _ = waiting.answer.send(Answer::Refused(reason.clone()));
        }
        Box::pin(async {})
    }

    fn pause(&mut self) -> BoxFuture<'_, ()> {
        self.paused.store(true, Relaxed);
        self.out.clear();
        // Those that came before the pause are told as well.
        while let Ok(pending) = self.queue.try_recv() {
            let _ = pending.sender.answer.send(Answer::Refused(PAUSED.to_owned()));
        }
        Box::pin(async {})
    }

    fn resume(&mut self) -> BoxFuture<'_, ()> {
        self.paused.store(false, Relaxed);
        Box::pin(async {})
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
