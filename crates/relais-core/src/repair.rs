//! Reprocessing: decodes an undecodable row again.
//!
//! Invariant: the raw bytes stay with the row, and a message that is stored already under the id found now is
//! never handled a second time.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Serialize;

use crate::{
    decode::{DecodedValue, Decoder, SchemaDecoder},
    delivery::Problem,
    extract::{Incoming, Mapping, ordering_key},
    inbox::{InboxRow, InboxStatus},
    message::{HEADER_MESSAGE_ID, HEADER_SCHEMA_ID, Headers},
};

/// Reserved header: the id the row had before its repair found the one its source promises.
pub const HEADER_ORIGINAL_ID: &str = "relais-original-message-id";
/// `error_code` of a repaired row whose message was there already.
pub const CODE_DUPLICATE: &str = "DUPLICATE";

/// A source as it is declared now.
#[derive(Clone, Debug)]
pub struct DeclaredSource {
    /// The topics its rows carry.
    pub topics: Vec<String>,
    /// The decoder and the places of ids in its messages.
    pub mapping: Mapping,
    /// The schema registry of the source.
    pub schemas: Option<Arc<dyn SchemaDecoder>>,
}

impl DeclaredSource {
    /// Decodes bytes with this decoder, and with a schema of the source if it needs one.
    pub async fn decode(&self, decoder: Decoder, bytes: &[u8]) -> Result<DecodedValue, Problem> {
        match &self.schemas {
            Some(schemas) if decoder.needs_schema() => schemas.decode(bytes).await,
            _ => decoder.decode(bytes),
        }
    }
}

/// The id that a row is to have afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// The one found where its source promises it, else its own.
    #[default]
    Promised,
    /// The one it has.
    Own,
}

/// A row as it was decoded again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RewrittenRow {
    /// The id of the message afterwards.
    pub message_id: String,
    /// The origin of that id.
    pub identity: Identity,
    /// The ordering key.
    pub msg_key: String,
    /// The id of the aggregate that it is about.
    pub aggregate_id: Option<String>,
    /// The event type.
    pub event_type: Option<String>,
    /// Valid JSON.
    pub payload: String,
    /// The headers.
    pub headers: Headers,
}

/// A rewritten row on its way into the store, with the operator and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// The row as it is to be stored.
    pub rewritten: RewrittenRow,
    /// The operator.
    pub actor: String,
    /// The operator's reason.
    pub reason: String,
}

/// The mode of a repair or an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Returns the result without changing anything.
    Try,
    /// Writes the result.
    Write,
}

/// The result of reprocessing a row.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReprocessOutcome {
    /// `RECEIVED`: it is handled like any other.
    Received,
    /// Its message is the one of another row: `PROCESSED` with [`CODE_DUPLICATE`].
    Duplicate { of: i64 },
    /// Another row has the id, with other content: nothing was changed.
    Conflict { with: i64 },
    /// It is not, or no longer, `SERDE_ERROR`: nothing was changed. Without a status it was deleted.
    Refused { status: Option<InboxStatus> },
}

/// The row that has the id already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Twin {
    /// The id of that row.
    pub id: i64,
    /// True if it has the same payload, or came as the same bytes.
    pub same: bool,
}

/// The decision of the store about a `SERDE_ERROR` row.
pub fn decide(twin: Option<Twin>) -> ReprocessOutcome {
    match twin {
        None => ReprocessOutcome::Received,
        Some(Twin { id, same: true }) => ReprocessOutcome::Duplicate { of: id },
        Some(Twin { id, same: false }) => ReprocessOutcome::Conflict { with: id },
    }
}

/// `error_message` of a row that turned out to be another's message.
pub fn duplicate_message(of: i64) -> String {
    format!("same message as inbox row {of}")
}

/// The source a row is to be read with now.
///
/// Its source is the one that has its source system and topic; a source system that only one source
/// has is enough, because sources may be renamed.
pub fn declared<'a>(
    sources: &'a [DeclaredSource],
    row: &InboxRow,
) -> Result<&'a DeclaredSource, Problem> {
    let (system, topic) = (&row.source_system, &row.topic);
    let of_system = || sources.iter().filter(|source| source.mapping.source_system == *system);
    if let Some(exact) = of_system().find(|source| source.topics.contains(topic)) {
        return Ok(exact);
    }
    let mut others = of_system();
    match (others.next(), others.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err(Problem::new(
            "NO_SOURCE",
            &format!("no source has the source_system `{system}` now; declare one"),
        )),
        (Some(_), Some(_)) => Err(Problem::new(
            "NO_SOURCE",
            &format!(
                "several sources have the source_system `{system}`, and none the topic `{topic}`"
            ),
        )),
    }
}

/// The bytes as they came.
pub fn original(row: &InboxRow) -> Result<Vec<u8>, Problem> {
    match &row.raw_payload_base64 {
        Some(base64) => STANDARD.decode(base64).map_err(|error| {
            Problem::new("NOT_BASE64", &format!("raw_payload_base64 is not Base64: {error}"))
        }),
        // Another writer's row; the schema has one of the two.
        None => Ok(row.payload.clone().unwrap_or_default().into_bytes()),
    }
}

/// The row as the mapping finds its parts in a decoded value.
pub fn reread(
    mapping: &Mapping,
    row: &InboxRow,
    decoded: DecodedValue,
    wanted: Identity,
) -> RewrittenRow {
    let DecodedValue { json, schema_id } = decoded;
    let mut headers = row.headers.clone();
    if let Some(schema_id) = schema_id {
        headers.set(HEADER_SCHEMA_ID, &schema_id.to_string());
    }
    let parts = mapping.parts(&as_it_came(row), Some(&json));
    if parts.order_id.is_some() || row.key_str.is_none() {
        // Else the row is about its key, of which the first reading judged the original.
        parts.note(&mut headers);
    }
    let (message_id, identity) = match (wanted, parts.message_id) {
        (Identity::Promised, Some(found)) => (found, Identity::Promised),
        _ => (row.message_id.clone(), Identity::Own),
    };
    if identity == Identity::Promised {
        headers.0.remove(HEADER_MESSAGE_ID);
    }
    if message_id != row.message_id {
        headers.set(HEADER_ORIGINAL_ID, &row.message_id);
    }
    RewrittenRow {
        msg_key: ordering_key(parts.order_id.as_ref(), row.key_str.as_ref(), &message_id),
        message_id,
        identity,
        aggregate_id: parts.aggregate_id,
        event_type: parts.event_type,
        payload: json,
        headers,
    }
}

/// Returns the row's message as its source received it, without its position: of that, only the row's id is left.
fn as_it_came(row: &InboxRow) -> Incoming {
    Incoming {
        topic: row.topic.clone(),
        partition_num: row.partition_num,
        offset_num: row.offset_num,
        key: row.key_str.clone(),
        headers: row.headers.clone(),
        event_ts: row.event_ts,
        ..Incoming::default()
    }
}

/// The decoders that would read the bytes: those that find JSON in them, else those that take them
/// as they are.
pub fn readable_by(bytes: &[u8]) -> Vec<Decoder> {
    let reads = |decoder: &Decoder| decoder.decode(bytes).is_ok();
    let (whole, json): (Vec<_>, Vec<_>) = Decoder::ALL
        .into_iter()
        .filter(reads)
        .partition(|decoder| matches!(decoder, Decoder::Text | Decoder::Bytes));
    if json.is_empty() { whole } else { json }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{extract::Pick, inbox::NewInbox};

    fn mapping(decoder: Decoder) -> Mapping {
        Mapping {
            source_system: "crm".into(),
            decoder,
            message_id: Pick::Payload("/id".into()),
            event_type: Some(Pick::Payload("/type".into())),
            aggregate_id: Some(Pick::Payload("/familyId".into())),
        }
    }

    /// A row as the inbox has it after `bytes` could not be read.
    fn broken(bytes: &[u8]) -> InboxRow {
        InboxRow {
            topic: "members".into(),
            partition_num: 3,
            offset_num: 17,
            key_str: Some("k".into()),
            lane: 5,
            event_type: None,
            payload: None,
            headers: Headers::from_json(r#"{"relais-message-id":"position","trace":"t"}"#),
            raw_payload_base64: Some(STANDARD.encode(bytes)),
            status: InboxStatus::SerdeError,
            error_code: Some("INVALID_JSON".into()),
            ..InboxRow::received(17, NewInbox::new("crm", "c/members/3/17@9", "", "{}").key("k"))
        }
    }

    /// Decodes bytes and reads the row again.
    fn again(mapping: &Mapping, row: &InboxRow, bytes: &[u8], wanted: Identity) -> RewrittenRow {
        reread(mapping, row, mapping.decoder.decode(bytes).unwrap(), wanted)
    }

    const FRAMED: &[u8] = b"\0\0\0\0\x07{\"id\":\"m-1\",\"type\":\"Joined\",\"familyId\":9}";

    #[test]
    fn a_new_decoder_finds_every_part_again() {
        let row = broken(FRAMED);
        let bytes = original(&row).unwrap();
        let new = again(&mapping(Decoder::ConfluentJson), &row, &bytes, Identity::Promised);
        assert_eq!(new.payload.as_bytes(), &FRAMED[5..]);
        assert_eq!((new.message_id.as_str(), new.identity), ("m-1", Identity::Promised));
        assert_eq!((new.msg_key.as_str(), new.aggregate_id.as_deref()), ("9", Some("9")));
        assert_eq!(new.event_type.as_deref(), Some("Joined"));
        assert_eq!(new.headers.get(HEADER_ORIGINAL_ID), Some("c/members/3/17@9"));
        assert_eq!(new.headers.get(HEADER_SCHEMA_ID), Some("7"));
        assert_eq!(new.headers.get("trace"), Some("t"));
        assert_eq!(new.headers.get(HEADER_MESSAGE_ID), None, "a real id was found");
    }

    #[test]
    fn without_a_promised_id_the_row_keeps_its_own() {
        let row = broken(b"x");
        let new = again(&mapping(Decoder::Json), &row, b"{}", Identity::Promised);
        assert_eq!((new.message_id, new.identity), (row.message_id, Identity::Own));
        assert_eq!(new.headers.get(HEADER_MESSAGE_ID), Some("position"));
        assert_eq!(new.headers.get(HEADER_ORIGINAL_ID), None);
        assert_eq!(new.msg_key, "k", "the key it came with");
    }

    #[test]
    fn the_own_id_can_be_kept_and_is_the_key_of_last_resort() {
        let mut row = broken(b"x");
        row.key_str = None;
        let mapping = Mapping { aggregate_id: None, ..mapping(Decoder::Json) };
        let new = again(&mapping, &row, br#"{"id":"m-1"}"#, Identity::Own);
        assert_eq!((&new.message_id, &new.msg_key), (&row.message_id, &row.message_id));
        let new = again(&mapping, &row, br#"{"id":"m-1"}"#, Identity::Promised);
        assert_eq!(new.msg_key, "m-1");
    }

    #[test]
    fn an_id_that_stays_is_no_change() {
        let mut row = broken(b"x");
        row.message_id = "m-1".into();
        row.headers = Headers::default();
        let new = again(&mapping(Decoder::Json), &row, br#"{"id":"m-1"}"#, Identity::Promised);
        assert_eq!((new.message_id.as_str(), new.headers), ("m-1", Headers::default()));
    }

    #[test]
    fn a_row_that_stays_undecodable_names_the_cause_and_a_decoder_that_fits() {
        let problem = Decoder::Json.decode(FRAMED).unwrap_err();
        assert_eq!(problem.code, "INVALID_JSON");
        assert_eq!(readable_by(FRAMED), [Decoder::ConfluentJson]);
        assert_eq!(readable_by(b"\"caf\xe9\""), [Decoder::JsonLatin1]);
        assert_eq!(readable_by(b"{oops"), [Decoder::Text, Decoder::Bytes]);
        assert_eq!(readable_by(b"\xff"), [Decoder::Bytes]);
    }

    #[test]
    fn the_source_is_found_by_system_and_topic_or_by_a_system_of_its_own() {
        let source = |system: &str, topic: &str, decoder| DeclaredSource {
            topics: vec!["other".into(), topic.into()],
            mapping: Mapping { source_system: system.into(), ..mapping(decoder) },
            schemas: None,
        };
        let row = broken(b"x");
        let a = source("crm", "renamed", Decoder::Text);
        let b = source("crm", "members", Decoder::Bytes);
        let c = source("shop", "members", Decoder::Json);
        let found = |sources: &[DeclaredSource]| {
            declared(sources, &row).map(|source| source.mapping.decoder)
        };
        assert_eq!(found(&[a.clone(), b, c.clone()]), Ok(Decoder::Bytes));
        assert_eq!(found(&[c.clone(), a.clone()]), Ok(Decoder::Text));
        assert!(found(&[c]).unwrap_err().message.contains("`crm`"));
        let twice = found(&[a.clone(), a]).unwrap_err();
        assert!(twice.message.contains("`members`"), "{twice:?}");
    }

    #[test]
    fn bytes_that_are_no_base64_are_a_problem_and_not_a_crash() {
        let mut row = broken(b"x");
        row.raw_payload_base64 = Some("~".into());
        assert_eq!(original(&row).unwrap_err().code, "NOT_BASE64");
        (row.raw_payload_base64, row.payload) = (None, Some("{}".into()));
        assert_eq!(original(&row).unwrap(), b"{}");
    }

    #[test]
    fn a_message_that_is_there_already_never_goes_twice() {
        assert_eq!(decide(None), ReprocessOutcome::Received);
        assert_eq!(decide(Some(Twin { id: 4, same: true })), ReprocessOutcome::Duplicate { of: 4 });
        assert_eq!(
            decide(Some(Twin { id: 4, same: false })),
            ReprocessOutcome::Conflict { with: 4 }
        );
    }
}
