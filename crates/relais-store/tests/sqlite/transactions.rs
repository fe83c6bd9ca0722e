//! Messages in the user's own transaction: there if and only if it commits.

use relais_core::{message::NewMessage, store::StoreError};
use relais_store::{BlockingTransaction, sqlite::ENQUEUE_SQL};
use uuid::Uuid;

use crate::bed::{Bed, message};

#[tokio::test]
async fn rusqlite_commit_sends_and_rollback_sends_nothing() {
    let bed = Bed::new().await;
    let mut db = bed.raw();
    let tx = db.transaction().unwrap();
    tx.execute("INSERT INTO orders VALUES ('o-1')", []).unwrap();
    let ids = tx.enqueue(&[message("o-1"), message("o-2")]).unwrap();
    tx.rollback().unwrap();
    assert_eq!((ids.len(), bed.count("relais_outbox")), (2, 0));

    let tx = db.transaction().unwrap();
    tx.enqueue(&[message("o-1"), message("o-2")]).unwrap();
    tx.commit().unwrap();
    assert_eq!(bed.count("relais_outbox"), 2);
}

#[tokio::test]
async fn a_plain_connection_in_a_transaction_serves_too() {
    let bed = Bed::new().await;
    let db = bed.raw();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    db.enqueue(&[message("o-1")]).unwrap();
    db.execute_batch("ROLLBACK").unwrap();
    assert_eq!(bed.count("relais_outbox"), 0);
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    db.enqueue(&[message("o-1")]).unwrap();
    db.execute_batch("COMMIT").unwrap();
    assert_eq!(bed.count("relais_outbox"), 1);
}

#[tokio::test]
async fn a_batch_with_a_bad_message_writes_none_of_it() {
    let bed = Bed::new().await;
    let mut db = bed.raw();
    let tx = db.transaction().unwrap();
    let mut bad = message("o-2");
    bad.payload = "{oops".into();
    let refused = tx.enqueue(&[message("o-1"), bad]).unwrap_err();
    assert!(matches!(refused, StoreError::Invalid(why) if why.contains("not valid JSON")));
    tx.enqueue(&[message("o-3")]).unwrap();
    tx.commit().unwrap();
    assert_eq!(bed.count("relais_outbox WHERE msg_key = 'o-3'"), 1);
    assert_eq!(bed.count("relais_outbox"), 1);
}

#[tokio::test]
async fn the_same_message_twice_is_one_row() {
    let bed = Bed::new().await;
    let mut db = bed.raw();
    let tx = db.transaction().unwrap();
    let twice = message("o-1");
    let ids = tx.enqueue(&[twice.clone(), message("o-2"), twice]).unwrap();
    tx.commit().unwrap();
    assert_eq!((ids[0], bed.count("relais_outbox")), (ids[2], 2));
}

#[tokio::test]
async fn an_id_with_other_content_is_refused_and_nothing_of_its_batch_is_sent() {
    let bed = Bed::new().await;
    let mut db = bed.raw();
    let first = message("o-1");
    let other = NewMessage { payload: "[]".into(), ..first.clone() };
    let elsewhere = NewMessage { destination: "audit".into(), ..other.clone() };
    let tx = db.transaction().unwrap();
    tx.enqueue(&[first, elsewhere]).unwrap();
    let refused = tx.enqueue(&[message("o-2"), other]);
    let Err(StoreError::Invalid(text)) = refused else { panic!("{refused:?}") };
    assert!(
        text.contains("belongs to another message of destination orders; use another id"),
        "{text}"
    );
    tx.commit().unwrap();
    assert_eq!(bed.count("relais_outbox"), 2);
}

#[tokio::test]
async fn once_is_true_once_and_only_if_it_commits() {
    let bed = Bed::new().await;
    let mut db = bed.raw();
    let tx = db.transaction().unwrap();
    assert!(tx.once("billing", "m-1").unwrap());
    assert!(!tx.once("billing", "m-1").unwrap());
    assert!(tx.once("mail", "m-1").unwrap());
    tx.rollback().unwrap();
    assert!(matches!(db.once("billing", "m-1"), Err(StoreError::Invalid(_))));
    db.execute_batch("BEGIN").unwrap();
    assert!(db.once("billing", "m-1").unwrap());
    assert!(!db.once("billing", "m-1").unwrap());
    db.execute_batch("COMMIT").unwrap();
}

#[tokio::test]
async fn the_public_statement_works_in_any_driver() {
    let bed = Bed::new().await;
    let none: Option<String> = None;
    let id = Uuid::new_v4().to_string();
    let params = rusqlite::params![
        id, "event", "Order", "o-1", "E", 1, "{}", "{}", "orders", "o-1", 5_000, none, none
    ];
    let db = bed.raw();
    db.query_row(ENQUEUE_SQL, params, |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(bed.count("relais_outbox WHERE next_attempt_at > created_at"), 1);
}

#[cfg(feature = "sqlx-sqlite")]
mod with_sqlx {
    use relais_core::store::StoreError;
    use relais_store::Transaction;

    use crate::{
        bed::{Bed, message},
        handlers::pool,
    };

    #[tokio::test]
    async fn sqlx_commit_sends_and_rollback_sends_nothing() {
        let bed = Bed::new().await;
        let pool = pool(&bed).await;
        let mut tx = pool.begin().await.unwrap();
        let ids = tx.enqueue(&[message("o-1"), message("o-2")]).await.unwrap();
        tx.rollback().await.unwrap();
        assert_eq!((ids.len(), bed.count("relais_outbox")), (2, 0));

        let mut tx = pool.begin().await.unwrap();
        let twice = message("o-1");
        let ids = tx.enqueue(&[twice.clone(), twice]).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!((ids[0], bed.count("relais_outbox")), (ids[1], 1));
    }

    #[tokio::test]
    async fn sqlx_refuses_an_id_with_other_content_and_its_batch() {
        let bed = Bed::new().await;
        let pool = pool(&bed).await;
        let mut tx = pool.begin().await.unwrap();
        let first = message("o-1");
        let mut other = first.clone();
        other.payload = "[]".into();
        tx.enqueue(&[first]).await.unwrap();
        let refused = tx.enqueue(&[message("o-2"), other]).await.unwrap_err();
        assert!(matches!(refused, StoreError::Invalid(why) if why.contains("use another id")));
        tx.commit().await.unwrap();
        assert_eq!(bed.count("relais_outbox"), 1);
    }

    #[tokio::test]
    async fn sqlx_once_is_true_once_and_only_if_it_commits() {
        let bed = Bed::new().await;
        let pool = pool(&bed).await;
        let mut tx = pool.begin().await.unwrap();
        assert!(tx.once("billing", "m-1").await.unwrap());
        assert!(!tx.once("billing", "m-1").await.unwrap());
        tx.rollback().await.unwrap();
        let mut tx = pool.begin().await.unwrap();
        assert!(tx.once("billing", "m-1").await.unwrap());
    }

    #[tokio::test]
    async fn sqlx_refusals_are_named_alike() {
        let bed = Bed::new().await;
        let mut tx = pool(&bed).await.begin().await.unwrap();
        let mut bad = message("o-2");
        bad.payload = "{oops".into();
        let refused = tx.enqueue(&[bad]).await.unwrap_err();
        assert!(matches!(refused, StoreError::Invalid(why) if why.contains("not valid JSON")));
    }
}
