//! From a record to a row of the batch.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use rdkafka::{Message, consumer::Consumer, message::BorrowedMessage};
use relais_core::extract::Value;

use super::{
    super::{
        batch::RecordBatch,
        consumer_error::{ConsumerError, ConsumerErrorKind},
        membership::ConsumerFactory,
        record,
        schema::{SchemaResolver, SchemaWait},
    },
    GroupMember, KafkaReader, PollOutcome,
};

/// The resolver of schemas, and the sign to stop waiting for the registry.
pub(super) struct RecordSchemas<'a> {
    pub(super) resolver: &'a mut SchemaResolver,
    pub(super) is_stopping: &'a dyn Fn() -> bool,
}

impl KafkaReader {
    /// Polls once.
    pub(super) fn poll(
        &mut self,
        member: &mut GroupMember,
        batch: &mut RecordBatch,
        wait: Duration,
    ) -> PollOutcome {
        let Self { factory, closing, pausing, schemas, errors, .. } = self;
        let is_stopping = || closing.load(Ordering::Relaxed) || pausing.load(Ordering::Relaxed);
        let Some(resolver) = schemas else { return member.poll(factory, None, batch, wait) };
        let schemas = RecordSchemas { resolver, is_stopping: &is_stopping };
        let polled = member.poll(factory, Some(schemas), batch, wait);
        if resolver.take_recovery() {
            errors.note_schemas();
        }
        polled
    }
}

impl GroupMember {
    /// Adds a record to the batch if its partition takes it. Without its schema the partition waits.
    pub(super) fn take(
        &self,
        record: &BorrowedMessage<'_>,
        factory: &ConsumerFactory,
        schemas: Option<RecordSchemas<'_>>,
        batch: &mut RecordBatch,
    ) -> PollOutcome {
        if !self.wants(record) {
            return PollOutcome::Record;
        }
        let cluster = self.cluster.as_deref().unwrap_or_default();
        let incoming = record::incoming(cluster, record);
        let mapping = &factory.settings.mapping;
        let message = match (schemas, &incoming.value) {
            (Some(schemas), Value::Bytes(bytes)) => {
                let decoded = match schemas.resolver.decode(bytes, schemas.is_stopping) {
                    Ok(decoded) => decoded,
                    Err(wait) => return PollOutcome::Error(self.wait(record, wait)),
                };
                mapping.read_with(incoming, |_| decoded)
            }
            _ => mapping.read(incoming),
        };
        let message = message.expect("a record always has a position as its id");
        let mut state = self.consumer.context().state();
        if let Some(owned) = state.find(record.topic(), record.partition()) {
            batch.push(owned, record.offset(), message, record::size(record));
            owned.next = record.offset().saturating_add(1);
        }
        PollOutcome::Record
    }

    fn wants(&self, record: &BorrowedMessage<'_>) -> bool {
        let mut state = self.consumer.context().state();
        state.unavailable = false;
        let owned = state.find(record.topic(), record.partition());
        owned.is_some_and(|owned| owned.wants(record.offset(), Instant::now()))
    }

    /// Lets the partition seek back to this record after the pause.
    fn wait(&self, record: &BorrowedMessage<'_>, wait: SchemaWait) -> ConsumerError {
        let (topic, partition, offset) = (record.topic(), record.partition(), record.offset());
        if let Some(owned) = self.consumer.context().state().find(topic, partition) {
            owned.reseek_at = Some(Instant::now() + wait.pause);
        }
        let reason = format!("{topic}/{partition} waits at offset {offset}: {}", wait.reason);
        ConsumerError { reason, kind: ConsumerErrorKind::Schema }
    }
}
