//! Pending rows that an operator gives up, or sends before their time.

use relais_core::{
    dead_letter::{DecisionAction, DecisionResult, Origin},
    delivery::Problem,
    inspect::InspectExt,
    outbox::{OnDeadLetter, OutboxRow, OutboxStatus},
    quarantine::{self, HOLD_AFTER},
    query::PAGE_MAX,
    store::StoreError,
};

use super::{DeadLetters, DecisionAuthor, DecisionOutcome, refused};

impl DeadLetters {
    /// Makes a dead letter of a pending outbox row (`OPERATOR_FAILED`). It parks its key as any other of
    /// its destination. A worker that has the row in flight may still deliver it once; its settlement is
    /// refused.
    pub async fn fail(
        &self,
        row: &OutboxRow,
        by: &DecisionAuthor,
    ) -> Result<DecisionOutcome, StoreError> {
        let on_dead_letter = if self.skipping.contains(&row.destination) {
            OnDeadLetter::Skip
        } else {
            OnDeadLetter::Park
        };
        let fail = DecisionAction::FailPending { row: row.id, on_dead_letter };
        let decided = self.store.decide(by.decision(fail)).await?;
        crate::fail_point!("dead_letters.after_fail");
        Ok(match decided {
            DecisionResult::Done => DecisionOutcome::Done,
            DecisionResult::NotFound => DecisionOutcome::NotFound,
            DecisionResult::ResolvedBefore => {
                refused("NOT_PENDING", "a worker has settled it; only a pending row can be failed")
            }
        })
    }

    /// Makes a pending outbox row due that waits in backoff. It keeps its attempts and its place in its key. A
    /// pause, a limit or an open circuit breaker of its destination holds for it as for any other row.
    pub async fn send_now(
        &self,
        row: &OutboxRow,
        by: &DecisionAuthor,
    ) -> Result<DecisionOutcome, StoreError> {
        let send = DecisionAction::SendNow { row: row.id };
        match self.store.decide(by.decision(send)).await? {
            DecisionResult::Done => Ok(DecisionOutcome::Done),
            DecisionResult::NotFound => Ok(DecisionOutcome::NotFound),
            DecisionResult::ResolvedBefore => {
                let row = self.store.find_outbox(row.id.to_string()).await?;
                let Some(row) = row else { return Ok(DecisionOutcome::NotFound) };
                let problem = self.not_in_backoff(&row).await?;
                Ok(DecisionOutcome::Refused { problem })
            }
        }
    }

    /// Returns why a row cannot be sent now.
    async fn not_in_backoff(&self, row: &OutboxRow) -> Result<Problem, StoreError> {
        if row.status != OutboxStatus::Pending {
            let text = format!("it is {}; only a pending row can be", row.status.as_str());
            return Ok(Problem::new("NOT_PENDING", &text));
        }
        if row.job_id.is_some() {
            let text = "it is in a bulk job, which decides when it is sent";
            return Ok(Problem::new("IN_BULK_JOB", text));
        }
        if row.lost_workers >= HOLD_AFTER {
            return Ok(quarantine::held());
        }
        let parked = self.store.parked_keys(PAGE_MAX).await?;
        let parked = parked.into_iter().find(|parked| {
            parked.origin == Origin::Outbox
                && parked.destination.as_ref() == Some(&row.destination)
                && parked.msg_key == row.msg_key
        });
        if let Some(parked) = parked {
            let text =
                format!("its key is parked; decide about dead letter {}", parked.dead_letter_id);
            return Ok(Problem::new("KEY_PARKED", &text));
        }
        if let (None, Some(until)) = (&row.error_code, row.next_attempt_at) {
            let text = format!("it was sent with a delay until {until} and has not failed");
            return Ok(Problem::new("DELAYED", &text));
        }
        Ok(Problem::new(
            "NOT_IN_BACKOFF",
            &format!(
                "it is due, in flight, or waits behind an earlier row of its key; `relais explain outbox:{}` \
                 shows which",
                row.id
            ),
        ))
    }
}
