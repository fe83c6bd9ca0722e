//! `[[destination]]` and what belongs to it.

use std::{fmt, path::PathBuf, time::Duration};

use relais::salesforce::{Api, OnMissing};
use relais_core::{breaker::BreakerPolicy, outbox::OnDeadLetter, retry::RetryPolicy};
use reqwest::Url;
use secrecy::SecretString;

use crate::settings::quantity::Rate;

/// `[[destination]]`
#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) name: String,
    pub(crate) target: Target,
    pub(crate) on_dead_letter: OnDeadLetter,
    pub(crate) retry: RetryPolicy,
    pub(crate) limits: Limits,
    pub(crate) breaker: BreakerPolicy,
}

/// `[destination.limits]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) rate: Option<Rate>,
    pub(crate) concurrency: u32,
    pub(crate) timeout: Duration,
}

/// What a destination is.
#[derive(Debug)]
pub(crate) enum Target {
    Http(Box<HttpTarget>),
    Kafka(KafkaTarget),
    Salesforce(Box<SalesforceTarget>),
    /// JSON lines; to stdout without a path.
    Log {
        path: Option<PathBuf>,
    },
}

impl Target {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::Kafka(_) => "kafka",
            Self::Salesforce(_) => "salesforce",
            Self::Log { .. } => "log",
        }
    }
}

/// A destination of kind `kafka`.
#[derive(Debug)]
pub(crate) struct KafkaTarget {
    pub(crate) brokers: String,
    pub(crate) topic: String,
    pub(crate) cloudevents: bool,
    pub(crate) options: Vec<(String, SecretString)>,
}

/// A destination of kind `salesforce`.
#[derive(Debug)]
pub(crate) struct SalesforceTarget {
    pub(crate) login_url: String,
    pub(crate) auth: SalesforceAuth,
    pub(crate) api: Api,
    /// Empty for graphs, whose messages name their objects.
    pub(crate) object: String,
    pub(crate) external_id: String,
    pub(crate) api_version: String,
    pub(crate) columns: Vec<(String, String)>,
    pub(crate) hydrate: Option<Hydrate>,
    pub(crate) superseded: Option<String>,
    pub(crate) token_life: Duration,
    pub(crate) bulk: BulkTuning,
}

/// How we prove to an org who we are.
#[derive(Debug)]
pub(crate) enum SalesforceAuth {
    ClientCredentials {
        client_id: String,
        client_secret: SecretString,
    },
    JwtBearer {
        client_id: String,
        username: String,
        private_key: SecretString,
        audience: Option<String>,
    },
    RefreshToken {
        client_id: String,
        client_secret: Option<SecretString>,
        refresh_token: SecretString,
        /// Encrypts the tokens that replace it, in the database.
        key: SecretString,
    },
}

/// Where fresh data comes from.
#[derive(Debug)]
pub(crate) struct Hydrate {
    pub(crate) sql: String,
    /// The column of its result with the id.
    pub(crate) id: String,
    /// The column with the version of the row.
    pub(crate) version: Option<String>,
    pub(crate) on_missing: OnMissing,
}

/// `[destination.bulk]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BulkTuning {
    /// Most rows of a job.
    pub(crate) rows: usize,
    /// With api `auto`: so many waiting rows make a job.
    pub(crate) from: usize,
    pub(crate) linger: Duration,
    pub(crate) poll_first: Duration,
    pub(crate) poll_max: Duration,
    pub(crate) transfer_timeout: Duration,
    pub(crate) sweep_every: Duration,
    pub(crate) orphan_age: Duration,
}

/// A destination of kind `http`.
pub(crate) struct HttpTarget {
    pub(crate) url: Url,
    pub(crate) method: &'static str,
    pub(crate) headers: Vec<(String, SecretString)>,
    pub(crate) secrets: Vec<SecretString>,
    pub(crate) cloudevents: bool,
    pub(crate) allow_private: bool,
}

impl HttpTarget {
    /// Only the origin of the URL: its path or query may be a secret.
    pub(crate) fn shown(&self) -> String {
        let rest = if self.url.path() == "/" && self.url.query().is_none() { "" } else { "/…" };
        format!("{}{rest}", self.url.origin().ascii_serialization())
    }
}

impl fmt::Debug for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTarget")
            .field("url", &self.shown())
            .field("method", &self.method)
            .field("headers", &self.headers)
            .field("secrets", &self.secrets)
            .field("cloudevents", &self.cloudevents)
            .field("allow_private", &self.allow_private)
            .finish()
    }
}
