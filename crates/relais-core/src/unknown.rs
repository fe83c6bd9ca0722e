//! Inbox rows of an event type (or for a version of a process) that no live worker knows: they wait,
//! hold their key, and become dead letters after a stated time.
//!
//! Invariant: waiting uses no attempt, and only database time counts: from the moment at which the first
//! worker found that none knows the type.

use std::time::Duration;

use crate::{
    delivery::Problem,
    inbox::{InboxFate, InboxRow},
};

/// The error code of such a row, while it waits and after.
pub const UNKNOWN_EVENT_TYPE: &str = "UNKNOWN_EVENT_TYPE";
/// The default time that a row waits for a worker that knows its event type.
pub const UNKNOWN_TYPE_WAIT: Duration = Duration::from_secs(15 * 60);
/// The shortest pause before workers are asked again, …
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// … and the longest.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Decides about a due row that no live worker can handle: it waits, or parks its key as a dead letter
/// once it has waited for `wait`.
///
/// A row that is due has waited at least until its `next_attempt_at`, which is database time.
pub fn await_knowing_worker(row: &InboxRow, wait: Duration, problem: Problem) -> InboxFate {
    let (attempts, problem) = (row.attempts, problem.fitted());
    let waited = match (row.unknown_since, row.next_attempt_at) {
        (Some(since), Some(due)) => {
            Duration::from_micros(u64::try_from(due.0.saturating_sub(since.0)).unwrap_or(0))
        }
        _ => Duration::ZERO,
    };
    if waited >= wait {
        return InboxFate::Dead { attempts, problem, park: true };
    }
    let pause = (waited / 2).clamp(PAUSE_MIN, PAUSE_MAX).min(wait - waited);
    InboxFate::Wait { pause, problem, lost_workers: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        inbox::{InboxStatus, NewInbox},
        time::Timestamp,
    };

    fn row(waited: Option<Duration>) -> InboxRow {
        let start = 1_000_000_000;
        let due = |waited: Duration| start + i64::try_from(waited.as_micros()).unwrap();
        InboxRow {
            status: InboxStatus::Retry,
            attempts: 2,
            next_attempt_at: waited.map(|waited| Timestamp(due(waited))),
            unknown_since: waited.map(|_| Timestamp(start)),
            ..InboxRow::received(1, NewInbox::new("s", "m", "Huh", "{}"))
        }
    }

    fn problem() -> Problem {
        Problem::new(UNKNOWN_EVENT_TYPE, "no live worker knows event type `Huh`")
    }

    #[test]
    fn it_waits_with_growing_pauses_and_parks_its_key_exactly_at_the_end() {
        let (mut waited, mut pauses) = (None, Vec::new());
        loop {
            match await_knowing_worker(&row(waited), UNKNOWN_TYPE_WAIT, problem()) {
                InboxFate::Wait { pause, problem, lost_workers: 0 } => {
                    assert_eq!(problem.code, UNKNOWN_EVENT_TYPE);
                    pauses.push(pause);
                    waited = Some(waited.unwrap_or_default() + pause);
                }
                InboxFate::Dead { attempts: 2, park: true, problem } => {
                    assert_eq!(problem.code, UNKNOWN_EVENT_TYPE);
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(waited.map(|waited| waited.as_secs()), Some(UNKNOWN_TYPE_WAIT.as_secs()));
        assert_eq!(pauses[..2], [PAUSE_MIN, PAUSE_MIN]);
        assert!(pauses.len() < 45 && pauses.contains(&PAUSE_MAX), "{pauses:?}");
    }

    #[test]
    fn without_a_wait_it_is_a_dead_letter_at_once() {
        let fate = await_knowing_worker(&row(None), Duration::ZERO, problem());
        assert!(matches!(fate, InboxFate::Dead { park: true, .. }), "{fate:?}");
    }
}
