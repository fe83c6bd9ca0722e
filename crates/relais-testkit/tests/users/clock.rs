//! Time that passes when the test says so, on each store.

use std::time::Duration;

use relais::{
    StoreDriver,
    core::{
        lane::{Fence, LaneRequest, OwnedLane, Scope},
        message::NewMessage,
        outbox::OutboxRow,
        query::{CleanupMode, Retention},
        store::Fetch,
    },
};
use relais_testkit::{Database, VirtualClock, build, scratch};

use crate::shop;

const HOUR: Duration = Duration::from_secs(3_600);

async fn lease(store: &dyn StoreDriver, worker: &str) -> Vec<OwnedLane> {
    let fence = Fence { scope: Scope::Outbox("books".into()), worker: worker.into() };
    store.lease_lanes(LaneRequest::new(fence, HOUR)).await.unwrap().lanes
}

async fn due(store: &dyn StoreDriver, lanes: &[OwnedLane]) -> Vec<OutboxRow> {
    let fetch = Fetch::new(Scope::Outbox("books".into()), lanes.to_vec(), 10);
    store.fetch_outbox(fetch).await.unwrap()
}

async fn what_is_delayed_comes_due_and_leases_run_out(database: &dyn Database) {
    let store = database.store();
    let delayed = NewMessage { delay: Some(HOUR), ..build::message("books", "k") };
    store.enqueue(vec![delayed]).await.unwrap();
    let first = lease(&*store, "first").await;
    assert_eq!(first.len(), 64);
    assert_eq!(lease(&*store, "second").await.len(), 0, "all lanes are leased");
    assert_eq!(due(&*store, &first).await, []);

    VirtualClock::advance(database, HOUR - Duration::from_secs(60)).await;
    assert_eq!(due(&*store, &first).await, []);
    assert_eq!(lease(&*store, "second").await.len(), 0);

    VirtualClock::advance(database, Duration::from_millis(60_001)).await;
    assert_eq!(due(&*store, &first).await.len(), 1);
    let second = lease(&*store, "second").await;
    assert_eq!((second.len(), second[0].unclean), (64, true));
}

async fn what_is_old_is_cleaned_up(database: &dyn Database) {
    let store = database.store();
    let mark = "INSERT INTO relais_handled (message_id, handler) VALUES ('m-1', 'billing')";
    database.execute(mark).await.unwrap();
    let day = Retention::default().handled_seconds(86_400);
    VirtualClock::advance(database, 23 * HOUR).await;
    assert_eq!(store.cleanup(day, CleanupMode::Remove { rows_max: 10 }).await.unwrap().handled, 0);
    VirtualClock::advance(database, 2 * HOUR).await;
    assert_eq!(store.cleanup(day, CleanupMode::Remove { rows_max: 10 }).await.unwrap().handled, 1);
    assert_eq!(database.execute(mark).await, Ok(1), "forgotten by now");
}

#[tokio::test]
async fn time_passes_on_sqlite() {
    what_is_delayed_comes_due_and_leases_run_out(&scratch::sqlite().await).await;
    what_is_old_is_cleaned_up(&scratch::sqlite().await).await;
}

#[tokio::test]
async fn time_passes_on_postgresql() {
    let Some(db) = shop::postgres().await else { return };
    what_is_delayed_comes_due_and_leases_run_out(&db).await;
    let Some(db) = shop::postgres().await else { return };
    what_is_old_is_cleaned_up(&db).await;
}
