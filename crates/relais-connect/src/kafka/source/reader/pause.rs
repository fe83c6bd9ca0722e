//! A pause of the source: the member stays in its group and reads nothing.
//!
//! Without polls the group would drop the member after `max.poll.interval.ms`, and its lag would not be known.

use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer;
use tokio::sync::mpsc::{Receiver, error::TryRecvError};

use super::{Command, Member, POLL_MAX, Polled, Reader};

/// How often the ends of the partitions are asked for: nothing that is read tells them now.
const LAG_EVERY: Duration = Duration::from_secs(5);
/// How long the broker may take to name the end of one partition.
const END_MAX: Duration = Duration::from_secs(1);

impl Reader {
    /// Polls without reading until there is another command, and returns that.
    pub(super) fn idle(&mut self, commands: &mut Receiver<Command>) -> Option<Command> {
        let Some(mut member) = self.member.take() else { return commands.blocking_recv() };
        member.set_paused(true);
        let mut paused_at = None;
        let mut asked = None::<Instant>;
        let next = loop {
            match commands.try_recv() {
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
                    self.blueprint.counters.set_lag(lag);
                }
            }
            // A record that was fetched before: its partition is placed again, and it comes again.
            if let Some(Err(error)) = member.consumer.poll(POLL_MAX)
                && let Polled::Fatal(reason) = member.judge(&error, &self.blueprint)
            {
                tracing::error!(reason, "the consumer has ended; making another after the pause");
                return commands.blocking_recv();
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

impl Member {
    /// Everything is placed again after the pause, by what the database knows.
    fn set_paused(&mut self, paused: bool) {
        let mut state = self.consumer.context().state();
        state.paused = paused;
        state.owned.iter_mut().for_each(|owned| owned.astray = Some(Instant::now()));
    }

    /// Has librdkafka fetch nothing from the partitions that are ours now.
    fn hold(&self) {
        let held = self.consumer.assignment().and_then(|all| self.consumer.pause(&all));
        if let Err(error) = held {
            tracing::debug!(%error, "partitions are fetched in spite of the pause; nothing is stored");
        }
    }

    /// Records that wait in our partitions; nothing if the broker does not answer.
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
