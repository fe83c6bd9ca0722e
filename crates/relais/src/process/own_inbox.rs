//! The inbox of this program as a destination: commands of processes for handlers, and their answers.
//!
//! Invariant: a message counts as delivered only after its inbox row is committed. A repeated delivery is a
//! duplicate there, because the id of the row is that of the message.

use std::sync::Arc;

use relais_core::{
    async_trait,
    delivery::Delivery,
    outbox::OutboxRow,
    process::handler_step::into_inbox,
    publisher::{Batching, Publisher},
    store::{Store, StoreError},
};

use crate::wake;

/// Maximum number of messages stored in one transaction.
const BATCH_MAX: usize = 500;

/// Stores messages of the outbox in an inbox of the same database.
pub(crate) struct OwnInbox {
    pub(crate) store: Arc<dyn Store>,
    /// Its name; '' is the inbox without a name.
    pub(crate) inbox: String,
}

#[async_trait]
impl Publisher for OwnInbox {
    async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery> {
        let rows = messages.iter().map(|message| into_inbox(message, &self.inbox)).collect();
        let delivery = match self.store.accept(rows, Vec::new()).await {
            Ok(_) => {
                crate::fail_point!("own_inbox.after_accept");
                wake::committed_to([]);
                Delivery::Accepted
            }
            Err(StoreError::Invalid(why)) => Delivery::retry("STORE_REFUSED", &why),
            Err(error) => Delivery::outage("STORE_UNAVAILABLE", &error.to_string()),
        };
        vec![delivery; messages.len()]
    }

    fn batching(&self) -> Batching {
        Batching::InOrder { max: BATCH_MAX }
    }
}
