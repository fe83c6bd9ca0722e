//! What operators change while relais runs: pauses, limits, and resets of circuit breakers.
//!
//! Invariant: pauses and limits are rows in the database, so every process obeys them and a restart keeps
//! them. Limits and resets carry a number that grows with each change: a process obeys the resets that come
//! after it has started.

use std::{fmt, time::Duration};

use serde::Serialize;

use crate::time::Timestamp;

/// Code of an inbox row that waits because its process type is paused.
pub const PROCESS_TYPE_PAUSED: &str = "PROCESS_TYPE_PAUSED";

/// A kind of thing that can be controlled. The text is in the `kind` column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlKind {
    Destination,
    Source,
    ProcessType,
}

impl ControlKind {
    pub const ALL: [Self; 3] = [Self::Destination, Self::Source, Self::ProcessType];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Destination => "destination",
            Self::Source => "source",
            Self::ProcessType => "process_type",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// The kind as the audit and operators call it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Destination => "destination",
            Self::Source => "source",
            Self::ProcessType => "process type",
        }
    }
}

/// A pause with the operator who asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pause {
    pub at: Timestamp,
    pub by: String,
    pub reason: String,
}

/// Limits of a destination that replace the configured ones. Fields that are `None` stay as configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitChange {
    /// Calls in a period.
    pub rate: Option<(u32, Duration)>,
    /// Calls in flight at once.
    pub concurrency: Option<u32>,
}

impl fmt::Display for LimitChange {
    /// Writes the limits for the audit log: `rate 5/s, concurrency as configured`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rate {
            None => f.write_str("rate as configured")?,
            Some((calls, period)) => match period.as_secs() {
                1 => write!(f, "rate {calls}/s")?,
                60 => write!(f, "rate {calls}/m")?,
                3_600 => write!(f, "rate {calls}/h")?,
                _ => write!(f, "rate {calls} in {period:?}")?,
            },
        }
        match self.concurrency {
            None => f.write_str(", concurrency as configured"),
            Some(calls) => write!(f, ", concurrency {calls}"),
        }
    }
}

/// One row of `relais_control`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    pub kind: ControlKind,
    pub name: String,
    /// Absent if it is not paused.
    pub pause: Option<Pause>,
    pub limits: LimitChange,
    /// Grows with each change of the limits.
    pub limits_changed: i64,
    /// Grows with each reset of the circuit breaker.
    pub breaker_resets: i64,
}

/// A change that an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlChange {
    Pause,
    Resume,
    /// Replaces the limits of a destination until the next change; the default restores the configured ones.
    Limit(LimitChange),
    /// Closes the circuit breaker of a destination in every process.
    ResetBreaker,
}

impl ControlChange {
    /// The second half of the action in the audit: `destination.paused`.
    pub fn audit_word(self) -> &'static str {
        match self {
            Self::Pause => "paused",
            Self::Resume => "resumed",
            Self::Limit(limits) if limits == LimitChange::default() => "limits-reset",
            Self::Limit(_) => "limited",
            Self::ResetBreaker => "breaker-reset",
        }
    }
}

/// A change with its target and the operator who asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlOrder {
    pub kind: ControlKind,
    pub name: String,
    pub change: ControlChange,
    pub actor: String,
    pub reason: String,
}

impl ControlOrder {
    /// The action as the audit records it.
    pub fn audit_action(&self) -> String {
        format!("{}.{}", self.kind.as_str().replace('_', "-"), self.change.audit_word())
    }

    /// The reason as the audit records it, with the limits that were set.
    pub fn audit_reason(&self) -> String {
        match self.change {
            ControlChange::Limit(limits) if limits != LimitChange::default() => {
                format!("{} ({limits})", self.reason)
            }
            _ => self.reason.clone(),
        }
    }
}

/// Largest concurrency of a destination, as in the configuration.
pub const CONCURRENCY_MAX: u32 = 1_000;
/// Most rows of `relais_control` that are read.
pub const CONTROLS_MAX: usize = 10_000;
