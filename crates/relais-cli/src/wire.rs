//! From settings to the parts of a running relais. The only place that constructs them.

#[cfg_attr(not(feature = "kafka"), path = "wire/without_kafka.rs")]
mod kafka;

use std::{fmt, io, net::SocketAddr, sync::Arc};

use relais::{
    App, DestinationSettings,
    http::{
        HttpPublisher, HttpPublisherSettings, HttpSource, HttpSourceSettings, Secret, WebhookSecret,
    },
    log::LogPublisher,
    observe::Observer,
    postgres::{PostgresOptions, PostgresStore},
    sqlite::{SqliteOptions, SqliteStore},
};
use relais_admin::{Admin, Losses};
use relais_core::{
    BoxFuture,
    publisher::Publisher,
    source::Source,
    store::{Store, StoreError},
};
use secrecy::{ExposeSecret, SecretString};

use crate::settings::{
    Destination, HttpOrigin, HttpTarget, Invalid, Origin, Settings, SourceSettings, StoreUrl,
    Target,
};

/// The store the settings name; connected, not migrated.
pub(crate) async fn store(settings: &Settings) -> Result<Arc<dyn Store>, StoreError> {
    let unsafe_durability = settings.store.unsafe_durability;
    Ok(match &settings.store.url {
        StoreUrl::Sqlite(path) => {
            let options = SqliteOptions { unsafe_durability, ..SqliteOptions::default() };
            Arc::new(SqliteStore::open(path, options).await?)
        }
        StoreUrl::Postgres { url, .. } => {
            let options = PostgresOptions { unsafe_durability, ..PostgresOptions::default() };
            Arc::new(PostgresStore::connect(url.expose_secret(), options).await?)
        }
    })
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
    /// What sources lost, by source name.
    pub(crate) losses: Vec<(String, Losses)>,
}

/// Puts everything together; the sources listen from here on.
pub(crate) async fn app(settings: &Settings, store: Arc<dyn Store>) -> Result<Wired, WireError> {
    let mut app = App::new(store)
        .inbox_retry(settings.inbox_retry)
        .retention(settings.retention)
        .lease(settings.lease);
    for route in &settings.routes {
        app = app.route(route.route.clone());
    }
    for destination in &settings.destinations {
        let publisher = publisher(destination)?;
        app = app.destination_with(&destination.name, publisher, guards(destination));
    }
    let (mut listening, mut losses) = (Vec::new(), Vec::new());
    for settings in &settings.sources {
        let source: Box<dyn Source> = match &settings.origin {
            Origin::Kafka(origin) => {
                let (source, lost) = kafka::source(settings, origin)?;
                losses.push((settings.name.clone(), lost));
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
    Ok(Wired { app, listening, losses })
}

/// The HTTP side: where it listens, and what serves it until dropped.
pub(crate) type Served = (SocketAddr, BoxFuture<'static, io::Result<()>>);

/// The HTTP side, if the settings want one.
pub(crate) async fn admin(
    settings: &Settings,
    store: Arc<dyn Store>,
    observer: Arc<Observer>,
    losses: Vec<(String, Losses)>,
) -> Result<Option<Served>, WireError> {
    let Some(admin) = &settings.admin else { return Ok(None) };
    let token = admin.token.as_ref().map(|token| token.expose_secret().to_owned());
    match Admin::new(store, observer, token).losses(losses).bind(admin.listen).await {
        Ok((address, serve)) => Ok(Some((address, Box::pin(serve)))),
        Err(error) => Err(WireError {
            section: "admin".to_owned(),
            message: format!("cannot listen on {}: {error}", admin.listen),
        }),
    }
}

/// Makes every part that needs no connection, to see whether it can be made.
pub(crate) fn rehearse(settings: &Settings) -> Vec<WireError> {
    let destinations = settings.destinations.iter().filter_map(|d| publisher(d).err());
    let sources = settings.sources.iter().filter_map(|source| match &source.origin {
        Origin::Http(origin) => http_source(source, origin).err(),
        Origin::Kafka(origin) => kafka::source(source, origin).err(),
    });
    destinations.chain(sources).collect()
}

fn guards(destination: &Destination) -> DestinationSettings {
    DestinationSettings {
        retry: destination.retry,
        on_dead_letter: destination.on_dead_letter,
        rate: destination.limits.rate.map(|rate| (rate.calls, rate.period)),
        concurrency: usize::try_from(destination.limits.concurrency).unwrap_or(usize::MAX),
        timeout: destination.limits.timeout,
        breaker: destination.breaker,
    }
}

fn publisher(destination: &Destination) -> Result<Arc<dyn Publisher>, WireError> {
    Ok(match &destination.target {
        Target::Log { path: None } => Arc::new(LogPublisher::stdout()),
        Target::Log { path: Some(path) } => Arc::new(LogPublisher::file(path)),
        Target::Kafka(kafka) => kafka::publisher(destination, kafka)?,
        Target::Http(http) => {
            let made = http_settings(destination, http).and_then(HttpPublisher::new);
            Arc::new(made.map_err(|error| destination.error(error))?)
        }
    })
}

fn http_settings(
    destination: &Destination,
    http: &HttpTarget,
) -> Result<HttpPublisherSettings, String> {
    let headers = http.headers.iter().map(|(name, value)| (name.clone(), secret(value)));
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

fn http_source(
    source: &SourceSettings,
    http: &HttpOrigin,
) -> Result<HttpSourceSettings, WireError> {
    let secrets = webhook_secrets(&http.secrets).map_err(|error| source.error(error))?;
    Ok(HttpSourceSettings {
        invalid: match http.invalid {
            Invalid::Store => relais::http::Invalid::Store,
            Invalid::Reject => relais::http::Invalid::Reject,
        },
        token: http.token.as_ref().map(secret),
        secrets,
        body_max: http.body_max,
        ..HttpSourceSettings::new(&source.name, http.listen, source.mapping.clone())
    })
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

fn secret(text: &SecretString) -> Secret {
    Secret::new(text.expose_secret())
}

fn webhook_secrets(texts: &[SecretString]) -> Result<Vec<WebhookSecret>, String> {
    texts.iter().map(|text| text.expose_secret().parse()).collect()
}
