//! The value of an outgoing record behind the id of its schema.
//!
//! Invariant: a payload that does not fit its schema is rejected, with the place. What the registry fails to
//! answer is an outage or a configuration error, never the fault of a message.

use std::{
    collections::HashMap,
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use relais_core::{
    InvalidSettings,
    delivery::{Delivery, Problem},
    outbox::OutboxRow,
};
use tokio::time::Instant;

use super::{
    classify::CONFIGURATION_PAUSE,
    registry::{RegisteredSchema, RegistryError, SchemaRegistry},
};
use crate::{
    kafka_settings::{KafkaEncoder, subject_template},
    template::RoutingTemplate,
};

/// The newest schema of a subject is asked for again after this time.
const LATEST_AGE_MAX: Duration = Duration::from_secs(60);
/// The same if a payload does not fit it: a newer one may.
const MISMATCH_AGE_MAX: Duration = Duration::from_secs(1);
/// The most subjects whose schemas are kept.
const SUBJECTS_MAX: usize = 1_000;
/// The largest file with a schema.
const SCHEMA_MAX: u64 = 4 << 20;

/// The encoding of values by schemas of a registry. Start from [`KafkaEncoding::new`].
#[derive(Clone, Debug)]
pub struct KafkaEncoding {
    /// The form of the values.
    pub encoder: KafkaEncoder,
    /// The schema registry.
    pub registry: Arc<SchemaRegistry>,
    /// The subject of the schema, which may have places of the message; by default the topic and `-value`.
    pub subject: Option<String>,
    /// A file with the schema, which is registered if the subject does not have it. Without it the newest schema of
    /// the subject is used.
    pub schema_file: Option<PathBuf>,
}

impl KafkaEncoding {
    /// Returns an encoding by the newest schema of the subject of the topic.
    pub fn new(encoder: KafkaEncoder, registry: Arc<SchemaRegistry>) -> Self {
        Self { encoder, registry, subject: None, schema_file: None }
    }
}

/// Encodes payloads.
pub(super) struct ValueEncoder {
    schema_type: SchemaType,
    registry: Arc<SchemaRegistry>,
    subject: Option<RoutingTemplate>,
    /// The text of the schema file.
    schema: Option<String>,
    subjects: Mutex<HashMap<String, SubjectSchema>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SchemaType {
    Avro,
    Json,
}

impl SchemaType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Avro => "AVRO",
            Self::Json => "JSON",
        }
    }
}

/// The schema that is used for a subject.
#[derive(Clone)]
struct SubjectSchema {
    id: u32,
    schema: Arc<RegisteredSchema>,
    asked: Instant,
}

impl ValueEncoder {
    /// Validates the settings and reads the schema file; `None` if values are sent as they are.
    pub(super) fn new(encoding: Option<KafkaEncoding>) -> Result<Option<Self>, InvalidSettings> {
        let Some(KafkaEncoding { encoder, registry, subject, schema_file }) = encoding else {
            return Ok(None);
        };
        let schema_type = match encoder {
            KafkaEncoder::Json => return Ok(None),
            KafkaEncoder::ConfluentAvro => SchemaType::Avro,
            KafkaEncoder::ConfluentJson => SchemaType::Json,
        };
        let subject = subject.as_deref().map(subject_template).transpose();
        let subject = subject.map_err(|why| format!("subject {why}"))?;
        let schema = schema_file.map(|path| {
            let wrong = |why: String| {
                format!("cannot use {}: {why}; correct `schema_file`", path.display())
            };
            let size = fs::metadata(&path).map_err(|error| wrong(error.to_string()))?.len();
            if size > SCHEMA_MAX {
                return Err(wrong(format!("it has more than {SCHEMA_MAX} bytes")));
            }
            let text = fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
            match serde_json::from_str::<serde_json::Value>(&text) {
                Ok(_) => Ok(text),
                Err(error) => Err(wrong(format!("it is not JSON: {error}"))),
            }
        });
        let (schema, subjects) = (schema.transpose()?, Mutex::default());
        Ok(Some(Self { schema_type, registry, subject, schema, subjects }))
    }

    /// Returns the media type of the values.
    pub(super) fn content_type(&self) -> &'static str {
        match self.schema_type {
            SchemaType::Avro => "application/avro",
            SchemaType::Json => "application/json",
        }
    }

    /// Returns the value of a row, or the reason why it has none. `is_one_topic` if all rows have the same topic.
    pub(super) async fn encode(
        &self,
        row: &OutboxRow,
        topic: &str,
        is_one_topic: bool,
    ) -> Result<Vec<u8>, Delivery> {
        let subject = match &self.subject {
            None => format!("{topic}-value"),
            Some(subject) => {
                subject.fill(row).map_err(|why| Delivery::reject("KAFKA_SUBJECT", &why))?
            }
        };
        let is_fixed = self.subject.as_ref().map_or(is_one_topic, RoutingTemplate::is_fixed);
        let failed = |error: RegistryError| failure(&error, is_fixed);
        let mut used = self.subject_schema(&subject, LATEST_AGE_MAX).await.map_err(failed)?;
        let mut value = self.write(&used, &subject, &row.payload, is_fixed);
        if matches!(value, Err(Delivery::Reject { .. })) && self.schema.is_none() {
            let newer = self.subject_schema(&subject, MISMATCH_AGE_MAX).await.map_err(failed)?;
            if newer.id != used.id {
                used = newer;
                value = self.write(&used, &subject, &row.payload, is_fixed);
            }
        }
        value
    }

    fn write(
        &self,
        used: &SubjectSchema,
        subject: &str,
        payload: &str,
        is_fixed: bool,
    ) -> Result<Vec<u8>, Delivery> {
        let id = used.id;
        let value = match (&*used.schema, self.schema_type) {
            (RegisteredSchema::Avro(schema), SchemaType::Avro) => {
                schema.encode(payload).map_err(|why| {
                    let text =
                        format!("the payload does not fit schema {id} of `{subject}`: {why}");
                    Delivery::reject("AVRO_MISMATCH", &text)
                })?
            }
            (RegisteredSchema::Json, SchemaType::Json) => payload.as_bytes().to_vec(),
            (schema, wanted) => {
                let why = match schema {
                    RegisteredSchema::Unusable(why) => why.clone(),
                    RegisteredSchema::Avro(_) => "is of type AVRO".to_owned(),
                    RegisteredSchema::Json => "is of type JSON".to_owned(),
                };
                let text = format!(
                    "schema {id} of `{subject}` {why}, and `encoder` needs {}; correct one of them",
                    wanted.as_str()
                );
                return Err(misconfigured("REGISTRY_SCHEMA", &text, is_fixed));
            }
        };
        Ok([&[0], &id.to_be_bytes()[..], &value].concat())
    }

    /// Returns the schema of a subject; the newest one is at most `age_max` old, unless the registry is unavailable.
    async fn subject_schema(
        &self,
        subject: &str,
        age_max: Duration,
    ) -> Result<SubjectSchema, RegistryError> {
        let kept = self.subjects().get(subject).cloned();
        if let Some(kept) = &kept
            && (self.schema.is_some() || kept.asked.elapsed() < age_max)
        {
            return Ok(kept.clone());
        }
        let asked = Instant::now();
        let found = match self.ask(subject).await {
            Ok((id, schema)) => SubjectSchema { id, schema, asked },
            Err(RegistryError::Unavailable(reason)) if let Some(kept) = kept => {
                tracing::warn!(subject, reason, schema = kept.id, "used the last known schema");
                SubjectSchema { asked, ..kept }
            }
            Err(error) => return Err(error),
        };
        let mut subjects = self.subjects();
        if subjects.len() >= SUBJECTS_MAX && !subjects.contains_key(subject) {
            subjects.clear();
        }
        subjects.insert(subject.to_owned(), found.clone());
        Ok(found)
    }

    async fn ask(&self, subject: &str) -> Result<(u32, Arc<RegisteredSchema>), RegistryError> {
        let id = match &self.schema {
            Some(schema) => {
                self.registry.register(subject, self.schema_type.as_str(), schema).await?
            }
            None => self.registry.latest(subject).await?,
        };
        Ok((id, self.registry.schema(id).await?))
    }

    fn subjects(&self) -> MutexGuard<'_, HashMap<String, SubjectSchema>> {
        self.subjects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failure(error: &RegistryError, is_fixed: bool) -> Delivery {
    let text = error.to_string();
    match error {
        RegistryError::Unavailable(_) => Delivery::outage("REGISTRY_UNAVAILABLE", &text),
        RegistryError::NotFound(_) => {
            let text = format!("{text}; register a schema, or set `schema_file`");
            misconfigured("REGISTRY_SUBJECT", &text, is_fixed)
        }
        RegistryError::Refused(_) => misconfigured("REGISTRY_REFUSED", &text, is_fixed),
    }
}

/// Classifies what concerns a subject: the destination if it has one subject, else the messages of the subject.
fn misconfigured(code: &str, text: &str, is_fixed: bool) -> Delivery {
    let problem = Problem::new(code, text);
    let after = Some(CONFIGURATION_PAUSE);
    match is_fixed {
        true => Delivery::Misconfigured { problem, after },
        false => Delivery::Wait { problem, after },
    }
}
