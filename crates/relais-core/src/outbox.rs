//! The life of an outbox row: `PENDING` until it is `DISPATCHED` or `FAILED`.
//!
//! A transient failure stays `PENDING` with `attempts` and `next_attempt_at`. `DISPATCHED` and
//! `FAILED` change only by a recorded action of an operator.

use std::time::Duration;

use serde::Serialize;
use uuid::Uuid;

use crate::{
    delivery::{Delivery, Problem},
    fault::{Fault, Judgement},
    inbox::NewInbox,
    message::{Category, Headers},
    retry::RetryPolicy,
    time::Timestamp,
};

/// The state in the `status` column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum OutboxStatus {
    /// Not delivered yet.
    Pending,
    /// Delivered: the target has accepted it.
    Dispatched,
    /// Failed: a dead letter.
    Failed,
}

impl OutboxStatus {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Pending, Self::Dispatched, Self::Failed];

    /// Returns the state as it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Dispatched => "DISPATCHED",
            Self::Failed => "FAILED",
        }
    }

    /// Parses a stored state; `None` if this program does not know it.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == text)
    }

    /// Returns whether only an operator changes it from here.
    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Pending)
    }
}

/// One row of `relais_outbox`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutboxRow {
    /// The number of the row; rows of a key are delivered in this order.
    pub id: i64,
    /// The stable id of the message; every delivery carries it.
    pub message_id: Uuid,
    /// The role of the message for its receiver.
    pub category: Category,
    /// The kind of aggregate that it is about.
    pub aggregate_type: String,
    /// The id of that aggregate.
    pub aggregate_id: String,
    /// The event type.
    pub event_type: String,
    /// The version of the contract of its payload.
    pub event_version: i32,
    /// The payload, JSON.
    pub payload: String,
    /// The headers.
    pub headers: Headers,
    /// The destination.
    pub destination: String,
    /// The ordering key.
    pub msg_key: String,
    /// The lane of the key.
    pub lane: i16,
    /// The time at which it was written.
    pub created_at: Timestamp,
    /// The state.
    pub status: OutboxStatus,
    /// The number of used attempts.
    pub attempts: u32,
    /// Workers that were lost while this row was in flight: the rule is quarantine.
    pub lost_workers: u32,
    /// The time before which it is not sent.
    pub next_attempt_at: Option<Timestamp>,
    /// The time at which it was delivered.
    pub dispatched_at: Option<Timestamp>,
    /// The bulk job that has the row.
    pub job_id: Option<String>,
    /// The id of the message that caused it.
    pub causation_id: Option<String>,
    /// The id that all messages of one operation share.
    pub correlation_id: Option<String>,
    /// The last error code.
    pub error_code: Option<String>,
    /// The last error text.
    pub error_message: Option<String>,
}

impl OutboxRow {
    /// Returns the reply of a service to this command of a process: it names the process by the header
    /// `correlation-id`. If the command is delivered again, its reply has the same id and is stored once.
    pub fn reply(&self, event_type: &str, payload: &str) -> NewInbox {
        let message_id = format!("reply:{}", self.message_id);
        let process = self.correlation_id.as_deref().unwrap_or_default();
        NewInbox::new(&self.destination, &message_id, event_type, payload)
            .header("correlation-id", process)
    }
}

/// The decision about a row, to be settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutboxFate {
    /// The target has accepted it.
    Dispatched,
    /// Stays `PENDING`; the store adds `pause` to its own now. Holds later rows of its key back.
    Retry {
        /// Used attempts, this one included.
        attempts: u32,
        /// The pause before the next attempt.
        pause: Duration,
        /// The reason of the failure.
        problem: Problem,
    },
    /// `FAILED`, with a dead letter; `park` holds the key back behind it.
    Dead {
        /// Used attempts, this one included.
        attempts: u32,
        /// The reason of the failure.
        problem: Problem,
        /// True if its key is parked.
        park: bool,
    },
    /// Stays `PENDING` without an attempt used; otherwise as `Retry`. `lost_workers` is written down:
    /// 0 once a call came back, more for a row in quarantine.
    Wait {
        /// The pause before it is sent again.
        pause: Duration,
        /// The reason of the wait.
        problem: Problem,
        /// Workers that were lost while the row was in flight.
        lost_workers: u32,
    },
    /// Nothing is written: the destination is unavailable, the row waits as it was.
    Untouched,
}

/// The effect of a dead letter on its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDeadLetter {
    /// Later messages of the key wait until an operator decides: order holds.
    #[default]
    Park,
    /// Later messages continue without it.
    Skip,
    /// There is none: the message is sent again with the longest pause until it is accepted, and its key
    /// waits. Only a message that may have killed its workers is a dead letter, which parks its key.
    Retry,
}

impl OnDeadLetter {
    /// Returns whether a dead letter parks its key.
    pub fn parks(self) -> bool {
        self != Self::Skip
    }
}

/// The decision: pure, with the random number as an argument.
///
/// `attempts` are those counted in the row before this delivery, `judgement` says who is at fault if it
/// failed.
pub fn settle(
    policy: &RetryPolicy,
    on_dead: OnDeadLetter,
    attempts: u32,
    delivery: Delivery,
    judgement: Judgement,
    random: f64,
) -> OutboxFate {
    let used = attempts.saturating_add(1);
    let dead = |problem: Problem| {
        let problem = problem.fitted();
        match on_dead {
            OnDeadLetter::Retry => OutboxFate::Retry { attempts: used, pause: policy.max, problem },
            _ => OutboxFate::Dead { attempts: used, problem, park: on_dead.parks() },
        }
    };
    let (problem, after) = match delivery {
        Delivery::Accepted => return OutboxFate::Dispatched,
        Delivery::Held => return OutboxFate::Untouched,
        Delivery::Reject { problem } if judgement.fault == Fault::Target => (problem, None),
        Delivery::Reject { problem } => return dead(problem),
        Delivery::Retry { problem, after }
        | Delivery::Busy { problem, after }
        | Delivery::Wait { problem, after } => (problem, after),
        // Their pause is the destination's, not the row's.
        Delivery::Misconfigured { problem, .. } | Delivery::Outage { problem, .. } => {
            (problem, None)
        }
    };
    match judgement.fault {
        Fault::Overdue => dead(problem),
        Fault::Message if policy.exhausted(used) => dead(problem),
        Fault::Message => {
            let (pause, problem) = (policy.pause(used, after, random), problem.fitted());
            OutboxFate::Retry { attempts: used, pause, problem }
        }
        Fault::Target => {
            let pause = policy.uncounted_pause(judgement.failures, after, random);
            OutboxFate::Wait { pause, problem: problem.fitted(), lost_workers: 0 }
        }
    }
}

/// One row's fate, with what the fence needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxSettlement {
    /// The id of the row.
    pub id: i64,
    /// Its lane.
    pub lane: i16,
    /// The epoch of the lane when the row was fetched.
    pub epoch: i64,
    /// The decision.
    pub fate: OutboxFate,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(attempts: u32, delivery: Delivery, fault: Fault) -> OutboxFate {
        let policy = RetryPolicy { jitter: false, ..RetryPolicy::default() };
        let judgement = Judgement { fault, failures: attempts + 1 };
        settle(&policy, OnDeadLetter::Park, attempts, delivery, judgement, 0.0)
    }

    #[test]
    fn what_is_the_targets_fault_waits_and_uses_no_attempt_however_often() {
        for delivery in [
            Delivery::outage("DOWN", "refused"),
            Delivery::busy("503", "later"),
            Delivery::retry("500", "oops"),
            Delivery::misconfigured("404", "no such page"),
            Delivery::reject("400", "while nothing is accepted at all"),
            Delivery::Wait { problem: Problem::new("TOPIC", "missing"), after: None },
        ] {
            let fate = check(4, delivery, Fault::Target);
            let OutboxFate::Wait { pause, lost_workers: 0, .. } = fate else { panic!("{fate:?}") };
            assert_eq!(pause.as_millis(), 1_600);
        }
    }

    #[test]
    fn the_fifth_failure_of_its_own_is_a_dead_letter_that_parks_its_key() {
        let fate = check(3, Delivery::retry("500", "oops"), Fault::Message);
        assert!(
            matches!(fate, OutboxFate::Retry { attempts: 4, pause, .. } if pause.as_millis() == 800)
        );
        for delivery in [Delivery::retry("500", "oops"), Delivery::busy("503", "later")] {
            let fate = check(4, delivery, Fault::Message);
            assert!(matches!(fate, OutboxFate::Dead { attempts: 5, park: true, .. }));
        }
    }

    #[test]
    fn without_dead_letters_a_failing_message_is_sent_again_with_the_longest_pause() {
        let policy = RetryPolicy { jitter: false, ..RetryPolicy::default() };
        for (delivery, fault) in [
            (Delivery::retry("500", "oops"), Fault::Message),
            (Delivery::reject("400", "bad"), Fault::Message),
            (Delivery::busy("503", "later"), Fault::Overdue),
        ] {
            let judgement = Judgement { fault, failures: 8 };
            let fate = settle(&policy, OnDeadLetter::Retry, 7, delivery, judgement, 0.0);
            assert!(
                matches!(&fate, OutboxFate::Retry { attempts: 8, pause, .. } if *pause == policy.max),
                "{fate:?}"
            );
        }
    }

    #[test]
    fn a_reject_is_dead_at_once_and_so_is_what_failed_for_a_day() {
        for (delivery, fault) in [
            (Delivery::reject("400", "bad"), Fault::Message),
            (Delivery::busy("503", "later"), Fault::Overdue),
        ] {
            assert!(matches!(check(0, delivery, fault), OutboxFate::Dead { attempts: 1, .. }));
        }
    }
}
