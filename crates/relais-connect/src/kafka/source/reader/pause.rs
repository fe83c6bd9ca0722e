//! A pause of the source: the member stays in its group and reads nothing.
//!
//! Without polls the group would remove the member after `max.poll.interval.ms`, and the lag would
//! be unknown.

use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer;
use tokio::sync::mpsc::error::TryRecvError;

use super::{GroupMember, KafkaReader, POLL_MAX, PollOutcome, ReaderCommand};

/// Interval of the requests for the ends of partitions: no records are read that would show them.
const LAG_EVERY: Duration = Duration::from_secs(5);
/// Time limit for the end of one partition.
const END_MAX: Duration = Duration::from_secs(1);

impl KafkaReader {
    /// Polls without reading until the next command, and returns it.
    pub(super) fn idle(&mut self) -> Option<ReaderCommand> {
        let Some(mut member) = self.member.take() else { return self.settlements.wait() };
        member.set_paused(true);
        let mut paused_at = None;
        let mut asked = None::<Instant>;
        let next = loop {
            match self.settlements.try_next() {
                Ok(command) => break Some(command),
                Err(TryRecvError::Disconnected) => break None,
                Err(TryRecvError::Empty) => {}
            }
            let changes = member.consumer.context().state().changes;
            if paused_at != Some(changes) {
                paused_at = Some(changes);
                member.hold();
            }
            if asked.is_none_or(|at| at.elapsed() >= LAG_EVERY) {
                asked = Some(Instant::now());
                if let Some(lag) = member.lag() {
                    self.factory.counters.set_lag(lag);
                }
            }
            // A record that was fetched earlier: its partition seeks again after the pause.
            if let Some(Err(error)) = member.consumer.poll(POLL_MAX)
                && let PollOutcome::Fatal(reason) = member.judge(&error, &self.factory)
            {
                tracing::error!(reason, "consumer ended; creating another after the pause");
                return self.settlements.wait();
            }
        };
        member.set_paused(false);
        if let Ok(assignment) = member.consumer.assignment() {
            let _ = member.consumer.resume(&assignment);
        }
        self.member = Some(member);
        next
    }
}

impl GroupMember {
    /// After the pause every partition seeks to the position in the database.
    fn set_paused(&mut self, paused: bool) {
        let mut state = self.consumer.context().state();
        state.paused = paused;
        state.owned.iter_mut().for_each(|owned| owned.reseek_at = Some(Instant::now()));
    }

    /// Stops fetching from the assigned partitions.
    fn hold(&self) {
        let held = self.consumer.assignment().and_then(|all| self.consumer.pause(&all));
        if let Err(error) = held {
            tracing::debug!(%error, "cannot pause partitions; fetched records are not stored");
        }
    }

    /// Returns the number of records that wait in the assigned partitions; `None` if the broker
    /// does not answer.
    fn lag(&self) -> Option<u64> {
        let owned: Vec<_> = {
            let state = self.consumer.context().state();
            state.owned.iter().map(|owned| (owned.partition.clone(), owned.stored)).collect()
        };
        let behind = owned.iter().map(|(partition, stored)| {
            let (topic, number) = (&partition.topic, partition.number);
            let (_, end) = self.consumer.fetch_watermarks(topic, number, END_MAX).ok()?;
            Some(u64::try_from(end.saturating_sub(*stored)).unwrap_or(0))
        });
        behind.sum()
    }
}
