//! The meaning of the deliveries of one call. Pure.

use relais_core::{breaker::OpenCause, delivery::Delivery, fault::FailureKind};

/// Returns whether the target decided about the message, so it was reached.
pub(super) fn is_answer(delivery: &Delivery) -> bool {
    matches!(delivery, Delivery::Accepted | Delivery::Reject { .. })
}

/// Returns the one answer for all messages of a call that were tried, if there were several and the answer
/// is a failure whose reason may be one of them.
pub(super) fn failed_as_a_whole(deliveries: &[Delivery]) -> Option<&Delivery> {
    let mut tried = deliveries.iter().filter(|delivery| **delivery != Delivery::Held);
    let first = tried.next()?;
    let unclear = matches!(first.failure(), Some(FailureKind::Unclear | FailureKind::Busy));
    let mut several = false;
    let alike = tried.all(|delivery| {
        several = true;
        delivery == first
    });
    (unclear && several && alike).then_some(first)
}

/// Returns the cause if the answer is about every message: the target named a pause for all.
pub(super) fn rests_at_once(delivery: &Delivery) -> Option<OpenCause> {
    match delivery {
        Delivery::Outage { after: Some(_), .. } => Some(OpenCause::Asked),
        Delivery::Misconfigured { after: Some(_), .. } => Some(OpenCause::Configuration),
        _ => None,
    }
}
