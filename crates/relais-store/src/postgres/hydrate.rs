//! Fresh data by id from the user's own tables in the same database.
//!
//! Invariant: the statement runs in a read-only transaction of one snapshot.

use std::{error::Error, sync::Arc, time::Duration};

use deadpool_postgres::Transaction;
use relais_core::{
    InvalidSettings, async_trait,
    hydrate::{HydratedRecords, Hydrator, Record},
    store::StoreError,
};
use serde_json::Value;
use tokio_postgres::{
    error::SqlState,
    types::{Format, IsNull, Kind, ToSql, Type, private::BytesMut, to_sql_checked},
};
use uuid::Uuid;

use super::session::Client;
use super::{PostgresStore, error::Failure, exact_json::exact};
use crate::hydrate::{
    Halving, HydrateVerdict, IDS_MAX, KnownGood, RequestedIds, Template, by_id, wrong_for_all,
};

/// Longest time of one statement, kept by the server.
const TIME_MAX: Duration = Duration::from_secs(30);

/// The replacement for the place of the ids: the server finds out the type of the column.
const IDS: &str = "= ANY ($1)";

/// Reads records with the user's statement.
#[derive(Clone, Debug)]
pub struct SqlHydrator {
    store: PostgresStore,
    query: Arc<Query>,
}

#[derive(Debug)]
struct Query {
    statement: String,
    /// The user's own part of it.
    inner: String,
    id_column: String,
    known_good: KnownGood,
}

impl SqlHydrator {
    /// `sql` is one SELECT with `IN (:ids)` where the ids belong; its result has a row for each id that
    /// it finds, with the id in `id_column`.
    ///
    /// # Errors
    /// Returns an error that names what to change in `sql`.
    pub fn new(store: &PostgresStore, sql: &str, id_column: &str) -> Result<Self, InvalidSettings> {
        let inner = Template::parse(sql)?.with(IDS);
        let statement = sql!("hydrate").replace(":statement", &inner);
        let id_column = id_column.to_owned();
        let query = Query { statement, inner, id_column, known_good: KnownGood::default() };
        Ok(Self { store: store.clone(), query: Arc::new(query) })
    }

    /// Reads the names of the columns of the result, without a row.
    ///
    /// # Errors
    /// The statement cannot be prepared, or the database is not there.
    pub async fn columns(&self) -> Result<Vec<String>, StoreError> {
        let names = self.store.engine().run(Arc::clone(&self.query), |client, _, query| {
            Box::pin(async move {
                let statement = client.prepare(&query.inner).await.map_err(wrong)?;
                Ok(statement.columns().iter().map(|column| column.name().to_owned()).collect())
            })
        });
        names.await
    }
}

#[async_trait]
impl Hydrator for SqlHydrator {
    async fn hydrate(&self, ids: Vec<String>) -> Result<HydratedRecords, StoreError> {
        let query = Arc::clone(&self.query);
        self.store
            .snapshots()
            .run((query, ids), |client, _, (query, ids)| Box::pin(query.read(client, ids)))
            .await
    }
}

impl Query {
    async fn read(
        &self,
        client: &mut Client<'_>,
        ids: &[String],
    ) -> Result<HydratedRecords, Failure> {
        let transaction = snapshot(client).await?;
        let asked = RequestedIds::new(ids);
        let mut hydrated = HydratedRecords::default();
        for chunk in ids.chunks(IDS_MAX) {
            match self.records(&transaction, chunk).await {
                Ok(records) => by_id(&asked, &self.id_column, records, &mut hydrated)?,
                Err(error) if may_be_a_row(&error) => {
                    transaction.rollback().await?;
                    return self.halve(client, ids).await;
                }
                Err(error) => return Err(wrong(error)),
            }
        }
        self.decide(&transaction, hydrated).await
    }

    /// Reads again, with a savepoint before each statement, until every id that fails is known.
    async fn halve(
        &self,
        client: &mut Client<'_>,
        ids: &[String],
    ) -> Result<HydratedRecords, Failure> {
        let mut transaction = snapshot(client).await?;
        // Without ids it reads no row: if it fails then too, no row is to blame.
        self.records(&transaction, &[]).await.map_err(setup)?;
        let asked = RequestedIds::new(ids);
        let (mut hydrated, mut halving) = (HydratedRecords::default(), Halving::new(ids.len()));
        while let Some(range) = halving.next() {
            let savepoint = transaction.savepoint("relais_hydrate").await?;
            match self.records(&savepoint, &ids[range.clone()]).await {
                Ok(records) => {
                    savepoint.commit().await?;
                    by_id(&asked, &self.id_column, records, &mut hydrated)?;
                }
                Err(error) if may_be_a_row(&error) => {
                    savepoint.rollback().await?;
                    halving.failed(range, ids, &text(&error), &mut hydrated);
                }
                Err(error) => return Err(wrong(error)),
            }
        }
        self.decide(&transaction, hydrated).await
    }

    /// Blames the rows that failed, or the statement.
    async fn decide(
        &self,
        transaction: &Transaction<'_>,
        hydrated: HydratedRecords,
    ) -> Result<HydratedRecords, Failure> {
        match self.known_good.judge(hydrated) {
            HydrateVerdict::Rows(hydrated) => Ok(hydrated),
            HydrateVerdict::Statement(error) => Err(error.into()),
            HydrateVerdict::Probe(id, hydrated) => {
                match self.records(transaction, &[id]).await.as_deref() {
                    Ok([_, ..]) => Ok(hydrated),
                    _ => Err(wrong_for_all(&hydrated).into()),
                }
            }
        }
    }

    async fn records(
        &self,
        transaction: &Transaction<'_>,
        ids: &[String],
    ) -> Result<Vec<Record>, tokio_postgres::Error> {
        let statement = transaction.prepare(&self.statement).await?;
        let ids = Ids(ids);
        let rows = transaction.query(&statement, &[&ids]).await?;
        let records = rows.iter().map(|row| match row.try_get(0).map(exact)? {
            Value::Object(record) => Ok(record),
            _ => Ok(Record::default()),
        });
        records.collect()
    }
}

/// A read-only transaction of one snapshot, in which each statement has a time limit.
async fn snapshot<'a>(client: &'a mut Client<'_>) -> Result<Transaction<'a>, Failure> {
    let transaction = client.snapshot().await?;
    let limit = TIME_MAX.as_millis().to_string();
    transaction.execute(sql!("hydrate_session"), &[&limit]).await?;
    Ok(transaction)
}

/// Returns true if an error of the statement may come from the values of a row: a division, a cast, a
/// subquery with several rows, an exception of a function, a value that is too large.
fn may_be_a_row(error: &tokio_postgres::Error) -> bool {
    const CLASSES: [&str; 8] = ["21", "22", "23", "38", "39", "44", "54", "P0"];
    let class = error.code().and_then(|code| code.code().get(..2));
    class.is_some_and(|class| CLASSES.contains(&class))
}

/// The server's one-line message; never its detail, which may quote a row.
fn text(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) => format!("{} (SQLSTATE {})", db.message(), db.code().code()),
        None => error.to_string(),
    }
}

/// Returns an error of the statement itself as a wrong configuration.
fn wrong(error: tokio_postgres::Error) -> Failure {
    let Some(db) = error.as_db_error() else { return error.into() };
    let code = db.code();
    if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
        let why = format!("hydrate: {}; let the statement only read", db.message());
        Failure::Final(StoreError::setup(why))
    } else if code.code().starts_with("42") || *code == SqlState::FEATURE_NOT_SUPPORTED {
        setup(error)
    } else {
        error.into()
    }
}

fn setup(error: tokio_postgres::Error) -> Failure {
    let Some(db) = error.as_db_error() else { return error.into() };
    let why = format!("hydrate: {}; correct the statement", db.message());
    Failure::Final(StoreError::setup(why))
}

/// An array of any type, written as text: the server reads it as the type of the column.
#[derive(Debug)]
struct Ids<'a>(&'a [String]);

impl ToSql for Ids<'_> {
    fn to_sql(
        &self,
        array: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let mut separator = '{';
        for id in self.0.iter().filter(|id| may_be(array, id)) {
            out.extend_from_slice(&[separator as u8, b'"']);
            for byte in id.bytes() {
                if matches!(byte, b'"' | b'\\') {
                    out.extend_from_slice(b"\\");
                }
                out.extend_from_slice(&[byte]);
            }
            out.extend_from_slice(b"\"");
            separator = ',';
        }
        out.extend_from_slice(if separator == '{' { b"{}" } else { b"}" });
        Ok(IsNull::No)
    }

    fn accepts(array: &Type) -> bool {
        matches!(array.kind(), Kind::Array(_))
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

/// An id that the column's type cannot hold has no row; sending it would fail the others.
fn may_be(array: &Type, id: &str) -> bool {
    match *array {
        Type::UUID_ARRAY => Uuid::try_parse(id).is_ok(),
        Type::INT2_ARRAY => id.parse::<i16>().is_ok(),
        Type::INT4_ARRAY => id.parse::<i32>().is_ok(),
        Type::INT8_ARRAY => id.parse::<i64>().is_ok(),
        Type::NUMERIC_ARRAY => {
            let digits = id.strip_prefix('-').unwrap_or(id);
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        }
        _ => !id.contains('\0'),
    }
}
