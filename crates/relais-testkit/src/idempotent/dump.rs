//! The content of a database: every row of the user's tables, and what relais keeps of messages.
//!
//! Invariant: what may differ between two runs that did the same is not in it: times and ids of
//! relais, and the gaps that a rolled-back transaction leaves in numbers drawn from a sequence.

use std::collections::BTreeMap;

use crate::database::{Database, Dialect};

/// Most rows of one table; a check needs few.
const ROWS_MAX: usize = 10_000;
const NULL: &str = "NULL";

/// The rows of each table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Dump(pub(super) BTreeMap<String, Vec<Row>>);

/// DumpColumn and value.
pub(super) type Row = Vec<(String, String)>;

/// Columns of relais that a handler can change: table, columns, how they are read. The last column of
/// the outbox is the message's own id.
const RELAIS: &[(&str, &[&str], &str)] = &[
    (
        OUTBOX,
        OUTBOX_COLUMNS,
        "SELECT destination, msg_key, \
        row_number() OVER (PARTITION BY destination, msg_key ORDER BY id), category, aggregate_type, \
        aggregate_id, event_type, event_version, payload, headers, causation_id, correlation_id, \
        CASE WHEN next_attempt_at IS NULL THEN 'at once' ELSE 'later' END, message_id \
        FROM relais_outbox",
    ),
    ("relais_inbox", &["message_id", "status"], "SELECT message_id, status FROM relais_inbox"),
    (
        "relais_dead_letter",
        &["origin", "message_id", "failed_status", "error_class"],
        "SELECT origin, message_id, failed_status, error_class FROM relais_dead_letter",
    ),
    (
        "relais_handled",
        &["message_id", "handler"],
        "SELECT message_id, handler FROM relais_handled",
    ),
];
const OUTBOX: &str = "relais_outbox";
const OUTBOX_COLUMNS: &[&str] = &[
    "destination",
    "key",
    "place",
    "category",
    "aggregate_type",
    "aggregate_id",
    "event_type",
    "event_version",
    "payload",
    "headers",
    "causation_id",
    "correlation_id",
    "due",
    "message_id",
];

/// Table, table as SQL wants it, column, column as SQL wants it; for a column whose numbers come from a
/// sequence, anything but NULL; for a column that refers to another, `table.column`.
const POSTGRES_COLUMNS: &str = "\
    SELECT c.relname, format('%I.%I', n.nspname, c.relname), a.attname, quote_ident(a.attname), \
           CASE WHEN a.attidentity <> '' OR pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval(%' \
                THEN 'sequence' END, \
           (SELECT r.relname || '.' || ra.attname FROM pg_constraint AS f \
            JOIN pg_class AS r ON r.oid = f.confrelid \
            JOIN pg_attribute AS ra ON ra.attrelid = f.confrelid AND ra.attnum = f.confkey[1] \
            WHERE f.contype = 'f' AND f.conrelid = c.oid AND f.conkey = ARRAY[a.attnum] LIMIT 1) \
    FROM pg_class AS c \
    JOIN pg_namespace AS n ON n.oid = c.relnamespace \
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
    LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum \
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND NOT starts_with(c.relname, 'relais_') \
      AND n.nspname = ANY (current_schemas(false)) \
    ORDER BY c.relname, a.attnum";
/// A rolled-back transaction leaves no gaps in SQLite.
const SQLITE_COLUMNS: &str = "\
    SELECT t.name, '\"' || replace(t.name, '\"', '\"\"') || '\"', \
           c.name, '\"' || replace(c.name, '\"', '\"\"') || '\"', NULL, NULL \
    FROM sqlite_schema AS t, pragma_table_xinfo(t.name) AS c \
    WHERE t.type = 'table' AND t.name NOT GLOB 'relais_*' AND t.name NOT GLOB 'sqlite_*' \
    ORDER BY t.name, c.cid";

/// # Panics
/// If a statement fails, or the database has more rows than a check needs.
pub(super) async fn read(database: &dyn Database) -> Dump {
    let mut dump = Dump::default();
    let columns = columns(database).await;
    for table in columns.chunk_by(|a, b| a.table == b.table) {
        let rows = ask(database, &statement(database.dialect(), table)).await;
        let names: Vec<&str> = table.iter().map(|column| column.name.as_str()).collect();
        dump.0.insert(table[0].table.clone(), named(&names, rows));
    }
    renumber(&mut dump, &columns);
    for (table, names, sql) in RELAIS {
        dump.0.insert((*table).to_owned(), named(names, ask(database, sql).await));
    }
    hide_own_ids(dump.0.get_mut(OUTBOX).expect("inserted above"));
    dump
}

struct DumpColumn {
    table: String,
    table_sql: String,
    name: String,
    sql: String,
    from_sequence: bool,
    /// `table.column`
    refers_to: Option<String>,
}

impl DumpColumn {
    fn place(&self) -> String {
        format!("{}.{}", self.table, self.name)
    }
}

async fn columns(database: &dyn Database) -> Vec<DumpColumn> {
    let sql = match database.dialect() {
        Dialect::Postgres => POSTGRES_COLUMNS,
        Dialect::Sqlite => SQLITE_COLUMNS,
    };
    let column = |row: Vec<Option<String>>| {
        let mut row = row.into_iter();
        let mut next = || row.next().flatten();
        Some(DumpColumn {
            table: next()?,
            table_sql: next()?,
            name: next()?,
            sql: next()?,
            from_sequence: next().is_some(),
            refers_to: next(),
        })
    };
    let found = ask(database, sql).await;
    found.into_iter().map(|row| column(row).expect("names are there")).collect()
}

fn statement(dialect: Dialect, columns: &[DumpColumn]) -> String {
    let value = |column: &DumpColumn| match dialect {
        Dialect::Postgres => format!("{}::text", column.sql),
        Dialect::Sqlite => format!("quote({})", column.sql),
    };
    let values: Vec<String> = columns.iter().map(value).collect();
    format!("SELECT {} FROM {} LIMIT {}", values.join(", "), columns[0].table_sql, ROWS_MAX + 1)
}

async fn ask(database: &dyn Database, sql: &str) -> Vec<Vec<Option<String>>> {
    let rows = database.query(sql).await.unwrap_or_else(|error| panic!("{error}\n in: {sql}"));
    assert!(rows.len() <= ROWS_MAX, "more than {ROWS_MAX} rows: give the check smaller tables");
    rows
}

fn named(names: &[&str], rows: Vec<Vec<Option<String>>>) -> Vec<Row> {
    let value = |(name, value): (&&str, Option<String>)| {
        ((*name).to_owned(), value.unwrap_or_else(|| NULL.to_owned()))
    };
    rows.into_iter().map(|row| names.iter().zip(row).map(value).collect()).collect()
}

/// Numbers from a sequence become their places in its order, also where other tables refer to them.
fn renumber(dump: &mut Dump, columns: &[DumpColumn]) {
    let mut places: BTreeMap<String, BTreeMap<i128, usize>> = BTreeMap::new();
    for column in columns.iter().filter(|column| column.from_sequence) {
        let mut numbers: Vec<i128> = values(&dump.0[&column.table], &column.name)
            .filter_map(|value| value.parse().ok())
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        places.insert(column.place(), numbers.into_iter().zip(1..).collect());
    }
    for column in columns {
        let source =
            if column.from_sequence { Some(column.place()) } else { column.refers_to.clone() };
        let Some(places) = source.and_then(|source| places.get(&source)) else { continue };
        let rows = dump.0.get_mut(&column.table).into_iter().flatten();
        for (_, value) in rows.flatten().filter(|(name, _)| *name == column.name) {
            let place = value.parse().ok().and_then(|number: i128| places.get(&number));
            if let Some(place) = place {
                *value = format!("#{place}");
            }
        }
    }
}

fn values<'a>(rows: &'a [Row], name: &'a str) -> impl Iterator<Item = &'a str> {
    rows.iter().flatten().filter(move |(column, _)| column == name).map(|(_, value)| value.as_str())
}

/// A message's own id is another one in each run, wherever it stands in the message.
fn hide_own_ids(rows: &mut [Row]) {
    for row in rows {
        let (_, id) = row.pop().expect("the id is the last column");
        for (_, value) in row.iter_mut() {
            *value = value.replace(&id, "<message id>");
        }
    }
}
