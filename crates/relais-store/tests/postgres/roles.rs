//! The roles of `roles.sql`: the owner migrates, runtime works and can do nothing else. All other
//! tests of this store run as runtime too.

use std::{collections::BTreeSet, fs, path::Path};

use relais_core::store::StoreError;
use relais_store::postgres::{PostgresOptions, PostgresStore, SCRIPTS};
use tokio_postgres::{Client, error::SqlState};

use crate::{
    bed::Bed,
    support::postgres::{PostgresSchema, Role},
};

/// The rights of a role on a table, as `relais_outbox SELECT`.
type Rights = BTreeSet<String>;

/// Everything `role` may do with whole tables and sequences of the connection's schema.
async fn rights(raw: &Client, role: &str) -> Rights {
    let sql = "
        SELECT c.relname || ' ' || p
        FROM pg_class c
        CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES',
                                'TRIGGER']) p
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'S', 'v')
          AND c.relname LIKE 'relais%' AND has_table_privilege($1, c.oid, p)";
    raw.query(sql, &[&role]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// The statements are refused for want of a right, not for another reason.
pub(crate) async fn assert_denied(client: &Client, statements: &[&str]) {
    for sql in statements {
        let error = client.batch_execute(sql).await.expect_err(sql);
        assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{sql}: {error:?}");
    }
}

#[tokio::test]
async fn runtime_has_the_rights_that_the_start_asks_for_and_no_others() {
    let Some(bed) = Bed::new().await else { return };
    // What a role lacks that has next to nothing, and what it has, is all that is asked for.
    let refused = bed.schema.store_as(Role::Producer).await.check().await;
    let Err(StoreError::Setup(text)) = refused else { panic!("{refused:?}") };
    let grants = text.split_once("run: ").expect("what to run").1;
    let mut asked = Rights::new();
    for grant in grants.split("; ") {
        let grant = grant.strip_prefix("GRANT ").expect(grant);
        let (privileges, table) = grant.split_once(" ON ").expect(grant);
        let table = table.split(' ').next().expect("a name");
        let (schema, table) = table.split_once('.').expect("a schema");
        assert_eq!(schema, bed.schema.name());
        asked.extend(privileges.split(", ").map(|privilege| format!("{table} {privilege}")));
    }
    assert!(asked.len() > 40, "{asked:?}");
    asked.extend(rights(&bed.raw, &bed.schema.role(Role::Producer)).await);
    assert_eq!(rights(&bed.raw, &bed.schema.role(Role::Runtime)).await, asked);
}

#[tokio::test]
async fn every_right_to_write_is_used_by_a_statement() {
    let Some(bed) = Bed::new().await else { return };
    let folders = ["src/postgres/sql", "src/postgres/adopt"];
    let folders = folders.map(|folder| Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let files = files.map(|file| file.unwrap().path());
    let statements: Vec<String> = files
        .filter(|file| file.extension().is_some_and(|ending| ending == "sql"))
        .map(|file| fs::read_to_string(file).unwrap())
        .collect();
    for right in rights(&bed.raw, &bed.schema.role(Role::Runtime)).await {
        let (table, privilege) = right.split_once(' ').unwrap();
        let has = |sql: &str, text: &str| {
            let next = |end: &str| !end.starts_with(|c: char| c.is_alphanumeric() || c == '_');
            sql.match_indices(text).any(|(at, _)| next(&sql[at + text.len()..]))
        };
        let insert = format!("INSERT INTO {table}");
        let uses = |sql: &&String| match privilege {
            "SELECT" => true,
            "INSERT" => has(sql, &insert),
            "DELETE" => has(sql, &format!("DELETE FROM {table}")),
            "UPDATE" => {
                let locks = sql.contains("FOR UPDATE") || sql.contains("FOR NO KEY UPDATE");
                has(sql, &format!("UPDATE {table}"))
                    || (has(sql, &insert) && sql.contains("DO UPDATE"))
                    || (locks && has(sql, &format!("FROM {table}")))
            }
            _ => false,
        };
        assert!(statements.iter().any(|sql| uses(&sql)), "nothing needs {right}");
    }
}

#[tokio::test]
async fn runtime_cannot_change_what_tables_there_are() {
    let Some(bed) = Bed::new().await else { return };
    let runtime = bed.schema.client_as(Role::Runtime).await;
    assert_denied(
        &runtime,
        &[
            "CREATE TABLE mine (id integer)",
            "CREATE VIEW mine AS SELECT 1",
            "CREATE SEQUENCE mine",
            "CREATE TYPE mine AS ENUM ('a')",
            "CREATE FUNCTION mine() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
            "CREATE INDEX mine ON relais_outbox (payload)",
            "CREATE TRIGGER mine BEFORE INSERT ON relais_outbox \
             FOR EACH ROW EXECUTE FUNCTION relais_default_key()",
            "ALTER TABLE relais_outbox ADD COLUMN mine integer",
            "ALTER TABLE relais_outbox DISABLE TRIGGER ALL",
            "ALTER TABLE relais_outbox OWNER TO CURRENT_USER",
            "ALTER FUNCTION relais_refuse() RENAME TO mine",
            "ALTER SEQUENCE relais_outbox_id_seq RESTART",
            "SELECT setval('relais_outbox_id_seq', 1)",
            "DROP TABLE relais_outbox",
            "DROP FUNCTION relais_refuse() CASCADE",
            "TRUNCATE relais_outbox",
            "TRUNCATE relais_audit",
            "SET session_replication_role = replica",
            "CREATE ROLE mine",
        ],
    )
    .await;
    for sql in [
        format!("CREATE SCHEMA {}_mine", bed.schema.name()),
        format!("DROP SCHEMA {} CASCADE", bed.schema.name()),
        format!("SET ROLE {}", bed.schema.role(Role::Owner)),
    ] {
        assert_denied(&runtime, &[&sql]).await;
    }
}

#[tokio::test]
async fn runtime_cannot_rewrite_history_nor_read_another_schema() {
    let Some(bed) = Bed::new().await else { return };
    let runtime = bed.schema.client_as(Role::Runtime).await;
    assert_denied(
        &runtime,
        &[
            "UPDATE relais_audit SET actor = 'nobody'",
            "DELETE FROM relais_audit",
            "UPDATE relais_process_log SET event = '{}'",
            "UPDATE relais_attempt SET worker = 'nobody'",
            "DELETE FROM relais_source_position",
            "DELETE FROM relais_lane",
            "INSERT INTO relais_schema (version, name, needs, checksum) VALUES (2, 'mine', 1, '')",
            "UPDATE relais_schema SET checksum = ''",
            "DELETE FROM relais_schema",
        ],
    )
    .await;
    let other = Bed::new().await.unwrap();
    let theirs = other.schema.name();
    for sql in [
        format!("SELECT * FROM {theirs}.orders"),
        format!("SELECT * FROM {theirs}.relais_outbox"),
        format!("CREATE TABLE {theirs}.mine (id integer)"),
    ] {
        assert_denied(&runtime, &[&sql]).await;
    }
    assert_denied(&runtime, &["CREATE TABLE public.mine (id integer)"]).await;
}

#[tokio::test]
async fn the_owner_makes_the_tables_and_runtime_is_refused_with_the_reason() {
    let Some(schema) = PostgresSchema::create().await else { return };
    let runtime = schema.store().await;
    let refused = runtime.migrate().await;
    let Err(StoreError::Setup(text)) = refused else { panic!("{refused:?}") };
    assert!(text.contains("permission denied for schema"), "{text}");
    assert!(text.contains("run `relais migrate` as the role that owns relais's tables"), "{text}");

    // Made, and nothing granted yet: said with what to run.
    schema.store_as(Role::Owner).await.migrate().await.unwrap();
    let refused = runtime.check().await;
    let Err(StoreError::Setup(text)) = refused else { panic!("{refused:?}") };
    for (privileges, table) in [("SELECT", "relais_schema"), ("SELECT, INSERT", "relais_audit")] {
        let grant = format!("GRANT {privileges} ON {}.{table} TO", schema.name());
        assert!(text.contains(&grant), "{text}");
    }

    schema.grant().await;
    runtime.check().await.unwrap();
    // A start that would migrate finds nothing to do, and needs no right to.
    let migrated = runtime.migrate().await.unwrap();
    assert_eq!(migrated.applied, [""; 0]);
    assert_eq!(migrated.to, SCRIPTS.last().unwrap().number);
    let owners = "pg_class WHERE relnamespace = current_schema()::regnamespace
                  AND pg_get_userbyid(relowner) <> current_schema() || '_owner'";
    let count = format!("SELECT count(*) FROM {owners}");
    let strangers: i64 = schema.client().await.query_one(&count, &[]).await.unwrap().get(0);
    assert_eq!(strangers, 0, "all is the owner's");
}

#[tokio::test]
async fn rights_are_granted_again_and_what_is_not_listed_is_revoked() {
    let Some(bed) = Bed::new().await else { return };
    let runtime = bed.schema.role(Role::Runtime);
    let before = rights(&bed.raw, &runtime).await;
    let excess = format!(
        "GRANT TRUNCATE, TRIGGER ON relais_outbox TO {runtime};
         GRANT UPDATE ON relais_audit TO {runtime}; REVOKE SELECT ON relais_inbox FROM {runtime}"
    );
    bed.raw.batch_execute(&excess).await.unwrap();
    assert_ne!(rights(&bed.raw, &runtime).await, before);
    bed.schema.grant().await;
    assert_eq!(rights(&bed.raw, &runtime).await, before);
    let own = format!("SELECT has_table_privilege('{runtime}', 'orders', 'INSERT')");
    let kept: bool = bed.raw.query_one(&own, &[]).await.unwrap().get(0);
    assert!(kept, "tables of the user are not touched");
}

#[tokio::test]
async fn only_functions_for_other_programs_lend_their_owners_rights() {
    let Some(bed) = Bed::new().await else { return };
    let functions = "SELECT proname::text, coalesce(array_to_string(proconfig, ';'), ''), \
                     has_function_privilege($1, oid, 'EXECUTE') \
                     FROM pg_proc WHERE pronamespace = current_schema()::regnamespace AND prosecdef \
                     ORDER BY proname";
    let found = bed.raw.query(functions, &[&bed.schema.role(Role::Reader)]).await.unwrap();
    let names: Vec<&str> = found.iter().map(|row| row.get(0)).collect();
    let expected = [
        "relais_claim_one",
        "relais_mark_failed",
        "relais_mark_published",
        "relais_park",
        "relais_renew_claim",
        "relais_reschedule",
        "relais_sweep_batch",
    ];
    assert_eq!(names, expected);
    let path = format!("search_path={}, pg_temp", bed.schema.name());
    for row in &found {
        let (name, path_of, is_public): (&str, &str, bool) = (row.get(0), row.get(1), row.get(2));
        assert_eq!((path_of, is_public), (path.as_str(), false), "{name}");
    }
}

#[tokio::test]
async fn a_session_that_takes_the_owners_place_leaves_the_tables_to_the_owner() {
    let Some(schema) = PostgresSchema::create().await else { return };
    let owner = schema.role(Role::Owner);
    let url = format!("{}%20-c%20role%3D{owner}", schema.url_as(Role::Super));
    let store = PostgresStore::connect(&url, PostgresOptions::default()).await.unwrap();
    store.migrate().await.unwrap();
    let sql = "SELECT pg_get_userbyid(relowner)::text FROM pg_class \
               WHERE oid = to_regclass('relais_outbox')";
    let found: String = schema.client().await.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(found, owner);
}
