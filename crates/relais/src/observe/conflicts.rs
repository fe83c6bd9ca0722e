//! Destinations that live processes configure differently.

use std::collections::{BTreeMap, BTreeSet};

use relais_core::report::Report;

use super::Figures;

/// Returns the destinations that live processes configure differently, with a sentence that names the processes.
/// A process that reports no digest of its configuration is left out.
pub fn configuration_conflicts(reports: &[Report]) -> BTreeMap<String, String> {
    let mut digests: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for report in reports.iter().filter(|report| report.alive) {
        let Ok(figures) = serde_json::from_str::<Figures>(&report.figures) else { continue };
        for (destination, figures) in figures.destinations {
            let Some(digest) = figures.configuration else { continue };
            let process = format!("{} (pid {})", report.host, report.pid);
            digests.entry(destination).or_default().entry(digest).or_default().insert(process);
        }
    }
    digests.retain(|_, processes| processes.len() > 1);
    let sentence = |(destination, processes): (String, BTreeMap<String, BTreeSet<String>>)| {
        let groups = processes.into_values().map(|names| {
            let names: Vec<String> = names.into_iter().collect();
            names.join(", ")
        });
        let groups = groups.collect::<Vec<_>>().join(" differs from ");
        let text = format!(
            "processes configure it differently: {groups}; give all of them the same configuration"
        );
        (destination, text)
    };
    digests.into_iter().map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use relais_core::time::Timestamp;

    use super::{super::DestinationFigures, *};

    fn report(pid: u32, configuration: Option<&str>, alive: bool) -> Report {
        let orders = DestinationFigures {
            configuration: configuration.map(str::to_owned),
            ..DestinationFigures::default()
        };
        let figures = Figures {
            destinations: BTreeMap::from([("orders".to_owned(), orders)]),
            ..Figures::default()
        };
        Report {
            worker: format!("w-{pid}"),
            host: "h".to_owned(),
            pid,
            version: "1".to_owned(),
            started_at: Timestamp(0),
            reported_at: Timestamp(0),
            alive,
            figures: serde_json::to_string(&figures).unwrap(),
        }
    }

    #[test]
    fn live_processes_with_different_configurations_are_named() {
        let same = [report(1, Some("a"), true), report(2, Some("a"), true)];
        assert!(configuration_conflicts(&same).is_empty());
        let unknown = [report(1, Some("a"), true), report(2, None, true)];
        assert!(configuration_conflicts(&unknown).is_empty());
        let lost = [report(1, Some("a"), true), report(2, Some("b"), false)];
        assert!(configuration_conflicts(&lost).is_empty());
        let differ =
            [report(1, Some("a"), true), report(2, Some("b"), true), report(3, Some("a"), true)];
        let found = configuration_conflicts(&differ);
        let expected = "processes configure it differently: h (pid 1), h (pid 3) differs from h (pid 2); give \
                        all of them the same configuration";
        assert_eq!(found["orders"], expected);
    }
}
