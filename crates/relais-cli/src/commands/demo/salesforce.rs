//! A simulated Salesforce that refuses rows, loses replies and throttles, and what is sent to it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use relais::{
    App, BulkSettings, Hydrator, Route,
    http::Secret,
    salesforce::{Auth, SalesforceBulk, SalesforceSettings, Session},
};
use relais_core::{BoxFuture, hydrate::Record, store::StoreError};
use salesforce_sim::{
    Config, Faults, Running, Simulator,
    faults::{HttpAction, HttpFault, Pattern, RowFault},
};
use serde_json::json;

use super::{LEASE, destination_settings, plan};
use crate::failure::Failure;

/// An object and where its rows come from.
struct Kind {
    object: &'static str,
    destination: &'static str,
    event_type: &'static str,
    ids: &'static str,
    columns: &'static [&'static str],
}

const KINDS: [Kind; 2] = [
    Kind {
        object: "Contact",
        destination: "HTTP:SFDC:BulkV2:Contact",
        event_type: plan::MEMBERS_CREATED,
        ids: "/memberIds",
        columns: &["LastName", "Email", "Family__c"],
    },
    Kind {
        object: "Block__c",
        destination: "HTTP:SFDC:BulkV2:Block__c",
        event_type: plan::BLOCKS_TO_CREATE,
        ids: "/blockIds",
        columns: &["Type__c", "Family__c"],
    },
];

/// What the org has and did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) contacts: u64,
    pub(super) blocks: u64,
    /// Records that were written more than once.
    pub(super) repeated: u64,
    pub(super) jobs: u64,
    pub(super) open_jobs: u64,
}

pub(super) struct Org {
    sim: Running,
    session: Session,
}

impl Org {
    pub(super) async fn start(seed: u64) -> Result<Self, Failure> {
        let faults = faults(seed).map_err(Failure::Failed)?;
        let sim = Simulator::start(Config { faults, ..Config::default() }).await?;
        Ok(Self { sim, session: Session::default() })
    }

    pub(super) fn url(&self) -> String {
        self.sim.url()
    }

    pub(super) fn seen(&self) -> Seen {
        let (ledger, jobs) = (self.sim.ledger(), self.sim.jobs());
        let records = |object: &str| ledger.entries().filter(|e| e.object == object).count() as u64;
        let is_over = |state: &str| ["JobComplete", "Failed", "Aborted"].contains(&state);
        let open = jobs.iter().filter(|job| !job["state"].as_str().is_some_and(is_over));
        Seen {
            contacts: records("Contact"),
            blocks: records("Block__c"),
            repeated: ledger.repeated() as u64,
            jobs: jobs.len() as u64,
            open_jobs: open.count() as u64,
        }
    }

    /// Routes and bulk destinations for members and blocks.
    pub(super) fn join(&self, mut app: App) -> Result<App, Failure> {
        for kind in &KINDS {
            let bulk = BulkSettings {
                destination: destination_settings(),
                linger: Duration::from_millis(300),
                poll_first: Duration::from_millis(50),
                poll_max: Duration::from_millis(500),
                sweep_every: LEASE,
                ..BulkSettings::default()
            };
            let target = SalesforceBulk::new(self.settings(kind), Some(Arc::new(Families)));
            let target = target.map_err(Failure::Failed)?;
            app = app
                .route(Route {
                    on: kind.event_type.into(),
                    destination: kind.destination.into(),
                    each: Some(kind.ids.into()),
                    event_type: None,
                    aggregate_type: Some(kind.object.into()),
                    version: None,
                    payload: None,
                })
                .bulk_destination(kind.destination, Arc::new(target), bulk);
        }
        Ok(app)
    }

    fn settings(&self, kind: &Kind) -> SalesforceSettings {
        let auth = Auth::ClientCredentials {
            client_id: "demo".into(),
            client_secret: Secret::new("the simulator lets everybody in"),
        };
        let columns = kind.columns.iter().map(|name| ((*name).to_owned(), (*name).to_owned()));
        SalesforceSettings {
            columns: columns.collect(),
            orphan_age: LEASE,
            session: self.session.clone(),
            ..SalesforceSettings::new(&self.url(), auth, kind.object, "ExternalId__c")
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

/// Stands for the database of the service: an id is all it needs.
struct Families;

impl Hydrator for Families {
    fn hydrate(
        &self,
        ids: Vec<String>,
    ) -> BoxFuture<'_, Result<HashMap<String, Record>, StoreError>> {
        let record = |id: String| {
            let family = id.split('-').nth(1).unwrap_or_default().to_owned();
            let fields = [
                ("LastName", json!(format!("Doe, \"{id}\""))),
                ("Email", json!(format!("{id}@example.com"))),
                ("Type__c", json!("RISK")),
                ("Family__c", json!(format!("F-{family}"))),
            ];
            (id, fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
        };
        Box::pin(async move { Ok(ids.into_iter().map(record).collect()) })
    }
}
