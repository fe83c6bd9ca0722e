//! The number of messages that the broker may send ahead.
//!
//! Pure. Brokers have no limit in bytes, or one that a large message cannot pass; so the number
//! follows the largest message of the last ones.

/// A batch ends when it reaches this many bytes; the message that exceeds it is still included, so
/// that the largest message fits.
pub(crate) const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Returns how many messages of these sizes one batch has.
pub(crate) fn batch_length(sizes: impl Iterator<Item = usize>) -> usize {
    let mut bytes = 0_usize;
    let fits = |size: &usize| {
        let before = bytes;
        bytes = bytes.saturating_add(*size);
        before < BATCH_BYTES_MAX
    };
    sizes.take_while(fits).count()
}

/// The limit in messages and bytes, and what is known about the size of messages.
#[derive(Debug)]
pub(crate) struct PrefetchLimit {
    messages_max: u16,
    bytes_max: usize,
    /// The largest message of the current and of the previous window.
    largest: [usize; 2],
    /// Messages in the current window.
    seen: usize,
}

/// Messages after which an old large one is forgotten.
const WINDOW: usize = 10_000;
/// The number before the first message: one that is far too large is noticed early.
const FIRST_MESSAGES: u16 = 16;

impl PrefetchLimit {
    pub(crate) fn new(messages_max: u16, bytes_max: usize) -> Self {
        let first = bytes_max / usize::from(FIRST_MESSAGES);
        Self { messages_max: messages_max.max(1), bytes_max, largest: [first, 0], seen: 0 }
    }

    pub(crate) fn note(&mut self, bytes: usize) {
        if self.seen == 0 && self.largest[1] == 0 {
            // The first message replaces the guess.
            self.largest = [bytes.max(1), 1];
        }
        self.largest[0] = self.largest[0].max(bytes);
        self.seen += 1;
        if self.seen >= WINDOW {
            self.largest = [1, self.largest[0]];
            self.seen = 0;
        }
    }

    /// Returns a power of two below the limit, so that it changes rarely.
    pub(crate) fn messages(&self) -> u16 {
        let largest = self.largest[0].max(self.largest[1]).max(1);
        let fitting = u16::try_from(self.bytes_max / largest).unwrap_or(u16::MAX).max(1);
        if fitting >= self.messages_max { self.messages_max } else { 1 << fitting.ilog2() }
    }

    /// Returns whether a consumer with this number needs another: too many bytes, or far too few
    /// messages.
    pub(crate) fn is_outgrown(&self, current: u16) -> bool {
        let wanted = self.messages();
        wanted < current
            || wanted / 4 >= current
            || (wanted == self.messages_max && wanted > current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefetch_follows_the_largest_message() {
        let mut limit = PrefetchLimit::new(1_000, 64_000);
        assert_eq!(limit.messages(), FIRST_MESSAGES);
        limit.note(10);
        assert_eq!(limit.messages(), 1_000);
        assert!(limit.is_outgrown(FIRST_MESSAGES) && !limit.is_outgrown(1_000));
        limit.note(32_000);
        assert_eq!(limit.messages(), 2);
        assert!(limit.is_outgrown(1_000));
        limit.note(1_000_000);
        assert_eq!(limit.messages(), 1, "the largest message fits");
        (0..2 * WINDOW).for_each(|_| limit.note(10));
        assert_eq!(limit.messages(), 1_000, "a large one is forgotten");
    }
}
