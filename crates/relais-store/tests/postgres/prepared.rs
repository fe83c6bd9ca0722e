//! Statements that are prepared on connections of the user: used where the session keeps them, and never at
//! the cost of a transaction.

use relais_core::message::{MessageIdOrigin, NewMessage};
use relais_store::Transaction;
use tokio_postgres::Client;

use crate::bed::{Bed, message};

fn generated(key: &str) -> NewMessage {
    NewMessage { id_origin: MessageIdOrigin::Generated, ..message(key) }
}

/// Sends messages of all kinds in one transaction.
async fn send(client: &mut Client) {
    let transaction = client.transaction().await.unwrap();
    (&transaction).enqueue(&[generated("k")]).await.unwrap();
    (&transaction).enqueue(&[message("k")]).await.unwrap();
    (&transaction).enqueue(&[generated("k"), generated("l")]).await.unwrap();
    (&transaction).enqueue(&[generated("k"), message("l")]).await.unwrap();
    transaction.commit().await.unwrap();
}

/// The statements that a session keeps for sends.
async fn kept(client: &Client) -> i64 {
    let sql =
        "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%INTO relais_outbox%'";
    client.query_typed(sql, &[]).await.unwrap()[0].get(0)
}

#[tokio::test]
async fn each_statement_is_prepared_once_for_a_connection_that_sends_again() {
    let Some(bed) = Bed::new().await else { return };
    let mut client = bed.schema.client().await;
    let once = client.transaction().await.unwrap();
    (&once).enqueue(&[generated("k")]).await.unwrap();
    once.commit().await.unwrap();
    assert_eq!(kept(&client).await, 0, "a connection that sends once is not worth it");
    for _ in 0..5 {
        send(&mut client).await;
        assert_eq!(kept(&client).await, 4);
    }
    assert_eq!(bed.count("relais_outbox").await, 31);
}

#[tokio::test]
async fn deadpool_keeps_them_too() {
    let Some(bed) = Bed::new().await else { return };
    let mut client = bed.store.pool().get().await.unwrap();
    for _ in 0..5 {
        let transaction = client.transaction().await.unwrap();
        (&transaction).enqueue(&[generated("k")]).await.unwrap();
        transaction.commit().await.unwrap();
    }
    assert_eq!(kept(&client).await, 1);
}

#[tokio::test]
async fn a_connection_that_was_opened_again_has_statements_of_its_own() {
    let Some(bed) = Bed::new().await else { return };
    for _ in 0..3 {
        let (mut one, mut other) = (bed.schema.client().await, bed.schema.client().await);
        for _ in 0..3 {
            send(&mut one).await;
            send(&mut other).await;
        }
        assert_eq!((kept(&one).await, kept(&other).await), (4, 4));
    }
}

#[tokio::test]
async fn a_change_of_the_schema_fails_no_transaction() {
    let Some(bed) = Bed::new().await else { return };
    let mut client = bed.schema.client().await;
    for change in
        ["ADD COLUMN extra text", "ALTER COLUMN extra SET DEFAULT 'x'", "DROP COLUMN extra"]
    {
        for _ in 0..3 {
            send(&mut client).await;
        }
        bed.raw.batch_execute(&format!("ALTER TABLE relais_outbox {change}")).await.unwrap();
    }
    send(&mut client).await;
    assert_eq!(kept(&client).await, 4);
}

#[tokio::test]
async fn a_pool_that_resets_its_sessions_fails_no_transaction() {
    let Some(bed) = Bed::new().await else { return };
    let mut client = bed.schema.client().await;
    let path: String = client.query_one("SHOW search_path", &[]).await.unwrap().get(0);
    for _ in 0..5 {
        send(&mut client).await;
        client.batch_execute("DISCARD ALL").await.unwrap();
        client.batch_execute(&format!("SET search_path TO {path}")).await.unwrap();
    }
    assert_eq!(bed.count("relais_outbox").await, 30);
    assert_eq!(kept(&client).await, 0);
}

/// Nothing but the user can remove them on a connection of its own.
#[tokio::test]
async fn statements_that_the_user_removes_fail_one_transaction_at_most() {
    let Some(bed) = Bed::new().await else { return };
    let mut client = bed.schema.client().await;
    for _ in 0..3 {
        send(&mut client).await;
    }
    client.batch_execute("DEALLOCATE ALL").await.unwrap();
    let transaction = client.transaction().await.unwrap();
    let error = (&transaction).enqueue(&[generated("k")]).await.unwrap_err();
    assert_eq!(error.code(), Some("26000"), "{error}");
    transaction.rollback().await.unwrap();
    send(&mut client).await;
    assert_eq!(bed.count("relais_outbox").await, 24);
}
