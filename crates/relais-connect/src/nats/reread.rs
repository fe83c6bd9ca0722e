//! Reads messages from the stream that the consumer has delivered and that no process has acknowledged.
//!
//! The client library closes the connection at a message whose headers it cannot parse, and the server
//! delivers that message again and again. After repeated losses at one position of the consumer, its open
//! messages are therefore read by the API of the stream, in order, before new ones are asked for.
//!
//! Invariant: only messages that the consumer has delivered are read. Each is stored and acknowledged like
//! one that was received. One that is left out stays with the consumer.

use super::{
    api::{ConsumerInfo, ConsumerPlan, StoredNatsMessage},
    classify::NatsFailure,
    connection::OpenNatsConnection,
};

/// Losses at one position after which messages are read from the stream.
const LOSSES_MAX: u32 = 2;
/// The filter that every subject fits.
const EVERYTHING: &str = ">";

/// Lost connections at one position of a consumer.
#[derive(Debug, Default)]
pub(super) struct LossCount {
    /// The sequence up to which everything is acknowledged.
    floor: u64,
    losses: u32,
    /// Messages that the client library refuses were found before: one loss is enough.
    has_refused: bool,
    /// The stream could not be read from this sequence on.
    unread: Option<u64>,
}

impl LossCount {
    pub(super) fn lost(&mut self) {
        self.losses = self.losses.saturating_add(1);
    }

    pub(super) fn found_refused(&mut self) {
        self.has_refused = true;
    }

    pub(super) fn could_not_read(&mut self, sequence: u64) {
        self.unread = Some(sequence);
    }

    /// Returns what an operator can do, if the messages could not be read from the stream.
    pub(super) fn advice(&self, stream: &str) -> Option<String> {
        let sequence = self.unread?;
        Some(format!(
            "; if this repeats, a message from sequence {sequence} on has headers that the client library \
             refuses: grant `$JS.API.STREAM.MSG.GET.{stream}` to relais, or find it with `nats stream get \
             {stream} {sequence}` and remove it with `nats stream rmm {stream} {sequence}`"
        ))
    }

    /// Notes the position of the consumer at the start of a connection. Returns whether its open messages
    /// should be read from the stream.
    pub(super) fn opened(&mut self, info: &ConsumerInfo) -> bool {
        if info.ack_floor.stream_seq != self.floor {
            self.floor = info.ack_floor.stream_seq;
            // Only the last loss can have happened here.
            self.losses = self.losses.min(1);
            self.unread = None;
        }
        self.losses >= if self.has_refused { 1 } else { LOSSES_MAX }
    }
}

/// The part of a stream that is read.
#[derive(Debug)]
pub(super) struct StreamReread {
    /// The next sequence.
    next: u64,
    up_to: u64,
    filters: Vec<String>,
}

impl StreamReread {
    /// Returns the part with the open messages of a consumer, if it has some and it is known where they
    /// begin.
    pub(super) fn needed(info: &ConsumerInfo) -> Option<Self> {
        let config = &info.config;
        let floor = info.ack_floor.stream_seq;
        // Without a floor, such a consumer began at a sequence that is not known.
        let begins_somewhere = floor == 0 && config.deliver_policy != "all";
        // It leaves out messages in between.
        let is_sparse = config.deliver_policy == "last_per_subject";
        if info.num_ack_pending == 0 || begins_somewhere || is_sparse {
            return None;
        }
        let filters = config.filter_subject.iter().chain(&config.filter_subjects);
        Some(Self {
            next: floor + 1,
            up_to: info.delivered.stream_seq,
            filters: filters.filter(|filter| !filter.is_empty()).cloned().collect(),
        })
    }

    /// Returns the next message of the consumer; `None` at the end. A cancelled call loses nothing.
    pub(super) async fn next(
        &mut self,
        plan: &ConsumerPlan,
        connection: &OpenNatsConnection,
    ) -> Result<Option<StoredNatsMessage>, NatsFailure> {
        while self.next <= self.up_to {
            let filter = match self.filters.as_slice() {
                [only] => only,
                _ => EVERYTHING,
            };
            let found = plan.stored_message(connection, self.next, filter).await?;
            let Some(message) = found.filter(|message| message.seq <= self.up_to) else {
                self.stop();
                return Ok(None);
            };
            self.next = self.next.max(message.seq) + 1;
            if self.is_selected(&message.subject) {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    /// Returns the next sequence.
    pub(super) fn position(&self) -> u64 {
        self.next
    }

    /// Leaves out the rest, which stays with the consumer.
    pub(super) fn stop(&mut self) {
        self.next = self.up_to + 1;
    }

    fn is_selected(&self, subject: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| fits(filter, subject))
    }
}

/// Returns whether a subject fits a filter with wildcards.
fn fits(filter: &str, subject: &str) -> bool {
    let mut parts = subject.split('.');
    for wanted in filter.split('.') {
        match parts.next() {
            Some(_) if wanted == ">" => return true,
            Some(part) if wanted == "*" || wanted == part => {}
            _ => return false,
        }
    }
    parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nats::api::{ConsumerConfig, ConsumerSequence};

    fn info(floor: u64, pending: usize, policy: &str) -> ConsumerInfo {
        ConsumerInfo {
            config: ConsumerConfig { deliver_policy: policy.into(), ..ConsumerConfig::default() },
            delivered: ConsumerSequence { stream_seq: 20 },
            ack_floor: ConsumerSequence { stream_seq: floor },
            num_ack_pending: pending,
            num_pending: 0,
        }
    }

    #[test]
    fn losses_count_at_one_position_only() {
        let mut count = LossCount::default();
        assert!(!count.opened(&info(5, 3, "all")));
        count.lost();
        assert!(!count.opened(&info(5, 3, "all")));
        count.lost();
        assert!(count.opened(&info(5, 3, "all")));
        count.lost();
        assert!(!count.opened(&info(9, 3, "all")), "messages were acknowledged meanwhile");
        count.lost();
        assert!(count.opened(&info(9, 3, "all")));
    }

    #[test]
    fn the_advice_names_the_message_until_the_consumer_has_moved() {
        let mut count = LossCount::default();
        count.opened(&info(5, 3, "all"));
        assert_eq!(count.advice("S"), None);
        count.could_not_read(6);
        assert!(count.advice("S").unwrap().contains("nats stream rmm S 6"));
        count.opened(&info(5, 3, "all"));
        assert!(count.advice("S").is_some());
        count.opened(&info(7, 3, "all"));
        assert_eq!(count.advice("S"), None);
    }

    #[test]
    fn one_loss_is_enough_where_refused_messages_were_found() {
        let mut count = LossCount::default();
        count.found_refused();
        assert!(!count.opened(&info(5, 3, "all")));
        count.lost();
        assert!(count.opened(&info(9, 3, "all")));
    }

    #[test]
    fn only_messages_that_the_consumer_has_delivered_are_read() {
        let reread = StreamReread::needed(&info(17, 2, "new")).unwrap();
        assert_eq!((reread.next, reread.up_to), (18, 20));
        assert_eq!(StreamReread::needed(&info(0, 2, "all")).unwrap().next, 1);
        for unknown in [info(17, 0, "all"), info(0, 2, "new"), info(17, 2, "last_per_subject")] {
            assert!(StreamReread::needed(&unknown).is_none(), "{unknown:?}");
        }
    }

    #[test]
    fn a_subject_fits_filters_as_the_server_compares_them() {
        for (filter, subject, expected) in [
            ("orders.eu", "orders.eu", true),
            ("orders.eu", "orders.us", false),
            ("orders.*", "orders.eu", true),
            ("orders.*", "orders.eu.a", false),
            ("orders.*.a", "orders.eu.a", true),
            ("orders.>", "orders.eu.a", true),
            ("orders.>", "orders", false),
            ("orders", "orders.eu", false),
            (">", "a", true),
        ] {
            assert_eq!(fits(filter, subject), expected, "{filter} {subject}");
        }
        let mut reread = StreamReread::needed(&info(17, 2, "all")).unwrap();
        assert!(reread.is_selected("a"));
        reread.filters = vec!["b".to_owned(), "c.>".to_owned()];
        assert!(!reread.is_selected("a") && reread.is_selected("c.d"));
    }
}
