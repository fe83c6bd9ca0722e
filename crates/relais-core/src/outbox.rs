//! The life of an outbox row: `PENDING` until it is `DISPATCHED` or `FAILED`.
//!
//! A transient failure stays `PENDING` with `attempts` and `next_attempt_at`. `DISPATCHED` and
//! `FAILED` change only by a recorded action of a person.

use std::time::Duration;

use serde::Serialize;
use uuid::Uuid;

use crate::{
    delivery::{Delivery, Problem},
    message::{Category, Headers},
    retry::RetryPolicy,
    time::Timestamp,
};

/// The state in the `status` column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum OutboxStatus {
    Pending,
    Dispatched,
    Failed,
}

impl OutboxStatus {
    pub const ALL: [Self; 3] = [Self::Pending, Self::Dispatched, Self::Failed];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Dispatched => "DISPATCHED",
            Self::Failed => "FAILED",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == text)
    }

    /// Whether only a person changes it from here.
    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Pending)
    }
}

/// One row of `relais_outbox`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutboxRow {
    pub id: i64,
    pub message_id: Uuid,
    pub category: Category,
    pub aggregate_type: String,
    pub aggregate_id: String,
    pub event_type: String,
    pub event_version: i32,
    pub payload: String,
    pub headers: Headers,
    pub destination: String,
    pub msg_key: String,
    pub lane: i16,
    pub created_at: Timestamp,
    pub status: OutboxStatus,
    pub attempts: u32,
    pub next_attempt_at: Option<Timestamp>,
    pub dispatched_at: Option<Timestamp>,
    pub job_id: Option<String>,
    pub causation_id: Option<String>,
    pub correlation_id: Option<String>,
    pub error_code: Option<String>,
    pub error_message: Option<String>,
}

/// What is to become of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutboxFate {
    Dispatched,
    /// Stays `PENDING`; the store adds `pause` to its own now. Holds later rows of its key back.
    Retry {
        attempts: u32,
        pause: Duration,
        problem: Problem,
    },
    /// `FAILED`, with a dead letter; `park` holds the key back behind it.
    Dead {
        attempts: u32,
        problem: Problem,
        park: bool,
    },
    /// Stays `PENDING` and as fresh as it was; the attempt that caution counted was none.
    Uncounted {
        attempts: u32,
        problem: Problem,
    },
    /// Nothing is written: the destination is down, the row waits as it was.
    Untouched,
}

/// What a dead letter does to its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDeadLetter {
    /// Later messages of the key wait until a person decides: order holds.
    #[default]
    Park,
    /// Later messages go on without it.
    Skip,
}

/// The decision: pure, with the random number as an argument.
///
/// `attempts` are those already counted in the row before this delivery.
pub fn settle(
    policy: &RetryPolicy,
    on_dead: OnDeadLetter,
    attempts: u32,
    delivery: Delivery,
    random: f64,
) -> OutboxFate {
    let used = attempts.saturating_add(1);
    let park = on_dead == OnDeadLetter::Park;
    let dead = |problem: Problem| {
        let problem = problem.fitted();
        OutboxFate::Dead { attempts: used, problem, park }
    };
    match delivery {
        Delivery::Accepted => OutboxFate::Dispatched,
        Delivery::Outage { .. } | Delivery::Held => OutboxFate::Untouched,
        Delivery::Reject { problem } => dead(problem),
        Delivery::Retry { problem, .. } if policy.exhausted(used) => dead(problem),
        Delivery::Retry { problem, after } => {
            let (pause, problem) = (policy.pause(used, after, random), problem.fitted());
            OutboxFate::Retry { attempts: used, pause, problem }
        }
    }
}

/// One row's fate, with what the fence needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxSettlement {
    pub id: i64,
    pub lane: i16,
    pub epoch: i64,
    pub fate: OutboxFate,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(attempts: u32, delivery: Delivery) -> OutboxFate {
        let policy = RetryPolicy { jitter: false, ..RetryPolicy::default() };
        settle(&policy, OnDeadLetter::Park, attempts, delivery, 0.0)
    }

    #[test]
    fn an_outage_uses_no_attempt_however_often() {
        assert_eq!(check(4, Delivery::outage("DOWN", "refused")), OutboxFate::Untouched);
    }

    #[test]
    fn the_fifth_failure_is_a_dead_letter_that_parks_its_key() {
        let fate = check(3, Delivery::retry("500", "oops"));
        assert!(
            matches!(fate, OutboxFate::Retry { attempts: 4, pause, .. } if pause.as_millis() == 800)
        );
        let fate = check(4, Delivery::retry("500", "oops"));
        assert!(matches!(fate, OutboxFate::Dead { attempts: 5, park: true, .. }));
    }

    #[test]
    fn a_reject_is_dead_at_once() {
        assert!(matches!(
            check(0, Delivery::reject("400", "bad")),
            OutboxFate::Dead { attempts: 1, .. }
        ));
    }
}
