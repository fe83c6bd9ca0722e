//! The figures of a run: one line to read, JSON for the docs, and the minimums without which a run proves
//! nothing.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::check::Findings;

/// Least of each, over all stores together: an easy run is a failed run.
pub(crate) type Minimums = &'static [(&'static str, u64)];

/// Of a run that is shorter than any mode.
pub(crate) const SHORT: Minimums =
    &[("kills", 1), ("zombies", 1), ("messages", 1), ("copies", 1), ("fence refusals", 1)];
pub(crate) const CI: Minimums = &[
    ("kills", 500),
    ("zombies", 150),
    ("messages", 200_000),
    ("copies", 1),
    ("fence refusals", 1),
    ("rows cleaned up", 1),
    ("contacts", 800),
    ("bulk jobs failed half-way", 10),
    ("bookings", 600),
    ("orders", 200),
    ("outages", 10),
    ("deserved dead letters", 4),
    ("slow answers", 20),
    ("large rows", 10),
];
pub(crate) const RELEASE: Minimums = &[
    ("kills", 10_000),
    ("zombies", 2_000),
    ("messages", 10_000_000),
    ("database restarts", 200),
    ("copies", 1),
    ("fence refusals", 1),
    ("rows cleaned up", 1),
    ("contacts", 40_000),
    ("bulk jobs failed half-way", 500),
    ("bookings", 30_000),
    ("orders", 10_000),
    ("outages", 500),
    ("deserved dead letters", 8),
    ("slow answers", 1_000),
    ("large rows", 500),
];

/// Findings that must not occur; shown with their zero. Other findings are shown if there are any.
const NEVER: [&str; 10] = [
    "lost",
    "phantom",
    "double effect",
    "reordered",
    "rewritten",
    "too many copies",
    "stranded",
    "undeserved dead letter",
    "left locked",
    "corrupt",
];

/// The result of one store.
#[derive(Debug)]
pub(crate) struct StoreOutcome {
    pub(crate) store: &'static str,
    pub(crate) findings: Findings,
    /// Counts of events, in the order in which they are shown.
    pub(crate) counts: Vec<(&'static str, u64)>,
    pub(crate) drained_in: Duration,
}

impl StoreOutcome {
    /// The figures in one line.
    pub(crate) fn line(&self) -> String {
        let counts = self.counts.iter().map(|(what, count)| format!("{count} {what}"));
        let found = self.found().into_iter().map(|(what, count)| format!("{what} {count}"));
        format!(
            "{}: {} | {} | drained in {:.1?}",
            self.store,
            counts.collect::<Vec<_>>().join(", "),
            found.collect::<Vec<_>>().join(", "),
            self.drained_in
        )
    }

    fn found(&self) -> Vec<(&'static str, usize)> {
        let others = self.findings.names().filter(|name| !NEVER.contains(name));
        NEVER.into_iter().chain(others).map(|name| (name, self.findings.count(name))).collect()
    }

    fn json(&self) -> Value {
        let counts = self.counts.iter().map(|(what, count)| ((*what).to_owned(), json!(count)));
        let found = self.found().into_iter().map(|(what, count)| (what.to_owned(), json!(count)));
        json!({
            "store": self.store,
            "counts": counts.collect::<serde_json::Map<_, _>>(),
            "findings": found.collect::<serde_json::Map<_, _>>(),
            "drained_in_seconds": self.drained_in.as_secs_f64(),
        })
    }
}

/// Returns the counts below their minimum.
pub(crate) fn too_easy(outcomes: &[StoreOutcome], minimums: Minimums) -> Vec<String> {
    let sum = |name| {
        let counts = outcomes.iter().flat_map(|outcome| &outcome.counts);
        counts.filter(|(what, _)| *what == name).map(|(_, count)| count).sum::<u64>()
    };
    let short = minimums.iter().filter(|(what, least)| sum(*what) < *least);
    short.map(|(what, least)| format!("{} {what} of {least}", sum(*what))).collect()
}

/// Returns the figures of a run as JSON.
pub(crate) fn report(
    outcomes: &[StoreOutcome],
    seed: u64,
    took: Duration,
    good: bool,
) -> Result<String> {
    let report = json!({
        "seed": seed,
        "commit": commit(),
        "good": good,
        "seconds": took.as_secs(),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "load": load(),
        "stores": outcomes.iter().map(StoreOutcome::json).collect::<Vec<_>>(),
    });
    Ok(serde_json::to_string_pretty(&report)? + "\n")
}

/// Returns the tested commit, marked if the tree has changes.
fn commit() -> Option<String> {
    let args = ["describe", "--always", "--dirty", "--abbrev=12"];
    let output = std::process::Command::new("git").args(args).output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| said.trim().to_owned())
}

/// Returns the load of the machine, where the system reports it.
pub(crate) fn load() -> Option<String> {
    let said = std::fs::read_to_string("/proc/loadavg").ok()?;
    Some(said.split(' ').take(3).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Minimums = &[("kills", 10), ("copies", 1)];

    fn outcome(store: &'static str, counts: &[(&'static str, u64)]) -> StoreOutcome {
        let (findings, counts) = (Findings::default(), counts.to_vec());
        StoreOutcome { store, findings, counts, drained_in: Duration::from_millis(1_500) }
    }

    #[test]
    fn a_run_is_hard_enough_over_all_stores_together() {
        let hard = [outcome("a", &[("kills", 6), ("copies", 1)]), outcome("b", &[("kills", 4)])];
        assert_eq!(too_easy(&hard, SMALL), Vec::<String>::new());
        assert_eq!(too_easy(&hard[..1], SMALL), ["6 kills of 10"]);
        assert_eq!(too_easy(&hard[1..], SMALL), ["4 kills of 10", "0 copies of 1"]);
    }

    #[test]
    fn the_line_shows_what_happened_and_every_zero() {
        let mut outcome = outcome("a", &[("kills", 6)]);
        outcome.findings.add("reordered", ["s1-1".to_owned()]);
        outcome.findings.add("sums differ", ["9".to_owned()]);
        assert_eq!(
            outcome.line(),
            "a: 6 kills | lost 0, phantom 0, double effect 0, reordered 1, rewritten 0, too many \
             copies 0, stranded 0, undeserved dead letter 0, left locked 0, corrupt 0, sums differ 1 \
             | drained in 1.5s"
        );
        let report = report(&[outcome], 7, Duration::from_secs(3), false).unwrap();
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["stores"][0]["counts"]["kills"], 6);
        assert_eq!(report["stores"][0]["findings"]["lost"], 0);
        assert_eq!((&report["seed"], &report["good"]), (&json!(7), &json!(false)));
    }
}
