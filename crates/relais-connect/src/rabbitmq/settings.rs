//! The keys of kind `rabbitmq` in the configuration, of a source and of a destination.
//!
//! A build without RabbitMQ reads them too: it reports the missing feature, not unknown keys.

use std::fmt;

use relais_core::{
    decode::Decoder,
    extract::Pick,
    setting::{
        ByteSize, FilePath, Integer, NameText, PlainDecoder, Selector, SettingForm, SettingWords,
        Word,
    },
    settings, text_kinds,
};
use secrecy::{ExposeSecret, SecretString};

use crate::{template::RoutingTemplate, tls_files::check_tls_files};

/// The most bytes of a name in AMQP.
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// The most messages that a consumer may hold without acknowledgement: the field has 16 bits.
const PREFETCH_MAX: u32 = 65_535;
/// Two batches: one that is being stored, and the next one.
pub(crate) const PREFETCH_DEFAULT: u32 = 2_000;
pub(crate) const PREFETCH_BYTES_DEFAULT: usize = 64 << 20;

settings! {
    /// `[[source]]` of kind `rabbitmq`
    pub struct RabbitSourceKeys {
        /// `amqp://` or `amqps://USER:PASSWORD@HOST:PORT/VHOST`. Never shown
        url: BrokerUrl => "write for example \"amqps://relais:${PASSWORD}@rabbit.example/%2f\"";
        /// it must exist
        queue: QueueName => "write for example \"orders\"";
        /// messages that the broker sends ahead of their acknowledgement
        prefetch: Integer = PREFETCH_DEFAULT, 1..=PREFETCH_MAX;
        /// the same in bytes; fewer messages are sent ahead if they are large
        prefetch_bytes: ByteSize = PREFETCH_BYTES_DEFAULT, 1..=(4 << 30);
        /// the id by which duplicates are recognised. RabbitMQ has no positions
        message_id: Selector = Pick::Header("message-id".to_owned());
        /// a message without that id: `"hash"` uses the hash of queue, properties and body, so that an identical message is a duplicate; `"new"` gives each delivery its own id
        without_id: Word<WithoutId> = WithoutId::default();
        /// `"none"`, `"masstransit"` or `"cloudevents"`: the payload is in this envelope
        envelope: Word<RabbitEnvelope> = RabbitEnvelope::default();
        /// `"json"`, `"json-latin1"`, `"confluent-json"`, `"text"` or `"bytes"`
        decoder: PlainDecoder = Decoder::default();
        /// PEM file with the certificates that sign the broker's, besides those of the system
        tls_ca: Option<FilePath>;
        /// PEM file with the client's certificate chain
        tls_certificate: Option<FilePath>;
        /// PEM file with its private key
        tls_key: Option<FilePath>;
    }

    /// `[[destination]]` of kind `rabbitmq`
    pub struct RabbitTargetKeys {
        /// `amqp://` or `amqps://USER:PASSWORD@HOST:PORT/VHOST`. Never shown
        url: BrokerUrl => "write for example \"amqps://relais:${PASSWORD}@rabbit.example/%2f\"";
        /// it must exist. `""` is the default exchange, where the routing key is a queue. May contain [places](rabbitmq.md#exchange-and-routing-key)
        exchange: RoutingName => "write for example \"orders\"";
        /// may contain places, as `exchange`
        routing_key: RoutingName = "{{event_type}}".parse().expect("a known place");
        /// `"none"`, `"masstransit"` or `"cloudevents"`
        envelope: Word<RabbitEnvelope> = RabbitEnvelope::default();
        /// for `masstransit`: the namespace of message types
        namespace: Option<NameText>;
        /// the queue to which commands ask for replies. A source reads it
        reply_to: Option<QueueName>;
        /// PEM file with the certificates that sign the broker's, besides those of the system
        tls_ca: Option<FilePath>;
        /// PEM file with the client's certificate chain
        tls_certificate: Option<FilePath>;
        /// PEM file with its private key
        tls_key: Option<FilePath>;
    }
}

text_kinds! {
    /// The address of a broker; it may have a password, so it is never shown.
    pub BrokerUrl -> HiddenBrokerUrl, "text", HiddenBrokerUrl::parse, hidden true;
    /// The name of a queue.
    pub QueueName -> String, "text", |text| match text.len() {
            1..=NAME_BYTES_MAX => Ok(text.to_owned()),
            _ => Err(format!("must have 1 to {NAME_BYTES_MAX} bytes")),
        }, form SettingForm::Text(".+");
    /// The name of an exchange or a routing key, with places of the message.
    pub RoutingName -> RoutingTemplate, "text", routing_name, show ToString::to_string;
}

fn routing_name(text: &str) -> Result<RoutingTemplate, String> {
    let template: RoutingTemplate = text.parse()?;
    if template.fixed_bytes() > NAME_BYTES_MAX {
        return Err(format!("must have at most {NAME_BYTES_MAX} bytes"));
    }
    Ok(template)
}

/// The address of a broker, of which only scheme, host and virtual host are shown.
#[derive(Clone)]
pub struct HiddenBrokerUrl(SecretString);

impl HiddenBrokerUrl {
    /// Checks the form of the URL. The error does not repeat it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix("amqp://").or_else(|| text.strip_prefix("amqps://"));
        let rest = rest.ok_or("must start with amqps:// or amqp://")?;
        if rest.chars().any(char::is_whitespace) {
            return Err("has a space in it; write it percent-encoded".to_owned());
        }
        if shown_host(rest).is_empty() {
            return Err("names no host".to_owned());
        }
        Ok(Self(SecretString::from(text.to_owned())))
    }

    /// Returns whether the connection is encrypted.
    pub fn is_tls(&self) -> bool {
        self.expose().starts_with("amqps:")
    }

    pub(crate) fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

/// Returns host, port and virtual host, without the login and the parameters.
fn shown_host(rest: &str) -> &str {
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    // An unencoded `/` or `@` in a password must not make a part of it visible.
    rest.rsplit_once('@').map_or(rest, |(_, host)| host)
}

impl fmt::Display for HiddenBrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.expose().split_once("://").unwrap_or_default();
        write!(f, "{scheme}://{}", shown_host(rest))
    }
}

impl fmt::Debug for HiddenBrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The form of the body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RabbitEnvelope {
    /// The body is the payload.
    #[default]
    None,
    /// The body is the JSON envelope of MassTransit with the payload in it.
    MassTransit,
    /// CloudEvents: sent in binary mode, received in binary or structured mode.
    CloudEvents,
}

impl SettingWords for RabbitEnvelope {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("none", Self::None),
        ("masstransit", Self::MassTransit),
        ("cloudevents", Self::CloudEvents),
    ];
}

/// The id of a received message that has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WithoutId {
    /// The hash of queue, properties and body: a redelivery is recognised, and an identical message
    /// is a duplicate.
    #[default]
    Hash,
    /// Another one for each delivery: identical messages are kept, and a redelivery is not
    /// recognised.
    New,
}

impl SettingWords for WithoutId {
    const WORDS: &'static [(&'static str, Self)] = &[("hash", Self::Hash), ("new", Self::New)];
}

impl RabbitSourceKeys {
    /// Reports keys that do not fit together, by name.
    pub fn check(&self, report: &mut dyn FnMut(&str, String)) {
        if self.message_id == Pick::Position {
            let why =
                "RabbitMQ has no positions; use `header:NAME`, `payload:/JSON/POINTER` or `key`";
            report("message_id", why.to_owned());
        }
        check_tls_files(
            (self.url.is_tls(), "amqps"),
            [&self.tls_ca, &self.tls_certificate, &self.tls_key],
            report,
        );
    }
}

impl RabbitTargetKeys {
    /// Reports keys that do not fit together, by name.
    pub fn check(&self, report: &mut dyn FnMut(&str, String)) {
        check_tls_files(
            (self.url.is_tls(), "amqps"),
            [&self.tls_ca, &self.tls_certificate, &self.tls_key],
            report,
        );
        match (self.envelope, &self.namespace) {
            (RabbitEnvelope::MassTransit, None) => report(
                "namespace",
                "is missing; write the .NET namespace of the messages, for example \
                 \"Company.Orders\""
                    .to_owned(),
            ),
            (RabbitEnvelope::None | RabbitEnvelope::CloudEvents, Some(_)) => {
                report("namespace", "is only for `envelope = \"masstransit\"`".to_owned());
            }
            _ => {}
        }
        if self.envelope == RabbitEnvelope::MassTransit && self.reply_to.is_some() {
            let why = "is not for `envelope = \"masstransit\"`, which has its own reply addresses";
            report("reply_to", why.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_amqp_cannot_carry_is_an_error() {
        assert!(routing_name(&"k".repeat(255)).is_ok());
        assert!(routing_name(&"k".repeat(256)).unwrap_err().contains("255 bytes"));
    }

    #[test]
    fn a_url_is_shown_without_its_login() {
        for (text, shown) in [
            ("amqp://guest:guest@rabbit:5672/%2f", "amqp://rabbit:5672/%2f"),
            ("amqps://a:p@ss/w@rabbit.example/v?heartbeat=5", "amqps://rabbit.example/v"),
            ("amqp://rabbit", "amqp://rabbit"),
        ] {
            let url = HiddenBrokerUrl::parse(text).unwrap();
            assert_eq!((url.to_string(), format!("{url:?}")), (shown.into(), shown.into()));
            assert_eq!(url.is_tls(), text.starts_with("amqps"));
        }
        for wrong in ["http://secret", "amqp://", "amqp://a:secret@", "amqp://a secret", "secret"] {
            let why = HiddenBrokerUrl::parse(wrong).unwrap_err();
            assert!(!why.contains("secret"), "{why}");
        }
    }
}
