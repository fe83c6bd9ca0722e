//! The HTTP side: what it shows of the settings, and who may use it.

use std::{io, net::SocketAddr, sync::Arc};

use relais::{http::Tls, observe::Observer, repair::Declared};
use relais_admin::{
    AdminParts, AdminToken, ApiUsage, AskSource, Configuration, DestinationLimits, ServerFacts,
    SessionKey, SourceInfo,
};
use relais_core::{BoxFuture, control::ControlKind, store::StoreDriver};
use secrecy::ExposeSecret;

use super::{WireError, dead_letters, operator};
use crate::settings::{
    AdminSettings, Destination, Origin, Settings, SourceSettings, Target,
    explain::{Explained, explain},
    quantity::show_rate,
};

/// The HTTP side: where it listens, and what serves it until dropped.
pub(crate) type Served = (SocketAddr, BoxFuture<'static, io::Result<()>>);

/// The HTTP side, if the settings want one.
pub(crate) async fn admin(
    settings: &Settings,
    store: Arc<dyn StoreDriver>,
    observer: Arc<Observer>,
    states: Vec<(String, AskSource)>,
    usage: Vec<(String, ApiUsage)>,
) -> Result<Option<Served>, WireError> {
    let Some(admin) = &settings.admin else { return Ok(None) };
    let parts = AdminParts {
        operator: operator(settings, Arc::clone(&store)),
        dead_letters: dead_letters(settings, Arc::clone(&store)),
        declared: declared(settings),
        tokens: tokens(admin),
        session_key: session_key(admin),
        open_metrics: admin.open_metrics,
        sources: settings.sources.iter().map(source).collect(),
        limits: settings.destinations.iter().map(limits).collect(),
        configuration: configuration(settings),
        facts: facts(settings, store.as_ref()).await,
        store,
        observer,
        states,
        usage,
    };
    let tls = admin_certificate(settings)?;
    let wrong = |message| WireError { section: "admin".to_owned(), message };
    match relais_admin::bind_with(parts, admin.listen, tls).await {
        Ok((address, serve)) => Ok(Some((address, Box::pin(serve)))),
        Err(error) => Err(wrong(format!("cannot listen on {}: {error}", admin.listen))),
    }
}

/// Reads the certificate of `[admin]`, if it names one.
pub(crate) fn admin_certificate(settings: &Settings) -> Result<Option<Tls>, WireError> {
    let files = settings.admin.as_ref().and_then(|admin| admin.tls.as_ref());
    let wrong = |message| WireError { section: "admin".to_owned(), message };
    super::tls(files).map_err(wrong)
}

/// The sources as the settings declare them now.
pub(crate) fn declared(settings: &Settings) -> Vec<Declared> {
    let declared = settings.sources.iter().map(|source| Declared {
        topics: match &source.origin {
            Origin::Http(_) => vec![source.name.clone()],
            Origin::Kafka(kafka) => kafka.topics.clone(),
        },
        mapping: source.mapping.clone(),
    });
    declared.collect()
}

fn tokens(admin: &AdminSettings) -> Vec<AdminToken> {
    let shared = admin.token.iter().map(|token| AdminToken::shared(token.expose_secret()));
    shared.chain(admin.tokens.iter().cloned()).collect()
}

/// From a secret that the settings hold and nobody can compute from hashes; without one, of this process
/// alone.
fn session_key(admin: &AdminSettings) -> SessionKey {
    let secret = admin.session_key.as_ref().or(admin.token.as_ref());
    secret.map_or_else(SessionKey::random, |secret| SessionKey::of(secret.expose_secret()))
}

fn source(source: &SourceSettings) -> SourceInfo {
    let kind = match source.origin {
        Origin::Http(_) => "http",
        Origin::Kafka(_) => "kafka",
    };
    SourceInfo { name: source.name.clone(), kind }
}

fn limits(destination: &Destination) -> (String, DestinationLimits) {
    let limits = &destination.limits;
    let shown = DestinationLimits {
        rate: limits.rate.map(show_rate),
        concurrency: limits.concurrency,
        timeout_ms: u64::try_from(limits.timeout.as_millis()).unwrap_or(u64::MAX),
    };
    (destination.name.clone(), shown)
}

/// As `relais check` prints it: without secrets.
fn configuration(settings: &Settings) -> Vec<Configuration> {
    let of = |Explained { section, name, lines }| {
        let kind = ControlKind::parse(section)?;
        Some(Configuration { kind, name: name?, lines })
    };
    explain(settings).into_iter().filter_map(of).collect()
}

/// What the metrics page says of the process as a whole.
async fn facts(settings: &Settings, store: &dyn StoreDriver) -> ServerFacts {
    let target = |destination: &Destination| relais_admin::DestinationInfo {
        name: destination.name.clone(),
        kind: destination.target.kind().to_owned(),
        object: match &destination.target {
            Target::Salesforce(target) => Some(target.object.clone()),
            Target::Http(_) | Target::Kafka(_) | Target::Log { .. } => None,
        },
    };
    ServerFacts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        store: store.describe().await.unwrap_or_default().server,
        destinations: settings.destinations.iter().map(target).collect(),
    }
}
