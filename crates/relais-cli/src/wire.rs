//! From settings to the parts of a running relais. Only this module constructs them.

mod admin;
mod adopt;
#[cfg_attr(not(feature = "amqp"), path = "wire/without_amqp.rs")]
mod amqp;
mod brokers;
mod connect;
mod dead_letters;
mod handler;
#[cfg_attr(not(feature = "kafka"), path = "wire/without_kafka.rs")]
mod kafka;
#[cfg_attr(not(feature = "nats"), path = "wire/without_nats.rs")]
mod nats;
#[cfg_attr(not(feature = "rabbitmq"), path = "wire/without_rabbitmq.rs")]
mod rabbitmq;
mod salesforce;
#[cfg_attr(not(feature = "amqp"), path = "wire/without_servicebus.rs")]
mod servicebus;

use std::{fmt, net::SocketAddr, path::Path, sync::Arc};

pub(crate) use self::{
    admin::{AdminServer, admin, admin_certificate, declared, listen},
    connect::{ConnectionCheck, connect},
    dead_letters::dead_letters,
};
use relais::{
    App, BreakerPolicy, BulkSettings, BulkTarget, DestinationSettings, Hydrator, JsonGate,
    OnDeadLetter, RetryPolicy,
    http::{
        HttpPublisher, HttpPublisherSettings, HttpSource, HttpSourceKeys, HttpSourceSettings,
        HttpTargetKeys, Tls,
    },
    log::LogPublisher,
    postgres::PostgresStore,
    process::Operator,
    salesforce::{ApiCallBudget, SalesforceKeys},
    sqlite::{SqliteOptions, SqliteStore},
};
use relais_admin::{ApiUsage, AskSource, CallsUsed};
use relais_core::{
    credential::Credentials,
    publisher::Publisher,
    source::Source,
    store::{StoreDriver, StoreError},
};
use secrecy::ExposeSecret;

use crate::settings::{
    ConfigFinding, DestinationConfig, FilePlace, LimitKeys, Settings, SourceOrigin, SourceSettings,
    StoreUrl, TargetConfig,
};

/// A database: the store, and where fresh data is read.
pub(crate) enum Database {
    Sqlite(SqliteStore),
    Postgres(PostgresStore),
}

impl Database {
    /// Connects to what the settings name; does not migrate.
    pub(crate) async fn connect(settings: &Settings) -> Result<Self, StoreError> {
        let unsafe_durability = settings.store.unsafe_durability;
        Ok(match &settings.store.url {
            StoreUrl::Sqlite(path) => {
                let options = SqliteOptions::default().unsafe_durability(unsafe_durability);
                Self::Sqlite(SqliteStore::open(path, options).await?)
            }
            StoreUrl::Postgres { url, .. } => {
                let options = settings.store.postgres();
                Self::Postgres(PostgresStore::connect(url.expose_secret(), options).await?)
            }
        })
    }

    pub(crate) fn store(&self) -> Arc<dyn StoreDriver> {
        match self {
            Self::Sqlite(store) => Arc::new(store.clone()),
            Self::Postgres(store) => Arc::new(store.clone()),
        }
    }

    fn credentials(&self) -> Arc<dyn Credentials> {
        match self {
            Self::Sqlite(store) => Arc::new(store.clone()),
            Self::Postgres(store) => Arc::new(store.clone()),
        }
    }

    fn hydrator(&self, (sql, id): Hydrate<'_>) -> Result<Arc<dyn Hydrator>, String> {
        Ok(match self {
            Self::Sqlite(store) => Arc::new(relais::sqlite::SqlHydrator::new(store, sql, id)?),
            Self::Postgres(store) => Arc::new(relais::postgres::SqlHydrator::new(store, sql, id)?),
        })
    }

    /// Returns the names of the columns of a `hydrate`.
    async fn hydrate_columns(&self, (sql, id): Hydrate<'_>) -> Result<Vec<String>, String> {
        let columns = match self {
            Self::Sqlite(store) => {
                relais::sqlite::SqlHydrator::new(store, sql, id)?.columns().await
            }
            Self::Postgres(store) => {
                relais::postgres::SqlHydrator::new(store, sql, id)?.columns().await
            }
        };
        columns.map_err(|error| error.to_string())
    }

    /// Runs each `hydrate` for an id without a row, to see whether the statement works.
    pub(crate) async fn try_hydrate(&self, settings: &Settings) -> Vec<WireError> {
        let mut errors = Vec::new();
        for destination in &settings.destinations {
            let Some(hydrate) = hydrate_of(destination) else { continue };
            let wrong = |key: &str, why: String| WireError {
                place: destination.place,
                section: format!("destination[{}].{key}", destination.name),
                message: why,
            };
            let asked = match self.hydrator(hydrate) {
                Err(why) => Err(why),
                Ok(hydrator) => {
                    let asked = hydrator.hydrate(vec![NO_ID.to_owned()]).await;
                    asked.map(drop).map_err(|error| error.to_string())
                }
            };
            let columns = match asked {
                Ok(()) => self.hydrate_columns(hydrate).await,
                Err(why) => Err(why),
            };
            match columns {
                Ok(columns) => {
                    let missing = salesforce::missing_columns(destination, &columns);
                    errors.extend(missing.map(|why| wrong("columns", why)));
                }
                Err(why) => errors.push(wrong("hydrate", why)),
            }
        }
        errors
    }
}

/// An id that no row has.
const NO_ID: &str = "relais check: no such id";

/// A statement for fresh rows, and the column of its result with the id.
type Hydrate<'a> = (&'a str, &'a str);

fn hydrate_of(destination: &DestinationConfig) -> Option<Hydrate<'_>> {
    let TargetConfig::Salesforce(target) = &destination.target else { return None };
    let SalesforceKeys { hydrate, hydrate_id, .. } = &target.keys;
    Some((hydrate.as_deref()?, hydrate_id))
}

/// A part that could not be made, by its section.
#[derive(Debug)]
pub(crate) struct WireError {
    place: FilePlace,
    section: String,
    message: String,
}

impl WireError {
    /// Returns it as an error of the file.
    pub(crate) fn finding(self, file: &str) -> ConfigFinding {
        let Self { place, section: key, message } = self;
        ConfigFinding { place, key, ..ConfigFinding::of_file(file, message) }
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.section, self.message)
    }
}

/// A relais ready to start, and the state of its sources.
pub(crate) struct WiredApp {
    pub(crate) app: App,
    /// By source name.
    pub(crate) listening: Vec<(String, SocketAddr)>,
    /// The state of each source, by its name.
    pub(crate) states: Vec<(String, AskSource)>,
    /// The used part of an org's calls, by destination name.
    pub(crate) usage: Vec<(String, ApiUsage)>,
}

/// The parts of a destination: its deliveries, and the budget of calls where the target has one.
struct DestinationParts {
    delivers: DeliveryPath,
    budget: Option<ApiCallBudget>,
}

enum DeliveryPath {
    Single(Arc<dyn Publisher>),
    Bulk(Arc<dyn BulkTarget>, Box<BulkSettings>),
}

/// Builds the app; its sources listen from here on.
pub(crate) async fn app(
    settings: &Settings,
    database: &Database,
    store: Arc<dyn StoreDriver>,
) -> Result<WiredApp, WireError> {
    let mut app = App::new(store)
        .inbox(&settings.inbox_name)
        .inbox_retry(settings.inbox_retry)
        .unknown_type_wait(settings.unknown_type_wait)
        .retention(settings.retention)
        .lease(settings.lease)
        .poll_interval(settings.store.poll);
    for route in &settings.routes {
        app = app.route(route.route.clone());
    }
    for process in &settings.processes {
        app = app.process(process.definition.clone());
    }
    if !settings.adoptions.is_empty() {
        app = app.follow_adopted();
    }
    for name in &settings.external {
        app = app.external(name);
    }
    for event_type in &settings.ignored.event_types {
        app = app.ignore(event_type);
    }
    for handler in &settings.handlers {
        app = handler::add(app, handler, handler::make(handler)?);
    }
    let (mut sessions, mut usage) = (salesforce::SalesforceSessions::default(), Vec::new());
    for destination in &settings.destinations {
        let DestinationParts { delivers, budget } =
            make(destination, Some(database), &mut sessions)?;
        let name = &destination.name;
        app = match delivers {
            DeliveryPath::Single(publisher) => {
                let adopted = settings.adoptions.iter().any(|a| a.adoption.may_have(name));
                let publisher: Arc<dyn Publisher> =
                    if adopted { Arc::new(JsonGate::new(publisher)) } else { publisher };
                app.destination_with(name, publisher, guards(destination))
            }
            DeliveryPath::Bulk(target, settings) => app.bulk_destination(name, target, *settings),
        };
        usage.extend(budget.map(|budget| (name.clone(), api_usage(budget))));
    }
    for (name, digest) in admin::digests(settings) {
        app = app.configuration_digest(&name, &digest);
    }
    let (mut listening, mut states) = (Vec::new(), Vec::new());
    for settings in &settings.sources {
        let source: Box<dyn Source> = match (&settings.origin, brokers::source(settings)?) {
            (SourceOrigin::Http(origin), _) => {
                let source = HttpSource::bind(http_source(settings, origin)?)
                    .await
                    .map_err(|error| settings.error(error))?;
                listening.push((settings.name.clone(), source.local_addr()));
                Box::new(source)
            }
            (_, Some((source, state))) => {
                states.push((settings.name.clone(), state));
                source
            }
            (_, None) => continue,
        };
        app = app.source(&settings.name, source);
    }
    Ok(WiredApp { app, listening, states, usage })
}

/// Returns the operator of processes, with the definitions of the settings.
pub(crate) fn operator(settings: &Settings, store: Arc<dyn StoreDriver>) -> Operator {
    let definitions = settings.processes.iter().map(|process| process.definition.clone());
    Operator::new(store, definitions.collect()).inbox(&settings.inbox_name)
}

/// Builds every part that needs no connection, and returns those that fail.
pub(crate) fn validate(settings: &Settings) -> Vec<WireError> {
    let mut sessions = salesforce::SalesforceSessions::default();
    let destinations: Vec<WireError> =
        settings.destinations.iter().filter_map(|d| make(d, None, &mut sessions).err()).collect();
    let sources = settings.sources.iter().filter_map(|source| match &source.origin {
        SourceOrigin::Http(origin) => http_source(source, origin).err(),
        _ => brokers::source(source).err(),
    });
    let handlers = settings.handlers.iter().filter_map(|config| handler::make(config).err());
    destinations.into_iter().chain(sources).chain(handlers).collect()
}

fn guards(destination: &DestinationConfig) -> DestinationSettings {
    let DestinationConfig { retry, on_dead_letter, limits, breaker, batch, .. } = destination;
    guards_of(*retry, *on_dead_letter, limits, *breaker).batch_max(*batch as usize)
}

fn guards_of(
    retry: RetryPolicy,
    on_dead_letter: OnDeadLetter,
    limits: &LimitKeys,
    breaker: BreakerPolicy,
) -> DestinationSettings {
    let settings = DestinationSettings::default()
        .retry(retry)
        .on_dead_letter(on_dead_letter)
        .concurrency(limits.concurrency as usize)
        .timeout(limits.timeout)
        .breaker(breaker);
    match limits.rate {
        Some(rate) => settings.rate(rate.calls, rate.period),
        None => settings,
    }
}

/// Builds the parts of a destination. Without a database, a hydrator that fails replaces its own.
fn make(
    destination: &DestinationConfig,
    database: Option<&Database>,
    sessions: &mut salesforce::SalesforceSessions,
) -> Result<DestinationParts, WireError> {
    let publisher: Arc<dyn Publisher> = match &destination.target {
        TargetConfig::Salesforce(target) => {
            let hydrator: Option<Arc<dyn Hydrator>> = match (hydrate_of(destination), database) {
                (None, _) => None,
                (Some(_), None) => Some(Arc::new(salesforce::NoDatabase)),
                (Some(hydrate), Some(database)) => Some(
                    database
                        .hydrator(hydrate)
                        .map_err(|why| destination.error(format_args!("`hydrate`: {why}")))?,
                ),
            };
            return salesforce::make(destination, target, hydrator, database, sessions);
        }
        TargetConfig::Log(log) => Arc::new(match &log.path {
            None => LogPublisher::stdout(),
            Some(path) => LogPublisher::file(path),
        }),
        TargetConfig::Amqp(keys) => amqp::publisher(destination, keys)?,
        TargetConfig::Kafka(kafka) => kafka::publisher(destination, kafka)?,
        TargetConfig::Nats(keys) => nats::publisher(destination, keys)?,
        TargetConfig::Rabbitmq(keys) => rabbitmq::publisher(destination, keys)?,
        TargetConfig::Servicebus(keys) => servicebus::publisher(destination, keys)?,
        TargetConfig::Http(http) => {
            let made = HttpPublisher::new(http_settings(destination, http));
            Arc::new(made.map_err(|error| destination.error(error))?)
        }
    };
    Ok(DestinationParts { delivers: DeliveryPath::Single(publisher), budget: None })
}

fn api_usage(budget: ApiCallBudget) -> ApiUsage {
    Arc::new(move || budget.usage().map(|usage| CallsUsed { used: usage.used, limit: usage.limit }))
}

fn http_settings(destination: &DestinationConfig, http: &HttpTargetKeys) -> HttpPublisherSettings {
    HttpPublisherSettings { timeout: destination.limits.timeout, ..http.settings() }
}

/// Connects to the target of a destination, without a message.
async fn probe_http(
    destination: &DestinationConfig,
    http: &HttpTargetKeys,
) -> Result<String, String> {
    Ok(HttpPublisher::new(http_settings(destination, http))?.probe().await?)
}

fn http_source(
    source: &SourceSettings,
    http: &HttpSourceKeys,
) -> Result<HttpSourceSettings, WireError> {
    let tls = tls(http.tls_certificate.as_deref(), http.tls_key.as_deref());
    Ok(HttpSourceSettings {
        invalid: http.invalid,
        token: http.token.clone(),
        secrets: http.signing(),
        body_max: http.body_max,
        tls: tls.map_err(|error| source.error(error))?,
        ..HttpSourceSettings::new(&source.name, http.listen, source.mapping.clone())
    })
}

fn tls(certificate: Option<&Path>, key: Option<&Path>) -> Result<Option<Tls>, String> {
    let files = certificate.zip(key).map(|(certificate, key)| Tls::load(certificate, key));
    files.transpose().map_err(|error| error.to_string())
}

impl SourceSettings {
    fn error(&self, message: impl fmt::Display) -> WireError {
        let section = format!("source[{}]", self.name);
        WireError { place: self.place, section, message: message.to_string() }
    }
}

impl DestinationConfig {
    fn error(&self, message: impl fmt::Display) -> WireError {
        let section = format!("destination[{}]", self.name);
        WireError { place: self.place, section, message: message.to_string() }
    }
}
