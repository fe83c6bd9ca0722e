//! Values of AMQP 1.0 as header values, JSON and bytes.
//!
//! Pure. Text and bytes stay as they are; what only AMQP has becomes JSON or text.

use fe2o3_amqp_types::{
    messaging::{Body, MessageId, annotations::OwnedKey},
    primitives::{SimpleValue, Uuid, Value},
};
use relais_core::{extract, message::HeaderValue};
use serde_json::json;

/// Returns the bytes of a body. Sections that are no data become their text or JSON.
pub(super) fn body_bytes(body: Body<Value>) -> extract::Value {
    let bytes = match body {
        Body::Empty => return extract::Value::Tombstone,
        Body::Value(value) => match value.0 {
            Value::Null => return extract::Value::Tombstone,
            Value::Binary(bytes) => bytes.into_vec(),
            Value::String(text) => text.into_bytes(),
            other => json(&other).to_string().into_bytes(),
        },
        Body::Data(sections) => {
            let mut sections = sections.into_iter().map(|data| data.0.into_vec());
            let first = sections.next().unwrap_or_default();
            sections.fold(first, |mut all, next| {
                all.extend(next);
                all
            })
        }
        Body::Sequence(sections) => {
            let elements = sections.into_iter().flat_map(|section| section.0);
            let all: Vec<serde_json::Value> = elements.map(|element| json(&element)).collect();
            serde_json::Value::from(all).to_string().into_bytes()
        }
    };
    if bytes.is_empty() { extract::Value::Empty } else { extract::Value::Bytes(bytes) }
}

/// Returns an id as text, or its bytes.
pub(super) fn id_header(id: &MessageId) -> HeaderValue {
    match id {
        MessageId::String(text) => HeaderValue::from_bytes(text.as_bytes()),
        MessageId::Binary(bytes) => HeaderValue::from_bytes(bytes),
        MessageId::Ulong(number) => HeaderValue::Text(number.to_string()),
        MessageId::Uuid(uuid) => HeaderValue::Text(uuid_text(uuid)),
    }
}

/// Returns the value of an application property.
pub(super) fn property_header(value: &SimpleValue) -> HeaderValue {
    match value {
        SimpleValue::String(text) => HeaderValue::from_bytes(text.as_bytes()),
        SimpleValue::Symbol(text) => HeaderValue::from_bytes(text.as_str().as_bytes()),
        SimpleValue::Binary(bytes) => HeaderValue::from_bytes(bytes),
        SimpleValue::Null => HeaderValue::Null,
        other => annotation_header(&Value::from(other.clone())),
    }
}

/// Returns the value of an annotation: text as it is, everything else as JSON.
pub(super) fn annotation_header(value: &Value) -> HeaderValue {
    match json(value) {
        serde_json::Value::Null => HeaderValue::Null,
        serde_json::Value::String(text) => HeaderValue::from_bytes(text.as_bytes()),
        other => HeaderValue::Text(other.to_string()),
    }
}

pub(super) fn key_text(key: &OwnedKey) -> String {
    match key {
        OwnedKey::Symbol(symbol) => symbol.as_str().to_owned(),
        OwnedKey::Ulong(number) => number.to_string(),
    }
}

fn json(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Described(described) => json(&described.value),
        Value::Bool(flag) => json!(flag),
        Value::Ubyte(number) => json!(number),
        Value::Ushort(number) => json!(number),
        Value::Uint(number) => json!(number),
        Value::Ulong(number) => json!(number),
        Value::Byte(number) => json!(number),
        Value::Short(number) => json!(number),
        Value::Int(number) => json!(number),
        Value::Long(number) => json!(number),
        Value::Float(number) => json!(number.into_inner()),
        Value::Double(number) => json!(number.into_inner()),
        Value::Char(character) => json!(character),
        Value::Timestamp(time) => json!(time.milliseconds()),
        Value::Uuid(uuid) => json!(uuid_text(uuid)),
        Value::String(text) => json!(text),
        Value::Symbol(symbol) => json!(symbol.as_str()),
        Value::Binary(bytes) => {
            serde_json::to_value(HeaderValue::from_bytes(bytes)).unwrap_or_default()
        }
        Value::List(values) => values.iter().map(json).collect(),
        Value::Array(values) => values.0.iter().map(json).collect(),
        Value::Map(map) => {
            let text = |key: &Value| match json(key) {
                serde_json::Value::String(text) => text,
                other => other.to_string(),
            };
            map.iter().map(|(key, value)| (text(key), json(value))).collect()
        }
        // JSON has no decimal floating point of this form.
        other => json!(format!("{other:?}")),
    }
}

fn uuid_text(uuid: &Uuid) -> String {
    uuid::Uuid::from_bytes(*uuid.as_inner()).to_string()
}

#[cfg(test)]
mod tests {
    use fe2o3_amqp_types::{
        messaging::{AmqpSequence, AmqpValue, Batch, Data},
        primitives::{Binary, Symbol, Timestamp},
    };

    use super::*;

    fn bytes(text: &str) -> extract::Value {
        extract::Value::Bytes(text.as_bytes().to_vec())
    }

    fn data(sections: &[&[u8]]) -> Body<Value> {
        Body::Data(Batch::new(
            sections.iter().map(|one| Data(Binary::from(one.to_vec()))).collect::<Vec<_>>(),
        ))
    }

    fn value(value: Value) -> Body<Value> {
        Body::Value(AmqpValue(value))
    }

    #[test]
    fn every_body_section_has_its_bytes() {
        let map = [(Value::from("a"), Value::Int(1)), (Value::Ulong(7), Value::Null)];
        let sequence = vec![Value::Int(1), Value::from("two")];
        for (body, expected) in [
            (data(&[b"{}"]), bytes("{}")),
            (data(&[b"{", b"}"]), bytes("{}")),
            (data(&[b""]), extract::Value::Empty),
            (data(&[]), extract::Value::Empty),
            (value(Value::from("{\"a\": 1}")), bytes("{\"a\": 1}")),
            (value(Value::Binary(vec![b'x'].into())), bytes("x")),
            (value(Value::Null), extract::Value::Tombstone),
            (Body::Empty, extract::Value::Tombstone),
            (value(Value::Map(map.into_iter().collect())), bytes(r#"{"7":null,"a":1}"#)),
            (value(Value::List(vec![Value::Bool(true)])), bytes("[true]")),
            (value(Value::Timestamp(Timestamp::from_milliseconds(5))), bytes("5")),
            (
                Body::Sequence(Batch::new(vec![
                    AmqpSequence(sequence),
                    AmqpSequence(vec![Value::Symbol(Symbol::from("s"))]),
                ])),
                bytes(r#"[1,"two","s"]"#),
            ),
        ] {
            assert_eq!(body_bytes(body), expected);
        }
    }

    #[test]
    fn ids_and_properties_keep_text_and_bytes() {
        let text = |text: &str| HeaderValue::Text(text.to_owned());
        let raw = HeaderValue::Bytes { base64: "/wA=".to_owned() };
        let uuid = uuid::Uuid::from_u128(7);
        assert_eq!(id_header(&MessageId::String("é".into())), text("é"));
        assert_eq!(id_header(&MessageId::Ulong(7)), text("7"));
        assert_eq!(id_header(&MessageId::Uuid(uuid.into_bytes().into())), text(&uuid.to_string()));
        assert_eq!(id_header(&MessageId::Binary(vec![0xFF, 0].into())), raw);
        assert_eq!(property_header(&SimpleValue::Binary(vec![0xFF, 0].into())), raw);
        assert_eq!(property_header(&SimpleValue::Null), HeaderValue::Null);
        assert_eq!(property_header(&SimpleValue::Long(-3)), text("-3"));
        assert_eq!(property_header(&SimpleValue::Bool(true)), text("true"));
        assert_eq!(property_header(&SimpleValue::Symbol("s".into())), text("s"));
    }
}
