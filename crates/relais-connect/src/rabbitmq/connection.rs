//! One connection to a broker: opened, watched for `connection.blocked`, and closed.
//!
//! Invariant: a connection that has failed is never repaired. A new one is opened, so that no
//! message, confirm or acknowledgement of the old one can be taken for one of the new.

use std::{
    fs,
    future::poll_fn,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_core::Stream;
use lapin::{
    Channel, Connection, ConnectionProperties, Event,
    options::ConfirmSelectOptions,
    runtime,
    tcp::{OwnedIdentity, OwnedTLSConfig},
    uri::{AMQPScheme, AMQPUri, SASLMechanism},
};
use relais_core::InvalidSettings;
use tokio::{sync::watch, task::JoinHandle};

use super::HiddenBrokerUrl;

/// Seconds between heartbeats unless the URL has others. A dead peer is noticed after two.
const HEARTBEAT_SECONDS: u16 = 10;
/// Channels that wait for the next call.
const IDLE_MAX: usize = 16;
/// Time that closing waits for the broker.
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// Time to open a connection.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(10);

/// A broker and the certificates for it.
#[derive(Clone, Debug)]
pub struct RabbitConnection {
    /// `amqp://` or `amqps://USER:PASSWORD@HOST:PORT/VHOST`.
    pub url: HiddenBrokerUrl,
    /// PEM file with certificates that sign the broker's, besides those of the system.
    pub tls_ca: Option<PathBuf>,
    /// PEM file with the client's certificate chain.
    pub tls_certificate: Option<PathBuf>,
    /// PEM file with its private key.
    pub tls_key: Option<PathBuf>,
}

impl RabbitConnection {
    /// A broker without certificates of its own. The error does not repeat the URL.
    pub fn new(url: &str) -> Result<Self, InvalidSettings> {
        let url = HiddenBrokerUrl::parse(url).map_err(|why| format!("`url` {why}"))?;
        Ok(Self { url, tls_ca: None, tls_certificate: None, tls_key: None })
    }

    /// Checks what can be checked without a connection.
    pub(super) fn validate(&self) -> Result<(), InvalidSettings> {
        self.uri()?;
        self.tls()?;
        Ok(())
    }

    fn uri(&self) -> Result<AMQPUri, String> {
        // The error of the parser may repeat a part of the URL.
        let mut uri: AMQPUri =
            self.url.expose().parse().map_err(|_| "`url` is not a URL of AMQP".to_owned())?;
        uri.query.heartbeat.get_or_insert(HEARTBEAT_SECONDS);
        // A certificate without a password in the URL is the login.
        let has_login = self.url.expose().contains('@');
        if self.tls_certificate.is_some() && !has_login && uri.query.auth_mechanism.is_none() {
            uri.query.auth_mechanism = Some(SASLMechanism::External);
        }
        debug_assert_eq!(uri.scheme == AMQPScheme::AMQPS, self.url.is_tls());
        Ok(uri)
    }

    fn tls(&self) -> Result<OwnedTLSConfig, String> {
        let text = |key: &str, file: &Path| {
            fs::read_to_string(file)
                .map_err(|error| format!("cannot read `{key}` {}: {error}", file.display()))
        };
        let identity = match (&self.tls_certificate, &self.tls_key) {
            (Some(certificate), Some(key)) => Some(OwnedIdentity::PKCS8 {
                pem: text("tls_certificate", certificate)?.into_bytes(),
                key: text("tls_key", key)?.into_bytes(),
            }),
            (None, None) => None,
            _ => return Err("give both `tls_certificate` and `tls_key`, or neither".to_owned()),
        };
        let authorities = self.tls_ca.as_deref().map(|file| text("tls_ca", file));
        Ok(OwnedTLSConfig { identity, cert_chain: authorities.transpose()? })
    }

    /// Opens a connection. `name` is shown in RabbitMQ's list of connections.
    pub(super) async fn open(&self, name: &str) -> Result<OpenConnection, OpenError> {
        let settings = |why| OpenError::Settings(why);
        let (uri, tls) = (self.uri().map_err(settings)?, self.tls().map_err(settings)?);
        let properties =
            ConnectionProperties::default().with_connection_name(format!("relais {name}").into());
        let runtime = runtime::default_runtime().map_err(OpenError::Broker)?;
        let opening = Connection::connect_uri_with_config(uri, properties, tls, runtime);
        match tokio::time::timeout(CONNECT_MAX, opening).await {
            Ok(Ok(connection)) => Ok(OpenConnection::watch(connection)),
            Ok(Err(error)) => Err(OpenError::Broker(error)),
            Err(_) => Err(OpenError::TimedOut),
        }
    }
}

/// The reason why there is no connection.
#[derive(Clone, Debug)]
pub(super) enum OpenError {
    /// A file or the URL cannot be used.
    Settings(String),
    Broker(lapin::Error),
    TimedOut,
}

/// A connection with its channels for publishing.
pub(super) struct OpenConnection {
    connection: Connection,
    blocked: watch::Receiver<Option<String>>,
    watcher: JoinHandle<()>,
    idle: Mutex<Vec<Channel>>,
}

impl OpenConnection {
    fn watch(connection: Connection) -> Self {
        let (sender, blocked) = watch::channel(None);
        let mut events = Box::pin(connection.events_listener());
        let watcher = tokio::spawn(async move {
            while let Some(event) = poll_fn(|cx| events.as_mut().poll_next(cx)).await {
                match event {
                    Event::ConnectionBlocked(reason) => drop(sender.send(Some(reason))),
                    Event::ConnectionUnblocked => drop(sender.send(None)),
                    _ => {}
                }
            }
        });
        Self { connection, blocked, watcher, idle: Mutex::default() }
    }

    pub(super) fn is_usable(&self) -> bool {
        self.connection.status().connected()
    }

    /// Returns the largest frame that the broker accepts.
    pub(super) fn frame_max(&self) -> usize {
        usize::try_from(self.connection.configuration().frame_max()).unwrap_or(usize::MAX)
    }

    /// Returns the broker's reason while it does not accept messages.
    pub(super) fn blocked(&self) -> Option<String> {
        self.blocked.borrow().clone()
    }

    /// Waits until the broker stops accepting messages.
    pub(super) async fn until_blocked(&self) -> String {
        let mut blocked = self.blocked.clone();
        if let Ok(reason) = blocked.wait_for(Option::is_some).await
            && let Some(reason) = reason.clone()
        {
            return reason;
        }
        // The watcher has ended with the connection, whose error is reported elsewhere.
        std::future::pending().await
    }

    pub(super) async fn channel(&self) -> lapin::Result<Channel> {
        self.connection.create_channel().await
    }

    /// Returns a channel that confirms messages. The caller gives it back if it is free of unanswered
    /// messages, and drops it otherwise.
    pub(super) async fn confirming(&self) -> lapin::Result<Channel> {
        while let Some(channel) = self.take_idle() {
            if channel.status().connected() {
                return Ok(channel);
            }
        }
        let channel = self.channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(channel)
    }

    pub(super) fn give_back(&self, channel: Channel) {
        let mut idle = self.idle();
        if idle.len() < IDLE_MAX {
            idle.push(channel);
        }
    }

    /// Closes the connection; waits until the broker has processed all that was sent.
    pub(super) async fn close(&self) {
        let closing = self.connection.close(200, "closed by relais".into());
        // A broker that does not answer notices the end of the socket.
        let _ = tokio::time::timeout(CLOSE_MAX, closing).await;
    }

    fn take_idle(&self) -> Option<Channel> {
        self.idle().pop()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Channel>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

/// Returns the next item of a stream.
pub(super) async fn next_of<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    poll_fn(|cx| Pin::new(&mut *stream).poll_next(cx)).await
}
