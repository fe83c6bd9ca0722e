//! The figures of all processes together: reports of the other processes and current figures of this one.

use std::collections::BTreeMap;

use relais::observe::{Figures, Latency};
use relais_core::{report::Report, time::Timestamp};

/// FleetRates per second.
#[derive(Clone, Debug, Default)]
pub(crate) struct FleetRates {
    pub(crate) stored: f64,
    pub(crate) processed: f64,
    pub(crate) dispatched: f64,
    pub(crate) failed: f64,
    pub(crate) retried: f64,
    /// Latency of the deliveries in this time.
    pub(crate) latency: Latency,
    pub(crate) destinations: BTreeMap<String, f64>,
    pub(crate) sources: BTreeMap<String, f64>,
}

impl FleetRates {
    /// Computes the rates between two readings of one process.
    pub(crate) fn between(before: &Figures, now: &Figures, seconds: f64) -> Self {
        let seconds = seconds.max(0.001);
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        let mut rates = Self {
            stored: rate(now.stored, before.stored),
            processed: rate(now.processed, before.processed),
            failed: rate(now.failed, before.failed),
            retried: rate(now.retried, before.retried),
            latency: now.dispatch().since(&before.dispatch()),
            ..Self::default()
        };
        for (name, figures) in &now.destinations {
            let then = before.destinations.get(name).cloned().unwrap_or_default();
            let delivered = rate(figures.dispatched, then.dispatched);
            rates.dispatched += delivered;
            rates.failed += rate(figures.failed, then.failed);
            rates.retried += rate(figures.retried, then.retried);
            rates.destinations.insert(name.clone(), delivered);
        }
        for (name, figures) in &now.sources {
            let then = before.sources.get(name).map_or(0, |source| source.stored);
            rates.sources.insert(name.clone(), rate(figures.stored, then));
        }
        rates
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.stored += other.stored;
        self.processed += other.processed;
        self.dispatched += other.dispatched;
        self.failed += other.failed;
        self.retried += other.retried;
        self.latency = self.latency.and(&other.latency);
        for (name, rate) in &other.destinations {
            *self.destinations.entry(name.clone()).or_default() += rate;
        }
        for (name, rate) in &other.sources {
            *self.sources.entry(name.clone()).or_default() += rate;
        }
    }

    /// Returns true if any rate is above zero.
    pub(crate) fn is_moving(&self) -> bool {
        [self.stored, self.processed, self.dispatched, self.failed, self.retried]
            .iter()
            .any(|rate| *rate > 0.0)
    }
}

/// The last report of another process.
#[derive(Clone, Debug)]
struct FleetMember {
    reported_at: Timestamp,
    figures: Figures,
    rates: FleetRates,
}

/// The other processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fleet {
    members: BTreeMap<String, FleetMember>,
}

impl Fleet {
    /// Applies the newest reports and drops lost processes.
    pub(crate) fn take(&mut self, reports: &[Report], own: Option<&str>) {
        let others = || reports.iter().filter(|r| r.alive && Some(r.worker.as_str()) != own);
        self.members.retain(|worker, _| others().any(|report| report.worker == *worker));
        for report in others() {
            let before = self.members.get(&report.worker);
            if before.is_some_and(|member| member.reported_at >= report.reported_at) {
                continue;
            }
            let Ok(figures) = serde_json::from_str::<Figures>(&report.figures) else { continue };
            let rates = before.map(|member| {
                let micros = report.reported_at.0.saturating_sub(member.reported_at.0);
                FleetRates::between(&member.figures, &figures, micros as f64 / 1e6)
            });
            let (reported_at, rates) = (report.reported_at, rates.unwrap_or_default());
            self.members.insert(report.worker.clone(), FleetMember { reported_at, figures, rates });
        }
    }

    /// Adds the figures of the other processes to those of this one.
    pub(crate) fn with(&self, mut own: Figures) -> Figures {
        self.members.values().for_each(|member| own.add(&member.figures));
        own
    }

    /// Adds the rates of the other processes to those of this one.
    pub(crate) fn rates_with(&self, mut own: FleetRates) -> FleetRates {
        self.members.values().for_each(|member| own.add(&member.rates));
        own
    }
}

#[cfg(test)]
mod tests {
    use relais::observe::{DestinationFigures, SourceFigures};

    use super::*;

    fn figures(delivered: u64, stored: u64) -> Figures {
        let orders = DestinationFigures { dispatched: delivered, ..Default::default() };
        let hook = SourceFigures { stored, lag: Some(10 * stored), ..Default::default() };
        Figures {
            stored,
            destinations: [("orders".to_owned(), orders)].into(),
            sources: [("hook".to_owned(), hook)].into(),
            ..Figures::default()
        }
    }

    fn report(worker: &str, at_seconds: i64, figures: &Figures, alive: bool) -> Report {
        Report {
            worker: worker.to_owned(),
            host: "h".to_owned(),
            pid: 1,
            version: "0".to_owned(),
            started_at: Timestamp(0),
            reported_at: Timestamp(at_seconds * 1_000_000),
            alive,
            figures: serde_json::to_string(figures).unwrap(),
        }
    }

    #[test]
    fn figures_and_rates_are_those_of_all_live_processes() {
        let mut fleet = Fleet::default();
        let own = report("me", 1, &figures(999, 999), true);
        let at = |seconds, delivered| report("other", seconds, &figures(delivered, 1), true);
        fleet.take(&[own.clone(), at(1, 100)], Some("me"));
        fleet.take(&[own.clone(), at(3, 300)], Some("me"));
        let sum = fleet.with(figures(7, 2));
        assert_eq!((sum.destinations["orders"].dispatched, sum.sources["hook"].stored), (307, 3));
        assert_eq!(sum.sources["hook"].lag, Some(30), "each knows the lag of what it reads");
        let rates = fleet.rates_with(FleetRates::between(&figures(0, 0), &figures(10, 5), 1.0));
        assert_eq!((rates.dispatched, rates.destinations["orders"]), (110.0, 110.0));
        assert_eq!((rates.stored, rates.sources["hook"]), (5.0, 5.0));
        fleet.take(&[own.clone(), at(3, 300)], Some("me"));
        assert_eq!(
            fleet.rates_with(FleetRates::default()).dispatched,
            100.0,
            "the same report again"
        );
        let lost = report("other", 4, &figures(400, 1), false);
        fleet.take(&[own, lost], Some("me"));
        assert_eq!(fleet.with(figures(7, 2)).destinations["orders"].dispatched, 7);
        assert!(!fleet.rates_with(FleetRates::default()).is_moving());
    }
}
