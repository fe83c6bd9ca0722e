//! The listeners. Each connection is a task of its listener, and ends with it.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use super::body::WireBody;
use crate::org::SimulatedOrg;

/// Maximum number of connections; more wait.
const CONNECTIONS_MAX: usize = 1_000;
const HEADERS_MAX: Duration = Duration::from_secs(30);
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// The call ends without a response, because a fault requires so.
#[derive(Debug, thiserror::Error)]
#[error("no answer, as was asked for")]
pub(crate) struct ConnectionDropped;

pub(crate) type Answer = Result<Response<WireBody>, ConnectionDropped>;

/// The transport of a listener.
#[derive(Clone)]
pub(crate) enum Transport {
    Plain,
    Tls(TlsAcceptor),
}

impl Transport {
    pub(crate) fn tls(pem: &str) -> io::Result<Self> {
        super::tls::acceptor(pem).map(Self::Tls)
    }

    pub(crate) fn scheme(&self) -> &'static str {
        match self {
            Self::Plain => "http",
            Self::Tls(_) => "https",
        }
    }
}

/// Accepts connections until it is dropped.
pub(crate) async fn serve(
    sim: Arc<SimulatedOrg>,
    listener: TcpListener,
    transport: Transport,
) -> Infallible {
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let permit = Arc::clone(&free).acquire_owned().await.expect("it is never closed");
        let Ok((stream, _)) = listener.accept().await else {
            // Most likely out of file descriptors: try again later.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        let (sim, transport) = (Arc::clone(&sim), transport.clone());
        connections.spawn(async move {
            connection(sim, stream, transport).await;
            drop(permit);
        });
    }
}

async fn connection(sim: Arc<SimulatedOrg>, stream: TcpStream, transport: Transport) {
    // Small responses should not wait for each other.
    let _ = stream.set_nodelay(true);
    let scheme = transport.scheme();
    match transport {
        Transport::Plain => talk(sim, stream, scheme).await,
        Transport::Tls(acceptor) => {
            let handshake = tokio::time::timeout(HANDSHAKE_MAX, acceptor.accept(stream));
            if let Ok(Ok(stream)) = handshake.await {
                talk(sim, stream, scheme).await;
            }
        }
    }
}

async fn talk<S>(sim: Arc<SimulatedOrg>, stream: S, scheme: &'static str)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let sim = Arc::clone(&sim);
        async move { crate::api::answer(&sim, request, scheme).await }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADERS_MAX);
    // A broken connection is the client's, or required by a fault.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}
