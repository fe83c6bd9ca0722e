//! The services that orders need: they do what a command asks for once, by its idempotency key, keep
//! that in a ledger, and answer as the plan says.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{Router, extract::State, http::HeaderMap, routing::post};
use serde_json::{Value, json};

use crate::{
    plan::{Ending, Order, Script, Step, Way},
    posts::{Outgoing, PostQueue},
};

/// The effects of the services.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// By idempotency key.
    accounts: HashMap<String, Account>,
    /// Number of effects so far, for their order.
    effects: usize,
    /// Commands that came, copies among them.
    pub(crate) commands: usize,
    /// Commands that had come before, under the same message id.
    pub(crate) copies: usize,
}

/// All that was asked for under one idempotency key.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) order: Order,
    pub(crate) step: Step,
    pub(crate) way: Way,
    /// Message ids in the order they came: one for each attempt.
    attempts: Vec<String>,
    /// The number of its effect, once it has had it.
    pub(crate) effect: Option<usize>,
}

#[derive(Clone)]
pub(crate) struct Services {
    ledger: Arc<Mutex<Ledger>>,
    posts: PostQueue,
}

impl Services {
    /// Listens; where.
    pub(crate) async fn start(posts: PostQueue) -> (Self, SocketAddr) {
        let services = Self { ledger: Arc::default(), posts };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().route("/commands", post(take)).with_state(services.clone());
        tokio::spawn(async { axum::serve(listener, app).await });
        (services, address)
    }

    pub(crate) fn read<T>(&self, at: impl FnOnce(&Ledger) -> T) -> T {
        at(&self.ledger.lock().unwrap())
    }
}

async fn take(State(services): State<Services>, headers: HeaderMap, body: String) {
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    let body: Value = serde_json::from_str(&body).unwrap();
    let command = Command {
        message_id: header("message-id"),
        process_id: header("correlation-id"),
        idempotency_key: header("idempotency-key"),
        event_type: header("event-type"),
        order: Order(body["order"].as_u64().unwrap().try_into().unwrap()),
    };
    let replies = services.ledger.lock().unwrap().take(&command);
    for reply in replies {
        services.posts.send(reply).await;
    }
}

struct Command {
    message_id: String,
    process_id: String,
    idempotency_key: String,
    event_type: String,
    order: Order,
}

impl Ledger {
    pub(crate) fn accounts(&self) -> impl Iterator<Item = (&str, &Account)> {
        self.accounts.iter().map(|(key, account)| (key.as_str(), account))
    }

    /// Does what is asked for unless it is done, and gives the answers.
    fn take(&mut self, command: &Command) -> Vec<Outgoing> {
        let (step, way) = Step::of_command(&command.event_type);
        let order = command.order;
        let key = &command.idempotency_key;
        let account = self.accounts.entry(key.clone()).or_insert_with(|| Account {
            order,
            step,
            way,
            attempts: Vec::new(),
            effect: None,
        });
        assert_eq!(
            (account.order, account.step, account.way),
            (order, step, way),
            "one key: {key}"
        );
        self.commands += 1;
        let known = account.attempts.iter().position(|id| *id == command.message_id);
        let attempt = known.unwrap_or_else(|| {
            account.attempts.push(command.message_id.clone());
            account.attempts.len() - 1
        });
        self.copies += usize::from(known.is_some());
        let ending = order.ending(step, way, attempt + 1);
        if ending == Ending::Done && account.effect.is_none() {
            account.effect = Some(self.effects);
            self.effects += 1;
        }
        let reply = |to: &str, suffix: &str| reply(command, step.command(way), ending, to, suffix);
        let own = reply(&command.message_id, "");
        match (order.script(), step, way) {
            (Script::Twice, Step::Payment, Way::Do) => vec![own.clone(), own],
            (Script::Twice, Step::Stock, Way::Do) => {
                vec![own, reply(&command.message_id, "-again")]
            }
            (Script::Late, Step::Stock, Way::Do) => match attempt {
                0 => Vec::new(),
                _ => vec![own, reply(&account.attempts[0], "-late")],
            },
            (Script::InDoubt, Step::Shipment, Way::Do) => Vec::new(),
            (Script::InDoubt, Step::Stock, Way::Undo) => {
                vec![self.late_shipment(command), own]
            }
            _ => vec![own],
        }
    }

    /// The answer to the first command that asked for the shipment.
    fn late_shipment(&self, command: &Command) -> Outgoing {
        let key = format!("{}/{}", command.process_id, Step::Shipment.name());
        let first = &self.accounts.get(&key).expect("it was asked for before").attempts[0];
        reply(command, Step::Shipment.command(Way::Do), Ending::Done, first, "")
    }
}

/// An answer to the command `to`, about a process.
fn reply(command: &Command, name: &str, ending: Ending, to: &str, suffix: &str) -> Outgoing {
    Outgoing {
        id: format!("{to}{suffix}"),
        correlation: Some((command.process_id.clone(), to.to_owned())),
        body: json!({ "type": format!("{name}{ending:?}") }).to_string(),
    }
}
