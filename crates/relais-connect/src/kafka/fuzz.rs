//! Fuzz target: an incoming record, its row, and the outgoing record.

use rdkafka::message::Headers as _;
use relais_core::{
    extract::{Incoming, Mapping, Pick, Value},
    inbox::Content,
    message::{HeaderValue, Headers},
    outbox::OutboxRow,
};

use super::{
    record::{OutgoingRecord, RecordFormat},
    source::read_key,
};
use crate::{fuzz_parts::Parts, testing};

/// Key, value and headers are sent as the bytes that were received.
pub fn kafka_record(input: &[u8]) {
    let mut parts = Parts::new(input);
    let flags = parts.byte();
    let (key, name, header) = (parts.bytes(), parts.text(), parts.bytes());
    let value = parts.rest();
    let mut headers = Headers::default();
    headers.receive(&name, HeaderValue::from_bytes(header));
    headers.receive(&name, HeaderValue::Null);
    let came = match flags % 4 {
        0 => Value::Tombstone,
        1 => Value::Empty,
        _ => Value::Bytes(value.to_vec()),
    };
    let incoming = Incoming {
        key: Some(read_key(key, &mut headers)),
        headers,
        value: came.clone(),
        position: Some("c/t/0/1@2".into()),
        ..Incoming::default()
    };
    let mapping = Mapping::json("s").message_id(Pick::Position);
    let received = mapping.read(incoming).expect("it has a position");
    let Content::Json(payload) = received.content else { return };
    let content_type = "application/json";
    let format = match flags & 8 {
        0 => RecordFormat::Plain,
        _ => RecordFormat::CloudEvents { content_type },
    };
    let row = OutboxRow {
        msg_key: received.msg_key,
        headers: received.headers,
        ..testing::row(&payload)
    };
    let record = OutgoingRecord::of(&row, format);
    assert_eq!(&*record.key, key);
    let goes = match came {
        Value::Tombstone => None,
        Value::Empty => Some(&[][..]),
        Value::Bytes(_) => Some(value),
    };
    assert_eq!(record.value, goes);
    let sent: Vec<_> =
        record.headers.iter().map(|h| (h.key.to_owned(), h.value.map(<[u8]>::to_vec))).collect();
    let of = |name: &str| {
        sent.iter()
            .filter(|(sent, _)| sent == name)
            .map(|(_, value)| value.clone())
            .collect::<Vec<_>>()
    };
    let ours = sent
        .iter()
        .take_while(|(sent, _)| *sent != name)
        .any(|(sent, _)| sent.eq_ignore_ascii_case(&name));
    let name = if name.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("relais-")) {
        format!("x-{name}")
    } else {
        name
    };
    // librdkafka truncates a name at its first NUL.
    if !name.contains('\0') && !ours && of(&name).len() != 1 {
        assert_eq!(of(&name), [Some(header.to_vec()), None], "{name:?}");
    }
    assert_eq!(of("message-id").len(), 1, "ours alone");
}

#[cfg(test)]
mod tests {
    #[test]
    fn any_record_goes_out_as_it_came_in() {
        crate::fuzz_run::run("kafka_record", 10_000, super::kafka_record);
    }
}
