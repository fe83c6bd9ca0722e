//! A schema with relais's tables and one of the user's, and what tests do with it.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
    time::Duration,
};

use relais_core::{
    handler::{HandlerWork, Received},
    inspect::InspectExt,
    lane::{Fence, LaneRequest, OwnedLane, Scope},
    message::NewMessage,
    outbox::{OutboxFate, OutboxRow, OutboxSettlement},
    store::{Fetch, SettleOutcome, Store},
};
use relais_store::postgres::{PostgresOptions, PostgresStore};
use relais_testkit::build;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::postgres::PostgresSchema;

pub(crate) const DESTINATION: &str = "orders";
const LEASE: Duration = Duration::from_secs(60);

pub(crate) struct Bed {
    pub(crate) store: PostgresStore,
    /// A connection that knows nothing of relais and may do everything.
    pub(crate) raw: Client,
    pub(crate) schema: PostgresSchema,
}

impl Bed {
    /// `None` without a server.
    pub(crate) async fn new() -> Option<Self> {
        let bed = Self::empty().await?;
        bed.schema.migrate().await.unwrap();
        bed.raw.batch_execute("CREATE TABLE orders (id text PRIMARY KEY)").await.unwrap();
        Some(bed)
    }

    /// With a store that has one connection only.
    pub(crate) async fn single() -> Option<Self> {
        let mut bed = Self::new().await?;
        let options = PostgresOptions::default().connections_max(4);
        bed.store = PostgresStore::connect(&bed.schema.url(), options).await.unwrap();
        Some(bed)
    }

    pub(crate) async fn empty() -> Option<Self> {
        let schema = PostgresSchema::create().await?;
        Some(Self { store: schema.store().await, raw: schema.client().await, schema })
    }

    pub(crate) async fn count(&self, table_and_where: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM {table_and_where}");
        self.raw.query_one(&sql, &[]).await.unwrap().get(0)
    }

    pub(crate) async fn lease(&self, scope: Scope, worker: &str) -> Vec<OwnedLane> {
        let request = LaneRequest::new(fence(scope, worker), LEASE);
        self.store.lease_lanes(request).await.unwrap().lanes
    }

    /// All lanes of the outbox, for worker `w1`.
    pub(crate) async fn lanes(&self) -> Vec<OwnedLane> {
        self.lease(outbox(), "w1").await
    }

    pub(crate) async fn fetch(&self, lanes: &[OwnedLane]) -> Vec<OutboxRow> {
        let fetch = Fetch::new(outbox(), lanes.to_vec(), 100);
        self.store.fetch_outbox(fetch).await.unwrap()
    }

    pub(crate) async fn ids(&self, lanes: &[OwnedLane]) -> Vec<i64> {
        self.fetch(lanes).await.iter().map(|row| row.id).collect()
    }

    pub(crate) async fn settle(
        &self,
        rows: &[OutboxRow],
        lanes: &[OwnedLane],
        fate: &OutboxFate,
    ) -> SettleOutcome {
        let epoch = |lane| lanes.iter().find(|owned| owned.lane == lane).unwrap().epoch;
        let settlement = |row: &OutboxRow| OutboxSettlement {
            id: row.id,
            lane: row.lane,
            epoch: epoch(row.lane),
            fate: fate.clone(),
        };
        let rows = rows.iter().map(settlement).collect();
        self.store.settle_outbox(fence(outbox(), "w1"), rows).await.unwrap()
    }

    /// Writes one message for the key; the row's id.
    pub(crate) async fn send(&self, key: &str) -> i64 {
        self.store.enqueue(vec![message(key)]).await.unwrap()[0]
    }

    /// Stores one event and gives the work to handle it.
    pub(crate) async fn work(&self, payload: &str) -> HandlerWork {
        let lanes = self.lease(Scope::Inbox, "w1").await;
        self.store.accept(vec![build::arrival_with("m-1", payload)], Vec::new()).await.unwrap();
        let row = self.store.find_inbox("m-1".into()).await.unwrap().unwrap();
        let epoch = lanes.iter().find(|lane| lane.lane == row.lane).unwrap().epoch;
        HandlerWork { row, fence: fence(Scope::Inbox, "w1"), epoch }
    }
}

/// Polls once; `None` while it is not ready.
pub(crate) async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    poll_fn(|context| {
        Poll::Ready(match Pin::new(&mut *future).poll(context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

pub(crate) fn fence(scope: Scope, worker: &str) -> Fence {
    Fence { scope, worker: worker.into() }
}

pub(crate) fn outbox() -> Scope {
    Scope::Outbox(DESTINATION.into())
}

pub(crate) fn message(key: &str) -> NewMessage {
    let payload = format!("{{\"key\":\"{key}\"}}");
    NewMessage::new(Uuid::new_v4(), ("Order", key), "OrderCreated", DESTINATION, payload)
}

/// A handler that writes one row of the user's own.
pub(crate) async fn book(
    tx: &tokio_postgres::Transaction<'_>,
    order: Received<serde_json::Value>,
) -> Result<(), tokio_postgres::Error> {
    let id = order.payload["id"].as_str().unwrap_or_default();
    tx.execute("INSERT INTO orders VALUES ($1)", &[&id]).await.map(drop)
}
