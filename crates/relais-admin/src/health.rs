//! `/healthz` and `/readyz`: liveness and readiness of the process.

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use relais::health::judge;
use serde_json::json;

use crate::{Admin, soon};

/// ServerFacts that do not change while the process runs.
#[derive(Clone, Debug, Default)]
pub struct ServerFacts {
    /// The version of the program.
    pub version: String,
    /// Name and version of the database.
    pub store: String,
    /// The destinations that the program serves.
    pub destinations: Vec<DestinationInfo>,
}

/// The target of a destination.
#[derive(Clone, Debug)]
pub struct DestinationInfo {
    /// The name of the destination.
    pub name: String,
    /// The kind of connector.
    pub kind: String,
    /// The kind of record at the target, for example a Salesforce object.
    pub object: Option<String>,
}

/// Answers that the process is alive.
pub(crate) async fn alive() -> Json<serde_json::Value> {
    Json(json!({ "status": "ok" }))
}

/// Answers whether the process can do its work, with the causes if it cannot.
pub(crate) async fn ready(State(admin): State<Admin>) -> Response {
    let store = admin.store.clone();
    let store = soon(async move { store.check().await }).await;
    let ask = |name: &str| admin.states.iter().find(|(n, _)| n == name).map(|(_, ask)| ask());
    let connected = |name: &str| ask(name).and_then(|state| state.connected);
    let health = judge(store, &admin.observer.snapshot(), &connected);
    let status = if health.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(health)).into_response()
}
