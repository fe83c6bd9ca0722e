//! The settings of a Salesforce destination, and their validation without a call.

mod keys;

use std::{str::FromStr, time::Duration};

use relais_core::InvalidSettings;
use reqwest::Url;
use secrecy::SecretString;

pub use self::keys::SalesforceKeys;
use super::token::SalesforceSession;

/// The default version of the API.
pub const API_VERSION: &str = "v66.0";
/// The default size of a bulk job: one batch of Salesforce, so that rows of one job do not lock
/// each other.
pub const ROWS_DEFAULT: usize = 10_000;
/// Time that an access token is used; Salesforce does not report its lifetime.
const TOKEN_LIFE: Duration = Duration::from_secs(30 * 60);
/// The minimum age of an unknown open job before it is aborted.
pub const ORPHAN_AGE: Duration = Duration::from_secs(15 * 60);
/// Hosts that are never called without TLS.
const REAL_HOSTS: [&str; 3] = ["salesforce.com", "force.com", "salesforce.mil"];

/// The API that messages are sent with.
///
/// ```
/// use relais_connect::salesforce::Api;
///
/// assert_eq!("bulk-v2".parse(), Ok(Api::BulkV2));
/// assert!("soap".parse::<Api>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Api {
    /// Many rows in one job ([`super::SalesforceBulk`]).
    BulkV2,
    /// Up to 200 rows in one call ([`super::SalesforceCollections`]).
    Collections,
    /// Messages with several records, all or nothing ([`super::SalesforceGraph`]).
    Graph,
    /// Few rows through Collections, many in bulk jobs.
    #[default]
    Auto,
}

impl Api {
    /// Returns the name of the API in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BulkV2 => "bulk-v2",
            Self::Collections => "collections",
            Self::Graph => "graph",
            Self::Auto => "auto",
        }
    }
}

impl FromStr for Api {
    type Err = InvalidSettings;

    fn from_str(text: &str) -> Result<Self, InvalidSettings> {
        [Self::BulkV2, Self::Collections, Self::Graph, Self::Auto]
            .into_iter()
            .find(|api| api.as_str() == text)
            .ok_or_else(|| {
                let names = "`bulk-v2`, `collections`, `graph` or `auto`";
                InvalidSettings::new(format!("`{text}` is not an api; use {names}"))
            })
    }
}

/// The authentication.
#[derive(Clone, Debug)]
pub enum Auth {
    /// The app's own user; `login_url` must be the org's My Domain.
    ClientCredentials {
        /// The consumer key of the app.
        client_id: String,
        /// The consumer secret.
        client_secret: SecretString,
    },
    /// A signed claim for `username`. The key is PEM, RSA.
    JwtBearer {
        /// The consumer key of the app.
        client_id: String,
        /// The user on whose behalf relais acts.
        username: String,
        /// The private key, PEM.
        private_key: SecretString,
        /// By default `https://login.salesforce.com`, or `https://test.salesforce.com` for sandboxes.
        audience: Option<String>,
    },
    /// A refresh token that an operator obtained. If the org rotates it at every use, the session
    /// needs a [`super::TokenVault`]; without one it is refused.
    RefreshToken {
        /// The consumer key of the app.
        client_id: String,
        /// The consumer secret, if the app requires it.
        client_secret: Option<SecretString>,
        /// The refresh token.
        refresh_token: SecretString,
    },
}

/// The treatment of a message whose row is no longer in the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissing {
    /// Makes it a dead letter, `ROW_MISSING`.
    #[default]
    Reject,
    /// Counts it as delivered and sends nothing.
    Skip,
}

/// The settings of a destination. Start from [`SalesforceSettings::new`].
#[derive(Clone, Debug)]
pub struct SalesforceSettings {
    /// The org's My Domain, e.g. `https://acme.my.salesforce.com`.
    pub login_url: String,
    /// The log-in.
    pub auth: Auth,
    /// The version of the API, such as `61.0`.
    pub api_version: String,
    /// The object, e.g. `Contact`; graphs name their own.
    pub object: String,
    /// The field that rows are upserted by: text, external id and unique. Its value is the
    /// aggregate id of the message.
    pub external_id: String,
    /// Salesforce column → field. A column is a field's API name, or `Relation.ExternalIdField` for
    /// a related record. A field is a name or JSON pointer in the payload; with a hydrator, a
    /// column of the fresh row, or `payload:/pointer`.
    pub columns: Vec<(String, String)>,
    /// The version column of the fresh row. If it is older than the message's own `version` (or
    /// `asOfVersion`), the message waits.
    pub version: Option<String>,
    /// The treatment of a message whose row no longer exists.
    pub on_missing: OnMissing,
    /// The message of a validation rule that refuses rows older than those of the org: they count
    /// as delivered.
    pub superseded: Option<String>,
    /// Maximum number of rows in one bulk job.
    pub rows_max: usize,
    /// The minimum age of an unknown open job before it is aborted.
    pub orphan_age: Duration,
    /// Time that an access token is used before a new one is requested.
    pub token_life: Duration,
    /// The token and the budget. Destinations of the same org and user should share it; clones of
    /// settings do.
    pub session: SalesforceSession,
}

impl SalesforceSettings {
    /// Sets a default for everything except these; `columns` are required except for graphs.
    pub fn new(login_url: &str, auth: Auth, object: &str, external_id: &str) -> Self {
        Self {
            login_url: login_url.to_owned(),
            auth,
            api_version: API_VERSION.to_owned(),
            object: object.to_owned(),
            external_id: external_id.to_owned(),
            columns: Vec::new(),
            version: None,
            on_missing: OnMissing::Reject,
            superseded: None,
            rows_max: ROWS_DEFAULT,
            orphan_age: ORPHAN_AGE,
            token_life: TOKEN_LIFE,
            session: SalesforceSession::default(),
        }
    }

    pub(super) fn check_object(&self) -> Result<(), String> {
        if is_name(&self.object) {
            return Ok(());
        }
        Err(format!("`object = {:?}` is not the API name of an object", self.object))
    }

    /// Validates names and numbers. `oldest` is the first version of the API with the required
    /// feature.
    pub(super) fn check(&self, oldest: u32) -> Result<(), String> {
        if !is_name(&self.external_id) {
            return Err(format!(
                "`external_id = {:?}` is not the API name of a field",
                self.external_id
            ));
        }
        let version = version(&self.api_version)?;
        if version < oldest {
            return Err(format!("`api_version` must be v{oldest}.0 or later for this api"));
        }
        if self.rows_max == 0 {
            return Err("`rows_max` must be at least 1".to_owned());
        }
        Ok(())
    }
}

/// Parses the login URL. Errors never repeat it.
pub(super) fn login_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|e| format!("cannot parse `login_url`: {e}"))?;
    let host = url.host_str().unwrap_or_default().to_ascii_lowercase();
    if !url.username().is_empty() || url.password().is_some() {
        return Err("`login_url` must not contain a user or password; use `client_id`".to_owned());
    }
    let is_real =
        REAL_HOSTS.iter().any(|real| host == *real || host.ends_with(&format!(".{real}")));
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_real => {
            Err("`login_url` must start with https://, because it carries a secret".to_owned())
        }
        "http" => Ok(url),
        other => Err(format!("`login_url` must start with https://, not {other}:")),
    }
}

/// Parses `v66.0` or `66.0` as 66.
fn version(text: &str) -> Result<u32, String> {
    let wrong = || format!("`api_version = {text:?}` is not a version; use e.g. `{API_VERSION}`");
    let number = text.strip_prefix('v').unwrap_or(text);
    number.strip_suffix(".0").and_then(|major| major.parse().ok()).ok_or_else(wrong)
}

/// Returns the path that all calls start with.
pub(super) fn base_path(api_version: &str) -> String {
    format!("/services/data/v{}/", api_version.trim_start_matches('v'))
}

/// Returns whether this is an API name: letters, digits and underscores, a letter first.
pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.len() <= 100
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> SalesforceSettings {
        let auth = Auth::ClientCredentials {
            client_id: "app".into(),
            client_secret: SecretString::from("s3cret-text"),
        };
        SalesforceSettings::new("https://acme.my.salesforce.com", auth, "Contact", "ExternalId__c")
    }

    #[test]
    fn invalid_settings_are_refused_with_the_key_to_change() {
        assert_eq!(settings().check(46), Ok(()));
        let wrong = |change: fn(&mut SalesforceSettings)| {
            let mut settings = settings();
            change(&mut settings);
            settings.check_object().and_then(|()| settings.check(46)).unwrap_err()
        };
        assert!(wrong(|s| s.object = "Con/tact".into()).contains("object"));
        assert!(wrong(|s| s.external_id = String::new()).contains("external_id"));
        assert!(wrong(|s| s.api_version = "v45.0".into()).contains("v46.0 or later"));
        assert!(wrong(|s| s.api_version = "latest".into()).contains("not a version"));
        assert!(wrong(|s| s.rows_max = 0).contains("rows_max"));
    }

    #[test]
    fn a_real_salesforce_host_requires_https() {
        for good in [
            "https://acme.my.salesforce.com",
            "http://127.0.0.1:8080",
            "http://salesforce-sim:8080/",
            "http://notsalesforce.com",
        ] {
            assert!(login_url(good).is_ok(), "{good}");
        }
        for bad in [
            "http://acme.my.salesforce.com",
            "http://LOGIN.salesforce.com",
            "ftp://acme.my.salesforce.com",
            "https://user:pass@acme.my.salesforce.com",
            "acme",
            "",
        ] {
            let why = login_url(bad).unwrap_err();
            assert!(!why.contains("pass@") && !why.contains("acme"), "{why}");
        }
    }

    #[test]
    fn versions_are_written_either_way() {
        assert_eq!(base_path("66.0"), "/services/data/v66.0/");
        assert_eq!(base_path("v66.0"), "/services/data/v66.0/");
        assert_eq!((version("66.0"), version("v41.0")), (Ok(66), Ok(41)));
        assert!(version("66").is_err());
    }

    #[test]
    fn debug_shows_no_secret() {
        assert!(!format!("{:?}", settings()).contains("s3cret-text"));
    }
}
