//! The settings after reading: complete, checked, with defaults filled in.
//!
//! Invariant: `Debug` of any of these shows no secret.

mod destination;

use std::{fmt, net::SocketAddr, path::PathBuf, time::Duration};

use relais::postgres::PostgresOptions;
use relais_admin::AdminToken;
use relais_core::{
    extract::Mapping,
    process::{
        Definition,
        declared::{Declared, DeclaredCall},
    },
    query::Retention,
    retry::RetryPolicy,
    route::Route,
};
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};

pub(crate) use self::destination::*;
use super::{encryption::TlsFiles, findings::Place};
use crate::args::LogFormat;

/// One `relais.toml`.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) store: StoreSettings,
    /// Absent: no HTTP side at all.
    pub(crate) admin: Option<AdminSettings>,
    pub(crate) sources: Vec<SourceSettings>,
    pub(crate) routes: Vec<RouteSettings>,
    pub(crate) processes: Vec<ProcessSettings>,
    pub(crate) destinations: Vec<Destination>,
    /// Names of destinations that another program serves (`external = true`).
    pub(crate) external: Vec<String>,
    /// '' is the inbox that all programs without a name share.
    pub(crate) inbox_name: String,
    pub(crate) inbox_retry: RetryPolicy,
    /// How long a message waits for a worker that knows its event type.
    pub(crate) unknown_type_wait: Duration,
    pub(crate) retention: Retention,
    pub(crate) lease: Duration,
    pub(crate) log: LogSettings,
    pub(crate) telemetry: TelemetrySettings,
}

impl Settings {
    /// Whether a `[[destination]]` has this name, one that another program serves included.
    pub(crate) fn defines(&self, destination: &str) -> bool {
        self.destination_names().any(|name| name == destination)
    }

    pub(crate) fn destination_names(&self) -> impl Iterator<Item = &str> {
        let served = self.destinations.iter().map(|d| &d.name);
        served.chain(&self.external).map(String::as_str)
    }

    /// Whether `relais run` would have nothing at all to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.admin.is_none()
            && self.sources.is_empty()
            && self.routes.is_empty()
            && self.processes.is_empty()
            && self.destinations.is_empty()
    }
}

/// `[log]`
#[derive(Debug)]
pub(crate) struct LogSettings {
    pub(crate) format: Option<LogFormat>,
    /// A level, or levels by module.
    pub(crate) level: Option<String>,
}

/// `[telemetry]`
pub(crate) struct TelemetrySettings {
    /// Where traces go; absent: nowhere.
    pub(crate) otlp: Option<Url>,
    pub(crate) headers: Vec<(String, SecretString)>,
    pub(crate) service_name: String,
    /// The share of new traces that are recorded.
    pub(crate) sample: f64,
}

impl fmt::Debug for TelemetrySettings {
    /// Only the origin of the URL: its path or query may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let otlp = self.otlp.as_ref().map(|url| url.origin().ascii_serialization());
        f.debug_struct("TelemetrySettings")
            .field("otlp", &otlp)
            .field("headers", &self.headers)
            .field("service_name", &self.service_name)
            .field("sample", &self.sample)
            .finish()
    }
}

/// `[store]`
#[derive(Debug)]
pub(crate) struct StoreSettings {
    pub(crate) url: StoreUrl,
    pub(crate) unsafe_durability: bool,
    /// Whether `relais run` brings the schema up to date by itself.
    pub(crate) migrate: bool,
    /// How long `relais run` waits at its start for a database that does not answer.
    pub(crate) wait: Duration,
    /// The schema of the tables, in PostgreSQL.
    pub(crate) schema: Option<String>,
    /// Most connections to PostgreSQL.
    pub(crate) connections: Option<u32>,
}

impl StoreSettings {
    pub(crate) fn postgres(&self) -> PostgresOptions {
        let mut options = PostgresOptions::default().unsafe_durability(self.unsafe_durability);
        options.schema.clone_from(&self.schema);
        if let Some(connections) = self.connections {
            options.connections_max = connections as usize;
        }
        options
    }
}

/// Where the rows are kept.
#[derive(Clone)]
pub(crate) enum StoreUrl {
    Sqlite(PathBuf),
    Postgres { url: SecretString, shown: String },
}

impl StoreUrl {
    /// Host and port, or the file: what an operator checks when it does not answer.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Sqlite(path) => path.display().to_string(),
            Self::Postgres { url, .. } => relais::postgres::addresses(url.expose_secret()),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres { shown, .. } => f.write_str(shown),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

/// `[admin]`
#[derive(Debug)]
pub(crate) struct AdminSettings {
    pub(crate) listen: SocketAddr,
    pub(crate) token: Option<SecretString>,
    /// What sessions are signed with; equal in all replicas.
    pub(crate) session_key: Option<SecretString>,
    /// Whether `/metrics` is answered without a token.
    pub(crate) open_metrics: bool,
    /// `[[admin.tokens]]`, of people and programs; only their hashes.
    pub(crate) tokens: Vec<AdminToken>,
    pub(crate) tls: Option<TlsFiles>,
}

/// `[[source]]`
#[derive(Debug)]
pub(crate) struct SourceSettings {
    pub(crate) place: Place,
    pub(crate) name: String,
    pub(crate) mapping: Mapping,
    pub(crate) origin: Origin,
}

/// What a source is.
#[derive(Debug)]
pub(crate) enum Origin {
    Http(HttpOrigin),
    Kafka(KafkaOrigin),
}

/// A source of kind `http`.
#[derive(Debug)]
pub(crate) struct HttpOrigin {
    pub(crate) listen: SocketAddr,
    pub(crate) invalid: Invalid,
    pub(crate) body_max: usize,
    pub(crate) token: Option<SecretString>,
    pub(crate) secrets: Vec<SecretString>,
    pub(crate) tls: Option<TlsFiles>,
}

/// A source of kind `kafka`.
#[derive(Debug)]
pub(crate) struct KafkaOrigin {
    pub(crate) brokers: String,
    pub(crate) group: String,
    pub(crate) topics: Vec<String>,
    pub(crate) start: Start,
    pub(crate) options: Vec<(String, SecretString)>,
}

/// Where a Kafka source begins in a partition nobody has read yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    Earliest,
    Latest,
}

/// What an HTTP source does with a body that is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    /// Keeps it as `SERDE_ERROR` and acknowledges.
    Store,
    /// Answers 400 and keeps nothing.
    Reject,
}

/// `[[route]]`
#[derive(Debug)]
pub(crate) struct RouteSettings {
    /// Where its destination is named.
    pub(crate) place: Place,
    pub(crate) route: Route,
}

/// `[[process]]`
#[derive(Debug)]
pub(crate) struct ProcessSettings {
    pub(crate) place: Place,
    /// As it is written, for explanations.
    pub(crate) declared: Declared,
    pub(crate) definition: Definition,
}

impl ProcessSettings {
    /// `order version 2`
    pub(crate) fn title(&self) -> String {
        format!("{} version {}", self.declared.process_type, self.declared.version)
    }

    /// Every call with its step, each compensation behind its step.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (&str, &DeclaredCall)> {
        self.declared.steps.iter().flat_map(|step| {
            let calls = std::iter::once(&step.call).chain(&step.compensation);
            calls.map(|call| (step.name.as_str(), call))
        })
    }
}
