//! The thread that reads: it does what the source asks, one thing at a time, and reads ahead while
//! the database is busy with a batch.
//!
//! Invariant: between a batch and its settlement no partition can be given or taken. What is asked
//! back while reading ahead is let go when the batch is settled, and what was read ahead counts for
//! nothing until it is handed out itself. Each `Collect` is answered by exactly one [`Reply`].

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rdkafka::consumer::{CommitMode, Consumer};
use relais_core::{inbox::SourcePosition, source::SourceBatch};
use tokio::sync::mpsc;

use super::{
    batch::{Batch, Span},
    member::{Member, Polled, Rest},
    membership::Blueprint,
    placing::PlaceError,
    trouble::Complaints,
};

/// What the source asks of the thread. That there is no more of it means: finish.
#[derive(Debug)]
pub(super) enum Command {
    /// The next batch; `positions` if they were asked for.
    Collect { max: usize, positions: Option<Vec<SourcePosition>> },
    /// The last batch is stored.
    Acknowledge,
    /// The last batch is not stored.
    Refuse,
}

/// The answer to `Collect`.
#[derive(Debug)]
pub(super) enum Reply {
    Batch(SourceBatch),
    /// Partitions have come: what does the database know of them?
    AskPositions,
    Unavailable(String),
    Closed,
}

/// How long one poll waits for a record; closing is noticed as fast.
const POLL_MAX: Duration = Duration::from_millis(100);
/// The same while a partition waits to be placed.
const POLL_MIN: Duration = Duration::from_millis(5);

/// Reads for one source.
pub(super) struct Reader {
    blueprint: Blueprint,
    closing: Arc<AtomicBool>,
    member: Option<Member>,
    /// What is in the batch that is out.
    out: Vec<Span>,
    /// What the next batch begins with: at most one batch, however long this one takes.
    ahead: Batch,
    /// Most messages of a batch, as it was asked for last.
    max: usize,
    complaints: Complaints,
}

impl Reader {
    pub(super) fn new(blueprint: Blueprint, closing: Arc<AtomicBool>) -> Self {
        let complaints = Complaints::default();
        let (out, ahead) = (Vec::new(), Batch::default());
        Self { blueprint, closing, member: None, out, ahead, max: 0, complaints }
    }

    /// Works until the source has nothing more to ask.
    pub(super) fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        replies: &mpsc::Sender<Reply>,
    ) {
        while let Some(command) = self.wait(&mut commands) {
            match command {
                Command::Acknowledge => self.acknowledge(),
                Command::Refuse => self.refuse(),
                Command::Collect { max, positions } => {
                    let reply = self.collect(max, positions).unwrap_or_else(Reply::Unavailable);
                    if replies.blocking_send(reply).is_err() {
                        break;
                    }
                }
            }
        }
        self.leave();
    }

    /// The next command; reads ahead until it comes.
    fn wait(&mut self, commands: &mut mpsc::Receiver<Command>) -> Option<Command> {
        while commands.is_empty() && !self.closing.load(Ordering::Relaxed) {
            if self.read_ahead() == Ahead::Enough {
                break;
            }
        }
        commands.blocking_recv()
    }

    /// Takes one more record, without waiting for it.
    fn read_ahead(&mut self) -> Ahead {
        let Some(member) = &mut self.member else { return Ahead::Enough };
        if self.out.is_empty() || self.ahead.is_full(self.max) || member.has_unplaced() {
            return Ahead::Enough;
        }
        match member.poll(&self.blueprint, &mut self.ahead, Duration::ZERO) {
            Polled::Record => {
                self.complaints.note_record();
                return Ahead::More;
            }
            Polled::Nothing | Polled::Other => {}
            Polled::Trouble(trouble) => self.complaints.note(trouble),
            Polled::Fatal(reason) => {
                tracing::error!(reason, "the consumer has ended; making another");
                self.let_go();
                self.member = None;
                self.ahead = Batch::default();
            }
        }
        Ahead::Enough
    }

    fn collect(
        &mut self,
        max: usize,
        mut positions: Option<Vec<SourcePosition>>,
    ) -> Result<Reply, String> {
        let mut member = match self.member.take() {
            Some(member) => member,
            None => Member::join(&self.blueprint)?,
        };
        self.max = max;
        let mut batch = std::mem::take(&mut self.ahead);
        let reply = loop {
            if self.closing.load(Ordering::Relaxed) {
                break Ok(Reply::Closed);
            }
            if member.has_unplaced() && member.knows_topics() {
                if !batch.is_empty() {
                    break Ok(self.hand_out(&member, batch));
                }
                let Some(stored) = positions.take() else { break Ok(Reply::AskPositions) };
                match member.place(&self.blueprint, &stored) {
                    Ok(()) => {}
                    Err(PlaceError::Unknown(reason)) => break Err(reason),
                    // Nobody knows what librdkafka reads now.
                    Err(PlaceError::Broken(reason)) => return Err(reason),
                }
            }
            if batch.is_full(max) {
                break Ok(self.hand_out(&member, batch));
            }
            if batch.is_empty()
                && let Some(reason) = self.complaints.due(Instant::now())
            {
                break Err(reason);
            }
            let wait = match batch.is_empty() {
                false => Duration::ZERO,
                true if member.has_unplaced() => POLL_MIN,
                true => POLL_MAX,
            };
            match member.poll(&self.blueprint, &mut batch, wait) {
                Polled::Record => self.complaints.note_record(),
                Polled::Other => {}
                Polled::Nothing if batch.is_empty() => {
                    if member.rest(&mut batch) == Rest::Passed {
                        break Ok(self.hand_out(&member, batch));
                    }
                }
                Polled::Nothing => break Ok(self.hand_out(&member, batch)),
                Polled::Trouble(trouble) => self.complaints.note(trouble),
                Polled::Fatal(reason) => {
                    tracing::error!(reason, "the consumer has ended; making another");
                    return Err(reason);
                }
            }
        };
        self.member = Some(member);
        reply
    }

    fn hand_out(&mut self, member: &Member, batch: Batch) -> Reply {
        let cluster = member.cluster.as_deref().unwrap_or_default();
        let positions = batch.positions(&self.blueprint.settings.name, cluster);
        let Batch { messages, spans, .. } = batch;
        self.out = spans;
        member.consumer.context().state().out = true;
        Reply::Batch(SourceBatch { messages, positions })
    }

    fn acknowledge(&mut self) {
        let out = std::mem::take(&mut self.out);
        let Some(member) = &mut self.member else { return };
        let mut state = member.consumer.context().state();
        for span in &out {
            if let Some(owned) = state.find_span(span) {
                owned.acknowledge(span);
            }
        }
        drop(state);
        member.commit();
        self.let_go();
    }

    fn refuse(&mut self) {
        let out = std::mem::take(&mut self.out);
        let Some(member) = &self.member else { return };
        let mut state = member.consumer.context().state();
        for span in &out {
            if let Some(owned) = state.find_span(span) {
                owned.go_back(span);
            }
        }
        drop(state);
        // They come again behind what was refused.
        self.ahead.retain(|span| !out.iter().any(|gone| gone.partition == span.partition));
        self.let_go();
    }

    /// No batch is out: partitions that were asked back meanwhile can go.
    fn let_go(&mut self) {
        let Some(Member { consumer, .. }) = &self.member else { return };
        consumer.context().let_go(consumer);
        let mut state = consumer.context().state();
        self.ahead.retain(|span| state.find_span(span).is_some());
    }

    /// Tells the group how far we are and leaves it.
    fn leave(mut self) {
        self.let_go();
        let Some(member) = self.member.take() else { return };
        let (behind, away, given) = {
            let state = member.consumer.context().state();
            (state.behind(), state.away, !state.given.is_empty())
        };
        if behind.count() > 0
            && !away
            && let Err(error) = member.consumer.commit(&behind, CommitMode::Sync)
        {
            tracing::debug!(%error, "the group did not take the last offsets");
        }
        if given {
            // librdkafka waits for this before it lets us go.
            member.consumer.context().give_back(&member.consumer);
        }
        // Dropping the consumer leaves the group.
    }
}

/// Whether to go on reading ahead.
#[derive(PartialEq, Eq)]
enum Ahead {
    More,
    /// Until the next batch has been handed out.
    Enough,
}
