//! Fresh data by id from the user's own tables in the same file.
//!
//! Invariant: the connection cannot write, and the statement runs in one read transaction.

use std::time::Duration;

use base64::Engine;
use relais_core::{
    InvalidSettings, async_trait,
    hydrate::{HydratedRecords, Hydrator, Record},
    store::StoreError,
};
use rusqlite::{Connection, ErrorCode, Statement, types::ValueRef};
use serde_json::Value;

use super::{SqliteStore, error, row::json_array};
use crate::hydrate::{
    Halving, HydrateVerdict, KnownGood, RequestedIds, Template, by_id, wrong_for_all,
};

/// Longest time of one call.
const TIME_MAX: Duration = Duration::from_secs(30);

/// The replacement for the place of the ids.
const IDS: &str = include_str!("sql/hydrate_ids.sql");

/// Reads records with the user's statement.
#[derive(Clone, Debug)]
pub struct SqlHydrator {
    store: SqliteStore,
    statement: String,
    id_column: String,
    known_good: KnownGood,
}

impl SqlHydrator {
    /// `sql` is one SELECT with `IN (:ids)` where the ids belong; its result has a row for each id that
    /// it finds, with the id in `id_column`.
    ///
    /// # Errors
    /// Returns an error that names what to change in `sql`.
    pub fn new(store: &SqliteStore, sql: &str, id_column: &str) -> Result<Self, InvalidSettings> {
        let statement = Template::parse(sql)?.with(IDS.trim());
        let (store, id_column) = (store.clone(), id_column.to_owned());
        Ok(Self { store, statement, id_column, known_good: KnownGood::default() })
    }

    /// Checks the form of `sql` without a database.
    ///
    /// # Errors
    /// Returns an error that names what to change in `sql`.
    pub fn check(sql: &str) -> Result<(), InvalidSettings> {
        Ok(Template::parse(sql).map(drop)?)
    }

    /// Reads the names of the columns of the result, without a row.
    ///
    /// # Errors
    /// The statement cannot be prepared, or the database is not there.
    pub async fn columns(&self) -> Result<Vec<String>, StoreError> {
        let statement = self.statement.clone();
        let names = self.store.readers().read(move |db| {
            let statement = db
                .prepare(&statement)
                .map_err(|e| wrong(&format!("{e}; correct the statement")))?;
            Ok(statement.column_names().into_iter().map(str::to_owned).collect())
        });
        names.await
    }
}

#[async_trait]
impl Hydrator for SqlHydrator {
    async fn hydrate(&self, ids: Vec<String>) -> Result<HydratedRecords, StoreError> {
        let (statement, id_column) = (self.statement.clone(), self.id_column.clone());
        let known_good = self.known_good.clone();
        let runtime = tokio::runtime::Handle::current();
        self.store
            .visitors()
            .read(move |db| {
                let interrupt = db.get_interrupt_handle();
                let limit = runtime.spawn(async move {
                    tokio::time::sleep(TIME_MAX).await;
                    interrupt.interrupt();
                });
                let found = read(db, &statement, &id_column, &ids, &known_good);
                limit.abort();
                found
            })
            .await
    }
}

fn read(
    db: &Connection,
    sql: &str,
    id_column: &str,
    ids: &[String],
    known_good: &KnownGood,
) -> Result<HydratedRecords, StoreError> {
    let snapshot = db.unchecked_transaction().map_err(|e| error::store(&e))?;
    let mut statement =
        snapshot.prepare_cached(sql).map_err(|e| wrong(&format!("{e}; correct the statement")))?;
    if !statement.readonly() {
        return Err(wrong("the statement writes; let it only read"));
    }
    if statement.parameter_count() != 1 {
        return Err(wrong("only `:ids` has a value; remove the other parameters"));
    }
    let asked = RequestedIds::new(ids);
    let (mut hydrated, mut halving) = (HydratedRecords::default(), Halving::new(ids.len()));
    let mut is_probed = false;
    while let Some(range) = halving.next() {
        match records(&mut statement, &ids[range.clone()]) {
            Ok(records) => by_id(&asked, id_column, records, &mut hydrated)?,
            Err(error) if may_be_a_row(&error) => {
                if !is_probed {
                    // Without ids it reads no row: if it fails then too, no row is to blame.
                    records(&mut statement, &[])
                        .map_err(|e| wrong(&format!("{e}; correct the statement")))?;
                    is_probed = true;
                }
                halving.failed(range, ids, &error::text(&error), &mut hydrated);
            }
            Err(error) => return Err(failed(&error)),
        }
    }
    match known_good.judge(hydrated) {
        HydrateVerdict::Rows(hydrated) => Ok(hydrated),
        HydrateVerdict::Statement(error) => Err(error),
        HydrateVerdict::Probe(id, hydrated) => match records(&mut statement, &[id]).as_deref() {
            Ok([_, ..]) => Ok(hydrated),
            _ => Err(wrong_for_all(&hydrated)),
        },
    }
}

/// Returns true if an error of a prepared statement may come from the values of a row.
fn may_be_a_row(error: &rusqlite::Error) -> bool {
    let codes = [ErrorCode::Unknown, ErrorCode::TypeMismatch, ErrorCode::TooBig];
    error.sqlite_error_code().is_some_and(|code| codes.contains(&code))
}

/// Returns the error of a statement for all of its ids.
fn failed(error: &rusqlite::Error) -> StoreError {
    if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) {
        let limit = TIME_MAX.as_secs();
        return StoreError::unavailable(format!(
            "`hydrate` did not end within {limit} s; make the statement faster, for example by an index"
        ));
    }
    error::store(error)
}

fn wrong(text: &str) -> StoreError {
    StoreError::setup(format!("hydrate: {text}"))
}

fn records(statement: &mut Statement<'_>, ids: &[String]) -> rusqlite::Result<Vec<Record>> {
    let names: Vec<String> = statement.column_names().into_iter().map(str::to_owned).collect();
    let rows = statement.query_map([json_array(ids)], |row| {
        let cells = names.iter().enumerate();
        cells.map(|(n, name)| Ok((name.clone(), json(row.get_ref(n)?)))).collect()
    })?;
    rows.collect()
}

/// Converts a value to JSON: bytes become Base64, and numbers that JSON cannot hold become text.
fn json(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => match serde_json::Number::from_f64(number) {
            Some(number) => Value::Number(number),
            None => Value::String(number.to_string()),
        },
        ValueRef::Text(text) => Value::String(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => {
            Value::String(base64::engine::general_purpose::STANDARD.encode(bytes))
        }
    }
}
