//! Rows on their way to the database, with the offsets of their partitions.

use relais_core::inbox::{NewInbox, SourcePosition};

use super::{membership::OwnedPartition, offsets};

/// A batch ends when it reaches this many bytes; the record that exceeds it is still included, so
/// that the largest record fits.
pub(super) const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Partition {
    pub(super) topic: String,
    pub(super) number: i32,
}

impl Partition {
    pub(super) fn is(&self, topic: &str, number: i32) -> bool {
        self.number == number && self.topic == topic
    }
}

/// The records that one `next` collects.
#[derive(Debug, Default)]
pub(super) struct RecordBatch {
    pub(super) messages: Vec<NewInbox>,
    pub(super) spans: Vec<OffsetSpan>,
    bytes: usize,
}

/// The offsets of one partition in a batch.
#[derive(Clone, Debug)]
pub(super) struct OffsetSpan {
    pub(super) partition: Partition,
    /// The seek of the partition that this span belongs to; after another seek the span is void.
    pub(super) seek_id: u64,
    pub(super) first: i64,
    /// The offset after the last record.
    pub(super) next: i64,
    /// Stored with every offset. If a reader of a deleted topic stores its offset late, the id
    /// shows to which topic it belongs.
    pub(super) topic_id: Option<i64>,
}

impl OffsetSpan {
    fn new(owned: &OwnedPartition, first: i64, next: i64) -> Self {
        let OwnedPartition { partition, seek_id, topic_id, .. } = owned;
        Self { partition: partition.clone(), seek_id: *seek_id, first, next, topic_id: *topic_id }
    }
}

impl RecordBatch {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(super) fn is_full(&self, max: usize) -> bool {
        self.messages.len() >= max || self.bytes >= BATCH_BYTES_MAX
    }

    /// Adds a record of an assigned partition.
    pub(super) fn push(
        &mut self,
        owned: &OwnedPartition,
        offset: i64,
        message: NewInbox,
        bytes: usize,
    ) {
        self.messages.push(message);
        self.bytes = self.bytes.saturating_add(bytes);
        let next = offset.saturating_add(1);
        match self.spans.iter_mut().find(|span| span.partition == owned.partition) {
            Some(span) => span.next = next,
            None => self.spans.push(OffsetSpan::new(owned, offset, next)),
        }
    }

    /// Advances to an offset before which the partition has no more records.
    pub(super) fn advance(&mut self, owned: &OwnedPartition, next: i64) {
        self.spans.push(OffsetSpan::new(owned, owned.next, next));
    }

    /// Drops the rows of partitions that are no longer assigned.
    pub(super) fn retain(&mut self, is_ours: impl FnMut(&OffsetSpan) -> bool) {
        let (kept, revoked): (Vec<OffsetSpan>, Vec<OffsetSpan>) =
            self.spans.drain(..).partition(is_ours);
        self.spans = kept;
        self.messages.retain(|row| {
            !revoked.iter().any(|span| span.partition.is(&row.topic, row.partition_num))
        });
    }

    /// Returns the positions that are stored with the rows.
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
        let owned = OwnedPartition {
            topic_id: Some(7),
            saved_topic_id: Some(7),
            ..OwnedPartition::at(0, 5)
        };
        let mut batch = RecordBatch::default();
        batch.advance(&owned, 9);
        let stored: Vec<_> =
            batch.positions("s", "c").into_iter().map(|p| (p.partition, p.position)).collect();
        let key = offsets::partition_key("c", "members", 0);
        assert_eq!(stored, [(key.clone(), 9), (offsets::topic_id_key(&key), 7)]);
    }
}
