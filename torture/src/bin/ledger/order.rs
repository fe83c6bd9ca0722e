//! The process of an order: goods are reserved, money is charged, the parcel is shipped; and backwards
//! if it does not work.

use std::time::Duration;

use relais::process::{Command, Definition, InvalidDefinition, Meaning, command_named, define};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::PATIENT;

/// The destination of all commands.
pub(crate) const SERVICES: &str = "services";
/// Without a reply for so long a command is sent again.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// The same for what a hasty order ships, which is given up soon.
const HASTY: Duration = Duration::from_secs(1);
const HASTY_ATTEMPTS: u32 = 2;

/// Orders differ in how long they wait for their parcel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderKind {
    Patient,
    Hasty,
}

impl OrderKind {
    pub(crate) const ALL: [Self; 2] = [Self::Patient, Self::Hasty];

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Patient => ("order", "OrderPlaced"),
            Self::Hasty => ("hasty", "HastyPlaced"),
        }
    }
}

/// The data of a process, which is also its start message.
#[derive(Serialize, Deserialize)]
struct OrderData {
    key: String,
}

/// A reply that says all with its name.
#[derive(Deserialize)]
struct EmptyReply {}

pub(crate) fn definition(kind: OrderKind) -> Result<Definition, InvalidDefinition> {
    let (name, start) = kind.names();
    let ship = match kind {
        OrderKind::Patient => call("Ship"),
        OrderKind::Hasty => call("Ship").timeout(HASTY).retry(PATIENT.attempts_max(HASTY_ATTEMPTS)),
    };
    define::<OrderData>(name, 1)
        .starts_on_named(start, |order: OrderData| (order.key.clone(), order))
        .reversible_step("reserve", call("Reserve"), call("UndoReserve"))
        .reversible_step("charge", call("Charge"), call("UndoCharge"))
        .reversible_step("ship", ship, call("UndoShip"))
        .build()
}

fn call(name: &'static str) -> Command<OrderData> {
    command_named(SERVICES, name, |order: &OrderData| json!({ "key": order.key }))
        .on_named(&format!("{name}Done"), |_, _: EmptyReply| ())
        .on_named(&format!("{name}Busy"), |_, _: EmptyReply| Meaning::retryable("busy"))
        .on_named(&format!("{name}Refused"), |_, _: EmptyReply| Meaning::failed("refused"))
        .timeout(ANSWER_MAX)
        .retry(PATIENT)
}
