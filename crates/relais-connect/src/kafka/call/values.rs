//! The values of the rows of a call, before anything is sent.

use std::collections::HashSet;

use relais_core::{
    delivery::Delivery, extract::VALUE_EMPTY, extract::VALUE_TOMBSTONE, message::HEADER_VALUE,
};

use super::PublishCall;
use crate::kafka::encoder::ValueEncoder;

impl PublishCall<'_> {
    /// Encodes the payloads. A row that cannot be encoded gets its result now, and later rows of its key are held.
    /// An outage of the registry is that of all rows that are left.
    pub(super) async fn encode(&mut self, encoder: &ValueEncoder) {
        let is_one_topic = self.publisher.topic().is_fixed();
        let mut blocked = HashSet::new();
        for (at, row) in self.rows.iter().enumerate() {
            if self.deliveries[at].is_some() {
                blocked.insert(row.msg_key.as_str());
                continue;
            }
            if blocked.contains(row.msg_key.as_str()) {
                self.deliveries[at] = Some(Delivery::Held);
                continue;
            }
            let absent = row.headers.get(HEADER_VALUE);
            if matches!(absent, Some(VALUE_TOMBSTONE | VALUE_EMPTY)) {
                continue;
            }
            let encoded = encoder.encode(row, &self.topics[at], is_one_topic);
            let encoded = match tokio::time::timeout_at(self.deadline, encoded).await {
                Ok(encoded) => encoded,
                Err(_) => Err(Delivery::outage(
                    "REGISTRY_UNAVAILABLE",
                    "the schema registry gave no answer in time; check it, or raise the `timeout`",
                )),
            };
            match encoded {
                Ok(value) => self.values[at] = Some(value),
                Err(Delivery::Outage { problem, .. }) => return self.give_up(&problem),
                Err(delivery) => {
                    blocked.insert(row.msg_key.as_str());
                    self.deliveries[at] = Some(delivery);
                }
            }
        }
    }
}
