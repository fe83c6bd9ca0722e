//! The meaning of the deliveries of one call. Pure.

use relais_core::{
    breaker::OpenCause,
    delivery::{Delivery, Problem, TIMEOUT},
    fault::{FailureKind, FailureTimes, Fault, Judgement},
};

/// Returns whether the target decided about the message, so it was reached.
pub(super) fn is_answer(delivery: &Delivery) -> bool {
    matches!(delivery, Delivery::Accepted | Delivery::Reject { .. })
}

/// Returns the times of a failed call.
pub(super) fn failure_times(delivery: &Delivery, began_ns: u64, now_ns: u64) -> FailureTimes {
    match delivery.problem() {
        Some((problem, _)) if problem.code == TIMEOUT => FailureTimes::unanswered(began_ns, now_ns),
        _ => FailureTimes::ended(began_ns, now_ns),
    }
}

/// Returns the problem of the last message that failed, for the reason of an open breaker. A message that
/// waits says nothing about its target.
pub(super) fn last_problem(deliveries: &[Delivery]) -> Option<&Problem> {
    let mut failed = deliveries.iter().rev().filter(|one| !matches!(one, Delivery::Wait { .. }));
    failed.find_map(Delivery::problem).map(|(problem, _)| problem)
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

/// Blames the target for failures that were blamed on their messages: while it is probed or unavailable, no
/// message is at fault.
pub(super) fn excuse(judgements: &mut [Judgement], deliveries: &[Delivery]) {
    for (judgement, delivery) in judgements.iter_mut().zip(deliveries) {
        if judgement.fault == Fault::Message && delivery.failure().is_some() {
            judgement.fault = Fault::Target;
        }
    }
}

/// Returns the cause if the answer is about every message: the target named a pause for all.
pub(super) fn rests_at_once(delivery: &Delivery) -> Option<OpenCause> {
    match delivery {
        Delivery::Outage { after: Some(_), .. } => Some(OpenCause::Asked),
        Delivery::Misconfigured { after: Some(_), .. } => Some(OpenCause::Configuration),
        _ => None,
    }
}
