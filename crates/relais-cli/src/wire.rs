//! From settings to the parts of a running relais. The only place that constructs them.

mod admin;
mod connect;
mod dead_letters;
#[cfg_attr(not(feature = "kafka"), path = "wire/without_kafka.rs")]
mod kafka;
mod salesforce;

use std::{fmt, net::SocketAddr, sync::Arc};

pub(crate) use self::{
    admin::{Served, admin, admin_certificate, declared},
    connect::{Connection, connect},
    dead_letters::dead_letters,
};
use relais::{
    App, BulkSettings, BulkTarget, DestinationSettings, Hydrator,
    http::{
        HttpPublisher, HttpPublisherSettings, HttpSource, HttpSourceSettings, Tls, WebhookSecret,
    },
    log::LogPublisher,
    postgres::PostgresStore,
    process::Operator,
    salesforce::ApiCallBudget,
    sqlite::{SqliteOptions, SqliteStore},
};
use relais_admin::{ApiUsage, AskSource, CallsUsed};
use relais_core::{
    InvalidSettings,
    credential::Credentials,
    publisher::Publisher,
    source::Source,
    store::{StoreDriver, StoreError},
};
use secrecy::{ExposeSecret, SecretString};

use crate::settings::{
    Destination, HttpOrigin, HttpTarget, Hydrate, Invalid, Origin, Settings, SourceSettings,
    StoreUrl, Target, TlsFiles,
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

    fn hydrator(&self, Hydrate { sql, id, .. }: &Hydrate) -> Result<Arc<dyn Hydrator>, String> {
        Ok(match self {
            Self::Sqlite(store) => Arc::new(relais::sqlite::SqlHydrator::new(store, sql, id)?),
            Self::Postgres(store) => Arc::new(relais::postgres::SqlHydrator::new(store, sql, id)?),
        })
    }

    /// The names of the columns that a `hydrate` gives.
    async fn hydrate_columns(
        &self,
        Hydrate { sql, id, .. }: &Hydrate,
    ) -> Result<Vec<String>, String> {
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

    /// Asks each `hydrate` for a row that is not there, to see whether it can be asked at all.
    pub(crate) async fn try_hydrate(&self, settings: &Settings) -> Vec<WireError> {
        let mut errors = Vec::new();
        for destination in &settings.destinations {
            let Some(hydrate) = hydrate_of(destination) else { continue };
            let wrong = |why: String| WireError {
                section: format!("destination[{}].hydrate", destination.name),
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
                    errors.extend(missing.map(|why| WireError {
                        section: format!("destination[{}].columns", destination.name),
                        message: why,
                    }));
                }
                Err(why) => errors.push(wrong(why)),
            }
        }
        errors
    }
}

/// An id no row has.
const NO_ID: &str = "relais check: no such id";

fn hydrate_of(destination: &Destination) -> Option<&Hydrate> {
    match &destination.target {
        Target::Salesforce(target) => target.hydrate.as_ref(),
        Target::Http(_) | Target::Kafka(_) | Target::Log { .. } => None,
    }
}

/// A part that could not be made, by its section.
#[derive(Debug)]
pub(crate) struct WireError {
    section: String,
    message: String,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.section, self.message)
    }
}

/// A relais ready to start, and what there is to know of its sources.
pub(crate) struct Wired {
    pub(crate) app: App,
    /// By source name.
    pub(crate) listening: Vec<(String, SocketAddr)>,
    /// What sources know of their origins, by source name.
    pub(crate) states: Vec<(String, AskSource)>,
    /// How much of an org's calls is used, by destination name.
    pub(crate) usage: Vec<(String, ApiUsage)>,
}

/// What delivers to a destination, and how much of its calls is used where that is known.
struct Made {
    delivers: Delivers,
    budget: Option<ApiCallBudget>,
}

enum Delivers {
    Single(Arc<dyn Publisher>),
    Bulk(Arc<dyn BulkTarget>, Box<BulkSettings>),
}

/// Puts everything together; the sources listen from here on.
pub(crate) async fn app(
    settings: &Settings,
    database: &Database,
    store: Arc<dyn StoreDriver>,
) -> Result<Wired, WireError> {
    let mut app = App::new(store)
        .inbox(&settings.inbox_name)
        .inbox_retry(settings.inbox_retry)
        .unknown_type_wait(settings.unknown_type_wait)
        .retention(settings.retention)
        .lease(settings.lease);
    for route in &settings.routes {
        app = app.route(route.route.clone());
    }
    for process in &settings.processes {
        app = app.process(process.definition.clone());
    }
    let (mut sessions, mut usage) = (salesforce::Sessions::default(), Vec::new());
    for destination in &settings.destinations {
        let Made { delivers, budget } = make(destination, Some(database), &mut sessions)?;
        let name = &destination.name;
        app = match delivers {
            Delivers::Single(publisher) => {
                app.destination_with(name, publisher, guards(destination))
            }
            Delivers::Bulk(target, settings) => app.bulk_destination(name, target, *settings),
        };
        usage.extend(budget.map(|budget| (name.clone(), api_usage(budget))));
    }
    let (mut listening, mut states) = (Vec::new(), Vec::new());
    for settings in &settings.sources {
        let source: Box<dyn Source> = match &settings.origin {
            Origin::Kafka(origin) => {
                let (source, state) = kafka::source(settings, origin)?;
                states.push((settings.name.clone(), state));
                source
            }
            Origin::Http(origin) => {
                let source = HttpSource::bind(http_source(settings, origin)?)
                    .await
                    .map_err(|error| settings.error(error))?;
                listening.push((settings.name.clone(), source.local_addr()));
                Box::new(source)
            }
        };
        app = app.source(&settings.name, source);
    }
    Ok(Wired { app, listening, states, usage })
}

/// What acts on processes, with the definitions of the settings.
pub(crate) fn operator(settings: &Settings, store: Arc<dyn StoreDriver>) -> Operator {
    let definitions = settings.processes.iter().map(|process| process.definition.clone());
    Operator::new(store, definitions.collect())
}

/// Makes every part that needs no connection, to see whether it can be made.
pub(crate) fn rehearse(settings: &Settings) -> Vec<WireError> {
    let mut sessions = salesforce::Sessions::default();
    let destinations: Vec<WireError> =
        settings.destinations.iter().filter_map(|d| make(d, None, &mut sessions).err()).collect();
    let sources = settings.sources.iter().filter_map(|source| match &source.origin {
        Origin::Http(origin) => http_source(source, origin).err(),
        Origin::Kafka(origin) => kafka::source(source, origin).err(),
    });
    destinations.into_iter().chain(sources).collect()
}

fn guards(destination: &Destination) -> DestinationSettings {
    let settings = DestinationSettings::default()
        .retry(destination.retry)
        .on_dead_letter(destination.on_dead_letter)
        .concurrency(usize::try_from(destination.limits.concurrency).unwrap_or(usize::MAX))
        .timeout(destination.limits.timeout)
        .breaker(destination.breaker);
    match destination.limits.rate {
        Some(rate) => settings.rate(rate.calls, rate.period),
        None => settings,
    }
}

/// Without a database, what would be read from it is missing; everything else is made.
fn make(
    destination: &Destination,
    database: Option<&Database>,
    sessions: &mut salesforce::Sessions,
) -> Result<Made, WireError> {
    let publisher: Arc<dyn Publisher> = match &destination.target {
        Target::Salesforce(target) => {
            let hydrator: Option<Arc<dyn Hydrator>> = match (&target.hydrate, database) {
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
        Target::Log { path: None } => Arc::new(LogPublisher::stdout()),
        Target::Log { path: Some(path) } => Arc::new(LogPublisher::file(path)),
        Target::Kafka(kafka) => kafka::publisher(destination, kafka)?,
        Target::Http(http) => {
            let made = http_settings(destination, http)
                .and_then(|settings| Ok(HttpPublisher::new(settings)?));
            Arc::new(made.map_err(|error| destination.error(error))?)
        }
    };
    Ok(Made { delivers: Delivers::Single(publisher), budget: None })
}

fn api_usage(budget: ApiCallBudget) -> ApiUsage {
    Arc::new(move || budget.usage().map(|usage| CallsUsed { used: usage.used, limit: usage.limit }))
}

fn http_settings(
    destination: &Destination,
    http: &HttpTarget,
) -> Result<HttpPublisherSettings, String> {
    let headers = http.headers.iter().map(|(name, value)| (name.clone(), value.clone()));
    Ok(HttpPublisherSettings {
        method: http.method.parse()?,
        headers: headers.collect(),
        secrets: webhook_secrets(&http.secrets)?,
        cloudevents: http.cloudevents,
        allow_private: http.allow_private,
        timeout: destination.limits.timeout,
        ..HttpPublisherSettings::new(http.url.as_str())
    })
}

/// Connects to the target of a destination, without a message.
async fn probe_http(destination: &Destination, http: &HttpTarget) -> Result<String, String> {
    HttpPublisher::new(http_settings(destination, http)?)?.probe().await
}

fn http_source(
    source: &SourceSettings,
    http: &HttpOrigin,
) -> Result<HttpSourceSettings, WireError> {
    let secrets = webhook_secrets(&http.secrets).map_err(|error| source.error(error))?;
    Ok(HttpSourceSettings {
        invalid: match http.invalid {
            Invalid::Store => relais::http::OnInvalidBody::Store,
            Invalid::Reject => relais::http::OnInvalidBody::Reject,
        },
        token: http.token.clone(),
        secrets,
        body_max: http.body_max,
        tls: tls(http.tls.as_ref()).map_err(|error| source.error(error))?,
        ..HttpSourceSettings::new(&source.name, http.listen, source.mapping.clone())
    })
}

fn tls(files: Option<&TlsFiles>) -> Result<Option<Tls>, String> {
    let load = |files: &TlsFiles| Tls::load(&files.certificate, &files.key);
    files.map(load).transpose().map_err(|error| error.to_string())
}

impl SourceSettings {
    fn error(&self, message: impl fmt::Display) -> WireError {
        WireError { section: format!("source[{}]", self.name), message: message.to_string() }
    }
}

impl Destination {
    fn error(&self, message: impl fmt::Display) -> WireError {
        WireError { section: format!("destination[{}]", self.name), message: message.to_string() }
    }
}

fn webhook_secrets(texts: &[SecretString]) -> Result<Vec<WebhookSecret>, String> {
    let secrets = texts.iter().map(|text| text.expose_secret().parse());
    Ok(secrets.collect::<Result<_, InvalidSettings>>()?)
}
