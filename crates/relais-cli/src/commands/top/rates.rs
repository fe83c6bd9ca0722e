//! How fast things move: the differences of two looks, by the database's time. Pure.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use super::look::Look;

/// Looks that a curve shows.
pub(super) const KEPT_MAX: usize = 60;

/// Rows a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Rates {
    pub(super) received: f64,
    pub(super) processed: f64,
    pub(super) dispatched: f64,
    /// By destination; only those a running relais counts.
    pub(super) destinations: BTreeMap<String, f64>,
}

/// The last rates, oldest first.
#[derive(Debug, Default)]
pub(super) struct History {
    last: Option<Look>,
    kept: VecDeque<Rates>,
}

impl History {
    /// Takes a look in. The first has nothing to be compared with, and one that is no newer says nothing.
    pub(super) fn add(&mut self, look: &Look) {
        if let Some(last) = &self.last {
            let micros = look.now.0.saturating_sub(last.now.0);
            if micros <= 0 {
                return;
            }
            let seconds = micros as f64 / 1e6;
            if self.kept.len() == KEPT_MAX {
                self.kept.pop_front();
            }
            self.kept.push_back(rates(last, look, seconds));
        }
        self.last = Some(look.clone());
    }

    pub(super) fn now(&self) -> Option<&Rates> {
        self.kept.back()
    }

    /// One value of each kept look.
    pub(super) fn curve(&self, value: impl Fn(&Rates) -> f64) -> Vec<f64> {
        self.kept.iter().map(value).collect()
    }
}

fn rates(last: &Look, look: &Look, seconds: f64) -> Rates {
    let all = |look: &Look| look.inbox.iter().map(|count| count.rows).sum::<u64>();
    let rate = |before: u64, after: u64| {
        // Fewer than before: clean-up was there, or the counting process is another one.
        after.saturating_sub(before) as f64 / seconds
    };
    let processed = |look: &Look| Look::rows(&look.inbox, &["PROCESSED"]);
    let dispatched = |look: &Look| Look::rows(&look.outbox, &["DISPATCHED"]);
    let each = look.destinations.iter().filter_map(|(name, guards)| {
        let before = last.destinations.get(name)?.dispatched?;
        Some((name.clone(), rate(before, guards.dispatched?)))
    });
    Rates {
        received: rate(all(last), all(look)),
        processed: rate(processed(last), processed(look)),
        dispatched: rate(dispatched(last), dispatched(look)),
        destinations: each.collect(),
    }
}

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The newest `width` values as a line of bars; the highest is the largest there is.
pub(super) fn sparkline(values: &[f64], width: usize) -> String {
    let shown = &values[values.len().saturating_sub(width)..];
    let most = shown.iter().copied().fold(0.0, f64::max);
    let bar = |value: f64| {
        if most <= 0.0 || value <= 0.0 {
            return BARS[0];
        }
        // From 1 to 7: what moves at all is told from what stands.
        BARS[((value / most * 7.0).ceil() as usize).clamp(1, 7)]
    };
    let empty = width - shown.len();
    " ".repeat(empty).chars().chain(shown.iter().map(|value| bar(*value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::top::tests::look;

    #[test]
    fn rates_are_differences_by_the_databases_time() {
        let mut history = History::default();
        history.add(&look(0, 100, 50));
        assert_eq!(history.now(), None);
        history.add(&look(2, 300, 250));
        let rates = history.now().unwrap();
        assert_eq!((rates.received, rates.dispatched), (100.0, 100.0));
        assert_eq!(rates.destinations["orders"], 100.0);
        history.add(&look(2, 999, 999));
        assert_eq!(history.now().unwrap().received, 100.0, "no newer look");
        history.add(&look(3, 10, 5));
        assert_eq!(history.now().unwrap().received, 0.0, "clean-up is no traffic");
    }

    #[test]
    fn a_curve_is_as_wide_as_asked_and_shows_the_newest() {
        assert_eq!(sparkline(&[0.0, 1.0, 7.0, 3.5], 4), "▁▂█▅");
        assert_eq!(sparkline(&[5.0], 3), "  █");
        assert_eq!(sparkline(&[9.0, 0.0], 1), "▁");
        assert_eq!(sparkline(&[], 2), "  ");
    }
}
