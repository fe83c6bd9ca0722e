//! A namespace as a broker of AMQP 1.0: anonymous SASL, then tokens that open an address.

use std::{path::PathBuf, time::Duration};

use relais_core::InvalidSettings;

use super::ServiceBusConnectionString;
use crate::{
    ProbeError,
    amqp::{
        claims::SharedAccess,
        peer::{AmqpLogin, AmqpPeer, AmqpTlsFiles},
        probe,
        receiving::LinkPlan,
    },
};

/// Ports with TLS, and of a local emulator.
const PORT: u16 = 5671;
const EMULATOR_PORT: u16 = 5672;
/// The life of a token, which is renewed earlier.
const TOKEN_LIFETIME: Duration = Duration::from_secs(20 * 60);

/// A namespace and the key for it.
#[derive(Clone, Debug)]
pub struct ServiceBusConnection {
    /// The parsed connection string.
    pub string: ServiceBusConnectionString,
    /// PEM file with certificates that sign the server's, besides those of the system.
    pub tls_ca: Option<PathBuf>,
    /// The life of a token; it is renewed after three quarters of it.
    pub token_lifetime: Duration,
}

impl ServiceBusConnection {
    /// Parses a connection string with a shared access key. The error does not repeat it.
    pub fn new(string: &str) -> Result<Self, InvalidSettings> {
        let named = |why: InvalidSettings| format!("`connection` {why}");
        Ok(Self::of(ServiceBusConnectionString::parse(string).map_err(named)?))
    }

    /// Takes a connection string that is already parsed.
    pub fn of(string: ServiceBusConnectionString) -> Self {
        Self { string, tls_ca: None, token_lifetime: TOKEN_LIFETIME }
    }

    /// Asks for the queue or subscription of a source. The error says what to change.
    pub async fn probe_source(&self, address: &str) -> Result<String, ProbeError> {
        // Without a session: a queue that needs one refuses the link, but not the login.
        let plan = LinkPlan { address: address.to_owned(), capability: None, session_idle: None };
        let peer = self.peer(address).map_err(String::from)?;
        Ok(probe::probe_source(&peer, &plan).await?)
    }

    /// Asks for the queue or topic of a destination. The error says what to change.
    pub async fn probe_destination(&self, address: &str) -> Result<String, ProbeError> {
        let peer = self.peer(address).map_err(String::from)?;
        Ok(probe::probe_destination(&peer, Some(address), None).await?)
    }

    /// Returns the broker with a key for this address.
    pub(super) fn peer(&self, address: &str) -> Result<AmqpPeer, InvalidSettings> {
        if address.is_empty() {
            return Err("no queue or topic; set `queue` or `topic`".into());
        }
        let ServiceBusConnectionString { host, port, key_name, key, is_emulator, .. } =
            &self.string;
        let entity = address.strip_suffix("/$deadletterqueue").unwrap_or(address);
        let default = if *is_emulator { EMULATOR_PORT } else { PORT };
        let peer = AmqpPeer {
            host: host.clone(),
            port: port.unwrap_or(default),
            hostname: host.clone(),
            is_tls: !is_emulator,
            files: AmqpTlsFiles { ca: self.tls_ca.clone(), ..AmqpTlsFiles::default() },
            login: AmqpLogin::Anonymous,
            access: Some(SharedAccess {
                audience: format!("amqps://{host}/{entity}"),
                key_name: key_name.clone(),
                key: key.clone(),
                lifetime: self.token_lifetime,
            }),
        };
        peer.validate()?;
        Ok(peer)
    }
}
