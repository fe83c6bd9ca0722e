//! relais inside the user's own transaction: what is written here exists if and only if that
//! transaction commits.

use relais_core::{message::NewMessage, store::StoreError};
use rusqlite::{Connection, Transaction};

use super::{
    error,
    row::{change, first, millis},
};
use crate::{BlockingTransaction, transaction::not_in_transaction};

/// The statement behind `enqueue`, for users of another driver. Its parameters, in order:
/// message id (UUID as text), category, aggregate type, aggregate id, event type, event version,
/// payload (JSON), headers (JSON), destination, key, delay in milliseconds or NULL, causation id,
/// correlation id. Gives back the row's id; none if the destination has a message of this id already.
pub const ENQUEUE_SQL: &str = include_str!("sql/enqueue.sql");
const ENQUEUED_SQL: &str = include_str!("sql/enqueued.sql");
const ONCE_SQL: &str = include_str!("sql/once.sql");

impl BlockingTransaction for Connection {
    /// All of the messages or, on an error, none of them, even if the transaction continues.
    fn enqueue(&self, messages: &[NewMessage]) -> Result<Vec<i64>, StoreError> {
        check_in_transaction(self)?;
        if let [message] = messages {
            // One INSERT is all or nothing by itself.
            return enqueue_one(self, message).map(|id| vec![id]);
        }
        let control = |sql| self.execute_batch(sql).map_err(|e| error::store(&e));
        control("SAVEPOINT relais_enqueue")?;
        let ids = enqueue(self, messages);
        if ids.is_err() {
            control("ROLLBACK TO relais_enqueue")?;
        }
        control("RELEASE relais_enqueue")?;
        ids
    }

    fn once(&self, handler: &str, message_id: &str) -> Result<bool, StoreError> {
        check_in_transaction(self)?;
        once(self, handler, message_id)
    }
}

impl BlockingTransaction for Transaction<'_> {
    fn enqueue(&self, messages: &[NewMessage]) -> Result<Vec<i64>, StoreError> {
        let connection: &Connection = self;
        connection.enqueue(messages)
    }

    fn once(&self, handler: &str, message_id: &str) -> Result<bool, StoreError> {
        let connection: &Connection = self;
        connection.once(handler, message_id)
    }
}

fn check_in_transaction(db: &Connection) -> Result<(), StoreError> {
    if db.is_autocommit() { Err(not_in_transaction()) } else { Ok(()) }
}

/// Writes the messages that are not there yet; the ids of all, in order.
pub(super) fn enqueue(db: &Connection, messages: &[NewMessage]) -> Result<Vec<i64>, StoreError> {
    messages.iter().map(|message| enqueue_one(db, message)).collect()
}

fn enqueue_one(db: &Connection, message: &NewMessage) -> Result<i64, StoreError> {
    let message_id = message.message_id.to_string();
    let params = rusqlite::params![
        message_id,
        message.category.as_str(),
        message.aggregate_type,
        message.aggregate_id,
        message.event_type,
        message.event_version,
        message.payload,
        message.headers.to_json(),
        message.destination,
        message.msg_key,
        message.delay.map(millis),
        message.causation_id,
        message.correlation_id,
    ];
    if change(db, include_str!("sql/enqueue_row.sql"), params)? == 1 {
        return Ok(db.last_insert_rowid());
    }
    let NewMessage { destination, event_type, msg_key, payload, .. } = message;
    let params = (message_id, destination, event_type, msg_key, payload);
    let found = first(db, ENQUEUED_SQL, params, |c| (c.integer(0), c.flag(1)))?;
    sent_before(message, found)
}

/// The row that holds the message's id already, if it is the same message.
fn sent_before(message: &NewMessage, found: Option<(i64, bool)>) -> Result<i64, StoreError> {
    let NewMessage { message_id, destination, event_type, .. } = message;
    match found {
        Some((id, true)) => Ok(id),
        Some((_, false)) => Err(StoreError::invalid(format!(
            "cannot send {event_type}: message id {message_id} belongs to another message of \
             destination {destination}; use another id"
        ))),
        None => Err(StoreError::unavailable("a message was neither written nor found; try again")),
    }
}

pub(super) fn once(db: &Connection, handler: &str, message_id: &str) -> Result<bool, StoreError> {
    change(db, ONCE_SQL, (message_id, handler)).map(|rows| rows == 1)
}

#[cfg(feature = "sqlx-sqlite")]
mod with_sqlx {
    use relais_core::{
        message::NewMessage,
        store::{StoreError, StoreFuture},
    };
    use sqlx::{Connection, Sqlite, SqliteConnection, query, query_as, query_scalar};

    use super::{ENQUEUE_SQL, ENQUEUED_SQL, ONCE_SQL, millis, sent_before};
    use crate::{Transaction, sqlite::error, transaction::not_in_transaction};

    impl Transaction for sqlx::Transaction<'_, Sqlite> {
        fn enqueue<'a>(&'a mut self, messages: &'a [NewMessage]) -> StoreFuture<'a, Vec<i64>> {
            Transaction::enqueue(&mut **self, messages)
        }

        fn once<'a>(&'a mut self, handler: &'a str, message_id: &'a str) -> StoreFuture<'a, bool> {
            Transaction::once(&mut **self, handler, message_id)
        }
    }

    impl Transaction for SqliteConnection {
        /// All of the messages or, on an error, none of them, even if the transaction continues.
        fn enqueue<'a>(&'a mut self, messages: &'a [NewMessage]) -> StoreFuture<'a, Vec<i64>> {
            Box::pin(async move {
                check_in_transaction(self).await?;
                if let [message] = messages {
                    // One INSERT is all or nothing by itself.
                    return enqueue_one(self, message).await.map(|id| vec![id]);
                }
                control(self, "SAVEPOINT relais_enqueue").await?;
                let ids = enqueue_all(self, messages).await;
                if ids.is_err() {
                    control(self, "ROLLBACK TO relais_enqueue").await?;
                }
                control(self, "RELEASE relais_enqueue").await?;
                ids
            })
        }

        fn once<'a>(&'a mut self, handler: &'a str, message_id: &'a str) -> StoreFuture<'a, bool> {
            Box::pin(async move {
                check_in_transaction(self).await?;
                let done = query(ONCE_SQL).bind(message_id).bind(handler).execute(&mut *self).await;
                done.map(|done| done.rows_affected() == 1).map_err(|e| error::sqlx(&e))
            })
        }
    }

    /// sqlx knows the transactions that were begun with its own methods. For one that was begun with a
    /// statement SQLite refuses a second `BEGIN`.
    async fn check_in_transaction(db: &mut SqliteConnection) -> Result<(), StoreError> {
        if db.is_in_transaction() || control(db, "BEGIN").await.is_err() {
            return Ok(());
        }
        control(db, "ROLLBACK").await?;
        Err(not_in_transaction())
    }

    async fn control(db: &mut SqliteConnection, sql: &'static str) -> Result<(), StoreError> {
        query(sql).execute(db).await.map(drop).map_err(|e| error::sqlx(&e))
    }

    async fn enqueue_all(
        db: &mut SqliteConnection,
        messages: &[NewMessage],
    ) -> Result<Vec<i64>, StoreError> {
        let mut ids = Vec::with_capacity(messages.len());
        for message in messages {
            ids.push(enqueue_one(db, message).await?);
        }
        Ok(ids)
    }

    async fn enqueue_one(
        db: &mut SqliteConnection,
        message: &NewMessage,
    ) -> Result<i64, StoreError> {
        let message_id = message.message_id.to_string();
        let written: Option<i64> = query_scalar(ENQUEUE_SQL)
            .bind(&message_id)
            .bind(message.category.as_str())
            .bind(&message.aggregate_type)
            .bind(&message.aggregate_id)
            .bind(&message.event_type)
            .bind(message.event_version)
            .bind(&message.payload)
            .bind(message.headers.to_json())
            .bind(&message.destination)
            .bind(&message.msg_key)
            .bind(message.delay.map(millis))
            .bind(&message.causation_id)
            .bind(&message.correlation_id)
            .fetch_optional(&mut *db)
            .await
            .map_err(|e| error::sqlx(&e))?;
        if let Some(id) = written {
            return Ok(id);
        }
        let found = query_as(ENQUEUED_SQL)
            .bind(&message_id)
            .bind(&message.destination)
            .bind(&message.event_type)
            .bind(&message.msg_key)
            .bind(&message.payload)
            .fetch_optional(db)
            .await;
        sent_before(message, found.map_err(|e| error::sqlx(&e))?)
    }
}
