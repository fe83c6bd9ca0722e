//! The messages that a lost process left without acknowledgement.
//!
//! Pure. The server delivers them again only when `ack_wait` has passed, perhaps not all at once, and newer
//! messages meanwhile: an older server (2.9) gives some of them to requests of the lost process first. So
//! that a key keeps its order, all messages wait here until the older ones have arrived, are acknowledged by
//! another process, or are evidently held by one.

use std::time::Duration;

use tokio::time::Instant;

use super::{api::ConsumerInfo, delivery::StreamMessage};

/// The time that the server may need, beyond `ack_wait`, to deliver again; and the pause between requests after
/// that.
const MARGIN: Duration = Duration::from_secs(1);

/// The number of times that the server may need `ack_wait` until the next older message arrives.
const ROUNDS: u32 = 3;

/// The wait for older messages.
#[derive(Debug)]
pub(super) struct OrderRecovery {
    /// Messages up to this sequence were delivered before.
    up_to: u64,
    /// The number of them that is neither acknowledged nor here.
    missing: usize,
    /// Messages that have arrived, and the number of newer ones among them.
    arrived: Vec<StreamMessage>,
    newer: usize,
    /// The time in which the server usually delivers again.
    patience: Duration,
    /// The next request, if newer messages have arrived: no older one was ready.
    ask_at: Instant,
    /// If no older message arrives until then, another process holds them.
    give_up_at: Instant,
    /// Another process has acknowledged or holds the missing ones.
    is_elsewhere: bool,
}

impl OrderRecovery {
    /// Returns the wait that a consumer needs, if messages are without acknowledgement.
    pub(super) fn needed(info: &ConsumerInfo, now: Instant) -> Option<Self> {
        let patience = info.config.ack_wait() + MARGIN;
        (info.num_ack_pending > 0).then(|| Self {
            up_to: info.delivered.stream_seq,
            missing: info.num_ack_pending,
            arrived: Vec::new(),
            newer: 0,
            patience,
            ask_at: now + patience,
            give_up_at: now + patience * ROUNDS,
            is_elsewhere: false,
        })
    }

    /// Returns the messages that may be asked for now, of those for which there is space.
    pub(super) fn may_ask(&self, space: usize, now: Instant) -> usize {
        // A newer message means that no older one was ready.
        if self.newer == 0 || now >= self.ask_at { self.missing.min(space) } else { 0 }
    }

    /// Keeps a message that has arrived.
    pub(super) fn keep(&mut self, message: StreamMessage, now: Instant) {
        if message.sequence <= self.up_to {
            self.missing = self.missing.saturating_sub(1);
            self.give_up_at = now + self.patience * ROUNDS;
        } else {
            self.newer += 1;
            self.ask_at = self.ask_at.max(now + MARGIN);
        }
        self.arrived.push(message);
    }

    /// Notes the state of the consumer.
    pub(super) fn note(&mut self, info: &ConsumerInfo, now: Instant) {
        self.is_elsewhere |= info.ack_floor.stream_seq >= self.up_to || now >= self.give_up_at;
    }

    pub(super) fn is_over(&self) -> bool {
        self.missing == 0 || self.is_elsewhere
    }

    /// Returns the number of messages that wait.
    pub(super) fn waiting(&self) -> usize {
        self.arrived.len()
    }

    /// Returns the messages in the order of the stream.
    pub(super) fn into_messages(mut self) -> Vec<StreamMessage> {
        self.arrived.sort_by_key(|message| message.sequence);
        self.arrived
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

    fn sequences(recovery: OrderRecovery) -> Vec<u64> {
        recovery.into_messages().iter().map(|message| message.sequence).collect()
    }

    #[test]
    fn newer_messages_wait_for_those_that_a_lost_process_left() {
        let start = Instant::now();
        assert!(OrderRecovery::needed(&info(20, 20, 0), start).is_none());
        let mut recovery = OrderRecovery::needed(&info(20, 18, 2), start).unwrap();
        assert_eq!(recovery.may_ask(100, start), 2);
        recovery.keep(message(21), start);
        assert_eq!(recovery.may_ask(100, start), 0, "asking again brings newer ones only");
        assert!(!recovery.is_over());
        let ready = start + Duration::from_secs(6);
        assert_eq!(recovery.may_ask(100, ready), 2);
        recovery.keep(message(19), ready);
        assert_eq!(recovery.may_ask(100, ready), 1);
        recovery.keep(message(20), ready);
        assert!(recovery.is_over());
        assert_eq!(sequences(recovery), [19, 20, 21]);
    }

    #[test]
    fn older_messages_that_arrive_late_and_in_parts_keep_their_order() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut recovery = OrderRecovery::needed(&info(20, 17, 3), start).unwrap();
        recovery.keep(message(21), start);
        recovery.keep(message(20), at(6));
        recovery.keep(message(22), at(6));
        recovery.note(&info(22, 17, 5), at(6));
        assert!(!recovery.is_over(), "a newer message does not mean that the others are elsewhere");
        assert_eq!(recovery.may_ask(100, at(6)), 0);
        assert_eq!(recovery.may_ask(100, at(7)), 2);
        recovery.note(&info(22, 17, 5), at(18));
        assert!(!recovery.is_over(), "an older one arrived since");
        recovery.keep(message(18), at(18));
        recovery.keep(message(19), at(18));
        assert!(recovery.is_over());
        assert_eq!(sequences(recovery), [18, 19, 20, 21, 22]);
    }

    #[test]
    fn messages_of_a_living_process_do_not_stop_this_one() {
        let start = Instant::now();
        let mut recovery = OrderRecovery::needed(&info(20, 18, 2), start).unwrap();
        recovery.note(&info(25, 19, 6), start);
        assert!(!recovery.is_over());
        recovery.note(&info(25, 20, 5), start);
        assert!(recovery.is_over(), "it has acknowledged them");
        let mut recovery = OrderRecovery::needed(&info(20, 18, 2), start).unwrap();
        recovery.keep(message(21), start);
        recovery.note(&info(21, 18, 3), start + Duration::from_secs(17));
        assert!(!recovery.is_over());
        recovery.note(&info(21, 18, 3), start + Duration::from_secs(18));
        assert!(recovery.is_over(), "it still holds them");
        assert_eq!(sequences(recovery), [21]);
    }
}
