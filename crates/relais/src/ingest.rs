//! Source → inbox → acknowledge: stored first, acknowledged after.
//!
//! While a batch is stored, the next one is read, if the source can do that. Invariant: a batch that was read
//! ahead is stored only after the one before it is committed and acknowledged. Otherwise its positions would
//! cover messages that are not stored.

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use async_trait::async_trait;
use relais_core::{
    delivery::Problem,
    inbox::{AcceptOutcome, Content, NewInbox, SourcePosition, in_inbox},
    source::{Positions, Source, SourceBatch, SourceError},
    store::{Store, StoreError, StoreFuture},
    text,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    control::Gate,
    observe::{
        InboxCounters, SourceCounters, Tracer,
        trace::{BrokerPosition, IncomingTrace},
    },
    worker::{PassOutcome, Worker},
};

/// Maximum number of messages stored in one transaction.
const BATCH_MAX: usize = 1_000;
/// The pause after a source was unavailable.
const SOURCE_PAUSE: Duration = Duration::from_secs(1);
/// The time after which the same reason is logged again.
const SAME_REASON_PAUSE: Duration = Duration::from_secs(60);

/// A worker that stores the messages of one source.
pub(crate) struct Ingest {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) name: String,
    /// The inbox of the messages; '' is the one without a name.
    pub(crate) into: String,
    pub(crate) source: Box<dyn Source>,
    /// The result of reading while the last batch was stored.
    pub(crate) ahead: Option<Result<SourceBatch, SourceError>>,
    pub(crate) inbox: Arc<InboxCounters>,
    pub(crate) counters: Arc<SourceCounters>,
    pub(crate) outage: OutageLog,
    pub(crate) stop: CancellationToken,
    /// The permission to read the source.
    pub(crate) gate: watch::Receiver<Gate>,
    /// Called after rows were stored, so that the inbox worker reads at once.
    pub(crate) stored: Box<dyn Fn() + Send + Sync>,
}

/// The stored positions of a source, and nothing else of the store.
pub(crate) struct StoredPositions {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) inbox: String,
}

impl Positions for StoredPositions {
    fn positions(&self, source: String) -> StoreFuture<'_, Vec<SourcePosition>> {
        self.store.positions(in_inbox(&self.inbox, &source))
    }
}

#[async_trait]
impl Worker for Ingest {
    async fn run_once(&mut self) -> Result<PassOutcome, StoreError> {
        let gate = *self.gate.borrow_and_update();
        if gate != Gate::Open {
            return Ok(self.rest(gate).await);
        }
        let read = match self.ahead.take() {
            Some(read) => read,
            None => tokio::select! {
                () = self.stop.cancelled() => return Ok(PassOutcome::Finished),
                // Nothing is lost: a message that is not acknowledged arrives again.
                Ok(()) = self.gate.changed() => return Ok(PassOutcome::Worked),
                read = self.source.next(BATCH_MAX) => read,
            },
        };
        let batch = match read {
            Ok(batch) => addressed(batch, &self.into),
            Err(SourceError::Closed) => return Ok(PassOutcome::Finished),
            Err(error) => {
                let reason = match error {
                    SourceError::Unavailable(reason) => reason,
                    other => other.to_string(),
                };
                self.counters.unavailable(&reason);
                if self.outage.is_news(&reason, Instant::now()) {
                    tracing::warn!(source = self.name, reason, "source is unavailable; waiting");
                }
                return Ok(wait(&self.stop).await);
            }
        };
        crate::fail_point!("ingest.after_read");
        self.counters.available();
        if self.outage.end() {
            tracing::info!(source = self.name, "source is available again");
        }
        let ingested = IngestedBatch::new(self.inbox.tracer.as_deref(), &batch);
        match self.accept(batch).await {
            Ok(accepted) => {
                crate::fail_point!("ingest.after_commit");
                self.inbox.accepted(&accepted);
                self.counters.accepted(&accepted, ingested.undecodable(&accepted));
                ingested.trace(self.inbox.tracer.as_deref(), &self.name, &accepted);
                (self.stored)();
                if let Err(error) = self.source.acknowledge(accepted).await {
                    // Stored but not acknowledged: it arrives again and is recognised.
                    tracing::warn!(source = self.name, %error, "messages were stored and not acknowledged");
                }
                crate::fail_point!("ingest.after_acknowledge");
                Ok(PassOutcome::Worked)
            }
            Err(error) => {
                self.ahead = None;
                self.source.refuse(error.to_string()).await;
                Err(error)
            }
        }
    }

    async fn stop(&mut self, _patience: Duration) {
        self.put_back("relais is stopping").await;
        self.source.close().await;
    }
}

impl Ingest {
    /// Stores a batch. Meanwhile reads the next one, until an operator or a stop ends that.
    async fn accept(&mut self, batch: SourceBatch) -> Result<Vec<AcceptOutcome>, StoreError> {
        let mut storing = pin!(accept(self.store.as_ref(), batch));
        self.ahead = tokio::select! {
            biased;
            accepted = &mut storing => return accepted,
            () = self.stop.cancelled() => None,
            Ok(()) = self.gate.changed() => None,
            read = self.source.read_ahead(BATCH_MAX) => Some(read),
        };
        storing.await
    }

    /// Refuses a batch that was read ahead and is not stored.
    async fn put_back(&mut self, reason: &str) {
        if let Some(Ok(_)) = self.ahead.take() {
            self.source.refuse(reason.to_owned()).await;
        }
    }

    /// Reads nothing until the gate opens. The source may refuse its senders meanwhile.
    async fn rest(&mut self, gate: Gate) -> PassOutcome {
        self.put_back("the source is paused").await;
        if gate == Gate::Paused {
            tracing::info!(source = self.name, "source was paused by an operator");
            self.counters.set_paused(true);
            self.source.pause().await;
        }
        let changed = tokio::select! {
            () = self.stop.cancelled() => return PassOutcome::Finished,
            changed = self.gate.changed() => changed,
        };
        if gate == Gate::Paused {
            tracing::info!(source = self.name, "source was resumed");
            self.counters.set_paused(false);
            self.source.resume().await;
        }
        match changed {
            Ok(()) => PassOutcome::Worked,
            // The task that opens the gate has ended: the process stops.
            Err(_) => PassOutcome::Finished,
        }
    }
}

/// A batch, as it is counted and traced once it is stored.
struct IngestedBatch {
    start: SystemTime,
    /// The places of undecodable messages.
    undecodable: Vec<usize>,
    /// Empty without a tracer.
    messages: Vec<IncomingTrace>,
}

impl IngestedBatch {
    fn new(tracer: Option<&Tracer>, batch: &SourceBatch) -> Self {
        let bad = |message: &NewInbox| matches!(message.content, Content::Undecodable { .. });
        let bad = batch.messages.iter().enumerate().filter(|(_, message)| bad(message));
        let position = match batch.positions.is_empty() {
            true => BrokerPosition::Absent,
            false => BrokerPosition::InPartition,
        };
        let incoming = |message| IncomingTrace::new(message, position);
        let messages = tracer.map(|_| batch.messages.iter().map(incoming).collect());
        Self {
            start: SystemTime::now(),
            undecodable: bad.map(|(at, _)| at).collect(),
            messages: messages.unwrap_or_default(),
        }
    }

    fn undecodable(&self, accepted: &[AcceptOutcome]) -> u64 {
        let is_new = |at: &&usize| accepted.get(**at) == Some(&AcceptOutcome::Stored);
        self.undecodable.iter().filter(is_new).count() as u64
    }

    fn trace(&self, tracer: Option<&Tracer>, source: &str, accepted: &[AcceptOutcome]) {
        if let Some(tracer) = tracer {
            tracer.accepted(source, &self.messages, accepted, self.start);
        }
    }
}

/// The reason that was logged last for an unavailable source, and when.
#[derive(Debug, Default)]
pub(crate) struct OutageLog(Option<(String, Instant)>);

impl OutageLog {
    /// Returns whether the reason is to be logged now: it is new, or was logged a minute ago.
    fn is_news(&mut self, reason: &str, now: Instant) -> bool {
        let is_old = self.0.as_ref().is_some_and(|(logged, at)| {
            logged == reason && now.saturating_duration_since(*at) < SAME_REASON_PAUSE
        });
        if !is_old {
            self.0 = Some((reason.to_owned(), now));
        }
        !is_old
    }

    /// Ends the outage. Returns false if there was none.
    fn end(&mut self) -> bool {
        self.0.take().is_some()
    }
}

/// Rests after the source was unavailable.
async fn wait(stop: &CancellationToken) -> PassOutcome {
    tokio::select! {
        () = stop.cancelled() => PassOutcome::Finished,
        () = tokio::time::sleep(SOURCE_PAUSE) => PassOutcome::Worked,
    }
}

/// Stores a batch in one transaction. If the database refuses a message, each is stored by itself; the
/// refused one is kept as undecodable with the reason. One bad message does not stop the others.
async fn accept(store: &dyn Store, batch: SourceBatch) -> Result<Vec<AcceptOutcome>, StoreError> {
    let SourceBatch { messages, positions } = batch;
    match store.accept(messages.clone(), positions.clone()).await {
        Err(StoreError::Invalid(_)) => {}
        other => return other,
    }
    let mut accepted = Vec::with_capacity(messages.len());
    for message in messages {
        let answer = match store.accept(vec![message.clone()], Vec::new()).await {
            Err(StoreError::Invalid(reason)) => {
                store.accept(vec![as_undecodable(message, &reason)], Vec::new()).await?
            }
            other => other?,
        };
        accepted.extend(answer);
    }
    store.accept(Vec::new(), positions).await?;
    Ok(accepted)
}

/// Adds the name of the inbox to the messages and positions of a source.
fn addressed(mut batch: SourceBatch, inbox: &str) -> SourceBatch {
    if !inbox.is_empty() {
        for message in &mut batch.messages {
            message.source_system = in_inbox(inbox, &message.source_system);
        }
        for position in &mut batch.positions {
            position.source = in_inbox(inbox, &position.source);
        }
    }
    batch
}

/// Returns the same message with its content kept as bytes. A source of the user may have put anything into
/// the other fields: they are shortened to fit.
fn as_undecodable(message: NewInbox, reason: &str) -> NewInbox {
    let content = match message.content {
        Content::Json(json) => {
            let problem = Problem::new("STORE_REFUSED", reason);
            Content::Undecodable { bytes: json.into_bytes(), problem }
        }
        Content::Undecodable { bytes, problem } => {
            Content::Undecodable { bytes, problem: problem.fitted() }
        }
    };
    let key = |text: &String| text::identity(text, text::KEY_MAX);
    NewInbox {
        content,
        message_id: text::identity(&message.message_id, text::MESSAGE_ID_MAX),
        topic: text::fit(&message.topic, text::KEY_MAX),
        key_str: message.key_str.as_ref().map(key),
        msg_key: key(&message.msg_key),
        aggregate_id: message.aggregate_id.as_ref().map(key),
        event_type: message.event_type.map(|kind| text::fit(&kind, text::MESSAGE_ID_MAX)),
        ..message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unchanged_reason_is_logged_once_a_minute() {
        let mut log = OutageLog::default();
        let start = Instant::now();
        let mut news =
            |reason: &str, seconds| log.is_news(reason, start + Duration::from_secs(seconds));
        assert!(news("refused", 0));
        assert!(!news("refused", 1) && !news("refused", 59));
        assert!(news("refused", 60));
        assert!(!news("refused", 119));
        assert!(news("unknown queue", 119), "another reason");
        assert!(log.end() && !log.end());
        assert!(log.is_news("unknown queue", start + Duration::from_secs(120)), "another outage");
    }
}
