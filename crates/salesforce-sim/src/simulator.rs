//! The simulator as a library.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use serde_json::Value as Json;
use tokio::{net::TcpListener, task::JoinSet};

use crate::{
    bulk,
    config::SimulatorConfig,
    data::version::Version,
    faults::Faults,
    http::server::{Transport, serve},
    ledger::EffectLedger,
    org::SimulatedOrg,
};

/// Starts simulators.
#[derive(Debug)]
pub struct Simulator;

impl Simulator {
    /// Starts to listen. Needs a tokio runtime with time and network.
    pub async fn start(config: SimulatorConfig) -> io::Result<RunningSimulator> {
        let sim = Arc::new(SimulatedOrg::new(config.schema, config.auth, config.faults));
        let mut tasks = JoinSet::new();
        let listener = TcpListener::bind(config.listen).await?;
        let address = listener.local_addr()?;
        let mut tls_address = None;
        if let Some(tls) = config.tls {
            let transport = Transport::tls(&tls.pem)?;
            let listener = TcpListener::bind(tls.listen).await?;
            tls_address = Some(listener.local_addr()?);
            let sim = Arc::clone(&sim);
            tasks.spawn(async move { match serve(sim, listener, transport).await {} });
        }
        let server = serve(Arc::clone(&sim), listener, Transport::Plain);
        tasks.spawn(async move { match server.await {} });
        let engine = bulk::run(Arc::clone(&sim));
        tasks.spawn(async move { match engine.await {} });
        Ok(RunningSimulator { sim, tasks, address, tls_address })
    }
}

/// A running simulator. It stops when dropped.
#[derive(Debug)]
pub struct RunningSimulator {
    sim: Arc<SimulatedOrg>,
    tasks: JoinSet<()>,
    address: SocketAddr,
    tls_address: Option<SocketAddr>,
}

impl RunningSimulator {
    /// Returns its URL, e.g. `http://127.0.0.1:8080`: login URL and instance URL in one.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns its URL with TLS. The host is `localhost`, for which a certificate can be issued.
    pub fn tls_url(&self) -> Option<String> {
        self.tls_address.map(|address| format!("https://localhost:{}", address.port()))
    }

    /// Returns all writes so far.
    pub fn ledger(&self) -> EffectLedger {
        self.sim.org().ledger.clone()
    }

    /// Returns all records of an object, oldest first; empty if there is no such object.
    pub fn records(&self, object: &str) -> Vec<Json> {
        let org = self.sim.org();
        let Some(object) = org.tables.schema.object(object) else { return Vec::new() };
        let version = Version::last().to_string();
        org.tables.all(object.index).map(|record| record.to_json(object, &version)).collect()
    }

    /// Returns all bulk jobs, in the format of the API.
    pub fn jobs(&self) -> Vec<Json> {
        match bulk::overview(&self.sim.org()) {
            Json::Array(jobs) => jobs,
            _ => Vec::new(),
        }
    }

    /// Returns the number of calls by shape, e.g. `GET jobs/ingest/{id}`.
    pub fn calls(&self) -> std::collections::BTreeMap<String, u64> {
        self.sim.org().calls.clone()
    }

    pub fn faults(&self) -> Faults {
        self.sim.org().faults.faults().clone()
    }

    /// Replaces all faults and settings; counts are reset and stuck jobs continue.
    pub fn set_faults(&self, faults: Faults) {
        self.sim.org().set_faults(faults);
        self.sim.wake.notify_one();
    }

    /// Advances all jobs by this many rounds.
    pub fn tick(&self, rounds: usize) {
        for _ in 0..rounds {
            bulk::tick(&self.sim);
        }
    }

    /// Advances the clock: sessions expire, limits are reset, old jobs are removed.
    pub fn skip(&self, time: Duration) {
        self.sim.org().clock.skip(time);
    }

    /// Ends all sessions: the next call of each client gets 401.
    pub fn expire_sessions(&self) {
        self.sim.org().sessions.end_all();
    }

    /// Removes everything except sessions and schema.
    pub fn reset(&self) {
        self.sim.org().reset();
    }

    /// Closes the listeners and all connections.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}
