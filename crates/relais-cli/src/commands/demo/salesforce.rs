//! A simulated Salesforce that refuses rows, loses replies and throttles, with its totals.

use salesforce_sim::{
    Faults, RunningSimulator, Simulator, SimulatorConfig,
    faults::{HttpAction, HttpFault, Pattern, RowFault},
};

use crate::failure::CommandError;

/// The totals of the org.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OrgTotals {
    pub(super) contacts: u64,
    pub(super) blocks: u64,
    /// Records written more than once.
    pub(super) repeated: u64,
    pub(super) jobs: u64,
    pub(super) open_jobs: u64,
}

pub(super) struct DemoOrg(RunningSimulator);

impl DemoOrg {
    pub(super) async fn start(seed: u64) -> Result<Self, CommandError> {
        let faults = faults(seed).map_err(CommandError::Failed)?;
        Ok(Self(Simulator::start(SimulatorConfig { faults, ..SimulatorConfig::default() }).await?))
    }

    pub(super) fn url(&self) -> String {
        self.0.url()
    }

    pub(super) fn seen(&self) -> OrgTotals {
        let (ledger, jobs) = (self.0.ledger(), self.0.jobs());
        let records = |object: &str| ledger.entries().filter(|e| e.object == object).count() as u64;
        let is_over = |state: &str| ["JobComplete", "Failed", "Aborted"].contains(&state);
        let open = jobs.iter().filter(|job| !job["state"].as_str().is_some_and(is_over));
        OrgTotals {
            contacts: records("Contact"),
            blocks: records("Block__c"),
            repeated: ledger.repeated() as u64,
            jobs: jobs.len() as u64,
            open_jobs: open.count() as u64,
        }
    }
}

/// One row in ten is locked at first; replies are lost after the work was done; calls are throttled.
fn faults(seed: u64) -> Result<Faults, String> {
    let pattern = |text: &str| Pattern::new(text).map_err(|error| error.to_string());
    let call = |path: &str, action, chance| {
        let retry_after = (action == HttpAction::Throttled).then_some(1);
        let path = pattern(path)?;
        let fault = HttpFault { path, action, retry_after, ..HttpFault::default() };
        Ok::<_, String>(HttpFault { chance: Some(chance), ..fault })
    };
    Ok(Faults {
        seed,
        http: vec![
            HttpFault { times: Some(3), ..call("jobs/ingest", HttpAction::Throttled, 0.05)? },
            HttpFault { times: Some(12), ..call("jobs/ingest", HttpAction::DropAfter, 0.1)? },
        ],
        rows: vec![RowFault {
            key: pattern("3$")?,
            times: Some(1),
            code: "UNABLE_TO_LOCK_ROW".into(),
            message: "unable to obtain exclusive access to this record".into(),
            ..RowFault::default()
        }],
        ..Faults::default()
    })
}
