//! Which waiting rows make up a job: the first of each key and of each external id, in order.

use std::collections::HashSet;

use relais_core::{bulk::BulkCandidate, lane::OwnedLane};

/// At most `max` rows with the lanes they were read under. A target takes the rows of a job in any
/// order, so no two may be of one key, nor of one external id (`aggregate_id`; many targets do not
/// tell upper and lower case apart there). What is left out waits for the next job.
pub(crate) fn choose(
    rows: &[BulkCandidate],
    lanes: &[OwnedLane],
    max: usize,
) -> Vec<(i64, OwnedLane)> {
    let (mut keys, mut ids) = (HashSet::new(), HashSet::new());
    let mut chosen = Vec::new();
    for row in rows {
        if chosen.len() >= max {
            break;
        }
        let Some(lane) = lanes.iter().find(|lane| lane.lane == row.lane) else { continue };
        // Both are noted even if the other is there already: later rows of either must wait too.
        let new_key = keys.insert(row.msg_key.as_str());
        let new_id = ids.insert(row.aggregate_id.to_ascii_lowercase());
        if new_key && new_id {
            chosen.push((row.id, *lane));
        }
    }
    chosen
}
