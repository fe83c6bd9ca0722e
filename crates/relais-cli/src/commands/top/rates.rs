//! TopRates: the differences between two readings, by the database's time. Pure.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use super::state::TopState;

/// Most readings of a curve.
pub(super) const KEPT_MAX: usize = 60;

/// Rows per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct TopRates {
    pub(super) received: f64,
    pub(super) processed: f64,
    pub(super) dispatched: f64,
    /// TopRates of the destinations that a running relais serves.
    pub(super) destinations: BTreeMap<String, f64>,
}

/// The last rates, oldest first.
#[derive(Debug, Default)]
pub(super) struct RateHistory {
    last: Option<TopState>,
    kept: VecDeque<TopRates>,
}

impl RateHistory {
    /// Adds a reading. The first one gives no rate, and one that is not newer is ignored.
    pub(super) fn add(&mut self, state: &TopState) {
        if let Some(last) = &self.last {
            let micros = state.now.0.saturating_sub(last.now.0);
            if micros <= 0 {
                return;
            }
            let seconds = micros as f64 / 1e6;
            if self.kept.len() == KEPT_MAX {
                self.kept.pop_front();
            }
            self.kept.push_back(rates(last, state, seconds));
        }
        self.last = Some(state.clone());
    }

    pub(super) fn now(&self) -> Option<&TopRates> {
        self.kept.back()
    }

    /// Returns one value of each kept reading.
    pub(super) fn curve(&self, value: impl Fn(&TopRates) -> f64) -> Vec<f64> {
        self.kept.iter().map(value).collect()
    }
}

fn rates(last: &TopState, state: &TopState, seconds: f64) -> TopRates {
    let all = |state: &TopState| state.inbox.iter().map(|count| count.rows).sum::<u64>();
    let rate = |before: u64, after: u64| {
        // Fewer rows than before: retention removed some, or another process counts.
        after.saturating_sub(before) as f64 / seconds
    };
    let processed = |state: &TopState| TopState::rows(&state.inbox, &["PROCESSED"]);
    let dispatched = |state: &TopState| TopState::rows(&state.outbox, &["DISPATCHED"]);
    let each = state.destinations.iter().filter_map(|(name, guards)| {
        let before = last.destinations.get(name)?.dispatched?;
        Some((name.clone(), rate(before, guards.dispatched?)))
    });
    TopRates {
        received: rate(all(last), all(state)),
        processed: rate(processed(last), processed(state)),
        dispatched: rate(dispatched(last), dispatched(state)),
        destinations: each.collect(),
    }
}

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Renders the newest `width` values as bars, scaled to the largest of them.
pub(super) fn sparkline(values: &[f64], width: usize) -> String {
    let shown = &values[values.len().saturating_sub(width)..];
    let most = shown.iter().copied().fold(0.0, f64::max);
    let bar = |value: f64| {
        if most <= 0.0 || value <= 0.0 {
            return BARS[0];
        }
        // From 1 to 7, so that any value above zero differs from zero.
        BARS[((value / most * 7.0).ceil() as usize).clamp(1, 7)]
    };
    let empty = width - shown.len();
    " ".repeat(empty).chars().chain(shown.iter().map(|value| bar(*value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::top::tests::state;

    #[test]
    fn rates_are_differences_by_the_databases_time() {
        let mut history = RateHistory::default();
        history.add(&state(0, 100, 50));
        assert_eq!(history.now(), None);
        history.add(&state(2, 300, 250));
        let rates = history.now().unwrap();
        assert_eq!((rates.received, rates.dispatched), (100.0, 100.0));
        assert_eq!(rates.destinations["orders"], 100.0);
        history.add(&state(2, 999, 999));
        assert_eq!(history.now().unwrap().received, 100.0, "not newer");
        history.add(&state(3, 10, 5));
        assert_eq!(history.now().unwrap().received, 0.0, "retention is no traffic");
    }

    #[test]
    fn a_curve_has_its_width_and_shows_the_newest_values() {
        assert_eq!(sparkline(&[0.0, 1.0, 7.0, 3.5], 4), "▁▂█▅");
        assert_eq!(sparkline(&[5.0], 3), "  █");
        assert_eq!(sparkline(&[9.0, 0.0], 1), "▁");
        assert_eq!(sparkline(&[], 2), "  ");
    }
}
