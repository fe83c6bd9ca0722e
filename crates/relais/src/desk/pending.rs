//! Pending rows that an operator gives up.

use relais_core::{
    desk::{Decided, FailRow},
    outbox::{OnDeadLetter, OutboxRow},
    store::StoreError,
};

use super::{Answer, By, Desk, refused};

impl Desk {
    /// Makes a dead letter of a pending outbox row (`OPERATOR_FAILED`). It parks its key as any other of
    /// its destination. A worker that has the row in flight may still deliver it once; its settlement is
    /// refused.
    pub async fn fail(&self, row: &OutboxRow, by: &By) -> Result<Answer, StoreError> {
        let on_dead_letter = if self.skipping.contains(&row.destination) {
            OnDeadLetter::Skip
        } else {
            OnDeadLetter::Park
        };
        let By { actor, reason } = by.clone();
        let fail = FailRow { on_dead_letter, actor, reason };
        let decided = self.store.fail_outbox(row.id, fail).await?;
        crate::fail_point!("desk.after_fail");
        Ok(match decided {
            Decided::Done => Answer::Done,
            Decided::NotFound => Answer::NotFound,
            Decided::ResolvedBefore => {
                refused("NOT_PENDING", "a worker has settled it; only a pending row can be failed")
            }
        })
    }
}
