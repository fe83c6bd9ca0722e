//! The keys of kind `kafka` in the configuration, of a source and of a destination.
//!
//! A build without Kafka reads them too: it reports the missing feature, not unknown keys.

use std::{collections::HashSet, path::PathBuf, time::Duration};

use relais_core::{
    InvalidSettings,
    decode::Decoder,
    extract::Pick,
    setting::{
        FilePath, Hidden, HiddenOptions, NameText, OnOff, RawSetting, Selector, SettingForm,
        SettingKind, SettingWords, TimeSpan, Word, entries,
    },
    settings, text_kinds,
};
use reqwest::Url;

#[cfg(feature = "kafka")]
use crate::kafka::{check_destination_option, check_source_option};
use crate::{SecretString, template::RoutingTemplate};

/// The most topics of one source.
const TOPICS_MAX: usize = 100;
/// Kafka's own limit.
const TOPIC_CHARS_MAX: usize = 249;
const SUBJECT_CHARS_MAX: usize = 1_000;
/// A new schema reaches every node of a registry within seconds; an operator needs minutes.
pub(crate) const UNKNOWN_SCHEMA_WAIT: Duration = Duration::from_secs(600);
const UNKNOWN_SCHEMA_WAIT_MAX: Duration = Duration::from_secs(7 * 86_400);

settings! {
    /// `[[source]]` of kind `kafka`
    pub struct KafkaSourceKeys {
        /// `"HOST:PORT"`, separated by commas
        brokers: Brokers => "write for example \"kafka-1.example:9092,kafka-2.example:9092\"";
        /// 1 to 100 names; no patterns
        topics: TopicNames => "write for example [\"orders\"]";
        /// the consumer group. Two installations with their own databases need different groups
        group: NameText = "relais".to_owned();
        /// `"earliest"` or `"latest"`, for a partition without a stored position
        start: Word<KafkaStartOffset> = KafkaStartOffset::default();
        /// also `"position"`: topic, partition and offset, which recognises a record *read* twice, not one *sent* twice
        message_id: Selector = Pick::Position;
        /// `"json"`, `"json-latin1"`, `"confluent-json"`, `"confluent-avro"`, `"text"` or `"bytes"`
        decoder: Word<Decoder> = Decoder::default();
        /// the [schema registry](kafka.md#avro-and-the-schema-registry); `confluent-avro` needs it
        registry_url: Option<RegistryUrl>;
        /// basic authentication
        registry_user: Option<NameText>;
        /// its password
        registry_password: Option<Hidden<SecretString>>;
        /// instead of a user: a bearer token
        registry_token: Option<Hidden<SecretString>>;
        /// PEM file with the authorities to trust instead of those of the system
        registry_tls_ca: Option<FilePath>;
        /// a record whose schema id the registry does not know waits for this time; then it is `SERDE_ERROR`
        unknown_schema_wait: TimeSpan = UNKNOWN_SCHEMA_WAIT, Duration::from_secs(1)..=UNKNOWN_SCHEMA_WAIT_MAX;
        /// [options of librdkafka](#options-of-kafka)
        options: HiddenOptions<SecretString>;
    }

    /// `[[destination]]` of kind `kafka`
    pub struct KafkaTargetKeys {
        /// `"HOST:PORT"`, separated by commas
        brokers: Brokers => "write for example \"kafka-1.example:9092,kafka-2.example:9092\"";
        /// it must exist; 1 to 249 letters, digits, `.`, `_` and `-`. May have [places of the message](kafka.md#a-topic-for-each-message): `"{{aggregate_type}}"`
        topic: Option<TopicName> => "the `name`";
        /// add the headers of CloudEvents 1.0
        cloudevents: OnOff = false;
        /// `"json"` sends the payload byte for byte; `"confluent-avro"` and `"confluent-json"` put the id of a schema before it
        encoder: Word<KafkaEncoder> = KafkaEncoder::default();
        /// the [schema registry](kafka.md#avro-and-the-schema-registry) of these two
        registry_url: Option<RegistryUrl>;
        /// basic authentication
        registry_user: Option<NameText>;
        /// its password
        registry_password: Option<Hidden<SecretString>>;
        /// instead of a user: a bearer token
        registry_token: Option<Hidden<SecretString>>;
        /// PEM file with the authorities to trust instead of those of the system
        registry_tls_ca: Option<FilePath>;
        /// the subject of the schema. May have [places of the message](kafka.md#a-topic-for-each-message)
        subject: Option<SubjectName> => "the topic and `-value`";
        /// file with the schema, which is registered if the subject does not have it. Without it the newest schema of the subject is used
        schema_file: Option<FilePath>;
        /// [options of librdkafka](#options-of-kafka)
        options: HiddenOptions<SecretString>;
    }
}

text_kinds! {
    /// `HOST:PORT`, several separated by commas.
    pub Brokers -> String, "text", brokers;
    /// The name of a topic, with or without places of the message.
    pub TopicName -> String, "text", |text| topic_template(text).map(|_| text.to_owned()),
        form SettingForm::Text(".+");
    /// The name of a subject, with or without places of the message.
    pub SubjectName -> String, "text", |text| subject_template(text).map(|_| text.to_owned()),
        form SettingForm::Text(".+");
    /// The URL of a schema registry.
    pub RegistryUrl -> String, "text", |text| registry_url(text).map(|_| text.to_owned()), hidden true;
}

/// The names of topics.
#[derive(Debug)]
pub struct TopicNames;

impl SettingKind for TopicNames {
    type Value = Vec<String>;
    const TYPE: &'static str = "list of texts";

    fn form() -> SettingForm {
        SettingForm::List
    }

    /// Errors name a topic by its number: its text may come from the environment.
    fn read(raw: RawSetting) -> Result<Vec<String>, String> {
        let topics = if let RawSetting::List(topics) = raw { topics } else { Vec::new() };
        let topics = entries(topics, TOPICS_MAX)?;
        let (mut earlier, mut wrong) = (HashSet::new(), Vec::new());
        for (number, topic) in (1..).zip(&topics) {
            wrong.extend(topic_name(topic).err().map(|why| format!("topic {number} {why}")));
            if !earlier.insert(topic) {
                wrong.push(format!("topic {number} is there twice"));
            }
        }
        if wrong.is_empty() { Ok(topics) } else { Err(wrong.join("; ")) }
    }
}

fn brokers(text: &str) -> Result<String, String> {
    let brokers: Vec<&str> = text.split(',').map(str::trim).collect();
    let is_broker = |broker: &&str| {
        let (host, port) = broker.rsplit_once(':').unwrap_or((broker, "9092"));
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
        !host.is_empty() && host.chars().all(plain) && port.parse::<u16>().is_ok()
    };
    if brokers.iter().all(is_broker) {
        return Ok(brokers.join(","));
    }
    Err("is not a list of brokers; write for example \
         \"kafka-1.example:9092,kafka-2.example:9092\""
        .to_owned())
}

/// Reads the name of a topic that may have places of the message.
pub fn topic_template(text: &str) -> Result<RoutingTemplate, String> {
    let template: RoutingTemplate = text.parse()?;
    if template.is_fixed() {
        topic_name(text)?;
    } else if template.fixed_bytes() > TOPIC_CHARS_MAX {
        return Err(format!("must have at most {TOPIC_CHARS_MAX} characters"));
    }
    Ok(template)
}

/// Reads the name of a subject that may have places of the message.
pub fn subject_template(text: &str) -> Result<RoutingTemplate, String> {
    if text.trim().is_empty() || text.len() > SUBJECT_CHARS_MAX {
        return Err(format!("must have 1 to {SUBJECT_CHARS_MAX} characters"));
    }
    text.parse().map_err(|error: InvalidSettings| error.to_string())
}

/// Reads the URL of a schema registry. The text is shown, so it must have no secret.
pub fn registry_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = url.filter(Url::has_host).ok_or(
        "is not a url of a schema registry; write for example \"https://registry.example:8081\"",
    )?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("has a login in it; use `registry_user` and `registry_password`".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("has a query or a fragment; remove it".to_owned());
    }
    Ok(url)
}

/// Checks a name by Kafka's rules.
pub fn topic_name(text: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let fits = (1..=TOPIC_CHARS_MAX).contains(&text.len())
        && text.chars().all(plain)
        && !matches!(text, "." | "..");
    if fits {
        return Ok(());
    }
    Err(format!(
        "is not the name of a topic; use 1 to {TOPIC_CHARS_MAX} letters, digits, `.`, `_` and `-`"
    ))
}

/// The position where a new topic is read from. Partitions added to a known topic are always read
/// from their beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KafkaStartOffset {
    /// The oldest record.
    #[default]
    Earliest,
    /// The records that arrive from now on.
    Latest,
}

impl SettingWords for KafkaStartOffset {
    const WORDS: &'static [(&'static str, Self)] =
        &[("earliest", Self::Earliest), ("latest", Self::Latest)];
}

/// The form in which payloads are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KafkaEncoder {
    /// The payload, byte for byte.
    #[default]
    Json,
    /// Avro behind a zero byte and the four bytes of a schema id.
    ConfluentAvro,
    /// The payload behind the same five bytes.
    ConfluentJson,
}

impl SettingWords for KafkaEncoder {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("json", Self::Json),
        ("confluent-avro", Self::ConfluentAvro),
        ("confluent-json", Self::ConfluentJson),
    ];
}

/// The keys about a schema registry, which a source and a destination have.
#[derive(Clone, Copy, Debug)]
pub struct RegistryKeys<'a> {
    /// `registry_url`
    pub url: Option<&'a String>,
    /// `registry_user`
    pub user: Option<&'a String>,
    /// `registry_password`
    pub password: Option<&'a SecretString>,
    /// `registry_token`
    pub token: Option<&'a SecretString>,
    /// `registry_tls_ca`
    pub tls_ca: Option<&'a PathBuf>,
}

impl RegistryKeys<'_> {
    /// Reports keys that do not fit together; `need` is the key that needs a registry, or the
    /// one that would.
    fn check(&self, need: Result<&str, &str>, report: &mut dyn FnMut(&str, String)) {
        let Some(url) = self.url else {
            if let Ok(key) = need {
                report("registry_url", format!("is missing; {key} needs a schema registry"));
            }
            for (key, _) in self.others().into_iter().filter(|(_, is_set)| *is_set) {
                report(key, "needs a `registry_url`".to_owned());
            }
            return;
        };
        if let Err(key) = need {
            report("registry_url", format!("is not used; set {key}, or remove it"));
        }
        if self.user.is_some() && self.token.is_some() {
            report("registry_token", "is there beside `registry_user`; keep one".to_owned());
        }
        if self.password.is_some() && self.user.is_none() {
            report("registry_password", "needs a `registry_user`".to_owned());
        }
        if self.tls_ca.is_some() && !url.to_lowercase().starts_with("https:") {
            report(
                "registry_tls_ca",
                "needs a `registry_url` that starts with https://".to_owned(),
            );
        }
    }

    fn others(&self) -> [(&'static str, bool); 4] {
        [
            ("registry_user", self.user.is_some()),
            ("registry_password", self.password.is_some()),
            ("registry_token", self.token.is_some()),
            ("registry_tls_ca", self.tls_ca.is_some()),
        ]
    }
}

/// Returns the keys about a schema registry.
macro_rules! registry_keys {
    ($keys:expr) => {
        RegistryKeys {
            url: $keys.registry_url.as_ref(),
            user: $keys.registry_user.as_ref(),
            password: $keys.registry_password.as_ref(),
            token: $keys.registry_token.as_ref(),
            tls_ca: $keys.registry_tls_ca.as_ref(),
        }
    };
}

impl KafkaSourceKeys {
    /// Returns the keys about the schema registry.
    pub fn registry(&self) -> RegistryKeys<'_> {
        registry_keys!(self)
    }

    /// Reports keys that do not fit together, and options that librdkafka does not know or that would break a
    /// promise.
    pub fn check(&self, report: &mut dyn FnMut(&str, String)) {
        check_options(&self.options, check_source_option, report);
        let need = match self.decoder.needs_schema() {
            true => Ok("`decoder`"),
            false => Err("`decoder = \"confluent-avro\"`"),
        };
        self.registry().check(need, report);
    }
}

impl KafkaTargetKeys {
    /// Returns the keys about the schema registry.
    pub fn registry(&self) -> RegistryKeys<'_> {
        registry_keys!(self)
    }

    /// Reports keys that do not fit together, and options that librdkafka does not know or that would break a
    /// promise.
    pub fn check(&self, report: &mut dyn FnMut(&str, String)) {
        check_options(&self.options, check_destination_option, report);
        const ENCODERS: &str = "`encoder` to `confluent-avro` or `confluent-json`";
        let is_plain = self.encoder == KafkaEncoder::Json;
        self.registry().check(if is_plain { Err(ENCODERS) } else { Ok("`encoder`") }, report);
        let others =
            [("subject", self.subject.is_some()), ("schema_file", self.schema_file.is_some())];
        for (key, _) in others.into_iter().filter(|(_, is_set)| *is_set && is_plain) {
            report(key, format!("is not used; set {ENCODERS}, or remove it"));
        }
    }
}

fn check_options(
    options: &[(String, SecretString)],
    check: fn(&str, &SecretString) -> Result<(), InvalidSettings>,
    report: &mut dyn FnMut(&str, String),
) {
    for (name, value) in options {
        if let Err(why) = check(name, value) {
            report(&format!("options.{name}"), why.into());
        }
    }
}

/// Accepts every option: a build without Kafka has no librdkafka to ask.
#[cfg(not(feature = "kafka"))]
fn check_source_option(_name: &str, _value: &SecretString) -> Result<(), InvalidSettings> {
    Ok(())
}
#[cfg(not(feature = "kafka"))]
use check_source_option as check_destination_option;
