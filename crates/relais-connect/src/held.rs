//! Messages that a source has received and that are not settled.
//!
//! Pure. Invariant: batches are settled in the order in which they were returned, which is the order of
//! arrival. What was returned stays here until then: a refused batch is returned again.

use std::collections::VecDeque;

use relais_core::{inbox::NewInbox, source::SourceBatch};

#[cfg(any(test, feature = "amqp", feature = "rabbitmq"))]
use crate::prefetch::BATCH_BYTES_MAX;
use crate::prefetch::batch_length;

/// A message with what its source needs to settle it.
pub(crate) trait HeldMessage {
    /// Returns the size on the wire.
    fn bytes(&self) -> usize;
    /// Returns the row to store.
    fn row(&self) -> &NewInbox;
}

/// Received messages in order: first those of returned batches, then those that are in none.
#[derive(Debug)]
pub(crate) struct HeldMessages<T> {
    messages: VecDeque<T>,
    /// The lengths of the batches that were returned, the oldest first.
    returned: VecDeque<usize>,
    /// The bytes of the messages that are in no batch.
    fresh_bytes: usize,
}

impl<T> Default for HeldMessages<T> {
    fn default() -> Self {
        Self { messages: VecDeque::new(), returned: VecDeque::new(), fresh_bytes: 0 }
    }
}

impl<T: HeldMessage> HeldMessages<T> {
    pub(crate) fn push(&mut self, message: T) {
        self.fresh_bytes += message.bytes();
        self.messages.push_back(message);
    }

    /// Returns the number of all messages.
    #[cfg(any(feature = "amqp", feature = "nats"))]
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    fn fresh(&self) -> usize {
        self.messages.len() - self.returned.iter().sum::<usize>()
    }

    /// Returns whether there are messages that are in no batch.
    pub(crate) fn has_fresh(&self) -> bool {
        self.fresh() > 0
    }

    /// Returns whether the next batch of at most `max` messages can have more than there are.
    #[cfg(any(test, feature = "amqp", feature = "rabbitmq"))]
    pub(crate) fn has_room(&self, max: usize) -> bool {
        self.fresh() < max && self.fresh_bytes < BATCH_BYTES_MAX
    }

    /// Returns the next batch of at most `max` messages.
    pub(crate) fn next_batch(&mut self, max: usize) -> SourceBatch {
        let before = self.messages.len() - self.fresh();
        let fresh = self.messages.iter().skip(before);
        let length = batch_length(fresh.take(max).map(T::bytes));
        let batch: Vec<&T> = self.messages.iter().skip(before).take(length).collect();
        self.fresh_bytes -= batch.iter().map(|message| message.bytes()).sum::<usize>();
        let messages = batch.into_iter().map(|message| message.row().clone()).collect();
        self.returned.push_back(length);
        SourceBatch { messages, positions: Vec::new() }
    }

    /// Removes the messages of the oldest batch. Returns none after [`Self::clear`] and [`Self::take_back`].
    pub(crate) fn settle(&mut self) -> Vec<T> {
        let length = self.returned.pop_front().unwrap_or(0);
        self.messages.drain(..length).collect()
    }

    /// Makes the messages of all batches fresh: they are returned again.
    pub(crate) fn take_back(&mut self) {
        self.returned.clear();
        self.fresh_bytes = self.messages.iter().map(T::bytes).sum();
    }

    /// Forgets all messages: the broker delivers them again.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Forgets all messages, and returns them.
    #[cfg(feature = "nats")]
    pub(crate) fn take(&mut self) -> VecDeque<T> {
        std::mem::take(self).messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct SizedMessage(usize, NewInbox);

    impl HeldMessage for SizedMessage {
        fn bytes(&self) -> usize {
            self.0
        }

        fn row(&self) -> &NewInbox {
            &self.1
        }
    }

    fn held(sizes: &[usize]) -> HeldMessages<SizedMessage> {
        let mut held = HeldMessages::default();
        for (at, size) in sizes.iter().enumerate() {
            held.push(SizedMessage(*size, NewInbox::new("shop", &at.to_string(), "T", "{}")));
        }
        held
    }

    fn ids(batch: &SourceBatch) -> Vec<&str> {
        batch.messages.iter().map(|message| message.message_id.as_str()).collect()
    }

    #[test]
    fn batches_are_settled_in_order_and_what_is_refused_is_returned_again() {
        let mut held = held(&[1; 5]);
        assert_eq!(ids(&held.next_batch(2)), ["0", "1"]);
        assert_eq!(ids(&held.next_batch(2)), ["2", "3"]);
        let settled: Vec<String> =
            held.settle().into_iter().map(|message| message.1.message_id).collect();
        assert_eq!(settled, ["0", "1"]);
        held.take_back();
        assert_eq!(held.settle().len(), 0, "nothing was returned since");
        assert_eq!(ids(&held.next_batch(2)), ["2", "3"]);
        assert_eq!(ids(&held.next_batch(2)), ["4"]);
        assert!(!held.has_fresh());
        held.clear();
        assert!(held.settle().is_empty() && held.is_empty(), "a new session settles nothing old");
    }

    #[test]
    fn the_size_of_a_batch_does_not_count_the_one_before() {
        let mut held = held(&[BATCH_BYTES_MAX, BATCH_BYTES_MAX]);
        assert!(!held.has_room(10));
        assert_eq!(ids(&held.next_batch(10)), ["0"]);
        assert!(!held.has_room(10));
        assert_eq!(ids(&held.next_batch(10)), ["1"]);
        assert!(held.has_room(10));
        held.take_back();
        assert!(!held.has_room(10));
    }
}
