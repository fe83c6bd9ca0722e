//! The simulated org, with everything on that goes wrong in a real one.

use salesforce_sim::{
    Faults, RunningSimulator, Simulator, SimulatorConfig,
    faults::{HttpAction, HttpFault, Pattern, RowFault},
};

pub(crate) struct Org(RunningSimulator);

impl Org {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let config = SimulatorConfig { faults: faults()?, ..SimulatorConfig::default() };
        Ok(Self(Simulator::start(config).await?))
    }

    pub(crate) fn url(&self) -> String {
        self.0.url()
    }

    pub(crate) fn records(&self, object: &str) -> usize {
        self.0.records(object).len()
    }

    /// All committed writes.
    pub(crate) fn writes(&self) -> u64 {
        self.0.ledger().writes()
    }

    /// Records to which something was done again.
    pub(crate) fn repeated(&self) -> usize {
        self.0.ledger().repeated()
    }

    pub(crate) fn open_jobs(&self) -> usize {
        let is_over = |state: &str| ["JobComplete", "Failed", "Aborted"].contains(&state);
        let jobs = self.0.jobs();
        jobs.iter().filter(|job| !job["state"].as_str().is_some_and(is_over)).count()
    }
}

/// Each kind of call loses some replies after the work was done; some calls are throttled; one row in
/// ten is locked at first.
fn faults() -> anyhow::Result<Faults> {
    let http = |method: &str, path: &str, action, times| -> anyhow::Result<HttpFault> {
        Ok(HttpFault {
            method: Some(method.to_owned()),
            path: Pattern::new(path)?,
            times: Some(times),
            retry_after: (action == HttpAction::Throttled).then_some(1),
            action,
            ..HttpFault::default()
        })
    };
    let locked = RowFault {
        key: Pattern::new("3$")?,
        times: Some(1),
        code: "UNABLE_TO_LOCK_ROW".to_owned(),
        message: "unable to obtain exclusive access to this record".to_owned(),
        ..RowFault::default()
    };
    Ok(Faults {
        http: vec![
            http("POST", "jobs/ingest$", HttpAction::DropAfter, 2)?,
            http("PUT", "batches$", HttpAction::DropAfter, 2)?,
            http("PATCH", "jobs/ingest/", HttpAction::DropAfter, 2)?,
            http("GET", "successfulResults", HttpAction::Break, 1)?,
            http("GET", "jobs/ingest/", HttpAction::Throttled, 2)?,
            http("POST", "jobs/ingest$", HttpAction::Unavailable, 1)?,
        ],
        rows: vec![locked],
        ..Faults::default()
    })
}
