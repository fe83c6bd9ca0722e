//! Settles outbox rows in one fenced statement; singly if the database refuses that.

use relais_core::{
    delivery::Problem,
    outbox::{OnDeadLetter, OutboxFate, OutboxSettlement},
    store::{Settled, StoreError},
};

use super::Relay;

impl Relay {
    /// Settles returned calls. If the store is unavailable, the settlements stay here for the next pass,
    /// except dead letters: one that was committed may be decided by an operator before the next pass.
    pub(super) async fn settle(&mut self) -> Result<usize, StoreError> {
        if self.settlements.is_empty() {
            return Ok(0);
        }
        let fence = self.reader.keeper().fence().clone();
        let settled = match self.store.settle_outbox(fence, self.settlements.clone()).await {
            Err(StoreError::Invalid(reason)) => self.settle_singly(&reason).await,
            settled => settled,
        };
        match settled {
            Err(error) => {
                let dead = |s: &mut OutboxSettlement| matches!(s.fate, OutboxFate::Dead { .. });
                let dropped = self.settlements.extract_if(.., dead).map(|s| s.id);
                self.reader.queues.release(dropped);
                if self.settlements.is_empty() {
                    self.forgotten.clear();
                }
                Err(error)
            }
            Ok(settled) => {
                crate::fail_point!("relay.after_settle");
                if settled.refused > 0 {
                    self.counters.refused(settled.refused);
                    self.reader.keeper().distrust();
                }
                let done = self.settlements.len();
                self.reader.queues.release(self.settlements.drain(..).map(|s| s.id));
                self.forgotten.clear();
                Ok(done)
            }
        }
    }

    /// Settles each row by itself, after the database refused the batch. The refused row becomes a dead
    /// letter with the reason.
    async fn settle_singly(&mut self, reason: &str) -> Result<Settled, StoreError> {
        tracing::warn!(reason, "database refused a batch; settling its rows singly");
        let fence = self.reader.keeper().fence().clone();
        let park = self.settings.on_dead_letter == OnDeadLetter::Park;
        let mut all = Settled::default();
        while let Some(settlement) = self.settlements.last().cloned() {
            let settle = |fate| vec![OutboxSettlement { fate, ..settlement.clone() }];
            let mut answer =
                self.store.settle_outbox(fence.clone(), settle(settlement.fate.clone())).await;
            if let Err(StoreError::Invalid(reason)) = &answer {
                let delivered = settlement.fate == OutboxFate::Dispatched;
                let what = if delivered { "delivered, but " } else { "" };
                let text = format!("{what}the database refused to record it: {reason}");
                let problem = Problem::new("STORE_REFUSED", &text);
                self.counters.failed(&problem);
                let dead = OutboxFate::Dead { attempts: 1, problem, park };
                answer = self.store.settle_outbox(fence.clone(), settle(dead)).await;
            }
            match answer {
                Ok(settled) => {
                    all.settled += settled.settled;
                    all.refused += settled.refused;
                    self.reader.queues.release([settlement.id]);
                }
                Err(StoreError::Invalid(reason)) => self.give_up(&settlement, &reason),
                Err(error) => return Err(error),
            }
            self.settlements.pop();
        }
        Ok(all)
    }

    /// Keeps a row whose every settlement the database refused, so that it is not sent again. If it was
    /// not delivered, its key waits too.
    fn give_up(&mut self, settlement: &OutboxSettlement, reason: &str) {
        tracing::error!(
            row = settlement.id,
            "cannot settle outbox row: {reason}; remove the trigger or constraint on relais_outbox that \
             refuses the change, then restart this process"
        );
        self.stuck.extend(self.forgotten.get(&settlement.id).cloned());
    }
}
