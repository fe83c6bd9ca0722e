//! The reader thread: executes the commands of the source, one at a time.
//!
//! Invariant: it polls only in `collect` and while the source is paused. It may collect a batch while the one
//! before is stored; a partition is revoked, and seeks, only when all batches are settled. Each `Collect` is
//! answered by exactly one [`ReaderReply`].

mod leave;
mod message;
mod pause;
mod take;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rdkafka::{
    Offset,
    consumer::{BaseConsumer, CommitMode, Consumer},
    error::{KafkaError, RDKafkaErrorCode as Code},
};
use relais_core::{inbox::SourcePosition, source::SourceBatch};
use tokio::{runtime::Handle, sync::mpsc};

pub(super) use self::message::{ReaderCommand, ReaderReply};
use self::take::RecordSchemas;
use super::{
    batch::RecordBatch,
    consumer_error::{self, ConsumerError, ConsumerErrorKind, ErrorReports},
    membership::{ConsumerFactory, Membership, MembershipState},
    schema::SchemaResolver,
    settlement::Settlements,
    start_offset::{ANSWER_MAX, SeekError, StartOffsets},
};

/// Longest wait of one poll; also the delay of closing.
const POLL_MAX: Duration = Duration::from_millis(100);
/// The same while a partition waits for its start offset, or a batch for its settlement.
const POLL_MIN: Duration = Duration::from_millis(5);
/// The same with fetched records that follow a batch without a settlement.
const POLL_AHEAD: Duration = Duration::from_millis(1);
/// Time to wait for the id of a topic; without it only offsets are compared.
const TOPIC_ID_MAX: Duration = Duration::from_millis(500);
/// Interval of commits while no records arrive.
const COMMIT_PAUSE: Duration = Duration::from_secs(1);
/// Time after a seek before librdkafka is asked for its position: it still reports the old position
/// for a while.
const ADVANCE_PAUSE: Duration = Duration::from_secs(5);

/// Reads the records of one source.
pub(super) struct KafkaReader {
    factory: ConsumerFactory,
    closing: Arc<AtomicBool>,
    /// A pending `Collect` must be answered now.
    pausing: Arc<AtomicBool>,
    member: Option<GroupMember>,
    settlements: Arc<Settlements>,
    errors: ErrorReports,
    /// Present if values are decoded by schemas of a registry.
    schemas: Option<SchemaResolver>,
}

/// One membership in the group; after a fatal error another one is created.
struct GroupMember {
    consumer: BaseConsumer<Membership>,
    /// The id of the cluster, once known.
    cluster: Option<String>,
    /// Topics whose id was requested, and when.
    topics_asked: HashMap<String, Instant>,
    commit_tried: Instant,
    last_seek: Instant,
}

impl KafkaReader {
    pub(super) fn new(
        factory: ConsumerFactory,
        (closing, pausing): (Arc<AtomicBool>, Arc<AtomicBool>),
        commands: mpsc::Receiver<ReaderCommand>,
        runtime: Option<Handle>,
    ) -> Self {
        let (settlements, errors) = (Arc::new(Settlements::new(commands)), ErrorReports::default());
        let settings = &factory.settings;
        let registry =
            settings.registry.clone().filter(|_| settings.mapping.decoder.needs_schema());
        let schemas = registry.zip(runtime).map(|(registry, runtime)| {
            SchemaResolver::new(registry, settings.unknown_schema_wait, runtime)
        });
        Self { factory, closing, pausing, member: None, settlements, errors, schemas }
    }

    /// Executes commands until the channel closes.
    pub(super) fn run(mut self, replies: &mpsc::Sender<ReaderReply>) {
        let mut next = self.settlements.wait();
        while let Some(command) = next {
            match command {
                ReaderCommand::Pause => {
                    next = self.idle();
                    continue;
                }
                ReaderCommand::Acknowledge | ReaderCommand::Refuse => {
                    let mut member = self.member.take();
                    self.settle(member.as_mut(), &command);
                    self.member = member;
                }
                ReaderCommand::Collect { max, positions } => {
                    let reply =
                        self.collect(max, positions).unwrap_or_else(ReaderReply::Unavailable);
                    if replies.blocking_send(reply).is_err() {
                        break;
                    }
                }
            }
            next = self.settlements.wait();
        }
        self.leave();
    }

    /// Executes a command that settles batches.
    fn settle(&self, member: Option<&mut GroupMember>, command: &ReaderCommand) {
        let Some(member) = member else {
            // After a fatal error no partition is assigned, and the batches end here.
            return self.settlements.settle(&mut MembershipState::default(), command);
        };
        self.settlements.settle(&mut member.consumer.context().state(), command);
        if matches!(command, ReaderCommand::Acknowledge) {
            member.commit();
        }
    }

    fn collect(
        &mut self,
        max: usize,
        mut positions: Option<Vec<SourcePosition>>,
    ) -> Result<ReaderReply, String> {
        let mut member = match self.member.take() {
            Some(member) => member,
            None => GroupMember::join(&self.factory, &self.settlements)?,
        };
        let mut batch = RecordBatch::default();
        let mut refusals = self.settlements.refusals();
        let reply = loop {
            while let Ok(command) = self.settlements.try_next() {
                self.settle(Some(&mut member), &command);
            }
            if self.settlements.refusals() != refusals {
                refusals = self.settlements.refusals();
                let RecordBatch { spans, .. } = std::mem::take(&mut batch);
                member.consumer.context().state().go_back(&spans);
            }
            let is_ahead = !self.settlements.is_empty();
            if self.closing.load(Ordering::Relaxed) {
                break Ok(ReaderReply::Closed);
            }
            if self.pausing.load(Ordering::Relaxed) {
                break Ok(match batch.is_empty() {
                    true => ReaderReply::Paused,
                    false => self.hand_out(&member, batch),
                });
            }
            if !is_ahead && member.needs_seek() && member.knows_topics() {
                if !batch.is_empty() {
                    break Ok(self.hand_out(&member, batch));
                }
                let Some(stored) = positions.take() else { break Ok(ReaderReply::AskPositions) };
                match member.seek(&self.factory, &stored) {
                    Ok(()) => {}
                    Err(SeekError::Unknown(reason)) => break Err(reason),
                    // The state of librdkafka is unknown.
                    Err(SeekError::Broken(reason)) => return Err(reason),
                }
            }
            if batch.is_empty()
                && let Some(reason) = self.errors.due(Instant::now())
            {
                break Err(reason);
            }
            let wait = match batch.is_empty() {
                false if is_ahead => POLL_AHEAD,
                false => Duration::ZERO,
                true if is_ahead || member.needs_seek() => POLL_MIN,
                true => POLL_MAX,
            };
            match self.poll(&mut member, &mut batch, wait) {
                PollOutcome::Record => self.errors.note_record(),
                PollOutcome::Other => {}
                PollOutcome::Nothing if batch.is_empty() => {
                    if member.idle_work(&mut batch) == IdleOutcome::Advanced {
                        break Ok(self.hand_out(&member, batch));
                    }
                }
                // More records may arrive before the batch can be stored.
                PollOutcome::Nothing if is_ahead => {}
                PollOutcome::Nothing => break Ok(self.hand_out(&member, batch)),
                PollOutcome::Error(error) => self.errors.note(error),
                PollOutcome::Fatal(reason) => {
                    tracing::error!(reason, "consumer ended; creating another");
                    return Err(reason);
                }
            }
            if batch.is_full(max) && self.settlements.refusals() == refusals {
                break Ok(self.hand_out(&member, batch));
            }
        };
        self.member = Some(member);
        reply
    }

    fn hand_out(&self, member: &GroupMember, batch: RecordBatch) -> ReaderReply {
        let cluster = member.cluster.as_deref().unwrap_or_default();
        let positions = batch.positions(&self.factory.settings.name, cluster);
        let RecordBatch { messages, spans, .. } = batch;
        self.settlements.hand_out(spans);
        let refusals = self.settlements.refusals();
        ReaderReply::Batch { batch: SourceBatch { messages, positions }, refusals }
    }
}

/// The result of one poll.
enum PollOutcome {
    Record,
    Nothing,
    /// The state has changed.
    Other,
    Error(ConsumerError),
    Fatal(String),
}

/// The result of the work done while idle.
#[derive(PartialEq, Eq)]
enum IdleOutcome {
    Unchanged,
    /// The batch has positions to store, and no rows.
    Advanced,
}

impl GroupMember {
    fn join(factory: &ConsumerFactory, settlements: &Arc<Settlements>) -> Result<Self, String> {
        Ok(Self {
            consumer: factory.join(settlements)?,
            cluster: None,
            topics_asked: HashMap::new(),
            commit_tried: Instant::now(),
            last_seek: Instant::now(),
        })
    }

    fn needs_seek(&self) -> bool {
        self.consumer.context().state().needs_seek(Instant::now())
    }

    /// Returns whether the ids of the topics are known, or have been waited for long enough.
    fn knows_topics(&mut self) -> bool {
        let unknown: Vec<String> = {
            let state = self.consumer.context().state();
            let topics = state.assigned.iter().map(|partition| &partition.topic);
            topics.filter(|topic| !state.topic_ids.contains_key(*topic)).cloned().collect()
        };
        for topic in &unknown {
            if !self.topics_asked.contains_key(topic) {
                // The request makes librdkafka log the id, in a line that the next polls return.
                let _ = self.consumer.fetch_metadata(Some(topic), ANSWER_MAX);
                self.topics_asked.insert(topic.clone(), Instant::now());
            }
        }
        unknown.iter().all(|topic| self.topics_asked[topic].elapsed() > TOPIC_ID_MAX)
    }

    fn seek(
        &mut self,
        factory: &ConsumerFactory,
        stored: &[SourcePosition],
    ) -> Result<(), SeekError> {
        let cluster = match self.cluster.take() {
            Some(cluster) => cluster,
            None => self.consumer.client().fetch_cluster_id(ANSWER_MAX).ok_or_else(|| {
                SeekError::Unknown("the cluster does not report its id".to_owned())
            })?,
        };
        let start_offsets =
            StartOffsets { factory, consumer: &self.consumer, cluster: &cluster, stored };
        let result = start_offsets.seek();
        self.cluster = Some(cluster);
        self.commit_tried = Instant::now();
        self.last_seek = Instant::now();
        result
    }

    fn poll(
        &mut self,
        factory: &ConsumerFactory,
        schemas: Option<RecordSchemas<'_>>,
        batch: &mut RecordBatch,
        wait: Duration,
    ) -> PollOutcome {
        let changes = self.consumer.context().state().changes;
        let polled = match self.consumer.poll(wait) {
            None => PollOutcome::Nothing,
            Some(Err(error)) => self.judge(&error, factory),
            Some(Ok(record)) => self.take(&record, factory, schemas, batch),
        };
        let mut state = self.consumer.context().state();
        if state.changes != changes {
            batch.retain(|span| state.find_span(span).is_some());
        }
        polled
    }

    fn judge(&self, error: &KafkaError, factory: &ConsumerFactory) -> PollOutcome {
        let code = error.rdkafka_error_code().unwrap_or(Code::Unknown);
        let mut state = self.consumer.context().state();
        let reason = std::mem::take(&mut state.reason);
        if matches!(error, KafkaError::MessageConsumptionFatal(_)) || code == Code::Fatal {
            return PollOutcome::Fatal(reason);
        }
        match code {
            // The error does not name the partition: all of them seek again.
            Code::AutoOffsetReset | Code::OffsetOutOfRange => {
                let now = Instant::now();
                state.owned.iter_mut().for_each(|owned| owned.reseek_at = Some(now));
                PollOutcome::Other
            }
            // librdkafka has logged it and rejoins by itself.
            Code::PollExceeded => PollOutcome::Other,
            Code::BadMessage | Code::BadCompression | Code::NotImplemented
                if let Some(offset) = consumer_error::offset_in(&reason) =>
            {
                PollOutcome::Error(consumer_error::unreadable(&mut state, offset, &reason))
            }
            _ => {
                let brokers = &factory.settings.connection.brokers;
                let error = consumer_error::explain(code, &reason, brokers);
                state.unavailable |= error.kind == ConsumerErrorKind::Unavailable;
                PollOutcome::Error(error)
            }
        }
    }

    /// While no records arrive: commits again what the group has not confirmed, and advances over
    /// transaction markers, so that they do not count as unread records.
    fn idle_work(&mut self, batch: &mut RecordBatch) -> IdleOutcome {
        if self.commit_tried.elapsed() <= COMMIT_PAUSE {
            return IdleOutcome::Unchanged;
        }
        self.commit();
        if self.last_seek.elapsed() <= ADVANCE_PAUSE {
            return IdleOutcome::Unchanged;
        }
        let Ok(positions) = self.consumer.position() else { return IdleOutcome::Unchanged };
        let mut state = self.consumer.context().state();
        let mut rest = IdleOutcome::Unchanged;
        for element in positions.elements() {
            if let Offset::Offset(next) = element.offset()
                && let Some(owned) = state.find(element.topic(), element.partition())
                && owned.can_advance(next)
            {
                batch.advance(owned, next);
                owned.next = next;
                rest = IdleOutcome::Advanced;
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
            tracing::debug!(%error, "offset commit failed");
        }
    }
}
