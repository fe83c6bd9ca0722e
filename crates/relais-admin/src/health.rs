//! `/healthz` and `/readyz`: is the process alive, and can it do its work, or why not.

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use relais::health::judge;
use serde_json::json;

use crate::{Admin, soon};

/// What never changes while the process runs.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub version: String,
    /// What the store calls itself.
    pub store: String,
    pub destinations: Vec<Target>,
}

/// What a destination delivers to.
#[derive(Clone, Debug)]
pub struct Target {
    pub name: String,
    pub kind: String,
    /// The kind of record at the target, where there is one.
    pub object: Option<String>,
}

/// The process is alive: it answers.
pub(crate) async fn alive() -> Json<serde_json::Value> {
    Json(json!({ "status": "ok" }))
}

/// The process can do its work, or why not.
pub(crate) async fn ready(State(admin): State<Admin>) -> Response {
    let store = admin.store.clone();
    let store = soon(async move { store.check().await }).await;
    let ask = |name: &str| admin.states.iter().find(|(n, _)| n == name).map(|(_, ask)| ask());
    let connected = |name: &str| ask(name).and_then(|state| state.connected);
    let health = judge(store, &admin.observer.snapshot(), &connected);
    let status = if health.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(health)).into_response()
}
