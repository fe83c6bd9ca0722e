//! The size of the next job after jobs that failed as a whole: halved until the row that fails them is
//! alone.
//!
//! Invariant: a row is blamed only for a job of its own, and only if another job succeeded since the
//! halving began or no other row is left to try. The state is in memory and bounded.

use std::sync::{Mutex, MutexGuard};

use relais_core::lane::OwnedLane;

use crate::lock::lock;

/// After this many rows in succession that fail alone, the target is blamed and rests.
const FAILED_ALONE_MAX: usize = 5;
/// Maximum number of remembered rows that failed a job of their own.
const REMEMBERED_MAX: usize = 1_000;

/// The blame for a job that failed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    /// Not known yet: its rows are sent again in smaller jobs.
    Unknown,
    /// Its only row.
    Row,
    /// The target: no row succeeds.
    Target,
}

#[derive(Debug, Default)]
pub(crate) struct JobHalving(Mutex<HalvingState>);

#[derive(Debug, Default)]
struct HalvingState {
    /// Maximum rows of the next job; `None`: the maximum of the target.
    limit: Option<usize>,
    /// Another job succeeded since the halving began.
    works: bool,
    /// Rows that failed alone while that was not known: others are tried before them.
    suspects: Vec<i64>,
    /// The number of them since the last rest of the target.
    failed_alone: usize,
    /// Rows that were to blame: they are sent alone, in turns with the others.
    blamed: Vec<i64>,
    blamed_went_last: bool,
}

impl JobHalving {
    /// Returns how many waiting rows to read for the next job.
    pub(crate) fn rows(&self, max: usize) -> usize {
        let state = self.state();
        let extra = state.suspects.len() + state.blamed.len();
        state.limit.map_or(max, |limit| limit.min(max)).saturating_add(extra)
    }

    /// Returns the rows of the next job, from those that wait.
    pub(crate) fn choose(
        &self,
        mut waiting: Vec<(i64, OwnedLane)>,
        max: usize,
    ) -> Vec<(i64, OwnedLane)> {
        let mut state = self.state();
        let blamed = waiting.iter().find(|(id, _)| state.blamed.contains(id)).copied();
        waiting.retain(|(id, _)| !state.blamed.contains(id));
        if let Some(row) = blamed.filter(|_| !state.blamed_went_last || waiting.is_empty()) {
            state.blamed_went_last = true;
            return vec![row];
        }
        state.blamed_went_last = false;
        let is_suspect = |(id, _): &&(i64, OwnedLane)| state.suspects.contains(id);
        if let Some(row) = waiting.iter().find(is_suspect).copied() {
            waiting.retain(|row| !is_suspect(&row));
            if waiting.is_empty() {
                // No other row is left to show whether the target works.
                state.works = true;
                state.suspects.clear();
                return vec![row];
            }
        }
        waiting.truncate(state.limit.map_or(max, |limit| limit.min(max)));
        waiting
    }

    /// Records a job that succeeded for some of its rows.
    pub(crate) fn succeeded(&self, max: usize) {
        let mut state = self.state();
        let Some(limit) = state.limit else { return };
        state.works = true;
        state.suspects.clear();
        state.failed_alone = 0;
        state.limit = Some(limit * 2).filter(|limit| *limit < max);
    }

    /// Records a job with these rows that failed as a whole; returns the blame.
    pub(crate) fn failed(&self, rows: &[i64]) -> Blame {
        let mut state = self.state();
        if state.limit.is_none() {
            state.works = false;
        }
        state.limit = Some((rows.len() / 2).max(1));
        let [row] = rows else { return Blame::Unknown };
        if state.works || state.blamed.contains(row) {
            if !state.blamed.contains(row) {
                state.blamed.truncate(REMEMBERED_MAX - 1);
                state.blamed.insert(0, *row);
            }
            return Blame::Row;
        }
        if state.suspects.len() >= REMEMBERED_MAX {
            state.suspects.clear();
        }
        state.suspects.push(*row);
        state.failed_alone += 1;
        if state.failed_alone < FAILED_ALONE_MAX {
            return Blame::Unknown;
        }
        state.failed_alone = 0;
        Blame::Target
    }

    fn state(&self) -> MutexGuard<'_, HalvingState> {
        lock(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(ids: impl IntoIterator<Item = i64>) -> Vec<(i64, OwnedLane)> {
        let lane = OwnedLane { lane: 0, epoch: 1, unclean: false };
        ids.into_iter().map(|id| (id, lane)).collect()
    }

    /// Runs jobs until every row is settled or the target has rested `RESTS_MAX` times. Returns the blamed
    /// rows, the number of jobs and the number of rests.
    fn run(halving: &JobHalving, count: i64, is_bad: &dyn Fn(i64) -> bool) -> (Vec<i64>, u32, u32) {
        const RESTS_MAX: u32 = 3;
        let mut rows: Vec<i64> = (1..=count).collect();
        let (mut blamed, mut jobs, mut rests) = (Vec::new(), 0, 0);
        while !rows.is_empty() && rests < RESTS_MAX {
            jobs += 1;
            assert!(jobs < 1_000, "it does not end");
            let read = rows.iter().copied().take(halving.rows(200));
            let ids: Vec<i64> =
                halving.choose(waiting(read), 200).into_iter().map(|(id, _)| id).collect();
            assert!(!ids.is_empty() && ids.len() <= 200);
            if ids.iter().any(|id| is_bad(*id)) {
                match halving.failed(&ids) {
                    Blame::Row => blamed.extend(&ids),
                    Blame::Unknown => continue,
                    Blame::Target => {
                        rests += 1;
                        continue;
                    }
                }
            } else {
                halving.succeeded(200);
            }
            rows.retain(|row| !ids.contains(row));
        }
        (blamed, jobs, rests)
    }

    #[test]
    fn the_rows_that_fail_their_job_are_found_at_any_place() {
        for bad in [vec![1], vec![77], vec![200], vec![3, 150], vec![1, 2, 3, 4, 5, 6, 7]] {
            let halving = JobHalving::default();
            let (mut blamed, jobs, rests) = run(&halving, 200, &|id| bad.contains(&id));
            blamed.sort_unstable();
            assert_eq!(blamed, bad);
            assert!(jobs < 80, "{jobs}");
            assert_eq!(rests, u32::from(bad.len() > 5), "many in front take a rest");
        }
    }

    #[test]
    fn a_blamed_row_is_sent_alone_and_in_turns() {
        let halving = JobHalving::default();
        run(&halving, 200, &|id| id == 7);
        while halving.rows(200) < 201 {
            halving.succeeded(200);
        }
        let sizes = [0; 3].map(|_| halving.choose(waiting(1..=201), 200).len());
        assert_eq!(sizes, [1, 200, 1]);
        assert_eq!(halving.choose(waiting([7]), 200).len(), 1);
        assert_eq!(halving.choose(waiting([]), 200).len(), 0);
    }

    #[test]
    fn a_target_that_fails_every_job_blames_no_row() {
        let halving = JobHalving::default();
        let (blamed, jobs, rests) = run(&halving, 200, &|_| true);
        assert_eq!((blamed.len(), rests), (0, 3));
        assert!(jobs < 30, "{jobs}");
        // It gets one row at a time, another each time, until one succeeds.
        assert_eq!(halving.choose(waiting(1..=200), 200).len(), 1);
    }

    #[test]
    fn few_rows_without_others_are_blamed_for_their_own_jobs() {
        for count in 1..=4 {
            let (blamed, _, _) = run(&JobHalving::default(), count, &|_| true);
            assert_eq!(blamed.len(), usize::try_from(count).unwrap());
        }
    }
}
