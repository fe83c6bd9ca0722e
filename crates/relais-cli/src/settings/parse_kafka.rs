//! The keys of kind `kafka`, of a source and of a destination.

use std::collections::HashSet;

use super::{
    reader::Section,
    types::{KafkaOrigin, KafkaTarget, Start},
};

/// Most topics one source may read.
const TOPICS_MAX: usize = 100;
/// Kafka's own limit.
const TOPIC_CHARS_MAX: usize = 249;

/// What a source of kind `kafka` says of itself.
pub(super) fn origin(section: &Section<'_>) -> Option<KafkaOrigin> {
    let brokers = brokers(section);
    let topics = topics(section);
    let start =
        section.choice("start", &[("earliest", Start::Earliest), ("latest", Start::Latest)]);
    let group = section.name("group").unwrap_or_else(|| "relais".to_owned());
    let options = section.options("options", library::refuse_source_option);
    let start = start.unwrap_or(Start::Earliest);
    Some(KafkaOrigin { brokers: brokers?, group, topics: topics?, start, options })
}

/// What a destination of kind `kafka` says of itself. Its name is the topic unless one is given.
pub(super) fn target(section: &Section<'_>, name: Option<&str>) -> Option<KafkaTarget> {
    let brokers = brokers(section);
    let given = section.parsed("topic", topic_name);
    if !section.has("topic")
        && let Some(Err(why)) = name.map(topic_name)
    {
        section.error("topic", format_args!("is missing, and the destination's name {why}"));
    }
    let cloudevents = section.flag("cloudevents", false);
    let options = section.options("options", library::refuse_target_option);
    let topic = given.or_else(|| name.map(str::to_owned));
    Some(KafkaTarget { brokers: brokers?, topic: topic?, cloudevents, options })
}

/// `HOST:PORT`, several with commas between.
fn brokers(section: &Section<'_>) -> Option<String> {
    const HOW: &str = "write for example \"kafka-1.example:9092,kafka-2.example:9092\"";
    if !section.has("brokers") {
        section.error("brokers", format_args!("is missing; {HOW}"));
    }
    section.parsed("brokers", |text| {
        let brokers: Vec<&str> = text.split(',').map(str::trim).collect();
        let is_broker = |broker: &&str| {
            let (host, port) = broker.rsplit_once(':').unwrap_or((broker, "9092"));
            let plain = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
            !host.is_empty() && host.chars().all(plain) && port.parse::<u16>().is_ok()
        };
        if brokers.iter().all(is_broker) {
            Ok(brokers.join(","))
        } else {
            Err(format!("is not a list of brokers; {HOW}"))
        }
    })
}

fn topics(section: &Section<'_>) -> Option<Vec<String>> {
    if !section.has("topics") {
        section.error("topics", "is missing; write for example [\"orders\"]");
    }
    let topics = section.texts("topics")?;
    if topics.is_empty() || topics.len() > TOPICS_MAX {
        section.error("topics", format_args!("must have 1 to {TOPICS_MAX} entries"));
    }
    let mut seen = HashSet::new();
    for (index, topic) in topics.iter().enumerate() {
        // By number: the text may come from the environment.
        let number = index + 1;
        if let Err(why) = topic_name(topic) {
            section.error("topics", format_args!("topic {number} {why}"));
        }
        if !seen.insert(topic) {
            section.error("topics", format_args!("topic {number} is there twice"));
        }
    }
    Some(topics)
}

/// What Kafka lets a topic be called; a pattern is no name.
fn topic_name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let fits = (1..=TOPIC_CHARS_MAX).contains(&text.len())
        && text.chars().all(plain)
        && !matches!(text, "." | "..");
    if fits {
        return Ok(text.to_owned());
    }
    Err(format!(
        "is not the name of a topic; use 1 to {TOPIC_CHARS_MAX} letters, digits, `.`, `_` and `-`"
    ))
}

/// What only the connector knows.
#[cfg(feature = "kafka")]
mod library {
    use relais::{
        http::SecretString,
        kafka::{check_destination_option, check_source_option},
    };

    pub(super) fn refuse_source_option(name: &str, value: &str) -> Option<String> {
        check_source_option(name, &SecretString::from(value)).err().map(String::from)
    }

    pub(super) fn refuse_target_option(name: &str, value: &str) -> Option<String> {
        check_destination_option(name, &SecretString::from(value)).err().map(String::from)
    }
}

/// A build without the connector has nothing to say about options.
#[cfg(not(feature = "kafka"))]
mod library {
    pub(super) fn refuse_source_option(_name: &str, _value: &str) -> Option<String> {
        None
    }

    pub(super) fn refuse_target_option(_name: &str, _value: &str) -> Option<String> {
        None
    }
}
