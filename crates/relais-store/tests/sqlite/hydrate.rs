//! Fresh data by id.

use std::collections::HashMap;

use relais_core::{
    hydrate::{HydratedRecords, Hydrator, Record},
    lane::Scope,
    store::StoreError,
};
use relais_store::sqlite::{SqlHydrator, SqliteOptions};
use serde_json::json;

use crate::bed::{Bed, DESTINATION, message};

const MEMBERS: &str = "CREATE TABLE member (
        id TEXT PRIMARY KEY, name TEXT, age INTEGER, share REAL, photo BLOB, big INTEGER);
    CREATE TABLE pet (id INTEGER PRIMARY KEY, name TEXT);
    INSERT INTO member VALUES ('m-1', 'Ann \u{1F600}', 42, 0.5, x'FF00', 9007199254740993),
                              ('m-2', NULL, NULL, NULL, NULL, NULL);
    INSERT INTO pet VALUES (7, 'Rex'), (8, 'Tom');";

async fn members() -> Bed {
    let bed = Bed::new().await;
    bed.raw().execute_batch(MEMBERS).unwrap();
    bed
}

async fn hydrate(bed: &Bed, sql: &str, ids: &[&str]) -> Result<HydratedRecords, StoreError> {
    let hydrator = SqlHydrator::new(&bed.store, sql, "id").unwrap();
    hydrator.hydrate(ids.iter().map(|&id| id.to_owned()).collect()).await
}

async fn ask(bed: &Bed, sql: &str, ids: &[&str]) -> Result<HashMap<String, Record>, StoreError> {
    let hydrated = hydrate(bed, sql, ids).await?;
    assert!(hydrated.failed.is_empty(), "{hydrated:?}");
    Ok(hydrated.records)
}

#[tokio::test]
async fn every_type_comes_as_json_and_null_as_null() {
    let bed = members().await;
    let sql = "SELECT * FROM member WHERE id IN (:ids)";
    let found = ask(&bed, sql, &["m-1", "m-2", "m-3", "m-1"]).await.unwrap();
    let one = json!({"id": "m-1", "name": "Ann \u{1F600}", "age": 42, "share": 0.5, "photo": "/wA=",
                     "big": 9_007_199_254_740_993_i64});
    let none = json!({"id": "m-2", "name": null, "age": null, "share": null, "photo": null,
                      "big": null});
    assert_eq!(found.len(), 2, "what is not there is not there");
    assert_eq!((json!(found["m-1"]), json!(found["m-2"])), (one, none));
    assert!(ask(&bed, sql, &[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn more_ids_than_one_query_takes_are_read_in_several() {
    let bed = Bed::new().await;
    let many = "CREATE TABLE many (id TEXT PRIMARY KEY); INSERT INTO many WITH RECURSIVE n (i) AS \
                (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500) SELECT i FROM n";
    bed.raw().execute_batch(many).unwrap();
    let ids: Vec<String> = (1..=2_500).map(|n| n.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let sql = "SELECT id, count(*) OVER () AS together FROM many WHERE id IN (:ids)";
    let found = ask(&bed, sql, &ids).await.unwrap();
    assert_eq!(found.len(), 2_500);
    let read_with =
        |together: i64| found.values().filter(|one| one["together"] == together).count();
    assert_eq!((read_with(1_000), read_with(500)), (2_000, 500));
}

#[tokio::test]
async fn numeric_ids_are_found_by_their_text() {
    let bed = members().await;
    let sql = "WITH p AS (SELECT * FROM pet) SELECT * FROM p WHERE id IN (:ids) ORDER BY id";
    let found = ask(&bed, sql, &["7", "abc", "9", "8'"]).await.unwrap();
    assert_eq!(found.into_keys().collect::<Vec<_>>(), ["7"]);
}

#[tokio::test]
async fn ids_are_values_whatever_they_look_like() {
    let bed = members().await;
    let evil = [
        "m-1') OR 1=1 --",
        "'; DROP TABLE member; --",
        "\"",
        "]",
        "{\"a\":1}",
        "\0",
        "%",
        "m-1\n",
        "NULL",
    ];
    let insert = "INSERT INTO member (id) VALUES (?1)";
    bed.raw().execute(insert, [evil[0]]).unwrap();
    let found = ask(&bed, "SELECT * FROM member WHERE id IN (:ids)", &evil).await.unwrap();
    assert_eq!(found.into_keys().collect::<Vec<_>>(), [evil[0]]);
    assert_eq!(bed.count("member"), 3);
}

#[tokio::test]
async fn many_ids_go_in_parts() {
    let bed = members().await;
    let fill = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 2500)
        INSERT INTO member (id) SELECT 'k' || x FROM n";
    bed.raw().execute_batch(fill).unwrap();
    let ids: Vec<String> = (1..=3_000).map(|n| format!("k{n}")).collect();
    let hydrator =
        SqlHydrator::new(&bed.store, "SELECT id FROM member WHERE id IN (:ids)", "id").unwrap();
    assert_eq!(hydrator.hydrate(ids).await.unwrap().records.len(), 2_500);
}

#[tokio::test]
async fn a_statement_that_cannot_work_says_what_to_change() {
    let bed = members().await;
    for (sql, part) in [
        ("SELECT nothing FROM member WHERE id IN (:ids)", "correct the statement"),
        ("SELECT id FROM nowhere WHERE id IN (:ids)", "correct the statement"),
        ("SELECT name FROM member WHERE id IN (:ids)", "hydrate_id"),
        ("SELECT id, ? FROM member WHERE id IN (:ids)", "remove the other parameters"),
        ("WITH x AS (SELECT 1) DELETE FROM member WHERE id IN (:ids)", "only read"),
    ] {
        let answer = hydrate(&bed, sql, &["m-1", "m-2"]).await;
        let Err(StoreError::Setup(why)) = answer else { panic!("{sql}: {answer:?}") };
        assert!(why.contains(part), "{sql}: {why}");
    }
    assert_eq!(bed.count("member"), 2, "nothing was written");
}

#[tokio::test]
async fn hydrations_on_every_connection_delay_no_fetch() {
    let bed = members().await;
    let lanes = bed.lease(Scope::Outbox(DESTINATION.into()), "w1").await;
    let sent = bed.store.enqueue(vec![message("k")]).await.unwrap();
    // Takes seconds; the fetch takes milliseconds.
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000000)
               SELECT m.id, (SELECT max(i) FROM n) AS i FROM member AS m WHERE m.id IN (:ids)";
    let hydrator = SqlHydrator::new(&bed.store, sql, "id").unwrap();
    let slow: Vec<_> = (0..2 * SqliteOptions::default().readers)
        .map(|_| {
            let hydrator = hydrator.clone();
            tokio::spawn(async move { hydrator.hydrate(vec!["m-1".into()]).await })
        })
        .collect();
    tokio::task::yield_now().await;
    let found = bed.fetch(&lanes, 10).await;
    assert!(slow.iter().all(|task| !task.is_finished()), "the fetch did not wait for them");
    assert_eq!((found.len(), sent.len()), (1, 1));
    for task in slow {
        assert_eq!(task.await.unwrap().unwrap().records["m-1"]["i"], 3_000_000);
    }
}

const BAD_CAST: &str = "SELECT id, json_extract(name, '$.x') AS x FROM member WHERE id IN (:ids)";
const FILL: &str = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 1500)
    INSERT INTO member (id, name) SELECT 'k' || x, '{}' FROM n;
    UPDATE member SET name = 'no JSON' WHERE id IN ('k7', 'k8', 'k1200');
    CREATE TABLE twice (id TEXT);
    INSERT INTO twice SELECT id FROM member;
    INSERT INTO twice VALUES ('k9'), ('k9');";

fn many() -> Vec<String> {
    (1..=1_500).map(|n| format!("k{n}")).collect()
}

#[tokio::test]
async fn a_row_that_makes_the_statement_fail_concerns_its_own_id_only() {
    let bed = members().await;
    bed.raw().execute_batch(FILL).unwrap();
    let ids = many();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let hydrated = hydrate(&bed, BAD_CAST, &ids).await.unwrap();
    assert_eq!(hydrated.records.len(), 1_497);
    let mut failed: Vec<_> = hydrated.failed.into_iter().collect();
    failed.sort();
    assert_eq!(failed.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["k1200", "k7", "k8"]);
    let why = &failed[0].1;
    assert!(why.contains("\"k1200\"") && why.contains("malformed JSON"), "{why}");
    // Alone it fails too, and the statement works without it: the row is to blame.
    let alone = hydrate(&bed, BAD_CAST, &["k7"]).await.unwrap();
    assert!(alone.records.is_empty() && alone.failed.contains_key("k7"), "{alone:?}");
}

#[tokio::test]
async fn two_rows_for_one_id_concern_that_id_only() {
    let bed = members().await;
    bed.raw().execute_batch(FILL).unwrap();
    let sql = "SELECT id FROM twice WHERE id IN (:ids)";
    let hydrated = hydrate(&bed, sql, &["k8", "k9", "k10"]).await.unwrap();
    assert_eq!((hydrated.records.len(), hydrated.failed.len()), (2, 1));
    let why = &hydrated.failed["k9"];
    assert!(why.contains("several rows") && why.contains("\"k9\""), "{why}");
}

const BREAK: &str =
    "UPDATE member SET name = 'no JSON' WHERE id IN ('k1', 'k2', 'k3', 'k4', 'k5', 'k6')";

#[tokio::test]
async fn a_statement_that_fails_for_every_id_blames_no_row() {
    let bed = members().await;
    bed.raw().execute_batch(FILL).unwrap();
    let constant = "SELECT id, json('{') FROM member WHERE id IN (:ids)";
    let ids = ["k1", "k2", "k3", "k4", "k5", "k6"];
    let answer = hydrate(&bed, constant, &ids).await;
    assert!(matches!(answer, Err(StoreError::Setup(_))), "{answer:?}");
    // Many bad rows are still rows, as long as a row that was read can be read.
    let hydrator = SqlHydrator::new(&bed.store, BAD_CAST, "id").unwrap();
    let ask = |ids: &[&str]| hydrator.hydrate(ids.iter().map(|&id| id.to_owned()).collect());
    assert_eq!(ask(&["k100"]).await.unwrap().records.len(), 1);
    bed.raw().execute_batch(BREAK).unwrap();
    assert_eq!(ask(&ids).await.unwrap().failed.len(), 6);
    let fresh = hydrate(&bed, BAD_CAST, &ids).await;
    assert!(matches!(fresh, Err(StoreError::Setup(_))), "{fresh:?}");
}

#[tokio::test]
async fn the_columns_of_a_statement_are_known_without_a_row() {
    let bed = members().await;
    let columns = |sql: &str| {
        let hydrator = SqlHydrator::new(&bed.store, sql, "id").unwrap();
        async move { hydrator.columns().await }
    };
    let found = columns("SELECT id, name AS \"Full Name\" FROM member WHERE id IN (:ids)").await;
    assert_eq!(found.unwrap(), ["id", "Full Name"]);
    let wrong = columns("SELECT id FROM nowhere WHERE id IN (:ids)").await;
    assert!(matches!(wrong, Err(StoreError::Setup(_))), "{wrong:?}");
}
