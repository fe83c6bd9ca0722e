//! One request: checked, read up to its limits, mapped, queued, and answered only after the ingest
//! worker has stored or refused it.
//!
//! Invariant: at most `body_max` bytes of one body and `buffered_max` bytes of all bodies are held.
//! A sender that disconnects does not affect messages that are already queued.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use http_body_util::BodyExt;
use hyper::{
    HeaderMap, Method, Request,
    body::{Body, Incoming as RequestBody},
    header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT},
    http::request::Parts,
};
use percent_encoding::percent_decode_str;
use relais_core::{
    extract::{Incoming, Value},
    inbox::{AcceptOutcome, Content, NewInbox},
    message::{HeaderValue, Headers},
    time::Timestamp,
};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use super::{
    bodies::Bodies,
    reply::{self, Reply, RequestRefusal},
    signature::{self, SignedContent},
    source::{HttpSourceSettings, OnInvalidBody},
};

/// Headers with the ordering key, in order of preference.
const KEY_HEADERS: [&str; 2] = ["message-key", "ce-partitionkey"];
/// Header with the time of the event.
const TIME_HEADER: &str = "ce-time";
/// A refused body is still read and discarded, up to this time and size: a sender that is cut off
/// while it writes often never sees the response.
const DISCARD_TIME: Duration = Duration::from_secs(5);
const DISCARD_MAX: usize = 256 * 1024 * 1024;
/// The room reserved for a body before its first byte arrives.
const RESERVE_MAX: usize = 64 * 1024;

/// A message that waits to be stored, with the channel to its sender.
pub(super) struct PendingMessage {
    pub(super) message: NewInbox,
    pub(super) sender: WaitingSender,
}

/// A sender that waits for its response. Dropped without one, it is asked to send again.
pub(super) struct WaitingSender {
    pub(super) answer: oneshot::Sender<IngestAnswer>,
    /// The message's share of `buffered_max`.
    pub(super) _held: OwnedSemaphorePermit,
}

/// The result of the ingest worker for a message.
pub(super) enum IngestAnswer {
    Accepted(AcceptOutcome),
    Refused(String),
}

/// The state that all connections of a source share.
pub(super) struct RequestReceiver {
    pub(super) settings: HttpSourceSettings,
    pub(super) queue: mpsc::Sender<PendingMessage>,
    /// Counts the bytes of all bodies that are held.
    pub(super) buffer: Arc<Semaphore>,
    /// Counts the bytes of incomplete bodies, by address.
    pub(super) bodies: Bodies,
    pub(super) closing: watch::Receiver<bool>,
    /// An operator paused the source.
    pub(super) paused: Arc<AtomicBool>,
}

impl RequestReceiver {
    /// Serves a request from its head to its response.
    pub(super) async fn answer(&self, from: IpAddr, request: Request<RequestBody>) -> Reply {
        let (head, mut body) = request.into_parts();
        match self.receive(from, &head, &mut body).await {
            Ok(reply) => reply,
            Err(refusal) if body.is_end_stream() => refusal.into_reply(),
            Err(refusal) => {
                // A sender with `expect: 100-continue` does not send the body now; any other body
                // is read.
                if !head.headers.contains_key(EXPECT) {
                    tokio::spawn(tokio::time::timeout(DISCARD_TIME, discard(body)));
                }
                reply::last(refusal.into_reply())
            }
        }
    }

    async fn receive(
        &self,
        from: IpAddr,
        head: &Parts,
        body: &mut RequestBody,
    ) -> Result<Reply, RequestRefusal> {
        self.check(head)?;
        let (bytes, held) = self.read(from, body).await?;
        self.check_signature(&head.headers, &bytes)?;
        let message =
            self.settings.mapping.read(self.incoming(&head.headers, bytes)).map_err(|missing| {
                RequestRefusal::bad_request("MISSING_MESSAGE_ID", &missing.to_string())
            })?;
        self.store(message, held).await
    }

    /// Checks what is known before the body is read.
    fn check(&self, head: &Parts) -> Result<(), RequestRefusal> {
        if !is_path_of(&self.settings.name, head.uri.path()) {
            return Err(RequestRefusal::not_found(&self.settings.name));
        }
        if head.method != Method::POST {
            return Err(RequestRefusal::method_not_allowed());
        }
        self.check_token(&head.headers)?;
        if self.paused.load(Relaxed) {
            return Err(RequestRefusal::unavailable("PAUSED", PAUSED));
        }
        check_content(&head.headers)?;
        let length = head.headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
        if length.is_some_and(|length: u64| length > self.settings.body_max as u64) {
            return Err(RequestRefusal::too_large(self.settings.body_max));
        }
        Ok(())
    }

    fn check_token(&self, headers: &HeaderMap) -> Result<(), RequestRefusal> {
        let Some(token) = &self.settings.token else { return Ok(()) };
        let sent = headers.get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        match sent {
            None => {
                Err(RequestRefusal::unauthorized("send the header `authorization: Bearer TOKEN`"))
            }
            Some(sent) if is_token(token, sent) => Ok(()),
            Some(_) => Err(RequestRefusal::unauthorized("the bearer token is wrong")),
        }
    }

    /// Reads the body and reserves its share of the buffer.
    async fn read(
        &self,
        from: IpAddr,
        body: &mut RequestBody,
    ) -> Result<(Vec<u8>, OwnedSemaphorePermit), RequestRefusal> {
        let mut closing = self.closing.clone();
        tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => Err(shutting_down()),
            read = tokio::time::timeout(self.settings.body_timeout, self.read_all(from, body)) => {
                read.unwrap_or_else(|_| Err(RequestRefusal::timeout()))
            }
        }
    }

    async fn read_all(
        &self,
        from: IpAddr,
        body: &mut RequestBody,
    ) -> Result<(Vec<u8>, OwnedSemaphorePermit), RequestRefusal> {
        let expected = usize::try_from(body.size_hint().lower()).unwrap_or(RESERVE_MAX);
        let mut bytes = Vec::with_capacity(expected.min(RESERVE_MAX));
        let mut held = self.hold(0)?;
        let mut share = self.bodies.begin(from);
        let pause_max = self.settings.body_pause_max;
        let late = |_| RequestRefusal::timeout();
        while let Some(frame) = tokio::time::timeout(pause_max, body.frame()).await.map_err(late)? {
            let cut = |_| RequestRefusal::bad_request("CUT", "the body ended early; send it again");
            // Trailers are not stored.
            let Ok(chunk) = frame.map_err(cut)?.into_data() else { continue };
            if chunk.len() > self.settings.body_max - bytes.len() {
                return Err(RequestRefusal::too_large(self.settings.body_max));
            }
            if !share.grow(chunk.len()) {
                return Err(busy());
            }
            held.merge(self.hold(chunk.len())?);
            grow(&mut bytes, chunk.len(), expected);
            bytes.extend_from_slice(&chunk);
        }
        Ok((bytes, held))
    }

    fn hold(&self, bytes: usize) -> Result<OwnedSemaphorePermit, RequestRefusal> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        Arc::clone(&self.buffer).try_acquire_many_owned(bytes).map_err(|_| busy())
    }

    fn check_signature(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), RequestRefusal> {
        if self.settings.secrets.is_empty() {
            return Ok(());
        }
        let get = |name: &str| {
            headers.get(name).and_then(|value| value.to_str().ok()).ok_or_else(|| {
                RequestRefusal::unauthorized(&format!("the signature header `{name}` is missing"))
            })
        };
        let (id, timestamp) = (get(signature::ID)?, get(signature::TIMESTAMP)?);
        let signatures = get(signature::SIGNATURE)?;
        let signed = SignedContent { id, timestamp, body };
        signature::verify(&self.settings.secrets, &signed, signatures, unix_seconds())
            .map_err(RequestRefusal::unauthorized)
    }

    pub(super) fn incoming(&self, headers: &HeaderMap, body: Vec<u8>) -> Incoming {
        let headers = self.kept(headers);
        let decoded = |name: &str| {
            let value = headers.get(name)?;
            Some(percent_decode_str(value).decode_utf8().map_or(value.to_owned(), Into::into))
        };
        Incoming {
            topic: self.settings.name.clone(),
            partition_num: 0,
            offset_num: 0,
            key: KEY_HEADERS.iter().find_map(|name| decoded(name)).filter(|key| !key.is_empty()),
            event_ts: headers.get(TIME_HEADER).and_then(Timestamp::parse),
            headers,
            value: Value::Bytes(body),
            position: None,
        }
    }

    /// Returns all headers of the request except secrets.
    fn kept(&self, headers: &HeaderMap) -> Headers {
        let mut kept = Headers::default();
        for (name, value) in headers {
            if !self.settings.is_secret(name.as_str()) {
                kept.receive(name.as_str(), HeaderValue::from_bytes(value.as_bytes()));
            }
        }
        kept
    }

    /// Queues the message and waits until it is durable.
    async fn store(
        &self,
        message: NewInbox,
        held: OwnedSemaphorePermit,
    ) -> Result<Reply, RequestRefusal> {
        let problem = match &message.content {
            Content::Undecodable { problem, .. } => Some(problem.clone()),
            Content::Json(_) => None,
        };
        if let (Some(problem), OnInvalidBody::Reject) = (&problem, self.settings.invalid) {
            return Err(RequestRefusal::bad_request(&problem.code, &problem.message));
        }
        let message_id = message.message_id.clone();
        let (answer, answered) = oneshot::channel();
        let pending = PendingMessage { message, sender: WaitingSender { answer, _held: held } };
        self.queue.try_send(pending).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => busy(),
            mpsc::error::TrySendError::Closed(_) => shutting_down(),
        })?;
        match tokio::time::timeout(self.settings.answer_timeout, answered).await {
            Ok(Ok(IngestAnswer::Accepted(accepted))) => {
                Ok(reply::accepted(accepted, &message_id, problem.as_ref()))
            }
            Ok(Ok(IngestAnswer::Refused(reason))) => {
                Err(RequestRefusal::unavailable("NOT_STORED", &reason))
            }
            Ok(Err(_)) => Err(shutting_down()),
            Err(_) => Err(RequestRefusal::unavailable(
                "UNKNOWN",
                "it is not known yet whether the message is stored; send it again with the same message id",
            )),
        }
    }
}

/// Reserves room for more bytes: doubles the capacity, but not beyond the announced length.
fn grow(bytes: &mut Vec<u8>, more: usize, expected: usize) {
    let needed = bytes.len() + more;
    if needed > bytes.capacity() {
        let wanted = needed.max((bytes.capacity() * 2).min(expected));
        bytes.reserve_exact(wanted - bytes.len());
    }
}

/// Headers of a request that are never stored.
pub(super) const SECRET_HEADERS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// The response while the source is paused.
pub(super) const PAUSED: &str = "this source is paused by an operator; send it again later";

fn busy() -> RequestRefusal {
    RequestRefusal::unavailable("BUSY", "too many messages wait to be stored; send it again later")
}

fn shutting_down() -> RequestRefusal {
    RequestRefusal::unavailable(
        "SHUTTING_DOWN",
        "this source is shutting down; send it again with the same message id",
    )
}

/// Returns whether `path` is `/name` after percent-decoding.
fn is_path_of(name: &str, path: &str) -> bool {
    path.strip_prefix('/')
        .and_then(|path| percent_decode_str(path).decode_utf8().ok())
        .is_some_and(|path| path == name)
}

/// Returns the token of `Bearer TOKEN`; the scheme is case-insensitive.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// Compares hashes, so that the time depends neither on the texts nor on their lengths.
fn is_token(token: &SecretString, sent: &[u8]) -> bool {
    let (ours, theirs) = (Sha256::digest(token.expose_secret()), Sha256::digest(sent));
    ours.as_slice().ct_eq(theirs.as_slice()).into()
}

/// Accepts uncompressed JSON. A request without a content type counts as JSON.
fn check_content(headers: &HeaderMap) -> Result<(), RequestRefusal> {
    let refuse = RequestRefusal::unsupported;
    if let Some(kind) = headers.get(CONTENT_TYPE) {
        let kind = kind.to_str().unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if !(kind == "application/json" || (kind.contains('/') && kind.ends_with("+json"))) {
            return Err(refuse(
                "send JSON with the header `content-type: application/json` (curl: -H)",
            ));
        }
    }
    let coding = headers.get(CONTENT_ENCODING).map(|v| v.as_bytes().trim_ascii());
    match coding {
        None | Some(b"" | b"identity") => Ok(()),
        Some(_) => Err(refuse("send the body as it is, without `content-encoding`")),
    }
}

async fn discard(mut body: RequestBody) {
    let mut left = DISCARD_MAX;
    while let Some(Ok(frame)) = body.frame().await {
        match left.checked_sub(frame.data_ref().map_or(0, bytes::Bytes::len)) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

pub(super) fn unix_seconds() -> i64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_compared_decoded() {
        assert!(is_path_of("hook", "/hook"));
        assert!(is_path_of("grüße/a b", "/gr%C3%BC%C3%9Fe/a%20b"));
        for other in ["/", "/hook/", "//hook", "/Hook", "/hook2", "/%68oo", "/%ff", "hook"] {
            assert!(!is_path_of("hook", other), "{other}");
        }
    }

    #[test]
    fn only_json_is_accepted() {
        let check = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            check_content(&headers).is_ok()
        };
        for good in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/cloudevents+json",
            "application/vnd.api+json ;v=1",
        ] {
            assert!(check("content-type", good), "{good}");
        }
        for bad in ["text/plain", "application/x-www-form-urlencoded", "json", "+json", "", "é"] {
            assert!(!check("content-type", bad), "{bad}");
        }
        assert!(check_content(&HeaderMap::new()).is_ok());
        assert!(check("content-encoding", "identity"));
        assert!(!check("content-encoding", "gzip"));
    }

    #[test]
    fn the_bearer_scheme_is_case_insensitive() {
        assert_eq!(bearer(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer(b"bearer  abc "), Some(&b"abc"[..]));
        for other in [&b"Basic abc"[..], b"Bearer", b"", b"abc"] {
            assert_eq!(bearer(other), None);
        }
    }
}
