//! Puts partitions that are ours where reading goes on: asks the broker what it has, decides by
//! [`offsets`], tells librdkafka, and tells the group where we are.

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
    KafkaSourceCounters, Start,
    membership::{Blueprint, Membership, Owned, Partition, State, list},
    offsets::{self, Beginning, Finding, Known, Topic},
};

/// How long one question to the broker may take.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(10);

/// All that is needed to place partitions.
pub(super) struct Placing<'a> {
    pub(super) blueprint: &'a Blueprint,
    pub(super) consumer: &'a BaseConsumer<Membership>,
    pub(super) cluster: &'a str,
    /// What the database says.
    pub(super) stored: &'a [SourcePosition],
}

/// A partition to be placed; `owned` if it was read before.
struct Unplaced {
    partition: Partition,
    owned: Option<Owned>,
}

/// What the broker says.
struct Survey {
    /// The group's offsets in whole topics.
    committed: HashMap<Partition, i64>,
    /// The lowest and the highest offset of partitions.
    ends: HashMap<Partition, (i64, i64)>,
    /// Topics in which nothing was ever read.
    new_topics: BTreeSet<String>,
}

/// Why nothing was placed.
#[derive(Debug)]
pub(super) enum PlaceError {
    /// It is not known where; everything still waits.
    Unknown(String),
    /// librdkafka did not do it, perhaps half of it: another consumer is needed.
    Broken(String),
}

impl Placing<'_> {
    /// Places all that waits for it.
    pub(super) fn place(&self) -> Result<(), PlaceError> {
        let unplaced = self.unplaced();
        let survey = self.survey(&unplaced).map_err(|error| {
            PlaceError::Unknown(format!("cannot find out where to read: {error}"))
        })?;
        let placed: Vec<Owned> = unplaced.iter().map(|one| self.begin(one, &survey)).collect();
        let again = unplaced.iter().filter(|one| one.owned.is_some());
        let again = list(again.map(|one| (&one.partition, 0)));
        let wanted = list(placed.iter().map(|owned| (&owned.partition, owned.next)));
        Membership::assign(self.consumer, &again, &wanted)
            .map_err(|error| PlaceError::Broken(format!("cannot take partitions up: {error}")))?;
        let mut behind = self.keep(placed);
        for (partition, (_, high)) in &survey.ends {
            // So that a new topic is known as a whole, whoever reads which part of it.
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

    fn unplaced(&self) -> Vec<Unplaced> {
        let now = Instant::now();
        let state = self.consumer.context().state();
        let given = state.given.iter().map(|p| Unplaced { partition: p.clone(), owned: None });
        let astray = state.owned.iter().filter(|owned| owned.is_astray(now));
        let astray = astray.map(|owned| Unplaced {
            partition: owned.partition.clone(),
            owned: Some(owned.clone()),
        });
        given.chain(astray).collect()
    }

    fn survey(&self, unplaced: &[Unplaced]) -> KafkaResult<Survey> {
        let topics: BTreeSet<&str> = unplaced.iter().map(|u| u.partition.topic.as_str()).collect();
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
                && !unplaced.iter().any(|u| u.partition.topic == topic && u.owned.is_some())
        };
        let new_topics: BTreeSet<String> =
            topics.into_iter().filter(|topic| is_new(topic)).map(str::to_owned).collect();
        let latest = self.blueprint.settings.start == Start::Latest;
        let mut ends = HashMap::new();
        for partition in partitions {
            let wanted = unplaced.iter().any(|one| one.partition == partition);
            if wanted || (latest && new_topics.contains(&partition.topic)) {
                let Partition { topic, number } = &partition;
                let found = self.consumer.fetch_watermarks(topic, *number, ANSWER_MAX)?;
                ends.insert(partition, found);
            }
        }
        Ok(Survey { committed, ends, new_topics })
    }

    /// Decides where a partition is read from, and says what is strange about it.
    fn begin(&self, unplaced: &Unplaced, survey: &Survey) -> Owned {
        let partition = &unplaced.partition;
        let key = offsets::partition_key(self.cluster, &partition.topic, partition.number);
        let stored =
            |key: &str| self.stored.iter().find(|row| row.partition == key).map(|row| row.position);
        let saved_topic_id = stored(&offsets::topic_id_key(&key));
        let before = match &unplaced.owned {
            Some(owned) => owned.known_topic_id(saved_topic_id),
            None => saved_topic_id,
        };
        let now = self.consumer.context().state().topic_ids.get(&partition.topic).copied();
        let (low, high) = survey.ends.get(partition).copied().unwrap_or_default();
        let is_new = survey.new_topics.contains(&partition.topic);
        let known = Known {
            stored: stored(&key),
            memory: unplaced.owned.as_ref().map(Owned::memory),
            committed: survey.committed.get(partition).copied(),
            topic: Topic::compare(before, now),
            low,
            high,
            start: if is_new { self.blueprint.settings.start } else { Start::Earliest },
        };
        let Beginning { offset, finding } = offsets::begin(&known);
        report(partition, offset, finding, &self.blueprint.counters);
        Owned {
            partition: partition.clone(),
            placed: 0,
            next: offset,
            stored: offset,
            moved: finding.moved().or(known.memory.map(|memory| memory.moved)),
            committed: known.committed,
            topic_id: now,
            saved_topic_id,
            astray: None,
            unreadable: None,
        }
    }

    /// Takes note of what is placed; the answer is what the group does not know yet.
    fn keep(&self, placed: Vec<Owned>) -> TopicPartitionList {
        let mut state = self.consumer.context().state();
        let State { given, owned, placings, .. } = &mut *state;
        given.clear();
        owned.retain(|old| !placed.iter().any(|new| new.partition == old.partition));
        for one in placed {
            *placings += 1;
            owned.push(Owned { placed: *placings, ..one });
        }
        state.behind()
    }

    /// The group's offsets are a copy of what the database knows. Where it failed it is tried again.
    fn commit(&self, behind: &TopicPartitionList) {
        if behind.count() == 0 {
            return;
        }
        match self.consumer.commit(behind, CommitMode::Sync) {
            Ok(()) => self.consumer.context().state().note_committed(behind),
            Err(error) => tracing::debug!(%error, "the group did not take offsets"),
        }
    }
}

fn report(partition: &Partition, offset: i64, finding: Finding, counters: &KafkaSourceCounters) {
    let Partition { topic, number } = partition;
    match finding {
        Finding::New | Finding::Continued => {
            tracing::info!(topic, partition = number, offset, "reading from here");
        }
        Finding::Gap { missing } => {
            let missed = u64::try_from(missing).unwrap_or(0);
            counters.missed.fetch_add(missed, Ordering::Relaxed);
            tracing::error!(
                topic,
                partition = number,
                offset,
                missing,
                "records were deleted at the broker before they were read; reading goes on behind \
                 them, and a longer retention would have kept them"
            );
        }
        Finding::Recreated => {
            counters.recreated.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                topic,
                partition = number,
                offset,
                "the topic was deleted and created again; reading from its beginning"
            );
        }
        Finding::Truncated { lost } => {
            tracing::warn!(
                topic,
                partition = number,
                offset,
                lost,
                "the broker lost its newest records, which had been read; reading goes on at its end"
            );
        }
    }
}
