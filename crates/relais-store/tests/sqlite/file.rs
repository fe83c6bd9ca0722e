//! Opening and checking a file.

use relais_core::store::StoreError;
use relais_store::{
    SCHEMA_VERSION,
    sqlite::{SCRIPTS, SqliteOptions, SqliteStore},
};
use rusqlite::Connection;

use crate::bed::Bed;

async fn refusal(bed: &Bed) -> String {
    match bed.store.check().await {
        Err(StoreError::Setup(why)) => why.to_string(),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[tokio::test]
async fn a_file_is_refused_until_it_is_migrated() {
    let bed = Bed::empty(SqliteOptions::default()).await;
    assert!(refusal(&bed).await.contains("relais migrate"));
    assert_eq!(bed.count("sqlite_schema"), 0, "checking changes nothing");
    let enqueued = bed.store.enqueue(vec![crate::bed::message("a")]).await;
    assert!(matches!(enqueued, Err(StoreError::Setup(why)) if why.contains("relais migrate")));

    let migrated = bed.store.migrate().await.unwrap();
    assert_eq!((migrated.from, migrated.to), (0, SCHEMA_VERSION));
    assert_eq!(migrated.applied.len(), SCRIPTS.len());
    bed.store.check().await.unwrap();
    assert!(bed.store.migrate().await.unwrap().applied.is_empty());
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_reads_the_files_it_makes() {
    use std::os::unix::fs::PermissionsExt;

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("relais.db");
    let store = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    store.migrate().await.unwrap();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", entry.file_name());
        names.push(entry.file_name().into_string().unwrap());
    }
    names.sort();
    assert_eq!(names, ["relais.db", "relais.db-shm", "relais.db-wal"]);
}

#[tokio::test]
async fn many_nodes_open_and_migrate_one_file_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("relais.db");
    let nodes = (0..8).map(|_| {
        let path = path.clone();
        tokio::spawn(async move {
            let store = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
            let migrated = store.migrate().await.unwrap();
            store.check().await.unwrap();
            migrated.applied.len()
        })
    });
    let mut applied = 0;
    for node in nodes.collect::<Vec<_>>() {
        applied += node.await.unwrap();
    }
    assert_eq!(applied, SCRIPTS.len(), "each script is applied once");
}

#[tokio::test]
async fn a_memory_database_is_refused() {
    let opened = SqliteStore::open(":memory:".as_ref(), SqliteOptions::default()).await;
    assert!(matches!(opened, Err(StoreError::Setup(why)) if why.contains("WAL")));
    assert!(!std::path::Path::new(":memory:").exists(), "no file of this name is left behind");
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_named() {
    let opened = SqliteStore::open("/no/such/place/r.db".as_ref(), SqliteOptions::default()).await;
    let Err(StoreError::Setup(why)) = opened else { panic!("{opened:?}") };
    assert!(why.contains("/no/such/place") && why.contains("create it"), "{why}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notes.txt");
    std::fs::write(&path, "dear diary, ".repeat(1_000)).unwrap();
    let opened = SqliteStore::open(&path, SqliteOptions::default()).await;
    assert!(matches!(opened, Err(StoreError::Setup(why)) if why.contains("no sqlite database")));
}

#[tokio::test]
async fn relaxed_durability_is_the_users_choice_only() {
    let synchronous = |options| async move {
        let bed = Bed::with(options).await;
        bed.store.check().await.unwrap();
    };
    synchronous(SqliteOptions::default().unsafe_durability(true)).await;
    synchronous(SqliteOptions::default()).await;
}

#[tokio::test]
async fn the_schema_is_the_documented_one() {
    let bed = Bed::new().await;
    let found = schema(&bed.raw());
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/sqlite.sql");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(golden, &found).unwrap();
    }
    let expected = std::fs::read_to_string(golden).unwrap_or_default();
    assert!(found == expected, "schema changed: if meant, run again with UPDATE_GOLDEN=1");
}

/// Everything of relais in the file, the same for schemas that are the same.
pub(crate) fn schema(db: &Connection) -> String {
    let sql = "SELECT sql || ';' FROM sqlite_schema \
               WHERE tbl_name LIKE 'relais%' AND sql IS NOT NULL ORDER BY tbl_name, type DESC, name";
    let mut statement = db.prepare(sql).unwrap();
    let parts = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    parts.map(Result::unwrap).collect::<Vec<_>>().join("\n\n") + "\n"
}
