//! Decides where a partition is read from. Pure: known offsets in, start offset and finding out.
//!
//! The position in the database has priority, because the rows are there. The group's offset is a
//! copy for monitoring; it counts only if the database has none.

use super::KafkaStartOffset;

/// The known offsets of a partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownOffsets {
    /// The next offset in the database.
    pub(super) stored: Option<i64>,
    /// The next offset in memory, if this reader has read it before.
    pub(super) memory: Option<RememberedOffset>,
    /// The next offset of the group.
    pub(super) committed: Option<i64>,
    /// The comparison with the topic of these offsets.
    pub(super) topic: TopicIdentity,
    /// The oldest offset at the broker.
    pub(super) low: i64,
    /// The offset of the next record at the broker.
    pub(super) high: i64,
    /// The start if no offset is known.
    pub(super) start: KafkaStartOffset,
}

/// The next offset as the reader remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RememberedOffset {
    pub(super) next: i64,
    /// It differs from the position in the database, and nothing has been stored since.
    pub(super) moved: OffsetMoved,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OffsetMoved {
    Yes,
    No,
}

impl OffsetMoved {
    /// A continued read stays moved.
    pub(super) fn or(self, before: Option<Self>) -> Self {
        if self == Self::Yes || before == Some(Self::Yes) { Self::Yes } else { Self::No }
    }
}

/// The comparison of a topic with an earlier one of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopicIdentity {
    Same,
    Other,
    /// The broker has no ids, or none was stored.
    Unknown,
}

impl TopicIdentity {
    pub(super) fn compare(before: Option<i64>, now: Option<i64>) -> Self {
        match (before, now) {
            (Some(before), Some(now)) if before == now => Self::Same,
            (Some(_), Some(_)) => Self::Other,
            _ => Self::Unknown,
        }
    }
}

/// The start offset and the finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StartDecision {
    pub(super) offset: i64,
    pub(super) finding: StartFinding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartFinding {
    /// Never read before.
    New,
    Continued,
    /// Records were deleted before they were read: this many offsets are missing.
    Gap {
        missing: i64,
    },
    /// The topic was deleted and created again: all its records are new.
    Recreated,
    /// The broker lost its newest records; `lost` of their offsets had been read.
    Truncated {
        lost: i64,
    },
}

impl StartFinding {
    /// Returns whether the offset differs from the position in the database.
    pub(super) fn moved(self) -> OffsetMoved {
        match self {
            Self::New | Self::Continued => OffsetMoved::No,
            Self::Gap { .. } | Self::Recreated | Self::Truncated { .. } => OffsetMoved::Yes,
        }
    }
}

pub(super) fn begin(known: &KnownOffsets) -> StartDecision {
    let at = |offset, finding| StartDecision { offset, finding };
    let Some(position) = known.position() else {
        let offset = match known.start {
            KafkaStartOffset::Earliest => known.low,
            KafkaStartOffset::Latest => known.high,
        };
        return at(offset, StartFinding::New);
    };
    if known.topic == TopicIdentity::Other {
        return at(known.low, StartFinding::Recreated);
    }
    if position > known.high {
        // Without ids both cases look the same. Reading twice is detected as duplicates, not
        // reading is a loss.
        return match known.topic {
            TopicIdentity::Same => {
                at(known.high, StartFinding::Truncated { lost: position - known.high })
            }
            _ => at(known.low, StartFinding::Recreated),
        };
    }
    if position < known.low {
        return at(known.low, StartFinding::Gap { missing: known.low - position });
    }
    at(position, StartFinding::Continued)
}

impl KnownOffsets {
    fn position(&self) -> Option<i64> {
        match (self.stored, self.memory) {
            (_, Some(RememberedOffset { next, moved: OffsetMoved::Yes })) => Some(next),
            (Some(stored), _) => Some(stored),
            (None, Some(memory)) => Some(memory.next),
            (None, None) => self.committed,
        }
    }
}

/// Returns the name of a partition in `relais_source_position`.
pub(super) fn partition_key(cluster: &str, topic: &str, partition: i32) -> String {
    format!("{cluster}/{topic}/{partition}")
}

/// Returns the key of the topic id that is stored beside an offset: the offset belongs to that
/// topic only.
pub(super) fn topic_id_key(partition_key: &str) -> String {
    format!("{partition_key}/topic-id")
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: KnownOffsets = KnownOffsets {
        stored: None,
        memory: None,
        committed: None,
        topic: TopicIdentity::Unknown,
        low: 10,
        high: 100,
        start: KafkaStartOffset::Earliest,
    };

    fn begins(known: KnownOffsets) -> (i64, StartFinding) {
        let StartDecision { offset, finding } = begin(&known);
        (offset, finding)
    }

    fn memory(next: i64, moved: OffsetMoved) -> Option<RememberedOffset> {
        Some(RememberedOffset { next, moved })
    }

    #[test]
    fn the_database_has_priority_over_memory_and_memory_over_the_group() {
        let all = KnownOffsets {
            stored: Some(20),
            memory: memory(30, OffsetMoved::No),
            committed: Some(40),
            ..EMPTY
        };
        assert_eq!(begins(all), (20, StartFinding::Continued));
        assert_eq!(begins(KnownOffsets { stored: None, ..all }), (30, StartFinding::Continued));
        let group = KnownOffsets { stored: None, memory: None, ..all };
        assert_eq!(begins(group), (40, StartFinding::Continued));
    }

    #[test]
    fn a_new_group_starts_at_the_configured_position() {
        assert_eq!(begins(EMPTY), (10, StartFinding::New));
        assert_eq!(
            begins(KnownOffsets { start: KafkaStartOffset::Latest, ..EMPTY }),
            (100, StartFinding::New)
        );
    }

    #[test]
    fn deleted_records_are_a_gap_of_known_size() {
        assert_eq!(
            begins(KnownOffsets { stored: Some(3), ..EMPTY }),
            (10, StartFinding::Gap { missing: 7 })
        );
        assert_eq!(
            begins(KnownOffsets { stored: Some(10), ..EMPTY }),
            (10, StartFinding::Continued)
        );
    }

    #[test]
    fn a_topic_created_again_is_read_from_its_beginning_however_long_it_is() {
        let known = KnownOffsets { stored: Some(50), topic: TopicIdentity::Other, ..EMPTY };
        assert_eq!(begins(known), (10, StartFinding::Recreated));
        let shorter = KnownOffsets { stored: Some(101), ..EMPTY };
        assert_eq!(begins(shorter), (10, StartFinding::Recreated));
        assert_eq!(
            begins(KnownOffsets { stored: Some(100), ..EMPTY }),
            (100, StartFinding::Continued)
        );
    }

    #[test]
    fn the_same_topic_with_a_lower_end_has_lost_records_and_continues_there() {
        let known = KnownOffsets { stored: Some(103), topic: TopicIdentity::Same, ..EMPTY };
        assert_eq!(begins(known), (100, StartFinding::Truncated { lost: 3 }));
    }

    #[test]
    fn a_moved_offset_is_used_until_something_is_stored() {
        let known =
            KnownOffsets { stored: Some(50), memory: memory(12, OffsetMoved::Yes), ..EMPTY };
        assert_eq!(begins(known), (12, StartFinding::Continued));
    }

    #[test]
    fn topics_compare_only_where_both_ids_are_known() {
        assert_eq!(TopicIdentity::compare(Some(1), Some(1)), TopicIdentity::Same);
        assert_eq!(TopicIdentity::compare(Some(1), Some(2)), TopicIdentity::Other);
        assert_eq!(TopicIdentity::compare(None, Some(1)), TopicIdentity::Unknown);
        assert_eq!(TopicIdentity::compare(Some(1), None), TopicIdentity::Unknown);
    }
}
