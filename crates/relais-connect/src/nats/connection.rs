//! One connection to a server: opened, watched, and closed.
//!
//! Invariant: a connection that was lost is never used again, although the library would reconnect. A
//! new one is opened, so that no message or answer of the old one can be taken for one of the new.

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_nats::{Client, ConnectError, ConnectOptions, Event, ServerAddr, ServerError};
use percent_encoding::percent_decode_str;
use relais_core::InvalidSettings;
use tokio::sync::watch;

use super::HiddenNatsUrl;
use crate::nats_settings::{NkeySeed, UrlLogin};

/// Time to open a connection.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Time that closing waits for the server.
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// The pause between pings. A dead peer is noticed after three.
const PING_PAUSE: Duration = Duration::from_secs(10);
/// Refused subjects that are remembered.
const REFUSALS_MAX: usize = 64;
/// The start of the server's error about a subject that the user may not write to.
const REFUSAL: &str = "permissions violation for publish to ";

/// Servers of one cluster, the login and the certificates for them.
#[derive(Clone, Debug)]
pub struct NatsConnection {
    /// `nats://` or `tls://USER:PASSWORD@HOST:PORT`, separated by commas.
    pub url: HiddenNatsUrl,
    /// The seed of an nkey, instead of a login in the URL.
    pub nkey: Option<NkeySeed>,
    /// Credentials file with a JWT and a seed, instead of a login in the URL.
    pub credentials: Option<PathBuf>,
    /// PEM file with certificates that sign the server's, instead of those of the system.
    pub tls_ca: Option<PathBuf>,
    /// PEM file with the client's certificate chain.
    pub tls_certificate: Option<PathBuf>,
    /// PEM file with its private key.
    pub tls_key: Option<PathBuf>,
}

impl NatsConnection {
    /// Servers without certificates of their own. The error does not repeat the URL.
    pub fn new(url: &str) -> Result<Self, InvalidSettings> {
        let url = HiddenNatsUrl::parse(url).map_err(|why| format!("`url` {why}"))?;
        let (nkey, credentials) = (None, None);
        let (tls_ca, tls_certificate, tls_key) = (None, None, None);
        Ok(Self { url, nkey, credentials, tls_ca, tls_certificate, tls_key })
    }

    /// Checks what can be checked without a connection.
    pub(super) fn validate(&self) -> Result<(), InvalidSettings> {
        self.servers()?;
        self.options()?;
        Ok(())
    }

    fn servers(&self) -> Result<Vec<ServerAddr>, String> {
        let parsed = self.url.servers().map(|server| server.parse());
        // The error of the parser may repeat a part of the URL.
        parsed.collect::<Result<_, _>>().map_err(|_| "`url` is not a URL of NATS".to_owned())
    }

    fn options(&self) -> Result<ConnectOptions, String> {
        let options = self.with_login(ConnectOptions::new())?;
        let options = match &self.tls_ca {
            Some(file) => options.add_root_certificates(readable("tls_ca", file)?),
            None => options,
        };
        Ok(match (&self.tls_certificate, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                let certificate = readable("tls_certificate", certificate)?;
                options.add_client_certificate(certificate, readable("tls_key", key)?)
            }
            (None, None) => options,
            _ => return Err("give both `tls_certificate` and `tls_key`, or neither".to_owned()),
        })
    }

    fn with_login(&self, options: ConnectOptions) -> Result<ConnectOptions, String> {
        if let Some(seed) = &self.nkey {
            return Ok(options.nkey(seed.expose().to_owned()));
        }
        if let Some(file) = &self.credentials {
            let text = fs::read_to_string(file).map_err(|error| {
                format!("cannot read `credentials` {}: {error}", file.display())
            })?;
            let unusable = |_| format!("`credentials` {} has no JWT with its seed", file.display());
            return options.credentials(&text).map_err(unusable);
        }
        let plain = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        Ok(match self.url.login() {
            UrlLogin::None => options,
            UrlLogin::Token(token) => options.token(plain(token)),
            UrlLogin::User(user, password) => {
                options.user_and_password(plain(user), plain(password))
            }
        })
    }

    /// Opens a connection. `name` is shown in the server's list of connections. A subscription holds
    /// up to `capacity` messages; the library drops more.
    pub(super) async fn open(
        &self,
        name: &str,
        capacity: usize,
    ) -> Result<OpenNatsConnection, NatsOpenError> {
        let (sender, health) = watch::channel(ConnectionHealth::default());
        let sender = Arc::new(sender);
        let note = move |event| {
            let sender = Arc::clone(&sender);
            async move { sender.send_modify(|health| health.note(event)) }
        };
        let servers = self.servers().map_err(NatsOpenError::Settings)?;
        let options = self
            .options()
            .map_err(NatsOpenError::Settings)?
            .name(format!("relais {name}"))
            .connection_timeout(CONNECT_MAX)
            .ping_interval(PING_PAUSE)
            .subscription_capacity(capacity)
            // So that the library ends its task soon after a loss.
            .max_reconnects(servers.len())
            .ignore_discovered_servers()
            .event_callback(note);
        match tokio::time::timeout(CONNECT_MAX, options.connect(servers)).await {
            Ok(Ok(client)) => Ok(OpenNatsConnection { client, health }),
            Ok(Err(error)) => Err(NatsOpenError::Server(error)),
            Err(_) => Err(NatsOpenError::TimedOut),
        }
    }
}

/// Returns the path of a file that can be read: the library reports only that one cannot.
fn readable(key: &str, file: &Path) -> Result<PathBuf, String> {
    fs::File::open(file)
        .map(|_| file.to_path_buf())
        .map_err(|error| format!("cannot read `{key}` {}: {error}", file.display()))
}

/// The reason why there is no connection.
#[derive(Debug)]
pub(super) enum NatsOpenError {
    /// A file or the URL cannot be used.
    Settings(String),
    Server(ConnectError),
    TimedOut,
}

/// The events of a connection, as far as they matter.
#[derive(Debug, Default)]
struct ConnectionHealth {
    lost: Option<String>,
    /// The server's last error, which is the reason of a loss after it.
    error: Option<String>,
    /// Refused subjects with their numbers.
    refused: VecDeque<(u64, String)>,
    refusals: u64,
}

impl ConnectionHealth {
    fn note(&mut self, event: Event) {
        match event {
            Event::ServerError(ServerError::Other(text)) => match refused_subject(&text) {
                Some(subject) => {
                    self.refusals += 1;
                    self.refused.push_back((self.refusals, subject.to_owned()));
                    if self.refused.len() > REFUSALS_MAX {
                        self.refused.pop_front();
                    }
                }
                None => self.error = Some(text),
            },
            Event::ServerError(error) => self.error = Some(error.to_string()),
            Event::Disconnected | Event::Closed => {
                let why = || "the server closed the connection".to_owned();
                self.lost.get_or_insert(self.error.clone().unwrap_or_else(why));
            }
            _ => {}
        }
    }
}

fn refused_subject(error: &str) -> Option<&str> {
    let start = error.get(..REFUSAL.len())?;
    let rest = start.eq_ignore_ascii_case(REFUSAL).then(|| &error[REFUSAL.len()..])?;
    rest.strip_prefix('"')?.split('"').next()
}

/// A connection. It ends when it is dropped.
pub(super) struct OpenNatsConnection {
    client: Client,
    health: watch::Receiver<ConnectionHealth>,
}

impl OpenNatsConnection {
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn is_usable(&self) -> bool {
        self.health.borrow().lost.is_none() && self.health.has_changed().is_ok()
    }

    /// Waits until the connection is lost; returns the reason.
    pub(super) async fn until_lost(&self) -> String {
        let mut health = self.health.clone();
        match health.wait_for(|health| health.lost.is_some()).await {
            Ok(health) => health.lost.clone().unwrap_or_default(),
            Err(_) => "the connection has ended".to_owned(),
        }
    }

    /// Returns the number of refusals so far.
    pub(super) fn refusals(&self) -> u64 {
        self.health.borrow().refusals
    }

    /// Waits for refusals after the given number. Returns their subjects and the new number.
    pub(super) async fn refused_after(&self, number: u64) -> (Vec<String>, u64) {
        let mut health = self.health.clone();
        if let Ok(health) = health.wait_for(|health| health.refusals > number).await {
            let newer = health.refused.iter().filter(|(at, _)| *at > number);
            return (newer.map(|(_, subject)| subject.clone()).collect(), health.refusals);
        }
        // The loss is reported elsewhere.
        std::future::pending().await
    }

    /// Waits until everything is written to the socket.
    pub(super) async fn flush(&self) {
        // A server that does not answer notices the end of the socket.
        let _ = tokio::time::timeout(CLOSE_MAX, self.client.flush()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(text: &str) -> Event {
        Event::ServerError(ServerError::Other(text.to_owned()))
    }

    #[test]
    fn a_refused_subject_is_remembered_and_other_errors_explain_a_loss() {
        let mut health = ConnectionHealth::default();
        for n in 0..REFUSALS_MAX + 2 {
            health.note(other(&format!("Permissions Violation for Publish to \"a.{n}\"")));
        }
        assert_eq!(health.refused.len(), REFUSALS_MAX);
        assert_eq!(health.refused.front(), Some(&(3, "a.2".to_owned())));
        assert_eq!((health.error.as_deref(), health.lost.as_deref()), (None, None));
        health.note(other("User Authentication Expired"));
        health.note(Event::Disconnected);
        health.note(other("later"));
        health.note(Event::Closed);
        assert_eq!(health.lost.as_deref(), Some("User Authentication Expired"));
    }

    #[test]
    fn missing_files_are_named_without_a_connection() {
        let connection = NatsConnection::new("tls://a:CANARY@n").unwrap();
        let missing = Some(PathBuf::from("missing.pem"));
        let with_ca = NatsConnection { tls_ca: missing.clone(), ..connection.clone() };
        let with_login = NatsConnection { credentials: missing.clone(), ..connection.clone() };
        for (wrong, key) in [(with_ca, "`tls_ca`"), (with_login, "`credentials`")] {
            let why = wrong.validate().unwrap_err().to_string();
            assert!(why.contains(key), "{why}");
            assert!(why.contains("missing.pem") && !why.contains("CANARY"), "{why}");
        }
        let half = NatsConnection { tls_key: missing, ..connection.clone() };
        assert!(half.validate().unwrap_err().to_string().contains("tls_certificate"));
        connection.validate().unwrap();
    }
}
