//! A received message made from the bytes of a fuzz input: any value, key, header, time and declaration.

use relais_core::{
    decode::Decoder,
    extract::{Incoming, Mapping, Pick, Value},
    message::{HeaderValue, Headers},
    time::Timestamp,
};

use super::parts::Parts;

/// A message, and how its source is declared.
pub(crate) struct Record<'a> {
    pub(crate) mapping: Mapping,
    pub(crate) incoming: Incoming,
    pub(crate) header: (String, &'a [u8]),
    /// As it came.
    pub(crate) value: &'a [u8],
}

impl<'a> Record<'a> {
    pub(crate) fn of(input: &'a [u8]) -> Self {
        let mut parts = Parts::new(input);
        let (decoder, place) = (parts.byte(), parts.byte());
        let (key, time, name) = (parts.text(), parts.text(), parts.text());
        let header = parts.bytes();
        let value = parts.rest();
        let mut headers = Headers::default();
        headers.receive(&name, HeaderValue::from_bytes(header));
        headers.receive(&name, HeaderValue::Null);
        let mapping = Mapping::json("fuzz")
            .decoder(Decoder::ALL[usize::from(decoder) % Decoder::ALL.len()])
            .message_id(match place % 4 {
                0 => Pick::Header(name.clone()),
                1 => Pick::Payload("/id".into()),
                2 => Pick::Key,
                _ => Pick::Position,
            })
            .event_type(Pick::Payload("/type".into()))
            .aggregate_id((place & 4 == 0).then(|| Pick::Payload("/of".into())));
        let incoming = Incoming {
            topic: "t".into(),
            partition_num: i32::from(decoder),
            offset_num: i64::MAX,
            key: (place & 8 == 0).then_some(key),
            headers,
            value: match place >> 6 {
                0 => Value::Empty,
                1 => Value::Tombstone,
                _ => Value::Bytes(value.to_vec()),
            },
            event_ts: Timestamp::parse(&time),
            position: (place & 16 == 0).then(|| format!("c/t/0/{decoder}@{place}")),
        };
        Self { mapping, incoming, header: (name, header), value }
    }
}
