//! Where the parts of a received message are found: `header:…`, `payload:/pointer`, `key`,
//! `position`. Pure: bytes in, an inbox row out, whatever the bytes are.

use std::str::FromStr;

use crate::{
    delivery::Problem,
    inbox::{Content, NewInbox},
    json,
    message::Headers,
    text,
    time::Timestamp,
};

/// Where one value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    Header(String),
    Payload(String),
    Key,
    Position,
}

impl FromStr for Pick {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("header", name)) if !name.is_empty() => Ok(Self::Header(name.to_owned())),
            Some(("payload", pointer)) if pointer.is_empty() || pointer.starts_with('/') => {
                Ok(Self::Payload(pointer.to_owned()))
            }
            None if text == "key" => Ok(Self::Key),
            None if text == "position" => Ok(Self::Position),
            _ => Err(format!(
                "`{text}` is not a place in a message; use `header:NAME`, `payload:/JSON/POINTER`, \
                 `key` or `position`"
            )),
        }
    }
}

/// What a source knows of a message before anybody looked into it.
#[derive(Clone, Debug, Default)]
pub struct Incoming {
    pub topic: String,
    pub partition_num: i32,
    pub offset_num: i64,
    pub key: Option<String>,
    pub headers: Headers,
    pub body: Vec<u8>,
    pub event_ts: Option<Timestamp>,
}

/// How a source's messages are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub source_system: String,
    pub message_id: Pick,
    pub event_type: Option<Pick>,
    pub aggregate_id: Option<Pick>,
}

/// A decodable message without the id its source promises.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no message id: {0}")]
pub struct MissingId(pub String);

impl Mapping {
    /// The inbox row of a message.
    ///
    /// What cannot be decoded keeps the id of its header or key if it has one, else the hash of its
    /// bytes: the same garbage twice is one row.
    pub fn read(&self, incoming: Incoming) -> Result<NewInbox, MissingId> {
        let decoded = json::check(&incoming.body).map(str::to_owned);
        let json = decoded.as_deref().ok();
        let message_id = match (self.pick(&self.message_id, &incoming, json), &decoded) {
            (Some(id), _) => text::identity(&id, text::MESSAGE_ID_MAX),
            (None, Err(_)) => format!("sha256:{}", text::sha256_hex(&incoming.body)),
            (None, Ok(_)) => return Err(self.missing_id()),
        };
        let find = |pick: &Option<Pick>| pick.as_ref().and_then(|p| self.pick(p, &incoming, json));
        let aggregate_id =
            find(&self.aggregate_id).map(|id| text::identity(&id, text::MESSAGE_ID_MAX));
        let event_type = find(&self.event_type).map(|t| text::fit(&t, text::MESSAGE_ID_MAX));
        let key_str = incoming.key.as_deref().map(|key| text::identity(key, text::KEY_MAX));
        let msg_key =
            aggregate_id.clone().or_else(|| key_str.clone()).unwrap_or_else(|| message_id.clone());
        let content = match decoded {
            Ok(json) => Content::Json(json),
            Err(error) => Content::Undecodable {
                problem: Problem::new(error.code(), &error.to_string()),
                bytes: incoming.body,
            },
        };
        Ok(NewInbox {
            source_system: self.source_system.clone(),
            message_id,
            topic: incoming.topic,
            partition_num: incoming.partition_num,
            offset_num: incoming.offset_num,
            key_str,
            msg_key,
            aggregate_id,
            event_type,
            content,
            headers: incoming.headers,
            event_ts: incoming.event_ts,
        })
    }

    fn pick(&self, pick: &Pick, incoming: &Incoming, json: Option<&str>) -> Option<String> {
        let found = match pick {
            Pick::Header(name) => incoming.headers.get(name).map(str::to_owned),
            // An object or a list is nobody's name.
            Pick::Payload(pointer) => json::pointer(json?, pointer)
                .filter(|found| !found.starts_with(['{', '[']))
                .and_then(json::text),
            Pick::Key => incoming.key.clone(),
            Pick::Position => Some(format!(
                "{}/{}/{}",
                incoming.topic, incoming.partition_num, incoming.offset_num
            )),
        };
        found.filter(|text| !text.is_empty())
    }

    fn missing_id(&self) -> MissingId {
        MissingId(match &self.message_id {
            Pick::Header(name) => format!("header `{name}` is absent or empty"),
            Pick::Payload(pointer) => format!("payload has no scalar at `{pointer}`"),
            Pick::Key => "the message has no key".to_owned(),
            Pick::Position => "the message has no position".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(message_id: &str) -> Mapping {
        Mapping {
            source_system: "crm".into(),
            message_id: message_id.parse().unwrap(),
            event_type: Some("payload:/type".parse().unwrap()),
            aggregate_id: Some("payload:/familyId".parse().unwrap()),
        }
    }

    fn incoming(body: &[u8]) -> Incoming {
        Incoming { topic: "hook".into(), body: body.to_vec(), ..Incoming::default() }
    }

    #[test]
    fn parts_come_from_where_the_settings_say() {
        let mut message = incoming(br#"{"type":"MembersCreated","familyId":7}"#);
        message.headers.set("Message-Id", "m-1");
        let row = mapping("header:message-id").read(message).unwrap();
        assert_eq!(row.message_id, "m-1");
        assert_eq!(row.event_type.as_deref(), Some("MembersCreated"));
        assert_eq!((row.aggregate_id.as_deref(), row.msg_key.as_str()), (Some("7"), "7"));
    }

    #[test]
    fn garbage_is_kept_with_its_reason_and_one_identity() {
        let read = |body: &[u8]| mapping("payload:/id").read(incoming(body)).unwrap();
        let row = read(b"{oops");
        assert_eq!(row.message_id, read(b"{oops").message_id);
        assert_ne!(row.message_id, read(b"{oop").message_id);
        assert!(
            matches!(row.content, Content::Undecodable { ref problem, .. } if problem.code == "INVALID_JSON")
        );
    }

    #[test]
    fn a_decodable_message_without_its_id_is_refused() {
        let error = mapping("header:message-id").read(incoming(b"{}")).unwrap_err();
        assert_eq!(error.to_string(), "no message id: header `message-id` is absent or empty");
        for id in ["null", "\"\"", "{\"a\":1}", "[1]"] {
            let body = format!("{{\"id\":{id}}}");
            assert!(mapping("payload:/id").read(incoming(body.as_bytes())).is_err(), "{id}");
        }
    }

    #[test]
    fn unknown_places_are_named() {
        assert!("heder:x".parse::<Pick>().unwrap_err().contains("header:NAME"));
        assert!("payload:x".parse::<Pick>().is_err());
    }
}
