//! Connections that carried large rows are replaced, because the driver keeps their buffers.

use relais_testkit::build;

use crate::{bed::Bed, support::postgres::Role};

/// Stores a message of `bytes` bytes; returns the server process that did it.
async fn accept(bed: &Bed, message_id: &str, bytes: usize) -> i32 {
    let payload = format!("\"{}\"", "x".repeat(bytes));
    bed.store.accept(vec![build::arrival_with(message_id, &payload)], Vec::new()).await.unwrap();
    let sql = "SELECT pid FROM pg_stat_activity
        WHERE application_name = 'relais' AND usename = $1 AND query LIKE '%INSERT INTO relais_inbox%'";
    let role = bed.schema.role(Role::Runtime);
    bed.raw.query_one(sql, &[&role]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_connection_that_carried_large_rows_is_replaced_once_they_stop_coming() {
    let Some(bed) = Bed::single().await else { return };
    let first = accept(&bed, "m-1", 10).await;
    assert_eq!(accept(&bed, "m-2", 2 * 1024 * 1024).await, first);
    assert_eq!(accept(&bed, "m-3", 10).await, first, "more large rows may come");
    let lanes = bed.lanes().await;
    while bed.count(&format!("pg_stat_activity WHERE pid = {first}")).await > 0 {
        bed.fetch(&lanes).await;
    }
    let second = accept(&bed, "m-4", 10).await;
    assert_ne!(second, first);
    assert_eq!(accept(&bed, "m-5", 10).await, second, "small rows need no other connection");
}
