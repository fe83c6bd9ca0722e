//! The order of the messages of one call: each round sends the next message of every key.
//!
//! Pure. A refused message never has a successor of its key behind it.

use std::collections::HashSet;

use relais_core::{delivery::Delivery, outbox::OutboxRow};

/// Builds the message of each row; a row that cannot be sent has its answer instead.
pub(crate) fn prepared<'a, M>(
    rows: &'a [OutboxRow],
    message: impl Fn(&'a OutboxRow) -> Result<M, Delivery>,
) -> (Vec<Option<M>>, Vec<Option<Delivery>>) {
    let split = |row| match message(row) {
        Ok(message) => (Some(message), None),
        Err(delivery) => (None, Some(delivery)),
    };
    rows.iter().map(split).unzip()
}

/// Returns the first unanswered message of every key that has no failed one.
pub(crate) fn key_heads(rows: &[OutboxRow], deliveries: &[Option<Delivery>]) -> Vec<usize> {
    let mut busy = HashSet::new();
    let mut heads = Vec::new();
    for (at, (row, delivery)) in rows.iter().zip(deliveries).enumerate() {
        match delivery {
            Some(Delivery::Accepted) => {}
            Some(_) => {
                busy.insert(row.msg_key.as_str());
            }
            None => {
                if busy.insert(row.msg_key.as_str()) {
                    heads.push(at);
                }
            }
        }
    }
    heads
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::row;

    #[test]
    fn a_key_continues_behind_accepted_messages_only() {
        let rows: Vec<OutboxRow> = ["a", "a", "b", "b", "c"]
            .iter()
            .map(|key| OutboxRow { msg_key: (*key).to_owned(), ..row("{}") })
            .collect();
        let mut deliveries = vec![None; rows.len()];
        assert_eq!(key_heads(&rows, &deliveries), [0, 2, 4]);
        deliveries[0] = Some(Delivery::Accepted);
        deliveries[2] = Some(Delivery::outage("X", "x"));
        assert_eq!(key_heads(&rows, &deliveries), [1, 4]);
    }
}
