//! The simulator of Salesforce in this process, and the tables of members that the program reads.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use salesforce_sim::{
    EffectLedger, Faults, RunningSimulator, Simulator, SimulatorConfig,
    faults::{HttpAction, HttpFault, Pattern},
};
use serde_json::Value;

use crate::support::{Site, postgres::PostgresSchema};

/// Time limit of a condition.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Waits until a condition holds.
pub(crate) fn until(mut done: impl FnMut() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < give_up, "it does not come true within {PATIENCE:?}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// A simulated org; it ends with its runtime.
pub(crate) struct Org {
    sim: RunningSimulator,
    _runtime: tokio::runtime::Runtime,
}

impl Org {
    pub(crate) fn start(config: SimulatorConfig) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let sim = runtime.block_on(Simulator::start(config)).unwrap();
        Self { sim, _runtime: runtime }
    }

    pub(crate) fn with(faults: Faults) -> Self {
        Self::start(SimulatorConfig { faults, ..SimulatorConfig::default() })
    }

    pub(crate) fn url(&self) -> String {
        self.sim.url()
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        self.sim.set_faults(faults);
    }

    pub(crate) fn ledger(&self) -> EffectLedger {
        self.sim.ledger()
    }

    pub(crate) fn records(&self, object: &str) -> Vec<Value> {
        self.sim.records(object)
    }

    /// The record with this external id.
    pub(crate) fn record(&self, object: &str, id: &str) -> Value {
        let mut all = self.records(object).into_iter();
        all.find(|record| record["ExternalId__c"] == id).unwrap_or_else(|| panic!("no {id}"))
    }

    pub(crate) fn calls(&self) -> BTreeMap<String, u64> {
        self.sim.calls()
    }

    /// Jobs in one state.
    pub(crate) fn jobs(&self, state: &str) -> usize {
        self.sim.jobs().iter().filter(|job| job["state"] == state).count()
    }

    /// Checks the total number of writes of this object, without repeated ones.
    pub(crate) fn assert_once(&self, object: &str, records: usize) {
        let ledger = self.ledger();
        let repeated: Vec<_> = ledger.entries().filter(|entry| entry.is_repeated()).collect();
        assert!(repeated.is_empty(), "{repeated:?}");
        let of = ledger.entries().filter(|entry| entry.object == object);
        assert_eq!(of.count(), records, "{object} in the ledger");
        assert_eq!(self.records(object).len(), records, "{object} in the org");
    }
}

pub(crate) fn fault(method: &str, path: &str, action: HttpAction) -> HttpFault {
    HttpFault {
        method: Some(method.to_owned()),
        path: Pattern::new(path).unwrap(),
        action,
        ..HttpFault::default()
    }
}

/// The database of the program, with tables of members.
pub(crate) enum Base {
    Sqlite(PathBuf),
    Postgres(PostgresSchema),
}

impl Base {
    /// SQLite, and PostgreSQL where the environment names one.
    pub(crate) fn all(site: &dyn Fn() -> Site) -> Vec<(Site, Self)> {
        let (first, second) = (site(), site());
        let sqlite = Self::Sqlite(first.path("relais.db"));
        let postgres = PostgresSchema::new().map(|schema| (second, Self::Postgres(schema)));
        std::iter::once((first, sqlite)).chain(postgres).collect()
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite(_) => "sqlite:relais.db".to_owned(),
            Self::Postgres(schema) => schema.url.clone(),
        }
    }

    /// Statements without results.
    pub(crate) fn execute(&self, sql: &str) {
        match self {
            Self::Sqlite(path) => {
                let db = rusqlite::Connection::open(path).unwrap();
                db.busy_timeout(PATIENCE).unwrap();
                db.execute_batch(sql).unwrap();
            }
            Self::Postgres(schema) => {
                schema.execute(&format!("SET search_path = {}; {sql}", schema.name));
            }
        }
    }

    /// The first column of each row, as text.
    pub(crate) fn texts(&self, sql: &str) -> Vec<String> {
        match self {
            Self::Sqlite(path) => {
                let db = rusqlite::Connection::open(path).unwrap();
                db.busy_timeout(PATIENCE).unwrap();
                let mut statement = db.prepare(sql).unwrap();
                let rows = statement.query_map((), |row| row.get(0)).unwrap();
                rows.map(Result::unwrap).collect()
            }
            Self::Postgres(schema) => {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let (client, connection) =
                        tokio_postgres::connect(&schema.url, tokio_postgres::NoTls).await.unwrap();
                    tokio::spawn(connection);
                    let rows = client.query(sql, &[]).await.unwrap();
                    rows.iter().map(|row| row.get(0)).collect()
                })
            }
        }
    }

    /// Members `M-1` to `M-count`, all in version 1.
    pub(crate) fn members(&self, count: usize) {
        self.execute(
            "CREATE TABLE members (id TEXT PRIMARY KEY, first_name TEXT, last_name TEXT, \
             email TEXT, family TEXT, version BIGINT NOT NULL)",
        );
        self.execute(&format!(
            "INSERT INTO members WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n \
             WHERE i < {count}) SELECT 'M-' || i, 'Jane', 'Doe \"' || i || '\"', \
             'm' || i || '@example.com', 'F-1', 1 FROM n"
        ));
    }

    /// Returns the number of outbox rows by state.
    pub(crate) fn outbox(&self, status: &str) -> usize {
        let sql = format!("SELECT event_type FROM relais_outbox WHERE status = '{status}'");
        self.texts(&sql).len()
    }
}

/// Settings: an HTTP source, members as contacts by `api`, and what `more` says of the destination.
pub(crate) fn settings(base: &Base, org: &Org, api: &str, more: &str) -> String {
    format!(
        "[store]\nurl = \"{}\"\n\
         [lanes]\nlease = \"2s\"\n\
         [[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
         source_system = \"ihub\"\naggregate_id = \"payload:/familyId\"\n{}",
        base.url(),
        contacts(org, api, more)
    )
}

/// The route from `MembersCreated` and the destination.
pub(crate) fn contacts(org: &Org, api: &str, more: &str) -> String {
    format!(
        "[[route]]\non = \"MembersCreated\"\neach = \"payload:/memberIds\"\n\
         aggregate_type = \"Member\"\nevent_type = \"MembersUpsertRequested\"\n\
         version = \"payload:/asOfVersion\"\ndestination = \"HTTP:SFDC:BulkV2:Contact\"\n\
         [[destination]]\nname = \"HTTP:SFDC:BulkV2:Contact\"\nkind = \"salesforce\"\n\
         api = \"{api}\"\nlogin_url = \"{}\"\nclient_id = \"app\"\nclient_secret = \"hush-hush\"\n\
         version = \"version\"\n\
         hydrate = \"SELECT * FROM members WHERE id IN (:ids)\"\n\
         columns = {{ FirstName = \"first_name\", LastName = \"last_name\", Email = \"email\", \
         Family__c = \"family\", Version__c = \"version\" }}\n{more}\
         [destination.bulk]\nlinger = \"100ms\"\npoll_first = \"20ms\"\npoll_max = \"200ms\"\n\
         sweep_every = \"500ms\"\norphan_age = \"1s\"\n\
         [destination.retry]\nattempts = 20\nfirst = \"10ms\"\nmax = \"500ms\"\n\
         [destination.breaker]\nopen_for = \"200ms\"\n",
        org.url()
    )
}

/// The event of the specification.
pub(crate) fn members_created(members: std::ops::RangeInclusive<usize>, version: u64) -> String {
    let ids: Vec<String> = members.map(|n| format!("M-{n}")).collect();
    serde_json::json!({
        "type": "MembersCreated",
        "familyId": "F-8842",
        "memberIds": ids,
        "asOfVersion": version,
        "eventVersion": 2,
    })
    .to_string()
}
