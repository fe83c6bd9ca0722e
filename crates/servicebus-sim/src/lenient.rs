//! Dispositions as Microsoft's clients write them: the fields of an error have strings as names, where
//! the protocol has symbols.

use fe2o3_amqp_types::{
    definitions::{Error, ErrorCondition, Fields, Role},
    messaging::{DeliveryState, Rejected},
    performatives::Disposition,
    primitives::{Symbol, Value},
};
use serde_amqp::descriptor::Descriptor;

const DISPOSITION: u64 = 0x15;
const REJECTED: u64 = 0x25;
const ERROR: u64 = 0x1d;

/// Reads a disposition with the outcome `rejected`.
pub(crate) fn rejection(frame: &[u8]) -> Option<Disposition> {
    let value: Value = serde_amqp::from_slice(frame).ok()?;
    let mut fields = list(value, DISPOSITION)?.into_iter();
    let role = fields.next();
    let number = |value: Option<Value>| match value {
        Some(Value::Uint(number)) => Some(number),
        _ => None,
    };
    let (first, last) = (number(fields.next())?, number(fields.next()));
    let settled = fields.next() == Some(Value::Bool(true));
    let error = list(fields.next()?, REJECTED)?.into_iter().next();
    Some(Disposition {
        role: if role == Some(Value::Bool(true)) { Role::Receiver } else { Role::Sender },
        first,
        last,
        settled,
        state: Some(DeliveryState::Rejected(Rejected { error: error.and_then(broker_error) })),
        batchable: false,
    })
}

fn broker_error(value: Value) -> Option<Error> {
    let mut fields = list(value, ERROR)?.into_iter();
    let condition = match fields.next()? {
        Value::Symbol(symbol) => ErrorCondition::Custom(symbol),
        _ => return None,
    };
    let description = match fields.next() {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    let info = match fields.next() {
        Some(Value::Map(map)) => {
            let mut info = Fields::default();
            for (name, value) in map {
                match name {
                    Value::String(name) => drop(info.insert(Symbol::from(name), value)),
                    Value::Symbol(name) => drop(info.insert(name, value)),
                    _ => {}
                }
            }
            Some(info)
        }
        _ => None,
    };
    Some(Error::new(condition, description, info))
}

fn list(value: Value, code: u64) -> Option<Vec<Value>> {
    match value {
        Value::Described(described) if described.descriptor == Descriptor::Code(code) => {
            match described.value {
                Value::List(fields) => Some(fields),
                _ => None,
            }
        }
        _ => None,
    }
}
