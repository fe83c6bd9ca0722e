//! The keys of kind `servicebus` in the configuration, of a source and of a destination.
//!
//! A build without AMQP 1.0 reads them too: it reports the missing feature, not unknown keys.

use std::{fmt, time::Duration};

use relais_core::{
    InvalidSettings,
    decode::Decoder,
    extract::Pick,
    setting::{
        ByteSize, FilePath, Integer, NameText, OnOff, PlainDecoder, Selector, TimeSpan, Word,
    },
    settings, text_kinds,
};
use secrecy::SecretString;

use crate::{
    amqp_settings::{AmqpEnvelope, PREFETCH_BYTES_DEFAULT, check_message_id},
    rabbitmq_settings::WithoutId,
};

/// Messages that are sent ahead. Each is locked for a time, within which it must be stored.
pub(crate) const PREFETCH_DEFAULT: u32 = 200;
const PREFETCH_MAX: u32 = 5_000;
pub(crate) const SESSIONS_DEFAULT: u32 = 8;
const SESSIONS_MAX: u32 = 100;
pub(crate) const SESSION_IDLE_DEFAULT: Duration = Duration::from_secs(2);
pub(crate) const SCHEDULE_HEADER: &str = "scheduled-enqueue-time";
const MILLISECOND: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);

settings! {
    /// `[[source]]` of kind `servicebus`
    pub struct ServiceBusSourceKeys {
        /// connection string with a shared access key: `Endpoint=sb://…;SharedAccessKeyName=…;SharedAccessKey=…`. Never shown
        connection: ConnectionStringKey => "write for example \"Endpoint=sb://acme.servicebus.windows.net/;SharedAccessKeyName=relais;SharedAccessKey=${SERVICEBUS_KEY}\"";
        /// the queue; without it `EntityPath` of the connection string
        queue: Option<NameText>;
        /// or a topic
        topic: Option<NameText>;
        /// the subscription of the topic
        subscription: Option<NameText>;
        /// `true` reads the dead letters of the queue or subscription
        dead_letters: OnOff = false;
        /// `true` for a queue or subscription with sessions: one link per session, whose messages keep their order
        sessions: OnOff = false;
        /// sessions at a time
        sessions_max: Integer = SESSIONS_DEFAULT, 1..=SESSIONS_MAX;
        /// a session without messages for this time is given back
        session_idle: TimeSpan = SESSION_IDLE_DEFAULT, MILLISECOND..=HOUR;
        /// messages that are sent ahead of their settlement, per link. They are locked meanwhile
        prefetch: Integer = PREFETCH_DEFAULT, 1..=PREFETCH_MAX;
        /// the same in bytes; fewer messages are sent ahead if they are large
        prefetch_bytes: ByteSize = PREFETCH_BYTES_DEFAULT, 1..=(4 << 30);
        /// the id by which duplicates are recognised
        message_id: Selector = Pick::Header("message-id".to_owned());
        /// a message without that id: `"hash"` or `"new"`, as of kind `amqp`
        without_id: Word<WithoutId> = WithoutId::default();
        /// `"none"` or `"cloudevents"`: the payload is in this envelope
        envelope: Word<AmqpEnvelope> = AmqpEnvelope::default();
        /// `"json"`, `"json-latin1"`, `"confluent-json"`, `"text"` or `"bytes"`
        decoder: PlainDecoder = Decoder::default();
        /// PEM file with the certificates that sign the server's, besides those of the system
        tls_ca: Option<FilePath>;
    }

    /// `[[destination]]` of kind `servicebus`
    pub struct ServiceBusTargetKeys {
        /// connection string, as of a source. Never shown
        connection: ConnectionStringKey => "write for example \"Endpoint=sb://acme.servicebus.windows.net/;SharedAccessKeyName=relais;SharedAccessKey=${SERVICEBUS_KEY}\"";
        /// the queue; without it `EntityPath` of the connection string
        queue: Option<NameText>;
        /// or a topic
        topic: Option<NameText>;
        /// `"none"` or `"cloudevents"`
        envelope: Word<AmqpEnvelope> = AmqpEnvelope::default();
        /// a message with this header is [scheduled](servicebus.md#scheduled-messages)
        schedule_header: NameText = SCHEDULE_HEADER.to_owned();
        /// the queue or topic to which commands ask for replies. A source reads it
        reply_to: Option<NameText>;
        /// PEM file with the certificates that sign the server's, besides those of the system
        tls_ca: Option<FilePath>;
    }
}

text_kinds! {
    /// A connection string; it has a key, so it is never shown.
    pub ConnectionStringKey -> ServiceBusConnectionString, "text",
        |text| ServiceBusConnectionString::parse(text).map_err(String::from), hidden true;
}

/// A parsed connection string, of which only the host is shown.
#[derive(Clone)]
pub struct ServiceBusConnectionString {
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
    pub(crate) key_name: String,
    pub(crate) key: SecretString,
    pub(crate) entity: Option<String>,
    /// A local emulator, without TLS.
    pub(crate) is_emulator: bool,
}

impl ServiceBusConnectionString {
    /// Parses the text. The error does not repeat it.
    pub fn parse(text: &str) -> Result<Self, InvalidSettings> {
        let mut fields: [Option<&str>; 5] = [None; 5];
        const NAMES: [&str; 5] = [
            "Endpoint",
            "SharedAccessKeyName",
            "SharedAccessKey",
            "EntityPath",
            "UseDevelopmentEmulator",
        ];
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or("has a part without `=`")?;
            let at = NAMES.iter().position(|known| known.eq_ignore_ascii_case(name.trim()));
            let at =
                at.ok_or_else(|| format!("has an unknown part; known are {}", NAMES.join(", ")))?;
            fields[at] = Some(value.trim());
        }
        let [endpoint, key_name, key, entity, emulator] = fields;
        let needed = |value: Option<&str>, name: &str| {
            let value = value.filter(|value| !value.is_empty()).map(str::to_owned);
            value.ok_or_else(|| format!("has no `{name}`"))
        };
        let endpoint = needed(endpoint, NAMES[0])?;
        let place = endpoint.strip_prefix("sb://").ok_or("has an `Endpoint` without sb://")?;
        let place = place.trim_end_matches('/');
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) => {
                let port = port.parse().map_err(|_| "has a port that is no number".to_owned())?;
                (host, Some(port))
            }
            None => (place, None),
        };
        if host.is_empty() || host.contains('/') {
            return Err("has an `Endpoint` that names no host".into());
        }
        Ok(Self {
            host: host.to_owned(),
            port,
            key_name: needed(key_name, NAMES[1])?,
            key: SecretString::from(needed(key, NAMES[2])?),
            entity: entity.filter(|entity| !entity.is_empty()).map(str::to_owned),
            is_emulator: emulator.is_some_and(|value| value.eq_ignore_ascii_case("true")),
        })
    }
}

impl fmt::Display for ServiceBusConnectionString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sb://{}", self.host)
    }
}

impl fmt::Debug for ServiceBusConnectionString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl ServiceBusSourceKeys {
    /// Reports keys that do not fit together, by name.
    pub fn check(&self, report: &mut dyn FnMut(&str, String)) {
        check_message_id(&self.message_id, report);
        check_entity(&self.connection, [&self.queue, &self.topic], report);
        match (&self.topic, &self.subscription) {
            (Some(_), None) => report("subscription", "is missing beside `topic`".to_owned()),
            (None, Some(_)) => report("topic", "is missing beside `subscription`".to_owned()),
            _ => {}
        }
        if self.dead_letters && self.sessions {
            report("sessions", "dead letters have no sessions; remove one of the two".to_owned());
        }
    }

    /// Returns the address of the queue or subscription, or of its dead letters.
    pub fn address(&self) -> String {
        let entity = match (&self.topic, &self.subscription) {
            (Some(topic), Some(name)) => format!("{topic}/Subscriptions/{name}"),
            _ => self.queue.clone().or(self.connection.entity.clone()).unwrap_or_default(),
        };
        if self.dead_letters { format!("{entity}/$deadletterqueue") } else { entity }
    }
}

impl ServiceBusTargetKeys {
    /// Reports keys that do not fit together, by name.
    pub fn check(&self, report: &mut dyn FnMut(&str, String)) {
        check_entity(&self.connection, [&self.queue, &self.topic], report);
    }

    /// Returns the address of the queue or topic.
    pub fn address(&self) -> String {
        let named = self.topic.clone().or(self.queue.clone());
        named.or(self.connection.entity.clone()).unwrap_or_default()
    }
}

fn check_entity(
    connection: &ServiceBusConnectionString,
    [queue, topic]: [&Option<String>; 2],
    report: &mut dyn FnMut(&str, String),
) {
    match (queue, topic, &connection.entity) {
        (Some(_), Some(_), _) => {
            report("topic", "is of another kind than `queue`; remove one of the two".to_owned());
        }
        (None, None, None) => {
            report("queue", "is missing, or `topic`, or `EntityPath` in `connection`".to_owned());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    #[test]
    fn a_connection_string_is_parsed_and_shown_without_its_key() {
        let text = "Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=Root;\
                    SharedAccessKey=a+b/c==;EntityPath=orders";
        let one = ServiceBusConnectionString::parse(text).unwrap();
        assert_eq!((one.host.as_str(), one.port), ("ns.servicebus.windows.net", None));
        assert_eq!((one.key_name.as_str(), one.key.expose_secret()), ("Root", "a+b/c=="));
        assert_eq!((one.entity.as_deref(), one.is_emulator), (Some("orders"), false));
        assert_eq!(
            format!("{one} {one:?}"),
            "sb://ns.servicebus.windows.net sb://ns.servicebus.windows.net"
        );
        let text = "endpoint=sb://localhost:7;sharedaccesskeyname=k;SharedAccessKey=s;\
                    UseDevelopmentEmulator=true;";
        let two = ServiceBusConnectionString::parse(text).unwrap();
        assert_eq!((two.host.as_str(), two.port, two.is_emulator), ("localhost", Some(7), true));
    }

    #[test]
    fn a_wrong_connection_string_is_an_error_without_its_key() {
        for wrong in [
            "",
            "CANARY",
            "Endpoint=https://h;SharedAccessKeyName=k;SharedAccessKey=CANARY",
            "Endpoint=sb://;SharedAccessKeyName=k;SharedAccessKey=CANARY",
            "Endpoint=sb://h:x;SharedAccessKeyName=k;SharedAccessKey=CANARY",
            "Endpoint=sb://h;SharedAccessKey=CANARY",
            "Endpoint=sb://h;SharedAccessKeyName=k",
            "Endpoint=sb://h;SharedAccessKeyName=k;SharedAccessKey=CANARY;Else=1",
        ] {
            let why = ServiceBusConnectionString::parse(wrong).unwrap_err().to_string();
            assert!(!why.contains("CANARY") && !why.is_empty(), "{why}");
        }
    }
}
