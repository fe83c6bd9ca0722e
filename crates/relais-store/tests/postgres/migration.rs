//! Two nodes, interruptions and programs of other versions.

use relais_core::store::{Store, StoreError};
use relais_store::SCHEMA_VERSION;

use crate::bed::Bed;

#[tokio::test]
async fn nodes_that_migrate_at_once_apply_each_script_once() {
    let Some(bed) = Bed::empty().await else { return };
    let mut nodes = Vec::new();
    for _ in 0..4 {
        nodes.push(bed.schema.store().await);
    }
    let running: Vec<_> =
        nodes.into_iter().map(|node| tokio::spawn(async move { node.migrate().await })).collect();
    let mut applied = Vec::new();
    for node in running {
        applied.extend(node.await.unwrap().unwrap().applied);
    }
    assert_eq!(applied, ["relais"]);
    bed.store.check().await.unwrap();
}

#[tokio::test]
async fn an_interrupted_migration_leaves_nothing_and_runs_again() {
    let Some(bed) = Bed::empty().await else { return };
    // In the way of a late statement of the script, so that it is under way when its session dies.
    bed.raw.batch_execute("CREATE TABLE relais_audit (odd integer)").await.unwrap();
    assert!(bed.store.migrate().await.is_err());
    assert_eq!(bed.count("pg_tables WHERE schemaname = current_schema()").await, 1);
    bed.raw.batch_execute("DROP TABLE relais_audit").await.unwrap();
    let migrated = bed.store.migrate().await.unwrap();
    assert_eq!((migrated.from, migrated.to), (0, SCHEMA_VERSION));
    bed.store.check().await.unwrap();
    assert!(bed.store.migrate().await.unwrap().applied.is_empty());
}

#[tokio::test]
async fn a_newer_schema_is_left_alone() {
    let Some(bed) = Bed::new().await else { return };
    let newer = "INSERT INTO relais_schema (version, name) VALUES (999, 'later')";
    bed.raw.batch_execute(newer).await.unwrap();
    for refused in [bed.store.check().await, bed.store.migrate().await.map(drop)] {
        let Err(StoreError::Setup(text)) = refused else { panic!("not refused: {refused:?}") };
        assert!(text.contains("use a newer relais"), "{text}");
    }
}
