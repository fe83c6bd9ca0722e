//! What a source declares its values to be, and how they become JSON.
//!
//! Invariant: nothing is lost. What a decoder accepts can be turned back into the bytes that came;
//! what it does not accept is kept as bytes by the caller.

use std::{fmt, str::FromStr};

use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::STANDARD};

use crate::{InvalidSettings, delivery::Problem, json};

/// The format of the values of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Decoder {
    /// JSON in UTF-8, kept byte for byte.
    #[default]
    Json,
    /// JSON in ISO 8859-1.
    JsonLatin1,
    /// JSON behind the five bytes of a schema registry: 0, then the number of the schema.
    ConfluentJson,
    /// Avro behind the same five bytes. The schema is needed: see [`SchemaDecoder`].
    ConfluentAvro,
    /// Any UTF-8 text: becomes a JSON string.
    Text,
    /// Anything: becomes `{"base64": "…"}`.
    Bytes,
}

/// A value that could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedValue {
    /// The value as JSON.
    pub json: String,
    /// The number of the schema, where the value carries one.
    pub schema_id: Option<u32>,
}

/// Decodes values with the schemas of a registry, which it asks.
#[async_trait]
pub trait SchemaDecoder: fmt::Debug + Send + Sync {
    /// Returns the value as JSON. The problem is that of the value, or of the registry.
    async fn decode(&self, bytes: &[u8]) -> Result<DecodedValue, Problem>;
}

impl Decoder {
    /// All decoders.
    pub const ALL: [Self; 6] = [
        Self::Json,
        Self::JsonLatin1,
        Self::ConfluentJson,
        Self::ConfluentAvro,
        Self::Text,
        Self::Bytes,
    ];

    /// The name in the settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::JsonLatin1 => "json-latin1",
            Self::ConfluentJson => "confluent-json",
            Self::ConfluentAvro => "confluent-avro",
            Self::Text => "text",
            Self::Bytes => "bytes",
        }
    }

    /// Returns whether a value can be decoded only with a schema of a registry.
    pub fn needs_schema(self) -> bool {
        self == Self::ConfluentAvro
    }

    /// The value as JSON, or why it is none.
    pub fn decode(self, bytes: &[u8]) -> Result<DecodedValue, Problem> {
        let plain = |json: String| DecodedValue { json, schema_id: None };
        match self {
            Self::Json => checked(bytes).map(plain),
            Self::JsonLatin1 => {
                let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
                checked(text.as_bytes()).map(plain)
            }
            Self::ConfluentJson => {
                let (schema_id, rest) = split_schema_id(bytes)?;
                Ok(DecodedValue { json: checked(rest)?, schema_id: Some(schema_id) })
            }
            Self::ConfluentAvro => {
                let (schema_id, _) = split_schema_id(bytes)?;
                let message =
                    format!("needs schema {schema_id}, and no schema registry is declared");
                Err(Problem::new("NO_REGISTRY", &message))
            }
            Self::Text => {
                let text = std::str::from_utf8(bytes).map_err(|error| {
                    Problem::new("NOT_UTF8", &format!("not UTF-8 at byte {}", error.valid_up_to()))
                })?;
                Ok(plain(serde_json::Value::from(text).to_string()))
            }
            Self::Bytes => Ok(plain(format!("{{\"base64\":\"{}\"}}", STANDARD.encode(bytes)))),
        }
    }
}

fn checked(bytes: &[u8]) -> Result<String, Problem> {
    let json = json::check(bytes);
    json.map(str::to_owned).map_err(|error| Problem::new(error.code(), &error.to_string()))
}

/// Returns the number of the schema, and the bytes behind it.
pub fn split_schema_id(bytes: &[u8]) -> Result<(u32, &[u8]), Problem> {
    match bytes {
        [0, a, b, c, d, rest @ ..] => Ok((u32::from_be_bytes([*a, *b, *c, *d]), rest)),
        [0, ..] => {
            Err(Problem::new("NO_SCHEMA_ID", "ends before the four bytes of its schema number"))
        }
        _ => {
            let first = bytes.first().map_or_else(|| "none".to_owned(), |b| format!("{b:#04x}"));
            let message = format!("first byte must be 0x00 before a schema number, found {first}");
            Err(Problem::new("WRONG_MAGIC_BYTE", &message))
        }
    }
}

impl FromStr for Decoder {
    type Err = InvalidSettings;

    fn from_str(text: &str) -> Result<Self, InvalidSettings> {
        Self::ALL.into_iter().find(|decoder| decoder.as_str() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str).join(", ");
            InvalidSettings::new(format!("`{text}` is not a decoder; use one of: {names}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(decoder: Decoder, bytes: &[u8]) -> String {
        decoder.decode(bytes).unwrap().json
    }

    fn code(decoder: Decoder, bytes: &[u8]) -> String {
        decoder.decode(bytes).unwrap_err().code
    }

    #[test]
    fn each_decoder_makes_json_without_losing_anything() {
        assert_eq!(
            json(Decoder::Json, br#" {"n":9007199254740993} "#),
            r#" {"n":9007199254740993} "#
        );
        assert_eq!(json(Decoder::JsonLatin1, b"\"caf\xe9\""), "\"café\"");
        assert_eq!(json(Decoder::Text, "a\"\n😀".as_bytes()), r#""a\"\n😀""#);
        assert_eq!(json(Decoder::Bytes, &[0xff, 0]), r#"{"base64":"/wA="}"#);
        let decoded = Decoder::ConfluentJson.decode(b"\0\0\0\x01\x02{}").unwrap();
        assert_eq!(decoded, DecodedValue { json: "{}".into(), schema_id: Some(258) });
    }

    #[test]
    fn what_does_not_fit_says_why() {
        assert_eq!(code(Decoder::Json, b"\0\0\0\0\x01{}"), "INVALID_JSON");
        assert_eq!(code(Decoder::ConfluentJson, b"{}"), "WRONG_MAGIC_BYTE");
        assert_eq!(code(Decoder::ConfluentJson, b"\0\0"), "NO_SCHEMA_ID");
        assert_eq!(code(Decoder::ConfluentJson, b"\0\0\0\0\x01{"), "INVALID_JSON");
        assert_eq!(code(Decoder::ConfluentAvro, b"\0\0\0\0\x01{}"), "NO_REGISTRY");
        assert_eq!(code(Decoder::ConfluentAvro, b"{}"), "WRONG_MAGIC_BYTE");
        assert_eq!(code(Decoder::Text, b"\xff"), "NOT_UTF8");
    }

    #[test]
    fn names_are_read_back_and_unknown_ones_list_the_known() {
        for decoder in Decoder::ALL {
            assert_eq!(decoder.as_str().parse(), Ok(decoder));
        }
        assert!("avro".parse::<Decoder>().unwrap_err().to_string().contains("confluent-json"));
    }
}
