//! A schema registry with the API of Confluent: schemas by their id, and the schema of a subject.
//!
//! Invariant: a schema never changes under its id, so it is asked for once. What the registry fails to answer is
//! never blamed on a message: [`RegistryError::Unavailable`] and [`RegistryError::NotFound`] are different.

mod requests;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use relais_core::{
    InvalidSettings, async_trait,
    decode::{DecodedValue, SchemaDecoder, split_schema_id},
    delivery::Problem,
};
use secrecy::{ExposeSecret, SecretString};

pub(super) use self::requests::ANSWER_MAX;
use self::requests::{RegistryRequests, SchemaAnswer};
use super::avro::AvroSchema;
use crate::ProbeError;

/// The most schemas that are kept.
const SCHEMAS_MAX: usize = 1_000;
/// The most schemas that one schema may name, directly or not.
const REFERENCES_MAX: usize = 100;

/// The address of a schema registry and the login. Start from [`SchemaRegistrySettings::new`].
#[derive(Clone, Debug)]
pub struct SchemaRegistrySettings {
    /// The URL of its API, without a login: `https://registry.example:8081`.
    pub url: String,
    /// The user of basic authentication.
    pub user: Option<String>,
    /// The password of basic authentication.
    pub password: Option<SecretString>,
    /// A bearer token, instead of a user.
    pub token: Option<SecretString>,
    /// A PEM file with the authorities to trust instead of those of the system.
    pub tls_ca: Option<PathBuf>,
}

impl SchemaRegistrySettings {
    /// Returns the settings of a registry without a login.
    pub fn new(url: &str) -> Self {
        Self { url: url.to_owned(), user: None, password: None, token: None, tls_ca: None }
    }

    /// Returns the value of the header `authorization`.
    fn login(&self) -> Option<SecretString> {
        let bearer = self.token.as_ref().map(|token| format!("Bearer {}", token.expose_secret()));
        let basic = || {
            let password = self.password.as_ref().map_or("", |password| password.expose_secret());
            let user = self.user.as_ref()?;
            Some(format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
        };
        bearer.or_else(basic).map(SecretString::from)
    }
}

/// The reason why the registry gave no schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RegistryError {
    /// It is unreachable, refuses the login, or answers with an error.
    Unavailable(String),
    /// It says itself that it has no such schema or subject.
    NotFound(String),
    /// It refuses to register the schema.
    Refused(String),
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Unavailable(why) | Self::NotFound(why) | Self::Refused(why)) = self;
        f.write_str(why)
    }
}

/// A schema of the registry.
#[derive(Debug)]
pub(super) enum RegisteredSchema {
    Avro(AvroSchema),
    Json,
    /// Another type, or an Avro schema that cannot be used, with the reason.
    Unusable(String),
}

impl RegisteredSchema {
    /// Decodes a value without its five bytes.
    pub(super) fn decode(&self, id: u32, bytes: &[u8]) -> Result<DecodedValue, Problem> {
        let json = match self {
            Self::Avro(schema) => schema.decode(bytes).map_err(|why| {
                Problem::new("AVRO_MISMATCH", &format!("does not fit schema {id}: {why}"))
            }),
            Self::Json => Err(unusable(&format!("schema {id} is of type JSON, not AVRO"))),
            Self::Unusable(why) => Err(unusable(&format!("schema {id} {why}"))),
        };
        Ok(DecodedValue { json: json?, schema_id: Some(id) })
    }
}

fn unusable(why: &str) -> Problem {
    Problem::new("UNUSABLE_SCHEMA", &format!("{why}; choose another `decoder`"))
}

/// Returns the id of a schema and the bytes behind it. A number that no registry gives is no id.
pub(super) fn split(bytes: &[u8]) -> Result<(u32, &[u8]), Problem> {
    let (id, value) = split_schema_id(bytes)?;
    if i32::try_from(id).is_ok() {
        return Ok((id, value));
    }
    let why =
        format!("schema number {id} is larger than any of a registry; choose another `decoder`");
    Err(Problem::new(UNKNOWN_SCHEMA_ID, &why))
}

/// A step of the walk through the schemas that a schema names.
enum ReferenceVisit {
    /// The subject and version of a schema that was found.
    Enter((String, i64)),
    /// A schema after all that it names.
    Leave(String),
}

/// A client of a schema registry, with the schemas it has seen.
pub struct SchemaRegistry {
    requests: RegistryRequests,
    known: Mutex<KnownSchemas>,
}

/// Schemas by id, the oldest first in `order`.
#[derive(Default)]
struct KnownSchemas {
    schemas: HashMap<u32, Arc<RegisteredSchema>>,
    order: VecDeque<u32>,
}

impl SchemaRegistry {
    /// Validates the settings and reads the certificates, without connecting.
    pub fn new(settings: &SchemaRegistrySettings) -> Result<Self, InvalidSettings> {
        Ok(Self { requests: RegistryRequests::new(settings)?, known: Mutex::default() })
    }

    /// Asks for the list of subjects. The error says what to change.
    pub async fn probe(&self) -> Result<String, ProbeError> {
        let subjects = self.requests.subjects().await.map_err(|error| error.to_string())?;
        let plural = if subjects == 1 { "" } else { "s" };
        Ok(format!("the registry at {} answers and has {subjects} subject{plural}", self.requests))
    }

    /// Returns the schema if it was asked for before.
    pub(super) fn known(&self, id: u32) -> Option<Arc<RegisteredSchema>> {
        self.known_schemas().schemas.get(&id).cloned()
    }

    /// Returns the schema of an id.
    pub(super) async fn schema(&self, id: u32) -> Result<Arc<RegisteredSchema>, RegistryError> {
        if let Some(known) = self.known(id) {
            return Ok(known);
        }
        let answer = self.requests.schema(id).await?;
        let schema = Arc::new(self.parse(answer).await?);
        self.remember(id, &schema);
        Ok(schema)
    }

    /// Returns the id of the newest schema of a subject.
    pub(super) async fn latest(&self, subject: &str) -> Result<u32, RegistryError> {
        self.requests.latest(subject).await
    }

    /// Returns the id of a schema under a subject, and registers it if the subject does not have it.
    pub(super) async fn register(
        &self,
        subject: &str,
        schema_type: &str,
        schema: &str,
    ) -> Result<u32, RegistryError> {
        match self.requests.find(subject, schema_type, schema).await {
            Err(RegistryError::NotFound(_)) => {
                self.requests.register(subject, schema_type, schema).await
            }
            found => found,
        }
    }

    async fn parse(&self, answer: SchemaAnswer) -> Result<RegisteredSchema, RegistryError> {
        let schema_type = answer.schema_type.as_deref().unwrap_or("AVRO");
        match schema_type {
            "AVRO" => {}
            "JSON" => return Ok(RegisteredSchema::Json),
            other => return Ok(RegisteredSchema::Unusable(format!("is of type {other}"))),
        }
        let Some(references) = self.references(&answer).await? else {
            let why = format!("names more than {REFERENCES_MAX} schemas");
            return Ok(RegisteredSchema::Unusable(why));
        };
        Ok(match AvroSchema::parse(&answer.schema, &references) {
            Ok(schema) => RegisteredSchema::Avro(schema),
            Err(why) => RegisteredSchema::Unusable(why),
        })
    }

    /// Returns the schemas that a schema names, each after those that it names itself; `None` if they are too many.
    async fn references(
        &self,
        answer: &SchemaAnswer,
    ) -> Result<Option<Vec<String>>, RegistryError> {
        let mut open: Vec<ReferenceVisit> =
            answer.references().map(ReferenceVisit::Enter).collect();
        let (mut entered, mut ordered) = (HashSet::new(), Vec::new());
        while let Some(visit) = open.pop() {
            match visit {
                ReferenceVisit::Leave(schema) => ordered.push(schema),
                ReferenceVisit::Enter(one) if entered.contains(&one) => {}
                ReferenceVisit::Enter((subject, version)) => {
                    let found = self.requests.version(&subject, version).await?;
                    entered.insert((subject, version));
                    if entered.len() > REFERENCES_MAX {
                        return Ok(None);
                    }
                    let inner: Vec<_> = found.references().map(ReferenceVisit::Enter).collect();
                    open.push(ReferenceVisit::Leave(found.schema));
                    open.extend(inner);
                }
            }
        }
        Ok(Some(ordered))
    }

    fn remember(&self, id: u32, schema: &Arc<RegisteredSchema>) {
        let mut known = self.known_schemas();
        if known.schemas.insert(id, Arc::clone(schema)).is_none() {
            known.order.push_back(id);
        }
        if known.order.len() > SCHEMAS_MAX
            && let Some(oldest) = known.order.pop_front()
        {
            known.schemas.remove(&oldest);
        }
    }

    fn known_schemas(&self) -> MutexGuard<'_, KnownSchemas> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl SchemaDecoder for SchemaRegistry {
    async fn decode(&self, bytes: &[u8]) -> Result<DecodedValue, Problem> {
        let (id, value) = split(bytes)?;
        let schema = self.schema(id).await.map_err(|error| {
            let code = match error {
                RegistryError::NotFound(_) => UNKNOWN_SCHEMA_ID,
                _ => "REGISTRY_UNAVAILABLE",
            };
            Problem::new(code, &error.to_string())
        })?;
        schema.decode(id, value)
    }
}

/// The code of a record whose schema the registry does not have.
pub(super) const UNKNOWN_SCHEMA_ID: &str = "UNKNOWN_SCHEMA_ID";

impl fmt::Debug for SchemaRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SchemaRegistry").field(&self.requests.to_string()).finish()
    }
}
