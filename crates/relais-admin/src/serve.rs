//! The listener of the admin address. It answers probes before the rest of the server exists.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use axum::{
    Json, Router,
    body::Body,
    extract::ConnectInfo,
    http::{Request, StatusCode},
    middleware::from_fn,
    response::IntoResponse,
    routing::get,
};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use relais::health::Health;
use relais_listen::{ListenLimits, Peer, Tls};
use tokio::{
    net::TcpListener,
    sync::watch,
    task::{AbortHandle, JoinHandle},
};

use crate::{Admin, AdminParts, AdminToken, headers, health, problem::ApiProblem, sample::Sampler};

/// Behind a proxy all clients have one address, so one address may use half of the connections.
const LIMITS: ListenLimits =
    ListenLimits { connections_max: 256, per_address_max: 128, head_time: Duration::from_secs(10) };

/// Marks a request that came over an encrypted connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EncryptedConnection;

/// A background task that ends with its owner.
pub(crate) struct OwnedTask(pub(crate) AbortHandle);

impl Drop for OwnedTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The bound admin address of a process that may still wait for its database.
///
/// Until [`AdminListener::serve`], `/healthz` answers 200, because the process is alive, and every other path
/// answers 503 with the reason. Dropping it closes the address.
pub struct AdminListener {
    address: SocketAddr,
    router: Arc<RwLock<Router>>,
    serving: JoinHandle<()>,
    _owned: OwnedTask,
}

impl std::fmt::Debug for AdminListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminListener").field("address", &self.address).finish_non_exhaustive()
    }
}

impl AdminListener {
    /// Binds the address, with TLS if there is a certificate. An address other than loopback needs a token.
    pub async fn bind(
        listen: SocketAddr,
        tls: Option<Tls>,
        tokens: &[AdminToken],
    ) -> io::Result<Self> {
        if !listen.ip().is_loopback() && tokens.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "cannot listen on an address other than loopback without a token; set `admin.token` or \
                 `[[admin.tokens]]`",
            ));
        }
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let router = Arc::new(RwLock::new(probes("the process is starting")));
        let serving = tokio::spawn(serve(listener, Arc::clone(&router), tls));
        let _owned = OwnedTask(serving.abort_handle());
        Ok(Self { address, router, serving, _owned })
    }

    /// Returns the address, with the port that the system chose for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the reason why the process is not ready yet.
    pub fn set_starting(&self, reason: &str) {
        self.replace(probes(reason));
    }

    /// Serves everything from now on, until the future is dropped, which closes every connection.
    pub fn serve(self, parts: AdminParts) -> impl Future<Output = io::Result<()>> + Send + use<> {
        let admin = Admin::new(parts);
        self.replace(admin.router());
        let Self { serving, _owned, .. } = self;
        async move {
            let _owned = _owned;
            tokio::select! {
                ended = serving => ended.map_err(io::Error::other),
                never = Sampler::run(admin) => match never {},
            }
        }
    }

    fn replace(&self, router: Router) {
        *self.router.write().unwrap_or_else(PoisonError::into_inner) = router;
    }
}

/// Returns the routes of a process that is starting.
fn probes(reason: &str) -> Router {
    let starting = Health::starting(reason);
    let text = format!("relais is starting: {reason}; try again");
    let ready = move || async move { (StatusCode::SERVICE_UNAVAILABLE, Json(starting)) };
    let unavailable = move || async move {
        ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "STARTING", text).into_response()
    };
    Router::new()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(ready))
        .fallback(unavailable)
        .layer(from_fn(headers::add))
}

/// Serves the current router until the future is dropped, which closes every connection.
async fn serve(listener: TcpListener, router: Arc<RwLock<Router>>, tls: Option<Tls>) {
    let (_open, closing) = watch::channel(false);
    relais_listen::serve(listener, LIMITS, tls, closing, move |peer: Peer, request: Request<_>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer.address));
        if peer.encrypted {
            request.extensions_mut().insert(EncryptedConnection);
        }
        let router = router.read().unwrap_or_else(PoisonError::into_inner).clone();
        let answer = TowerToHyperService::new(router).call(request);
        async move { answer.await.unwrap_or_else(|never| match never {}) }
    })
    .await;
}
