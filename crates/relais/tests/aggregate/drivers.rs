//! The drivers beside sqlx: tokio-postgres, deadpool and rusqlite.

use relais::{
    Persist, PersistBlocking, SaveError,
    sqlite::{SqliteOptions, SqliteStore},
};

use crate::{
    order::{Order, OrderPaid, OrderPlaced, TABLE, outbox, repository},
    postgres::Fixture,
};

impl Persist<tokio_postgres::Transaction<'_>> for Order {
    type Error = tokio_postgres::Error;

    async fn persist(
        &self,
        tx: &mut tokio_postgres::Transaction<'_>,
        version: i64,
    ) -> Result<u64, Self::Error> {
        tx.execute(self.statement(version), &[&self.id, &self.lines, &version]).await
    }
}

/// The transaction of a handler of `postgres::handler`.
impl Persist<&tokio_postgres::Transaction<'_>> for Order {
    type Error = tokio_postgres::Error;

    async fn persist(
        &self,
        tx: &mut &tokio_postgres::Transaction<'_>,
        version: i64,
    ) -> Result<u64, Self::Error> {
        tx.execute(self.statement(version), &[&self.id, &self.lines, &version]).await
    }
}

impl PersistBlocking<rusqlite::Transaction<'_>> for Order {
    type Error = rusqlite::Error;

    fn persist(&self, tx: &rusqlite::Transaction<'_>, version: i64) -> rusqlite::Result<usize> {
        tx.execute(self.statement(version), (&self.id, self.lines, version))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokio_postgres_saves_in_its_own_transaction() {
    let Some(fixture) = Fixture::new().await else { return };
    let mut client = fixture.store.pool().get().await.unwrap();
    let client: &mut tokio_postgres::Client = &mut client;
    let mut order = Order::place("o-1");
    let mut tx = client.transaction().await.unwrap();
    repository().save(&mut tx, &mut order).await.unwrap();
    tx.commit().await.unwrap();
    order.add_line();
    let tx = client.transaction().await.unwrap();
    repository().save(&mut &tx, &mut order).await.unwrap();
    tx.commit().await.unwrap();

    let mut stale = Order::read("o-1", 0, 1);
    let mut tx = client.transaction().await.unwrap();
    let refused = repository().save(&mut tx, &mut stale).await.unwrap_err();
    assert!(matches!(refused, SaveError::Conflict { version: 1, .. }), "{refused}");
    drop(tx);
    assert_eq!((order.events.version(), outbox(&fixture.store).await.len()), (2, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rusqlite_saves_in_its_own_transaction() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shop.db");
    let store = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    store.migrate().await.unwrap();
    let mut db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch(TABLE).unwrap();

    let mut order = Order::place("o-1");
    let tx = db.transaction().unwrap();
    repository().save_blocking(&tx, &mut order).unwrap();
    tx.rollback().unwrap();
    assert_eq!(outbox(&store).await.len(), 0);

    let mut order = Order::place("o-1");
    order.add_line();
    let tx = db.transaction().unwrap();
    let ids = repository().save_blocking(&tx, &mut order).unwrap();
    tx.commit().unwrap();
    let stored: Vec<_> = outbox(&store).await.iter().map(|row| row.message_id).collect();
    assert_eq!((stored, order.events.version()), (ids, 1));

    let mut stale = Order::read("o-1", 0, 7);
    let tx = db.transaction().unwrap();
    let refused = repository().save_blocking(&tx, &mut stale).unwrap_err();
    assert!(matches!(refused, SaveError::Conflict { version: 7, .. }), "{refused}");
}

#[test]
#[should_panic(expected = "event type `OrderPlaced` goes to `orders` already, not to `billing`")]
fn an_event_type_has_one_destination() {
    let repository = repository().event::<OrderPlaced>("orders");
    let _ = repository.event::<OrderPlaced>("billing");
}

#[test]
fn recorded_events_can_be_read_without_a_database() {
    let mut order = Order::place("o-1");
    let event_id = uuid::Uuid::now_v7();
    order.events.record(&OrderPaid { event_id, order_id: "o-1".into() });
    let recorded: Vec<_> = order.events.recorded().iter().map(|event| event.event_type()).collect();
    assert_eq!(recorded, ["OrderPlaced", "OrderPaid"]);
    assert_eq!(order.events.recorded()[1].message_id(), event_id);
    assert_eq!(order.events.recorded()[0].payload(), Some(r#"{"order_id":"o-1"}"#));
}
