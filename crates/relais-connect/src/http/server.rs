//! The listener of a source: takes connections up to a limit and serves each in its own task.
//!
//! Invariant: the server task owns every connection. Once closing, no new one is taken, each is
//! finished politely, and what is left after [`CLOSE_GRACE`] is cut.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
};

use super::request::Receiver;

/// How long open requests may take to hear their answer once the source closes.
const CLOSE_GRACE: Duration = Duration::from_secs(5);
/// The pause after the system could give us no connection, e.g. for lack of file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// All headers of one request together, in bytes; more is answered `431`.
const HEAD_MAX: usize = 64 * 1024;

/// Closes a [`HttpSource`](super::HttpSource) that somebody else owns.
///
/// ```no_run
/// # async fn example(source: relais_connect::http::HttpSource) {
/// let handle = source.close_handle();
/// // … the source goes to the ingest worker …
/// handle.close().await;
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct CloseHandle {
    closing: Arc<watch::Sender<bool>>,
    finished: watch::Receiver<()>,
}

impl CloseHandle {
    /// Stops the listener, answers `503` to whoever still waits, and returns when all connections
    /// are closed. The batch that is being stored is still answered as stored.
    pub async fn close(&self) {
        self.start();
        let mut finished = self.finished.clone();
        // An error says that the server has dropped its end: it is gone.
        while finished.changed().await.is_ok() {}
    }

    /// Begins to close without waiting.
    pub(super) fn start(&self) {
        self.closing.send_replace(true);
    }

    pub(super) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }
}

/// The end of a server task: its drop says that it is gone.
pub(super) struct Finished {
    _alive: watch::Sender<()>,
}

/// A handle, and what the server task holds while it lives.
pub(super) fn close_handle() -> (CloseHandle, Finished) {
    let (closing, _) = watch::channel(false);
    let (alive, finished) = watch::channel(());
    (CloseHandle { closing: Arc::new(closing), finished }, Finished { _alive: alive })
}

/// Serves until closing.
pub(super) async fn serve(listener: TcpListener, receiver: Arc<Receiver>, _finished: Finished) {
    let slots = Arc::new(Semaphore::new(receiver.settings.connections_max.max(1)));
    let mut closing = receiver.closing.clone();
    let mut connections = JoinSet::new();
    loop {
        let accept = async {
            let slot = Arc::clone(&slots).acquire_owned().await;
            (listener.accept().await, slot)
        };
        let (accepted, slot) = tokio::select! {
            _ = closing.wait_for(|closing| *closing) => break,
            Some(_) = connections.join_next() => continue,
            accepted = accept => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let receiver = Arc::clone(&receiver);
                connections.spawn(async move {
                    serve_connection(stream, receiver).await;
                    drop(slot);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    // What is still open then is aborted with its JoinSet.
    let _ = tokio::time::timeout(CLOSE_GRACE, all).await;
}

/// Errors are the sender's: it went away, or what it sent is no HTTP.
async fn serve_connection(stream: TcpStream, receiver: Arc<Receiver>) {
    let _ = stream.set_nodelay(true);
    let mut closing = receiver.closing.clone();
    let header_timeout = receiver.settings.header_timeout;
    let service = service_fn(move |request| {
        let receiver = Arc::clone(&receiver);
        async move { Ok::<_, Infallible>(receiver.answer(request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_buf_size(HEAD_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = closing.wait_for(|closing| *closing) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
