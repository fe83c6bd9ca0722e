//! What a worker knows of other keys when a call fails.
//!
//! Invariant: the real `judge` decides by these facts; the model only chooses them.

use std::time::Duration;

use relais_core::fault::{Facts, News};

/// The other keys of the destination, while one fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherKeys {
    /// They are accepted: it is the message that fails.
    Succeed,
    /// They fail too: it is the target.
    Fail,
}

impl OtherKeys {
    /// Returns the facts of a key that begins to fail beside nine others.
    pub fn facts(self) -> Facts {
        let now = Duration::ZERO;
        let (others, failing_keys, succeeded_keys) = match self {
            Self::Succeed => (News::Good { began: now, ended: now }, 1, 9),
            Self::Fail => (News::Bad, 10, 0),
        };
        Facts {
            others: Some(others),
            previous_attempt: now,
            failing_keys,
            called_keys: 10,
            succeeded_keys,
            alone_for: now,
            failing_for: now,
            failures: 1,
        }
    }
}
