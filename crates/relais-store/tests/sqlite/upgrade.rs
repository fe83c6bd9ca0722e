//! Migrations that are cut off, and programs and tables of different versions.

use std::{
    env,
    process::{Child, Command, Stdio},
    time::Duration,
};

use relais_core::{
    bulk::BulkLease,
    inspect::InspectExt,
    lane::Scope,
    process::{KeyHold, ProcessRef},
    query::Filter,
    store::{Fetch, Store, StoreError},
};
use relais_store::{
    SCHEMA_VERSION, Script,
    adopt::{AdoptDestination, AdoptPreset, Adoption},
    sqlite::{SCRIPTS, SqliteOptions, SqliteStore, schema_sql},
};

use crate::{
    bed::{Bed, message},
    edition::{breaks, cut, edition, grows, statements},
    file::schema,
};

/// Additions of a later version.
const GROWTH: &str = "\
ALTER TABLE relais_outbox ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
CREATE TABLE relais_note (id INTEGER PRIMARY KEY, note TEXT) STRICT;
CREATE INDEX relais_note_note ON relais_note (note);
UPDATE relais_outbox SET priority = 1;
";
const BREAK: &str = "ALTER TABLE relais_outbox RENAME COLUMN payload TO body;";
/// A statement that fails.
const FAIL: &str = "SELECT no_such_function();";
/// A statement that takes longer than any test.
const HANG: &str = "CREATE TABLE relais_endless AS WITH RECURSIVE numbers (n) AS \
    (SELECT 1 UNION ALL SELECT n + 1 FROM numbers) SELECT n FROM numbers WHERE n < 0;";
/// Names, for a copy of this program, the file to migrate and the number of statements before it hangs.
const CHILD: &str = "RELAIS_TEST_MIGRATE";

fn setup<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    match result {
        Err(StoreError::Setup(text)) => text.to_string(),
        other => panic!("not refused: {other:?}"),
    }
}

async fn fresh(scripts: &'static [Script]) -> String {
    let bed = Bed::empty(SqliteOptions::default()).await;
    bed.store.clone().knowing(scripts).migrate().await.unwrap();
    schema(&bed.raw())
}

fn take_crm() -> BulkLease {
    let (destination, worker) = ("crm".into(), "w1".into());
    BulkLease::Take { destination, worker, lease: Duration::from_secs(60) }
}

#[tokio::test]
async fn a_migration_cut_off_at_any_statement_leaves_nothing_and_runs_again() {
    let bed = Bed::empty(SqliteOptions::default()).await;
    let script = &SCRIPTS[0];
    let all = statements(script.sql).len();
    assert!(all > 40, "{all} statements");
    for kept in 0..=all {
        let failing = bed.store.clone().knowing(edition(&[], &[cut(script, kept, FAIL)]));
        let text = setup(failing.migrate().await);
        assert!(text.contains("migration 1 `relais` was not applied"), "{text}");
        assert_eq!(bed.count("sqlite_schema"), 0, "after {kept} statements");
    }
    let migrated = bed.store.migrate().await.unwrap();
    assert_eq!((migrated.from, migrated.to), (0, SCHEMA_VERSION));
    assert_eq!(schema(&bed.raw()), fresh(SCRIPTS).await);
}

#[tokio::test]
async fn an_upgrade_cut_off_at_any_statement_leaves_the_old_tables_and_runs_again() {
    let bed = Bed::new().await;
    bed.store.enqueue(vec![message("k")]).await.unwrap();
    let old = schema(&bed.raw());
    let script = grows(SCRIPTS, GROWTH);
    for kept in 0..=statements(GROWTH).len() {
        let failing = bed.store.clone().knowing(edition(SCRIPTS, &[cut(&script, kept, FAIL)]));
        setup(failing.migrate().await);
        assert_eq!(schema(&bed.raw()), old, "after {kept} statements");
        bed.store.check().await.unwrap();
    }
    let new = edition(SCRIPTS, &[script]);
    let migrated = bed.store.clone().knowing(new).migrate().await.unwrap();
    assert_eq!((migrated.from, migrated.to), (SCHEMA_VERSION, SCHEMA_VERSION + 1));
    assert_eq!(bed.count("relais_outbox WHERE priority = 1"), 1, "rows are kept");
    assert_eq!(schema(&bed.raw()), fresh(new).await);
}

#[tokio::test]
async fn business_keys_stay_taken_through_the_migration_that_can_release_them() {
    let bed = Bed::empty(SqliteOptions::default()).await;
    bed.store.clone().knowing(&SCRIPTS[..5]).migrate().await.unwrap();
    let insert = "INSERT INTO relais_process (process_id, process_type, definition, business_key, status, data, \
                  version) VALUES (?1, 'order', 1, 'o-1', 'SUCCEEDED', '{}', 1)";
    bed.raw().execute(insert, ["00000000-0000-0000-0000-000000000001"]).unwrap();
    bed.store.migrate().await.unwrap();
    let key = ProcessRef::key("order", "o-1");
    let found = bed.store.load_processes(vec![key]).await.unwrap().remove(0).unwrap();
    assert_eq!(found.key_hold, KeyHold::Once);
    let again = bed.raw().execute(insert, ["00000000-0000-0000-0000-000000000002"]);
    assert!(again.is_err(), "the key is taken");
}

/// Not a test by itself: what the processes of the next one do.
#[tokio::test]
async fn a_process_that_migrates_and_hangs() {
    let Ok(order) = env::var(CHILD) else { return };
    let (kept, path) = order.split_once(':').unwrap();
    let script = cut(&SCRIPTS[0], kept.parse().unwrap(), HANG);
    let store = SqliteStore::open(path.as_ref(), SqliteOptions::default()).await.unwrap();
    store.knowing(edition(&[], &[script])).migrate().await.unwrap();
}

/// A process of its own that holds the write lock in the middle of a migration.
fn hang(bed: &Bed, kept: usize) -> Child {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "upgrade::a_process_that_migrates_and_hangs"])
        .env(CHILD, format!("{kept}:{}", bed.path().display()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let raw = bed.raw();
    raw.busy_timeout(Duration::ZERO).unwrap();
    while raw.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok() {
        assert!(child.try_wait().unwrap().is_none(), "ended early");
        std::thread::yield_now();
    }
    child
}

#[tokio::test]
async fn a_process_killed_in_a_migration_leaves_nothing_and_another_one_continues() {
    let bed = Bed::empty(SqliteOptions::default()).await;
    let all = statements(SCRIPTS[0].sql).len();
    for kept in [0, 1, all / 2, all] {
        let mut child = hang(&bed, kept);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(bed.count("sqlite_schema"), 0, "after {kept} statements");
    }
    bed.second().await.migrate().await.unwrap();
    assert_eq!(schema(&bed.raw()), fresh(SCRIPTS).await);
    let sound: String =
        bed.raw().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
}

#[tokio::test]
async fn something_in_the_way_is_named_and_nothing_is_changed() {
    let bed = Bed::empty(SqliteOptions::default()).await;
    bed.raw().execute_batch("CREATE TABLE relais_worker (mine TEXT)").unwrap();
    let text = setup(bed.store.migrate().await);
    assert!(text.contains("relais_worker") && text.contains("rename or drop"), "{text}");
    assert_eq!(bed.count("sqlite_schema"), 1);
    bed.raw().execute_batch("DROP TABLE relais_worker; CREATE TABLE relais_schema (v)").unwrap();
    for text in [setup(bed.store.check().await), setup(bed.store.migrate().await)] {
        assert!(text.contains("cannot read relais_schema"), "{text}");
    }
    bed.raw().execute_batch("DROP TABLE relais_schema").unwrap();
    bed.store.migrate().await.unwrap();
    bed.store.check().await.unwrap();
}

#[tokio::test]
async fn a_printed_schema_that_an_operator_applied_is_as_good() {
    let bed = Bed::empty(SqliteOptions::default()).await;
    bed.raw().execute_batch(&schema_sql()).unwrap();
    bed.store.check().await.unwrap();
    assert!(bed.store.migrate().await.unwrap().applied.is_empty());
    // SQLite keeps the text of a statement, with the blanks at its end.
    let text = |schema: String| schema.replace(char::is_whitespace, "");
    assert_eq!(text(schema(&bed.raw())), text(fresh(SCRIPTS).await));
}

#[tokio::test]
async fn a_new_program_refuses_old_tables_until_they_are_migrated() {
    let bed = Bed::new().await;
    let new = bed.store.clone().knowing(edition(SCRIPTS, &[grows(SCRIPTS, GROWTH)]));
    let text = setup(new.check().await);
    let old = format!("are version {SCHEMA_VERSION}, this program needs {}", SCHEMA_VERSION + 1);
    assert!(text.contains(&old) && text.contains("; run `relais migrate`"), "{text}");
    assert_eq!(new.migrate().await.unwrap().applied, ["grow"]);
    new.check().await.unwrap();
}

#[tokio::test]
async fn programs_of_two_versions_work_together_on_tables_that_only_grew() {
    let bed = Bed::new().await;
    let new = bed.second().await.knowing(edition(SCRIPTS, &[grows(SCRIPTS, GROWTH)]));
    bed.store.enqueue(vec![message("before")]).await.unwrap();
    new.migrate().await.unwrap();
    for store in [&bed.store, &new] {
        store.check().await.unwrap();
        assert!(store.migrate().await.unwrap().applied.is_empty());
        store.enqueue(vec![message("after")]).await.unwrap();
        assert_eq!(store.overview().await.unwrap().schema_version, SCHEMA_VERSION + 1);
    }
    assert_eq!(bed.count("relais_outbox"), 3);
}

#[tokio::test]
async fn an_old_program_neither_uses_nor_changes_tables_that_need_a_newer_one() {
    let bed = Bed::new().await;
    let new = edition(SCRIPTS, &[breaks(SCRIPTS, BREAK)]);
    bed.store.clone().knowing(new).migrate().await.unwrap();
    let before = schema(&bed.raw());
    for refused in [bed.store.check().await, bed.store.migrate().await.map(drop)] {
        let text = setup(refused);
        assert!(
            text.contains(&format!(
                "version {}, this one knows {SCHEMA_VERSION}",
                SCHEMA_VERSION + 1
            )),
            "{text}"
        );
    }
    assert_eq!(schema(&bed.raw()), before);
}

#[tokio::test]
async fn tables_of_another_edition_of_a_script_are_refused() {
    let bed = Bed::new().await;
    let script = Script { sql: "SELECT 1;", ..SCRIPTS[0] };
    let other = bed.store.clone().knowing(edition(&[script], &SCRIPTS[1..]));
    for refused in [other.check().await, other.migrate().await.map(drop)] {
        assert!(setup(refused).contains("another edition of script 1 `relais`"));
    }
}

#[tokio::test]
async fn a_state_of_a_newer_program_is_refused_and_the_row_stays_as_it_is() {
    let bed = Bed::new().await;
    bed.store.enqueue(vec![message("k")]).await.unwrap();
    let raw = bed.raw();
    raw.pragma_update(None, "ignore_check_constraints", true).unwrap();
    raw.execute_batch("UPDATE relais_outbox SET category = 'query'").unwrap();
    let listed = bed.store.list_outbox(Filter { limit: 9, ..Filter::default() }).await;
    let Err(StoreError::Unavailable(text)) = listed else { panic!("{listed:?}") };
    assert!(text.contains("`query` is not known to this program"), "{text}");
    assert!(text.contains("update relais"), "{text}");
    assert_eq!(bed.count("relais_outbox WHERE category = 'query' AND status = 'PENDING'"), 1);
}

#[tokio::test]
async fn a_bulk_job_in_a_phase_of_a_newer_program_is_not_taken() {
    let bed = Bed::new().await;
    let raw = bed.raw();
    raw.pragma_update(None, "ignore_check_constraints", true).unwrap();
    raw.execute_batch(&format!(
        "INSERT INTO relais_bulk_job (id, destination, phase, row_count) \
         VALUES ('{}', 'crm', 'VERIFYING', 1)",
        uuid::Uuid::now_v7()
    ))
    .unwrap();
    let taken = bed.store.lease_bulk(take_crm()).await;
    let Err(StoreError::Unavailable(text)) = taken else { panic!("{taken:?}") };
    assert!(text.contains("`VERIFYING` is not known to this program"), "{text}");
    assert_eq!(bed.count("relais_bulk_job WHERE phase = 'VERIFYING' AND owner IS NULL"), 1);
}

/// Lanes of the version before: of a live worker and of a lost one.
const OLD_LANES: &str = "\
INSERT INTO relais_lane (scope, lane, owner, epoch, lease_until)
VALUES ('inbox', 0, 'live', 3, strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '60 seconds')),
       ('inbox', 1, 'lost', 5, '2000-01-01T00:00:00.000Z'), ('inbox', 2, NULL, 7, NULL);
INSERT INTO relais_worker (scope, worker, seen_until)
VALUES ('inbox', 'live', strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '60 seconds'));";

#[tokio::test]
async fn the_leases_of_lanes_become_leases_of_workers() {
    let bed = Bed::empty(SqliteOptions::default()).await;
    let old = bed.store.clone().knowing(&SCRIPTS[..1]);
    old.migrate().await.unwrap();
    bed.raw().execute_batch(OLD_LANES).unwrap();
    let before = schema(&bed.raw());
    let script = &SCRIPTS[1];
    for kept in 0..=statements(script.sql).len() {
        let failing = edition(&SCRIPTS[..1], &[cut(script, kept, FAIL)]);
        setup(bed.store.clone().knowing(failing).migrate().await);
        assert_eq!(schema(&bed.raw()), before, "after {kept} statements");
        old.check().await.unwrap();
    }
    assert_eq!(
        bed.store.migrate().await.unwrap().applied,
        [
            "worker_lease",
            "adopt",
            "lean_outbox",
            "sql_interface",
            "business_keys",
            "adopted_inbox",
            "other_programs"
        ]
    );
    assert!(setup(old.check().await).contains("update relais on this machine"));
    // What the heartbeat of an old process does that was not stopped.
    let renew = bed.raw().execute_batch("UPDATE relais_lane SET lease_until = NULL");
    assert!(renew.unwrap_err().to_string().contains("lease_until"));

    let taken = bed.lease(Scope::Inbox, "new").await;
    let lane = |lane| taken.iter().find(|l| l.lane == lane).map(|l| (l.epoch, l.unclean));
    assert_eq!((lane(0), lane(1), lane(2)), (None, Some((6, true)), Some((8, false))));
    let expire = "UPDATE relais_lease SET lease_until = '2000-01-01' WHERE worker = 'live'";
    bed.raw().execute_batch(expire).unwrap();
    let taken = bed.lease(Scope::Inbox, "new").await;
    assert!(taken.iter().any(|l| (l.lane, l.epoch, l.unclean) == (0, 4, true)), "{taken:?}");
}

/// Rows of the version before: fresh, in backoff, delayed, in a bulk job, behind a parked key, failed and delivered.
const OLD_ROWS: &str = "\
INSERT INTO relais_bulk_job (id, destination, phase, row_count) VALUES ('job-1', 'orders', 'CREATED', 1);
INSERT INTO relais_outbox
    (id, aggregate_type, aggregate_id, event_type, destination, payload, status, attempts, next_attempt_at, job_id,
     error_code, dispatched_at)
VALUES (1, 'O', 'done', 'E', 'orders', '{}', 'DISPATCHED', 1, NULL, NULL, NULL, '2026-01-01T00:00:00.000Z'),
       (2, 'O', 'backoff', 'E', 'orders', '{}', 'PENDING', 2, '2000-01-01T00:00:00.000Z', NULL, 'HTTP_500', NULL),
       (3, 'O', 'job', 'E', 'orders', '{}', 'PENDING', 0, '9000-01-01T00:00:00.000Z', 'job-1', NULL, NULL),
       (4, 'O', 'delayed', 'E', 'orders', '{}', 'PENDING', 0, '2999-01-01T00:00:00.000Z', NULL, NULL, NULL),
       (5, 'O', 'parked', 'E', 'orders', '{}', 'FAILED', 5, NULL, NULL, 'HTTP_400', NULL),
       (6, 'O', 'parked', 'E', 'orders', '{}', 'PENDING', 0, NULL, NULL, NULL, NULL),
       (7, 'O', 'backoff', 'E', 'orders', '{}', 'PENDING', 0, NULL, NULL, NULL, NULL),
       (8, 'O', 'delayed', 'E', 'orders', '{}', 'PENDING', 0, NULL, NULL, NULL, NULL),
       (9, 'O', 'done', 'E', 'other', '{}', 'DISPATCHED', 1, NULL, NULL, NULL, '2026-01-01T00:00:00.000Z'),
       (20, 'O', 'removed', 'E', 'orders', '{}', 'PENDING', 0, NULL, NULL, NULL, NULL);
DELETE FROM relais_outbox WHERE id = 20;
INSERT INTO relais_dead_letter (id, origin, origin_id, message_id, destination, msg_key, failed_status, parked_by, parks_key)
VALUES ('00000000-0000-4000-8000-000000000001', 'outbox', 5, 'm', 'orders', 'parked', 'FAILED', 'w', 1);
INSERT INTO relais_parked_key (origin, destination, msg_key, dead_letter_id)
VALUES ('outbox', 'orders', 'parked', '00000000-0000-4000-8000-000000000001');
CREATE VIEW pending_orders AS SELECT id FROM relais_outbox WHERE status = 'PENDING';";

const OLD_COLUMNS: &str =
    "SELECT group_concat(id || message_id || destination || msg_key || status || attempts
    || coalesce(next_attempt_at, '-') || coalesce(job_id, '-') || coalesce(error_code, '-')
    || coalesce(dispatched_at, '-') || created_at || payload || headers || lane, ' ')
    FROM (SELECT * FROM relais_outbox ORDER BY id)";

/// Received messages of the version before, with a gap behind the last one.
const OLD_RECEIVED: &str = "\
INSERT INTO relais_inbox
    (id, message_id, source_system, topic, partition_num, offset_num, msg_key, payload, raw_payload_base64, status,
     attempts, next_attempt_at)
VALUES (1, 'a', 's', 't', 0, 1, 'k', '{}', NULL, 'PROCESSED', 1, NULL),
       (2, 'b', 'x::s', 't', 0, 2, 'k', NULL, 'e30=', 'SERDE_ERROR', 0, NULL),
       (3, 'c', 's', 't', 0, 3, 'k', '{}', NULL, 'RETRY', 2, '2999-01-01T00:00:00.000Z'),
       (9, 'd', 's', 't', 0, 4, 'k', '{}', NULL, 'RECEIVED', 0, NULL);
DELETE FROM relais_inbox WHERE id = 9;";

const RECEIVED_COLUMNS: &str =
    "SELECT group_concat(id || message_id || source_system || inbox || msg_key || lane || status || attempts
    || coalesce(payload, '-') || coalesce(raw_payload_base64, '-') || coalesce(next_attempt_at, '-') || received_at, ' ')
    FROM (SELECT * FROM relais_inbox ORDER BY id)";

#[tokio::test]
async fn received_messages_of_the_version_before_stay_as_they_were() {
    let bed = Bed::empty(SqliteOptions::default()).await;
    let old = bed.store.clone().knowing(&SCRIPTS[..6]);
    old.migrate().await.unwrap();
    bed.raw().execute_batch(OLD_RECEIVED).unwrap();
    let read = || bed.raw().query_row(RECEIVED_COLUMNS, [], |row| row.get::<_, String>(0)).unwrap();
    let before = read();
    assert_eq!(bed.store.migrate().await.unwrap().applied, ["adopted_inbox", "other_programs"]);
    assert_eq!(read(), before);
    // A program of the version before can still run beside.
    old.check().await.unwrap();
    let insert = "INSERT INTO relais_inbox (message_id, source_system, topic, partition_num, offset_num, msg_key, payload)
                  VALUES ('e', 's', 't', 0, 5, 'k', '{}') RETURNING id";
    let next: i64 = bed.raw().query_row(insert, [], |row| row.get(0)).unwrap();
    assert_eq!(next, 10, "no id is used twice");
}

/// Messages of the version before, of adopted tables too: their payloads may be no JSON.
const OLD_COPIES: &str = "\
INSERT INTO relais_outbox (id, message_id, aggregate_type, aggregate_id, event_type, destination, payload, status,
                           adopted_by, adopted_key)
VALUES (1, '00000000-0000-4000-8000-000000000001', 'O', 'a', 'E', 'orders', '{', 'PENDING', '\"outbox\"', '1'),
       (2, '00000000-0000-4000-8000-000000000002', 'O', 'b', 'E', 'orders', '{}', 'DISPATCHED', NULL, NULL),
       (9, '00000000-0000-4000-8000-000000000009', 'O', 'c', 'E', 'orders', '{}', 'PENDING', NULL, NULL);
DELETE FROM relais_outbox WHERE id = 9;
UPDATE relais_inbox SET adopted_by = '\"inbox_min\"', adopted_key = '77' WHERE id = 1;
CREATE VIEW open_messages AS SELECT id FROM relais_inbox WHERE status <> 'PROCESSED';
CREATE TABLE inbox_min (id INTEGER PRIMARY KEY, message_id TEXT, source_system TEXT, payload TEXT,
                        raw_payload_base64 TEXT, status TEXT NOT NULL DEFAULT 'RECEIVED', next_attempt_at TEXT,
                        attempts INTEGER NOT NULL DEFAULT 0);";

const COPY_COLUMNS: &str =
    "SELECT (SELECT group_concat(concat_ws(' ', id, message_id, msg_key, lane, status, payload, headers, adopted_by,
                                           adopted_key, created_at))
             FROM (SELECT * FROM relais_outbox ORDER BY id))
         || (SELECT group_concat(concat_ws(' ', id, adopted_by, adopted_key, headers))
             FROM (SELECT * FROM relais_inbox ORDER BY id))";

#[tokio::test]
async fn adopted_rows_and_triggers_of_the_version_before_stay_as_they_were() {
    let bed = Bed::empty(SqliteOptions::default()).await;
    let old = bed.store.clone().knowing(&SCRIPTS[..7]);
    old.migrate().await.unwrap();
    bed.raw().execute_batch(&format!("{OLD_RECEIVED}{OLD_COPIES}")).unwrap();
    let to = AdoptDestination::Inbox(String::new());
    let adoption = Adoption::new("inbox_min", AdoptPreset::MinimalInbox, to);
    old.install_adoptions(vec![adoption.clone()]).await.unwrap();
    let read = |sql: &str| bed.raw().query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
    let rows = || (read(RECEIVED_COLUMNS), read(COPY_COLUMNS));
    let before = (schema(&bed.raw()), rows());
    let script = &SCRIPTS[7];
    for kept in 0..=statements(script.sql).len() {
        let failing = edition(&SCRIPTS[..7], &[cut(script, kept, FAIL)]);
        setup(bed.store.clone().knowing(failing).migrate().await);
        assert_eq!((schema(&bed.raw()), rows()), before, "after {kept} statements");
        old.check().await.unwrap();
    }
    assert_eq!(bed.store.migrate().await.unwrap().applied, ["other_programs"]);
    assert_eq!(rows(), before.1);
    // A program of the version before can still run beside.
    old.check().await.unwrap();
    let reports = bed.store.check_adoptions(vec![adoption]).await.unwrap();
    assert_eq!(reports[0].problems, [""; 0], "the triggers fit");
    let insert =
        "INSERT INTO inbox_min (message_id, source_system, payload) VALUES ('new', 'crm', '[1]')";
    bed.raw().execute_batch(insert).unwrap();
    let copied = "SELECT concat_ws(' ', id, msg_key, adopted_key) FROM relais_inbox WHERE message_id = 'new'";
    assert_eq!(read(copied), "10 new 1", "no id is used twice");
    assert_eq!(bed.count("open_messages"), 3, "views of users stay");
    assert_eq!(bed.store.enqueue(vec![message("k")]).await.unwrap(), [10], "no id is used twice");
    assert_eq!(read("PRAGMA integrity_check"), "ok");
}

#[tokio::test]
async fn rows_of_the_version_before_wait_or_are_fresh_as_they_were() {
    let bed = Bed::empty(SqliteOptions::default()).await;
    let old = bed.store.clone().knowing(&SCRIPTS[..3]);
    old.migrate().await.unwrap();
    bed.raw().execute_batch(OLD_ROWS).unwrap();
    let columns = || bed.raw().query_row(OLD_COLUMNS, [], |row| row.get::<_, String>(0)).unwrap();
    let (before, rows) = (schema(&bed.raw()), columns());
    let script = &SCRIPTS[3];
    for kept in 0..=statements(script.sql).len() {
        let failing = edition(&SCRIPTS[..3], &[cut(script, kept, FAIL)]);
        setup(bed.store.clone().knowing(failing).migrate().await);
        assert_eq!((schema(&bed.raw()), columns()), (before.clone(), rows.clone()), "{kept}");
        old.check().await.unwrap();
    }
    assert_eq!(
        bed.store.migrate().await.unwrap().applied,
        ["lean_outbox", "sql_interface", "business_keys", "adopted_inbox", "other_programs"]
    );
    assert!(setup(old.check().await).contains("update relais on this machine"));
    assert_eq!(columns(), rows);
    assert_eq!(bed.count("pending_orders"), 6, "views of users stay");

    let lanes = bed.lease(Scope::Outbox("orders".into()), "w1").await;
    let fetch = Fetch::new(Scope::Outbox("orders".into()), lanes, 10);
    let ids = async || {
        let rows = bed.store.fetch_outbox(fetch.clone()).await.unwrap();
        rows.into_iter().map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!(ids().await, [2, 8], "due, and fresh behind a delayed row");
    let waiting =
        "SELECT group_concat(id || coalesce(job_id, '') || (due_at IS NULL) || holds_key, ' ')
                   FROM (SELECT * FROM relais_waiting ORDER BY id)";
    let waiting: String = bed.raw().query_row(waiting, [], |row| row.get(0)).unwrap();
    assert_eq!(waiting, "201 3job-111 400 611 711");
    let position = "SELECT position FROM relais_outbox_position WHERE destination = 'other'";
    assert_eq!(bed.raw().query_row(position, [], |row| row.get::<_, i64>(0)).unwrap(), 9);
    let next = bed.store.enqueue(vec![message("k")]).await.unwrap();
    assert_eq!(next, [21], "no id is used twice");
    let overview = bed.store.overview().await.unwrap();
    let count = |name: &str| overview.outbox.iter().find(|c| c.name == name).unwrap().rows;
    assert_eq!((count("PENDING"), count("FAILED"), count("DISPATCHED")), (7, 1, 2));
}
