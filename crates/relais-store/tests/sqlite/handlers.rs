//! User code and the row's end in one commit.

use std::{sync::Arc, time::Duration};

use relais_core::{
    handler::{HandleOutcome, Handler, Outcome, Received},
    lane::{Fence, LaneRelease, LaneRequest, Scope},
    store::Store,
};
use relais_store::{BlockingTransaction, sqlite::handler};
use rusqlite::Transaction;
use serde::Deserialize;

use crate::bed::{Bed, message};

#[derive(Deserialize)]
pub(crate) struct Order {
    pub(crate) id: String,
    /// The action of the handler after it wrote the order.
    pub(crate) then: String,
}

const DONE: &str = r#"{"id":"o-1","then":"done"}"#;

fn on_order(tx: &Transaction<'_>, order: Received<Order>) -> Result<Outcome, rusqlite::Error> {
    tx.execute("INSERT INTO orders VALUES (?1)", [&order.payload.id])?;
    tx.enqueue(&[message("o-1")]).expect("enqueue");
    Ok(match order.payload.then.as_str() {
        "retry" => Outcome::retry("LATER", "not now"),
        "fail" => Outcome::fail("NEVER", "no"),
        "panic" => panic!("a bug in user code"),
        "end" => {
            tx.execute_batch("ROLLBACK")?;
            Outcome::Done
        }
        "deferred" => {
            tx.execute_batch("INSERT INTO lines VALUES ('no such order')")?;
            Outcome::Done
        }
        _ => Outcome::Done,
    })
}

/// Nothing of the handler's is there, and the row is as it was.
fn assert_undone(bed: &Bed) {
    assert_eq!((bed.count("orders"), bed.count("relais_outbox")), (0, 0));
    assert_eq!(bed.count("relais_inbox WHERE status = 'RECEIVED' AND attempts = 0"), 1);
}

fn assert_done(bed: &Bed) {
    assert_eq!((bed.count("orders"), bed.count("relais_outbox")), (1, 1));
    assert_eq!(bed.count("relais_inbox WHERE status = 'PROCESSED' AND attempts = 1"), 1);
}

/// Every end a handler can have, the same in both drivers.
async fn check_ends(make: impl AsyncFn(&Bed) -> Arc<dyn Handler>) {
    let bed = Bed::new().await;
    let work = bed.work(DONE).await;
    let handler = make(&bed).await;
    assert!(matches!(handler.handle(work.clone()).await, HandleOutcome::Committed));
    assert_done(&bed);
    bed.raw().execute_batch("DELETE FROM orders").unwrap();
    assert!(matches!(handler.handle(work).await, HandleOutcome::Refused), "it is done already");
    assert_eq!((bed.count("orders"), bed.count("relais_outbox")), (0, 1));

    for (then, code) in [("retry", "LATER"), ("fail", "NEVER"), ("panic", "HANDLER_PANIC")] {
        let bed = Bed::new().await;
        let mut work = bed.work(DONE).await;
        let handler = make(&bed).await;
        work.row.payload = Some(format!(r#"{{"id":"o-1","then":"{then}"}}"#));
        let handled = handler.handle(work.clone()).await;
        let HandleOutcome::RolledBack(Outcome::Retry { problem, .. } | Outcome::Fail { problem }) =
            handled
        else {
            panic!("{then}: {handled:?}")
        };
        assert_eq!(problem.code, code);
        assert_undone(&bed);
        work.row.payload = Some(DONE.into());
        assert!(matches!(handler.handle(work).await, HandleOutcome::Committed), "life goes on");
        assert_done(&bed);
    }
}

async fn check_refusals(make: impl AsyncFn(&Bed) -> Arc<dyn Handler>) {
    let bed = Bed::new().await;
    let work = bed.work(DONE).await;
    let handler = make(&bed).await;
    let fence = Fence { scope: Scope::Inbox, worker: "w1".into() };
    bed.store.release_lanes(fence, LaneRelease::All).await.unwrap();
    bed.lease(Scope::Inbox, "w2").await;
    assert!(matches!(handler.handle(work.clone()).await, HandleOutcome::Refused), "taken over");
    assert_undone(&bed);

    let mut odd = work.clone();
    odd.row.payload = Some("[]".into());
    let handled = handler.handle(odd).await;
    assert!(matches!(handled, HandleOutcome::RolledBack(Outcome::Fail { .. })), "{handled:?}");

    let mut ended = work;
    ended.row.payload = Some(r#"{"id":"o-1","then":"end"}"#.into());
    ended.fence.worker = "w2".into();
    ended.epoch += 1;
    let handled = handler.handle(ended).await;
    assert!(matches!(handled, HandleOutcome::Unavailable(_)), "{handled:?}");
    assert_undone(&bed);
}

/// Checks that a validation returns the outcome of the handler and leaves nothing behind.
async fn check_validation(make: impl AsyncFn(&Bed) -> Arc<dyn Handler>) {
    let bed = Bed::new().await;
    let work = bed.work(DONE).await;
    let handler = make(&bed).await;
    let validate = async |payload: &str| {
        let mut row = work.row.clone();
        row.payload = Some(payload.to_owned());
        handler.validate(row).await
    };
    assert_eq!(validate(DONE).await.unwrap(), Outcome::Done);
    assert_undone(&bed);
    for (then, code) in [("retry", "LATER"), ("fail", "NEVER"), ("panic", "HANDLER_PANIC")] {
        let outcome = validate(&format!(r#"{{"id":"o-1","then":"{then}"}}"#)).await.unwrap();
        let (Outcome::Retry { problem, .. } | Outcome::Fail { problem }) = outcome else {
            panic!("{then}: {outcome:?}")
        };
        assert_eq!(problem.code, code);
        assert_undone(&bed);
    }
    let odd = validate("[]").await.unwrap();
    assert!(matches!(odd, Outcome::Fail { problem } if problem.code == "PAYLOAD_SHAPE"));
    let ended = validate(r#"{"id":"o-1","then":"end"}"#).await;
    assert!(ended.is_err(), "{ended:?}");
    assert_undone(&bed);
    assert!(matches!(handler.handle(work).await, HandleOutcome::Committed), "nothing is held");
    assert_done(&bed);
}

const SLOW: Duration = Duration::from_millis(10);
/// True when every lease has expired.
const EXPIRED: &str =
    "SELECT max(lease_until) < strftime('%Y-%m-%dT%H:%M:%fZ', 'now') FROM relais_lease";

/// Runs handlers that take longer than the leases of two workers: no worker loses a lane by it.
async fn check_leases(make: impl AsyncFn(&Bed) -> Arc<dyn Handler>) {
    let outbox = Scope::Outbox("orders".into());
    let request = |scope: &Scope, worker: &str| {
        let fence = Fence { scope: scope.clone(), worker: worker.into() };
        LaneRequest::new(fence, Duration::from_secs(3))
    };
    for then in ["done", "retry"] {
        let bed = Bed::new().await;
        let (handler, other) = (make(&bed).await, bed.second().await);
        let work = bed.work(&format!(r#"{{"id":"o-1","then":"{then}"}}"#)).await;
        let others = other.lease_lanes(request(&outbox, "w2")).await.unwrap();
        let ours = bed.store.lease_lanes(request(&Scope::Inbox, "w1")).await.unwrap();
        assert_eq!((ours.lanes.len(), others.lanes.len()), (64, 64));
        let handled = handler.handle(work).await;
        assert_eq!(matches!(handled, HandleOutcome::Committed), then == "done", "{handled:?}");
        // The other worker renews its lease first, and would take what is free.
        let taken = other.lease_lanes(request(&Scope::Inbox, "w2")).await.unwrap();
        assert_eq!((taken.lanes, taken.term), (Vec::new(), others.term), "{then}");
        let kept = bed.store.lease_lanes(request(&Scope::Inbox, "w1")).await.unwrap();
        assert_eq!((kept.lanes, kept.term), (ours.lanes, ours.term), "{then}");
    }
}

fn slow(tx: &Transaction<'_>, order: Received<Order>) -> Result<Outcome, rusqlite::Error> {
    while !tx.query_row(EXPIRED, (), |row| row.get::<_, bool>(0))? {
        std::thread::sleep(SLOW);
    }
    on_order(tx, order)
}

#[tokio::test]
async fn a_rusqlite_handler_that_is_slower_than_a_lease_costs_no_worker_its_lanes() {
    check_leases(async |bed: &Bed| handler(&bed.store, slow)).await;
}

#[tokio::test]
async fn a_rusqlite_handler_is_validated_without_a_trace() {
    check_validation(async |bed: &Bed| handler(&bed.store, on_order)).await;
}

#[tokio::test]
async fn a_rusqlite_handler_commits_with_its_row_or_not_at_all() {
    check_ends(async |bed: &Bed| handler(&bed.store, on_order)).await;
}

#[tokio::test]
async fn a_rusqlite_handler_is_refused_after_a_take_over() {
    check_refusals(async |bed: &Bed| handler(&bed.store, on_order)).await;
}

#[tokio::test]
async fn a_commit_refused_for_one_handler_is_that_handlers_failure_alone() {
    let bed = Bed::new().await;
    let table = "CREATE TABLE lines (order_id TEXT NOT NULL \
                 REFERENCES orders (id) DEFERRABLE INITIALLY DEFERRED)";
    bed.raw().execute_batch(table).unwrap();
    let mut bad = bed.work(DONE).await;
    bad.row.payload = Some(r#"{"id":"o-1","then":"deferred"}"#.into());
    let handler = handler(&bed.store, on_order);
    // In a group, the refused job is unknown; alone it is found.
    let mut failures = 0;
    for round in 0..3 {
        let others = (0..10).map(|n| bed.store.once("h".into(), format!("{round}-{n}")));
        let others = futures_util::future::join_all(others);
        let (handled, _) = tokio::join!(handler.handle(bad.clone()), others);
        match handled {
            HandleOutcome::RolledBack(Outcome::Retry { problem, .. }) => {
                assert_eq!(problem.code, "COMMIT_REFUSED");
                failures += 1;
            }
            HandleOutcome::Unavailable(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(failures >= 2);
    assert_undone(&bed);
    assert!(bed.store.once("h".into(), "after".into()).await.unwrap());
}

#[cfg(feature = "sqlx-sqlite")]
pub(crate) use with_sqlx::pool;

#[cfg(feature = "sqlx-sqlite")]
mod with_sqlx {
    use relais_core::handler::{Outcome, Received};
    use relais_store::{Transaction, sqlite::sqlx_handler};
    use sqlx::{
        SqliteConnection, SqlitePool,
        sqlite::{SqliteConnectOptions, SqlitePoolOptions},
    };

    use super::{
        Bed, EXPIRED, Order, SLOW, check_ends, check_leases, check_refusals, check_validation,
        message,
    };

    pub(crate) async fn pool(bed: &Bed) -> SqlitePool {
        let options = SqliteConnectOptions::new().filename(bed.path());
        SqlitePoolOptions::new().max_connections(2).connect_with(options).await.unwrap()
    }

    async fn on_order(
        tx: &mut SqliteConnection,
        order: Received<Order>,
    ) -> Result<Outcome, sqlx::Error> {
        let insert = sqlx::query("INSERT INTO orders VALUES (?1)").bind(&order.payload.id);
        insert.execute(&mut *tx).await?;
        tx.enqueue(&[message("o-1")]).await.expect("enqueue");
        Ok(match order.payload.then.as_str() {
            "retry" => Outcome::retry("LATER", "not now"),
            "fail" => Outcome::fail("NEVER", "no"),
            "panic" => panic!("a bug in user code"),
            "end" => {
                sqlx::query("ROLLBACK").execute(&mut *tx).await?;
                Outcome::Done
            }
            _ => Outcome::Done,
        })
    }

    async fn slow(
        tx: &mut SqliteConnection,
        order: Received<Order>,
    ) -> Result<Outcome, sqlx::Error> {
        while !sqlx::query_scalar::<_, bool>(EXPIRED).fetch_one(&mut *tx).await? {
            tokio::time::sleep(SLOW).await;
        }
        on_order(tx, order).await
    }

    #[tokio::test]
    async fn a_sqlx_handler_that_is_slower_than_a_lease_costs_no_worker_its_lanes() {
        check_leases(async |bed: &Bed| sqlx_handler(pool(bed).await, slow)).await;
    }

    #[tokio::test]
    async fn a_sqlx_handler_is_validated_without_a_trace() {
        check_validation(async |bed: &Bed| sqlx_handler(pool(bed).await, on_order)).await;
    }

    #[tokio::test]
    async fn a_sqlx_handler_commits_with_its_row_or_not_at_all() {
        check_ends(async |bed: &Bed| sqlx_handler(pool(bed).await, on_order)).await;
    }

    #[tokio::test]
    async fn a_sqlx_handler_is_refused_after_a_take_over() {
        check_refusals(async |bed: &Bed| sqlx_handler(pool(bed).await, on_order)).await;
    }
}
