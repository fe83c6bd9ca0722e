//! One connection to a broker with one session: opened, watched and closed.
//!
//! Invariant: a connection that has failed is never repaired. A new one is opened, so that no message,
//! outcome or settlement of the old one can be taken for one of the new.

use std::{fmt, io, path::PathBuf, sync::Mutex, time::Duration};

use fe2o3_amqp::{
    Connection, Session,
    connection::{ConnectionHandle, OpenError},
    sasl_profile::SaslProfile,
    session::{BeginError, SessionHandle},
};
use relais_core::InvalidSettings;
use rustls::pki_types::ServerName;
use secrecy::ExposeSecret;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::{MutexGuard, oneshot, watch},
    task::JoinHandle,
};
use uuid::Uuid;

use super::{
    HiddenBrokerUrl,
    claims::ClaimsLink,
    peer::{AmqpLogin, AmqpPeer, AmqpTlsFiles},
    sasl, tls,
};

/// Milliseconds after which a silent broker counts as lost.
const IDLE_MS: u32 = 20_000;
/// The largest frame; larger messages are sent in several.
const FRAME_BYTES: u32 = 64 * 1024;
/// Frames that a broker may send before the session answers with a new window.
const WINDOW_FRAMES: u32 = 2_048;
/// Time to open a connection, or a link on it.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Time that closing waits for the broker.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// A broker and the certificates for it.
#[derive(Clone, Debug)]
pub struct AmqpConnection {
    /// `amqp://` or `amqps://USER:PASSWORD@HOST:PORT/VHOST`.
    pub url: HiddenBrokerUrl,
    /// PEM file with certificates that sign the broker's, besides those of the system.
    pub tls_ca: Option<PathBuf>,
    /// PEM file with the client's certificate chain.
    pub tls_certificate: Option<PathBuf>,
    /// PEM file with its private key.
    pub tls_key: Option<PathBuf>,
}

impl AmqpConnection {
    /// A broker without certificates of its own. The error does not repeat the URL.
    pub fn new(url: &str) -> Result<Self, InvalidSettings> {
        let url = HiddenBrokerUrl::parse(url).map_err(|why| format!("`url` {why}"))?;
        Ok(Self { url, tls_ca: None, tls_certificate: None, tls_key: None })
    }

    pub(super) fn peer(&self) -> Result<AmqpPeer, InvalidSettings> {
        let files = AmqpTlsFiles {
            ca: self.tls_ca.clone(),
            certificate: self.tls_certificate.clone(),
            key: self.tls_key.clone(),
        };
        let peer = AmqpPeer::of_url(&self.url, files)?;
        peer.validate()?;
        Ok(peer)
    }
}

/// The reason why there is no connection.
#[derive(Debug)]
pub(crate) enum AmqpOpenError {
    /// A file or the URL cannot be used.
    Settings(String),
    Broker(OpenError),
    /// An error without TLS, after the host was reached.
    Plain(OpenError),
    /// The broker ended the connection or the session as soon as it was open.
    Begin(BeginError),
    Session(String),
    /// The broker does not accept the token.
    Refused(String),
    TimedOut,
}

impl AmqpOpenError {
    /// Returns whether a broker that expects TLS ends a connection without it like this.
    pub(super) fn may_expect_tls(&self) -> bool {
        use io::ErrorKind::{ConnectionAborted, ConnectionReset, UnexpectedEof};
        let Self::Plain(OpenError::Io(cause)) = self else { return false };
        [ConnectionAborted, ConnectionReset, UnexpectedEof].contains(&cause.kind())
    }
}

impl AmqpPeer {
    /// Checks what can be checked without a connection.
    pub(crate) fn validate(&self) -> Result<(), InvalidSettings> {
        if self.is_tls {
            tls::connector(&self.files)?;
        }
        Ok(())
    }

    /// Opens a connection. `name` is a part of its container id, which brokers show.
    pub(crate) async fn open(&self, name: &str) -> Result<OpenAmqpConnection, AmqpOpenError> {
        let opening = async {
            let mut handle = self.dial(name).await?;
            let mut session = Session::builder()
                .incoming_window(WINDOW_FRAMES)
                .begin(&mut handle)
                .await
                .map_err(AmqpOpenError::Begin)?;
            let renewal = match &self.access {
                Some(access) => {
                    let mut claims = ClaimsLink::open(&mut session).await?;
                    claims.put(access).await?;
                    Some(tokio::spawn(claims.renew(access.clone())))
                }
                None => None,
            };
            Ok(OpenAmqpConnection::watch(handle, session, renewal))
        };
        match tokio::time::timeout(CONNECT_MAX, opening).await {
            Ok(opened) => opened,
            Err(_) => Err(AmqpOpenError::TimedOut),
        }
    }

    async fn dial(&self, name: &str) -> Result<ConnectionHandle<()>, AmqpOpenError> {
        let io = |error| AmqpOpenError::Broker(OpenError::Io(error));
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(io)?;
        stream.set_nodelay(true).map_err(io)?;
        if !self.is_tls {
            return self.begin(name, stream).await.map_err(AmqpOpenError::Plain);
        }
        let connector = tls::connector(&self.files).map_err(AmqpOpenError::Settings)?;
        let host = ServerName::try_from(self.host.clone())
            .map_err(|_| AmqpOpenError::Broker(OpenError::InvalidDomain))?;
        // TLS first and AMQP in it, as port 5671 expects.
        let stream = connector.connect(host, stream).await.map_err(io)?;
        self.begin(name, stream).await.map_err(AmqpOpenError::Broker)
    }

    async fn begin<S>(&self, name: &str, mut stream: S) -> Result<ConnectionHandle<()>, OpenError>
    where
        S: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin + 'static,
    {
        let builder = Connection::builder()
            .container_id(format!("relais-{name}-{}", Uuid::now_v7()))
            .scheme("amqp")
            .hostname(Some(self.hostname.as_str()))
            .sasl_hostname(Some(self.host.as_str()))
            .max_frame_size(FRAME_BYTES)
            .idle_time_out(IDLE_MS);
        match self.login.profile() {
            Some(profile) => builder.sasl_profile(profile).open_with_stream(stream).await,
            None => {
                sasl::external(&mut stream).await?;
                builder.open_with_stream(stream).await
            }
        }
    }
}

impl AmqpLogin {
    /// Returns the login for the client library; `EXTERNAL` is ours.
    fn profile(&self) -> Option<SaslProfile> {
        match self {
            Self::Anonymous => Some(SaslProfile::Anonymous),
            Self::External => None,
            Self::Plain { user, password } => Some(SaslProfile::Plain {
                username: user.clone(),
                password: password.expose_secret().to_owned(),
            }),
        }
    }
}

/// A connection with its session.
pub(crate) struct OpenAmqpConnection {
    session: tokio::sync::Mutex<SessionHandle<()>>,
    /// True once the connection has ended.
    ended: watch::Receiver<bool>,
    closer: Mutex<Option<oneshot::Sender<()>>>,
    watcher: JoinHandle<()>,
    /// The task that renews the token.
    renewal: Option<JoinHandle<()>>,
}

impl OpenAmqpConnection {
    fn watch(
        mut handle: ConnectionHandle<()>,
        session: SessionHandle<()>,
        renewal: Option<JoinHandle<()>>,
    ) -> Self {
        let (sender, ended) = watch::channel(false);
        let (closer, closing) = oneshot::channel();
        let watcher = tokio::spawn(async move {
            tokio::select! {
                // The links report the reason.
                _ = handle.on_close() => {}
                // Also when the connection is dropped.
                _ = closing => {
                    let _ = tokio::time::timeout(CLOSE_MAX, handle.close()).await;
                }
            }
            let _ = sender.send(true);
        });
        let session = tokio::sync::Mutex::new(session);
        Self { session, ended, closer: Mutex::new(Some(closer)), watcher, renewal }
    }

    pub(crate) fn is_usable(&self) -> bool {
        // Without a valid token the broker ends every link.
        let is_open = self.renewal.as_ref().is_none_or(|renewal| !renewal.is_finished());
        is_open && !*self.ended.borrow()
    }

    /// Returns the session for the time of an attach.
    pub(crate) async fn session(&self) -> MutexGuard<'_, SessionHandle<()>> {
        self.session.lock().await
    }

    /// Closes the connection. A broker that does not answer notices the end of the socket.
    pub(crate) async fn close(&self) {
        let closer = self.closer.lock().ok().and_then(|mut closer| closer.take());
        drop(closer);
        let mut ended = self.ended.clone();
        let waiting = ended.wait_for(|ended| *ended);
        let closed = tokio::time::timeout(CLOSE_MAX, waiting).await;
        if closed.is_err() {
            self.watcher.abort();
        }
    }
}

impl Drop for OpenAmqpConnection {
    fn drop(&mut self) {
        if let Some(renewal) = &self.renewal {
            renewal.abort();
        }
    }
}
