//! Fresh data by id.

use std::collections::HashMap;

use relais_core::{
    hydrate::{Hydrator, Record},
    lane::Scope,
    store::{Store, StoreError},
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

async fn ask(bed: &Bed, sql: &str, ids: &[&str]) -> Result<HashMap<String, Record>, StoreError> {
    let hydrator = SqlHydrator::new(&bed.store, sql, "id").unwrap();
    hydrator.hydrate(ids.iter().map(|&id| id.to_owned()).collect()).await
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
    assert_eq!(hydrator.hydrate(ids).await.unwrap().len(), 2_500);
}

#[tokio::test]
async fn a_statement_that_cannot_work_says_what_to_change() {
    let bed = members().await;
    for (sql, part) in [
        ("SELECT nothing FROM member WHERE id IN (:ids)", "correct the statement"),
        ("SELECT id FROM nowhere WHERE id IN (:ids)", "correct the statement"),
        ("SELECT name FROM member WHERE id IN (:ids)", "hydrate_id"),
        ("SELECT m.id FROM member m, pet WHERE m.id IN (:ids)", "several rows"),
        ("SELECT id, ? FROM member WHERE id IN (:ids)", "remove the other parameters"),
        ("WITH x AS (SELECT 1) DELETE FROM member WHERE id IN (:ids)", "only read"),
    ] {
        let answer = ask(&bed, sql, &["m-1"]).await;
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
        assert_eq!(task.await.unwrap().unwrap()["m-1"]["i"], 3_000_000);
    }
}
