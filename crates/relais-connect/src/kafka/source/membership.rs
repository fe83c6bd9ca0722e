//! Our part in the consumer group: which partitions are ours, how far each is read, and what
//! librdkafka tells about them.
//!
//! Invariant: callbacks run in the reader's thread, while it polls. A partition that is given to us
//! is only noted here; [`super::placing`] decides where it is read from. One that is taken away is
//! gone from here before librdkafka hears that we let it go.

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
    batch::Span,
    lag,
    offsets::{Memory, Moved},
    topic_id,
};
use crate::kafka::{client_log::ClientLog, config};

/// All it takes to make a consumer, again and again.
pub(super) struct Blueprint {
    pub(super) settings: KafkaSourceSettings,
    pub(super) counters: Arc<KafkaSourceCounters>,
    config: ClientConfig,
    /// The user wants to see librdkafka's debug lines.
    debug: bool,
}

impl Blueprint {
    /// Asks librdkafka whether it takes the settings, without connecting anywhere.
    pub(super) fn new(
        settings: KafkaSourceSettings,
        counters: Arc<KafkaSourceCounters>,
    ) -> Result<Self, String> {
        let mut config = settings.connection.client(&config::SOURCE)?;
        let wanted = config.get("debug").map(str::to_owned);
        let contexts = wanted.iter().map(String::as_str).chain([topic_id::DEBUG_CONTEXT]);
        config.set("debug", contexts.collect::<Vec<_>>().join(","));
        config.set_log_level(RDKafkaLogLevel::Debug);
        config.set("statistics.interval.ms", lag::TOLD_EVERY);
        // Without a group it is a consumer that does nothing.
        let made: KafkaResult<BaseConsumer> = config.create();
        let log = ClientLog::new(&settings.name, &settings.connection);
        made.map_err(|error| log.clean(&error.to_string()))?;
        config.set("group.id", &settings.group);
        Ok(Self { settings, counters, config, debug: wanted.is_some() })
    }

    /// A new member of the group.
    pub(super) fn join(&self) -> Result<BaseConsumer<Membership>, String> {
        let log = ClientLog::new(&self.settings.name, &self.settings.connection);
        let counters = Arc::clone(&self.counters);
        let member = Membership { log, counters, debug: self.debug, state: Mutex::default() };
        let made: KafkaResult<BaseConsumer<Membership>> = self.config.create_with_context(member);
        let consumer = made.map_err(|error| format!("cannot make a consumer: {error}"))?;
        let topics: Vec<&str> = self.settings.topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics).map_err(|error| format!("cannot subscribe: {error}"))?;
        Ok(consumer)
    }
}

/// A partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Partition {
    pub(super) topic: String,
    pub(super) number: i32,
}

impl Partition {
    pub(super) fn is(&self, topic: &str, number: i32) -> bool {
        self.number == number && self.topic == topic
    }
}

/// A partition that is ours and is being read.
#[derive(Clone, Debug)]
pub(super) struct Owned {
    pub(super) partition: Partition,
    /// Differs with every placing.
    pub(super) placed: u64,
    /// The next offset to read.
    pub(super) next: i64,
    /// The next offset by what is stored; the group is told this.
    pub(super) stored: i64,
    pub(super) moved: Moved,
    /// What the group has answered to know.
    pub(super) committed: Option<i64>,
    pub(super) topic_id: Option<i64>,
    /// The id the database has beside the offset.
    pub(super) saved_topic_id: Option<i64>,
    /// It must be placed again, not before then; until then its records count for nothing.
    pub(super) astray: Option<Instant>,
    /// An offset somewhere in the topics that could not be read; it may be this partition's.
    pub(super) unreadable: Option<i64>,
}

impl Owned {
    pub(super) fn memory(&self) -> Memory {
        Memory { next: self.next, moved: self.moved }
    }

    /// The id of the topic whose offsets are known, with what the database has beside its own.
    pub(super) fn known_topic_id(&self, saved: Option<i64>) -> Option<i64> {
        match self.moved {
            Moved::Yes => self.topic_id,
            Moved::No => saved.or(self.topic_id),
        }
    }

    pub(super) fn is_astray(&self, now: Instant) -> bool {
        self.astray.is_some_and(|due| due <= now)
    }

    fn is_behind(&self) -> bool {
        self.committed != Some(self.stored)
    }

    /// Whether a record is to be taken. If librdkafka has skipped records it could not read, the
    /// partition goes back to them: they may be readable then, and are not ours to leave out.
    pub(super) fn wants(&mut self, offset: i64, now: Instant) -> bool {
        if self.astray.is_some() {
            return false;
        }
        let Some(unreadable) = self.unreadable else { return true };
        if offset > unreadable {
            self.astray = Some(now + UNREADABLE_PAUSE);
            return false;
        }
        self.unreadable.take_if(|_| offset == unreadable);
        true
    }

    /// Whether librdkafka has gone on to an offset without giving us a record before it.
    pub(super) fn passes(&self, next: i64) -> bool {
        self.astray.is_none() && self.unreadable.is_none() && next > self.next
    }

    /// The database has this part of a batch.
    pub(super) fn acknowledge(&mut self, span: &Span) {
        self.stored = span.next;
        self.moved = Moved::No;
        self.saved_topic_id = span.topic_id.or(self.saved_topic_id);
    }

    /// The database has not: it comes again, from where the database says then.
    pub(super) fn go_back(&mut self, span: &Span) {
        self.next = span.first;
        self.astray = Some(Instant::now());
    }
}

/// The pause before a partition goes back to records that could not be read.
const UNREADABLE_PAUSE: Duration = Duration::from_secs(1);

/// What the reader and librdkafka's callbacks share.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Ours by the group, but not placed yet.
    pub(super) given: Vec<Partition>,
    pub(super) owned: Vec<Owned>,
    /// Counts what is given and taken.
    pub(super) changes: u64,
    pub(super) placings: u64,
    pub(super) topic_ids: HashMap<String, i64>,
    /// What librdkafka said with its last error.
    pub(super) reason: String,
    /// No broker answers: do not wait for one.
    pub(super) away: bool,
    /// An operator paused the source.
    pub(super) paused: bool,
}

impl State {
    pub(super) fn find(&mut self, topic: &str, number: i32) -> Option<&mut Owned> {
        self.owned.iter_mut().find(|owned| owned.partition.is(topic, number))
    }

    /// The partition of a span, if it was not placed again since.
    pub(super) fn find_span(&mut self, span: &Span) -> Option<&mut Owned> {
        let Partition { topic, number } = &span.partition;
        self.find(topic, *number).filter(|owned| owned.placed == span.placed)
    }

    /// Whether something has to be placed now.
    pub(super) fn has_unplaced(&self, now: Instant) -> bool {
        !self.given.is_empty() || self.owned.iter().any(|owned| owned.is_astray(now))
    }

    /// The offsets the group does not know yet.
    pub(super) fn behind(&self) -> TopicPartitionList {
        let behind = self.owned.iter().filter(|owned| owned.is_behind());
        list(behind.map(|owned| (&owned.partition, owned.stored)))
    }

    pub(super) fn note_committed(&mut self, offsets: &TopicPartitionList) {
        self.away = false;
        for element in offsets.elements() {
            if let (Offset::Offset(offset), Ok(())) = (element.offset(), element.error())
                && let Some(owned) = self.find(element.topic(), element.partition())
            {
                owned.committed = Some(offset);
            }
        }
    }

    /// The broker has another topic of this name than before, or tells for the first time.
    fn note_topic_id(&mut self, topic: &str, id: i64, now: Instant) {
        self.topic_ids.insert(topic.to_owned(), id);
        for owned in self.owned.iter_mut().filter(|owned| owned.partition.topic == topic) {
            let before = owned.topic_id.or(owned.saved_topic_id);
            if before.is_some_and(|before| before != id) {
                owned.astray = Some(now);
            }
            owned.topic_id.get_or_insert(id);
        }
    }
}

/// A list for librdkafka.
pub(super) fn list<'a>(offsets: impl Iterator<Item = (&'a Partition, i64)>) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (partition, offset) in offsets {
        let added =
            list.add_partition_offset(&partition.topic, partition.number, Offset::Offset(offset));
        added.expect("an offset of ours is not negative");
    }
    list
}

/// The context of our consumer.
pub(super) struct Membership {
    log: ClientLog,
    counters: Arc<KafkaSourceCounters>,
    debug: bool,
    state: Mutex<State>,
}

impl Membership {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Places what was given, and takes what is to be placed again out first.
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
        // The older protocol knows only whole assignments: what is read already goes on.
        let mut whole = wanted.clone();
        for owned in &consumer.context().state().owned {
            let Partition { topic, number } = &owned.partition;
            if wanted.find_partition(topic, *number).is_none() {
                whole.add_partition_offset(topic, *number, Offset::Offset(owned.next))?;
            }
        }
        consumer.assign(&whole)
    }

    /// Takes up what was given without reading it: we are about to leave.
    pub(super) fn give_back(&self, consumer: &BaseConsumer<Self>) {
        let given = std::mem::take(&mut self.state().given);
        let given = list(given.iter().map(|partition| (partition, 0)));
        note("giving partitions back", Self::assign(consumer, &TopicPartitionList::new(), &given));
    }

    fn given(&self, consumer: &BaseConsumer<Self>, partitions: &TopicPartitionList) {
        let mut state = self.state();
        state.away = false;
        if partitions.count() == 0 {
            drop(state);
            // The protocol waits for an answer to an empty assignment too.
            let done = Self::assign(consumer, &TopicPartitionList::new(), partitions);
            return note("an empty assignment", done);
        }
        state.changes += 1;
        state.given.extend(partitions.elements().iter().map(|element| Partition {
            topic: element.topic().to_owned(),
            number: element.partition(),
        }));
        tracing::info!(partitions = partitions.count(), "partitions were given to this source");
    }

    fn taken(&self, consumer: &BaseConsumer<Self>, partitions: &TopicPartitionList) {
        let is_taken = |p: &Partition| partitions.find_partition(&p.topic, p.number).is_some();
        let mut state = self.state();
        state.changes += 1;
        let (gone, kept) = state.owned.drain(..).partition(|owned| is_taken(&owned.partition));
        state.owned = kept;
        let (unplaced, given) = state.given.drain(..).partition(|partition| is_taken(partition));
        state.given = given;
        let away = state.away;
        drop(state);
        let gone: Vec<Owned> = gone;
        let behind = gone.iter().filter(|owned| owned.is_behind());
        let behind = list(behind.map(|owned| (&owned.partition, owned.stored)));
        if behind.count() > 0 && !away && !consumer.assignment_lost() {
            note("a last commit", consumer.commit(&behind, CommitMode::Sync));
        }
        tracing::info!(partitions = partitions.count(), "partitions were taken from this source");
        let unplaced: Vec<Partition> = unplaced;
        note("giving partitions up", Self::release(consumer, &unplaced, partitions));
    }

    fn release(
        consumer: &BaseConsumer<Self>,
        unplaced: &[Partition],
        partitions: &TopicPartitionList,
    ) -> KafkaResult<()> {
        if !matches!(consumer.rebalance_protocol(), RebalanceProtocol::Cooperative) {
            return consumer.unassign();
        }
        if !unplaced.is_empty() {
            // Only what was taken up can be let go.
            consumer.incremental_assign(&list(unplaced.iter().map(|p| (p, 0))))?;
        }
        consumer.incremental_unassign(partitions)
    }
}

/// What goes wrong while partitions change hands mends itself with the next rebalance.
fn note(what: &str, result: KafkaResult<()>) {
    if let Err(error) = result {
        tracing::warn!(%error, "{what} failed; the database knows how far this source has read");
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

    /// Comes just before `poll` returns the error.
    fn error(&self, _error: KafkaError, reason: &str) {
        self.state().reason = self.log.clean(reason);
    }

    fn stats_raw(&self, statistics: &[u8]) {
        let state = self.state();
        let mut told = lag::read(statistics, &state.owned);
        if state.paused {
            // It knows the ends from reading, and nothing is read now.
            told.lag = self.counters.lag();
        }
        self.counters.tell(told);
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
            self.given(consumer, partitions);
        } else {
            self.taken(consumer, partitions);
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, offsets: &TopicPartitionList) {
        match result {
            Ok(()) => self.state().note_committed(offsets),
            // Still behind, and tried again.
            Err(error) => tracing::debug!(%error, "the group did not take offsets"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Owned {
        /// A partition of `members` that is stored and read up to here, for tests.
        pub(crate) fn at(number: i32, stored: i64) -> Self {
            Self {
                partition: Partition { topic: "members".into(), number },
                placed: 1,
                next: stored,
                stored,
                moved: Moved::No,
                committed: None,
                topic_id: None,
                saved_topic_id: None,
                astray: None,
                unreadable: None,
            }
        }
    }

    fn owned(next: i64) -> Owned {
        Owned::at(0, next)
    }

    #[test]
    fn records_behind_what_could_not_be_read_are_not_taken() {
        let now = Instant::now();
        let mut owned = Owned { unreadable: Some(7), ..owned(5) };
        assert!(owned.wants(5, now) && owned.wants(6, now));
        assert!(!owned.wants(8, now) && !owned.wants(9, now));
        assert!(!owned.is_astray(now) && owned.is_astray(now + UNREADABLE_PAUSE));
    }

    #[test]
    fn what_turns_out_to_be_readable_holds_nothing_back() {
        let mut owned = Owned { unreadable: Some(7), ..owned(5) };
        let now = Instant::now();
        assert!(owned.wants(7, now) && owned.wants(8, now));
    }

    #[test]
    fn another_id_of_its_topic_sends_a_partition_astray_and_the_same_one_does_not() {
        let now = Instant::now();
        for (placed_with, saved, told, goes_astray) in [
            (None, None, 1, false),
            (Some(1), Some(1), 1, false),
            (Some(1), None, 2, true),
            (None, Some(1), 2, true),
            // Placed in the new topic already, and nothing stored there yet.
            (Some(2), Some(1), 2, false),
        ] {
            let one = Owned { topic_id: placed_with, saved_topic_id: saved, ..owned(5) };
            let mut state = State { owned: vec![one], ..State::default() };
            state.note_topic_id("members", told, now);
            state.note_topic_id("others", 9, now);
            assert_eq!(state.owned[0].astray.is_some(), goes_astray, "{placed_with:?} {saved:?}");
        }
    }

    #[test]
    fn a_span_counts_only_until_its_partition_is_placed_again() {
        let mut state = State { owned: vec![owned(5)], ..State::default() };
        let span = |placed| Span {
            partition: Partition { topic: "members".into(), number: 0 },
            placed,
            first: 5,
            next: 8,
            topic_id: Some(3),
        };
        assert!(state.find_span(&span(2)).is_none());
        state.find_span(&span(1)).unwrap().acknowledge(&span(1));
        assert_eq!((state.owned[0].stored, state.owned[0].saved_topic_id), (8, Some(3)));
        assert_eq!(state.behind().count(), 1);
        let told = state.behind();
        state.note_committed(&told);
        assert_eq!(state.behind().count(), 0);
    }
}
