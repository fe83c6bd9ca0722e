//! `relais check --connect`: tries every port, broker, target, log-in and statement of the configuration,
//! with the parts that `relais run` uses. Sends no message and changes nothing.

use std::{fs, io::ErrorKind, net::SocketAddr, path::Path};

use relais_core::{inspect::InspectExt, query::Filter};
use serde::Serialize;
use tokio::net::TcpListener;

use super::{
    Database, Hydrate, amqp, handler, hydrate_of, kafka, nats, rabbitmq, salesforce, servicebus,
};
use crate::settings::{DestinationConfig, Settings, SourceOrigin, TargetConfig};

/// Messages whose ids are tried with `hydrate`.
const SAMPLE_MAX: usize = 10;

/// The result of one try.
#[derive(Debug, Serialize)]
pub(crate) struct ConnectionCheck {
    /// The setting that decides about it: `source[hook].listen`.
    pub(crate) setting: String,
    pub(crate) ok: bool,
    /// The finding, or the error with its remedy.
    pub(crate) detail: String,
}

impl ConnectionCheck {
    fn new(section: &str, name: &str, key: &str, result: Result<String, String>) -> Self {
        let setting = match name {
            "" => format!("{section}.{key}"),
            name => format!("{section}[{name}].{key}"),
        };
        let ok = result.is_ok();
        Self { setting, ok, detail: result.unwrap_or_else(|why| why) }
    }
}

/// Tries everything; `database` is absent if it could not be reached.
pub(crate) async fn connect(
    settings: &Settings,
    database: Option<&Database>,
) -> Vec<ConnectionCheck> {
    let mut tried = Vec::new();
    let running = running_here(database).await;
    if let Some(admin) = &settings.admin {
        tried.push(ConnectionCheck::new(
            "admin",
            "",
            "listen",
            listen(admin.listen, running).await,
        ));
    }
    for source in &settings.sources {
        let (key, result) = match &source.origin {
            SourceOrigin::Http(http) => ("listen", listen(http.listen, running).await),
            SourceOrigin::Amqp(origin) => ("url", amqp::probe_source(origin).await),
            SourceOrigin::Kafka(origin) => ("brokers", kafka::probe_source(origin).await),
            SourceOrigin::Nats(origin) => ("url", nats::probe_source(&source.name, origin).await),
            SourceOrigin::Rabbitmq(origin) => ("url", rabbitmq::probe_source(origin).await),
            SourceOrigin::Servicebus(origin) => {
                ("connection", servicebus::probe_source(origin).await)
            }
        };
        tried.push(ConnectionCheck::new("source", &source.name, key, result));
        if let SourceOrigin::Kafka(origin) = &source.origin
            && let Some(result) = kafka::probe_registry(origin.registry()).await
        {
            tried.push(ConnectionCheck::new("source", &source.name, "registry_url", result));
        }
    }
    let mut sessions = salesforce::SalesforceSessions::default();
    for destination in &settings.destinations {
        tried.extend(target(destination, database, &mut sessions).await);
        if let (Some(hydrate), Some(database)) = (hydrate_of(destination), database) {
            let result = database.sample(destination, hydrate).await;
            tried.push(ConnectionCheck::new("destination", &destination.name, "hydrate", result));
        }
    }
    for handler in &settings.handlers {
        let result = handler::probe(handler).await;
        tried.push(ConnectionCheck::new("handler", &handler.name, "url", result));
    }
    tried
}

/// Returns the process id of a relais that works on this store and runs on this machine.
async fn running_here(database: Option<&Database>) -> Option<u32> {
    let reports = database?.store().reports().await.ok()?;
    let host = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let mut here = reports.iter().filter(|report| report.alive && report.host == host.trim());
    here.find(|report| Path::new(&format!("/proc/{}", report.pid)).exists()).map(|one| one.pid)
}

/// Binds the address for a moment.
async fn listen(address: SocketAddr, running: Option<u32>) -> Result<String, String> {
    match (TcpListener::bind(address).await, running) {
        (Ok(_), _) => Ok(format!("{address} is free")),
        (Err(error), Some(process)) if error.kind() == ErrorKind::AddrInUse => {
            Ok(format!("{address} is in use, and relais runs here as process {process}"))
        }
        (Err(error), _) => Err(format!(
            "cannot listen on {address}: {error}; choose another address, or stop the program that uses \
             it"
        )),
    }
}

async fn target(
    destination: &DestinationConfig,
    database: Option<&Database>,
    sessions: &mut salesforce::SalesforceSessions,
) -> Vec<ConnectionCheck> {
    let one =
        |key: &str, result| ConnectionCheck::new("destination", &destination.name, key, result);
    match &destination.target {
        TargetConfig::Http(http) => vec![one("url", super::probe_http(destination, http).await)],
        TargetConfig::Amqp(keys) => vec![one("url", amqp::probe_destination(keys).await)],
        TargetConfig::Kafka(keys) => {
            let broker = one("brokers", kafka::probe_destination(keys).await);
            let registry = kafka::probe_registry(keys.registry()).await;
            let registry = registry.map(|result| one("registry_url", result));
            [broker].into_iter().chain(registry).collect()
        }
        TargetConfig::Nats(keys) => vec![one("url", nats::probe_destination(keys).await)],
        TargetConfig::Rabbitmq(keys) => vec![one("url", rabbitmq::probe_destination(keys).await)],
        TargetConfig::Servicebus(keys) => {
            vec![one("connection", servicebus::probe_destination(keys).await)]
        }
        TargetConfig::Log(log) => {
            let Some(path) = &log.path else { return Vec::new() };
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let result = match folder {
                Some(folder) if !folder.is_dir() => {
                    Err(format!("there is no folder {}; create it", folder.display()))
                }
                _ => Ok(format!("{} can be made", path.display())),
            };
            vec![one("path", result)]
        }
        TargetConfig::Salesforce(target) => {
            let probed = salesforce::probe(target, database, sessions).await;
            probed.into_iter().map(|(key, result)| one(key, result.map_err(String::from))).collect()
        }
    }
}

impl Database {
    /// Runs `hydrate` for the newest messages of its destination.
    async fn sample(
        &self,
        destination: &DestinationConfig,
        hydrate: Hydrate<'_>,
    ) -> Result<String, String> {
        let filter = Filter {
            destination: Some(destination.name.clone()),
            limit: SAMPLE_MAX,
            ..Filter::default()
        };
        // Without tables there is no message either.
        let rows = self.store().list_outbox(filter).await.unwrap_or_default();
        let columns = self.hydrate_columns(hydrate).await?;
        if let Some(why) = salesforce::missing_columns(destination, &columns) {
            return Err(why);
        }
        let Some(newest) = rows.first() else {
            let columns = columns.join(", ");
            return Ok(format!("gives {columns}; there is no message yet to try it with"));
        };
        let ids: Vec<String> = rows.iter().map(|row| row.aggregate_id.clone()).collect();
        let hydrator = self.hydrator(hydrate)?;
        let found = hydrator.hydrate(ids.clone()).await.map_err(|error| error.to_string())?;
        if let Some(why) = found.failed.values().next() {
            return Err(format!("{why}; correct the row or the statement"));
        }
        match found.records.len() {
            0 => Err(format!(
                "gives no row for the newest messages, {:?} of outbox:{} among them; check that the \
                 statement finds rows by the aggregate id, in column `{}`",
                newest.aggregate_id, newest.id, hydrate.1
            )),
            found => Ok(format!("gives a row for {found} of the {} newest messages", ids.len())),
        }
    }
}
