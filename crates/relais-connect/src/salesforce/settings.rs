//! What a Salesforce destination is told, and what of it can be checked before the first call.

use std::{str::FromStr, time::Duration};

use relais_core::InvalidSettings;
use reqwest::Url;

use super::token::Session;
use crate::Secret;

/// The version of the API unless the settings say otherwise.
pub const API_VERSION: &str = "v66.0";
/// Rows of a bulk job unless the settings say otherwise: what Salesforce works on as one batch, so
/// that rows of one job do not lock each other out.
const ROWS_DEFAULT: usize = 10_000;
/// How long an access token is used; Salesforce does not say how long it lasts.
const TOKEN_LIFE: Duration = Duration::from_secs(30 * 60);
/// How old an open job that nobody knows must be before it is aborted.
const ORPHAN_AGE: Duration = Duration::from_secs(15 * 60);
/// Hosts that are never spoken to in clear.
const REAL_HOSTS: [&str; 3] = ["salesforce.com", "force.com", "salesforce.mil"];

/// How messages are sent.
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
    /// Messages of several records each, all or nothing ([`super::SalesforceGraph`]).
    Graph,
    /// Few rows through Collections, many in bulk jobs.
    #[default]
    Auto,
}

impl Api {
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
                InvalidSettings::new(format!("`{text}` is no api; use {names}"))
            })
    }
}

/// How we prove who we are.
#[derive(Clone, Debug)]
pub enum Auth {
    /// The app's own user; `login_url` must be the org's My Domain.
    ClientCredentials { client_id: String, client_secret: Secret },
    /// A signed claim to be `username`. The key is PEM, RSA.
    JwtBearer {
        client_id: String,
        username: String,
        private_key: Secret,
        /// By default `https://login.salesforce.com`, or `https://test.salesforce.com` for sandboxes.
        audience: Option<String>,
    },
    /// A token that an operator once got. If the org replaces it at every use, the session needs a
    /// [`super::TokenVault`]; without one it is refused.
    RefreshToken { client_id: String, client_secret: Option<Secret>, refresh_token: Secret },
}

/// What to do with a message whose row is not in the database any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissing {
    /// It is a dead letter, `ROW_MISSING`.
    #[default]
    Reject,
    /// It counts as delivered; nothing is sent.
    Skip,
}

/// Where and how rows go. Start from [`SalesforceSettings::new`].
#[derive(Clone, Debug)]
pub struct SalesforceSettings {
    /// The org's My Domain, e.g. `https://acme.my.salesforce.com`.
    pub login_url: String,
    pub auth: Auth,
    pub api_version: String,
    /// The object, e.g. `Contact`; graphs name their own.
    pub object: String,
    /// The field rows are upserted by: text, external id and unique. A message's aggregate id is
    /// its value.
    pub external_id: String,
    /// Salesforce column → field. A column is a field's API name, or `Relation.ExternalIdField` for a
    /// record it refers to. A field is a name or JSON pointer in the payload; with a hydrator, a
    /// column of the fresh row, or `payload:/pointer`.
    pub columns: Vec<(String, String)>,
    /// The column of the fresh row with its version: if it is older than the message's own `version`
    /// (or `asOfVersion`), the message waits.
    pub version: Option<String>,
    pub on_missing: OnMissing,
    /// What a validation rule of the org says of rows older than what it has: they count as
    /// delivered.
    pub superseded: Option<String>,
    /// Most rows of one bulk job.
    pub rows_max: usize,
    /// How old an open job that nobody knows must be before it is aborted.
    pub orphan_age: Duration,
    /// How long an access token is used before a new one is asked for.
    pub token_life: Duration,
    /// The token and the budget. Destinations of the same org and user should share it: settings
    /// that are clones do.
    pub session: Session,
}

impl SalesforceSettings {
    /// Everything but these has a default; `columns` are needed except for graphs.
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
            session: Session::default(),
        }
    }

    pub(super) fn check_object(&self) -> Result<(), String> {
        if is_name(&self.object) {
            return Ok(());
        }
        Err(format!("`object = {:?}` is no API name of an object", self.object))
    }

    /// Checks names and numbers. `oldest` is the first version of the API that has what is asked for.
    pub(super) fn check(&self, oldest: u32) -> Result<(), String> {
        if !is_name(&self.external_id) {
            return Err(format!(
                "`external_id = {:?}` is no API name of a field",
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

/// The URL to log in at. Errors never repeat it.
pub(super) fn login_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|e| format!("`login_url` cannot be read: {e}"))?;
    let host = url.host_str().unwrap_or_default().to_ascii_lowercase();
    if !url.username().is_empty() || url.password().is_some() {
        return Err("`login_url` must not hold a user or password; see `client_id`".to_owned());
    }
    let is_real =
        REAL_HOSTS.iter().any(|real| host == *real || host.ends_with(&format!(".{real}")));
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_real => {
            Err("`login_url` must start with https:// or the secret travels in clear".to_owned())
        }
        "http" => Ok(url),
        other => Err(format!("`login_url` must start with https://, not {other}:")),
    }
}

/// `v66.0` or `66.0` as 66.
fn version(text: &str) -> Result<u32, String> {
    let wrong = || format!("`api_version = {text:?}` is no version; use e.g. `{API_VERSION}`");
    let number = text.strip_prefix('v').unwrap_or(text);
    number.strip_suffix(".0").and_then(|major| major.parse().ok()).ok_or_else(wrong)
}

/// The path all calls start with.
pub(super) fn base_path(api_version: &str) -> String {
    format!("/services/data/v{}/", api_version.trim_start_matches('v'))
}

/// Whether this is an API name: letters, digits and underscores, a letter first.
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
            client_secret: Secret::new("s3cret-text"),
        };
        SalesforceSettings::new("https://acme.my.salesforce.com", auth, "Contact", "ExternalId__c")
    }

    #[test]
    fn settings_that_cannot_work_say_what_to_change() {
        assert_eq!(settings().check(46), Ok(()));
        let wrong = |change: fn(&mut SalesforceSettings)| {
            let mut settings = settings();
            change(&mut settings);
            settings.check_object().and_then(|()| settings.check(46)).unwrap_err()
        };
        assert!(wrong(|s| s.object = "Con/tact".into()).contains("object"));
        assert!(wrong(|s| s.external_id = String::new()).contains("external_id"));
        assert!(wrong(|s| s.api_version = "v45.0".into()).contains("v46.0 or later"));
        assert!(wrong(|s| s.api_version = "latest".into()).contains("no version"));
        assert!(wrong(|s| s.rows_max = 0).contains("rows_max"));
    }

    #[test]
    fn the_secret_does_not_travel_in_clear_to_the_real_one() {
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
