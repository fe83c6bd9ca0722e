//! The quarantine of rows that may have killed their worker: the engine's part of it.
//!
//! The rule is the pure function [`treatment`] in `relais-core`. When a worker is lost, the next owner gets
//! its lanes as unclean. The first rows of an unclean lane may have been in flight, so they are suspects:
//!
//! 1. The lane reader reads fewer rows at once and asks [`LaneQuarantine::treatment`] about each of them.
//! 2. The loss is noted in the store on each suspect before it is sent ([`RowInFlight::is_noted`]).
//! 3. The key queues send a row alone if the rule requires it, at most one such row at a time.
//! 4. A row that is not sent is settled at once: [`inbox_fate`], [`outbox_fate`].
//!
//! A bulk job names its rows, so the worker that takes it over from a lost one counts the loss on exactly
//! those: [`job_fate`]. `bulk/suspects.rs` chooses which of them share the next job.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use relais_core::{
    inbox::{InboxFate, InboxRow},
    lane::OwnedLane,
    outbox::{OnDeadLetter, OutboxFate, OutboxRow},
    quarantine::{
        HOLD_AFTER, HOLD_FOR, ReadContext, Treatment, held, job_lost, lost, treatment,
        treatment_in_job,
    },
};

use crate::key_queues::{QueueRow, RowInFlight};

/// Maximum number of rows that a worker holds while it reads unclean lanes: the next loss is noted on at
/// most this many.
pub(crate) const HELD_ROWS_MAX: usize = 64;

/// The unclean lanes of one worker, from their first read until every possible suspect was read.
#[derive(Debug, Default)]
pub(crate) struct LaneQuarantine {
    lanes: BTreeSet<i16>,
    /// Rows that may still be read as suspects.
    rows_left: usize,
    /// Rows on which this worker has noted the loss already.
    noted: HashSet<i64>,
    /// Suspects that were not sent, because the lease ran out or their loss could not be noted. If the
    /// worker keeps its lanes after all, it reads them again.
    dropped: HashMap<i64, OwnedLane>,
    /// A read began after the last one was dropped.
    reads_dropped: bool,
}

impl LaneQuarantine {
    pub(crate) fn is_active(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// Returns whether a row of the lane may still be read as a suspect.
    pub(crate) fn contains(&self, lane: i16) -> bool {
        self.lanes.contains(&lane) || self.dropped.values().any(|dropped| dropped.lane == lane)
    }

    /// Adds lanes of a lost worker; the next `rows` rows that are read from them are suspects.
    pub(crate) fn begin(&mut self, lanes: BTreeSet<i16>, rows: usize) {
        self.dropped.retain(|_, dropped| !lanes.contains(&dropped.lane));
        self.lanes.extend(lanes);
        self.rows_left = rows;
        self.noted.clear();
    }

    /// Remembers suspects that were dropped before they were sent.
    pub(crate) fn remember_dropped(&mut self, suspects: impl Iterator<Item = (i64, OwnedLane)>) {
        self.dropped.extend(suspects);
        self.reads_dropped = false;
    }

    /// A read begins, which returns dropped suspects too.
    pub(crate) fn begin_read(&mut self) {
        self.reads_dropped = true;
    }

    /// Removes a lane that another worker gets; returns whether it was quarantined.
    pub(crate) fn remove(&mut self, lane: i16) -> bool {
        let contained = self.contains(lane);
        self.lanes.remove(&lane);
        self.dropped.retain(|_, dropped| dropped.lane != lane);
        contained
    }

    /// Decides how a row of this lane is treated.
    pub(crate) fn treatment(&mut self, lane: OwnedLane, row: &impl QueueRow) -> Treatment {
        let dropped = self.dropped.remove(&row.id());
        let is_suspect = dropped.is_some_and(|before| before.epoch == lane.epoch)
            || self.lanes.contains(&lane.lane) && !self.noted.contains(&row.id());
        let read = if is_suspect { ReadContext::AfterLoss } else { ReadContext::Usual };
        treatment(row.lost_workers(), read)
    }

    /// Remembers rows on which this worker noted the loss: once is enough.
    pub(crate) fn remember_noted(&mut self, ids: Vec<i64>) {
        if self.is_active() {
            self.noted.extend(ids);
        }
    }

    /// Counts rows that were read. Ends the quarantine after the last row of the lanes, or after the
    /// maximum; `more` is whether the read was cut by its limit.
    pub(crate) fn count_read(&mut self, rows: usize, more: bool) {
        self.rows_left = self.rows_left.saturating_sub(rows);
        if !more && self.reads_dropped {
            // Some were settled otherwise.
            self.dropped.clear();
        }
        if !more || self.rows_left == 0 {
            self.end();
        }
    }

    /// Ends the quarantine of all lanes.
    pub(crate) fn end(&mut self) {
        self.lanes.clear();
        self.noted.clear();
    }
}

impl<R> RowInFlight<R> {
    /// Returns whether the row was read as one that may have been in flight when its worker was lost. A row
    /// that is sent alone is noted either way.
    pub(crate) fn is_suspect(&self) -> bool {
        matches!(self.treatment, Treatment::NoteAndSend | Treatment::Hold | Treatment::Bury)
    }

    /// Returns whether a loss is noted in the store before the row is sent.
    pub(crate) fn is_noted(&self) -> bool {
        matches!(self.treatment, Treatment::NoteAndSend | Treatment::SendAlone)
    }

    /// Returns whether the row may share a call with others.
    pub(crate) fn may_share_call(&self) -> bool {
        matches!(self.treatment, Treatment::Send | Treatment::NoteAndSend)
    }
}

/// Returns the fate of an inbox row that is not handled now; `None` if it is handled.
pub(crate) fn inbox_fate(treatment: Treatment, row: &InboxRow) -> Option<InboxFate> {
    match treatment {
        Treatment::Hold => {
            Some(InboxFate::Wait { pause: HOLD_FOR, problem: held(), lost_workers: HOLD_AFTER })
        }
        Treatment::Bury => {
            Some(InboxFate::Dead { attempts: row.attempts, problem: lost(), park: true })
        }
        Treatment::Send | Treatment::NoteAndSend | Treatment::SendAlone => None,
    }
}

/// Returns the fate of an outbox row that is not sent now; `None` if it is sent.
pub(crate) fn outbox_fate(
    treatment: Treatment,
    row: &OutboxRow,
    on_dead_letter: OnDeadLetter,
) -> Option<OutboxFate> {
    match treatment {
        Treatment::Hold => {
            Some(OutboxFate::Wait { pause: HOLD_FOR, problem: held(), lost_workers: HOLD_AFTER })
        }
        Treatment::Bury => {
            let park = on_dead_letter.parks();
            Some(OutboxFate::Dead { attempts: row.attempts, problem: lost(), park })
        }
        Treatment::Send | Treatment::NoteAndSend | Treatment::SendAlone => None,
    }
}

/// Returns the fate of a row whose bulk job lost its worker. The hold is longer by two leases, because the
/// lanes of that worker may be taken over later than its job, which is no other loss.
pub(crate) fn job_fate(
    row: &OutboxRow,
    on_dead_letter: OnDeadLetter,
    lease: Duration,
) -> OutboxFate {
    match treatment_in_job(row.lost_workers) {
        Treatment::Bury => OutboxFate::Dead {
            attempts: row.attempts,
            problem: lost(),
            park: on_dead_letter.parks(),
        },
        Treatment::Hold => OutboxFate::Wait {
            pause: HOLD_FOR + lease.saturating_mul(2),
            problem: held(),
            lost_workers: HOLD_AFTER,
        },
        Treatment::Send | Treatment::NoteAndSend | Treatment::SendAlone => OutboxFate::Wait {
            pause: Duration::ZERO,
            problem: job_lost(),
            lost_workers: row.lost_workers + 1,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct LostRow(i64, u32);

    impl QueueRow for LostRow {
        fn id(&self) -> i64 {
            self.0
        }
        fn lane(&self) -> i16 {
            1
        }
        fn key(&self) -> &str {
            "k"
        }
        fn lost_workers(&self) -> u32 {
            self.1
        }
        fn bytes(&self) -> usize {
            1
        }
    }

    fn lane(lane: i16) -> OwnedLane {
        OwnedLane { lane, epoch: 5, unclean: false }
    }

    fn quarantined() -> LaneQuarantine {
        let mut quarantine = LaneQuarantine::default();
        quarantine.begin(BTreeSet::from([1]), 10);
        quarantine
    }

    #[test]
    fn a_row_of_an_unclean_lane_is_a_suspect_until_its_loss_is_noted() {
        let mut quarantine = quarantined();
        assert_eq!(quarantine.treatment(lane(1), &LostRow(7, 0)), Treatment::NoteAndSend);
        assert_eq!(quarantine.treatment(lane(2), &LostRow(7, 0)), Treatment::Send, "another lane");
        quarantine.remember_noted(vec![7]);
        assert_eq!(quarantine.treatment(lane(1), &LostRow(7, 1)), Treatment::Send);
        assert_eq!(quarantine.treatment(lane(1), &LostRow(8, HOLD_AFTER - 1)), Treatment::Hold);
    }

    #[test]
    fn a_quarantine_ends_with_the_last_row_of_its_lanes_or_after_the_maximum() {
        let mut quarantine = quarantined();
        quarantine.count_read(9, true);
        assert!(quarantine.is_active());
        quarantine.count_read(1, true);
        assert!(!quarantine.is_active(), "the maximum was read");
        let mut quarantine = quarantined();
        quarantine.count_read(3, false);
        assert!(!quarantine.contains(1), "the last row was read");
    }

    #[test]
    fn a_lane_that_another_worker_gets_is_no_longer_quarantined() {
        let mut quarantine = quarantined();
        assert!(quarantine.remove(1) && !quarantine.remove(1));
        assert_eq!(quarantine.treatment(lane(1), &LostRow(7, 0)), Treatment::Send);
    }

    #[test]
    fn a_suspect_that_was_dropped_is_one_again_unless_its_lane_was_lost() {
        let mut quarantine = LaneQuarantine::default();
        quarantine.remember_dropped([(7, lane(1)), (8, lane(1))].into_iter());
        assert_eq!(quarantine.treatment(lane(1), &LostRow(7, 0)), Treatment::NoteAndSend);
        assert_eq!(quarantine.treatment(lane(1), &LostRow(7, 1)), Treatment::Send, "only once");
        let later = OwnedLane { lane: 1, epoch: 6, unclean: false };
        assert_eq!(quarantine.treatment(later, &LostRow(8, 0)), Treatment::Send);
    }

    #[test]
    fn a_lane_is_not_clean_until_its_dropped_suspects_were_read() {
        let mut quarantine = LaneQuarantine::default();
        quarantine.begin_read();
        quarantine.remember_dropped([(7, lane(1))].into_iter());
        quarantine.count_read(0, false);
        assert!(quarantine.contains(1), "that read began before");
        quarantine.begin_read();
        quarantine.count_read(0, false);
        assert!(!quarantine.contains(1), "it was settled otherwise");
    }
}
