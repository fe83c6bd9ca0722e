//! Topics that lately accepted nothing, of a destination where each message names its topic.
//!
//! The call that finds such a topic takes seconds and ends the producer, which messages of other topics
//! share. So for [`CONFIGURATION_PAUSE`] no further message is sent to it.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::time::Instant;

use super::classify::CONFIGURATION_PAUSE;

/// The most topics that are remembered.
const TOPICS_MAX: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct ClosedTopics(Mutex<HashMap<String, (Code, Instant)>>);

impl ClosedTopics {
    /// Notes that a topic accepted nothing at this time.
    pub(super) fn note(&self, topic: &str, code: Code, now: Instant) {
        let mut topics = self.lock();
        if topics.len() >= TOPICS_MAX {
            topics.clear();
        }
        topics.insert(topic.to_owned(), (code, now));
    }

    /// Returns why no message is sent to a topic now.
    pub(super) fn reason(&self, topic: &str, now: Instant) -> Option<Code> {
        let topics = self.lock();
        let (code, noted) = topics.get(topic)?;
        (now.saturating_duration_since(*noted) < CONFIGURATION_PAUSE).then_some(*code)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (Code, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_closed_topic_is_tried_again_after_the_pause_and_others_at_any_time() {
        let (topics, now) = (ClosedTopics::default(), Instant::now());
        topics.note("missing", Code::UnknownTopic, now);
        let almost = now + CONFIGURATION_PAUSE - Duration::from_millis(1);
        assert_eq!(topics.reason("missing", almost), Some(Code::UnknownTopic));
        assert_eq!(topics.reason("missing", now + CONFIGURATION_PAUSE), None);
        assert_eq!(topics.reason("orders", now), None);
    }

    #[test]
    fn the_number_of_remembered_topics_has_a_limit() {
        let (topics, now) = (ClosedTopics::default(), Instant::now());
        for number in 0..=TOPICS_MAX {
            topics.note(&number.to_string(), Code::UnknownTopic, now);
        }
        assert!(topics.lock().len() <= TOPICS_MAX);
        assert!(topics.reason(&TOPICS_MAX.to_string(), now).is_some());
    }
}
