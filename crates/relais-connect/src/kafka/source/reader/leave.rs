//! Leaves the consumer group.

use rdkafka::consumer::{CommitMode, Consumer};

use super::KafkaReader;

impl KafkaReader {
    /// Commits the last offsets and leaves the group.
    pub(super) fn leave(mut self) {
        let Some(member) = self.member.take() else { return };
        let (behind, unavailable, assigned) = {
            let state = member.consumer.context().state();
            (state.behind(), state.unavailable, !state.assigned.is_empty())
        };
        if behind.count() > 0
            && !unavailable
            && let Err(error) = member.consumer.commit(&behind, CommitMode::Sync)
        {
            tracing::debug!(%error, "last offset commit failed");
        }
        if assigned {
            // librdkafka waits for this before it closes.
            member.consumer.context().return_assigned(&member.consumer);
        }
        // Dropping the consumer leaves the group.
    }
}
