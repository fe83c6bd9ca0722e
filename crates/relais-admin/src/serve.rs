//! The listener: takes connections up to a limit and serves each in its own task.
//!
//! Invariant: who sends slowly, or nothing, holds a connection for [`HEAD_TIME`] and no longer, and all of
//! them together hold no more than [`CONNECTIONS_MAX`]. axum's own server has neither limit.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, body::Body, extract::ConnectInfo};
use hyper::{
    Request,
    body::Incoming,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};

/// Open connections; more wait to be taken.
const CONNECTIONS_MAX: usize = 256;
/// How long a head may take, and how long a connection may stay open without a request.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// All headers of one request together, in bytes; more is answered `431`.
const HEAD_MAX: usize = 64 << 10;
/// The pause after the system could give us no connection, e.g. for lack of file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until it is dropped, with every connection.
pub(crate) async fn serve(listener: TcpListener, router: Router) -> io::Result<()> {
    let seats = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let accept = async {
            let seat = Arc::clone(&seats).acquire_owned().await;
            (listener.accept().await, seat)
        };
        let (accepted, seat) = tokio::select! {
            Some(_) = connections.join_next() => continue,
            accepted = accept => accepted,
        };
        match accepted {
            Ok((stream, from)) => {
                let router = router.clone();
                connections.spawn(async move {
                    serve_connection(stream, from, router).await;
                    drop(seat);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Errors are the caller's: it went away, or what it sent is no HTTP.
async fn serve_connection(stream: TcpStream, from: SocketAddr, router: Router) {
    let _ = stream.set_nodelay(true);
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(from));
        let answer = router.call(request);
        async move { Ok::<_, Infallible>(answer.await.unwrap_or_else(|never| match never {})) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let _ = connection.await;
}
