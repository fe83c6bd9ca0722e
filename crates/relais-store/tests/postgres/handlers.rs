//! User code and the row's end in one commit, in both drivers.

use std::sync::Arc;

use relais_core::{
    handler::{HandleOutcome, Handler, Outcome, Received},
    inbox::InboxRow,
    lane::{LaneRelease, Scope},
    store::Store,
};
use relais_store::{
    Transaction,
    postgres::{PostgresOptions, PostgresStore, handler},
};
use serde::Deserialize;

use crate::bed::{Bed, fence, message, poll_once};

#[derive(Deserialize)]
struct Order {
    id: String,
    /// The action of the handler after it wrote the order.
    then: String,
}

const DONE: &str = r#"{"id":"o-1","then":"done"}"#;

/// Other actions of a handler, and the code that each leaves.
const ENDS: [(&str, &str); 5] = [
    ("retry", "LATER"),
    ("fail", "NEVER"),
    ("panic", "HANDLER_PANIC"),
    ("swallow", "COMMIT_REFUSED"),
    ("deferred", "COMMIT_REFUSED"),
];

fn then(what: &str) -> Option<String> {
    Some(format!(r#"{{"id":"o-1","then":"{what}"}}"#))
}

fn outcome(then: &str) -> Outcome {
    match then {
        "retry" => Outcome::retry("LATER", "not now"),
        "fail" => Outcome::fail("NEVER", "no"),
        "panic" => panic!("a bug in user code"),
        _ => Outcome::Done,
    }
}

async fn on_order(
    tx: &tokio_postgres::Transaction<'_>,
    order: Received<Order>,
) -> Result<Outcome, tokio_postgres::Error> {
    tx.execute("INSERT INTO orders VALUES ($1)", &[&order.payload.id]).await?;
    (&mut &*tx).enqueue(&[message("o-1")]).await.expect("enqueue");
    match order.payload.then.as_str() {
        "end" => tx.batch_execute("ROLLBACK").await?,
        "swallow" => drop(tx.batch_execute("SELECT 1 / 0").await),
        "deferred" => tx.batch_execute("INSERT INTO lines VALUES ('no such order')").await?,
        _ => {}
    }
    Ok(outcome(&order.payload.then))
}

/// Nothing of the handler's is there, and the row is as it was.
async fn assert_undone(bed: &Bed) {
    assert_eq!((bed.count("orders").await, bed.count("relais_outbox").await), (0, 0));
    assert_eq!(bed.count("relais_inbox WHERE status = 'RECEIVED' AND attempts = 0").await, 1);
}

async fn assert_done(bed: &Bed) {
    assert_eq!((bed.count("orders").await, bed.count("relais_outbox").await), (1, 1));
    assert_eq!(bed.count("relais_inbox WHERE status = 'PROCESSED' AND attempts = 1").await, 1);
}

async fn bed() -> Option<Bed> {
    let bed = Bed::new().await?;
    let lines = "CREATE TABLE lines (order_id text NOT NULL
                 REFERENCES orders (id) DEFERRABLE INITIALLY DEFERRED)";
    bed.raw.batch_execute(lines).await.unwrap();
    Some(bed)
}

/// Every end a handler can have.
async fn check_ends(make: impl AsyncFn(&Bed) -> Arc<dyn Handler>) {
    let Some(bed) = bed().await else { return };
    let work = bed.work(DONE).await;
    let handler = make(&bed).await;
    for (what, code) in ENDS {
        let mut other = work.clone();
        other.row.payload = then(what);
        let handled = handler.handle(other).await;
        let HandleOutcome::RolledBack(Outcome::Retry { problem, .. } | Outcome::Fail { problem }) =
            handled
        else {
            panic!("{what}: {handled:?}")
        };
        assert_eq!(problem.code, code, "{what}");
        assert_undone(&bed).await;
    }
    let mut ended = work.clone();
    ended.row.payload = then("end");
    let handled = handler.handle(ended).await;
    assert!(matches!(handled, HandleOutcome::SessionLost(_)), "{handled:?}");
    assert_undone(&bed).await;

    assert!(matches!(handler.handle(work.clone()).await, HandleOutcome::Committed), "life goes on");
    assert_done(&bed).await;
    bed.raw.batch_execute("DELETE FROM orders").await.unwrap();
    assert!(matches!(handler.handle(work).await, HandleOutcome::Refused), "it is done already");
    assert_eq!((bed.count("orders").await, bed.count("relais_outbox").await), (0, 1));
}

async fn check_refusals(make: impl AsyncFn(&Bed) -> Arc<dyn Handler>) {
    let Some(bed) = bed().await else { return };
    let work = bed.work(DONE).await;
    let handler = make(&bed).await;
    bed.store.release_lanes(fence(Scope::Inbox, "w1"), LaneRelease::All).await.unwrap();
    bed.lease(Scope::Inbox, "w2").await;
    assert!(matches!(handler.handle(work.clone()).await, HandleOutcome::Refused), "taken over");
    assert_undone(&bed).await;
    let mut odd = work;
    odd.row.payload = Some("[]".into());
    let handled = handler.handle(odd).await;
    assert!(matches!(handled, HandleOutcome::RolledBack(Outcome::Fail { .. })), "{handled:?}");
}

/// Checks that a validation returns the outcome of the handler and leaves nothing behind.
async fn check_validation(make: impl AsyncFn(&Bed) -> Arc<dyn Handler>) {
    let Some(bed) = bed().await else { return };
    let work = bed.work(DONE).await;
    let handler = make(&bed).await;
    let validate = async |payload: Option<String>| {
        let row = InboxRow { payload, ..work.row.clone() };
        let outcome = handler.validate(row).await;
        assert_undone(&bed).await;
        outcome
    };
    assert_eq!(validate(Some(DONE.into())).await.unwrap(), Outcome::Done);
    for (what, code) in ENDS {
        let outcome = validate(then(what)).await.unwrap();
        let (Outcome::Retry { problem, .. } | Outcome::Fail { problem }) = outcome else {
            panic!("{what}: {outcome:?}")
        };
        assert_eq!(problem.code, code, "{what}");
    }
    let odd = validate(Some("[]".into())).await.unwrap();
    assert!(matches!(odd, Outcome::Fail { problem } if problem.code == "PAYLOAD_SHAPE"));
    let ended = validate(then("end")).await;
    assert!(ended.is_err(), "{ended:?}");
    assert!(matches!(handler.handle(work).await, HandleOutcome::Committed), "nothing is held");
    assert_done(&bed).await;
}

/// Dropped after any number of steps, a handler leaves the pool without an open transaction.
async fn check_drops(make: impl AsyncFn(&Bed) -> Arc<dyn Handler>) {
    let Some(bed) = bed().await else { return };
    let mut work = bed.work(DONE).await;
    work.row.payload = then("retry");
    let handler = make(&bed).await;
    for steps in 0..60 {
        let mut going = handler.handle(work.clone());
        for _ in 0..steps % 12 {
            if poll_once(&mut going).await.is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(going);
        let handled = handler.handle(work.clone()).await;
        assert!(matches!(handled, HandleOutcome::RolledBack(Outcome::Retry { .. })), "{handled:?}");
    }
    assert_undone(&bed).await;
    work.row.payload = Some(DONE.into());
    assert!(matches!(handler.handle(work).await, HandleOutcome::Committed));
    assert_done(&bed).await;
}

async fn pooled(bed: &Bed) -> Arc<dyn Handler> {
    let options = PostgresOptions::default().connections_max(4);
    let store = PostgresStore::connect(&bed.schema.url(), options).await.unwrap();
    handler(store.pool(), on_order)
}

#[tokio::test]
async fn a_handler_commits_with_its_row_or_not_at_all() {
    check_ends(pooled).await;
}

#[tokio::test]
async fn a_handler_is_validated_without_a_trace() {
    check_validation(pooled).await;
}

#[tokio::test]
async fn a_handler_is_refused_after_a_take_over() {
    check_refusals(pooled).await;
}

#[tokio::test]
async fn a_dropped_handler_does_not_poison_the_pool() {
    check_drops(pooled).await;
}

#[tokio::test]
async fn a_handler_whose_session_dies_uses_no_attempt() {
    async fn killed(
        tx: &tokio_postgres::Transaction<'_>,
        _: Received<Order>,
    ) -> Result<(), tokio_postgres::Error> {
        tx.batch_execute("SELECT pg_terminate_backend(pg_backend_pid())").await
    }
    let Some(bed) = bed().await else { return };
    let work = bed.work(DONE).await;
    let handled = handler(bed.store.pool(), killed).handle(work).await;
    assert!(matches!(handled, HandleOutcome::SessionLost(_)), "{handled:?}");
    assert_undone(&bed).await;
}

/// The URL of a role whose transactions are stricter than relais needs them.
fn strict_url(bed: &Bed) -> String {
    format!("{}%20-c%20default_transaction_isolation%3Drepeatable%5C%20read", bed.schema.url())
}

/// Under a stricter level the mark of a slow handler would fail each time: its lane was renewed.
#[tokio::test]
async fn a_handler_runs_read_committed_whatever_the_default_is() {
    let Some(bed) = bed().await else { return };
    let work = bed.work(DONE).await;
    let store =
        PostgresStore::connect(&strict_url(&bed), PostgresOptions::default()).await.unwrap();
    async fn ask(tx: &tokio_postgres::Transaction<'_>, _: Received<Order>) -> Outcome {
        let row = tx.query_one("SHOW transaction_isolation", &[]).await.unwrap();
        Outcome::fail(row.get(0), "seen")
    }
    let handled = handler(store.pool(), ask).handle(work).await;
    let HandleOutcome::RolledBack(Outcome::Fail { problem }) = handled else {
        panic!("{handled:?}")
    };
    assert_eq!(problem.code, "read committed");
}

#[cfg(feature = "sqlx-postgres")]
mod with_sqlx {
    use std::sync::Arc;

    use relais_core::handler::{Handler, Outcome, Received};
    use relais_store::{Transaction, postgres::sqlx_handler};
    use sqlx::{PgConnection, postgres::PgPoolOptions};

    use super::{
        Bed, HandleOutcome, Order, check_drops, check_ends, check_refusals, check_validation,
        message, outcome,
    };

    async fn on_order(
        tx: &mut PgConnection,
        order: Received<Order>,
    ) -> Result<Outcome, sqlx::Error> {
        let insert = sqlx::query("INSERT INTO orders VALUES ($1)").bind(&order.payload.id);
        insert.execute(&mut *tx).await?;
        tx.enqueue(&[message("o-1")]).await.expect("enqueue");
        match order.payload.then.as_str() {
            "end" => {
                sqlx::query("ROLLBACK").execute(&mut *tx).await?;
            }
            "swallow" => drop(sqlx::query("SELECT 1 / 0").execute(&mut *tx).await),
            "deferred" => {
                let lines = "INSERT INTO lines VALUES ('no such order')";
                sqlx::query(lines).execute(&mut *tx).await?;
            }
            _ => {}
        }
        Ok(outcome(&order.payload.then))
    }

    async fn pooled(bed: &Bed) -> Arc<dyn Handler> {
        let options = PgPoolOptions::new().max_connections(1);
        let pool = options.connect(&bed.schema.url()).await.unwrap();
        sqlx_handler(pool, on_order)
    }

    #[tokio::test]
    async fn a_sqlx_handler_commits_with_its_row_or_not_at_all() {
        check_ends(pooled).await;
    }

    #[tokio::test]
    async fn a_sqlx_handler_runs_read_committed_whatever_the_default_is() {
        let Some(bed) = super::bed().await else { return };
        let work = bed.work(super::DONE).await;
        let pool = sqlx::PgPool::connect(&super::strict_url(&bed)).await.unwrap();
        async fn ask(tx: &mut PgConnection, _: Received<Order>) -> Outcome {
            let level = sqlx::query_scalar("SHOW transaction_isolation").fetch_one(tx).await;
            Outcome::fail(&level.unwrap_or_else(|error| error.to_string()), "seen")
        }
        let handled = sqlx_handler(pool, ask).handle(work).await;
        let HandleOutcome::RolledBack(Outcome::Fail { problem }) = handled else {
            panic!("{handled:?}")
        };
        assert_eq!(problem.code, "read committed");
    }

    #[tokio::test]
    async fn a_sqlx_handler_is_validated_without_a_trace() {
        check_validation(pooled).await;
    }

    #[tokio::test]
    async fn a_sqlx_handler_is_refused_after_a_take_over() {
        check_refusals(pooled).await;
    }

    #[tokio::test]
    async fn a_dropped_sqlx_handler_does_not_poison_the_pool() {
        check_drops(pooled).await;
    }
}
