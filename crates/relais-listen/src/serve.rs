//! Accepts connections and serves each in its own task.
//!
//! Invariant: the future owns every connection. Once closing, none is accepted, each is finished, and what
//! is left after [`CLOSE_GRACE`] is cut.

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

/// How long open requests may take to hear their answer once the listener closes.
const CLOSE_GRACE: Duration = Duration::from_secs(5);
/// The pause after the system could give us no connection, e.g. for lack of file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// All headers of one request together, in bytes; more is answered `431`.
const HEAD_MAX: usize = 64 << 10;

/// How many connections, and how slow they may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open connections of all addresses together.
    pub connections_max: usize,
    /// Open connections of one address.
    pub per_address_max: usize,
    /// How long a head, or a TLS handshake, may take, and how long a connection may stay open without a
    /// request.
    pub head_time: Duration,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub address: SocketAddr,
    /// Whether the connection is encrypted.
    pub encrypted: bool,
}

/// Serves until `closing` is true, then finishes what is open.
pub async fn serve<F, A, B>(
    listener: TcpListener,
    limits: Limits,
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
                // Dropped without a seat, the connection is closed.
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
    // What is still open then is aborted with its JoinSet.
    let _ = tokio::time::timeout(CLOSE_GRACE, all).await;
}

type Settings = (Limits, Option<Arc<Tls>>, watch::Receiver<bool>);

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
            talk(TokioIo::new(stream), peer, seat, (limits, closing), answer).await;
        }
        Some(tls) => {
            let handshake = tokio::time::timeout(limits.head_time, tls.accept(stream)).await;
            let Ok(Ok(stream)) = handshake else { return };
            let peer = Peer { address, encrypted: true };
            talk(TokioIo::new(stream), peer, seat, (limits, closing), answer).await;
        }
    }
}

/// Errors are the client's: it went away, or what it sent is no HTTP.
async fn talk<I, F, A, B>(
    io: I,
    peer: Peer,
    seat: &Seat,
    (limits, mut closing): (Limits, watch::Receiver<bool>),
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
            Ok::<_, Infallible>(response.map(|body| Answer { body, _busy: busy }))
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

/// The body of an answer; its connection is busy until it is sent.
struct Answer<B> {
    body: B,
    _busy: crate::seats::Request,
}

impl<B: Body + Unpin> Body for Answer<B> {
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
