//! One member of the consumer group: polls, takes records, and tells the group how far we are.
//!
//! Invariant: it is used by the reader's thread alone. What goes wrong for good ends it, and the
//! reader makes another.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use rdkafka::{
    Message, Offset,
    consumer::{BaseConsumer, CommitMode, Consumer},
    error::{KafkaError, RDKafkaErrorCode as Code},
    message::BorrowedMessage,
};
use relais_core::inbox::SourcePosition;

use super::{
    batch::Batch,
    membership::{Blueprint, Membership},
    placing::{ANSWER_MAX, PlaceError, Placing},
    record,
    trouble::{self, Kind, Trouble},
};

/// How long the id of a topic may take to come; without it offsets alone must do.
const TOPIC_ID_MAX: Duration = Duration::from_millis(500);
/// How often something is done while nothing comes.
const COMMIT_PAUSE: Duration = Duration::from_secs(1);
/// How long after a placing librdkafka is asked how far it is: it stops what it did before by and
/// by, and until then would answer with the old place.
const PASS_PAUSE: Duration = Duration::from_secs(5);

/// One membership of the group; after a fatal error there is another.
pub(super) struct Member {
    pub(super) consumer: BaseConsumer<Membership>,
    /// The cluster's id, once it is known.
    pub(super) cluster: Option<String>,
    /// Since when the id of a topic is waited for.
    topics_asked: HashMap<String, Instant>,
    commit_tried: Instant,
    placed_at: Instant,
}

/// What came of one poll.
pub(super) enum Polled {
    Record,
    Nothing,
    /// Something to be looked at in the state.
    Other,
    Trouble(Trouble),
    Fatal(String),
}

/// What a pause was good for.
#[derive(PartialEq, Eq)]
pub(super) enum Rest {
    Still,
    /// The batch has positions to be stored, and no rows.
    Passed,
}

impl Member {
    pub(super) fn join(blueprint: &Blueprint) -> Result<Self, String> {
        Ok(Self {
            consumer: blueprint.join()?,
            cluster: None,
            topics_asked: HashMap::new(),
            commit_tried: Instant::now(),
            placed_at: Instant::now(),
        })
    }

    pub(super) fn has_unplaced(&self) -> bool {
        self.consumer.context().state().has_unplaced(Instant::now())
    }

    /// Whether the ids of topics to be placed are known, or have been waited for long enough.
    pub(super) fn knows_topics(&mut self) -> bool {
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

    pub(super) fn place(
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

    pub(super) fn poll(
        &mut self,
        blueprint: &Blueprint,
        batch: &mut Batch,
        wait: Duration,
    ) -> Polled {
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
    pub(super) fn rest(&mut self, batch: &mut Batch) -> Rest {
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

    pub(super) fn commit(&mut self) {
        self.commit_tried = Instant::now();
        let behind = self.consumer.context().state().behind();
        if behind.count() > 0
            && let Err(error) = self.consumer.commit(&behind, CommitMode::Async)
        {
            tracing::debug!(%error, "the group did not take offsets");
        }
    }
}
