//! The outbox in the user's own transaction, in every driver: there if and only if it commits.

use relais_core::{message::NewMessage, store::StoreError};
use relais_store::{Transaction, postgres::ENQUEUE_SQL};

use crate::{
    bed::{Bed, DESTINATION, message},
    support::postgres::Role,
};

const PLAIN: &str = "INSERT INTO relais_outbox
    (aggregate_type, aggregate_id, event_type, destination, payload)
    VALUES ('Order', 'o-1', 'OrderCreated', 'orders', '{\"total\": 12}')";

#[tokio::test]
async fn a_plain_insert_of_any_language_is_enough() {
    let Some(bed) = Bed::new().await else { return };
    let lanes = bed.lanes().await;
    bed.raw.batch_execute(PLAIN).await.unwrap();
    let rows = bed.fetch(&lanes).await;
    let row = &rows[0];
    assert_eq!((row.msg_key.as_str(), row.destination.as_str()), ("o-1", DESTINATION));
    assert_eq!((row.payload.as_str(), row.attempts), ("{\"total\": 12}", 0));
    assert_ne!(row.message_id, uuid::Uuid::nil());
}

/// Runs the operations of every adapter inside one transaction.
async fn use_it<T: Transaction>(tx: &mut T) {
    let (first, second) = (message("k"), message("k"));
    let ids = tx.enqueue(&[first.clone(), second.clone()]).await.unwrap();
    assert!(ids[0] < ids[1]);
    let again = tx.enqueue(&[second, message("l"), first.clone()]).await.unwrap();
    assert_eq!((again[0], again[2]), (ids[1], ids[0]), "not written again");
    let elsewhere = NewMessage { destination: "audit".into(), ..first };
    assert!(!ids.contains(&tx.enqueue(&[elsewhere]).await.unwrap()[0]), "a message of its own");
    assert!(tx.once("billing", "m-1").await.unwrap());
    assert!(!tx.once("billing", "m-1").await.unwrap());
    assert!(tx.once("shipping", "m-1").await.unwrap());
}

async fn assert_there(bed: &Bed, rows: i64) {
    assert_eq!(bed.count("relais_outbox").await, rows);
    assert_eq!(bed.count("relais_handled").await, rows / 2);
}

#[tokio::test]
async fn tokio_postgres_writes_with_its_transaction() {
    let Some(bed) = Bed::new().await else { return };
    let mut client = bed.schema.client().await;
    let transaction = client.transaction().await.unwrap();
    use_it(&mut &transaction).await;
    assert_there(&bed, 0).await;
    transaction.rollback().await.unwrap();
    assert_there(&bed, 0).await;
    let transaction = client.transaction().await.unwrap();
    use_it(&mut &transaction).await;
    transaction.commit().await.unwrap();
    assert_there(&bed, 4).await;
}

#[tokio::test]
async fn deadpool_writes_with_its_transaction() {
    let Some(bed) = Bed::new().await else { return };
    let mut client = bed.store.pool().get().await.unwrap();
    let transaction = client.transaction().await.unwrap();
    use_it(&mut &transaction).await;
    drop(transaction);
    assert_there(&bed, 0).await;
    let transaction = client.transaction().await.unwrap();
    use_it(&mut &transaction).await;
    transaction.commit().await.unwrap();
    assert_there(&bed, 4).await;
}

#[cfg(feature = "sqlx-postgres")]
#[tokio::test]
async fn sqlx_writes_with_its_transaction() {
    let Some(bed) = Bed::new().await else { return };
    let pool = sqlx::PgPool::connect(&bed.schema.url()).await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    use_it(&mut *transaction).await;
    transaction.rollback().await.unwrap();
    assert_there(&bed, 0).await;
    let mut transaction = pool.begin().await.unwrap();
    use_it(&mut *transaction).await;
    transaction.commit().await.unwrap();
    assert_there(&bed, 4).await;
}

/// The row of the public statement, whichever driver has bound its values.
async fn assert_written(bed: &Bed, written: Option<(i64, uuid::Uuid)>, id: uuid::Uuid) {
    let (row, message_id) = written.expect("a row");
    assert_eq!(message_id, id);
    let row = format!(
        "relais_outbox WHERE id = {row} AND message_id = '{id}' AND category = 'event' \
         AND aggregate_type = 'Order' AND aggregate_id = 'o-1' AND event_type = 'OrderPlaced' \
         AND event_version = 2 AND payload::jsonb = '{{\"total\": 12}}' \
         AND headers::jsonb = '{{\"a\": \"b\"}}' AND destination = '{DESTINATION}' \
         AND msg_key = 'k' AND next_attempt_at > created_at AND causation_id IS NULL \
         AND correlation_id = 'c-1'"
    );
    assert_eq!(bed.count(&row).await, 1);
}

#[tokio::test]
async fn the_public_statement_takes_values_bound_by_tokio_postgres() {
    let Some(bed) = Bed::new().await else { return };
    let mut client = bed.schema.client_as(Role::Producer).await;
    let id = uuid::Uuid::now_v7();
    let (delay, none): (Option<i64>, Option<&str>) = (Some(5_000), None);
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 13] = [
        &id,
        &"event",
        &"Order",
        &"o-1",
        &"OrderPlaced",
        &2_i32,
        &"{\"total\": 12}",
        &"{\"a\": \"b\"}",
        &DESTINATION,
        &"k",
        &delay,
        &none,
        &"c-1",
    ];
    for expected in [true, false] {
        let transaction = client.transaction().await.unwrap();
        let row = transaction.query_opt(ENQUEUE_SQL, &values);
        let written = row.await.unwrap().map(|row| (row.get(0), row.get(1)));
        transaction.commit().await.unwrap();
        match expected {
            true => assert_written(&bed, written, id).await,
            false => assert_eq!(written, None, "its destination has it already"),
        }
    }
}

#[cfg(feature = "sqlx-postgres")]
#[tokio::test]
async fn the_public_statement_takes_values_bound_by_sqlx() {
    use sqlx::Row;

    let Some(bed) = Bed::new().await else { return };
    let pool = sqlx::PgPool::connect(&bed.schema.url_as(Role::Producer)).await.unwrap();
    let id = uuid::Uuid::now_v7();
    for expected in [true, false] {
        let mut transaction = pool.begin().await.unwrap();
        let row = sqlx::query(ENQUEUE_SQL)
            .bind(id)
            .bind("event")
            .bind("Order")
            .bind("o-1")
            .bind("OrderPlaced")
            .bind(2_i32)
            .bind("{\"total\": 12}")
            .bind("{\"a\": \"b\"}")
            .bind(DESTINATION)
            .bind("k")
            .bind(Some(5_000_i64))
            .bind(None::<String>)
            .bind("c-1")
            .fetch_optional(&mut *transaction);
        let written = row.await.unwrap().map(|row| (row.get(0), row.get(1)));
        transaction.commit().await.unwrap();
        match expected {
            true => assert_written(&bed, written, id).await,
            false => assert_eq!(written, None, "its destination has it already"),
        }
    }
}

#[tokio::test]
async fn a_batch_longer_than_one_statement_keeps_its_order() {
    let Some(bed) = Bed::new().await else { return };
    let messages: Vec<_> = (0..2_345).map(|n| message(&n.to_string())).collect();
    let ids = bed.store.enqueue(messages.clone()).await.unwrap();
    assert!(ids.is_sorted() && ids.len() == messages.len());
    assert_eq!(bed.store.enqueue(messages).await.unwrap(), ids, "once only");
}

/// Refused, and nothing of the transaction can be committed by mistake.
async fn refuse_another<T: Transaction>(tx: &mut T) {
    let first = message("k");
    tx.enqueue(std::slice::from_ref(&first)).await.unwrap();
    let other = NewMessage { payload: "[]".into(), ..first };
    let refused = tx.enqueue(&[message("l"), other]).await;
    let Err(StoreError::Invalid(text)) = refused else { panic!("{refused:?}") };
    assert!(
        text.contains("belongs to another message of destination orders; use another id"),
        "{text}"
    );
}

#[tokio::test]
async fn an_id_with_other_content_ends_the_transaction() {
    let Some(bed) = Bed::new().await else { return };
    let mut client = bed.schema.client().await;
    let transaction = client.transaction().await.unwrap();
    refuse_another(&mut &transaction).await;
    let _rolled_back = transaction.commit().await;
    assert_eq!(bed.count("relais_outbox").await, 0);
}

#[cfg(feature = "sqlx-postgres")]
#[tokio::test]
async fn an_id_with_other_content_ends_the_transaction_of_sqlx() {
    let Some(bed) = Bed::new().await else { return };
    let pool = sqlx::PgPool::connect(&bed.schema.url()).await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    refuse_another(&mut *transaction).await;
    let _rolled_back = transaction.commit().await;
    assert_eq!(bed.count("relais_outbox").await, 0);
}
