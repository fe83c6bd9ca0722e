//! Starts assigned partitions: asks the broker for its offsets, decides by [`offsets`], assigns the
//! start offset in librdkafka, and commits it to the group.

use std::{
    collections::{BTreeSet, HashMap},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer},
    error::KafkaResult,
};
use relais_core::inbox::SourcePosition;

use super::{
    KafkaSourceCounters, KafkaStartOffset,
    batch::Partition,
    membership::{ConsumerFactory, Membership, MembershipState, OwnedPartition, list},
    offsets::{self, KnownOffsets, StartDecision, StartFinding, TopicIdentity},
};

/// Time limit of one request to the broker.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Determines the start offsets of partitions.
pub(super) struct StartOffsets<'a> {
    pub(super) factory: &'a ConsumerFactory,
    pub(super) consumer: &'a BaseConsumer<Membership>,
    pub(super) cluster: &'a str,
    /// The positions in the database.
    pub(super) stored: &'a [SourcePosition],
}

/// A partition that needs a seek; `owned` if it was read before.
struct SeekTarget {
    partition: Partition,
    owned: Option<OwnedPartition>,
}

/// The offsets at the broker.
struct BrokerSurvey {
    /// The group's offsets of all partitions of the topics.
    committed: HashMap<Partition, i64>,
    /// The lowest and the highest offset of each partition.
    ends: HashMap<Partition, (i64, i64)>,
    /// Topics that were never read.
    new_topics: BTreeSet<String>,
}

/// The reason why no partition was started.
#[derive(Debug)]
pub(super) enum SeekError {
    /// The offsets are unknown; the partitions still wait.
    Unknown(String),
    /// librdkafka failed, possibly half-way: another consumer is needed.
    Broken(String),
}

impl StartOffsets<'_> {
    /// Starts all partitions that wait for a seek.
    pub(super) fn seek(&self) -> Result<(), SeekError> {
        let targets = self.targets();
        let survey = self.survey(&targets).map_err(|error| {
            SeekError::Unknown(format!("cannot determine the start offsets: {error}"))
        })?;
        let started: Vec<OwnedPartition> =
            targets.iter().map(|one| self.start(one, &survey)).collect();
        let again = targets.iter().filter(|one| one.owned.is_some());
        let again = list(again.map(|one| (&one.partition, 0)));
        let wanted = list(started.iter().map(|owned| (&owned.partition, owned.next)));
        Membership::assign(self.consumer, &again, &wanted)
            .map_err(|error| SeekError::Broken(format!("cannot assign partitions: {error}")))?;
        let mut behind = self.record(started);
        for (partition, (_, high)) in &survey.ends {
            // Commits every partition of a new topic, so that it is known as a whole, whichever
            // member reads it.
            if !survey.committed.contains_key(partition)
                && behind.find_partition(&partition.topic, partition.number).is_none()
            {
                let added = Offset::Offset(*high);
                let _ = behind.add_partition_offset(&partition.topic, partition.number, added);
            }
        }
        self.commit(&behind);
        Ok(())
    }

    fn targets(&self) -> Vec<SeekTarget> {
        let now = Instant::now();
        let state = self.consumer.context().state();
        let assigned =
            state.assigned.iter().map(|p| SeekTarget { partition: p.clone(), owned: None });
        let reseeks = state.owned.iter().filter(|owned| owned.needs_reseek(now));
        let reseeks = reseeks.map(|owned| SeekTarget {
            partition: owned.partition.clone(),
            owned: Some(owned.clone()),
        });
        assigned.chain(reseeks).collect()
    }

    fn survey(&self, targets: &[SeekTarget]) -> KafkaResult<BrokerSurvey> {
        let topics: BTreeSet<&str> = targets.iter().map(|u| u.partition.topic.as_str()).collect();
        let mut whole = TopicPartitionList::new();
        for topic in &topics {
            let metadata = self.consumer.fetch_metadata(Some(topic), ANSWER_MAX)?;
            for found in metadata.topics().iter().filter(|found| found.name() == *topic) {
                for partition in found.partitions() {
                    whole.add_partition(topic, partition.id());
                }
            }
        }
        let mut committed = HashMap::new();
        let mut partitions = Vec::new();
        for element in self.consumer.committed_offsets(whole, ANSWER_MAX)?.elements() {
            element.error()?;
            let partition =
                Partition { topic: element.topic().to_owned(), number: element.partition() };
            if let Offset::Offset(offset) = element.offset() {
                committed.insert(partition.clone(), offset);
            }
            partitions.push(partition);
        }
        let is_new = |topic: &str| {
            !committed.keys().any(|partition| partition.topic == topic)
                && !self
                    .stored
                    .iter()
                    .any(|row| row.partition.starts_with(&format!("{}/{topic}/", self.cluster)))
                && !targets.iter().any(|u| u.partition.topic == topic && u.owned.is_some())
        };
        let new_topics: BTreeSet<String> =
            topics.into_iter().filter(|topic| is_new(topic)).map(str::to_owned).collect();
        let latest = self.factory.settings.start == KafkaStartOffset::Latest;
        let mut ends = HashMap::new();
        for partition in partitions {
            let wanted = targets.iter().any(|one| one.partition == partition);
            if wanted || (latest && new_topics.contains(&partition.topic)) {
                let Partition { topic, number } = &partition;
                let found = self.consumer.fetch_watermarks(topic, *number, ANSWER_MAX)?;
                ends.insert(partition, found);
            }
        }
        Ok(BrokerSurvey { committed, ends, new_topics })
    }

    /// Decides where a partition is read from, and reports the finding.
    fn start(&self, target: &SeekTarget, survey: &BrokerSurvey) -> OwnedPartition {
        let partition = &target.partition;
        let key = offsets::partition_key(self.cluster, &partition.topic, partition.number);
        let stored =
            |key: &str| self.stored.iter().find(|row| row.partition == key).map(|row| row.position);
        let saved_topic_id = stored(&offsets::topic_id_key(&key));
        let before = match &target.owned {
            Some(owned) => owned.known_topic_id(saved_topic_id),
            None => saved_topic_id,
        };
        let now = self.consumer.context().state().topic_ids.get(&partition.topic).copied();
        let (low, high) = survey.ends.get(partition).copied().unwrap_or_default();
        let is_new = survey.new_topics.contains(&partition.topic);
        let known = KnownOffsets {
            stored: stored(&key),
            memory: target.owned.as_ref().map(OwnedPartition::memory),
            committed: survey.committed.get(partition).copied(),
            topic: TopicIdentity::compare(before, now),
            low,
            high,
            start: if is_new { self.factory.settings.start } else { KafkaStartOffset::Earliest },
        };
        let StartDecision { offset, finding } = offsets::begin(&known);
        report(partition, offset, finding, &self.factory.counters);
        OwnedPartition {
            partition: partition.clone(),
            seek_id: 0,
            next: offset,
            stored: offset,
            moved: finding.moved().or(known.memory.map(|memory| memory.moved)),
            committed: known.committed,
            topic_id: now,
            saved_topic_id,
            reseek_at: None,
            unreadable: None,
        }
    }

    /// Records the started partitions. Returns the offsets that are not committed yet.
    fn record(&self, started: Vec<OwnedPartition>) -> TopicPartitionList {
        let mut state = self.consumer.context().state();
        let MembershipState { assigned, owned, seeks, .. } = &mut *state;
        assigned.clear();
        owned.retain(|old| !started.iter().any(|new| new.partition == old.partition));
        for one in started {
            *seeks += 1;
            owned.push(OwnedPartition { seek_id: *seeks, ..one });
        }
        state.behind()
    }

    /// Commits offsets; they are a copy of the positions in the database. After a failure they are
    /// committed later.
    fn commit(&self, behind: &TopicPartitionList) {
        if behind.count() == 0 {
            return;
        }
        match self.consumer.commit(behind, CommitMode::Sync) {
            Ok(()) => self.consumer.context().state().note_committed(behind),
            Err(error) => tracing::debug!(%error, "offset commit failed"),
        }
    }
}

fn report(
    partition: &Partition,
    offset: i64,
    finding: StartFinding,
    counters: &KafkaSourceCounters,
) {
    let Partition { topic, number } = partition;
    match finding {
        StartFinding::New | StartFinding::Continued => {
            tracing::info!(topic, partition = number, offset, "started reading");
        }
        StartFinding::Gap { missing } => {
            let missed = u64::try_from(missing).unwrap_or(0);
            counters.missed.fetch_add(missed, Ordering::Relaxed);
            tracing::error!(
                topic,
                partition = number,
                offset,
                missing,
                "records were deleted at the broker before they were read; continued after them; \
                 increase the retention of the topic"
            );
        }
        StartFinding::Recreated => {
            counters.recreated.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                topic,
                partition = number,
                offset,
                "topic was deleted and created again; started at its beginning"
            );
        }
        StartFinding::Truncated { lost } => {
            tracing::warn!(
                topic,
                partition = number,
                offset,
                lost,
                "broker lost its newest records, which had been read; continued at its end"
            );
        }
    }
}
