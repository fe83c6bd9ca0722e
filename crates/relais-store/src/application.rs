//! The methods of a store that applications call, so that they need not import the traits of the engine.

/// Adds them to a store. Each calls the method of its name of a trait.
macro_rules! application_methods {
    ($store:ty) => {
        impl $store {
            /// Creates or updates the tables of relais. Safe against other nodes and interruption.
            pub async fn migrate(&self) -> StoreResult<MigrationOutcome> {
                Store::migrate(self).await
            }

            /// Fails, with the next step for the operator, on wrong versions, unsafe durability, missing
            /// privileges and a schema that does not fit this program. Changes nothing.
            pub async fn check(&self) -> StoreResult<()> {
                Store::check(self).await
            }

            /// Stores received messages, and the positions of a source up to which it was read, in one
            /// transaction. Returns one answer for each message, in order.
            pub async fn accept(
                &self,
                messages: Vec<NewInbox>,
                positions: Vec<SourcePosition>,
            ) -> StoreResult<Vec<AcceptOutcome>> {
                Store::accept(self, messages, positions).await
            }

            /// Writes outbox rows in a transaction of their own; returns their ids, in order. In your own
            /// transaction use `Outbox`. A message that its destination has already, by its message id, is not
            /// written again: its row's id comes back. If that row has another payload, event type or key, the
            /// whole batch is refused.
            pub async fn enqueue(&self, messages: Vec<NewMessage>) -> StoreResult<Vec<i64>> {
                Store::enqueue(self, messages).await
            }

            /// Removes, or counts, finished rows past their retention. A running `App` removes them by itself.
            pub async fn cleanup(
                &self,
                retention: Retention,
                mode: CleanupMode,
            ) -> StoreResult<CleanupCounts> {
                Store::cleanup(self, retention, mode).await
            }

            /// Returns the numbers of rows by state, the backlogs, parked keys and workers.
            pub async fn overview(&self) -> StoreResult<Overview> {
                Inspect::overview(self).await
            }
        }
    };
}
