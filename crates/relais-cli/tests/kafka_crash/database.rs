//! The tables as another client sees them, on both databases.

use std::path::PathBuf;

use crate::support::postgres::PostgresSchema;

pub(crate) enum Database {
    Postgres(PostgresSchema),
    Sqlite(PathBuf),
}

/// A row of the inbox; they come in the order of their ids.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) message_id: String,
    pub(crate) msg_key: String,
    pub(crate) status: String,
    pub(crate) partition_num: i32,
    pub(crate) offset_num: i64,
}

const ROWS: &str =
    "SELECT message_id, msg_key, status, partition_num, offset_num FROM relais_inbox ORDER BY id";
/// Rows that came in, and rows nothing more happens to.
const PROGRESS: &str = "SELECT count(*), count(*) FILTER (WHERE status IN ('PROCESSED', 'SERDE_ERROR')) \
                        FROM relais_inbox";
const DEAD_LETTERS: &str = "SELECT count(*), 0::bigint FROM relais_dead_letter";
const DEAD_LETTERS_SQLITE: &str = "SELECT count(*), 0 FROM relais_dead_letter";

impl Database {
    /// Returns the number of rows and of finished rows; `None` without tables.
    pub(crate) fn progress(&self) -> Option<(i64, i64)> {
        self.pair(PROGRESS)
    }

    pub(crate) fn dead_letters(&self) -> i64 {
        let sql = match self {
            Self::Postgres(_) => DEAD_LETTERS,
            Self::Sqlite(_) => DEAD_LETTERS_SQLITE,
        };
        self.pair(sql).unwrap().0
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        match self {
            Self::Postgres(schema) => {
                query(schema, ROWS).unwrap().iter().map(postgres_row).collect()
            }
            Self::Sqlite(path) => {
                let db = rusqlite::Connection::open(path).unwrap();
                let mut statement = db.prepare(ROWS).unwrap();
                let rows = statement.query_map((), |row| {
                    Ok(Row {
                        message_id: row.get(0)?,
                        msg_key: row.get(1)?,
                        status: row.get(2)?,
                        partition_num: row.get(3)?,
                        offset_num: row.get(4)?,
                    })
                });
                rows.unwrap().map(Result::unwrap).collect()
            }
        }
    }

    fn pair(&self, sql: &str) -> Option<(i64, i64)> {
        match self {
            Self::Postgres(schema) => {
                let rows = query(schema, sql)?;
                Some((rows[0].get(0), rows[0].get(1)))
            }
            Self::Sqlite(path) => {
                let db = rusqlite::Connection::open(path).ok()?;
                db.query_row(sql, (), |row| Ok((row.get(0)?, row.get(1)?))).ok()
            }
        }
    }
}

/// The rows of a statement; nothing if the tables are not there yet.
fn query(schema: &PostgresSchema, sql: &str) -> Option<Vec<tokio_postgres::Row>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) =
            tokio_postgres::connect(&schema.url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.query(sql, &[]).await.ok()
    })
}

fn postgres_row(row: &tokio_postgres::Row) -> Row {
    Row {
        message_id: row.get(0),
        msg_key: row.get(1),
        status: row.get(2),
        partition_num: row.get(3),
        offset_num: row.get(4),
    }
}
