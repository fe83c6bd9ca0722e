//! Rows on their way to the database, and how far each partition is read with them.

use relais_core::inbox::{NewInbox, SourcePosition};

use super::{
    membership::{Owned, Partition},
    offsets,
};

/// A batch ends when it has this many bytes; the record that goes beyond still belongs to it, so
/// even the largest record passes.
pub(super) const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

/// What one `next` collects.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) messages: Vec<NewInbox>,
    pub(super) spans: Vec<Span>,
    bytes: usize,
}

/// The part of one partition in a batch.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) partition: Partition,
    /// When the partition was placed: after another placing this span means nothing.
    pub(super) placed: u64,
    pub(super) first: i64,
    /// Behind the last record.
    pub(super) next: i64,
    /// Goes to the database with every offset: an offset that a reader of a deleted topic stores late is
    /// then known to be of that topic.
    pub(super) topic_id: Option<i64>,
}

impl Span {
    fn new(owned: &Owned, first: i64, next: i64) -> Self {
        let Owned { partition, placed, topic_id, .. } = owned;
        Self { partition: partition.clone(), placed: *placed, first, next, topic_id: *topic_id }
    }
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(super) fn is_full(&self, max: usize) -> bool {
        self.messages.len() >= max || self.bytes >= BATCH_BYTES_MAX
    }

    /// Adds a record of a partition that is ours.
    pub(super) fn push(&mut self, owned: &Owned, offset: i64, message: NewInbox, bytes: usize) {
        self.messages.push(message);
        self.bytes = self.bytes.saturating_add(bytes);
        let next = offset.saturating_add(1);
        match self.spans.iter_mut().find(|span| span.partition == owned.partition) {
            Some(span) => span.next = next,
            None => self.spans.push(Span::new(owned, offset, next)),
        }
    }

    /// Goes on to an offset before which a partition has no more records.
    pub(super) fn pass(&mut self, owned: &Owned, next: i64) {
        self.spans.push(Span::new(owned, owned.next, next));
    }

    /// Drops the rows of partitions that are not ours any more.
    pub(super) fn retain(&mut self, is_ours: impl FnMut(&Span) -> bool) {
        let (kept, gone): (Vec<Span>, Vec<Span>) = self.spans.drain(..).partition(is_ours);
        self.spans = kept;
        self.messages.retain(|row| {
            !gone.iter().any(|span| span.partition.is(&row.topic, row.partition_num))
        });
    }

    /// What the database is to remember together with the rows.
    pub(super) fn positions(&self, source: &str, cluster: &str) -> Vec<SourcePosition> {
        let row = |partition: String, position: i64| SourcePosition {
            source: source.to_owned(),
            partition,
            position,
        };
        let rows = self.spans.iter().flat_map(|span| {
            let key = offsets::partition_key(cluster, &span.partition.topic, span.partition.number);
            let id = span.topic_id.map(|id| row(offsets::topic_id_key(&key), id));
            [Some(row(key, span.next)), id]
        });
        rows.flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offset_is_stored_with_the_id_of_its_topic() {
        let owned = Owned { topic_id: Some(7), saved_topic_id: Some(7), ..Owned::at(0, 5) };
        let mut batch = Batch::default();
        batch.pass(&owned, 9);
        let stored: Vec<_> =
            batch.positions("s", "c").into_iter().map(|p| (p.partition, p.position)).collect();
        let key = offsets::partition_key("c", "members", 0);
        assert_eq!(stored, [(key.clone(), 9), (offsets::topic_id_key(&key), 7)]);
    }
}
