//! The listener of a source, over `relais-listen`, and how it is closed.

use std::sync::Arc;

use relais_listen::{Limits, Peer, Tls};
use tokio::{net::TcpListener, sync::watch};

use super::request::Receiver;

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
pub(super) async fn serve(
    listener: TcpListener,
    receiver: Arc<Receiver>,
    tls: Option<Tls>,
    _finished: Finished,
) {
    let settings = &receiver.settings;
    let limits = Limits {
        connections_max: settings.connections_max,
        per_address_max: settings.connections_per_address_max,
        head_time: settings.header_timeout,
    };
    let closing = receiver.closing.clone();
    relais_listen::serve(listener, limits, tls, closing, move |peer: Peer, request| {
        let receiver = Arc::clone(&receiver);
        async move { receiver.answer(peer.address.ip(), request).await }
    })
    .await;
}
