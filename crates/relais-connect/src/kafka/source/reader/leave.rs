//! The end of a membership.

use rdkafka::consumer::{CommitMode, Consumer};

use super::Reader;

impl Reader {
    /// Tells the group how far we are and leaves it.
    pub(super) fn leave(mut self) {
        let Some(member) = self.member.take() else { return };
        let (behind, away, given) = {
            let state = member.consumer.context().state();
            (state.behind(), state.away, !state.given.is_empty())
        };
        if behind.count() > 0
            && !away
            && let Err(error) = member.consumer.commit(&behind, CommitMode::Sync)
        {
            tracing::debug!(%error, "the group did not take the last offsets");
        }
        if given {
            // librdkafka waits for this before it lets us go.
            member.consumer.context().give_back(&member.consumer);
        }
        // Dropping the consumer leaves the group.
    }
}
