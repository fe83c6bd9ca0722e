//! Messages for tests: plain ones, which a test changes where it matters.

use relais_core::{
    delivery::Problem,
    inbox::{Content, NewInbox},
    message::{Headers, NewMessage},
};
use uuid::Uuid;

/// An outbox message of a fresh id for the key.
pub fn message(destination: &str, key: &str) -> NewMessage {
    let payload = format!(r#"{{"orderKey":{}}}"#, json_string(key));
    NewMessage::new(Uuid::now_v7(), ("Order", key), "OrderCreated", destination, payload)
}

/// `count` messages, each of its own key.
pub fn messages(destination: &str, count: usize) -> Vec<NewMessage> {
    (0..count).map(|n| message(destination, &format!("key-{n}"))).collect()
}

/// A received message of its own key.
pub fn arrival(message_id: &str) -> NewInbox {
    arrival_for(message_id, message_id)
}

/// A received message of a key.
pub fn arrival_for(message_id: &str, key: &str) -> NewInbox {
    NewInbox {
        source_system: "ihub".to_owned(),
        message_id: message_id.to_owned(),
        topic: "members-created".to_owned(),
        partition_num: 0,
        offset_num: 0,
        key_str: Some(key.to_owned()),
        msg_key: key.to_owned(),
        aggregate_id: Some(key.to_owned()),
        event_type: Some("MembersCreated".to_owned()),
        content: Content::Json(format!(r#"{{"familyId":{}}}"#, json_string(key))),
        headers: Headers::default(),
        event_ts: None,
    }
}

/// A received message with this payload.
pub fn arrival_with(message_id: &str, payload: &str) -> NewInbox {
    NewInbox { content: Content::Json(payload.to_owned()), ..arrival(message_id) }
}

/// A received message whose bytes are not what its source declares.
pub fn undecodable(message_id: &str, bytes: &[u8]) -> NewInbox {
    let problem = Problem::new("NOT_UTF8", "not UTF-8 at byte 0");
    let content = Content::Undecodable { bytes: bytes.to_vec(), problem };
    NewInbox { content, ..arrival(message_id) }
}

/// A reason like any other.
pub fn problem() -> Problem {
    Problem::new("HTTP_500", "the target answered 500")
}

/// `count` characters, four bytes each, that no compression makes shorter; the same for one `seed`.
pub fn wide_text(count: usize, seed: u32) -> String {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        0x1_0000 + state % 0xF_0000
    };
    (0..count).map(|_| char::from_u32(next()).expect("above the surrogates")).collect()
}

fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
