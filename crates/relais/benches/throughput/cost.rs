//! The cost of messages: processor time of the server and of this program, WAL, and commits.

use std::time::Duration;

use anyhow::Result;

use crate::{
    fixture::Fixture,
    machine,
    report::{Entry, Report, Target, Unit},
};

/// The counters of a server that runs on this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerReading {
    /// All its processes, those that have ended included.
    pub(crate) cpu: Duration,
    pub(crate) wal_bytes: i64,
    /// Transactions that wrote.
    pub(crate) commits: i64,
}

/// All counters at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CostReading {
    client: Duration,
    server: Option<ServerReading>,
}

impl CostReading {
    pub(crate) async fn take<B: Fixture>(fixture: &B) -> Result<Self> {
        let server = fixture.server().await?;
        Ok(Self { client: machine::cpu_time(std::process::id())?, server })
    }

    /// Returns the cost of each of these messages since then.
    pub(crate) async fn since<B: Fixture>(self, fixture: &B, messages: u64) -> Result<Cost> {
        let now = Self::take(fixture).await?;
        let each = |total: f64| total / (messages.max(1) as f64);
        let micros = |later: Duration, earlier: Duration| {
            each(later.saturating_sub(earlier).as_secs_f64() * 1e6)
        };
        let server = now.server.zip(self.server).map(|(later, earlier)| ServerCost {
            cpu_us: micros(later.cpu, earlier.cpu),
            wal_bytes: each((later.wal_bytes - earlier.wal_bytes) as f64),
            commits: each((later.commits - earlier.commits) as f64),
        });
        Ok(Cost { client_us: micros(now.client, self.client), server })
    }
}

/// The cost of one message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    client_us: f64,
    server: Option<ServerCost>,
}

#[derive(Clone, Copy, Debug)]
struct ServerCost {
    cpu_us: f64,
    wal_bytes: f64,
    commits: f64,
}

/// The targets of the cost of one message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CostTargets {
    pub(crate) server_us: Target,
    pub(crate) client_us: Target,
    pub(crate) wal_bytes: Target,
}

pub(crate) const NO_TARGETS: CostTargets =
    CostTargets { server_us: Target::None, client_us: Target::None, wal_bytes: Target::None };

/// One figure with its cost, round by round, beside its yardstick.
pub(crate) struct CostLines<'a> {
    pub(crate) store: &'static str,
    pub(crate) name: &'a str,
    pub(crate) raw: &'a [Cost],
    pub(crate) relais: &'a [Cost],
    pub(crate) targets: CostTargets,
}

impl CostLines<'_> {
    /// Adds a line for each kind of cost; a store without a server has one.
    pub(crate) fn add_to(&self, report: &mut Report) {
        let CostTargets { server_us, client_us, wal_bytes } = self.targets;
        let server =
            |pick: fn(&ServerCost) -> f64| move |cost: &Cost| cost.server.as_ref().map(pick);
        self.line("server CPU a message", Unit::Micros, server_us, server(|it| it.cpu_us), report);
        let client = |cost: &Cost| Some(cost.client_us);
        self.line("client CPU a message", Unit::Micros, client_us, client, report);
        let wal = server(|it| it.wal_bytes);
        self.line("WAL a message", Unit::Bytes, wal_bytes, wal, report);
        let commits = server(|it| it.commits);
        self.line("commits a message", Unit::Number, Target::None, commits, report);
    }

    fn line(
        &self,
        what: &str,
        unit: Unit,
        target: Target,
        pick: impl Fn(&Cost) -> Option<f64>,
        report: &mut Report,
    ) {
        let relais: Vec<f64> = self.relais.iter().filter_map(&pick).collect();
        if relais.is_empty() {
            return;
        }
        report.add(Entry {
            store: self.store,
            name: format!("{}: {what}", self.name),
            unit,
            raw: self.raw.iter().filter_map(&pick).collect(),
            relais,
            target,
            note: String::new(),
        });
    }
}
