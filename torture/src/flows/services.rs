//! The services that the commands of orders go to, and what they do for each order.
//!
//! The number of an order says how they treat it, and so how its process must end. A service acts once for
//! each idempotency key and answers by message, at times late, twice, or with a refusal.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use anyhow::Result;
use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::FlowContext;
use crate::{
    rng::Rng,
    writers::{self, Letter, SharedState},
};

const STEPS: [&str; 3] = ["Reserve", "Charge", "Ship"];

/// The behaviour of the services for an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderScript {
    Smooth,
    /// The charge is busy at first.
    Busy,
    /// The reservation is answered twice.
    Twice,
    /// The charge is done, but the first command is not answered until another comes.
    Late,
    /// The reservation is refused: there is nothing to undo.
    RefusedFirst,
    /// The parcel is refused, and undoing the charge is busy at first.
    RefusedLast,
    /// The parcel is shipped, but the reply comes after the order was given up.
    InDoubt,
}

impl OrderScript {
    pub(crate) fn of(order: u64) -> Self {
        match order % 12 {
            1 => Self::Busy,
            2 => Self::Twice,
            3 => Self::Late,
            4 => Self::RefusedFirst,
            5 | 6 => Self::RefusedLast,
            7 => Self::InDoubt,
            _ => Self::Smooth,
        }
    }

    /// Returns the event that starts it.
    pub(crate) fn start(self) -> &'static str {
        match self {
            Self::InDoubt => "HastyPlaced",
            _ => "OrderPlaced",
        }
    }

    /// Returns the state in which it must end.
    pub(crate) fn end(self) -> &'static str {
        match self {
            Self::Smooth | Self::Busy | Self::Twice | Self::Late => "SUCCEEDED",
            Self::RefusedFirst => "FAILED",
            Self::RefusedLast | Self::InDoubt => "COMPENSATED",
        }
    }

    /// Returns the reply to the n-th attempt of a command.
    fn ending(self, command: &str, attempt: usize) -> &'static str {
        match (self, command, attempt) {
            (Self::Busy, "Charge", 1) | (Self::RefusedLast, "UndoCharge", 1) => "Busy",
            (Self::RefusedFirst, "Reserve", _) | (Self::RefusedLast, "Ship", _) => "Refused",
            _ => "Done",
        }
    }

    /// The effects it must have had in the end, in this order.
    pub(crate) fn effects(self) -> Vec<&'static str> {
        match self {
            Self::Smooth | Self::Busy | Self::Twice | Self::Late => STEPS.to_vec(),
            Self::RefusedFirst => Vec::new(),
            Self::RefusedLast => vec!["Reserve", "Charge", "UndoCharge", "UndoReserve"],
            // What was in doubt is undone when its answer comes, at no certain place.
            Self::InDoubt => {
                vec!["Reserve", "Charge", "Ship", "UndoCharge", "UndoReserve", "UndoShip"]
            }
        }
    }
}

/// Returns the business key of an order.
pub(crate) fn key(order: u64) -> String {
    format!("o{order}")
}

/// All of them behind one address.
#[derive(Clone)]
pub(crate) struct OrderServices {
    record: Arc<Mutex<ServiceRecord>>,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) http: reqwest::Client,
    rng: Arc<Mutex<Rng>>,
    /// Answers on their way.
    pub(crate) waiting: Arc<AtomicU64>,
}

/// Effects and commands of the services.
#[derive(Debug, Default)]
pub(crate) struct ServiceRecord {
    /// Message ids by idempotency key, in the order they came: one for each attempt.
    attempts: HashMap<String, Vec<String>>,
    /// Effects by order, in the order they happened.
    pub(crate) effects: BTreeMap<u64, Vec<String>>,
    pub(crate) commands: u64,
    pub(crate) copies: u64,
}

/// A command of a process.
struct OrderCommand {
    id: String,
    process: String,
    idempotency_key: String,
    name: String,
    order: u64,
}

impl OrderServices {
    /// Listens; where.
    pub(crate) async fn start(
        shared: &Arc<SharedState>,
        context: &FlowContext,
    ) -> Result<(Self, SocketAddr)> {
        let services = Self {
            record: Arc::default(),
            shared: Arc::clone(shared),
            http: context.http.clone(),
            rng: Arc::new(Mutex::new(Rng::new(context.plan.seed, 60))),
            waiting: Arc::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let router = Router::new().route("/services", post(take)).with_state(services.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok((services, address))
    }

    pub(crate) fn record(&self) -> MutexGuard<'_, ServiceRecord> {
        self.record.lock().expect("the lock is not poisoned")
    }

    /// Posts until it is stored.
    fn send(&self, letter: Letter) {
        let services = self.clone();
        let seed = self.rng.lock().expect("the lock is not poisoned").next();
        services.waiting.fetch_add(1, SeqCst);
        tokio::spawn(async move {
            let mut rng = Rng::new(seed, 0);
            writers::deliver(&services.shared, &services.http, &letter, &mut rng).await;
            services.waiting.fetch_sub(1, SeqCst);
        });
    }
}

async fn take(
    State(services): State<OrderServices>,
    headers: HeaderMap,
    body: String,
) -> StatusCode {
    let header = |name: &str| headers.get(name)?.to_str().ok().map(str::to_owned);
    let body: Value = serde_json::from_str(&body).unwrap_or_default();
    let order = body["key"].as_str().and_then(|key| key.get(1..)?.parse().ok());
    let command = (|| {
        Some(OrderCommand {
            id: header("message-id")?,
            process: header("correlation-id")?,
            idempotency_key: header("idempotency-key")?,
            name: header("event-type")?,
            order: order?,
        })
    })();
    let Some(command) = command else { return StatusCode::BAD_REQUEST };
    for answer in services.record().take(&command) {
        services.send(answer);
    }
    StatusCode::OK
}

impl ServiceRecord {
    /// Does what is asked for unless it is done, and gives the answers.
    fn take(&mut self, command: &OrderCommand) -> Vec<Letter> {
        let script = OrderScript::of(command.order);
        self.commands += 1;
        let attempts = self.attempts.entry(command.idempotency_key.clone()).or_default();
        let known = attempts.iter().position(|id| *id == command.id);
        let attempt = known.unwrap_or_else(|| {
            attempts.push(command.id.clone());
            attempts.len() - 1
        });
        let first = attempts[0].clone();
        self.copies += u64::from(known.is_some());
        let ending = script.ending(&command.name, attempt + 1);
        let effects = self.effects.entry(command.order).or_default();
        if ending == "Done" && !effects.contains(&command.name) {
            effects.push(command.name.clone());
        }
        let own = command.answer(&command.name, ending, &command.id, "");
        match (script, command.name.as_str()) {
            (OrderScript::Twice, "Reserve") => {
                vec![own, command.answer("Reserve", ending, &command.id, "-again")]
            }
            (OrderScript::Late, "Charge") if attempt == 0 => Vec::new(),
            (OrderScript::Late, "Charge") => {
                vec![own, command.answer("Charge", ending, &first, "-late")]
            }
            (OrderScript::InDoubt, "Ship") => Vec::new(),
            (OrderScript::InDoubt, "UndoCharge") => {
                let shipped = self.attempts.get(&format!("{}/ship", command.process));
                let late = shipped.and_then(|ids| ids.first());
                let late = late.map(|id| command.answer("Ship", "Done", id, ""));
                late.into_iter().chain([own]).collect()
            }
            _ => vec![own],
        }
    }
}

impl OrderCommand {
    /// An answer to the command `to` of the same process.
    fn answer(&self, name: &str, ending: &str, to: &str, suffix: &str) -> Letter {
        Letter {
            id: format!("{to}{suffix}"),
            answers: Some((self.process.clone(), to.to_owned())),
            body: json!({ "type": format!("{name}{ending}"), "key": key(self.order) }).to_string(),
        }
    }
}
