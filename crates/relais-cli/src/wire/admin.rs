//! The admin listener: the part of the configuration that it shows, and its tokens.

use std::{collections::HashMap, io, net::SocketAddr, sync::Arc};

use relais::{http::Tls, observe::Observer, repair::DeclaredSource};
use relais_admin::{
    AdminListener, AdminParts, AdminToken, ApiUsage, AskSource, Configuration, DestinationLimits,
    ServerFacts, SessionKey, SourceInfo,
};
use relais_core::{BoxFuture, control::ControlKind, store::StoreDriver, text};
use secrecy::ExposeSecret;

use super::{WireError, dead_letters, handler, operator};
use crate::settings::{
    AdminKeys, DestinationConfig, FilePlace, Settings, SourceOrigin, SourceSettings, TargetConfig,
    explain::{SectionExplanation, explain},
    quantity::show_rate,
};

/// Characters of a digest: enough to see a difference.
const DIGEST_CHARS: usize = 16;

/// The address of the admin listener, and the future that serves it until dropped.
pub(crate) type AdminServer = (SocketAddr, BoxFuture<'static, io::Result<()>>);

/// Binds the admin listener if the configuration has `[admin]`. It answers probes until [`admin`] serves the rest.
pub(crate) async fn listen(settings: &Settings) -> Result<Option<AdminListener>, WireError> {
    let Some(admin) = &settings.admin else { return Ok(None) };
    let tls = admin_certificate(settings)?;
    match AdminListener::bind(admin.listen, tls, &tokens(settings, admin)).await {
        Ok(listener) => Ok(Some(listener)),
        Err(error) => Err(wrong(format!(
            "cannot listen on {}: {error}; change `admin.listen`, or stop the program that uses this address",
            admin.listen
        ))),
    }
}

/// Returns the address and the future that serves the console, the API, health and metrics.
pub(crate) async fn admin(
    settings: &Settings,
    listener: Option<AdminListener>,
    store: Arc<dyn StoreDriver>,
    observer: Arc<Observer>,
    states: Vec<(String, AskSource)>,
    usage: Vec<(String, ApiUsage)>,
) -> Option<AdminServer> {
    let (admin, listener) = (settings.admin.as_ref()?, listener?);
    let parts = AdminParts {
        operator: operator(settings, Arc::clone(&store)),
        dead_letters: dead_letters(settings, Arc::clone(&store)),
        declared: declared(settings),
        tokens: tokens(settings, admin),
        session_key: session_key(admin),
        open_metrics: admin.open_metrics,
        sources: settings.sources.iter().map(source).collect(),
        limits: settings
            .destinations
            .iter()
            .map(limits)
            .chain(settings.handlers.iter().map(handler::limits))
            .collect(),
        configuration: configuration(settings),
        facts: facts(settings, store.as_ref()).await,
        store,
        observer,
        states,
        usage,
    };
    Some((listener.address(), Box::pin(listener.serve(parts))))
}

fn wrong(message: String) -> WireError {
    WireError { place: FilePlace::default(), section: "admin".to_owned(), message }
}

/// Reads the certificate of `[admin]`, if it names one.
pub(crate) fn admin_certificate(settings: &Settings) -> Result<Option<Tls>, WireError> {
    let Some(admin) = &settings.admin else { return Ok(None) };
    super::tls(admin.tls_certificate.as_deref(), admin.tls_key.as_deref()).map_err(wrong)
}

/// Returns the sources as the configuration declares them now.
pub(crate) fn declared(settings: &Settings) -> Vec<DeclaredSource> {
    let declared = settings.sources.iter().map(|source| DeclaredSource {
        topics: match &source.origin {
            SourceOrigin::Amqp(amqp) => vec![amqp.address.clone()],
            SourceOrigin::Http(_) => vec![source.name.clone()],
            SourceOrigin::Kafka(kafka) => kafka.topics.clone(),
            SourceOrigin::Nats(nats) => vec![nats.stream.clone()],
            SourceOrigin::Rabbitmq(rabbitmq) => vec![rabbitmq.queue.clone()],
            SourceOrigin::Servicebus(servicebus) => vec![servicebus.address()],
        },
        mapping: source.mapping.clone(),
        schemas: match &source.origin {
            SourceOrigin::Kafka(kafka) => super::kafka::schemas(kafka),
            _ => None,
        },
    });
    declared.collect()
}

fn tokens(settings: &Settings, admin: &AdminKeys) -> Vec<AdminToken> {
    let shared = admin.token.iter().map(|token| AdminToken::shared(token.expose_secret()));
    shared.chain(settings.admin_tokens.iter().cloned()).collect()
}

/// Derives the key from a secret of the configuration that is not known from hashes. Without one it is
/// random, and holds for this process alone.
fn session_key(admin: &AdminKeys) -> SessionKey {
    let secret = admin.session_key.as_ref().or(admin.token.as_ref());
    secret.map_or_else(SessionKey::random, |secret| SessionKey::of(secret.expose_secret()))
}

fn source(source: &SourceSettings) -> SourceInfo {
    let kind = match source.origin {
        SourceOrigin::Amqp(_) => "amqp",
        SourceOrigin::Http(_) => "http",
        SourceOrigin::Kafka(_) => "kafka",
        SourceOrigin::Nats(_) => "nats",
        SourceOrigin::Rabbitmq(_) => "rabbitmq",
        SourceOrigin::Servicebus(_) => "servicebus",
    };
    SourceInfo { name: source.name.clone(), kind }
}

fn limits(destination: &DestinationConfig) -> (String, DestinationLimits) {
    let limits = &destination.limits;
    let shown = DestinationLimits {
        rate: limits.rate.map(show_rate),
        concurrency: limits.concurrency,
        timeout_ms: u64::try_from(limits.timeout.as_millis()).unwrap_or(u64::MAX),
    };
    (destination.name.clone(), shown)
}

/// Returns a digest of the configuration of each destination and handler, which processes compare. It covers the
/// path and query of a URL, which the explanation hides, but no credentials.
pub(super) fn digests(settings: &Settings) -> Vec<(String, String)> {
    let targets = settings.destinations.iter().filter_map(|one| match &one.target {
        TargetConfig::Http(http) => Some((one.name.clone(), http.url.as_str())),
        _ => None,
    });
    let handlers = settings.handlers.iter().map(|one| (one.target(), one.http.url.as_str()));
    let urls: HashMap<String, &str> = targets.chain(handlers).collect();
    let of = |mut one: Configuration| {
        one.lines.extend(urls.get(&one.name).map(|&url| url.to_owned()));
        let digest = text::sha256_hex(one.lines.join("\n").as_bytes());
        (one.name, digest[..DIGEST_CHARS].to_owned())
    };
    let all = configuration(settings).into_iter();
    all.filter(|one| one.kind == ControlKind::Destination).map(of).collect()
}

/// Explains the configuration as `relais check` prints it: without secrets.
fn configuration(settings: &Settings) -> Vec<Configuration> {
    let of = |SectionExplanation { section, name, lines }| {
        if section == "handler" {
            let name = relais::remote_target(&name?);
            return Some(Configuration { kind: ControlKind::Destination, name, lines });
        }
        let kind = ControlKind::parse(section)?;
        Some(Configuration { kind, name: name?, lines })
    };
    explain(settings).into_iter().filter_map(of).collect()
}

/// Returns what `/metrics` shows of the process as a whole.
async fn facts(settings: &Settings, store: &dyn StoreDriver) -> ServerFacts {
    let target = |destination: &DestinationConfig| relais_admin::DestinationInfo {
        name: destination.name.clone(),
        kind: destination.target.kind().to_owned(),
        object: match &destination.target {
            TargetConfig::Salesforce(target) => Some(target.object.clone()),
            TargetConfig::Amqp(_)
            | TargetConfig::Http(_)
            | TargetConfig::Kafka(_)
            | TargetConfig::Log(_)
            | TargetConfig::Nats(_)
            | TargetConfig::Rabbitmq(_)
            | TargetConfig::Servicebus(_) => None,
        },
    };
    ServerFacts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        store: store.describe().await.unwrap_or_default().server,
        destinations: settings
            .destinations
            .iter()
            .map(target)
            .chain(settings.handlers.iter().map(handler::info))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::settings::read;

    fn digests_of(destination: &str, handler: &str, header: &str) -> Vec<(String, String)> {
        let text = format!(
            "[[destination]]\nname = \"out\"\nkind = \"http\"\nurl = \"{destination}\"\n\
             headers = {{ x-key = \"{header}\" }}\n\
             [[handler]]\nname = \"billing\"\nkind = \"http\"\non = [\"OrderPlaced\"]\nurl = \"{handler}\"\n"
        );
        let (settings, _) = read(Path::new("relais.toml"), &text, &|_| None).expect("settings");
        let mut digests = digests(&settings);
        digests.sort();
        digests
    }

    #[test]
    fn a_digest_covers_path_and_query_of_a_url_and_no_credentials() {
        let (to, call) = ("https://a.example/v1/orders", "https://b.example/relais");
        let digests = digests_of(to, call, "k-1");
        let names: Vec<_> = digests.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["@billing", "out"]);
        for other in ["https://a.example/v2/orders", "https://a.example/v1/orders?tenant=2"] {
            let changed = digests_of(other, call, "k-1");
            assert_eq!(changed[0], digests[0]);
            assert_ne!(changed[1], digests[1], "{other}");
        }
        let changed = digests_of(to, "https://b.example/other", "k-1");
        assert_ne!(changed[0], digests[0]);
        assert_eq!(changed[1], digests[1]);
        assert_eq!(digests_of(to, call, "k-2"), digests, "a header may hold a credential");
    }
}
