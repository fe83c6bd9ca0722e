//! The sender's side: messages written in the user's own transaction.

use std::time::Duration;

use relais_core::{
    cause::Cause,
    handler::Received,
    json,
    message::{Headers, Message, MessageIdOrigin, NewMessage},
    store::StoreError,
    text,
};
use relais_store::{BlockingTransaction, Transaction};
use uuid::Uuid;

use crate::wake;

/// Writes messages for one destination. Cheap to clone.
///
/// ```no_run
/// # async fn example(tx: &mut dyn relais::Transaction) -> Result<(), relais::SendError> {
/// use relais::{Message, Outbox};
///
/// #[derive(Message, serde::Serialize)]
/// #[message(name = "OrderCreated", aggregate = "Order", key = "order_id")]
/// struct OrderCreated { order_id: String, total_cents: i64 }
///
/// let orders = Outbox::to("orders");
/// // `tx` is the transaction that also changes the business tables.
/// orders.send(tx, &OrderCreated { order_id: "o-1".into(), total_cents: 1999 }).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Outbox {
    destination: String,
    headers: Headers,
    correlation_id: Option<String>,
    causation_id: Option<String>,
    cause: Option<Cause>,
}

/// The reason why a message was not written. The caller rolls the transaction back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The message cannot be written as JSON.
    #[error("cannot write the message as JSON: {0}")]
    Unserialisable(#[from] serde_json::Error),
    /// The message is not JSON that can be stored.
    #[error("the message is {0}")]
    NotJson(#[from] json::JsonError),
    /// The aggregate id cannot be stored.
    #[error("cannot store the aggregate id: {0}; use a shorter one without U+0000")]
    AggregateId(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Outbox {
    /// Returns an outbox for messages to this destination, unless a message type has its own.
    pub fn to(destination: &str) -> Self {
        Self {
            destination: destination.to_owned(),
            headers: Headers::default(),
            correlation_id: None,
            causation_id: None,
            cause: None,
        }
    }

    /// Adds a header to every message.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.set(name, value);
        self
    }

    /// Sets the correlation id and the causation id of every message.
    #[must_use]
    pub fn because_of(mut self, correlation_id: &str, causation_id: &str) -> Self {
        self.correlation_id = Some(correlation_id.to_owned());
        self.causation_id = Some(causation_id.to_owned());
        self
    }

    /// Sets a received message as the cause: its correlation id, its message id as the causation id, and its
    /// trace (`traceparent`). A handler does this by itself; use it in a task that the handler spawned, or in
    /// your own consumer.
    #[must_use]
    pub fn caused_by<M>(mut self, message: &Received<M>) -> Self {
        let cause = Cause::new(&message.message_id, &message.headers, message.received_at);
        self.cause = Some(cause);
        self
    }

    /// Writes one message; returns its id, which is the same on every delivery.
    pub async fn send<T, M>(&self, tx: &mut T, message: &M) -> Result<Uuid, SendError>
    where
        T: Transaction + ?Sized,
        M: Message,
    {
        self.write(tx, &[self.row(message)?]).await.map(|ids| ids[0])
    }

    /// Writes many messages in one statement; returns their ids.
    pub async fn send_all<T, M>(&self, tx: &mut T, messages: &[M]) -> Result<Vec<Uuid>, SendError>
    where
        T: Transaction + ?Sized,
        M: Message,
    {
        let rows: Result<Vec<_>, _> = messages.iter().map(|m| self.row(m)).collect();
        self.write(tx, &rows?).await
    }

    /// Writes one message that is delivered no earlier than `delay` after the current time of the database.
    pub async fn send_after<T, M>(
        &self,
        tx: &mut T,
        delay: Duration,
        message: &M,
    ) -> Result<Uuid, SendError>
    where
        T: Transaction + ?Sized,
        M: Message,
    {
        let row = NewMessage { delay: Some(delay), ..self.row(message)? };
        self.write(tx, &[row]).await.map(|ids| ids[0])
    }

    /// [`Outbox::send`] for a driver that blocks, such as rusqlite.
    pub fn send_blocking<T, M>(&self, tx: &T, message: &M) -> Result<Uuid, SendError>
    where
        T: BlockingTransaction + ?Sized,
        M: Message,
    {
        self.send_all_blocking(tx, std::slice::from_ref(&message)).map(|ids| ids[0])
    }

    /// [`Outbox::send_all`] for a driver that blocks.
    pub fn send_all_blocking<T, M>(&self, tx: &T, messages: &[&M]) -> Result<Vec<Uuid>, SendError>
    where
        T: BlockingTransaction + ?Sized,
        M: Message,
    {
        let rows: Result<Vec<_>, _> = messages.iter().map(|m| self.row(*m)).collect();
        Self::write_blocking(tx, &rows?)
    }

    /// [`Outbox::send_after`] for a driver that blocks.
    pub fn send_after_blocking<T, M>(
        &self,
        tx: &T,
        delay: Duration,
        message: &M,
    ) -> Result<Uuid, SendError>
    where
        T: BlockingTransaction + ?Sized,
        M: Message,
    {
        let row = NewMessage { delay: Some(delay), ..self.row(message)? };
        Self::write_blocking(tx, &[row]).map(|ids| ids[0])
    }

    /// Returns the row of a message, for users of another driver: bind its fields to the store's public
    /// `ENQUEUE_SQL`.
    pub fn message<M: Message>(&self, message: &M) -> Result<NewMessage, SendError> {
        let payload = serde_json::to_string(message)?;
        json::check(payload.as_bytes())?;
        let aggregate_id = message.aggregate_id();
        text::aggregate_id(&aggregate_id).map_err(SendError::AggregateId)?;
        let id = message.message_id().unwrap_or_else(Uuid::now_v7);
        let destination = M::DESTINATION.unwrap_or(&self.destination);
        let mut message = NewMessage {
            category: M::CATEGORY,
            event_version: M::VERSION,
            headers: self.headers.clone(),
            msg_key: text::identity(&message.key(), text::KEY_MAX),
            correlation_id: self.correlation_id.clone(),
            causation_id: self.causation_id.clone(),
            ..NewMessage::new(id, (M::AGGREGATE, &aggregate_id), M::NAME, destination, payload)
        };
        if let Some(cause) = self.cause.clone().or_else(Cause::current) {
            cause.pass_on(&mut message);
        }
        Ok(message)
    }

    /// Returns the row of a message that is written once, by this call: unlike [`Self::message`], whose caller
    /// may keep the row and write it again.
    fn row<M: Message>(&self, message: &M) -> Result<NewMessage, SendError> {
        let id_origin = match message.message_id() {
            Some(_) => MessageIdOrigin::Given,
            None => MessageIdOrigin::Generated,
        };
        Ok(NewMessage { id_origin, ..self.message(message)? })
    }

    fn write_blocking<T>(tx: &T, rows: &[NewMessage]) -> Result<Vec<Uuid>, SendError>
    where
        T: BlockingTransaction + ?Sized,
    {
        tx.enqueue(rows)?;
        wake::sent_to(rows.iter().map(|row| row.destination.as_str()));
        Ok(rows.iter().map(|row| row.message_id).collect())
    }

    async fn write<T>(&self, tx: &mut T, rows: &[NewMessage]) -> Result<Vec<Uuid>, SendError>
    where
        T: Transaction + ?Sized,
    {
        tx.enqueue(rows).await?;
        wake::sent_to(rows.iter().map(|row| row.destination.as_str()));
        Ok(rows.iter().map(|row| row.message_id).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Serialize)]
    struct Note(String);

    impl Message for Note {
        const NAME: &'static str = "Note";
        const AGGREGATE: &'static str = "Note";

        fn aggregate_id(&self) -> String {
            self.0.clone()
        }
    }

    /// A message with an id of its own.
    #[derive(serde::Serialize)]
    struct Numbered(Uuid);

    impl Message for Numbered {
        const NAME: &'static str = "Numbered";
        const AGGREGATE: &'static str = "Numbered";

        fn aggregate_id(&self) -> String {
            self.0.to_string()
        }

        fn message_id(&self) -> Option<Uuid> {
            Some(self.0)
        }
    }

    #[test]
    fn only_a_generated_id_is_written_without_looking_for_an_earlier_message() {
        let outbox = Outbox::to("SOMEWHERE");
        let generated = Note("n".to_owned());
        assert_eq!(outbox.row(&generated).unwrap().id_origin, MessageIdOrigin::Generated);
        // The caller may write this row twice.
        assert_eq!(outbox.message(&generated).unwrap().id_origin, MessageIdOrigin::Given);
        let given = Numbered(Uuid::now_v7());
        let row = outbox.row(&given).unwrap();
        assert_eq!((row.message_id, row.id_origin), (given.0, MessageIdOrigin::Given));
    }

    #[test]
    fn an_aggregate_id_is_stored_as_it_is_or_refused() {
        let outbox = Outbox::to("SOMEWHERE");
        let long = "n".repeat(1_000);
        assert_eq!(outbox.message(&Note(long.clone())).unwrap().aggregate_id, long);
        for id in [format!("{long}n"), "a\0b".to_owned()] {
            let error = outbox.message(&Note(id)).unwrap_err();
            assert!(matches!(error, SendError::AggregateId(_)), "{error}");
        }
    }
}
