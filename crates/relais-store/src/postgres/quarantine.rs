//! Rows that may have killed their worker: losses are noted before the work and forgiven in time.

use relais_core::{
    lane::{Fence, OwnedLane, Scope},
    quarantine::{CLEARED, HOLD_AFTER, HOLD_FOR},
    store::SettleOutcome,
};

use super::session::Client;
use super::{
    error::Failure,
    fence::{LaneProof, Value, settled},
    outbox::destination,
    row,
};

/// Records a lost worker on each row.
pub(super) async fn note_loss(
    client: &Client<'_>,
    fence: &Fence,
    rows: &[(i64, OwnedLane)],
) -> Result<SettleOutcome, Failure> {
    match fence.scope {
        Scope::Inbox | Scope::NamedInbox(_) => note_inbox(client, fence, rows).await,
        Scope::Outbox(_) => note_outbox(client, fence, rows).await,
    }
}

async fn note_inbox(
    client: &Client<'_>,
    fence: &Fence,
    rows: &[(i64, OwnedLane)],
) -> Result<SettleOutcome, Failure> {
    let proof = LaneProof::of(rows);
    let scope = fence.scope.to_string();
    let statement = client.prepare_cached(sql!("mark_inbox_in_flight")).await?;
    let mut values = proof.values(&[&fence.worker]);
    values.push(&scope);
    Ok(settled(proof.len(), client.execute(&statement, &values).await?))
}

async fn note_outbox(
    client: &Client<'_>,
    fence: &Fence,
    rows: &[(i64, OwnedLane)],
) -> Result<SettleOutcome, Failure> {
    let destination = destination(&fence.scope)?;
    let scope = fence.scope.to_string();
    let proof = LaneProof::of(rows);
    let statement = client.prepare_cached(sql!("mark_outbox_in_flight")).await?;
    let values = proof.values(&[&scope, &fence.worker, &destination]);
    Ok(settled(proof.len(), client.execute(&statement, &values).await?))
}

pub(super) async fn end(
    client: &Client<'_>,
    fence: &Fence,
    lanes: &[OwnedLane],
) -> Result<SettleOutcome, Failure> {
    let scope = fence.scope.to_string();
    let lanes: Vec<i16> = lanes.iter().map(|lane| lane.lane).collect();
    let inbox = fence.scope.inbox().unwrap_or_default();
    let (held, cleared) = (row::lost_workers(HOLD_AFTER), row::lost_workers(CLEARED));
    let hold_ms = row::millis(HOLD_FOR);
    let (statement, values): (_, Vec<Value<'_>>) = match &fence.scope {
        Scope::Inbox | Scope::NamedInbox(_) => (
            client.prepare_cached(sql!("end_inbox_quarantine")).await?,
            vec![&scope, &fence.worker, &lanes, &held, &cleared, &inbox],
        ),
        Scope::Outbox(destination) => (
            client.prepare_cached(sql!("end_outbox_quarantine")).await?,
            vec![&scope, &fence.worker, destination, &lanes, &held, &cleared, &hold_ms],
        ),
    };
    Ok(settled(0, client.execute(&statement, &values).await?))
}
