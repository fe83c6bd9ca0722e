//! Helpers for schemas: the real registry, and a gate before it that can be closed.

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{StatusCode, header::AUTHORIZATION},
    response::{IntoResponse, Response},
};
use relais_connect::kafka::{SchemaRegistry, SchemaRegistrySettings};
use serde_json::{Value, json};

use crate::outgoing;

const JSON: &str = "application/vnd.schemaregistry.v1+json";

/// The registry of this run.
#[derive(Clone)]
pub(crate) struct Registry {
    pub(crate) url: String,
}

impl Registry {
    /// Uses the real registry, if there is one.
    pub(crate) fn new(what: &str) -> Option<Self> {
        outgoing::server("RELAIS_TEST_REGISTRY", what).map(|url| Self { url })
    }

    pub(crate) fn client(&self) -> Arc<SchemaRegistry> {
        Arc::new(SchemaRegistry::new(&SchemaRegistrySettings::new(&self.url)).unwrap())
    }

    /// Registers a schema and returns its id.
    pub(crate) async fn register(&self, subject: &str, schema: &Value) -> u32 {
        self.register_as(subject, &json!({"schema": schema.to_string()})).await
    }

    pub(crate) async fn register_as(&self, subject: &str, body: &Value) -> u32 {
        let request = http().post(format!("{}/subjects/{subject}/versions", self.url));
        let answer = request.header("content-type", JSON).body(body.to_string()).send().await;
        let text = answer.unwrap().text().await.unwrap();
        let answer: Value = serde_json::from_str(&text).unwrap();
        let id = answer["id"].as_u64().unwrap_or_else(|| panic!("{subject}: {text}"));
        u32::try_from(id).unwrap()
    }
}

/// A value behind the id of its schema.
pub(crate) fn framed(id: u32, value: &[u8]) -> Vec<u8> {
    [&[0], &id.to_be_bytes()[..], value].concat()
}

fn http() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap()
}

/// The answers of a gate instead of those of the registry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum GateMode {
    Open,
    /// Every request is answered as if the registry had no such schema.
    Unknown,
    /// Every request is answered with 503.
    Unavailable,
    /// Only requests with this header pass.
    Login(&'static str),
}

/// Stands before the registry and counts requests.
#[derive(Clone)]
pub(crate) struct Gate {
    pub(crate) registry: Registry,
    state: Arc<Mutex<(GateMode, usize)>>,
    real: String,
}

impl Gate {
    pub(crate) async fn before(real: &Registry, mode: GateMode) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let registry = Registry { url: format!("http://{}", listener.local_addr().unwrap()) };
        let state = Arc::new(Mutex::new((mode, 0)));
        let gate = Self { registry, state, real: real.url.clone() };
        let app = Router::new().fallback(pass).with_state(gate.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        gate
    }

    pub(crate) fn set(&self, mode: GateMode) {
        self.state.lock().unwrap().0 = mode;
    }

    pub(crate) fn requests(&self) -> usize {
        self.state.lock().unwrap().1
    }
}

async fn pass(State(gate): State<Gate>, request: Request) -> Response {
    let mode = {
        let mut state = gate.state.lock().unwrap();
        state.1 += 1;
        state.0.clone()
    };
    let login = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let refusal = match mode {
        GateMode::Unknown => Some((StatusCode::NOT_FOUND, 40_403)),
        GateMode::Unavailable => Some((StatusCode::SERVICE_UNAVAILABLE, 50_001)),
        GateMode::Login(wanted) if login != Some(wanted) => {
            Some((StatusCode::UNAUTHORIZED, 40_101))
        }
        GateMode::Open | GateMode::Login(_) => None,
    };
    if let Some((status, code)) = refusal {
        let body = json!({"error_code": code, "message": "the gate is closed"}).to_string();
        return (status, Body::from(body)).into_response();
    }
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    let answer = http()
        .request(parts.method, format!("{}{}", gate.real, parts.uri))
        .header("content-type", JSON)
        .body(body)
        .send()
        .await
        .unwrap();
    let status = StatusCode::from_u16(answer.status().as_u16()).unwrap();
    (status, Body::from(answer.bytes().await.unwrap())).into_response()
}
