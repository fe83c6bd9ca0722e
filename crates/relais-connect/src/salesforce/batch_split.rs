//! Several messages per call, and fewer if one of them makes the whole call fail.
//!
//! Invariant: every message gets a delivery, and a message is rejected for a refused call only if
//! it was alone in it. After a failure that does not concern the messages the rest is not sent.

use std::ops::Range;

use relais_core::{async_trait, delivery::Delivery};

use super::classify::{Class, SalesforceFailure};

/// Maximum number of calls for one batch of messages; the rest is sent later.
const CALLS_MAX: usize = 16;

/// A call with a part of the messages.
#[async_trait]
pub(super) trait BatchCall<T>: Sync {
    /// Returns one delivery per message, in order.
    async fn call(&self, part: &[T]) -> Result<Vec<Delivery>, SalesforceFailure>;
}

/// Sends the parts in order; a part that is refused as a whole is split in halves and sent again.
pub(super) async fn send_split<T>(
    items: &[T],
    parts: Vec<Range<usize>>,
    to: &dyn BatchCall<T>,
) -> Vec<Delivery> {
    let mut answers = vec![Delivery::Held; items.len()];
    let mut left: Vec<Range<usize>> = parts.into_iter().rev().collect();
    for _ in 0..CALLS_MAX {
        let Some(part) = left.pop() else { break };
        match to.call(&items[part.clone()]).await {
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

    /// Refuses calls that contain a negative number.
    #[derive(Default)]
    struct Target {
        calls: Mutex<Vec<Vec<i32>>>,
        down: bool,
    }

    #[async_trait]
    impl BatchCall<i32> for Target {
        async fn call(&self, part: &[i32]) -> Result<Vec<Delivery>, SalesforceFailure> {
            self.calls.lock().unwrap().push(part.to_vec());
            if self.down {
                Err(SalesforceFailure::new(Class::Down, "DOWN", "no"))
            } else if part.iter().any(|n| *n < 0) {
                Err(SalesforceFailure::new(Class::Permanent, "JSON_PARSER_ERROR", "no"))
            } else {
                Ok(vec![Delivery::Accepted; part.len()])
            }
        }
    }

    fn whole(items: &[i32]) -> Vec<Range<usize>> {
        std::iter::once(0..items.len()).collect()
    }

    #[tokio::test]
    async fn one_bad_message_does_not_affect_the_others() {
        let items = [1, 2, -3, 4, 5];
        let answers = send_split(&items, whole(&items), &Target::default()).await;
        for (item, answer) in items.iter().zip(answers) {
            match item {
                -3 => assert!(matches!(answer, Delivery::Reject { .. })),
                _ => assert_eq!(answer, Delivery::Accepted),
            }
        }
    }

    #[tokio::test]
    async fn nothing_more_is_sent_when_the_target_is_unavailable() {
        let target = Target { down: true, ..Target::default() };
        let answers = send_split(&[1, 2, 3], vec![0..2, 2..3], &target).await;
        assert!(matches!(answers[0], Delivery::Outage { .. }));
        assert!(matches!(answers[1], Delivery::Outage { .. }));
        assert_eq!(answers[2], Delivery::Held);
        assert_eq!(target.calls.into_inner().unwrap(), [[1, 2]]);
    }

    #[tokio::test]
    async fn the_number_of_calls_is_limited() {
        let items = [-1; 200];
        let target = Target::default();
        let answers = send_split(&items, whole(&items), &target).await;
        assert_eq!(target.calls.into_inner().unwrap().len(), CALLS_MAX);
        assert!(answers.contains(&Delivery::Held));
        assert!(matches!(answers[0], Delivery::Reject { .. }));
        assert_eq!(send_split(&[], vec![], &Target::default()).await, []);
    }
}
