//! Parses a message as the API of a stream returns it, with any bytes in its headers.
//!
//! Pure. The client library refuses headers that are not UTF-8 or have an odd form, and closes the
//! connection. Here nothing is refused: what is no header is kept beside the others.

use base64::{Engine, engine::general_purpose::STANDARD};
use relais_core::message::{HeaderValue, Headers};

use super::{
    api::{ConsumerPlan, StoredNatsMessage},
    classify::NatsFailure,
    delivery::{StreamFormat, StreamMessage, subject_header},
};

/// The first line of headers.
const VERSION: &[u8] = b"NATS/1.0";
/// The header with lines that are no headers.
const MALFORMED: &str = "nats-malformed-header";
/// The sign with which the server replaces bytes of a subject that are not UTF-8.
const REPLACED: char = '\u{FFFD}';

/// A message with what the client library would have made of it.
#[derive(Debug)]
pub(super) struct ParsedMessage {
    pub(super) message: StreamMessage,
    /// The client library would have closed the connection.
    pub(super) is_refused: bool,
}

impl StreamFormat {
    /// Maps a message of the stream that a consumer has delivered.
    pub(super) fn read_stored(
        &self,
        stored: &StoredNatsMessage,
        plan: &ConsumerPlan,
    ) -> Result<ParsedMessage, NatsFailure> {
        let unreadable = || NatsFailure::unreadable(stored.subject.as_bytes());
        let bytes = |text: &str| STANDARD.decode(text).map_err(|_| unreadable());
        let (block, payload) = (bytes(&stored.hdrs)?, bytes(&stored.data)?);
        let time = stored.nanoseconds().ok_or_else(unreadable)?;
        let reply = plan.acknowledgement(stored.seq, time);
        let mut headers = subject_header(&stored.subject);
        let is_odd = add_headers(&mut headers, &block);
        let is_refused =
            is_odd || str::from_utf8(&block).is_err() || stored.subject.contains(REPLACED);
        let size = stored.subject.len() + block.len() + payload.len();
        let message = self.map(reply, headers, payload, size).ok_or_else(unreadable)?;
        Ok(ParsedMessage { message, is_refused })
    }
}

/// Adds the headers of a block. Returns whether it has lines that are none.
fn add_headers(headers: &mut Headers, block: &[u8]) -> bool {
    let mut lines = block.split(|byte| *byte == b'\n').map(|line| line.trim_ascii_end()).peekable();
    let is_continued = |line: &&[u8]| line.first().is_some_and(u8::is_ascii_whitespace);
    let mut is_odd = false;
    if let Some(first) = lines.next_if(|first| !first.is_empty() && *first != VERSION) {
        headers.receive(MALFORMED, HeaderValue::from_bytes(first));
        is_odd = true;
    } else {
        lines.next();
    }
    while let Some(line) = lines.next() {
        let at = line.iter().position(|byte| *byte == b':');
        let name = at.and_then(|at| str::from_utf8(&line[..at]).ok()).filter(|name| is_name(name));
        let (Some(at), Some(name)) = (at, name) else {
            if !line.is_empty() {
                headers.receive(MALFORMED, HeaderValue::from_bytes(line));
                is_odd = true;
            }
            continue;
        };
        let mut value = line[at + 1..].trim_ascii().to_vec();
        while let Some(more) = lines.next_if(is_continued) {
            value.extend_from_slice(more);
        }
        headers.receive(name, HeaderValue::from_bytes(&value));
    }
    is_odd
}

/// Returns whether the client library accepts this name of a header.
fn is_name(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':')
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use relais_core::{extract::Mapping, inbox::Content};

    use super::*;
    use crate::nats::{NatsEnvelope, NatsStart};

    fn parsed(block: &[u8], data: &[u8]) -> ParsedMessage {
        let stored = serde_json::json!({
            "subject": "orders.eu",
            "seq": 17,
            "hdrs": STANDARD.encode(block),
            "data": STANDARD.encode(data),
            "time": "2026-11-15T12:00:00.1234567Z",
        });
        let stored: StoredNatsMessage = serde_json::from_value(stored).unwrap();
        let plan = ConsumerPlan {
            stream: "ORDERS".into(),
            consumer: "relais".into(),
            domain: None,
            filter: None,
            start: NatsStart::All,
            ack_wait: Duration::from_secs(30),
            max_ack_pending: 500,
        };
        let mapping = Mapping::json("crm").message_id("header:Nats-Msg-Id".parse().unwrap());
        let format = StreamFormat { mapping, envelope: NatsEnvelope::None };
        format.read_stored(&stored, &plan).unwrap()
    }

    #[test]
    fn headers_with_any_bytes_become_a_row() {
        let block = b"NATS/1.0\r\nNats-Msg-Id: m-1\r\nname: Gr\xfc\xdfe \r\nempty:\r\nmany: a\r\n\
                      many: b\r\n  c\r\nrelais-value: x\r\n\r\n";
        let ParsedMessage { message, is_refused } = parsed(block, b"{}");
        assert!(is_refused);
        assert_eq!((message.sequence, message.row.message_id.as_str()), (17, "m-1"));
        assert_eq!(message.row.content, Content::Json("{}".into()));
        assert_eq!(
            message.row.headers.to_json(),
            r#"{"Nats-Msg-Id":"m-1","empty":"","many":["a","b  c"],"name":{"base64":"R3L832U="},"#
                .to_owned()
                + r#""nats-subject":"orders.eu","x-relais-value":"x"}"#
        );
    }

    #[test]
    fn a_message_without_an_id_has_the_id_that_it_has_when_it_is_received() {
        let row = parsed(b"NATS/1.0\r\nname: \xff\r\n\r\n", b"{}").message.row;
        assert_eq!(row.message_id, "ORDERS:17:1794744000123456700");
        assert_eq!((row.topic.as_str(), row.offset_num), ("ORDERS", 17));
    }

    #[test]
    fn lines_that_are_no_headers_are_kept() {
        let block = b"NATS/1.0 900 ?\r\nno colon\r\nodd name: 1\r\nname\xff: 2\r\ngood: 3\r\n\r\n";
        let parsed = parsed(block, b"{oops");
        assert!(parsed.is_refused);
        assert!(matches!(parsed.message.row.content, Content::Undecodable { .. }));
        let headers = parsed.message.row.headers.to_json();
        for line in ["NATS/1.0 900 ?", "no colon", "odd name: 1", "\"good\":\"3\""] {
            assert!(headers.contains(line), "{headers}");
        }
        assert!(headers.contains("base64"), "{headers}");
    }

    #[test]
    fn an_ordinary_message_is_not_counted_as_refused() {
        assert!(!parsed(b"NATS/1.0\r\nname: Gr\xc3\xbc\xc3\x9fe\r\n\r\n", b"{}").is_refused);
        assert!(!parsed(b"", b"{}").is_refused);
    }
}
