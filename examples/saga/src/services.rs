//! The warehouse, the bank and the carrier: each acts once for an idempotency key and answers by message,
//! at times late, twice, or with a refusal.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::order::PATIENCE;

/// Effects of the services.
#[derive(Default)]
pub(crate) struct Ledger {
    /// By idempotency key, what was answered.
    answers: HashMap<String, (&'static str, Value)>,
    /// Keys of commands that were turned away once.
    seen: HashSet<String>,
    pub(crate) reserved: HashSet<String>,
    /// Cents by order.
    pub(crate) payments: HashMap<String, i64>,
    pub(crate) shipped: HashSet<String>,
    /// Commands that came again: seen, answered, not done again.
    pub(crate) repeated: u64,
    pub(crate) undone: u64,
}

/// All three services behind one address.
#[derive(Clone)]
pub(crate) struct Services {
    ledger: Arc<Mutex<Ledger>>,
    client: reqwest::Client,
    /// The address for replies.
    replies: String,
}

impl Services {
    pub(crate) fn new(replies: String) -> Self {
        Self { ledger: Arc::default(), client: reqwest::Client::new(), replies }
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens; the address to send commands to.
    pub(crate) async fn listen(&self) -> anyhow::Result<String> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let router = Router::new().route("/{service}", post(take)).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(format!("http://{address}"))
    }

    /// Sends a reply until relais has it; relais may be down at the moment.
    async fn reply(self, command: Command, event_type: &'static str, body: Value) {
        let message_id = Uuid::new_v4().to_string();
        loop {
            let request = self.client.post(&self.replies);
            let request = request
                .header("message-id", &message_id)
                .header("event-type", event_type)
                .header("correlation-id", &command.process)
                .header("causation-id", &command.id)
                .header("content-type", "application/json")
                .body(body.to_string());
            match request.send().await {
                Ok(answer) if answer.status().is_success() => return,
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

/// The parts of a command that a service needs.
#[derive(Clone)]
struct Command {
    id: String,
    process: String,
    name: String,
    idempotency_key: String,
}

impl Command {
    fn read(headers: &HeaderMap) -> Self {
        let read = |name: &str| {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        Self {
            id: read("message-id"),
            process: read("correlation-id"),
            name: read("event-type"),
            idempotency_key: read("idempotency-key"),
        }
    }
}

async fn take(
    State(services): State<Services>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> StatusCode {
    let command = Command::read(&headers);
    let (event_type, answer) = services.ledger().act(&command, &body);
    let number = number(&body);
    tokio::spawn(async move {
        if number % 10 == 3 && event_type == "PaymentTaken" {
            // Later than the time-out: the command comes again, and has no second effect.
            tokio::time::sleep(PATIENCE + Duration::from_millis(500)).await;
        }
        if number.is_multiple_of(4) {
            services.clone().reply(command.clone(), event_type, answer.clone()).await;
        }
        services.reply(command, event_type, answer).await;
    });
    StatusCode::ACCEPTED
}

/// The number in an order's id decides what goes wrong with it.
fn number(body: &Value) -> u32 {
    let id = body["order_id"].as_str().unwrap_or_default();
    id.trim_start_matches("order-").parse().unwrap_or_default()
}

impl Ledger {
    /// Carries a command out, unless that was done before: then the answer is the same.
    fn act(&mut self, command: &Command, body: &Value) -> (&'static str, Value) {
        if let Some(answer) = self.answers.get(&command.idempotency_key) {
            self.repeated += 1;
            return answer.clone();
        }
        let busy =
            command.name == "ReserveStock" && number(body) % 6 == 5 && self.is_first(command);
        if busy {
            return ("StockBusy", json!({}));
        }
        let answer = self.carry_out(&command.name, body);
        self.answers.insert(command.idempotency_key.clone(), answer.clone());
        answer
    }

    fn is_first(&mut self, command: &Command) -> bool {
        self.seen.insert(command.idempotency_key.clone())
    }

    fn carry_out(&mut self, name: &str, body: &Value) -> (&'static str, Value) {
        let order = body["order_id"].as_str().unwrap_or_default().to_owned();
        let cents = body["cents"].as_i64().unwrap_or_default();
        match name {
            "ReserveStock" => {
                self.reserved.insert(order);
                ("StockReserved", json!({}))
            }
            "ReleaseStock" => {
                self.undone += u64::from(self.reserved.remove(&order));
                ("StockReleased", json!({}))
            }
            "TakePayment" if number(body) % 5 == 2 => {
                ("PaymentRefused", json!({ "reason": "the card is empty" }))
            }
            "TakePayment" => {
                self.payments.insert(order.clone(), cents);
                ("PaymentTaken", json!({ "payment_id": format!("payment of {order}") }))
            }
            "RefundPayment" => {
                self.undone += u64::from(self.payments.remove(&order).is_some());
                ("PaymentRefunded", json!({}))
            }
            "ShipParcel" if number(body) % 7 == 4 => {
                ("ParcelRefused", json!({ "reason": "no such address" }))
            }
            "ShipParcel" => {
                self.shipped.insert(order);
                ("ParcelShipped", json!({}))
            }
            _ => ("UnknownCommand", json!({ "command": name })),
        }
    }
}
