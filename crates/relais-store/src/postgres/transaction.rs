//! The user's own transaction: what is written here exists if and only if it commits.

use relais_core::{
    message::NewMessage,
    store::{StoreError, StoreFuture},
};
use tokio_postgres::{GenericClient, types::Type};

use super::{enqueue, error::Failure};
use crate::Transaction;

impl Transaction for tokio_postgres::Transaction<'_> {
    fn enqueue<'a>(&'a mut self, messages: &'a [NewMessage]) -> StoreFuture<'a, Vec<i64>> {
        Box::pin(write(self, messages))
    }

    fn once<'a>(&'a mut self, handler: &'a str, message_id: &'a str) -> StoreFuture<'a, bool> {
        Box::pin(first(self, handler, message_id))
    }
}

impl Transaction for &tokio_postgres::Transaction<'_> {
    fn enqueue<'a>(&'a mut self, messages: &'a [NewMessage]) -> StoreFuture<'a, Vec<i64>> {
        Box::pin(write(*self, messages))
    }

    fn once<'a>(&'a mut self, handler: &'a str, message_id: &'a str) -> StoreFuture<'a, bool> {
        Box::pin(first(*self, handler, message_id))
    }
}

impl Transaction for deadpool_postgres::Transaction<'_> {
    fn enqueue<'a>(&'a mut self, messages: &'a [NewMessage]) -> StoreFuture<'a, Vec<i64>> {
        Box::pin(write(&**self, messages))
    }

    fn once<'a>(&'a mut self, handler: &'a str, message_id: &'a str) -> StoreFuture<'a, bool> {
        Box::pin(first(&**self, handler, message_id))
    }
}

impl Transaction for &deadpool_postgres::Transaction<'_> {
    fn enqueue<'a>(&'a mut self, messages: &'a [NewMessage]) -> StoreFuture<'a, Vec<i64>> {
        Box::pin(write(&***self, messages))
    }

    fn once<'a>(&'a mut self, handler: &'a str, message_id: &'a str) -> StoreFuture<'a, bool> {
        Box::pin(first(&***self, handler, message_id))
    }
}

async fn write<C: GenericClient>(
    client: &C,
    messages: &[NewMessage],
) -> Result<Vec<i64>, StoreError> {
    let messages: Vec<_> = messages.iter().collect();
    enqueue::enqueue(client, &messages).await.map_err(Failure::into_store)
}

async fn first<C: GenericClient>(
    client: &C,
    handler: &str,
    message_id: &str,
) -> Result<bool, StoreError> {
    let values: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
        [(&message_id, Type::TEXT), (&handler, Type::TEXT)];
    let changed = client.execute_typed(sql!("once"), &values).await;
    changed.map(|rows| rows == 1).map_err(|error| Failure::from(error).into_store())
}

#[cfg(feature = "sqlx-postgres")]
mod sqlx_connection {
    //! The same for sqlx, which has its own way to bind arrays.

    use relais_core::{
        message::NewMessage,
        store::{StoreError, StoreFuture},
    };
    use sqlx::{Connection, PgConnection, Postgres, Row};

    use super::super::{
        enqueue::{self, Columns, ENQUEUE_MAX, ENQUEUED_SQL},
        error::Failure,
        row,
    };
    use crate::{Transaction, transaction::not_in_transaction};

    /// `25P01`: there is no transaction in which a savepoint could be set.
    const NO_TRANSACTION: &str = "25P01";

    impl Transaction for sqlx::Transaction<'_, Postgres> {
        fn enqueue<'a>(&'a mut self, messages: &'a [NewMessage]) -> StoreFuture<'a, Vec<i64>> {
            Transaction::enqueue(&mut **self, messages)
        }

        fn once<'a>(&'a mut self, handler: &'a str, message_id: &'a str) -> StoreFuture<'a, bool> {
            Transaction::once(&mut **self, handler, message_id)
        }
    }

    impl Transaction for PgConnection {
        fn enqueue<'a>(&'a mut self, messages: &'a [NewMessage]) -> StoreFuture<'a, Vec<i64>> {
            Box::pin(async move {
                check_in_transaction(self).await?;
                write(self, messages).await.map_err(Failure::into_store)
            })
        }

        fn once<'a>(&'a mut self, handler: &'a str, message_id: &'a str) -> StoreFuture<'a, bool> {
            Box::pin(async move {
                check_in_transaction(self).await?;
                let query = sqlx::query(sql!("once")).bind(message_id).bind(handler);
                let result = query.execute(&mut *self).await;
                result
                    .map(|result| result.rows_affected() == 1)
                    .map_err(|error| Failure::from(error).into_store())
            })
        }
    }

    /// sqlx knows the transactions that were begun with its own methods. One that was begun with a statement
    /// is found by a savepoint, which the server refuses outside a transaction.
    async fn check_in_transaction(connection: &mut PgConnection) -> Result<(), StoreError> {
        if connection.is_in_transaction() {
            return Ok(());
        }
        let savepoint = sql!("check_transaction");
        match sqlx::raw_sql(savepoint).execute(connection).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let code = error.as_database_error().and_then(|error| error.code());
                if code.as_deref() == Some(NO_TRANSACTION) {
                    return Err(not_in_transaction());
                }
                Err(Failure::from(error).into_store())
            }
        }
    }

    async fn write(
        connection: &mut PgConnection,
        messages: &[NewMessage],
    ) -> Result<Vec<i64>, Failure> {
        let messages: Vec<_> = messages.iter().collect();
        enqueue::check(&messages)?;
        let mut ids = Vec::with_capacity(messages.len());
        if let [message] = messages[..] {
            ids.push(write_one(connection, message).await?);
        }
        let batches = if messages.len() == 1 { &[] } else { &messages[..] };
        for batch in batches.chunks(ENQUEUE_MAX) {
            let columns = Columns::of(batch);
            let found = sqlx::query(enqueue::of_many(batch))
                .bind(columns.message_ids)
                .bind(columns.categories)
                .bind(columns.aggregate_types)
                .bind(columns.aggregate_ids)
                .bind(columns.event_types)
                .bind(columns.event_versions)
                .bind(columns.payloads)
                .bind(columns.headers)
                .bind(columns.destinations)
                .bind(columns.msg_keys)
                .bind(columns.delays_ms)
                .bind(columns.causation_ids)
                .bind(columns.correlation_ids)
                .fetch_all(&mut *connection)
                .await?;
            let found = found.iter().map(|row| (row.get(1), row.get(2), row.get(0)));
            ids.extend(enqueue::written(batch, found));
        }
        let before = enqueue::missing(&messages, &ids);
        let mut found = Vec::with_capacity(before.len());
        for batch in before.chunks(ENQUEUE_MAX) {
            let columns = Columns::of(batch);
            let rows = sqlx::query(ENQUEUED_SQL)
                .bind(columns.message_ids)
                .bind(columns.destinations)
                .bind(columns.event_types)
                .bind(columns.msg_keys)
                .bind(columns.payloads)
                .fetch_all(&mut *connection)
                .await?;
            found.extend(rows.iter().map(|row| row.get::<Option<i64>, _>(0)));
        }
        enqueue::complete(ids, found)
    }

    async fn write_one(
        connection: &mut PgConnection,
        message: &NewMessage,
    ) -> Result<Option<i64>, Failure> {
        let found = sqlx::query(enqueue::of_one(message))
            .bind(message.message_id)
            .bind(message.category.as_str())
            .bind(&message.aggregate_type)
            .bind(&message.aggregate_id)
            .bind(&message.event_type)
            .bind(message.event_version)
            .bind(&message.payload)
            .bind(message.headers.to_json())
            .bind(&message.destination)
            .bind(&message.msg_key)
            .bind(message.delay.map(row::millis))
            .bind(&message.causation_id)
            .bind(&message.correlation_id)
            .fetch_optional(connection)
            .await?;
        Ok(found.map(|row| row.get(0)))
    }
}
