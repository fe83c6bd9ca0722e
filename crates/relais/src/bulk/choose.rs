//! Chooses the rows of a job: the first of each key and of each external id, in order.

use std::collections::HashSet;

use relais_core::{lane::OwnedLane, outbox::OutboxRow};

/// Returns at most `max` rows with the lanes they were read under. A target applies the rows of a job in
/// any order, so no two may have the same key or the same external id (`aggregate_id`; many targets
/// ignore its case). Other rows wait for the next job.
pub(crate) fn choose(rows: &[OutboxRow], lanes: &[OwnedLane], max: usize) -> Vec<(i64, OwnedLane)> {
    let (mut keys, mut ids) = (HashSet::new(), HashSet::new());
    let mut chosen = Vec::new();
    for row in rows {
        if chosen.len() >= max {
            break;
        }
        let Some(lane) = lanes.iter().find(|lane| lane.lane == row.lane) else { continue };
        // Both are recorded even if one is known already: later rows of either must wait too.
        let new_key = keys.insert(row.msg_key.as_str());
        let new_id = ids.insert(row.aggregate_id.to_ascii_lowercase());
        if new_key && new_id {
            chosen.push((row.id, *lane));
        }
    }
    chosen
}
