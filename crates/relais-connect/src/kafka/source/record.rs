//! Maps a Kafka record to an incoming message. Nothing is lost: what no inbox column can hold goes
//! into a reserved header.

use std::panic::{AssertUnwindSafe, catch_unwind};

use base64::{Engine, engine::general_purpose::STANDARD};
use rdkafka::{
    Message,
    message::{BorrowedMessage, Headers as _},
};
use relais_core::{
    extract::{Incoming, Value},
    message::{HEADER_KEY, HeaderValue, Headers},
    text,
    time::Timestamp,
};

/// Reserved header: the timestamp of a record in milliseconds, if no column can hold it.
const HEADER_TIMESTAMP: &str = "relais-timestamp";
/// Reserved header: the number of headers whose name is not UTF-8; they are left out.
const HEADER_UNREADABLE: &str = "relais-unreadable-headers";
/// 0001-01-01 and 9999-12-31T23:59:59.999Z: every database and text format can hold these.
const MILLIS_MIN: i64 = -62_135_596_800_000;
const MILLIS_MAX: i64 = 253_402_300_799_999;

/// Converts a record for the mapping.
pub(super) fn incoming(cluster: &str, record: &BorrowedMessage<'_>) -> Incoming {
    let mut headers = read_headers(record);
    let key = record.key().map(|key| read_key(key, &mut headers));
    let millis = record.timestamp().to_millis();
    let event_ts = millis.and_then(|millis| event_ts(millis, &mut headers));
    let (topic, partition, offset) = (record.topic(), record.partition(), record.offset());
    let at = millis.map_or_else(|| "-".to_owned(), |millis| millis.to_string());
    Incoming {
        position: Some(format!("{cluster}/{topic}/{partition}/{offset}@{at}")),
        topic: topic.to_owned(),
        partition_num: partition,
        offset_num: offset,
        key,
        headers,
        value: match record.payload() {
            None => Value::Tombstone,
            Some([]) => Value::Empty,
            Some(bytes) => Value::Bytes(bytes.to_vec()),
        },
        event_ts,
    }
}

/// Returns the bytes of a record that count for the size of a batch.
pub(super) fn size(record: &BorrowedMessage<'_>) -> usize {
    record.payload_len().saturating_add(record.key_len())
}

/// Returns the key as text. A key that the column cannot hold unchanged is also stored in a header,
/// byte for byte.
pub(in crate::kafka) fn read_key(key: &[u8], headers: &mut Headers) -> String {
    let text = match std::str::from_utf8(key) {
        Ok(text) => text.to_owned(),
        Err(_) => format!("base64:{}", STANDARD.encode(key)),
    };
    if text::identity(&text, text::KEY_MAX).as_bytes() != key {
        headers.push(HEADER_KEY, HeaderValue::from_bytes(key));
    }
    text
}

fn event_ts(millis: i64, headers: &mut Headers) -> Option<Timestamp> {
    if (MILLIS_MIN..=MILLIS_MAX).contains(&millis) {
        return Some(Timestamp::from_millis(millis));
    }
    headers.set(HEADER_TIMESTAMP, &millis.to_string());
    None
}

fn read_headers(record: &BorrowedMessage<'_>) -> Headers {
    let mut headers = Headers::default();
    let Some(theirs) = record.headers() else { return headers };
    let mut unreadable = 0_usize;
    for index in 0..theirs.count() {
        // The library panics on a name that is not UTF-8; one such record must not end the thread.
        match catch_unwind(AssertUnwindSafe(|| theirs.try_get(index))) {
            Ok(Some(header)) => {
                let value = header.value.map_or(HeaderValue::Null, HeaderValue::from_bytes);
                headers.receive(header.key, value);
            }
            Ok(None) | Err(_) => unreadable += 1,
        }
    }
    if unreadable > 0 {
        tracing::warn!(
            topic = record.topic(),
            partition = record.partition(),
            offset = record.offset(),
            unreadable,
            "left out headers whose name is not UTF-8"
        );
        headers.set(HEADER_UNREADABLE, &unreadable.to_string());
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bytes: &[u8]) -> (String, Headers) {
        let mut headers = Headers::default();
        (read_key(bytes, &mut headers), headers)
    }

    #[test]
    fn a_key_is_text_and_other_keys_are_kept_as_bytes() {
        assert_eq!(key("é".as_bytes()), ("é".to_owned(), Headers::default()));
        assert_eq!(key(b""), (String::new(), Headers::default()));
        let (text, headers) = key(&[0xff, 0x00]);
        assert_eq!(text, "base64:/wA=");
        assert_eq!(headers.to_json(), r#"{"relais-key":{"base64":"/wA="}}"#);
    }

    #[test]
    fn a_key_the_column_replaces_by_its_hash_is_kept_in_a_header() {
        let long = "k".repeat(text::KEY_MAX + 1);
        let (text, headers) = key(long.as_bytes());
        assert_eq!(text, long);
        assert_eq!(headers.get(HEADER_KEY), Some(long.as_str()));
        assert!(key(b"a\0b").1.to_json().contains("base64"));
    }

    #[test]
    fn a_time_that_no_column_can_hold_is_kept_in_a_header() {
        for millis in [0, -1_000, 1_794_789_325_948, MILLIS_MAX] {
            let mut headers = Headers::default();
            assert_eq!(event_ts(millis, &mut headers), Some(Timestamp(millis * 1_000)));
            assert_eq!(headers, Headers::default());
        }
        for millis in [i64::MAX, i64::MIN, MILLIS_MAX + 1] {
            let mut headers = Headers::default();
            assert_eq!(event_ts(millis, &mut headers), None);
            assert_eq!(headers.get(HEADER_TIMESTAMP), Some(millis.to_string().as_str()));
        }
    }
}
