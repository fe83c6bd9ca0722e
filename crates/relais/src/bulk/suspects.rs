//! Chooses which waiting rows share a job after workers were lost.
//!
//! Invariant: a row is sent in a job of at most [`job_rows_max`] rows, with rows of as many losses. Suspects
//! and other rows take turns, so neither waits for all of the others.

use std::collections::HashMap;

use relais_core::{lane::OwnedLane, quarantine::job_rows_max, store::StoreError};

use super::{BulkRelay, RowReader};

impl BulkRelay {
    /// Frees held rows of lanes that were taken over from a lost worker.
    pub(super) async fn free_held_rows(&mut self) -> Result<(), StoreError> {
        let is_jobs = matches!(self.rows, RowReader::Jobs(_));
        let reader = self.reader();
        let lanes = reader.keeper().usable();
        reader.free_held_rows(&lanes).await?;
        if is_jobs {
            // No row of a lane is in flight outside a job.
            reader.end_quarantine();
        }
        Ok(())
    }
}

/// Turns of suspects and other rows.
#[derive(Debug, Default)]
pub(crate) struct SuspectTurns {
    suspects_were_last: bool,
}

impl SuspectTurns {
    /// Returns the rows of the next job, of those that wait. `lost_workers` has the losses of each id.
    pub(crate) fn choose(
        &mut self,
        waiting: Vec<(i64, OwnedLane)>,
        lost_workers: impl Iterator<Item = (i64, u32)>,
        max: usize,
    ) -> Vec<(i64, OwnedLane)> {
        let lost: HashMap<i64, u32> = lost_workers.filter(|(_, losses)| *losses > 0).collect();
        let losses = |id: i64| lost.get(&id).copied().unwrap_or(0);
        let (suspects, others): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|(id, _)| job_rows_max(losses(*id), max) < max);
        let Some((first, _)) = suspects.first().copied() else { return others };
        self.suspects_were_last = others.is_empty() || !self.suspects_were_last;
        if !self.suspects_were_last {
            return others;
        }
        let same = suspects.into_iter().filter(|(id, _)| losses(*id) == losses(first));
        same.take(job_rows_max(losses(first), max)).collect()
    }
}

#[cfg(test)]
mod tests {
    use relais_core::quarantine::{CLEARED, HOLD_AFTER, Treatment, treatment_in_job};

    use super::*;

    const LANE: OwnedLane = OwnedLane { lane: 0, epoch: 1, unclean: false };

    #[derive(Clone)]
    struct ScriptRow {
        id: i64,
        lost_workers: u32,
    }

    /// A destination with rows of which some kill the worker that prepares their job.
    struct Script {
        rows: Vec<ScriptRow>,
        turns: SuspectTurns,
        held: Vec<i64>,
        dead: Vec<i64>,
        losses: u32,
    }

    impl Script {
        fn new(count: i64) -> Self {
            Self {
                rows: (1..=count).map(|id| ScriptRow { id, lost_workers: 0 }).collect(),
                turns: SuspectTurns::default(),
                held: Vec::new(),
                dead: Vec::new(),
                losses: 0,
            }
        }

        /// Returns the next job, as the planner chooses it. If no row is due, the hold is over.
        fn next(&mut self, max: usize) -> Vec<i64> {
            if self.rows.iter().all(|row| self.held.contains(&row.id)) {
                self.held.clear();
            }
            let due = self.rows.iter().filter(|row| !self.held.contains(&row.id));
            let rows: Vec<ScriptRow> = due.take(max).cloned().collect();
            let waiting = rows.iter().map(|row| (row.id, LANE)).collect();
            let losses = rows.iter().map(|row| (row.id, row.lost_workers));
            let chosen = self.turns.choose(waiting, losses, max);
            chosen.into_iter().map(|(id, _)| id).collect()
        }

        fn lose(&mut self, job: &[i64]) {
            self.losses += 1;
            for row in self.rows.iter_mut().filter(|row| job.contains(&row.id)) {
                match treatment_in_job(row.lost_workers) {
                    Treatment::Bury => self.dead.push(row.id),
                    Treatment::Hold => {
                        row.lost_workers = HOLD_AFTER;
                        self.held.push(row.id);
                    }
                    _ => row.lost_workers += 1,
                }
            }
            self.rows.retain(|row| !self.dead.contains(&row.id));
        }

        /// Runs jobs to their end; `kills` selects those that lose their worker.
        fn run(&mut self, max: usize, mut kills: impl FnMut(&[i64], u32) -> bool) {
            for _ in 0..10_000 {
                let job = self.next(max);
                if job.is_empty() {
                    return;
                }
                if kills(&job, self.losses) {
                    self.lose(&job);
                } else {
                    self.rows.retain(|row| !job.contains(&row.id));
                }
            }
            panic!("{} rows are left", self.rows.len());
        }
    }

    #[test]
    fn a_row_that_kills_its_worker_is_the_only_dead_letter_after_four_losses() {
        for max in [1, 2, 7, 100, 1_000] {
            for killer in [1, 40, 150] {
                let mut script = Script::new(150);
                script.run(max, |job, _| job.contains(&killer));
                assert_eq!((script.dead, script.losses), (vec![killer], 4), "{max}");
            }
        }
    }

    #[test]
    fn several_rows_that_kill_their_workers_make_no_dead_letter_of_a_neighbour() {
        let killers = [3, 4, 77, 149];
        let mut script = Script::new(150);
        script.run(100, |job, _| job.iter().any(|id| killers.contains(id)));
        script.dead.sort_unstable();
        assert_eq!(script.dead, killers);
        assert!(script.losses <= 16, "{}", script.losses);
    }

    #[test]
    fn losses_that_end_leave_no_dead_letter() {
        // A process that is killed with each of its first three jobs, whatever is in them.
        let mut script = Script::new(150);
        script.run(100, |_, losses| losses < 3);
        assert_eq!((script.dead.len(), script.losses), (0, 3));
    }

    #[test]
    fn another_loss_frees_the_held_rows() {
        let mut script = Script::new(10);
        for _ in 0..3 {
            let job = script.next(100);
            script.lose(&job);
        }
        assert_eq!(script.held.len(), 10);
        // As the store does when lanes are taken over from a lost worker.
        script.held.clear();
        script.rows.iter_mut().for_each(|row| row.lost_workers = CLEARED);
        assert_eq!(script.next(100).len(), 10, "they are sent together again");
    }

    /// Checks the script itself: a rule that holds suspects in larger jobs would blame neighbours.
    #[test]
    fn a_job_of_several_held_rows_would_bury_neighbours() {
        let mut script = Script::new(10);
        for _ in 0..4 {
            let job: Vec<i64> = script.rows.iter().map(|row| row.id).collect();
            script.lose(&job);
        }
        assert_eq!(script.dead.len(), 10);
    }

    #[test]
    fn suspects_and_other_rows_take_turns() {
        let mut script = Script::new(20);
        script.rows.iter_mut().take(5).for_each(|row| row.lost_workers = HOLD_AFTER);
        let sizes: Vec<usize> = (0..4).map(|_| script.next(100).len()).collect();
        assert_eq!(sizes, [1, 15, 1, 15]);
    }
}
