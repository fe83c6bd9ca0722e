//! `[[source]]`: the keys of every kind, and how those of a kind fit to them.

use std::collections::HashSet;

use relais::http::HttpSourceKeys;
use relais_connect::{
    amqp_settings::AmqpSourceKeys, kafka_settings::KafkaSourceKeys, nats_settings::NatsSourceKeys,
    rabbitmq_settings::RabbitSourceKeys, servicebus_settings::ServiceBusSourceKeys,
};
use relais_core::{
    decode::Decoder,
    extract::{Mapping, Pick},
    inbox::INBOX_SEPARATOR,
    setting::{NameText, Selector, SettingForm},
    settings, text_kinds,
};

use super::{admin::check_tls, findings::FilePlace, reader::Section};

settings! {
    /// `[[source]]`
    pub(super) struct SourceKeys {
        /// unique. Do not change it: Kafka positions are stored under it
        name: NameText;
        /// `"amqp"`, `"http"`, `"kafka"`, `"nats"`, `"rabbitmq"` or `"servicebus"`
        kind: SourceKind => "this version has: amqp, http, kafka, nats, rabbitmq, servicebus";
        /// message ids are unique within it
        source_system: Option<NameText> => "the `name`";
        /// selects routes and handlers
        event_type: Selector = Pick::Payload("/type".to_owned());
        /// messages of one aggregate keep their order. Without it the message's key orders; without a key each message is independent
        aggregate_id: Option<Selector>;
    }
}

text_kinds! {
    /// The kinds of sources in this version.
    pub(super) SourceKind -> String, "text", |text| Ok(text.to_owned()),
        form SettingForm::Words(vec![
            "amqp",
            "http",
            "kafka",
            "nats",
            "rabbitmq",
            "servicebus",
        ]);
}

/// One `[[source]]`.
#[derive(Debug)]
pub(crate) struct SourceSettings {
    pub(crate) place: FilePlace,
    pub(crate) name: String,
    pub(crate) mapping: Mapping,
    pub(crate) origin: SourceOrigin,
}

/// The kind of a source and its keys.
#[derive(Debug)]
pub(crate) enum SourceOrigin {
    Amqp(Box<AmqpSourceKeys>),
    Http(Box<HttpSourceKeys>),
    Kafka(Box<KafkaSourceKeys>),
    Nats(Box<NatsSourceKeys>),
    Rabbitmq(Box<RabbitSourceKeys>),
    Servicebus(Box<ServiceBusSourceKeys>),
}

/// Reads every source that can be read.
pub(super) fn sources(sections: Vec<Section<'_>>) -> Vec<SourceSettings> {
    let mut names = HashSet::new();
    sections.into_iter().filter_map(|section| source(section, &mut names)).collect()
}

fn source(section: Section<'_>, names: &mut HashSet<String>) -> Option<SourceSettings> {
    let keys = section.read::<SourceKeys>();
    let name = section.peek("name");
    if let Some(name) = &name
        && !names.insert(name.clone())
    {
        section.error("name", format_args!("another source is named `{name}`; names are unique"));
    }
    // The known keys depend on the kind.
    let (origin, message_id, decoder) = match section.peek("kind")?.as_str() {
        "http" => {
            let http = http(&section, name.as_deref())?;
            let (id, decoder) = (http.message_id.clone(), http.decoder);
            (Some(SourceOrigin::Http(Box::new(http))), id, decoder)
        }
        "kafka" => match section.read::<KafkaSourceKeys>() {
            Some(kafka) => {
                kafka.check(&mut |key, why| section.error(key, why));
                let (id, decoder) = (kafka.message_id.clone(), kafka.decoder);
                (Some(SourceOrigin::Kafka(Box::new(kafka))), id, decoder)
            }
            None => (None, Pick::Position, Decoder::default()),
        },
        "nats" => match section.read::<NatsSourceKeys>() {
            Some(nats) => {
                nats.check(&mut |key, why| section.error(key, why));
                let (id, decoder) = (nats.message_id.clone(), nats.decoder);
                (Some(SourceOrigin::Nats(Box::new(nats))), id, decoder)
            }
            None => (None, Pick::Key, Decoder::default()),
        },
        "amqp" => match section.read::<AmqpSourceKeys>() {
            Some(amqp) => {
                amqp.check(&mut |key, why| section.error(key, why));
                let (id, decoder) = (amqp.message_id.clone(), amqp.decoder);
                (Some(SourceOrigin::Amqp(Box::new(amqp))), id, decoder)
            }
            None => (None, Pick::Key, Decoder::default()),
        },
        "rabbitmq" => match section.read::<RabbitSourceKeys>() {
            Some(rabbitmq) => {
                rabbitmq.check(&mut |key, why| section.error(key, why));
                let (id, decoder) = (rabbitmq.message_id.clone(), rabbitmq.decoder);
                (Some(SourceOrigin::Rabbitmq(Box::new(rabbitmq))), id, decoder)
            }
            None => (None, Pick::Key, Decoder::default()),
        },
        "servicebus" => match section.read::<ServiceBusSourceKeys>() {
            Some(servicebus) => {
                servicebus.check(&mut |key, why| section.error(key, why));
                let (id, decoder) = (servicebus.message_id.clone(), servicebus.decoder);
                (Some(SourceOrigin::Servicebus(Box::new(servicebus))), id, decoder)
            }
            None => (None, Pick::Key, Decoder::default()),
        },
        _ => return None,
    };
    let place = section.place();
    let built = keys.map(|keys| mapping(&section, keys, message_id, decoder));
    section.finish();
    let (name, mapping) = built?;
    Some(SourceSettings { place, name, mapping, origin: origin? })
}

fn mapping(
    section: &Section<'_>,
    keys: SourceKeys,
    message_id: Pick,
    decoder: Decoder,
) -> (String, Mapping) {
    let source_system = keys.source_system.unwrap_or_else(|| keys.name.clone());
    if source_system.contains(INBOX_SEPARATOR) {
        let text = format_args!("must not contain `{INBOX_SEPARATOR}`, which names an inbox");
        section.error("source_system", text);
    }
    let mapping = Mapping::json(&source_system)
        .decoder(decoder)
        .message_id(message_id)
        .event_type(keys.event_type)
        .aggregate_id(keys.aggregate_id);
    (keys.name, mapping)
}

fn http(section: &Section<'_>, name: Option<&str>) -> Option<HttpSourceKeys> {
    let keys = section.read::<HttpSourceKeys>()?;
    keys.check(&mut |key, why| section.error(key, why));
    check_tls(section);
    // The name is the path to which messages are posted.
    let fits = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if name.is_some_and(|name| !fits(name)) {
        section.error("name", "is a path of the url too; use letters, digits, `-`, `_` and `.`");
    }
    for key in ["message_id", "event_type", "aggregate_id"] {
        if section.peek(key).as_deref() == Some("position") {
            section.error(
                key,
                "an http message has no position; use `header:NAME` or `payload:/JSON/POINTER`",
            );
        }
    }
    let is_open = keys.token.is_none() && keys.signing().is_empty();
    if is_open && !keys.listen.ip().is_loopback() {
        section.warn("listen", "is not a loopback address, and any sender may post; set a `token`");
    }
    Some(keys)
}
