//! The circuit breaker of a destination as operators see it.

use std::time::SystemTime;

use relais_core::{
    breaker::{BreakerState, OpenCause},
    time::Timestamp,
};

/// The breaker at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Guarded {
    pub(crate) state: Option<BreakerState>,
    pub(crate) cause: Option<OpenCause>,
    /// When the next call is tried, while it is open.
    pub(crate) until: Option<SystemTime>,
}

impl Guarded {
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.state, None | Some(BreakerState::Closed))
    }

    pub(super) fn rests_until(&self) -> Option<Timestamp> {
        let since = self.until?.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Some(Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX)))
    }
}
