//! One request: checked, read up to its limits, mapped, queued, and answered only when the ingest
//! worker says what became of it.
//!
//! Invariant: no more of a body is held than `body_max`, and no more of all bodies together than
//! `buffered_max`. A sender that goes away changes nothing for what is already queued.

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
    inbox::{Accepted, Content, NewInbox},
    message::{HeaderValue, Headers},
    time::Timestamp,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use super::{
    bodies::Bodies,
    reply::{self, Refusal, Reply},
    signature::{self, Signed},
    source::{HttpSourceSettings, Invalid},
};

/// Headers that give the ordering key, in order of preference.
const KEY_HEADERS: [&str; 2] = ["message-key", "ce-partitionkey"];
/// Header that gives the time of the event.
const TIME_HEADER: &str = "ce-time";
/// A body that is refused is still read, and thrown away, for this long and this far: a sender that
/// is cut off while it writes often never sees the answer.
const DISCARD_TIME: Duration = Duration::from_secs(5);
const DISCARD_MAX: usize = 256 * 1024 * 1024;
/// What is reserved for a body before its first byte is there.
const RESERVE_MAX: usize = 64 * 1024;

/// A message that waits to be stored, with the line back to its sender.
pub(super) struct Pending {
    pub(super) message: NewInbox,
    pub(super) sender: Waiting,
}

/// A sender that waits for its answer. Dropped without one, it is told to send again.
pub(super) struct Waiting {
    pub(super) answer: oneshot::Sender<Answer>,
    /// The message's share of `buffered_max`.
    pub(super) _held: OwnedSemaphorePermit,
}

/// What the ingest worker says of a message.
pub(super) enum Answer {
    Accepted(Accepted),
    Refused(String),
}

/// What all connections of a source share.
pub(super) struct Receiver {
    pub(super) settings: HttpSourceSettings,
    pub(super) queue: mpsc::Sender<Pending>,
    /// Counts the bytes of all bodies that are held now.
    pub(super) buffer: Arc<Semaphore>,
    /// Counts the bytes of bodies that are being received, by address.
    pub(super) bodies: Bodies,
    pub(super) closing: watch::Receiver<bool>,
    /// An operator paused the source.
    pub(super) paused: Arc<AtomicBool>,
}

impl Receiver {
    /// Takes a request from its first header to its answer.
    pub(super) async fn answer(&self, from: IpAddr, request: Request<RequestBody>) -> Reply {
        let (head, mut body) = request.into_parts();
        match self.receive(from, &head, &mut body).await {
            Ok(reply) => reply,
            Err(refusal) if body.is_end_stream() => refusal.into_reply(),
            Err(refusal) => {
                // Whoever asked before sending will not send now; all others are heard out.
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
    ) -> Result<Reply, Refusal> {
        self.check(head)?;
        let (bytes, held) = self.read(from, body).await?;
        self.check_signature(&head.headers, &bytes)?;
        let message =
            self.settings.mapping.read(self.incoming(&head.headers, bytes)).map_err(|missing| {
                Refusal::bad_request("MISSING_MESSAGE_ID", &missing.to_string())
            })?;
        self.store(message, held).await
    }

    /// What can be said before the body is read.
    fn check(&self, head: &Parts) -> Result<(), Refusal> {
        if !is_path_of(&self.settings.name, head.uri.path()) {
            return Err(Refusal::not_found(&self.settings.name));
        }
        if head.method != Method::POST {
            return Err(Refusal::method_not_allowed());
        }
        self.check_token(&head.headers)?;
        if self.paused.load(Relaxed) {
            return Err(Refusal::unavailable("PAUSED", PAUSED));
        }
        check_content(&head.headers)?;
        let length = head.headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
        if length.is_some_and(|length: u64| length > self.settings.body_max as u64) {
            return Err(Refusal::too_large(self.settings.body_max));
        }
        Ok(())
    }

    fn check_token(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(token) = &self.settings.token else { return Ok(()) };
        let sent = headers.get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        match sent {
            None => Err(Refusal::unauthorized("send the header `authorization: Bearer TOKEN`")),
            Some(sent) if token.matches(sent) => Ok(()),
            Some(_) => Err(Refusal::unauthorized("the bearer token is wrong")),
        }
    }

    /// The body, and its share of the bytes all bodies may have.
    async fn read(
        &self,
        from: IpAddr,
        body: &mut RequestBody,
    ) -> Result<(Vec<u8>, OwnedSemaphorePermit), Refusal> {
        let mut closing = self.closing.clone();
        tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => Err(shutting_down()),
            read = tokio::time::timeout(self.settings.body_timeout, self.read_all(from, body)) => {
                read.unwrap_or_else(|_| Err(Refusal::timeout()))
            }
        }
    }

    async fn read_all(
        &self,
        from: IpAddr,
        body: &mut RequestBody,
    ) -> Result<(Vec<u8>, OwnedSemaphorePermit), Refusal> {
        let expected = usize::try_from(body.size_hint().lower()).unwrap_or(RESERVE_MAX);
        let mut bytes = Vec::with_capacity(expected.min(RESERVE_MAX));
        let mut held = self.hold(0)?;
        let mut share = self.bodies.begin(from);
        let pause_max = self.settings.body_pause_max;
        let late = |_| Refusal::timeout();
        while let Some(frame) = tokio::time::timeout(pause_max, body.frame()).await.map_err(late)? {
            let cut = |_| Refusal::bad_request("CUT", "the body ended too early; send it again");
            // Trailers carry nothing that is kept.
            let Ok(chunk) = frame.map_err(cut)?.into_data() else { continue };
            if chunk.len() > self.settings.body_max - bytes.len() {
                return Err(Refusal::too_large(self.settings.body_max));
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

    fn hold(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Refusal> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        Arc::clone(&self.buffer).try_acquire_many_owned(bytes).map_err(|_| busy())
    }

    fn check_signature(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), Refusal> {
        if self.settings.secrets.is_empty() {
            return Ok(());
        }
        let get = |name: &str| {
            headers.get(name).and_then(|value| value.to_str().ok()).ok_or_else(|| {
                Refusal::unauthorized(&format!("the header `{name}` of the signature is absent"))
            })
        };
        let (id, timestamp) = (get(signature::ID)?, get(signature::TIMESTAMP)?);
        let signatures = get(signature::SIGNATURE)?;
        let signed = Signed { id, timestamp, body };
        signature::verify(&self.settings.secrets, &signed, signatures, unix_seconds())
            .map_err(Refusal::unauthorized)
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

    /// All headers of the request but those that are secrets.
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
    async fn store(&self, message: NewInbox, held: OwnedSemaphorePermit) -> Result<Reply, Refusal> {
        let problem = match &message.content {
            Content::Undecodable { problem, .. } => Some(problem.clone()),
            Content::Json(_) => None,
        };
        if let (Some(problem), Invalid::Reject) = (&problem, self.settings.invalid) {
            return Err(Refusal::bad_request(&problem.code, &problem.message));
        }
        let message_id = message.message_id.clone();
        let (answer, answered) = oneshot::channel();
        let pending = Pending { message, sender: Waiting { answer, _held: held } };
        self.queue.try_send(pending).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => busy(),
            mpsc::error::TrySendError::Closed(_) => shutting_down(),
        })?;
        match tokio::time::timeout(self.settings.answer_timeout, answered).await {
            Ok(Ok(Answer::Accepted(accepted))) => {
                Ok(reply::accepted(accepted, &message_id, problem.as_ref()))
            }
            Ok(Ok(Answer::Refused(reason))) => Err(Refusal::unavailable("NOT_STORED", &reason)),
            Ok(Err(_)) => Err(shutting_down()),
            Err(_) => Err(Refusal::unavailable(
                "UNKNOWN",
                "not known yet whether it is stored; send it again with the same message id",
            )),
        }
    }
}

/// Makes room for so many bytes more: doubled each time, but not beyond the length that was announced.
fn grow(bytes: &mut Vec<u8>, more: usize, expected: usize) {
    let needed = bytes.len() + more;
    if needed > bytes.capacity() {
        let wanted = needed.max((bytes.capacity() * 2).min(expected));
        bytes.reserve_exact(wanted - bytes.len());
    }
}

/// Headers of a request that are never stored.
pub(super) const SECRET_HEADERS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// What a sender is told while the source is paused.
pub(super) const PAUSED: &str = "this source is paused by an operator; send it again later";

fn busy() -> Refusal {
    Refusal::unavailable("BUSY", "too many messages wait to be stored; send it again later")
}

fn shutting_down() -> Refusal {
    Refusal::unavailable(
        "SHUTTING_DOWN",
        "this receiver is closing; send it again with the same message id",
    )
}

/// Whether `path` is `/name`, each of its segments percent-decoded.
fn is_path_of(name: &str, path: &str) -> bool {
    path.strip_prefix('/')
        .and_then(|path| percent_decode_str(path).decode_utf8().ok())
        .is_some_and(|path| path == name)
}

/// The token of `Bearer TOKEN`; the word compares without case.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// JSON, not compressed. A request that does not say what it is counts as JSON.
fn check_content(headers: &HeaderMap) -> Result<(), Refusal> {
    let refuse = Refusal::unsupported;
    if let Some(kind) = headers.get(CONTENT_TYPE) {
        let kind = kind.to_str().unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if !(kind == "application/json" || (kind.contains('/') && kind.ends_with("+json"))) {
            return Err(refuse(
                "send JSON, with the header `content-type: application/json`; curl needs -H for it",
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
    fn json_and_only_json_is_taken() {
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
    fn a_bearer_token_is_found_whatever_the_case_of_its_word() {
        assert_eq!(bearer(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer(b"bearer  abc "), Some(&b"abc"[..]));
        for other in [&b"Basic abc"[..], b"Bearer", b"", b"abc"] {
            assert_eq!(bearer(other), None);
        }
    }
}
