//! Handlers on PostgreSQL, sound ones and planted ones.

use std::sync::Arc;

use relais::{Handler, Outbox, Received, postgres};
use relais_testkit::{
    database::PostgresScratch,
    idempotent::{self, FaultPoint, NotIdempotent},
    scratch,
};
use sqlx::{Connection, PgConnection, PgPool};
use tokio_postgres::Transaction;

use crate::shop::{self, ADD, NOTE, Paid, PaymentReceived, TABLES, payment};

type Made = (PostgresScratch, Arc<dyn Handler>);

/// Returns the report on a handler on this pool; `None` without a server.
async fn check(
    handler: impl AsyncFn(PgPool) -> Arc<dyn Handler>,
) -> Option<Result<Vec<FaultPoint>, NotIdempotent>> {
    let url = shop::postgres_url();
    let Some(url) = url else {
        eprintln!("NOT TESTED: assert_idempotent! on PostgreSQL; set RELAIS_TEST_POSTGRES");
        return None;
    };
    let shop = async || -> Made {
        let db = scratch::postgres(&url).await;
        db.run(TABLES).await;
        // Numbers drawn by a transaction that is rolled back are lost: sound handlers leave gaps.
        db.run(
            "CREATE TABLE entries (id BIGSERIAL PRIMARY KEY, cents BIGINT);
             CREATE TABLE lines (id INT GENERATED ALWAYS AS IDENTITY, entry BIGINT REFERENCES entries)",
        )
        .await;
        let options = sqlx::postgres::PgPoolOptions::new().max_connections(4);
        let handler = handler(options.connect(&db.url()).await.unwrap()).await;
        (db, handler)
    };
    Some(idempotent::check(shop, [payment(1, "a-1"), payment(2, "a-1")], &[]).await)
}

#[tokio::test]
async fn a_sound_handler_of_sqlx_passes_every_point() {
    async fn on_payment(
        tx: &mut PgConnection,
        message: Received<PaymentReceived>,
    ) -> anyhow::Result<()> {
        let PaymentReceived { account, cents } = &message.payload;
        sqlx::query(ADD).bind(cents).bind(account).execute(&mut *tx).await?;
        let entry: i64 = sqlx::query_scalar("INSERT INTO entries (cents) VALUES ($1) RETURNING id")
            .bind(cents)
            .fetch_one(&mut *tx)
            .await?;
        sqlx::query("INSERT INTO lines (entry) VALUES ($1)").bind(entry).execute(&mut *tx).await?;
        Outbox::to("books").send(&mut *tx, &Paid::of(&message.payload)).await?;
        Ok(())
    }
    let checked = check(async |pool| postgres::sqlx_handler(pool, on_payment)).await;
    let Some(checked) = checked else { return };
    let points = checked.unwrap_or_else(|found| panic!("{found}"));
    assert!(points.contains(&FaultPoint::WriteFails("lines".into())), "{points:?}");
    let inside = points.iter().filter(|point| matches!(point, FaultPoint::DiesInside(_))).count();
    // An answer that has arrived already is not waited for, so not every statement counts.
    assert!(inside >= 3, "it waits for statements: {points:?}");
}

#[tokio::test]
async fn a_sound_handler_of_tokio_postgres_passes_every_point() {
    async fn on_payment(
        mut tx: &Transaction<'_>,
        message: Received<PaymentReceived>,
    ) -> anyhow::Result<()> {
        let PaymentReceived { account, cents } = &message.payload;
        tx.execute(ADD, &[&cents, &account]).await?;
        Outbox::to("books").send(&mut tx, &Paid::of(&message.payload)).await?;
        Ok(())
    }
    let Some(url) = shop::postgres_url() else {
        eprintln!("NOT TESTED: assert_idempotent! on PostgreSQL; set RELAIS_TEST_POSTGRES");
        return;
    };
    let shop = async || {
        let db = scratch::postgres(&url).await;
        db.run(TABLES).await;
        let handler = postgres::handler(db.pool(), on_payment);
        (db, handler)
    };
    relais_testkit::assert_idempotent!(shop, [payment(1, "a-1"), payment(2, "a-1")]);
}

#[tokio::test]
async fn a_handler_that_commits_through_another_connection_is_caught() {
    let bad = async |pool: PgPool| {
        let other = pool.clone();
        let bad = boxed(move |tx, message| {
            let other = other.clone();
            Box::pin(async move {
                sqlx::query(NOTE).bind(&message.message_id).bind("paid").execute(&mut *tx).await?;
                // Done again it changes nothing, so the end looks right; but a rollback leaves it.
                let sql = "UPDATE accounts SET cents = $1 WHERE id = $2";
                let PaymentReceived { account, cents } = &message.payload;
                sqlx::query(sql).bind(cents).bind(account).execute(&other).await.map(drop)
            })
        });
        postgres::sqlx_handler(pool, bad)
    };
    let Some(checked) = check(bad).await else { return };
    let found = checked.unwrap_err();
    assert_eq!(found.point, FaultPoint::LosesLaneBeforeMark);
    let text = found.to_string();
    assert!(text.contains("message `m-1` was rolled back, but this remains of it:"), "{text}");
    assert!(text.contains("+ accounts: id=a-1 cents=100"), "{text}");
    assert!(text.contains("through another connection"), "{text}");
}

type Written<'a> = std::pin::Pin<Box<dyn Future<Output = sqlx::Result<()>> + Send + 'a>>;

/// Helps the compiler see that the closure takes a connection of any lifetime.
fn boxed<F>(function: F) -> F
where
    F: for<'a> Fn(&'a mut PgConnection, Received<PaymentReceived>) -> Written<'a>,
{
    function
}

#[tokio::test]
async fn a_handler_that_uses_chance_as_data_is_caught() {
    async fn bad(tx: &mut PgConnection, message: Received<PaymentReceived>) -> sqlx::Result<()> {
        let random = uuid::Uuid::new_v4().to_string();
        sqlx::query(NOTE).bind(&message.message_id).bind(random).execute(tx).await.map(drop)
    }
    let Some(checked) = check(async |pool| postgres::sqlx_handler(pool, bad)).await else { return };
    assert_eq!(checked.unwrap_err().point, FaultPoint::CleanAgain);
}

#[tokio::test]
async fn a_handler_that_writes_the_time_is_caught() {
    async fn bad(tx: &mut PgConnection, message: Received<PaymentReceived>) -> sqlx::Result<()> {
        let sql = "INSERT INTO payments VALUES ($1, date_trunc('second', now())::text)";
        sqlx::query(sql).bind(&message.message_id).execute(tx).await.map(drop)
    }
    let Some(checked) = check(async |pool| postgres::sqlx_handler(pool, bad)).await else { return };
    assert_eq!(checked.unwrap_err().point, FaultPoint::CleanAgain);
}

#[tokio::test]
async fn a_handler_that_continues_after_a_failed_write_is_caught() {
    async fn bad(tx: &mut PgConnection, message: Received<PaymentReceived>) -> sqlx::Result<()> {
        let PaymentReceived { account, cents } = &message.payload;
        sqlx::query(ADD).bind(cents).bind(account).execute(&mut *tx).await?;
        let mut attempt = tx.begin().await?;
        let note = sqlx::query(NOTE).bind(&message.message_id).bind("paid").execute(&mut *attempt);
        match note.await {
            Ok(_) => attempt.commit().await,
            Err(_) => attempt.rollback().await,
        }
    }
    let Some(checked) = check(async |pool| postgres::sqlx_handler(pool, bad)).await else { return };
    let found = checked.unwrap_err();
    assert_eq!(found.point, FaultPoint::WriteFails("payments".into()));
    assert!(found.to_string().contains("+ payments: message_id=m-1 note=paid"), "{found}");
}

/// Without a savepoint the database itself refuses to commit what follows an error.
#[tokio::test]
async fn a_handler_that_ignores_an_error_of_the_transaction_is_tried_again_and_sound() {
    async fn careless(
        tx: &mut PgConnection,
        message: Received<PaymentReceived>,
    ) -> sqlx::Result<()> {
        let note = sqlx::query(NOTE).bind(&message.message_id).bind("paid").execute(&mut *tx);
        drop(note.await);
        Ok(())
    }
    let checked = check(async |pool| postgres::sqlx_handler(pool, careless)).await;
    let Some(checked) = checked else { return };
    checked.unwrap_or_else(|found| panic!("{found}"));
}
