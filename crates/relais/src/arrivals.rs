//! Which outbox ids have not been seen yet: ids are drawn in order, but become visible in any order.
//!
//! Invariant: an id that was drawn after the first answer and becomes visible within [`GAP_MAX`] is reported
//! once, or all destinations are. Later ones are found by the search for due rows.

use std::time::{Duration, Instant};

use relais_core::store::{IdRange, OutboxArrival};

/// Rows that are read of each range; with more, all destinations are woken.
pub(crate) const ARRIVALS_MAX: usize = 256;
/// Ranges of ids that are not visible yet.
const GAPS_MAX: usize = 64;
/// A transaction is expected to commit its rows within this time.
const GAP_MAX: Duration = Duration::from_secs(1);

/// Ids that were drawn and are not visible yet.
#[derive(Debug, Default)]
pub(crate) struct UnseenIds {
    /// The highest id that was asked for; `None` before the first answer.
    highest: Option<i64>,
    gaps: Vec<Gap>,
}

#[derive(Clone, Copy, Debug)]
struct Gap {
    range: IdRange,
    since: Instant,
}

/// Destinations to wake.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WokenDestinations {
    All,
    Named(Vec<String>),
}

impl UnseenIds {
    /// Returns the ranges to read, given the highest id drawn; `None` for all destinations, because there
    /// are too many ids or nothing is known yet.
    pub(crate) fn ranges(&mut self, drawn: i64, now: Instant) -> Option<Vec<IdRange>> {
        self.gaps.retain(|gap| now.duration_since(gap.since) < GAP_MAX);
        let highest = self.highest.replace(drawn)?;
        // Ids that start again belong to another database.
        if drawn < highest || self.gaps.len() >= GAPS_MAX {
            self.gaps.clear();
            return None;
        }
        if drawn > highest {
            let range = IdRange { first: highest + 1, last: drawn };
            self.gaps.push(Gap { range, since: now });
        }
        Some(self.gaps.iter().map(|gap| gap.range).collect())
    }

    /// Takes the rows of all ranges, and returns the destinations to wake.
    pub(crate) fn learn(&mut self, arrivals: Vec<OutboxArrival>) -> WokenDestinations {
        let mut gaps = Vec::new();
        let mut is_cut = false;
        for Gap { range, since } in std::mem::take(&mut self.gaps) {
            let mut ids: Vec<i64> = arrivals.iter().map(|arrival| arrival.id).collect();
            ids.retain(|id| (range.first..=range.last).contains(id));
            is_cut |= ids.len() >= ARRIVALS_MAX;
            let mut first = range.first;
            ids.sort_unstable();
            for end in ids.into_iter().chain([range.last + 1]) {
                if first < end {
                    gaps.push(Gap { range: IdRange { first, last: end - 1 }, since });
                }
                first = end + 1;
            }
        }
        self.gaps = gaps;
        if is_cut || self.gaps.len() > GAPS_MAX {
            self.gaps.clear();
            return WokenDestinations::All;
        }
        let mut names: Vec<String> = arrivals.into_iter().filter_map(|a| a.destination).collect();
        names.sort_unstable();
        names.dedup();
        WokenDestinations::Named(names)
    }

    /// Returns whether drawn ids are not visible yet.
    pub(crate) fn has_gaps(&self) -> bool {
        !self.gaps.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: i64, destination: &str) -> OutboxArrival {
        OutboxArrival { id, destination: Some(destination.to_owned()) }
    }

    fn named(names: &[&str]) -> WokenDestinations {
        WokenDestinations::Named(names.iter().map(|&name| name.to_owned()).collect())
    }

    fn ranges(unseen: &mut UnseenIds, drawn: i64, now: Instant) -> Option<Vec<(i64, i64)>> {
        let ranges = unseen.ranges(drawn, now)?;
        Some(ranges.iter().map(|range| (range.first, range.last)).collect())
    }

    #[test]
    fn an_id_that_becomes_visible_after_a_higher_one_is_still_found() {
        let (mut unseen, now) = (UnseenIds::default(), Instant::now());
        assert_eq!(ranges(&mut unseen, 10, now), None, "nothing is known before the first answer");
        assert_eq!(ranges(&mut unseen, 14, now), Some(vec![(11, 14)]));
        assert_eq!(unseen.learn(vec![row(14, "b"), row(12, "a")]), named(&["a", "b"]));
        assert_eq!(ranges(&mut unseen, 14, now), Some(vec![(11, 11), (13, 13)]));
        let settled = OutboxArrival { id: 11, destination: None };
        assert_eq!(unseen.learn(vec![settled, row(13, "c")]), named(&["c"]));
        assert!(!unseen.has_gaps());
        assert_eq!(ranges(&mut unseen, 14, now), Some(vec![]));
    }

    #[test]
    fn ids_that_never_become_visible_are_dropped_after_a_while() {
        let (mut unseen, now) = (UnseenIds::default(), Instant::now());
        unseen.ranges(0, now);
        assert_eq!(ranges(&mut unseen, 3, now), Some(vec![(1, 3)]));
        unseen.learn(vec![row(2, "a")]);
        assert!(unseen.has_gaps());
        assert_eq!(ranges(&mut unseen, 3, now + GAP_MAX), Some(vec![]));
    }

    #[test]
    fn too_many_rows_or_gaps_wake_all_destinations() {
        let (mut unseen, now) = (UnseenIds::default(), Instant::now());
        unseen.ranges(0, now);
        unseen.ranges(1_000, now);
        let many = (1..=ARRIVALS_MAX as i64).map(|id| row(id, "a")).collect();
        assert_eq!(unseen.learn(many), WokenDestinations::All);
        assert!(!unseen.has_gaps());
        unseen.ranges(1_200, now);
        let scattered = (0..=GAPS_MAX as i64).map(|n| row(1_002 + 2 * n, "a")).collect();
        assert_eq!(unseen.learn(scattered), WokenDestinations::All);
        assert_eq!(ranges(&mut unseen, 5, now), None, "another database");
    }
}
