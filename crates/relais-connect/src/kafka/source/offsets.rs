//! Where reading of a partition begins. Pure: what is known goes in, an offset and what was found
//! come out.
//!
//! The database goes first: it has the rows. The group's offset at the broker is a copy for others
//! to look at; it counts only where the database knows nothing.

use super::Start;

/// What is known of a partition that is to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// The next offset, by the database.
    pub(super) stored: Option<i64>,
    /// The next offset, by our own memory, if we have read it before.
    pub(super) memory: Option<Memory>,
    /// The next offset, by the group.
    pub(super) committed: Option<i64>,
    /// Whether it is still the topic those offsets belong to.
    pub(super) topic: Topic,
    /// The oldest offset the broker has.
    pub(super) low: i64,
    /// The offset the next record will get.
    pub(super) high: i64,
    /// What holds if nothing is known.
    pub(super) start: Start,
}

/// The next offset as the reader remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) next: i64,
    /// It was moved away from where the database is, and nothing has been stored since.
    pub(super) moved: Moved,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    Yes,
    No,
}

impl Moved {
    /// Going on from where it was moved to does not bring it back.
    pub(super) fn or(self, before: Option<Self>) -> Self {
        if self == Self::Yes || before == Some(Self::Yes) { Self::Yes } else { Self::No }
    }
}

/// Whether a topic is the one it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topic {
    Same,
    Other,
    /// The broker does not tell, or nobody wrote it down before.
    Unknown,
}

impl Topic {
    pub(super) fn compare(before: Option<i64>, now: Option<i64>) -> Self {
        match (before, now) {
            (Some(before), Some(now)) if before == now => Self::Same,
            (Some(_), Some(_)) => Self::Other,
            _ => Self::Unknown,
        }
    }
}

/// Where to begin, and what there is to say about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beginning {
    pub(super) offset: i64,
    pub(super) finding: Finding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// Nobody has read it before.
    New,
    Continued,
    /// Records were deleted before they were read: so many offsets are missing.
    Gap {
        missing: i64,
    },
    /// The topic was deleted and created again: everything in it is new.
    Recreated,
    /// The broker lost its newest records, of which `lost` offsets had been read.
    Truncated {
        lost: i64,
    },
}

impl Finding {
    /// Whether the offset is not where the database is.
    pub(super) fn moved(self) -> Moved {
        match self {
            Self::New | Self::Continued => Moved::No,
            Self::Gap { .. } | Self::Recreated | Self::Truncated { .. } => Moved::Yes,
        }
    }
}

pub(super) fn begin(known: &Known) -> Beginning {
    let at = |offset, finding| Beginning { offset, finding };
    let Some(position) = known.position() else {
        let offset = match known.start {
            Start::Earliest => known.low,
            Start::Latest => known.high,
        };
        return at(offset, Finding::New);
    };
    if known.topic == Topic::Other {
        return at(known.low, Finding::Recreated);
    }
    if position > known.high {
        // Without ids both look the same. Reading again is recognised, not reading is a loss.
        return match known.topic {
            Topic::Same => at(known.high, Finding::Truncated { lost: position - known.high }),
            _ => at(known.low, Finding::Recreated),
        };
    }
    if position < known.low {
        return at(known.low, Finding::Gap { missing: known.low - position });
    }
    at(position, Finding::Continued)
}

impl Known {
    fn position(&self) -> Option<i64> {
        match (self.stored, self.memory) {
            (_, Some(Memory { next, moved: Moved::Yes })) => Some(next),
            (Some(stored), _) => Some(stored),
            (None, Some(memory)) => Some(memory.next),
            (None, None) => self.committed,
        }
    }
}

/// The name of a partition in `relais_source_position`.
pub(super) fn partition_key(cluster: &str, topic: &str, partition: i32) -> String {
    format!("{cluster}/{topic}/{partition}")
}

/// Where the number of the topic's id stands beside it: the offset belongs to that topic only.
pub(super) fn topic_id_key(partition_key: &str) -> String {
    format!("{partition_key}/topic-id")
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: Known = Known {
        stored: None,
        memory: None,
        committed: None,
        topic: Topic::Unknown,
        low: 10,
        high: 100,
        start: Start::Earliest,
    };

    fn begins(known: Known) -> (i64, Finding) {
        let Beginning { offset, finding } = begin(&known);
        (offset, finding)
    }

    fn memory(next: i64, moved: Moved) -> Option<Memory> {
        Some(Memory { next, moved })
    }

    #[test]
    fn the_database_goes_before_memory_and_memory_before_the_group() {
        let all =
            Known { stored: Some(20), memory: memory(30, Moved::No), committed: Some(40), ..EMPTY };
        assert_eq!(begins(all), (20, Finding::Continued));
        assert_eq!(begins(Known { stored: None, ..all }), (30, Finding::Continued));
        let group = Known { stored: None, memory: None, ..all };
        assert_eq!(begins(group), (40, Finding::Continued));
    }

    #[test]
    fn a_new_group_begins_where_the_settings_say() {
        assert_eq!(begins(EMPTY), (10, Finding::New));
        assert_eq!(begins(Known { start: Start::Latest, ..EMPTY }), (100, Finding::New));
    }

    #[test]
    fn deleted_records_are_a_gap_of_known_size() {
        assert_eq!(begins(Known { stored: Some(3), ..EMPTY }), (10, Finding::Gap { missing: 7 }));
        assert_eq!(begins(Known { stored: Some(10), ..EMPTY }), (10, Finding::Continued));
    }

    #[test]
    fn a_topic_created_again_is_read_from_its_beginning_however_long_it_is() {
        let known = Known { stored: Some(50), topic: Topic::Other, ..EMPTY };
        assert_eq!(begins(known), (10, Finding::Recreated));
        let shorter = Known { stored: Some(101), ..EMPTY };
        assert_eq!(begins(shorter), (10, Finding::Recreated));
        assert_eq!(begins(Known { stored: Some(100), ..EMPTY }), (100, Finding::Continued));
    }

    #[test]
    fn the_same_topic_with_a_lower_end_has_lost_records_and_goes_on_there() {
        let known = Known { stored: Some(103), topic: Topic::Same, ..EMPTY };
        assert_eq!(begins(known), (100, Finding::Truncated { lost: 3 }));
    }

    #[test]
    fn where_a_partition_was_moved_to_holds_until_something_is_stored_there() {
        let known = Known { stored: Some(50), memory: memory(12, Moved::Yes), ..EMPTY };
        assert_eq!(begins(known), (12, Finding::Continued));
    }

    #[test]
    fn topics_compare_only_where_both_ids_are_known() {
        assert_eq!(Topic::compare(Some(1), Some(1)), Topic::Same);
        assert_eq!(Topic::compare(Some(1), Some(2)), Topic::Other);
        assert_eq!(Topic::compare(None, Some(1)), Topic::Unknown);
        assert_eq!(Topic::compare(Some(1), None), Topic::Unknown);
    }
}
