//! Our part in the consumer group: what librdkafka tells about our partitions, and what it hears.
//!
//! Invariant: callbacks run in the reader's thread, while it polls. A partition that is given to us
//! is only noted here; [`super::placing`] decides where it is read from. One that is asked back stays
//! ours while a batch is out, and is gone from here before librdkafka hears that we let it go.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
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
    owned::{Owned, Partition, State, list},
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
        let member = Membership { log, debug: self.debug, state: Mutex::default() };
        let made: KafkaResult<BaseConsumer<Membership>> = self.config.create_with_context(member);
        let consumer = made.map_err(|error| format!("cannot make a consumer: {error}"))?;
        let topics: Vec<&str> = self.settings.topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics).map_err(|error| format!("cannot subscribe: {error}"))?;
        Ok(consumer)
    }
}

/// The context of our consumer.
pub(super) struct Membership {
    log: ClientLog,
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

    /// librdkafka waits for us to let them go, as long as we are a member.
    fn asked_back(&self, consumer: &BaseConsumer<Self>, partitions: &TopicPartitionList) {
        let mut state = self.state();
        // What is lost is lost at once, and all of it.
        state.leaving =
            Some(partitions.clone()).filter(|_| state.out && !consumer.assignment_lost());
        if state.leaving.is_some() {
            return;
        }
        drop(state);
        self.taken(consumer, partitions);
    }

    /// No batch is out: what was asked back meanwhile goes.
    pub(super) fn let_go(&self, consumer: &BaseConsumer<Self>) {
        let mut state = self.state();
        state.out = false;
        let leaving = state.leaving.take();
        drop(state);
        if let Some(partitions) = leaving {
            self.taken(consumer, &partitions);
        }
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

    fn stats_raw(&self, _statistics: &[u8]) {}
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
            self.asked_back(consumer, partitions);
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
