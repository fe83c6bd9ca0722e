//! The configuration of a simulator: listeners, schema and credentials.

use std::{fmt, net::SocketAddr, sync::Arc};

use serde::Deserialize;

use crate::{
    faults::Faults,
    schema::{Schema, SchemaError},
};

/// The default is a simulator on a free local port, with the built-in schema, that accepts every
/// login.
#[derive(Clone, Debug)]
pub struct SimulatorConfig {
    pub listen: SocketAddr,
    pub tls: Option<TlsConfig>,
    pub schema: Arc<Schema>,
    pub auth: AuthConfig,
    pub faults: Faults,
}

impl Default for SimulatorConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: None,
            schema: Arc::new(Schema::builtin()),
            auth: AuthConfig::default(),
            faults: Faults::default(),
        }
    }
}

impl SimulatorConfig {
    /// Reads the schema, and `[auth]` and `[faults]` if present, from a schema file.
    pub fn with_schema_file(mut self, text: &str) -> Result<Self, SchemaError> {
        let mut table: toml::Table = text.parse()?;
        if let Some(auth) = table.remove("auth") {
            self.auth = auth.try_into()?;
        }
        if let Some(faults) = table.remove("faults") {
            self.faults = faults.try_into()?;
        }
        if !table.is_empty() {
            self.schema = Arc::new(Schema::from_table(table)?);
        }
        Ok(self)
    }
}

/// A second listener, for clients that require https.
#[derive(Clone)]
pub struct TlsConfig {
    pub listen: SocketAddr,
    /// The certificate chain and its private key, in one PEM text.
    pub pem: String,
}

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConfig").field("listen", &self.listen).finish_non_exhaustive()
    }
}

/// The accepted credentials. What is not set is not checked.
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthConfig {
    pub client_id: Option<String>,
    pub client_secret: Option<String>,
    pub username: Option<String>,
    pub password: Option<String>,
    pub refresh_token: Option<String>,
    /// Each use of a refresh token issues a new one and invalidates the old one.
    pub rotate_refresh_tokens: bool,
    /// The public key (PEM) that verifies the signature of a JWT.
    pub jwt_public_key: Option<String>,
    /// A token expires after this time without use.
    pub session_seconds: u64,
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self {
            client_id: None,
            client_secret: None,
            username: None,
            password: None,
            refresh_token: None,
            rotate_refresh_tokens: false,
            jwt_public_key: None,
            session_seconds: 2 * 60 * 60,
        }
    }
}

impl fmt::Debug for AuthConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthConfig").field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_file_can_hold_credentials_and_faults() {
        let text = "[auth]\nclient_id='me'\n[faults]\ngzip=false\n[[object]]\nname='A'\n\
                    [[object.field]]\nname='F__c'\ntype='text'\n";
        let config = SimulatorConfig::default().with_schema_file(text).unwrap();
        assert_eq!(config.auth.client_id.as_deref(), Some("me"));
        assert!(!config.faults.gzip);
        assert!(config.schema.object("a").is_some() && config.schema.object("Contact").is_none());
    }

    #[test]
    fn a_file_without_objects_keeps_the_built_in_schema() {
        let config =
            SimulatorConfig::default().with_schema_file("[faults.bulk]\nmanual=true").unwrap();
        assert!(config.faults.bulk.manual && config.schema.object("Contact").is_some());
        assert!(SimulatorConfig::default().with_schema_file("[auth]\nclient='x'").is_err());
    }

    #[test]
    fn secrets_are_not_shown() {
        let auth = AuthConfig { client_secret: Some("hush".to_owned()), ..AuthConfig::default() };
        let config = SimulatorConfig { auth, ..SimulatorConfig::default() };
        assert!(!format!("{config:?}").contains("hush"));
    }
}
