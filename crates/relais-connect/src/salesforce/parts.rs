//! Several messages in one call, and fewer where one of them spoils the call for all.
//!
//! Invariant: every message gets an answer, and only messages that were alone in a refused call are
//! rejected for it. After a failure that is not about the messages the rest is not tried.

use std::ops::Range;

use relais_core::{BoxFuture, delivery::Delivery};

use super::classify::{Class, Failure};

/// The most calls for one batch of messages; what is left then comes again.
const CALLS_MAX: usize = 16;

/// One call with some of the messages.
pub(super) trait Send<T>: Sync {
    /// One answer for each, in order.
    fn send<'a>(&'a self, part: &'a [T]) -> BoxFuture<'a, Result<Vec<Delivery>, Failure>>;
}

/// Sends the parts, in order; a part that is refused as a whole is sent again in halves.
pub(super) async fn send<T>(
    items: &[T],
    parts: Vec<Range<usize>>,
    to: &dyn Send<T>,
) -> Vec<Delivery> {
    let mut answers = vec![Delivery::Held; items.len()];
    let mut left: Vec<Range<usize>> = parts.into_iter().rev().collect();
    for _ in 0..CALLS_MAX {
        let Some(part) = left.pop() else { break };
        match to.send(&items[part.clone()]).await {
            Ok(deliveries) => answers[part].clone_from_slice(&deliveries),
            Err(failure) if failure.class == Class::Permanent && part.len() > 1 => {
                let middle = part.start + part.len() / 2;
                left.extend([middle..part.end, part.start..middle]);
            }
            Err(failure) => {
                answers[part].fill(failure.delivery());
                if failure.class != Class::Permanent {
                    break;
                }
            }
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Refuses calls with a negative number in them.
    #[derive(Default)]
    struct Target {
        calls: Mutex<Vec<Vec<i32>>>,
        down: bool,
    }

    impl Send<i32> for Target {
        fn send<'a>(&'a self, part: &'a [i32]) -> BoxFuture<'a, Result<Vec<Delivery>, Failure>> {
            self.calls.lock().unwrap().push(part.to_vec());
            let answer = if self.down {
                Err(Failure::new(Class::Down, "DOWN", "no"))
            } else if part.iter().any(|n| *n < 0) {
                Err(Failure::new(Class::Permanent, "JSON_PARSER_ERROR", "no"))
            } else {
                Ok(vec![Delivery::Accepted; part.len()])
            };
            Box::pin(async { answer })
        }
    }

    fn whole(items: &[i32]) -> Vec<Range<usize>> {
        std::iter::once(0..items.len()).collect()
    }

    #[tokio::test]
    async fn one_bad_message_does_not_spoil_its_neighbours() {
        let items = [1, 2, -3, 4, 5];
        let answers = send(&items, whole(&items), &Target::default()).await;
        for (item, answer) in items.iter().zip(answers) {
            match item {
                -3 => assert!(matches!(answer, Delivery::Reject { .. })),
                _ => assert_eq!(answer, Delivery::Accepted),
            }
        }
    }

    #[tokio::test]
    async fn nothing_more_is_tried_when_the_target_is_down() {
        let target = Target { down: true, ..Target::default() };
        let answers = send(&[1, 2, 3], vec![0..2, 2..3], &target).await;
        assert!(matches!(answers[0], Delivery::Outage { .. }));
        assert!(matches!(answers[1], Delivery::Outage { .. }));
        assert_eq!(answers[2], Delivery::Held);
        assert_eq!(target.calls.into_inner().unwrap(), [[1, 2]]);
    }

    #[tokio::test]
    async fn the_number_of_calls_is_limited() {
        let items = [-1; 200];
        let target = Target::default();
        let answers = send(&items, whole(&items), &target).await;
        assert_eq!(target.calls.into_inner().unwrap().len(), CALLS_MAX);
        assert!(answers.contains(&Delivery::Held));
        assert!(matches!(answers[0], Delivery::Reject { .. }));
        assert_eq!(send(&[], vec![], &Target::default()).await, []);
    }
}
