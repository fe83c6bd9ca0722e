//! The size of the next job after jobs that failed as a whole: halved until the row that fails them is
//! alone.
//!
//! Invariant: a row is blamed only for a job of its own, and only if another job did something since the
//! halving began or no other row is left to try. Memory of one process, bounded; it changes nothing that
//! is stored.

use std::sync::{Mutex, MutexGuard, PoisonError};

use relais_core::lane::OwnedLane;

/// After so many rows that fail alone, one after the other, the target is blamed and rests.
const FAILED_ALONE_MAX: usize = 5;
/// Rows that are remembered because they failed a job of their own.
const REMEMBERED_MAX: usize = 1_000;

/// Who is to blame for a job that failed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    /// Not known yet: its rows go again in smaller jobs.
    Unknown,
    /// Its only row.
    Row,
    /// The target: no row succeeds.
    Target,
}

#[derive(Debug, Default)]
pub(crate) struct Halving(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Most rows of the next job; `None`: as many as the target takes.
    limit: Option<usize>,
    /// Another job did something since the halving began.
    works: bool,
    /// Rows that failed alone while that was not known: others are tried before them.
    suspects: Vec<i64>,
    /// How many of them since the target rested last.
    failed_alone: usize,
    /// Rows that were to blame: they go alone, in turns with the others.
    blamed: Vec<i64>,
    blamed_went_last: bool,
}

impl Halving {
    /// How many waiting rows are worth reading for the next job.
    pub(crate) fn rows(&self, max: usize) -> usize {
        let state = self.state();
        let extra = state.suspects.len() + state.blamed.len();
        state.limit.map_or(max, |limit| limit.min(max)).saturating_add(extra)
    }

    /// The rows of the next job, of those that wait.
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

    /// Notes a job that did something for its rows.
    pub(crate) fn succeeded(&self, max: usize) {
        let mut state = self.state();
        let Some(limit) = state.limit else { return };
        state.works = true;
        state.suspects.clear();
        state.failed_alone = 0;
        state.limit = Some(limit * 2).filter(|limit| *limit < max);
    }

    /// Notes a job that failed as a whole, with these rows.
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(ids: impl IntoIterator<Item = i64>) -> Vec<(i64, OwnedLane)> {
        let lane = OwnedLane { lane: 0, epoch: 1, unclean: false };
        ids.into_iter().map(|id| (id, lane)).collect()
    }

    /// Runs jobs until every row is settled or the target has rested so often: the rows that were
    /// blamed, the number of jobs, how often the target rested.
    fn run(halving: &Halving, count: i64, is_bad: &dyn Fn(i64) -> bool) -> (Vec<i64>, u32, u32) {
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
    fn the_rows_that_fail_their_job_are_found_wherever_they_stand() {
        for bad in [vec![1], vec![77], vec![200], vec![3, 150], vec![1, 2, 3, 4, 5, 6, 7]] {
            let halving = Halving::default();
            let (mut blamed, jobs, rests) = run(&halving, 200, &|id| bad.contains(&id));
            blamed.sort_unstable();
            assert_eq!(blamed, bad);
            assert!(jobs < 80, "{jobs}");
            assert_eq!(rests, u32::from(bad.len() > 5), "many in front take a rest");
        }
    }

    #[test]
    fn a_row_that_was_blamed_goes_alone_and_in_turns() {
        let halving = Halving::default();
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
        let halving = Halving::default();
        let (blamed, jobs, rests) = run(&halving, 200, &|_| true);
        assert_eq!((blamed.len(), rests), (0, 3));
        assert!(jobs < 30, "{jobs}");
        // It is asked with one row at a time, another each time, until one succeeds.
        assert_eq!(halving.choose(waiting(1..=200), 200).len(), 1);
    }

    #[test]
    fn few_rows_without_others_are_blamed_for_their_own_jobs() {
        for count in 1..=4 {
            let (blamed, _, _) = run(&Halving::default(), count, &|_| true);
            assert_eq!(blamed.len(), usize::try_from(count).unwrap());
        }
    }
}
