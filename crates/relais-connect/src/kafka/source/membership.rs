//! The membership in the consumer group: the assigned partitions, their offsets, and the callbacks
//! of librdkafka.
//!
//! Invariant: callbacks run in the reader's thread, while it polls. An assigned partition is only
//! recorded here; [`super::start_offset`] decides where it is read from. A revoked partition is
//! removed here before librdkafka releases it, and only after its batches are settled.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig, ClientContext, Offset, TopicPartitionList,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, RebalanceProtocol},
    error::{KafkaError, KafkaResult},
    types::RDKafkaRespErr,
};

use super::{
    KafkaSourceCounters, KafkaSourceSettings,
    batch::{OffsetSpan, Partition},
    lag,
    offsets::{OffsetMoved, RememberedOffset},
    settlement::Settlements,
    topic_id,
};
use crate::kafka::{client_log::ClientLog, config};

/// Creates consumers with the same settings.
pub(super) struct ConsumerFactory {
    pub(super) settings: KafkaSourceSettings,
    pub(super) counters: Arc<KafkaSourceCounters>,
    config: ClientConfig,
    /// The user enabled the debug lines of librdkafka.
    debug: bool,
}

impl ConsumerFactory {
    /// Validates the settings with librdkafka, without connecting.
    pub(super) fn new(
        settings: KafkaSourceSettings,
        counters: Arc<KafkaSourceCounters>,
    ) -> Result<Self, String> {
        let mut config = settings.connection.client(&config::SOURCE)?;
        let wanted = config.get("debug").map(str::to_owned);
        let contexts = wanted.iter().map(String::as_str).chain([topic_id::DEBUG_CONTEXT]);
        config.set("debug", contexts.collect::<Vec<_>>().join(","));
        config.set_log_level(RDKafkaLogLevel::Debug);
        config.set("statistics.interval.ms", lag::STATISTICS_INTERVAL_MS);
        // A consumer without a group does nothing.
        let made: KafkaResult<BaseConsumer> = config.create();
        let log = ClientLog::new(&settings.name, &settings.connection);
        made.map_err(|error| log.clean(&error.to_string()))?;
        config.set("group.id", &settings.group);
        Ok(Self { settings, counters, config, debug: wanted.is_some() })
    }

    /// Joins the group as a new member.
    pub(super) fn join(
        &self,
        settlements: &Arc<Settlements>,
    ) -> Result<BaseConsumer<Membership>, String> {
        let log = ClientLog::new(&self.settings.name, &self.settings.connection);
        let counters = Arc::clone(&self.counters);
        let member = Membership {
            log,
            counters,
            debug: self.debug,
            state: Mutex::default(),
            settlements: Arc::clone(settlements),
        };
        let made: KafkaResult<BaseConsumer<Membership>> = self.config.create_with_context(member);
        let consumer = made.map_err(|error| format!("cannot create a consumer: {error}"))?;
        let topics: Vec<&str> = self.settings.topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics).map_err(|error| format!("cannot subscribe: {error}"))?;
        Ok(consumer)
    }
}

/// An assigned partition that is being read.
#[derive(Clone, Debug)]
pub(super) struct OwnedPartition {
    pub(super) partition: Partition,
    /// The number of its last seek.
    pub(super) seek_id: u64,
    /// The next offset to read.
    pub(super) next: i64,
    /// The next offset after the stored records; committed to the group.
    pub(super) stored: i64,
    pub(super) moved: OffsetMoved,
    /// The offset that the group has confirmed.
    pub(super) committed: Option<i64>,
    pub(super) topic_id: Option<i64>,
    /// The topic id that is stored beside the offset.
    pub(super) saved_topic_id: Option<i64>,
    /// Seek again at or after this time; drop records of the partition until then.
    pub(super) reseek_at: Option<Instant>,
    /// An unreadable offset; it may belong to this partition.
    pub(super) unreadable: Option<i64>,
}

impl OwnedPartition {
    pub(super) fn memory(&self) -> RememberedOffset {
        RememberedOffset { next: self.next, moved: self.moved }
    }

    /// Returns the id of the topic whose offsets are known; `saved` is the id in the database.
    pub(super) fn known_topic_id(&self, saved: Option<i64>) -> Option<i64> {
        match self.moved {
            OffsetMoved::Yes => self.topic_id,
            OffsetMoved::No => saved.or(self.topic_id),
        }
    }

    pub(super) fn needs_reseek(&self, now: Instant) -> bool {
        self.reseek_at.is_some_and(|due| due <= now)
    }

    fn is_behind(&self) -> bool {
        self.committed != Some(self.stored)
    }

    /// Returns whether to take a record. If librdkafka skipped unreadable records, the partition
    /// seeks back to them: they may be readable by then, and must not be left out.
    pub(super) fn wants(&mut self, offset: i64, now: Instant) -> bool {
        if self.reseek_at.is_some() {
            return false;
        }
        let Some(unreadable) = self.unreadable else { return true };
        if offset > unreadable {
            self.reseek_at = Some(now + UNREADABLE_PAUSE);
            return false;
        }
        self.unreadable.take_if(|_| offset == unreadable);
        true
    }

    /// Returns whether librdkafka has advanced without returning a record.
    pub(super) fn can_advance(&self, next: i64) -> bool {
        self.reseek_at.is_none() && self.unreadable.is_none() && next > self.next
    }

    /// Records that this part of a batch is stored.
    pub(super) fn acknowledge(&mut self, span: &OffsetSpan) {
        self.stored = span.next;
        self.moved = OffsetMoved::No;
        self.saved_topic_id = span.topic_id.or(self.saved_topic_id);
    }

    /// Seeks back: this part of a batch is not stored and is read again. So is what was read after it.
    pub(super) fn go_back(&mut self, span: &OffsetSpan) {
        self.next = self.next.min(span.first);
        self.reseek_at = Some(Instant::now());
    }
}

/// The pause before a partition seeks back to unreadable records.
const UNREADABLE_PAUSE: Duration = Duration::from_secs(1);

/// The state shared by the reader and the callbacks of librdkafka.
#[derive(Debug, Default)]
pub(super) struct MembershipState {
    /// Assigned partitions without a start offset.
    pub(super) assigned: Vec<Partition>,
    pub(super) owned: Vec<OwnedPartition>,
    /// Counts assignments and revocations.
    pub(super) changes: u64,
    pub(super) seeks: u64,
    pub(super) topic_ids: HashMap<String, i64>,
    /// The text of librdkafka's last error.
    pub(super) reason: String,
    /// No broker answers: do not wait for one.
    pub(super) unavailable: bool,
    /// An operator paused the source.
    pub(super) paused: bool,
}

impl MembershipState {
    pub(super) fn find(&mut self, topic: &str, number: i32) -> Option<&mut OwnedPartition> {
        self.owned.iter_mut().find(|owned| owned.partition.is(topic, number))
    }

    /// Returns the partition of a span, unless it has seeked since.
    pub(super) fn find_span(&mut self, span: &OffsetSpan) -> Option<&mut OwnedPartition> {
        let Partition { topic, number } = &span.partition;
        self.find(topic, *number).filter(|owned| owned.seek_id == span.seek_id)
    }

    /// Returns whether a partition needs a seek now.
    pub(super) fn needs_seek(&self, now: Instant) -> bool {
        !self.assigned.is_empty() || self.owned.iter().any(|owned| owned.needs_reseek(now))
    }

    /// Returns the offsets that are not committed to the group yet.
    pub(super) fn behind(&self) -> TopicPartitionList {
        let behind = self.owned.iter().filter(|owned| owned.is_behind());
        list(behind.map(|owned| (&owned.partition, owned.stored)))
    }

    pub(super) fn note_committed(&mut self, offsets: &TopicPartitionList) {
        self.unavailable = false;
        for element in offsets.elements() {
            if let (Offset::Offset(offset), Ok(())) = (element.offset(), element.error())
                && let Some(owned) = self.find(element.topic(), element.partition())
            {
                owned.committed = Some(offset);
            }
        }
    }

    /// Records the id of a topic, and seeks again if it differs from the known id.
    fn note_topic_id(&mut self, topic: &str, id: i64, now: Instant) {
        self.topic_ids.insert(topic.to_owned(), id);
        for owned in self.owned.iter_mut().filter(|owned| owned.partition.topic == topic) {
            let before = owned.topic_id.or(owned.saved_topic_id);
            if before.is_some_and(|before| before != id) {
                owned.reseek_at = Some(now);
            }
            owned.topic_id.get_or_insert(id);
        }
    }
}

/// Builds a list for librdkafka.
pub(super) fn list<'a>(offsets: impl Iterator<Item = (&'a Partition, i64)>) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (partition, offset) in offsets {
        let added =
            list.add_partition_offset(&partition.topic, partition.number, Offset::Offset(offset));
        added.expect("an offset of ours is not negative");
    }
    list
}

/// The context of the consumer.
pub(super) struct Membership {
    log: ClientLog,
    counters: Arc<KafkaSourceCounters>,
    debug: bool,
    state: Mutex<MembershipState>,
    settlements: Arc<Settlements>,
}

impl Membership {
    pub(super) fn state(&self) -> MutexGuard<'_, MembershipState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Assigns partitions at their offsets; those in `again` are unassigned first.
    pub(super) fn assign(
        consumer: &BaseConsumer<Self>,
        again: &TopicPartitionList,
        wanted: &TopicPartitionList,
    ) -> KafkaResult<()> {
        if matches!(consumer.rebalance_protocol(), RebalanceProtocol::Cooperative) {
            if again.count() > 0 {
                consumer.incremental_unassign(again)?;
            }
            return consumer.incremental_assign(wanted);
        }
        // The eager protocol knows only whole assignments: the other partitions keep their offsets.
        let mut whole = wanted.clone();
        for owned in &consumer.context().state().owned {
            let Partition { topic, number } = &owned.partition;
            if wanted.find_partition(topic, *number).is_none() {
                whole.add_partition_offset(topic, *number, Offset::Offset(owned.next))?;
            }
        }
        consumer.assign(&whole)
    }

    /// Accepts assigned partitions without reading them, because the member is about to leave.
    pub(super) fn return_assigned(&self, consumer: &BaseConsumer<Self>) {
        let assigned = std::mem::take(&mut self.state().assigned);
        let assigned = list(assigned.iter().map(|partition| (partition, 0)));
        note("returning partitions", Self::assign(consumer, &TopicPartitionList::new(), &assigned));
    }

    fn on_assign(&self, consumer: &BaseConsumer<Self>, partitions: &TopicPartitionList) {
        let mut state = self.state();
        state.unavailable = false;
        if partitions.count() == 0 {
            drop(state);
            // The protocol expects a response to an empty assignment too.
            let done = Self::assign(consumer, &TopicPartitionList::new(), partitions);
            return note("an empty assignment", done);
        }
        state.changes += 1;
        state.assigned.extend(partitions.elements().iter().map(|element| Partition {
            topic: element.topic().to_owned(),
            number: element.partition(),
        }));
        tracing::info!(partitions = partitions.count(), "partitions assigned");
    }

    fn on_revoke(&self, consumer: &BaseConsumer<Self>, partitions: &TopicPartitionList) {
        let is_revoked = |p: &Partition| partitions.find_partition(&p.topic, p.number).is_some();
        self.settlements.wait_until_settled(|| self.state());
        let mut state = self.state();
        state.changes += 1;
        let (revoked, kept) = state.owned.drain(..).partition(|owned| is_revoked(&owned.partition));
        state.owned = kept;
        let (unread, assigned) =
            state.assigned.drain(..).partition(|partition| is_revoked(partition));
        state.assigned = assigned;
        let unavailable = state.unavailable;
        drop(state);
        let revoked: Vec<OwnedPartition> = revoked;
        let behind = revoked.iter().filter(|owned| owned.is_behind());
        let behind = list(behind.map(|owned| (&owned.partition, owned.stored)));
        if behind.count() > 0 && !unavailable && !consumer.assignment_lost() {
            note("the last commit", consumer.commit(&behind, CommitMode::Sync));
        }
        tracing::info!(partitions = partitions.count(), "partitions revoked");
        let unread: Vec<Partition> = unread;
        note("releasing partitions", Self::release(consumer, &unread, partitions));
    }

    fn release(
        consumer: &BaseConsumer<Self>,
        unread: &[Partition],
        partitions: &TopicPartitionList,
    ) -> KafkaResult<()> {
        if !matches!(consumer.rebalance_protocol(), RebalanceProtocol::Cooperative) {
            return consumer.unassign();
        }
        if !unread.is_empty() {
            // Only an assigned partition can be unassigned.
            consumer.incremental_assign(&list(unread.iter().map(|p| (p, 0))))?;
        }
        consumer.incremental_unassign(partitions)
    }
}

/// Logs an error during a rebalance; the next rebalance corrects it.
fn note(what: &str, result: KafkaResult<()>) {
    if let Err(error) = result {
        tracing::warn!(%error, "{what} failed; the stored positions are not affected");
    }
}

impl ClientContext for Membership {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        if matches!(level, RDKafkaLogLevel::Debug) {
            if let Some((topic, id)) = topic_id::changed(line) {
                self.state().note_topic_id(topic, id, Instant::now());
            }
            if !self.debug {
                return;
            }
        }
        self.log.line(level, facility, line);
    }

    /// Called just before `poll` returns the error.
    fn error(&self, _error: KafkaError, reason: &str) {
        self.state().reason = self.log.clean(reason);
    }

    fn stats_raw(&self, statistics: &[u8]) {
        let state = self.state();
        let mut status = lag::read(statistics, &state.owned);
        if state.paused {
            // librdkafka knows the ends only from reading, and nothing is read now.
            status.lag = self.counters.lag();
        }
        self.counters.set_status(status);
    }
}

impl ConsumerContext for Membership {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        what: RDKafkaRespErr,
        partitions: &mut TopicPartitionList,
    ) {
        if what == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            self.on_assign(consumer, partitions);
        } else {
            self.on_revoke(consumer, partitions);
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, offsets: &TopicPartitionList) {
        match result {
            Ok(()) => self.state().note_committed(offsets),
            // Still uncommitted; tried again later.
            Err(error) => tracing::debug!(%error, "offset commit failed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl OwnedPartition {
        /// A partition of `members` that is stored and read up to this offset, for tests.
        pub(crate) fn at(number: i32, stored: i64) -> Self {
            Self {
                partition: Partition { topic: "members".into(), number },
                seek_id: 1,
                next: stored,
                stored,
                moved: OffsetMoved::No,
                committed: None,
                topic_id: None,
                saved_topic_id: None,
                reseek_at: None,
                unreadable: None,
            }
        }
    }

    fn owned(next: i64) -> OwnedPartition {
        OwnedPartition::at(0, next)
    }

    #[test]
    fn records_after_unreadable_ones_are_not_taken() {
        let now = Instant::now();
        let mut owned = OwnedPartition { unreadable: Some(7), ..owned(5) };
        assert!(owned.wants(5, now) && owned.wants(6, now));
        assert!(!owned.wants(8, now) && !owned.wants(9, now));
        assert!(!owned.needs_reseek(now) && owned.needs_reseek(now + UNREADABLE_PAUSE));
    }

    #[test]
    fn a_record_that_becomes_readable_blocks_nothing() {
        let mut owned = OwnedPartition { unreadable: Some(7), ..owned(5) };
        let now = Instant::now();
        assert!(owned.wants(7, now) && owned.wants(8, now));
    }

    #[test]
    fn a_partition_seeks_again_only_when_the_id_of_its_topic_changes() {
        let now = Instant::now();
        for (started_with, saved, reported, reseeks) in [
            (None, None, 1, false),
            (Some(1), Some(1), 1, false),
            (Some(1), None, 2, true),
            (None, Some(1), 2, true),
            // Already reads the new topic, and nothing of it is stored yet.
            (Some(2), Some(1), 2, false),
        ] {
            let one = OwnedPartition { topic_id: started_with, saved_topic_id: saved, ..owned(5) };
            let mut state = MembershipState { owned: vec![one], ..MembershipState::default() };
            state.note_topic_id("members", reported, now);
            state.note_topic_id("others", 9, now);
            assert_eq!(state.owned[0].reseek_at.is_some(), reseeks, "{started_with:?} {saved:?}");
        }
    }

    #[test]
    fn a_span_is_void_after_another_seek_of_its_partition() {
        let mut state = MembershipState { owned: vec![owned(5)], ..MembershipState::default() };
        let span = |seek_id| OffsetSpan {
            partition: Partition { topic: "members".into(), number: 0 },
            seek_id,
            first: 5,
            next: 8,
            topic_id: Some(3),
        };
        assert!(state.find_span(&span(2)).is_none());
        state.find_span(&span(1)).unwrap().acknowledge(&span(1));
        assert_eq!((state.owned[0].stored, state.owned[0].saved_topic_id), (8, Some(3)));
        assert_eq!(state.behind().count(), 1);
        let committed = state.behind();
        state.note_committed(&committed);
        assert_eq!(state.behind().count(), 0);
    }
}
