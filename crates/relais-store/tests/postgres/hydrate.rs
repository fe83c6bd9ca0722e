//! Fresh data by id.

use std::collections::HashMap;

use relais_core::{
    hydrate::{HydratedRecords, Hydrator, Record},
    store::StoreError,
};
use relais_store::postgres::SqlHydrator;
use serde_json::json;

use crate::bed::Bed;

const MEMBERS: &str = "CREATE TABLE member (
        id text PRIMARY KEY, name varchar(50), age integer, share numeric(40, 20), born date,
        seen timestamptz, tags text[], extra jsonb, ok boolean, big bigint);
    INSERT INTO member VALUES
        ('m-1', 'Ann \u{1F600}', 42, 12345678901234567890.5, '2020-02-29', '2026-11-15T12:00:00Z',
         '{a,b}', '{\"x\": 1.50}', TRUE, 9007199254740993),
        ('m-2', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    CREATE TABLE thing (uuid uuid PRIMARY KEY, number integer, small smallint, huge numeric);
    INSERT INTO thing VALUES ('0192f0c1-2345-7abc-8def-0123456789ab', 7, 7, 7),
                             ('0192f0c1-2345-7abc-8def-0123456789ac', 8, 8, 8);";

async fn members() -> Option<Bed> {
    let bed = Bed::new().await?;
    bed.raw.batch_execute(MEMBERS).await.unwrap();
    Some(bed)
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
    let Some(bed) = members().await else { return };
    let sql = "SELECT * FROM member WHERE id IN (:ids); -- fresh";
    let found = ask(&bed, sql, &["m-1", "m-2", "m-3", "m-1"]).await.unwrap();
    assert_eq!(found.len(), 2, "what is not there is not there");
    let one = &found["m-1"];
    assert_eq!(one["name"], "Ann \u{1F600}");
    assert_eq!(one["share"], "12345678901234567890.50000000000000000000", "not rounded");
    assert_eq!(one["big"], 9_007_199_254_740_993_i64);
    assert_eq!((&one["born"], &one["ok"]), (&json!("2020-02-29"), &json!(true)));
    assert_eq!((&one["tags"], &one["extra"]), (&json!(["a", "b"]), &json!({"x": 1.5})));
    assert!(one["seen"].as_str().unwrap().starts_with("2026-11-15T"));
    let nulls = found["m-2"].values().filter(|value| value.is_null()).count();
    assert_eq!(nulls, 9);
    assert!(ask(&bed, sql, &[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn more_ids_than_one_query_takes_are_read_in_several() {
    let Some(bed) = Bed::new().await else { return };
    let many = "CREATE TABLE many (id text PRIMARY KEY); \
                INSERT INTO many SELECT n::text FROM generate_series(1, 2500) AS n";
    bed.raw.batch_execute(many).await.unwrap();
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
async fn ids_of_every_usual_type_are_found_and_others_are_not_there() {
    let Some(bed) = members().await else { return };
    let uuid = "0192F0C1-2345-7ABC-8DEF-0123456789AB";
    let ids = [uuid, "7", "abc", "", "99999999999999999999", "9", "-", "8'", "{", "\0"];
    for column in ["uuid", "number", "small", "huge"] {
        let sql = format!("SELECT {column} AS id FROM thing WHERE {column} IN (:ids)");
        let found = ask(&bed, &sql, &ids).await.unwrap();
        let expected = if column == "uuid" { uuid } else { "7" };
        assert_eq!(found.into_keys().collect::<Vec<_>>(), [expected], "{column}");
    }
    let sql = "WITH t AS (SELECT uuid::text AS id FROM thing) SELECT id FROM t WHERE id IN (:ids)";
    assert_eq!(ask(&bed, sql, &[&uuid.to_lowercase()]).await.unwrap().len(), 1);
}

#[tokio::test]
async fn ids_are_values_whatever_they_look_like() {
    let Some(bed) = members().await else { return };
    let evil = [
        "m-1') OR 1=1 --",
        "'; DROP TABLE member; --",
        "\"",
        "\\",
        "}",
        "a,b",
        "{a}",
        "NULL",
        "\0",
        "m-1\n",
    ];
    for id in evil.iter().filter(|id| !id.contains('\0')) {
        bed.raw.execute("INSERT INTO member (id) VALUES ($1)", &[id]).await.unwrap();
    }
    let found = ask(&bed, "SELECT * FROM member WHERE id IN (:ids)", &evil).await.unwrap();
    assert_eq!(found.len(), evil.len() - 1, "{found:?}");
    assert_eq!(bed.count("member").await, 11);
}

#[tokio::test]
async fn many_ids_go_in_parts() {
    let Some(bed) = members().await else { return };
    let fill = "INSERT INTO member (id) SELECT 'k' || n FROM generate_series(1, 2500) n";
    bed.raw.batch_execute(fill).await.unwrap();
    let ids: Vec<String> = (1..=3_000).map(|n| format!("k{n}")).collect();
    let hydrator =
        SqlHydrator::new(&bed.store, "SELECT id FROM member WHERE id IN (:ids)", "id").unwrap();
    assert_eq!(hydrator.hydrate(ids).await.unwrap().records.len(), 2_500);
}

#[tokio::test]
async fn a_statement_that_cannot_work_says_what_to_change() {
    let Some(bed) = members().await else { return };
    let sneaky = "CREATE FUNCTION sneak() RETURNS integer LANGUAGE sql
        AS 'DELETE FROM member RETURNING 1'";
    bed.raw.batch_execute(sneaky).await.unwrap();
    let writing = "WITH x AS (DELETE FROM member RETURNING id) SELECT id FROM x WHERE id IN (:ids)";
    for (sql, part) in [
        ("SELECT nothing FROM member WHERE id IN (:ids)", "correct the statement"),
        ("SELECT id FROM nowhere WHERE id IN (:ids)", "correct the statement"),
        ("SELECT name FROM member WHERE id IN (:ids)", "hydrate_id"),
        ("SELECT id, sneak() FROM member WHERE id IN (:ids)", "only read"),
        ("SELECT id FROM member WHERE id IN (:ids) FOR UPDATE", "only read"),
        (writing, "correct the statement"),
    ] {
        let answer = hydrate(&bed, sql, &["m-1", "m-2"]).await;
        let Err(StoreError::Setup(why)) = answer else { panic!("{sql}: {answer:?}") };
        assert!(why.contains(part), "{sql}: {why}");
    }
    assert_eq!(bed.count("member").await, 2, "nothing was written");
    assert!(ask(&bed, "SELECT id FROM member WHERE id IN (:ids)", &["m-1"]).await.is_ok());
}

const BAD_CAST: &str = "SELECT id, name::integer AS x FROM member WHERE id IN (:ids)";
const FILL: &str =
    "INSERT INTO member (id, name) SELECT 'k' || n, '1' FROM generate_series(1, 1500) n;
    UPDATE member SET name = 'x' WHERE id IN ('k7', 'k8', 'k1200');
    CREATE TABLE twice AS SELECT id FROM member;
    INSERT INTO twice VALUES ('k9'), ('k9');";

fn many() -> Vec<String> {
    (1..=1_500).map(|n| format!("k{n}")).collect()
}

#[tokio::test]
async fn a_row_that_makes_the_statement_fail_concerns_its_own_id_only() {
    let Some(bed) = members().await else { return };
    bed.raw.batch_execute(FILL).await.unwrap();
    let ids = many();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let hydrated = hydrate(&bed, BAD_CAST, &ids).await.unwrap();
    assert_eq!(hydrated.records.len(), 1_497);
    let mut failed: Vec<_> = hydrated.failed.into_iter().collect();
    failed.sort();
    assert_eq!(failed.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["k1200", "k7", "k8"]);
    let why = &failed[0].1;
    assert!(why.contains("\"k1200\"") && why.contains("22P02"), "{why}");
    // Alone it fails too, and the statement works without it: the row is to blame.
    let alone = hydrate(&bed, BAD_CAST, &["k7"]).await.unwrap();
    assert!(alone.records.is_empty() && alone.failed.contains_key("k7"), "{alone:?}");
}

#[tokio::test]
async fn two_rows_for_one_id_concern_that_id_only() {
    let Some(bed) = members().await else { return };
    bed.raw.batch_execute(FILL).await.unwrap();
    let sql = "SELECT id FROM twice WHERE id IN (:ids)";
    let hydrated = hydrate(&bed, sql, &["k8", "k9", "k10"]).await.unwrap();
    assert_eq!((hydrated.records.len(), hydrated.failed.len()), (2, 1));
    let why = &hydrated.failed["k9"];
    assert!(why.contains("several rows") && why.contains("\"k9\""), "{why}");
}

const BREAK: &str = "UPDATE member SET name = 'x' WHERE id IN ('k1', 'k2', 'k3', 'k4', 'k5', 'k6')";

#[tokio::test]
async fn a_statement_that_fails_for_every_id_blames_no_row() {
    let Some(bed) = members().await else { return };
    bed.raw.batch_execute(FILL).await.unwrap();
    let constant = "SELECT id, 1 / 0 FROM member WHERE id IN (:ids)";
    let ids = ["k1", "k2", "k3", "k4", "k5", "k6"];
    let answer = hydrate(&bed, constant, &ids).await;
    assert!(matches!(answer, Err(StoreError::Setup(_))), "{answer:?}");
    // It fails without ids too: not even one id is blamed.
    assert!(matches!(hydrate(&bed, constant, &["k1"]).await, Err(StoreError::Setup(_))));
    // Many bad rows are still rows, as long as a row that was read can be read.
    let hydrator = SqlHydrator::new(&bed.store, BAD_CAST, "id").unwrap();
    let ask = |ids: &[&str]| hydrator.hydrate(ids.iter().map(|&id| id.to_owned()).collect());
    assert_eq!(ask(&["k100"]).await.unwrap().records.len(), 1);
    bed.raw.batch_execute(BREAK).await.unwrap();
    assert_eq!(ask(&ids).await.unwrap().failed.len(), 6);
    let fresh = hydrate(&bed, BAD_CAST, &ids).await;
    assert!(matches!(fresh, Err(StoreError::Setup(_))), "{fresh:?}");
}

#[tokio::test]
async fn the_columns_of_a_statement_are_known_without_a_row() {
    let Some(bed) = members().await else { return };
    let columns = |sql: &str| {
        let hydrator = SqlHydrator::new(&bed.store, sql, "id").unwrap();
        async move { hydrator.columns().await }
    };
    let found = columns("SELECT id, name AS \"Full Name\" FROM member WHERE id IN (:ids)").await;
    assert_eq!(found.unwrap(), ["id", "Full Name"]);
    let wrong = columns("SELECT id FROM nowhere WHERE id IN (:ids)").await;
    assert!(matches!(wrong, Err(StoreError::Setup(_))), "{wrong:?}");
}
