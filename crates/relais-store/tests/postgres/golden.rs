//! The schema is public: any change to it shows in `golden/postgres.sql`. Set `UPDATE_GOLDEN` to
//! write it again.

use std::{env, fmt::Write, fs, path::Path};

use tokio_postgres::Client;

use crate::bed::Bed;

const COLUMNS: &str = "
    SELECT c.relname::text, a.attname::text,
           format_type(a.atttypid, a.atttypmod)
           || CASE WHEN co.collname = 'C' THEN ' COLLATE \"C\"' ELSE '' END
           || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END
           || CASE WHEN a.attidentity <> '' THEN ' IDENTITY' ELSE '' END
           || coalesce(CASE WHEN a.attgenerated <> '' THEN ' GENERATED ' ELSE ' DEFAULT ' END
                       || pg_get_expr(d.adbin, d.adrelid), '')
    FROM pg_class c
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
    LEFT JOIN pg_collation co ON co.oid = a.attcollation
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
      AND c.relname LIKE 'relais%'
    ORDER BY c.relname, a.attnum";
const CONSTRAINTS: &str = "
    SELECT conrelid::regclass::text, conname::text, pg_get_constraintdef(oid)
    FROM pg_constraint
    WHERE connamespace = current_schema()::regnamespace AND contype <> 'n' AND conrelid <> 0
      AND conrelid::regclass::text LIKE 'relais%'
    ORDER BY 1, 2";
const INDEXES: &str = "
    SELECT tablename::text, indexname::text,
           replace(indexdef, current_schema() || '.', '')
    FROM pg_indexes WHERE schemaname = current_schema() AND tablename LIKE 'relais%'
    ORDER BY 1, 2";
const TRIGGERS: &str = "
    SELECT tgrelid::regclass::text, tgname::text,
           replace(pg_get_triggerdef(oid), current_schema() || '.', '')
    FROM pg_trigger
    WHERE NOT tgisinternal AND tgrelid IN
        (SELECT oid FROM pg_class WHERE relnamespace = current_schema()::regnamespace)
    ORDER BY 1, 2";

const FUNCTIONS: &str = "
    SELECT 'function', proname::text,
           prosrc || CASE WHEN prosecdef THEN ' SECURITY DEFINER' ELSE '' END
    FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
    ORDER BY 1, 2";

/// Everything of the connection's schema, the same for schemas that are the same.
pub(crate) async fn dump(raw: &Client) -> String {
    let mut text = String::new();
    for (title, sql) in [
        ("columns", COLUMNS),
        ("constraints", CONSTRAINTS),
        ("indexes", INDEXES),
        ("triggers", TRIGGERS),
        ("functions", FUNCTIONS),
    ] {
        writeln!(text, "-- {title}").unwrap();
        for row in raw.query(sql, &[]).await.unwrap() {
            let (table, name, what): (&str, &str, &str) = (row.get(0), row.get(1), row.get(2));
            writeln!(text, "{table}.{name}: {what}").unwrap();
        }
    }
    text
}

#[tokio::test]
async fn the_schema_is_the_one_on_file() {
    let Some(bed) = Bed::new().await else { return };
    let text = dump(&bed.raw).await;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/postgres.sql");
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap();
    assert!(text == golden, "the schema changed; UPDATE_GOLDEN=1 writes the new one");
}
