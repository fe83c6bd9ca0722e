//! The simulator as a library: start it, look into it, stop it.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use serde_json::Value as Json;
use tokio::{net::TcpListener, task::JoinSet};

use crate::{
    bulk,
    config::Config,
    data::version::Version,
    faults::Faults,
    http::server::{Transport, serve},
    ledger::Ledger,
    sim::Sim,
};

/// A simulator that is not running yet.
#[derive(Debug)]
pub struct Simulator;

impl Simulator {
    /// Listens and answers from now on. Needs a tokio runtime with time and network.
    pub async fn start(config: Config) -> io::Result<Running> {
        let sim = Arc::new(Sim::new(config.schema, config.auth, config.faults));
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
        Ok(Running { sim, tasks, address, tls_address })
    }
}

/// A running simulator. It ends when this is dropped.
#[derive(Debug)]
pub struct Running {
    sim: Arc<Sim>,
    tasks: JoinSet<()>,
    address: SocketAddr,
    tls_address: Option<SocketAddr>,
}

impl Running {
    /// Where it listens, e.g. `http://127.0.0.1:8080`: login URL and instance URL in one.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The same with TLS. The host is `localhost`, which a certificate can name.
    pub fn tls_url(&self) -> Option<String> {
        self.tls_address.map(|address| format!("https://localhost:{}", address.port()))
    }

    /// What was written so far.
    pub fn ledger(&self) -> Ledger {
        self.sim.org().ledger.clone()
    }

    /// All records of an object, oldest first; empty if there is no such object.
    pub fn records(&self, object: &str) -> Vec<Json> {
        let org = self.sim.org();
        let Some(object) = org.tables.schema.object(object) else { return Vec::new() };
        let version = Version::last().to_string();
        org.tables.all(object.index).map(|record| record.to_json(object, &version)).collect()
    }

    /// All bulk jobs, as the API describes them.
    pub fn jobs(&self) -> Vec<Json> {
        match bulk::overview(&self.sim.org()) {
            Json::Array(jobs) => jobs,
            _ => Vec::new(),
        }
    }

    /// How often each call was made, e.g. `GET jobs/ingest/{id}`.
    pub fn calls(&self) -> std::collections::BTreeMap<String, u64> {
        self.sim.org().calls.clone()
    }

    pub fn faults(&self) -> Faults {
        self.sim.org().faults.faults().clone()
    }

    /// Replaces all faults and settings; counts start again and stuck jobs go on.
    pub fn set_faults(&self, faults: Faults) {
        self.sim.org().set_faults(faults);
        self.sim.wake.notify_one();
    }

    /// Moves all jobs by so many rounds.
    pub fn tick(&self, rounds: usize) {
        for _ in 0..rounds {
            bulk::tick(&self.sim);
        }
    }

    /// Lets time go by: sessions end, quotas come back, old jobs are forgotten.
    pub fn skip(&self, time: Duration) {
        self.sim.org().clock.skip(time);
    }

    /// Ends all sessions: the next call of each client is answered with 401.
    pub fn expire_sessions(&self) {
        self.sim.org().sessions.end_all();
    }

    /// Forgets everything but sessions and schema.
    pub fn reset(&self) {
        self.sim.org().reset();
    }

    /// Closes the listeners and all connections.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}
