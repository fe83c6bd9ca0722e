//! The listener of the admin address.

use std::time::Duration;

use axum::{Router, body::Body, extract::ConnectInfo, http::Request};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use relais_listen::{ListenLimits, Peer, Tls};
use tokio::{net::TcpListener, sync::watch};

/// Behind a proxy all clients have one address, so one address may use half of the connections.
const LIMITS: ListenLimits =
    ListenLimits { connections_max: 256, per_address_max: 128, head_time: Duration::from_secs(10) };

/// Marks a request that came over an encrypted connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EncryptedConnection;

/// Serves until the future is dropped, which closes every connection.
pub(crate) async fn serve(listener: TcpListener, router: Router, tls: Option<Tls>) {
    let (_open, closing) = watch::channel(false);
    let router = TowerToHyperService::new(router);
    relais_listen::serve(listener, LIMITS, tls, closing, move |peer: Peer, request: Request<_>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer.address));
        if peer.encrypted {
            request.extensions_mut().insert(EncryptedConnection);
        }
        let answer = router.call(request);
        async move { answer.await.unwrap_or_else(|never| match never {}) }
    })
    .await;
}
