//! Runs a server of the application beside the workers, and stops both in the right order.

use std::{
    future::{Future, IntoFuture},
    io,
    time::Duration,
};

use relais_core::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::{RunningApp, WorkerPanicked};

/// Maximum time for the requests in flight when the server stops.
const REQUESTS_MAX: Duration = Duration::from_secs(10);
/// Maximum time for the calls and handlers in flight afterwards: both fit into the 30 s of Kubernetes.
const WORKERS_MAX: Duration = Duration::from_secs(15);

impl RunningApp {
    /// Runs a server beside the workers until `stop` resolves, the server ends or a worker panics. The server
    /// finishes its requests first, for up to 10 s: a request may still send a message. Then the workers get
    /// 15 s, as in [`RunningApp::stop_within`].
    ///
    /// `server` gets a future that resolves when the server must stop:
    /// `running.serve(relais::terminated(), |stop| axum::serve(listener, router).with_graceful_shutdown(stop))`.
    ///
    /// # Errors
    /// The server failed, or a worker panicked ([`WorkerPanicked`] is the cause).
    pub async fn serve<S>(
        mut self,
        stop: impl Future<Output = ()>,
        server: impl FnOnce(BoxFuture<'static, ()>) -> S,
    ) -> io::Result<()>
    where
        S: IntoFuture<Output = io::Result<()>, IntoFuture: Send + 'static>,
    {
        let stopping = CancellationToken::new();
        let server = server(Box::pin(stopping.clone().cancelled_owned())).into_future();
        let mut server = tokio::spawn(server);
        let early = tokio::select! {
            () = stop => None,
            ended = &mut server => Some(ended.unwrap_or_else(|error| Err(error.into()))),
            text = self.failed() => Some(Err(io::Error::other(WorkerPanicked(text)))),
        };
        stopping.cancel();
        let late = if server.is_finished() {
            None
        } else {
            tokio::time::timeout(REQUESTS_MAX, &mut server).await.ok()
        };
        server.abort();
        if !self.stop_within(WORKERS_MAX).await {
            tracing::warn!("workers were aborted; another process takes their lanes over");
        }
        let late = late.map(|ended| ended.unwrap_or_else(|error| Err(error.into())));
        early.or(late).unwrap_or(Ok(()))
    }
}
