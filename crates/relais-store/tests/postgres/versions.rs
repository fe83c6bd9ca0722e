//! Programs and tables of different versions: what works together, and what is refused how.

use std::time::Duration;

use relais_core::{
    bulk::BulkLease,
    outbox::OutboxFate,
    store::{Fetch, Store, StoreError},
};
use relais_store::{
    SCHEMA_VERSION,
    postgres::{PostgresOptions, PostgresStore, SCRIPTS},
};

use crate::{
    bed::{Bed, message, outbox},
    edition::{breaks, edition, grows},
    golden::dump,
    support::postgres::Role,
};

/// Changes that an old program works with: more columns, and a column whose type its plans do not expect.
const GROWTH: &str = "\
ALTER TABLE relais_outbox ADD COLUMN priority smallint NOT NULL DEFAULT 0;
ALTER TABLE relais_outbox ALTER COLUMN error_code TYPE text;
";
const BREAK: &str = "ALTER TABLE relais_outbox RENAME COLUMN payload TO body;";

fn setup<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    match result {
        Err(StoreError::Setup(text)) => text.to_string(),
        other => panic!("not refused: {other:?}"),
    }
}

fn take_crm() -> BulkLease {
    let (destination, worker) = ("crm".into(), "w1".into());
    BulkLease::Take { destination, worker, lease: Duration::from_secs(60) }
}

#[tokio::test]
async fn a_new_program_refuses_old_tables_until_their_owner_migrates_them() {
    let Some(bed) = Bed::new().await else { return };
    let new = edition(SCRIPTS, &[grows(SCRIPTS, GROWTH)]);
    let store = bed.store.clone().knowing(new);
    let text = setup(store.check().await);
    let old = format!("are version {SCHEMA_VERSION}, this program needs {}", SCHEMA_VERSION + 1);
    assert!(text.contains(&old) && text.contains("; run `relais migrate`"), "{text}");
    // As runtime, which may not.
    let text = setup(store.migrate().await);
    assert!(
        text.contains(&format!("migration {} `grow` was not applied", SCHEMA_VERSION + 1)),
        "{text}"
    );
    assert!(text.contains("as the role that owns relais's tables"), "{text}");
    let owner = bed.schema.store_as(Role::Owner).await.knowing(new);
    assert_eq!(owner.migrate().await.unwrap().applied, ["grow"]);
    store.check().await.unwrap();
    assert!(store.migrate().await.unwrap().applied.is_empty(), "runtime finds nothing to do");
}

#[tokio::test]
async fn programs_of_two_versions_work_together_on_tables_that_only_grew() {
    let Some(bed) = Bed::single().await else { return };
    let lanes = bed.lanes().await;
    // The old program has planned all its statements before the tables change under it.
    for (key, fate) in [("a", OutboxFate::Dispatched), ("b", OutboxFate::Dispatched)] {
        bed.send(key).await;
        let rows = bed.fetch(&lanes).await;
        assert_eq!(bed.settle(&rows, &lanes, &fate).await.settled, 1);
    }
    let new = edition(SCRIPTS, &[grows(SCRIPTS, GROWTH)]);
    let owner = bed.schema.store_as(Role::Owner).await.knowing(new);
    assert_eq!(owner.migrate().await.unwrap().applied, ["grow"]);

    let newer = bed.schema.store().await.knowing(new);
    for store in [&bed.store, &newer] {
        store.check().await.unwrap();
        assert!(store.migrate().await.unwrap().applied.is_empty());
    }
    newer.enqueue(vec![message("by the new one")]).await.unwrap();
    bed.send("by the old one").await;
    let rows = bed.fetch(&lanes).await;
    assert_eq!(rows.len(), 2, "the old one reads both");
    assert_eq!(bed.settle(&rows[..1], &lanes, &OutboxFate::Dispatched).await.settled, 1);
    let rest = Fetch::new(outbox(), lanes.clone(), 9);
    assert_eq!(newer.fetch_outbox(rest).await.unwrap().len(), 1, "the new one reads the rest");
    assert_eq!(newer.overview().await.unwrap().schema_version, SCHEMA_VERSION + 1);
}

#[tokio::test]
async fn an_old_program_neither_uses_nor_changes_tables_that_need_a_newer_one() {
    let Some(bed) = Bed::new().await else { return };
    let new = edition(SCRIPTS, &[breaks(SCRIPTS, BREAK)]);
    bed.schema.store_as(Role::Owner).await.knowing(new).migrate().await.unwrap();
    let before = dump(&bed.raw).await;
    let owner = bed.schema.store_as(Role::Owner).await;
    for refused in [bed.store.check().await, owner.migrate().await.map(drop)] {
        let text = setup(refused);
        let needed = format!("need a program that knows version {}", SCHEMA_VERSION + 1);
        assert!(text.contains(&needed), "{text}");
        assert!(text.contains("; update relais on this machine"), "{text}");
    }
    // A running process meets a column that was dropped, and reports it.
    let text = setup(bed.store.enqueue(vec![message("k")]).await);
    assert!(text.contains("payload"), "{text}");
    assert_eq!(dump(&bed.raw).await, before);
}

#[tokio::test]
async fn tables_of_another_edition_of_a_script_are_refused() {
    let Some(bed) = Bed::new().await else { return };
    let script = relais_store::Script { sql: "SELECT 1;", ..SCRIPTS[0] };
    let other = bed.store.clone().knowing(edition(&[script], &SCRIPTS[1..]));
    for refused in [other.check().await, other.migrate().await.map(drop)] {
        assert!(setup(refused).contains("another edition of script 1 `relais`"));
    }
    bed.raw.batch_execute("DELETE FROM relais_schema").await.unwrap();
    let text = setup(bed.schema.store_as(Role::Owner).await.migrate().await);
    assert!(text.contains("already exists") && text.contains("rename or drop"), "{text}");
}

#[tokio::test]
async fn a_state_of_a_newer_program_is_refused_and_the_row_stays_as_it_is() {
    let Some(bed) = Bed::new().await else { return };
    bed.send("k").await;
    let lanes = bed.lanes().await;
    let rows = "relais_outbox WHERE category = 'query' AND status = 'PENDING'";
    bed.raw
        .batch_execute(
            "ALTER DOMAIN relais_category DROP CONSTRAINT \"category must be event, command or reply\";
             UPDATE relais_outbox SET category = 'query'",
        )
        .await
        .unwrap();
    let fetch = Fetch::new(outbox(), lanes, 9);
    let refused = bed.store.fetch_outbox(fetch).await;
    let Err(StoreError::Unavailable(text)) = refused else { panic!("{refused:?}") };
    assert!(text.contains("`query` is not known to this program"), "{text}");
    assert!(text.contains("update relais"), "{text}");
    assert_eq!(bed.count(rows).await, 1);
}

#[tokio::test]
async fn plans_of_every_connection_are_made_again_after_the_tables_changed() {
    let Some(bed) = Bed::new().await else { return };
    let options = PostgresOptions::default().connections_max(4);
    let store = PostgresStore::connect(&bed.schema.url(), options).await.unwrap();
    let read = |store: PostgresStore| async move {
        let lanes = relais_core::lane::OwnedLane { lane: 1, epoch: 1, unclean: false };
        let fetch = Fetch::new(outbox(), vec![lanes], 9);
        store.fetch_outbox(fetch).await
    };
    for sql in ["SELECT 1", GROWTH] {
        bed.raw.batch_execute(sql).await.unwrap();
        let readers: Vec<_> = (0..16).map(|_| tokio::spawn(read(store.clone()))).collect();
        for reader in readers {
            reader.await.unwrap().unwrap();
        }
    }
}

#[tokio::test]
async fn a_bulk_job_in_a_phase_of_a_newer_program_is_not_taken() {
    let Some(bed) = Bed::new().await else { return };
    bed.raw
        .batch_execute(
            "ALTER TABLE relais_bulk_job DROP CONSTRAINT relais_bulk_job_phase;
             INSERT INTO relais_bulk_job (id, destination, phase, row_count)
             VALUES (gen_random_uuid(), 'crm', 'VERIFYING', 1)",
        )
        .await
        .unwrap();
    let taken = bed.store.lease_bulk(take_crm()).await;
    let Err(StoreError::Unavailable(text)) = taken else { panic!("{taken:?}") };
    assert!(text.contains("`VERIFYING` is not known to this program"), "{text}");
    assert_eq!(bed.count("relais_bulk_job WHERE phase = 'VERIFYING' AND owner IS NULL").await, 1);
}
