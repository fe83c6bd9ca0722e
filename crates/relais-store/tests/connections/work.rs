//! A little of everything a store does.

use std::time::Duration;

use relais_core::{
    handler::{HandleOutcome, HandlerWork, Received},
    hydrate::Hydrator,
    inspect::InspectExt,
    lane::{Fence, LaneRelease, LaneRequest, OwnedLane, Scope},
    message::NewMessage,
    outbox::{OutboxFate, OutboxSettlement},
    store::{Fetch, Store},
};
use relais_store::postgres::{PostgresStore, SqlHydrator, handler};
use relais_testkit::build;
use uuid::Uuid;

const LEASE: Duration = Duration::from_secs(60);

fn fence(scope: &Scope, worker: &str) -> Fence {
    Fence { scope: scope.clone(), worker: worker.into() }
}

async fn lease(store: &PostgresStore, scope: &Scope, worker: &str) -> Vec<OwnedLane> {
    let request = LaneRequest::new(fence(scope, worker), LEASE);
    store.lease_lanes(request).await.unwrap().lanes
}

/// Sends `messages` to a destination of its own, delivers them and says how many arrived.
pub(crate) async fn deliver(store: &PostgresStore, destination: &str, messages: usize) -> u64 {
    let scope = Scope::Outbox(destination.into());
    let lanes = lease(store, &scope, "w1").await;
    assert_eq!(lanes.len(), 64);
    let mut delivered = 0;
    for n in 0..messages {
        let key = format!("k-{n}");
        let id = Uuid::new_v4();
        let message = NewMessage::new(id, ("Order", &key), "Placed", destination, "{}".into());
        store.enqueue(vec![message]).await.unwrap();
        let fetch = Fetch::new(scope.clone(), lanes.clone(), 100);
        let rows = store.fetch_outbox(fetch).await.unwrap();
        let epoch = |lane| lanes.iter().find(|owned| owned.lane == lane).unwrap().epoch;
        let settlements = rows.iter().map(|row| OutboxSettlement {
            id: row.id,
            lane: row.lane,
            epoch: epoch(row.lane),
            fate: OutboxFate::Dispatched,
        });
        let settled =
            store.settle_outbox(fence(&scope, "w1"), settlements.collect()).await.unwrap();
        delivered += settled.settled;
        store.changes().await.unwrap();
    }
    store.release_lanes(fence(&scope, "w1"), LaneRelease::All).await.unwrap();
    delivered
}

/// A handler that writes one row of the user's own.
async fn book(
    tx: &tokio_postgres::Transaction<'_>,
    order: Received<serde_json::Value>,
) -> Result<(), tokio_postgres::Error> {
    let id = order.payload["id"].as_str().unwrap_or_default();
    tx.execute("INSERT INTO orders VALUES ($1)", &[&id]).await.map(drop)
}

/// Accepts a message, handles it in a transaction of the user's own, and reads what it wrote.
pub(crate) async fn handle(store: &PostgresStore, id: &str) {
    let lanes = lease(store, &Scope::Inbox, "w1").await;
    let payload = format!("{{\"id\":\"{id}\"}}");
    store.accept(vec![build::arrival_with(id, &payload)], Vec::new()).await.unwrap();
    let row = store.find_inbox(id.into()).await.unwrap().unwrap();
    let epoch = lanes.iter().find(|lane| lane.lane == row.lane).unwrap().epoch;
    let work = HandlerWork { row, fence: fence(&Scope::Inbox, "w1"), epoch };
    let handled = handler(store.pool(), book).handle(work).await;
    assert!(matches!(handled, HandleOutcome::Committed), "{handled:?}");
    let sql = "SELECT id FROM orders WHERE id IN (:ids)";
    let hydrator = SqlHydrator::new(store, sql, "id").unwrap();
    let found = hydrator.hydrate(vec![id.to_owned()]).await.unwrap();
    assert_eq!(found.records.len(), 1);
    store.overview().await.unwrap();
    store.release_lanes(fence(&Scope::Inbox, "w1"), LaneRelease::All).await.unwrap();
}

/// Makes the tables, relais's and one of the user's.
pub(crate) async fn prepare(store: &PostgresStore) {
    store.migrate().await.unwrap();
    store.check().await.unwrap();
    let client = store.pool().get().await.unwrap();
    client.simple_query("CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY)").await.unwrap();
}
