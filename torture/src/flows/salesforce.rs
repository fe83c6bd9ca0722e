//! Rows of the outbox become contacts in a simulated Salesforce, in bulk jobs that fail half-way.
//!
//! Each version of a contact is written once, whatever happens: the org's own ledger says so. Jobs that
//! fail leave rows unprocessed, which must go again; nothing may stay open on either side. The fresh rows of
//! each job are read by a slow query.

use std::{
    collections::{BTreeMap, HashSet},
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use anyhow::{Context, Result};
use relais_testkit::proxy::FaultProxy;
use salesforce_sim::{
    Faults, RunningSimulator, Simulator, SimulatorConfig,
    faults::{HttpAction, HttpFault, JobFault, Pattern, RowFault},
};
use tokio::task::JoinHandle;

use super::{FlowContext, rate};
use crate::{
    base::{Base, DatabaseClient},
    check::{self, Findings},
    faults,
    history::{Flow, MessageName, WrittenKeys},
    rng::Rng,
    writers::{self, WriterKeys},
};

const OBJECT: &str = "Contact";
/// Rows a second, and how many contacts they are about.
const ROWS_A_SECOND: u64 = 12;
const CONTACTS: usize = 200;
/// Small, so that there are many jobs.
const JOB_ROWS: u64 = 100;
/// Duration of one fault of the org.
const AILMENT: (Duration, Duration) = (Duration::from_millis(300), Duration::from_millis(1_500));
/// Share of faults in which jobs fail half-way, and the most rows before that: even a small job leaves
/// rows unprocessed then. Never before the first row: after a job that did nothing, relais waits for an
/// operator.
const JOB_FAILS_PERCENT: u64 = 70;
const FAILS_AFTER_ROWS: u64 = 3;
/// The share of calls, and of rows, that the others hit. If no row of a job that fails half-way
/// succeeded, relais waits for an operator too: that must be rare.
const CHANCE: f64 = 0.2;
const LOCKED: f64 = 0.02;
/// In every path but that of the login.
const DATA: &str = "/services/data";
/// Calls of a day: the quota is not what is tested here.
const CALLS_MAX: u64 = 100_000_000;
/// States of a job in the org in which nothing more happens to it.
const ENDED: [&str; 3] = ["JobComplete", "Failed", "Aborted"];

/// The org, and those who use it.
pub(crate) struct Salesforce {
    org: Arc<RunningSimulator>,
    proxy: Arc<FaultProxy>,
    disturbers: Vec<JoinHandle<()>>,
    sender: Option<JoinHandle<Result<()>>>,
    rows: u64,
}

impl Salesforce {
    pub(crate) async fn start() -> Result<Self> {
        let org =
            Simulator::start(SimulatorConfig { faults: well(), ..SimulatorConfig::default() })
                .await?;
        let address = org.url().replace("http://", "").parse().context("the org's address")?;
        let proxy = Arc::new(FaultProxy::to(address).await?);
        Ok(Self { org: Arc::new(org), proxy, disturbers: Vec::new(), sender: None, rows: 0 })
    }

    pub(crate) fn settings(&self, base: &Base) -> String {
        settings(self.proxy.address(), slow(base))
    }

    /// From now on rows are written, and little is well.
    pub(crate) fn go(&mut self, context: &FlowContext) {
        let FlowContext { plan, control, event_log, base, shared, .. } = context;
        self.disturbers = vec![
            tokio::spawn(faults::disturb(
                Arc::clone(&self.proxy),
                "salesforce",
                Rng::new(plan.seed, 20),
                Arc::clone(control),
                event_log.clone(),
            )),
            tokio::spawn(ail(Arc::clone(&self.org), Rng::new(plan.seed, 21), context.clone())),
        ];
        let (rows, pace) = rate(plan, ROWS_A_SECOND);
        let keys = WriterKeys::new(Flow::Contact, 0, CONTACTS);
        let rng = Rng::new(plan.seed, 22);
        let send = writers::send(base.clone(), Arc::clone(shared), keys, rng, rows, pace);
        self.sender = Some(writers::spawn(base, send));
    }

    /// The faults are over.
    pub(crate) async fn calm(&mut self) -> Result<()> {
        for disturber in self.disturbers.drain(..) {
            disturber.await?;
        }
        self.org.set_faults(well());
        Ok(())
    }

    /// No more rows are written.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        match self.sender.take() {
            Some(sender) => sender.await?,
            None => Ok(()),
        }
    }

    /// Jobs that are not over, on both sides.
    pub(crate) async fn open(&self, client: &mut DatabaseClient) -> Result<Vec<String>> {
        let mut open = client
            .texts("SELECT 'job ' || CAST(id AS TEXT) || ' ' || phase FROM relais_bulk_job WHERE finished_at IS NULL")
            .await?;
        let jobs = self.org.jobs();
        let there = jobs.iter().filter(|job| !job["state"].as_str().is_some_and(has_ended));
        open.extend(there.map(|job| format!("job in the org {} {}", job["id"], job["state"])));
        Ok(open)
    }

    pub(crate) async fn check(
        &mut self,
        client: &mut DatabaseClient,
        findings: &mut Findings,
    ) -> Result<()> {
        let written = check::orders(client, Flow::Contact).await?;
        self.rows = written.names().count() as u64;
        let mut effects = BTreeMap::new();
        let ledger = self.org.ledger();
        for entry in ledger.entries() {
            for (version, writes) in &entry.versions {
                effects.insert(format!("{}-{version}", entry.external_id), *writes);
            }
            if entry.created != 1 {
                findings.add("double effect", [format!("{} was created", entry.external_id)]);
            }
        }
        let waiting = check::waiting(client).await?;
        for name in written.names() {
            match effects.remove(&name.to_string()) {
                None if waiting.contains(&name) => {}
                None => findings.add("lost", [name.to_string()]),
                Some(1) => {}
                Some(writes) => findings.add("double effect", [format!("{name} {writes} times")]),
            }
        }
        findings.add("phantom", effects.into_keys());
        findings.add("reordered", self.overtaken(&written, &waiting));
        findings.add("job open", self.open(client).await?);
        Ok(())
    }

    /// Contacts that do not show the last that was written of them, and of which nothing waits.
    fn overtaken(&self, written: &WrittenKeys, waiting: &HashSet<MessageName>) -> Vec<String> {
        let waiting: HashSet<u32> =
            waiting.iter().filter(|name| name.flow == Flow::Contact).map(|name| name.key).collect();
        let names = written.names().filter(|name| !waiting.contains(&name.key));
        let last: BTreeMap<String, String> =
            names.map(|name| (name.key(), name.to_string())).collect();
        let records = self.org.records(OBJECT).into_iter();
        let stale = records.filter(|record| {
            let key = record["ExternalId__c"].as_str().unwrap_or_default();
            last.get(key).is_some_and(|last| record["LastName"] != last.as_str())
        });
        stale.map(|record| format!("{} is last", record["LastName"])).collect()
    }

    pub(crate) fn counts(&self) -> [(&'static str, u64); 3] {
        let jobs = self.org.jobs();
        let failed = jobs.iter().filter(|job| job["state"] == "Failed").count();
        [
            ("contacts", self.rows),
            ("bulk jobs", jobs.len() as u64),
            ("bulk jobs failed half-way", failed as u64),
        ]
    }
}

fn has_ended(state: &str) -> bool {
    ENDED.contains(&state)
}

/// Takes a part of a second, once for each time that fresh rows are read: a subquery without a reference to the
/// rows is evaluated once. In a FROM clause SQLite may evaluate it for each row.
fn slow(base: &Base) -> &'static str {
    match base {
        Base::Postgres { .. } => "SELECT pg_sleep(random() / 2)::text",
        Base::Sqlite(_) => {
            "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 50000)
             SELECT count(*) FROM c"
        }
    }
}

fn settings(org: SocketAddr, slow: &str) -> String {
    format!(
        r#"
[[destination]]
name = "contacts"
kind = "salesforce"
api = "bulk-v2"
object = "{OBJECT}"
login_url = "http://{org}"
client_id = "app"
client_secret = "secret"
columns = {{ LastName = "payload:/name", Version__c = "payload:/number", FirstName = "first" }}
hydrate = '''SELECT msg_key, 'since ' || min(number) AS first FROM shop_order
             WHERE msg_key IN (:ids) AND ({slow}) IS NOT NULL GROUP BY msg_key'''
hydrate_id = "msg_key"

[destination.bulk]
rows = {JOB_ROWS}
linger = "50ms"
poll_first = "20ms"
poll_max = "200ms"
sweep_every = "500ms"
orphan_age = "2s"
transfer_timeout = "2s"

[destination.limits]
timeout = "2s"

[destination.retry]
attempts = 400
first = "10ms"
max = "20ms"

[destination.breaker]
open_for = "300ms"
"#
    )
}

fn well() -> Faults {
    let mut faults = Faults::default();
    // A job takes a moment, in which its worker may die.
    faults.bulk.queued_ms = 20;
    faults.bulk.round_ms = 10;
    faults.bulk.chunk_rows = 20;
    faults.limits.api_max = CALLS_MAX;
    faults
}

/// The org has one ailment after the other until the faults are over.
async fn ail(org: Arc<RunningSimulator>, mut rng: Rng, context: FlowContext) {
    while !context.control.over.load(Relaxed) {
        let faults = ailment(&mut rng);
        let named = faults.http.first().map(|fault| fault.action);
        let job = faults.jobs.first().and_then(|fault| fault.fail_after_rows);
        context
            .event_log
            .note(format_args!("the org: {named:?}, the next job fails after {job:?} rows"));
        org.set_faults(faults);
        tokio::time::sleep(rng.between(AILMENT.0, AILMENT.1)).await;
    }
}

fn ailment(rng: &mut Rng) -> Faults {
    let mut faults = Faults { seed: rng.next(), ..well() };
    if rng.percent(JOB_FAILS_PERCENT) {
        let fail_after_rows = Some(1 + rng.below(FAILS_AFTER_ROWS));
        faults.jobs.push(JobFault { fail_after_rows, ..JobFault::default() });
    } else {
        faults.rows.push(RowFault {
            chance: Some(LOCKED),
            code: "UNABLE_TO_LOCK_ROW".to_owned(),
            message: "locked by another transaction".to_owned(),
            ..RowFault::default()
        });
    }
    let action = match rng.below(8) {
        0 => HttpAction::DropBefore,
        1 => HttpAction::DropAfter,
        2 => HttpAction::SessionExpired,
        3 => HttpAction::Unavailable,
        4 => HttpAction::ServerError,
        5 => HttpAction::Break,
        _ => HttpAction::None,
    };
    let mut http = HttpFault { action, chance: Some(CHANCE), ..HttpFault::default() };
    if action == HttpAction::SessionExpired {
        // After a refused login, or a new session that is refused, relais waits for an operator; not
        // after a session that expired.
        http.path = Pattern::new(DATA).unwrap_or_default();
        (http.times, http.chance) = (Some(1), None);
    }
    faults.http.push(http);
    faults
}
