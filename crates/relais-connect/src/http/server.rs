//! The listener of a source, over `relais-listen`, and its shutdown.

use std::sync::Arc;

use relais_listen::{ListenLimits, Peer, Tls};
use tokio::{net::TcpListener, sync::watch};

use super::request::RequestReceiver;

/// Closes a [`HttpSource`](super::HttpSource) that another task owns.
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
    /// Stops the listener, answers `503` to all waiting senders, and returns when all connections
    /// are closed. The batch in flight is still answered.
    pub async fn close(&self) {
        self.start();
        let mut finished = self.finished.clone();
        // An error means that the server task has ended.
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

/// Held by the server task; its drop signals the end of the task.
pub(super) struct AliveGuard {
    _alive: watch::Sender<()>,
}

/// Returns a handle, and the guard that the server task holds while it runs.
pub(super) fn close_handle() -> (CloseHandle, AliveGuard) {
    let (closing, _) = watch::channel(false);
    let (alive, finished) = watch::channel(());
    (CloseHandle { closing: Arc::new(closing), finished }, AliveGuard { _alive: alive })
}

/// Serves until the source is closed.
pub(super) async fn serve(
    listener: TcpListener,
    receiver: Arc<RequestReceiver>,
    tls: Option<Tls>,
    _finished: AliveGuard,
) {
    let settings = &receiver.settings;
    let limits = ListenLimits {
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
