//! Pending rows that an operator gives up.

use relais_core::{
    dead_letter::{DecisionAction, DecisionResult},
    outbox::{OnDeadLetter, OutboxRow},
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
}
