//! The thread that reads: it does what the source asks, one thing at a time.
//!
//! Invariant: it polls only in `collect` and while the source is paused, so between a batch and its settlement
//! no partition can be given or taken. Each `Collect` is answered by exactly one [`Reply`].

mod leave;
mod pause;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rdkafka::{
    Message, Offset,
    consumer::{BaseConsumer, CommitMode, Consumer},
    error::{KafkaError, RDKafkaErrorCode as Code},
    message::BorrowedMessage,
};
use relais_core::{inbox::SourcePosition, source::SourceBatch};
use tokio::sync::mpsc;

use super::{
    batch::{Batch, Span},
    membership::{Blueprint, Membership},
    placing::{ANSWER_MAX, PlaceError, Placing},
    record,
    trouble::{self, Complaints, Kind, Trouble},
};

/// What the source asks of the thread. That there is no more of it means: finish.
#[derive(Debug)]
pub(super) enum Command {
    /// The next batch; `positions` if they were asked for.
    Collect { max: usize, positions: Option<Vec<SourcePosition>> },
    /// The last batch is stored.
    Acknowledge,
    /// The last batch is not stored.
    Refuse,
    /// Read nothing until the next command.
    Pause,
}

/// The answer to `Collect`.
#[derive(Debug)]
pub(super) enum Reply {
    Batch(SourceBatch),
    /// Partitions have come: what does the database know of them?
    AskPositions,
    Unavailable(String),
    /// The source is about to be paused.
    Paused,
    Closed,
}

/// How long one poll waits for a record; closing is noticed as fast.
const POLL_MAX: Duration = Duration::from_millis(100);
/// The same while a partition waits to be placed.
const POLL_MIN: Duration = Duration::from_millis(5);
/// How long the id of a topic may take to come; without it offsets alone must do.
const TOPIC_ID_MAX: Duration = Duration::from_millis(500);
/// How often something is done while nothing comes.
const COMMIT_PAUSE: Duration = Duration::from_secs(1);
/// How long after a placing librdkafka is asked how far it is: it stops what it did before by and
/// by, and until then would answer with the old place.
const PASS_PAUSE: Duration = Duration::from_secs(5);

/// Reads for one source.
pub(super) struct Reader {
    blueprint: Blueprint,
    closing: Arc<AtomicBool>,
    /// A `Collect` must be answered now.
    pausing: Arc<AtomicBool>,
    member: Option<Member>,
    /// What is in the batch that is out.
    out: Vec<Span>,
    complaints: Complaints,
}

/// One membership of the group; after a fatal error there is another.
struct Member {
    consumer: BaseConsumer<Membership>,
    /// The cluster's id, once it is known.
    cluster: Option<String>,
    /// Since when the id of a topic is waited for.
    topics_asked: HashMap<String, Instant>,
    commit_tried: Instant,
    placed_at: Instant,
}

impl Reader {
    pub(super) fn new(
        blueprint: Blueprint,
        closing: Arc<AtomicBool>,
        pausing: Arc<AtomicBool>,
    ) -> Self {
        let complaints = Complaints::default();
        Self { blueprint, closing, pausing, member: None, out: Vec::new(), complaints }
    }

    /// Works until the source has nothing more to ask.
    pub(super) fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        replies: &mpsc::Sender<Reply>,
    ) {
        let mut next = commands.blocking_recv();
        while let Some(command) = next {
            match command {
                Command::Pause => {
                    next = self.idle(&mut commands);
                    continue;
                }
                Command::Acknowledge => self.acknowledge(),
                Command::Refuse => self.refuse(),
                Command::Collect { max, positions } => {
                    let reply = self.collect(max, positions).unwrap_or_else(Reply::Unavailable);
                    if replies.blocking_send(reply).is_err() {
                        break;
                    }
                }
            }
            next = commands.blocking_recv();
        }
        self.leave();
    }

    fn collect(
        &mut self,
        max: usize,
        mut positions: Option<Vec<SourcePosition>>,
    ) -> Result<Reply, String> {
        let mut member = match self.member.take() {
            Some(member) => member,
            None => Member::join(&self.blueprint)?,
        };
        let mut batch = Batch::default();
        let reply = loop {
            if self.closing.load(Ordering::Relaxed) {
                break Ok(Reply::Closed);
            }
            if self.pausing.load(Ordering::Relaxed) {
                break Ok(match batch.is_empty() {
                    true => Reply::Paused,
                    false => self.hand_out(&member, batch),
                });
            }
            if member.has_unplaced() && member.knows_topics() {
                if !batch.is_empty() {
                    break Ok(self.hand_out(&member, batch));
                }
                let Some(stored) = positions.take() else { break Ok(Reply::AskPositions) };
                match member.place(&self.blueprint, &stored) {
                    Ok(()) => {}
                    Err(PlaceError::Unknown(reason)) => break Err(reason),
                    // Nobody knows what librdkafka reads now.
                    Err(PlaceError::Broken(reason)) => return Err(reason),
                }
            }
            if batch.is_empty()
                && let Some(reason) = self.complaints.due(Instant::now())
            {
                break Err(reason);
            }
            let wait = match batch.is_empty() {
                false => Duration::ZERO,
                true if member.has_unplaced() => POLL_MIN,
                true => POLL_MAX,
            };
            match member.poll(&self.blueprint, &mut batch, wait) {
                Polled::Record => self.complaints.note_record(),
                Polled::Other => {}
                Polled::Nothing if batch.is_empty() => {
                    if member.rest(&mut batch) == Rest::Passed {
                        break Ok(self.hand_out(&member, batch));
                    }
                }
                Polled::Nothing => break Ok(self.hand_out(&member, batch)),
                Polled::Trouble(trouble) => self.complaints.note(trouble),
                Polled::Fatal(reason) => {
                    tracing::error!(reason, "the consumer has ended; making another");
                    return Err(reason);
                }
            }
            if batch.is_full(max) {
                break Ok(self.hand_out(&member, batch));
            }
        };
        self.member = Some(member);
        reply
    }

    fn hand_out(&mut self, member: &Member, batch: Batch) -> Reply {
        let cluster = member.cluster.as_deref().unwrap_or_default();
        let positions = batch.positions(&self.blueprint.settings.name, cluster);
        let Batch { messages, spans, .. } = batch;
        self.out = spans;
        Reply::Batch(SourceBatch { messages, positions })
    }

    fn acknowledge(&mut self) {
        let out = std::mem::take(&mut self.out);
        let Some(member) = &mut self.member else { return };
        let mut state = member.consumer.context().state();
        for span in &out {
            if let Some(owned) = state.find_span(span) {
                owned.acknowledge(span);
            }
        }
        drop(state);
        member.commit();
    }

    fn refuse(&mut self) {
        let out = std::mem::take(&mut self.out);
        let Some(member) = &self.member else { return };
        let mut state = member.consumer.context().state();
        for span in &out {
            if let Some(owned) = state.find_span(span) {
                owned.go_back(span);
            }
        }
    }
}

/// What came of one poll.
enum Polled {
    Record,
    Nothing,
    /// Something to be looked at in the state.
    Other,
    Trouble(Trouble),
    Fatal(String),
}

/// What a pause was good for.
#[derive(PartialEq, Eq)]
enum Rest {
    Still,
    /// The batch has positions to be stored, and no rows.
    Passed,
}

impl Member {
    fn join(blueprint: &Blueprint) -> Result<Self, String> {
        Ok(Self {
            consumer: blueprint.join()?,
            cluster: None,
            topics_asked: HashMap::new(),
            commit_tried: Instant::now(),
            placed_at: Instant::now(),
        })
    }

    fn has_unplaced(&self) -> bool {
        self.consumer.context().state().has_unplaced(Instant::now())
    }

    /// Whether the ids of topics to be placed are known, or have been waited for long enough.
    fn knows_topics(&mut self) -> bool {
        let unknown: Vec<String> = {
            let state = self.consumer.context().state();
            let topics = state.given.iter().map(|partition| &partition.topic);
            topics.filter(|topic| !state.topic_ids.contains_key(*topic)).cloned().collect()
        };
        for topic in &unknown {
            if !self.topics_asked.contains_key(topic) {
                // The question makes librdkafka say the id, in a line that the next polls bring.
                let _ = self.consumer.fetch_metadata(Some(topic), ANSWER_MAX);
                self.topics_asked.insert(topic.clone(), Instant::now());
            }
        }
        unknown.iter().all(|topic| self.topics_asked[topic].elapsed() > TOPIC_ID_MAX)
    }

    fn place(
        &mut self,
        blueprint: &Blueprint,
        stored: &[SourcePosition],
    ) -> Result<(), PlaceError> {
        let cluster = match self.cluster.take() {
            Some(cluster) => cluster,
            None => self.consumer.client().fetch_cluster_id(ANSWER_MAX).ok_or_else(|| {
                PlaceError::Unknown("the cluster does not tell its id".to_owned())
            })?,
        };
        let placing = Placing { blueprint, consumer: &self.consumer, cluster: &cluster, stored };
        let placed = placing.place();
        self.cluster = Some(cluster);
        self.commit_tried = Instant::now();
        self.placed_at = Instant::now();
        placed
    }

    fn poll(&mut self, blueprint: &Blueprint, batch: &mut Batch, wait: Duration) -> Polled {
        let changes = self.consumer.context().state().changes;
        let polled = match self.consumer.poll(wait) {
            None => Polled::Nothing,
            Some(Err(error)) => self.judge(&error, blueprint),
            Some(Ok(record)) => {
                self.take(&record, blueprint, batch);
                Polled::Record
            }
        };
        let mut state = self.consumer.context().state();
        if state.changes != changes {
            batch.retain(|span| state.find_span(span).is_some());
        }
        polled
    }

    /// Adds a record to the batch, if it is one we want.
    fn take(&self, record: &BorrowedMessage<'_>, blueprint: &Blueprint, batch: &mut Batch) {
        let mut state = self.consumer.context().state();
        state.away = false;
        let Some(owned) = state.find(record.topic(), record.partition()) else { return };
        let offset = record.offset();
        if !owned.wants(offset, Instant::now()) {
            return;
        }
        let cluster = self.cluster.as_deref().unwrap_or_default();
        let message = blueprint.settings.mapping.read(record::incoming(cluster, record));
        let message = message.expect("a record has a position to be named by");
        batch.push(owned, offset, message, record::size(record));
        owned.next = offset.saturating_add(1);
    }

    fn judge(&self, error: &KafkaError, blueprint: &Blueprint) -> Polled {
        let code = error.rdkafka_error_code().unwrap_or(Code::Unknown);
        let mut state = self.consumer.context().state();
        let reason = std::mem::take(&mut state.reason);
        if matches!(error, KafkaError::MessageConsumptionFatal(_)) || code == Code::Fatal {
            return Polled::Fatal(reason);
        }
        match code {
            // It says not which partition: all are placed again.
            Code::AutoOffsetReset | Code::OffsetOutOfRange => {
                let now = Instant::now();
                state.owned.iter_mut().for_each(|owned| owned.astray = Some(now));
                Polled::Other
            }
            // librdkafka has said it in its log and joins again by itself.
            Code::PollExceeded => Polled::Other,
            Code::BadMessage | Code::BadCompression | Code::NotImplemented
                if let Some(offset) = trouble::offset_in(&reason) =>
            {
                Polled::Trouble(trouble::unreadable(&mut state, offset, &reason))
            }
            _ => {
                let brokers = &blueprint.settings.connection.brokers;
                let trouble = trouble::explain(code, &reason, brokers);
                state.away |= trouble.kind == Kind::Away;
                Polled::Trouble(trouble)
            }
        }
    }

    /// Now and then while nothing comes: offers the group what it did not take, and passes what
    /// is no record (the marks of transactions), so that it is not taken for records unread.
    fn rest(&mut self, batch: &mut Batch) -> Rest {
        if self.commit_tried.elapsed() <= COMMIT_PAUSE {
            return Rest::Still;
        }
        self.commit();
        if self.placed_at.elapsed() <= PASS_PAUSE {
            return Rest::Still;
        }
        let Ok(positions) = self.consumer.position() else { return Rest::Still };
        let mut state = self.consumer.context().state();
        let mut rest = Rest::Still;
        for element in positions.elements() {
            if let Offset::Offset(next) = element.offset()
                && let Some(owned) = state.find(element.topic(), element.partition())
                && owned.passes(next)
            {
                batch.pass(owned, next);
                owned.next = next;
                rest = Rest::Passed;
            }
        }
        rest
    }

    fn commit(&mut self) {
        self.commit_tried = Instant::now();
        let behind = self.consumer.context().state().behind();
        if behind.count() > 0
            && let Err(error) = self.consumer.commit(&behind, CommitMode::Async)
        {
            tracing::debug!(%error, "the group did not take offsets");
        }
    }
}
