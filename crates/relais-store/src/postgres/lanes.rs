//! Ownership of lanes: leased, renewed, given back. Only the database's clock decides.
//!
//! Invariant: a statement that changes a lane's owner or lease has locked its row, in order of the lanes; a
//! settlement holds a shared lock on it until it has committed.

use futures_util::future::{try_join, try_join5};
use relais_core::lane::{
    Fence, LANES, LaneGrant, LaneHandOver, LaneRelease, LaneRequest, OwnedLane, share,
};
use tokio_postgres::{Row, types::ToSql};

use super::session::Client;
use super::{error::Failure, row};

/// One heartbeat.
pub(super) async fn lease(
    client: &mut Client<'_>,
    request: &LaneRequest,
) -> Result<LaneGrant, Failure> {
    let scope = request.fence.scope.to_string();
    let worker = &request.fence.worker;
    let lease_ms = row::millis(request.lease);
    let heartbeat = client.prepare_cached(sql!("heartbeat")).await?;
    let make = client.prepare_cached(sql!("make_lanes")).await?;
    let forget = client.prepare_cached(sql!("forget_workers")).await?;
    let live = client.prepare_cached(sql!("live_workers")).await?;
    let renew = client.prepare_cached(sql!("renew_lanes")).await?;
    let elsewhere = client.prepare_cached(sql!("types_elsewhere")).await?;
    let wanted = client.prepare_cached(sql!("take_wanted_lanes")).await?;
    let take = client.prepare_cached(sql!("take_lanes")).await?;
    let known = &request.event_types;
    let announced = (!known.is_empty()).then_some(known);

    let transaction = client.transaction().await?;
    let (_, _, _, live, renewed) = try_join5(
        transaction.execute(&heartbeat, &[&scope, worker, &lease_ms, &announced]),
        transaction.execute(&make, &[&scope]),
        transaction.execute(&forget, &[&scope]),
        transaction.query_one(&live, &[&scope, &lease_ms]),
        transaction.query(&renew, &[&scope, worker, &lease_ms]),
    )
    .await?;
    let fair = share(usize::try_from(live.get::<_, i64>(0)).unwrap_or(1));
    let mut lanes: Vec<OwnedLane> = renewed
        .iter()
        .map(|row| OwnedLane { lane: row.get(0), epoch: row.get(1), unclean: false })
        .collect();
    let (elsewhere, handed) = try_join(
        transaction.query(&elsewhere, &[&scope, worker, known]),
        transaction.query(&wanted, &[&scope, worker, &lease_ms, known]),
    )
    .await?;
    let types_elsewhere: Vec<String> = elsewhere.iter().map(|row| row.get(0)).collect();
    let handed_over = handed.iter().map(|row| row.get(0)).collect();
    lanes.extend(handed.iter().map(taken));
    let surplus = lanes.len().saturating_sub(fair);
    let wanted = row::count(fair.saturating_sub(lanes.len()).min(usize::from(LANES)));
    if wanted > 0 {
        let values: [&(dyn ToSql + Sync); 5] =
            [&scope, worker, &lease_ms, &wanted, &types_elsewhere];
        let loose = transaction.query(&take, &values).await?;
        lanes.extend(loose.iter().map(taken));
    }
    crate::fail_point!("lease.before_commit");
    transaction.commit().await?;
    lanes.sort_unstable();
    Ok(LaneGrant { lanes, surplus, handed_over, types_elsewhere })
}

fn taken(row: &Row) -> OwnedLane {
    OwnedLane { lane: row.get(0), epoch: row.get(1), unclean: row.get(2) }
}

/// Gives lanes back.
pub(super) async fn release(
    client: &mut Client<'_>,
    fence: &Fence,
    release: &LaneRelease,
) -> Result<(), Failure> {
    match release {
        LaneRelease::Lanes(lanes) => give_back(client, fence, lanes).await,
        LaneRelease::HandOver(lanes) => hand_over(client, fence, lanes).await,
        LaneRelease::All => leave(client, fence).await,
    }
}

/// Gives lanes back for workers that know an event type.
async fn hand_over(
    client: &mut Client<'_>,
    fence: &Fence,
    lanes: &[LaneHandOver],
) -> Result<(), Failure> {
    let give = client.prepare_cached(sql!("hand_over_lanes")).await?;
    let count = client.prepare_cached(sql!("count_hand_over")).await?;
    let numbers: Vec<i16> = lanes.iter().map(|lane| lane.lane).collect();
    let types: Vec<&str> = lanes.iter().map(|lane| lane.event_type.as_str()).collect();
    let unclean: Vec<bool> = lanes.iter().map(|lane| lane.unclean).collect();
    let (scope, worker) = (fence.scope.to_string(), &fence.worker);
    let transaction = client.transaction().await?;
    try_join(
        transaction.execute(&give, &[&scope, worker, &numbers, &types, &unclean]),
        transaction.execute(&count, &[&scope, worker]),
    )
    .await?;
    transaction.commit().await?;
    Ok(())
}

async fn give_back(client: &Client<'_>, fence: &Fence, lanes: &[i16]) -> Result<(), Failure> {
    let statement = client.prepare_cached(sql!("release_lanes")).await?;
    client.execute(&statement, &[&fence.scope.to_string(), &fence.worker, &lanes]).await?;
    Ok(())
}

/// Gives every lane back and leaves the scope.
async fn leave(client: &mut Client<'_>, fence: &Fence) -> Result<(), Failure> {
    let scope = fence.scope.to_string();
    let free = client.prepare_cached(sql!("free_lanes")).await?;
    let leave = client.prepare_cached(sql!("leave_scope")).await?;
    let transaction = client.transaction().await?;
    try_join(
        transaction.execute(&free, &[&scope, &fence.worker]),
        transaction.execute(&leave, &[&scope, &fence.worker]),
    )
    .await?;
    crate::fail_point!("leave.before_commit");
    transaction.commit().await?;
    Ok(())
}
