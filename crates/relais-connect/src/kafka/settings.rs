//! The keys of kind `kafka` in the configuration, of a source and of a destination.
//!
//! A build without Kafka reads them too: it reports the missing feature, not unknown keys.

use std::collections::HashSet;

use relais_core::{
    InvalidSettings,
    decode::Decoder,
    extract::Pick,
    setting::{
        HiddenOptions, NameText, OnOff, RawSetting, Selector, SettingForm, SettingKind,
        SettingWords, Word, entries,
    },
    settings, text_kinds,
};

#[cfg(feature = "kafka")]
use crate::kafka::{check_destination_option, check_source_option};
use crate::{SecretString, template::RoutingTemplate};

/// The most topics of one source.
const TOPICS_MAX: usize = 100;
/// Kafka's own limit.
const TOPIC_CHARS_MAX: usize = 249;

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
        /// `"json"`, `"json-latin1"`, `"confluent-json"`, `"text"` or `"bytes"`
        decoder: Word<Decoder> = Decoder::default();
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

impl KafkaSourceKeys {
    /// Reports options that librdkafka does not know or that would break a promise.
    pub fn check(&self, report: &mut dyn FnMut(&str, String)) {
        check_options(&self.options, check_source_option, report);
    }
}

impl KafkaTargetKeys {
    /// Reports options that librdkafka does not know or that would break a promise.
    pub fn check(&self, report: &mut dyn FnMut(&str, String)) {
        check_options(&self.options, check_destination_option, report);
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
