//! Accepts connections and serves each in its own task.
//!
//! Invariant: the future owns every connection. Once closing, no connection is accepted, open
//! requests are finished, and what remains after [`CLOSE_GRACE`] is aborted.

use std::{
    convert::Infallible,
    error::Error,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use hyper::{
    Request, Response,
    body::{Body, Frame, Incoming, SizeHint},
    rt::{Read, Write},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::Instant,
};

use crate::{
    seats::{Seat, Seats},
    tls::Tls,
};

/// Time for open requests to finish once the listener closes.
const CLOSE_GRACE: Duration = Duration::from_secs(5);
/// The pause after the system refused a connection, e.g. for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Maximum size of all headers of one request, in bytes; more is answered `431`.
const HEAD_MAX: usize = 64 << 10;

/// Limits of connections and their idle time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenLimits {
    /// Maximum number of open connections of all addresses together.
    pub connections_max: usize,
    /// Maximum number of open connections of one address.
    pub per_address_max: usize,
    /// Time limit for the headers of a request, for a TLS handshake, and for an idle connection.
    pub head_time: Duration,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The address of the client.
    pub address: SocketAddr,
    /// True if the connection uses TLS.
    pub encrypted: bool,
}

/// Serves until `closing` is true, then finishes open requests.
pub async fn serve<F, A, B>(
    listener: TcpListener,
    limits: ListenLimits,
    tls: Option<Tls>,
    mut closing: watch::Receiver<bool>,
    answer: F,
) where
    F: Fn(Peer, Request<Incoming>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    let seats = Seats::new(limits.connections_max, limits.per_address_max);
    let tls = tls.map(Arc::new);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            _ = closing.wait_for(|closing| *closing) => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, from)) => {
                // Without a seat the connection is dropped, which closes it.
                if let Some(seat) = seats.take(from.ip(), Instant::now().into_std()) {
                    let (tls, answer) = (tls.clone(), answer.clone());
                    let closing = closing.clone();
                    connections.spawn(async move {
                        tokio::select! {
                            () = connect(stream, from, &seat, (limits, tls, closing), answer) => {}
                            () = seat.lost() => {}
                        }
                    });
                }
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    // Remaining connections are aborted with the JoinSet.
    let _ = tokio::time::timeout(CLOSE_GRACE, all).await;
}

type Settings = (ListenLimits, Option<Arc<Tls>>, watch::Receiver<bool>);

async fn connect<F, A, B>(
    stream: TcpStream,
    address: SocketAddr,
    seat: &Seat,
    (limits, tls, closing): Settings,
    answer: F,
) where
    F: Fn(Peer, Request<Incoming>) -> A,
    A: Future<Output = Response<B>>,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    let _ = stream.set_nodelay(true);
    match tls {
        None => {
            let peer = Peer { address, encrypted: false };
            serve_connection(TokioIo::new(stream), peer, seat, (limits, closing), answer).await;
        }
        Some(tls) => {
            let handshake = tokio::time::timeout(limits.head_time, tls.accept(stream)).await;
            let Ok(Ok(stream)) = handshake else { return };
            let peer = Peer { address, encrypted: true };
            serve_connection(TokioIo::new(stream), peer, seat, (limits, closing), answer).await;
        }
    }
}

/// Serves one connection. Errors are the client's: it disconnected, or sent something that is not
/// HTTP.
async fn serve_connection<I, F, A, B>(
    io: I,
    peer: Peer,
    seat: &Seat,
    (limits, mut closing): (ListenLimits, watch::Receiver<bool>),
    answer: F,
) where
    I: Read + Write + Unpin,
    F: Fn(Peer, Request<Incoming>) -> A,
    A: Future<Output = Response<B>>,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    let requests = seat.requests();
    let service = service_fn(|request| {
        let (busy, answer) = (requests.begin(), answer(peer, request));
        async move {
            let response = answer.await;
            Ok::<_, Infallible>(response.map(|body| ResponseBody { body, _busy: busy }))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_buf_size(HEAD_MAX)
        .serve_connection(io, service);
    let mut connection = pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = closing.wait_for(|closing| *closing) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// The body of a response; its connection is busy until it is sent.
struct ResponseBody<B> {
    body: B,
    _busy: crate::seats::OpenRequest,
}

impl<B: Body + Unpin> Body for ResponseBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
