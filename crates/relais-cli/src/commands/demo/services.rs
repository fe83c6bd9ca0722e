//! The three services of a checkout: a warehouse, a bank and a carrier. Each acts once for an idempotency
//! key and answers by message, at times late, twice, or with a refusal. The number of an order selects its faults.

use std::{
    collections::{HashMap, HashSet},
    io,
    net::SocketAddr,
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

/// Longer than the `timeout` of a checkout in relais.toml, so that the command is sent again.
const LATE: Duration = Duration::from_millis(1_400);
/// The pause before a reply that was not accepted is posted again.
const AGAIN: Duration = Duration::from_millis(50);

/// The faults of a checkout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CheckoutFaults(u64);

impl CheckoutFaults {
    pub(super) fn of(number: u64) -> Self {
        Self(number)
    }

    fn read(body: &Value) -> Self {
        let order = body["order"].as_str().unwrap_or_default();
        Self(order.trim_start_matches("c-").parse().unwrap_or_default())
    }

    fn stock_is_busy_at_first(self) -> bool {
        self.0 % 6 == 5
    }

    fn payment_is_refused(self) -> bool {
        self.0 % 5 == 2
    }

    fn payment_answers_late(self) -> bool {
        self.0 % 10 == 3
    }

    fn answers_twice(self) -> bool {
        self.0.is_multiple_of(4)
    }

    fn shipment_is_refused(self) -> bool {
        self.0 % 7 == 4
    }

    /// Returns true if the refund is refused. It matters only after a payment whose parcel is refused; then an
    /// operator must decide.
    pub(super) fn refund_is_refused(self) -> bool {
        self.0 % 35 == 4
    }
}

/// All three services behind one address.
#[derive(Clone)]
pub(super) struct DemoServices {
    ledger: Arc<Mutex<ServiceLedger>>,
    client: reqwest::Client,
    /// The address for replies.
    replies: String,
}

/// The effects of the services.
#[derive(Default)]
struct ServiceLedger {
    /// Replies by idempotency key.
    answers: HashMap<String, Value>,
    /// Commands that were refused as busy, by idempotency key; the same command is refused again.
    turned_away: HashMap<String, String>,
    reserved: HashSet<String>,
    paid: HashSet<String>,
    shipped: HashSet<String>,
    compensated: u64,
}

/// The totals of the ledger.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CheckoutTotals {
    /// Orders with stock, payment and parcel.
    pub(super) whole: u64,
    /// Orders with only some of them.
    pub(super) torn: u64,
    pub(super) compensated: u64,
}

impl DemoServices {
    /// Starts the listener; replies are posted to the hook.
    pub(super) async fn start(hook: SocketAddr) -> io::Result<(Self, SocketAddr)> {
        let client = reqwest::Client::builder().no_proxy().build();
        let client = client.expect("a client with default settings can be built");
        let replies = format!("http://{hook}/hook");
        let services = Self { ledger: Arc::default(), client, replies };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let router = Router::new().route("/", post(take)).with_state(services.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok((services, address))
    }

    pub(super) fn done(&self) -> CheckoutTotals {
        let ledger = self.ledger();
        let ServiceLedger { reserved, paid, shipped, .. } = &*ledger;
        let is_whole = |order: &&String| reserved.contains(*order) && paid.contains(*order);
        let whole = shipped.iter().filter(is_whole).count();
        let touched: HashSet<_> = reserved.iter().chain(paid).chain(shipped).collect();
        CheckoutTotals {
            whole: whole as u64,
            torn: (touched.len() - whole) as u64,
            compensated: ledger.compensated,
        }
    }

    fn ledger(&self) -> MutexGuard<'_, ServiceLedger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Posts a reply until relais accepts it; its workers may just have been killed.
    async fn reply(&self, command: &ServiceCommand, id: &str, body: &Value) {
        loop {
            let request = self
                .client
                .post(&self.replies)
                .header("message-id", id)
                .header("correlation-id", &command.process)
                .header("causation-id", &command.id)
                .header("content-type", "application/json")
                .body(body.to_string());
            if request.send().await.is_ok_and(|answer| answer.status().is_success()) {
                return;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

/// The parts of a command that a service needs.
#[derive(Clone)]
struct ServiceCommand {
    id: String,
    process: String,
    name: String,
    idempotency_key: String,
}

impl ServiceCommand {
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
    State(services): State<DemoServices>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> StatusCode {
    let command = ServiceCommand::read(&headers);
    let answer = services.ledger().act(&command, &body);
    let fate = CheckoutFaults::read(&body);
    tokio::spawn(async move {
        if fate.payment_answers_late() && answer["type"] == "PaymentTaken" {
            tokio::time::sleep(LATE).await;
        }
        let id = format!("reply-{}", command.id);
        services.reply(&command, &id, &answer).await;
        if fate.answers_twice() {
            services.reply(&command, &format!("{id}-again"), &answer).await;
        }
    });
    StatusCode::ACCEPTED
}

impl ServiceLedger {
    /// Executes a command once; a repeated command gets the same reply.
    fn act(&mut self, command: &ServiceCommand, body: &Value) -> Value {
        if let Some(answer) = self.answers.get(&command.idempotency_key) {
            return answer.clone();
        }
        let key = &command.idempotency_key;
        let is_busy = command.name == "ReserveStock"
            && CheckoutFaults::read(body).stock_is_busy_at_first()
            && *self.turned_away.entry(key.clone()).or_insert(command.id.clone()) == command.id;
        if is_busy {
            return json!({ "type": "StockBusy", "order": body["order"] });
        }
        let mut answer = self.carry_out(&command.name, body);
        answer["order"] = body["order"].clone();
        self.answers.insert(key.clone(), answer.clone());
        answer
    }

    fn carry_out(&mut self, command: &str, body: &Value) -> Value {
        let fate = CheckoutFaults::read(body);
        let order = body["order"].as_str().unwrap_or_default().to_owned();
        let refused = |reply: &str, reason: &str| json!({ "type": reply, "reason": reason });
        match command {
            "TakePayment" if fate.payment_is_refused() => {
                refused("PaymentRefused", "the card is empty")
            }
            "ShipParcel" if fate.shipment_is_refused() => {
                refused("ParcelRefused", "no such address")
            }
            "RefundPayment" if fate.refund_is_refused() => {
                refused("RefundRefused", "the account was closed")
            }
            "ReserveStock" => {
                self.reserved.insert(order);
                json!({ "type": "StockReserved" })
            }
            "ReleaseStock" => {
                self.compensated += u64::from(self.reserved.remove(&order));
                json!({ "type": "StockReleased" })
            }
            "TakePayment" => {
                let payment = format!("payment of {order}");
                self.paid.insert(order);
                json!({ "type": "PaymentTaken", "payment": payment })
            }
            "RefundPayment" => {
                self.compensated += u64::from(self.paid.remove(&order));
                json!({ "type": "PaymentRefunded" })
            }
            "ShipParcel" => {
                self.shipped.insert(order);
                json!({ "type": "ParcelShipped" })
            }
            _ => refused("UnknownCommand", command),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refund_is_refused_only_where_one_is_asked_for() {
        let refused: Vec<_> =
            (0..200).map(CheckoutFaults::of).filter(|fate| fate.refund_is_refused()).collect();
        assert!(!refused.is_empty());
        for fate in refused {
            assert!(fate.shipment_is_refused() && !fate.payment_is_refused(), "{fate:?}");
        }
    }
}
