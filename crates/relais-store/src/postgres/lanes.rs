//! Ownership of lanes: leased, renewed, given back. Only the database's clock decides.
//!
//! Invariant: a statement that changes a lane's owner has locked its row, in order of the lanes; a
//! settlement holds a shared lock on it until it has committed. A transaction that takes a lane from a lost
//! worker holds a lock on that worker's expired lease, so a lease that was renewed in time lost no lane.

use futures_util::future::{try_join, try_join3, try_join4, try_join5};
use relais_core::lane::{
    Fence, LANES, LaneGrant, LaneHandOver, LaneRelease, LaneRequest, LeaseRenewal, OwnedLane,
    ScopeAnnouncement, share,
};
use tokio_postgres::{Row, types::ToSql};

use super::session::Client;
use super::{error::Failure, row};

/// Renews the lease of a worker and announces its scopes; returns the term of the lease.
pub(super) async fn renew(client: &mut Client<'_>, renewal: &LeaseRenewal) -> Result<i64, Failure> {
    let LeaseRenewal { worker, lease, announce } = renewal;
    let lease_ms = row::millis(*lease);
    let renew = client.prepare_cached(sql!("renew_lease")).await?;
    if announce.is_empty() {
        return Ok(client.query_one(&renew, &[worker, &lease_ms]).await?.get(0));
    }
    let forget = client.prepare_cached(sql!("forget_workers")).await?;
    let announcing = client.prepare_cached(sql!("announce")).await?;
    let count = client.prepare_cached(sql!("count_move")).await?;
    let (scopes, types) = announcement(announce);
    let transaction = client.transaction().await?;
    let (term, _, _, _) = try_join4(
        transaction.query_one(&renew, &[worker, &lease_ms]),
        transaction.execute(&forget, &[]),
        transaction.execute(&announcing, &[worker, &scopes, &types]),
        transaction.execute(&count, &[worker]),
    )
    .await?;
    transaction.commit().await?;
    Ok(term.get(0))
}

/// Returns the scopes, and the event types of each as JSON.
fn announcement(announce: &[ScopeAnnouncement]) -> (Vec<String>, Vec<Option<String>>) {
    let types = |types: &[String]| {
        let json = || serde_json::to_string(types).expect("texts are JSON");
        (!types.is_empty()).then(json)
    };
    announce.iter().map(|a| (a.scope.to_string(), types(&a.event_types))).unzip()
}

/// Renews the lease, and takes lanes of one scope up to the fair share.
pub(super) async fn lease(
    client: &mut Client<'_>,
    request: &LaneRequest,
) -> Result<LaneGrant, Failure> {
    let LaneRequest { fence: Fence { scope, worker }, lease, event_types: known } = request;
    let (scope, lease_ms) = (scope.to_string(), row::millis(*lease));
    let renew = client.prepare_cached(sql!("renew_lease")).await?;
    let announcing = client.prepare_cached(sql!("announce")).await?;
    let make = client.prepare_cached(sql!("make_lanes")).await?;
    let orphans = client.prepare_cached(sql!("expire_missing")).await?;
    let live = client.prepare_cached(sql!("live_workers")).await?;
    let owned = client.prepare_cached(sql!("owned_lanes")).await?;
    let elsewhere = client.prepare_cached(sql!("types_elsewhere")).await?;
    let wanted = client.prepare_cached(sql!("take_wanted_lanes")).await?;
    let lost = client.prepare_cached(sql!("lost_workers")).await?;
    let take = client.prepare_cached(sql!("take_lanes")).await?;
    let others = client.prepare_cached(sql!("other_owners")).await?;
    let count = client.prepare_cached(sql!("count_move")).await?;
    let announced =
        ScopeAnnouncement { scope: request.fence.scope.clone(), event_types: known.clone() };
    let (scopes, types) = announcement(&[announced]);

    let transaction = client.transaction().await?;
    // First: it locks the lease, so that no other worker takes this one for lost meanwhile.
    let term: i64 = transaction.query_one(&renew, &[worker, &lease_ms]).await?.get(0);
    let (news, _, _) = try_join3(
        transaction.execute(&announcing, &[worker, &scopes, &types]),
        transaction.execute(&make, &[&scope]),
        transaction.execute(&orphans, &[&scope]),
    )
    .await?;
    if news > 0 {
        transaction.execute(&count, &[worker]).await?;
    }
    let (live, owned, elsewhere, handed, lost) = try_join5(
        transaction.query_one(&live, &[&scope, &lease_ms]),
        transaction.query(&owned, &[&scope, worker]),
        transaction.query(&elsewhere, &[&scope, worker, known]),
        transaction.query(&wanted, &[&scope, worker, known]),
        transaction.query(&lost, &[&scope, worker, &lease_ms]),
    )
    .await?;
    let fair = share(usize::try_from(live.get::<_, i64>(0)).unwrap_or(1));
    let mut lanes: Vec<OwnedLane> = owned
        .iter()
        .map(|row| OwnedLane { lane: row.get(0), epoch: row.get(1), unclean: false })
        .collect();
    let types_elsewhere: Vec<String> = elsewhere.iter().map(|row| row.get(0)).collect();
    let lost: Vec<String> = lost.iter().map(|row| row.get(0)).collect();
    let handed_over = handed.iter().map(|row| row.get(0)).collect();
    lanes.extend(handed.iter().map(taken));
    let surplus = lanes.len().saturating_sub(fair);
    let wanted = row::count(fair.saturating_sub(lanes.len()).min(usize::from(LANES)));
    if wanted > 0 {
        let values: [&(dyn ToSql + Sync); 5] = [&scope, worker, &lost, &wanted, &types_elsewhere];
        let loose = transaction.query(&take, &values).await?;
        lanes.extend(loose.iter().map(taken));
    }
    let others = transaction.query(&others, &[&scope, worker]).await?;
    let is_settled = |row: &Row| row.get(1) && row.get::<_, i64>(0) <= row::count(fair);
    let unsettled = lanes.len() < fair && !others.iter().all(is_settled);
    crate::fail_point!("lease.before_commit");
    transaction.commit().await?;
    lanes.sort_unstable();
    Ok(LaneGrant { term, unsettled, lanes, surplus, handed_over, types_elsewhere })
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
        transaction.execute(&count, &[worker]),
        transaction.execute(&give, &[&scope, worker, &numbers, &types, &unclean]),
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
    let count = client.prepare_cached(sql!("count_move")).await?;
    let end = client.prepare_cached(sql!("end_lease")).await?;
    let transaction = client.transaction().await?;
    // The first locks the lease, so that of two scopes left at once the second sees the first.
    try_join3(
        transaction.execute(&count, &[&fence.worker]),
        transaction.execute(&free, &[&scope, &fence.worker]),
        transaction.execute(&end, &[&fence.worker]),
    )
    .await?;
    crate::fail_point!("leave.before_commit");
    transaction.commit().await?;
    Ok(())
}
