//! From an empty database to one that fits, by any number of nodes.

use relais_core::store::StoreError;

use super::Start;
use crate::fixture::Fixture;

pub const START: Start = Start::Empty;

pub async fn an_empty_database_gets_every_script(f: &dyn Fixture) {
    let done = f.migrate().await.expect("migrate");
    assert_eq!(done.from, 0);
    assert!(done.to >= 1 && !done.applied.is_empty(), "{done:?}");
    assert_eq!(f.number("SELECT max(version) FROM relais_schema").await, done.to);
    assert_eq!(f.store().overview().await.expect("overview").schema_version, done.to);
}

pub async fn migrating_again_changes_nothing(f: &dyn Fixture) {
    let first = f.migrate().await.expect("migrate");
    let again = f.second().migrate().await.expect("migrate again");
    assert_eq!((again.from, again.to), (first.to, first.to));
    assert!(again.applied.is_empty(), "{again:?}");
}

pub async fn nodes_that_migrate_together_apply_each_script_once(f: &dyn Fixture) {
    let [one, two] = f.migrators().await;
    let (one, two) = tokio::join!(one.migrate(), two.migrate());
    let (one, two) = (one.expect("first node"), two.expect("second node"));
    assert_eq!(one.to, two.to);
    let scripts = i64::try_from(one.applied.len() + two.applied.len()).expect("few scripts");
    assert_eq!(scripts, one.to);
    assert_eq!(f.number("SELECT count(*) FROM relais_schema").await, one.to);
}

pub async fn tables_of_the_user_stay_as_they_are(f: &dyn Fixture) {
    f.run("CREATE TABLE orders (id integer)").await;
    f.run("INSERT INTO orders VALUES (7)").await;
    f.migrate().await.expect("migrate");
    assert_eq!(f.number("SELECT id FROM orders").await, 7);
}

pub async fn a_database_without_tables_is_refused_with_what_to_do(f: &dyn Fixture) {
    match f.store().check().await {
        Err(StoreError::Setup(message)) => {
            assert!(message.contains("migrate"), "say what to do next: {message}");
        }
        other => panic!("expected a setup error, got {other:?}"),
    }
    let tables = f.execute("SELECT count(*) FROM relais_outbox").await;
    assert!(tables.is_err(), "a check changes nothing");
}

pub async fn a_migrated_database_passes_the_check(f: &dyn Fixture) {
    f.migrate().await.expect("migrate");
    f.store().check().await.expect("check");
    f.second().check().await.expect("check of another node");
}

pub async fn a_schema_of_a_newer_program_is_refused(f: &dyn Fixture) {
    f.migrate().await.expect("migrate");
    f.run(
        "UPDATE relais_schema SET version = 9999 \
         WHERE version = (SELECT max(version) FROM relais_schema)",
    )
    .await;
    let checked = f.second().check().await;
    assert!(matches!(checked, Err(StoreError::Setup(_))), "{checked:?}");
}

pub async fn the_store_says_what_it_is(f: &dyn Fixture) {
    let text = f.store().describe().await.expect("describe").server;
    let name = format!("{:?}", f.dialect()).to_lowercase();
    assert!(text.to_lowercase().contains(&name), "{text}");
    assert!(text.chars().any(|c| c.is_ascii_digit()), "with its version: {text}");
}
