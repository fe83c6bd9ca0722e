//! A request for messages: the server sends up to a number of them to an inbox, as they come.
//!
//! Invariant: at most one request is open. What it may still send is counted, so that the messages in
//! memory are bounded.

use std::time::Duration;

use async_nats::{Message, StatusCode, Subscriber};
use futures_util::{FutureExt, StreamExt};
use serde::Serialize;
use tokio::time::Instant;

use super::{classify::NatsFailure, connection::OpenNatsConnection};

/// The time after which the server ends a request without messages.
const EXPIRES: Duration = Duration::from_secs(30);
/// The pause between signs of life of an open request.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// The time without any sign of life after which the request is lost.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// The pause after the server refused a request because too many messages or requests are open.
const REFUSED_PAUSE: Duration = Duration::from_millis(500);
/// Time that leaving waits for what is on its way.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// An inbox and the request that fills it.
pub(super) struct MessagePull {
    /// The subject of requests.
    subject: String,
    inbox: String,
    subscriber: Subscriber,
    /// Messages that the open request may still send; 0 without one.
    expected: usize,
    /// The inbox is empty since then.
    silent_since: Option<Instant>,
    /// The server refused a request; the next one waits until then.
    ask_after: Option<Instant>,
}

/// Something that arrived in the inbox.
pub(super) enum PullEvent {
    Message(Box<Message>),
    /// A sign of life.
    Alive,
    /// The request has ended.
    Ended,
    /// The server refused the request for now.
    Refused,
    Failed(NatsFailure),
}

#[derive(Serialize)]
struct PullRequest {
    batch: usize,
    expires: u64,
    idle_heartbeat: u64,
}

impl MessagePull {
    pub(super) async fn open(
        connection: &OpenNatsConnection,
        subject: String,
    ) -> Result<Self, NatsFailure> {
        let inbox = connection.client().new_inbox();
        let subscriber = connection
            .client()
            .subscribe(inbox.clone())
            .await
            .map_err(|error| NatsFailure::lost(&error.to_string()))?;
        Ok(Self { subject, inbox, subscriber, expected: 0, silent_since: None, ask_after: None })
    }

    /// Returns whether a request is open.
    pub(super) fn is_open(&self) -> bool {
        self.expected > 0
    }

    /// Asks for messages, if no request is open.
    pub(super) async fn ask(
        &mut self,
        connection: &OpenNatsConnection,
        batch: usize,
    ) -> Result<(), NatsFailure> {
        let is_early = self.ask_after.is_some_and(|at| Instant::now() < at);
        if self.expected > 0 || batch == 0 || is_early {
            return Ok(());
        }
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let request = PullRequest {
            batch,
            expires: nanoseconds(EXPIRES),
            idle_heartbeat: nanoseconds(HEARTBEAT),
        };
        let body = serde_json::to_vec(&request).unwrap_or_default();
        // Before the request: cancelled in the middle, it may be open.
        self.expected = batch;
        (self.silent_since, self.ask_after) = (None, None);
        let asking = connection.client().publish_with_reply(
            self.subject.clone(),
            self.inbox.clone(),
            body.into(),
        );
        asking.await.map_err(|error| NatsFailure::lost(&error.to_string()))
    }

    /// Returns what has arrived, without waiting.
    pub(super) fn arrived(&mut self) -> Option<PullEvent> {
        let arrived = self.subscriber.next().now_or_never()?;
        Some(self.note(arrived))
    }

    /// Waits for the next arrival. A cancelled wait loses nothing.
    pub(super) async fn next(&mut self) -> PullEvent {
        let silent_since = *self.silent_since.get_or_insert_with(Instant::now);
        let silence = tokio::time::sleep_until(silent_since + SILENCE_MAX);
        let (is_open, ask_after) = (self.expected > 0, self.ask_after);
        tokio::select! {
            biased;
            arrived = self.subscriber.next() => self.note(arrived),
            () = tokio::time::sleep_until(ask_after.unwrap_or(silent_since)),
                if !is_open && ask_after.is_some() => PullEvent::Ended,
            () = silence, if is_open => {
                PullEvent::Failed(NatsFailure::lost("the server sent no heartbeat"))
            }
        }
    }

    fn note(&mut self, arrived: Option<Message>) -> PullEvent {
        self.silent_since = None;
        let Some(message) = arrived else {
            return PullEvent::Failed(NatsFailure::lost("the subscription has ended"));
        };
        let event = pull_event(message);
        match &event {
            PullEvent::Message(_) => self.expected = self.expected.saturating_sub(1),
            PullEvent::Ended => self.expected = 0,
            PullEvent::Refused => {
                self.expected = 0;
                self.ask_after = Some(Instant::now() + REFUSED_PAUSE);
            }
            PullEvent::Alive | PullEvent::Failed(_) => {}
        }
        event
    }

    /// Ends the request. Returns the messages that had arrived.
    pub(super) async fn leave(mut self) -> Vec<Message> {
        let mut rest = Vec::new();
        let draining = async {
            if self.subscriber.drain().await.is_err() {
                return;
            }
            while let Some(message) = self.subscriber.next().await {
                if let PullEvent::Message(message) = pull_event(message) {
                    rest.push(*message);
                }
            }
        };
        let _ = tokio::time::timeout(DRAIN_MAX, draining).await;
        rest
    }
}

/// A message of a stream has a subject for its acknowledgement. What looks like a status in its headers was
/// written by its sender.
fn pull_event(message: Message) -> PullEvent {
    let is_of_stream = message.reply.as_ref().is_some_and(|reply| reply.starts_with("$JS.ACK."));
    let status = message.status.filter(|_| !is_of_stream);
    let Some(status) = status else { return PullEvent::Message(Box::new(message)) };
    let text = message.description.as_deref().unwrap_or_default();
    match status {
        StatusCode::IDLE_HEARTBEAT => PullEvent::Alive,
        StatusCode::NOT_FOUND | StatusCode::TIMEOUT => PullEvent::Ended,
        StatusCode::REQUEST_TERMINATED
            if ["MaxAckPending", "MaxWaiting"].iter().any(|limit| text.contains(limit)) =>
        {
            PullEvent::Refused
        }
        _ => PullEvent::Failed(NatsFailure::ended(&format!("{status} {text}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, text: &str) -> PullEvent {
        pull_event(message(code, text, None))
    }

    fn message(code: u16, text: &str, reply: Option<&str>) -> Message {
        Message {
            subject: "_INBOX.a".into(),
            reply: reply.map(Into::into),
            payload: Vec::new().into(),
            headers: None,
            status: Some(StatusCode::from_u16(code).unwrap()),
            description: Some(text.to_owned()),
            length: 0,
        }
    }

    #[test]
    fn a_message_of_the_stream_is_no_status_of_the_server() {
        let message = message(404, "", Some("$JS.ACK.S.c.1.17.4.99.0"));
        assert!(matches!(pull_event(message), PullEvent::Message(_)));
    }

    #[test]
    fn every_status_has_its_meaning() {
        assert!(matches!(status(100, "Idle Heartbeat"), PullEvent::Alive));
        assert!(matches!(status(408, "Request Timeout"), PullEvent::Ended));
        assert!(matches!(status(404, "No Messages"), PullEvent::Ended));
        assert!(matches!(status(409, "Exceeded MaxAckPending"), PullEvent::Refused));
        for (code, text) in [(409, "Consumer Deleted"), (409, "Server Shutdown"), (503, "")] {
            let PullEvent::Failed(failure) = status(code, text) else { panic!("{code} {text}") };
            assert!(failure.problem.message.contains(text));
        }
    }
}
