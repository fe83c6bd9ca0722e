//! The keys of a destination that are failing while others may be delivered.

use relais_core::{query::FailingRow, time::Timestamp};

use crate::{commands::rows::problem, output::age};

/// Returns the number of failing keys and the oldest of their rows, as a sentence.
pub(crate) fn failing_text(
    keys: u64,
    oldest: Option<&FailingRow>,
    now: Timestamp,
) -> Option<String> {
    let row = oldest?;
    let keys = match keys {
        1 => "1 key is failing".to_owned(),
        keys => format!("{keys} keys are failing"),
    };
    let attempts = match row.attempts {
        1 => "1 attempt".to_owned(),
        attempts => format!("{attempts} attempts"),
    };
    let next = row.next_attempt_at.filter(|at| *at > now);
    let next = next.map(|at| format!(", next in {}", age(now, at))).unwrap_or_default();
    let why = problem(row.error_code.as_deref(), row.error_message.as_deref());
    let FailingRow { id, msg_key, since, .. } = row;
    Some(format!(
        "{keys}; oldest: outbox row {id} (key {msg_key}), for {}, {attempts} used{next}: {why}",
        age(*since, now)
    ))
}
