//! The messages that a lost process left without acknowledgement.
//!
//! Pure. The server delivers them again only when `ack_wait` has passed, and newer messages meanwhile.
//! So that a key keeps its order, newer ones wait until the older ones have arrived, are acknowledged
//! by another process, or are evidently held by one.

use std::time::Duration;

use tokio::time::Instant;

use super::{api::ConsumerInfo, delivery::StreamMessage};

/// The time that the server may need, beyond `ack_wait`, to deliver again.
const MARGIN: Duration = Duration::from_secs(1);

/// The wait for older messages.
#[derive(Debug)]
pub(super) struct OrderRecovery {
    /// Messages up to this sequence were delivered before.
    up_to: u64,
    /// The number of them that is neither acknowledged nor here.
    missing: usize,
    /// From then on the server has all of them ready.
    ready_at: Instant,
    /// Newer messages, in order of arrival.
    newer: Vec<StreamMessage>,
    /// Another process has acknowledged or holds the missing ones.
    is_elsewhere: bool,
}

impl OrderRecovery {
    /// Returns the wait that a consumer needs, if messages are without acknowledgement.
    pub(super) fn needed(info: &ConsumerInfo, now: Instant) -> Option<Self> {
        (info.num_ack_pending > 0).then(|| Self {
            up_to: info.delivered.stream_seq,
            missing: info.num_ack_pending,
            ready_at: now + info.config.ack_wait() + MARGIN,
            newer: Vec::new(),
            is_elsewhere: false,
        })
    }

    /// Returns the messages that may be asked for now, of those for which there is space.
    pub(super) fn may_ask(&self, space: usize, now: Instant) -> usize {
        // A newer message means that no older one was ready.
        if self.newer.is_empty() || now >= self.ready_at { self.missing.min(space) } else { 0 }
    }

    /// Returns an older message; keeps a newer one.
    pub(super) fn sort(&mut self, message: StreamMessage, now: Instant) -> Option<StreamMessage> {
        if message.sequence <= self.up_to {
            self.missing = self.missing.saturating_sub(1);
            return Some(message);
        }
        // All that was ready came first.
        self.is_elsewhere |= now >= self.ready_at;
        self.newer.push(message);
        None
    }

    /// Notes the state of the consumer.
    pub(super) fn note(&mut self, info: &ConsumerInfo) {
        self.is_elsewhere |= info.ack_floor.stream_seq >= self.up_to;
    }

    pub(super) fn is_over(&self) -> bool {
        self.missing == 0 || self.is_elsewhere
    }

    /// Returns the number of newer messages that wait.
    pub(super) fn newer(&self) -> usize {
        self.newer.len()
    }

    pub(super) fn into_newer(self) -> Vec<StreamMessage> {
        self.newer
    }
}

#[cfg(test)]
mod tests {
    use relais_core::{
        extract::{Incoming, Mapping, Value},
        message::Headers,
    };

    use super::*;
    use crate::nats::api::{ConsumerConfig, ConsumerSequence};

    fn info(delivered: u64, floor: u64, num_ack_pending: usize) -> ConsumerInfo {
        ConsumerInfo {
            config: ConsumerConfig { ack_wait: 5_000_000_000, ..ConsumerConfig::default() },
            delivered: ConsumerSequence { stream_seq: delivered },
            ack_floor: ConsumerSequence { stream_seq: floor },
            num_ack_pending,
            num_pending: 0,
        }
    }

    fn message(sequence: u64) -> StreamMessage {
        let incoming = Incoming {
            headers: Headers::default(),
            value: Value::Empty,
            position: Some(sequence.to_string()),
            ..Incoming::default()
        };
        let row = Mapping::json("s").read(incoming).unwrap();
        StreamMessage { sequence, reply: "r".into(), bytes: 0, row }
    }

    #[test]
    fn newer_messages_wait_for_those_that_a_lost_process_left() {
        let start = Instant::now();
        assert!(OrderRecovery::needed(&info(20, 20, 0), start).is_none());
        let mut recovery = OrderRecovery::needed(&info(20, 18, 2), start).unwrap();
        assert_eq!(recovery.may_ask(100, start), 2);
        assert!(recovery.sort(message(21), start).is_none());
        assert_eq!(recovery.may_ask(100, start), 0, "asking again brings newer ones only");
        assert!(!recovery.is_over());
        let ready = start + Duration::from_secs(6);
        assert_eq!(recovery.may_ask(100, ready), 2);
        assert_eq!(recovery.sort(message(19), ready).unwrap().sequence, 19);
        assert_eq!(recovery.may_ask(100, ready), 1);
        assert_eq!(recovery.sort(message(20), ready).unwrap().sequence, 20);
        assert!(recovery.is_over());
        let newer: Vec<u64> = recovery.into_newer().iter().map(|one| one.sequence).collect();
        assert_eq!(newer, [21]);
    }

    #[test]
    fn messages_of_a_living_process_do_not_stop_this_one() {
        let start = Instant::now();
        let mut recovery = OrderRecovery::needed(&info(20, 18, 2), start).unwrap();
        recovery.note(&info(25, 19, 6));
        assert!(!recovery.is_over());
        recovery.note(&info(25, 20, 5));
        assert!(recovery.is_over(), "it has acknowledged them");
        let mut recovery = OrderRecovery::needed(&info(20, 18, 2), start).unwrap();
        recovery.sort(message(21), start);
        assert!(!recovery.is_over());
        recovery.sort(message(22), start + Duration::from_secs(6));
        assert!(recovery.is_over(), "it still holds them");
    }
}
