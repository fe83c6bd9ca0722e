//! The size of what a settlement writes: messages for the outbox and copies for other inboxes.
//!
//! Invariant: one transaction writes at most [`BYTES_MAX`] bytes of payloads and the message that reaches
//! them. The driver of the database holds several copies of what it sends.

use relais_core::inbox::InboxFate;

/// Messages of one transaction; one event can become thousands.
const MESSAGES_MAX: usize = 10_000;
/// Bytes of payloads of one transaction.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// The messages and copies that wait to be written, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WriteSize {
    messages: usize,
    bytes: usize,
}

impl WriteSize {
    /// Adds what a fate writes. The database makes the copies, so they have no bytes here.
    pub(super) fn add(&mut self, fate: &InboxFate) {
        if let InboxFate::Processed { copies, .. } = fate {
            self.messages += copies.len();
        }
        for message in fate.messages() {
            self.messages += 1;
            self.bytes += message.payload.len();
        }
    }

    pub(super) fn is_empty(self) -> bool {
        self.messages == 0
    }

    /// Returns whether it must be written before anything is added.
    pub(super) fn is_full(self) -> bool {
        self.messages >= MESSAGES_MAX || self.bytes >= BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use relais_core::message::NewMessage;
    use uuid::Uuid;

    use super::*;

    fn size_of(payloads: &[usize]) -> WriteSize {
        let message = |bytes: &usize| {
            let payload = "x".repeat(*bytes);
            NewMessage::new(Uuid::nil(), ("order", "o-1"), "OrderPlaced", "shop", payload)
        };
        let messages = payloads.iter().map(message).collect();
        let fate = InboxFate::Processed { messages, changes: Vec::new(), copies: Vec::new() };
        let mut size = WriteSize::default();
        size.add(&fate);
        size
    }

    #[test]
    fn few_large_messages_fill_a_transaction_as_many_small_ones_do() {
        assert!(size_of(&[]).is_empty());
        assert!(!size_of(&[100, BYTES_MAX - 200]).is_full());
        assert!(size_of(&[100, BYTES_MAX]).is_full());
        assert!(size_of(&vec![10; MESSAGES_MAX]).is_full());
    }
}
