//! The batches that were handed out and are not settled, and the commands that settle them.
//!
//! Invariant: batches are settled in the order in which they were handed out. A refusal voids all of them, and
//! what is being collected: records after a refused batch must not be stored before it.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::mpsc::{Receiver, error::TryRecvError};

use super::{batch::OffsetSpan, membership::MembershipState, reader::ReaderCommand};

/// Shared by the reader and the callbacks of librdkafka, which run in its thread.
pub(super) struct Settlements {
    commands: Mutex<Receiver<ReaderCommand>>,
    /// The spans of each batch, the oldest first.
    unsettled: Mutex<VecDeque<Vec<OffsetSpan>>>,
    refusals: AtomicU64,
}

impl Settlements {
    pub(super) fn new(commands: Receiver<ReaderCommand>) -> Self {
        Self {
            commands: Mutex::new(commands),
            unsettled: Mutex::default(),
            refusals: AtomicU64::new(0),
        }
    }

    /// Waits for the next command; `None` when the source is closed.
    pub(super) fn wait(&self) -> Option<ReaderCommand> {
        lock(&self.commands).blocking_recv()
    }

    /// Returns a command that has arrived.
    pub(super) fn try_next(&self) -> Result<ReaderCommand, TryRecvError> {
        lock(&self.commands).try_recv()
    }

    pub(super) fn hand_out(&self, spans: Vec<OffsetSpan>) {
        lock(&self.unsettled).push_back(spans);
    }

    /// Returns whether every batch is settled.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.unsettled).is_empty()
    }

    /// Returns the number of refusals so far.
    pub(super) fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    /// Executes a command that settles batches.
    pub(super) fn settle(&self, state: &mut MembershipState, command: &ReaderCommand) {
        match command {
            ReaderCommand::Acknowledge => self.acknowledge(state),
            ReaderCommand::Refuse => self.refuse(state),
            // The source sends no other command before the reply to `Collect`.
            ReaderCommand::Collect { .. } | ReaderCommand::Pause => {}
        }
    }

    /// The oldest batch is stored.
    fn acknowledge(&self, state: &mut MembershipState) {
        for span in lock(&self.unsettled).pop_front().unwrap_or_default() {
            if let Some(owned) = state.find_span(&span) {
                owned.acknowledge(&span);
            }
        }
    }

    /// None of the batches is stored: they are read again.
    fn refuse(&self, state: &mut MembershipState) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
        for spans in lock(&self.unsettled).drain(..) {
            state.go_back(&spans);
        }
    }

    /// Waits until every batch is settled, or the source is closed. Partitions are kept until then: their next
    /// owner starts at the positions that these batches store.
    pub(super) fn wait_until_settled<'a>(
        &self,
        state: impl Fn() -> MutexGuard<'a, MembershipState>,
    ) {
        while !self.is_empty() {
            let Some(command) = self.wait() else { return };
            self.settle(&mut state(), &command);
        }
    }
}

impl MembershipState {
    /// Seeks back to the first records of these spans.
    pub(super) fn go_back(&mut self, spans: &[OffsetSpan]) {
        for span in spans {
            if let Some(owned) = self.find_span(span) {
                owned.go_back(span);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::{
        super::{batch::Partition, membership::OwnedPartition},
        *,
    };

    fn span(first: i64, next: i64) -> OffsetSpan {
        let partition = Partition { topic: "members".into(), number: 0 };
        OffsetSpan { partition, seek_id: 1, first, next, topic_id: None }
    }

    /// Two batches of one partition, of which nothing is stored.
    fn two_batches() -> (mpsc::Sender<ReaderCommand>, Settlements, MembershipState) {
        let (sender, commands) = mpsc::channel(4);
        let settlements = Settlements::new(commands);
        settlements.hand_out(vec![span(5, 8)]);
        settlements.hand_out(vec![span(8, 9)]);
        let owned = OwnedPartition { next: 9, ..OwnedPartition::at(0, 5) };
        (sender, settlements, MembershipState { owned: vec![owned], ..MembershipState::default() })
    }

    #[test]
    fn the_oldest_batch_is_acknowledged_first() {
        let (_sender, settlements, mut state) = two_batches();
        settlements.acknowledge(&mut state);
        assert_eq!((state.owned[0].stored, settlements.is_empty()), (8, false));
        settlements.acknowledge(&mut state);
        assert_eq!((state.owned[0].stored, settlements.is_empty()), (9, true));
    }

    #[test]
    fn a_refusal_goes_back_to_the_first_record_that_is_not_stored() {
        let (_sender, settlements, mut state) = two_batches();
        settlements.refuse(&mut state);
        assert_eq!((state.owned[0].stored, state.owned[0].next), (5, 5));
        assert!(state.owned[0].reseek_at.is_some() && settlements.is_empty());
        assert_eq!(settlements.refusals(), 1);
    }

    #[test]
    fn partitions_are_kept_until_their_batches_are_settled() {
        let (sender, settlements, state) = two_batches();
        let state = Mutex::new(state);
        sender.try_send(ReaderCommand::Acknowledge).unwrap();
        sender.try_send(ReaderCommand::Acknowledge).unwrap();
        settlements.wait_until_settled(|| lock(&state));
        assert_eq!(lock(&state).owned[0].stored, 9);
        settlements.hand_out(vec![span(9, 10)]);
        drop(sender);
        settlements.wait_until_settled(|| lock(&state));
        assert_eq!(lock(&state).owned[0].stored, 9, "closed before it was settled");
    }
}
