//! The keys of kind `amqp` in the configuration, of a source and of a destination.
//!
//! A build without AMQP 1.0 reads them too: it reports the missing feature, not unknown keys.

use relais_core::{
    InvalidSettings,
    decode::Decoder,
    extract::Pick,
    setting::{
        ByteSize, FilePath, Integer, NameText, PlainDecoder, Selector, SettingForm, SettingWords,
        Word,
    },
    settings, text_kinds,
};

use crate::{
    rabbitmq_settings::{BrokerUrl, WithoutId},
    template::RoutingTemplate,
    tls_files::check_tls_files,
};

/// The most bytes of an address; the protocol has no limit.
const ADDRESS_BYTES_MAX: usize = 2_048;
/// The most messages that a broker may send ahead.
const PREFETCH_MAX: u32 = 65_535;
/// Two batches: one that is being stored, and the next one.
pub(crate) const PREFETCH_DEFAULT: u32 = 2_000;
pub(crate) const PREFETCH_BYTES_DEFAULT: usize = 64 << 20;

settings! {
    /// `[[source]]` of kind `amqp`
    pub struct AmqpSourceKeys {
        /// `amqp://` or `amqps://USER:PASSWORD@HOST:PORT`. Without a login it is anonymous, with a client certificate it is SASL EXTERNAL. A path is the virtual host. Never shown
        url: BrokerUrl => "write for example \"amqps://relais:${PASSWORD}@broker.example\"";
        /// the queue, or another address that the broker can send from
        address: AddressName => "write for example \"orders\"";
        /// a capability of the address, for brokers that need it: `"queue"` or `"topic"` for Artemis
        capability: Option<NameText>;
        /// messages that the broker sends ahead of their settlement
        prefetch: Integer = PREFETCH_DEFAULT, 1..=PREFETCH_MAX;
        /// the same in bytes; fewer messages are sent ahead if they are large
        prefetch_bytes: ByteSize = PREFETCH_BYTES_DEFAULT, 1..=(4 << 30);
        /// the id by which duplicates are recognised. AMQP has no positions
        message_id: Selector = Pick::Header("message-id".to_owned());
        /// a message without that id: `"hash"` uses the hash of address, properties and body, so that an identical message is a duplicate; `"new"` gives each delivery its own id
        without_id: Word<WithoutId> = WithoutId::default();
        /// `"none"` or `"cloudevents"`: the payload is in this envelope
        envelope: Word<AmqpEnvelope> = AmqpEnvelope::default();
        /// `"json"`, `"json-latin1"`, `"confluent-json"`, `"text"` or `"bytes"`
        decoder: PlainDecoder = Decoder::default();
        /// PEM file with the certificates that sign the broker's, besides those of the system
        tls_ca: Option<FilePath>;
        /// PEM file with the client's certificate chain
        tls_certificate: Option<FilePath>;
        /// PEM file with its private key
        tls_key: Option<FilePath>;
    }

    /// `[[destination]]` of kind `amqp`
    pub struct AmqpTargetKeys {
        /// `amqp://` or `amqps://USER:PASSWORD@HOST:PORT`, as of a source. Never shown
        url: BrokerUrl => "write for example \"amqps://relais:${PASSWORD}@broker.example\"";
        /// the queue or topic. May contain [places](amqp.md#address)
        address: AddressTemplate => "write for example \"orders\"";
        /// a capability of the address, for brokers that need it: `"queue"` or `"topic"` for Artemis
        capability: Option<NameText>;
        /// `"none"` or `"cloudevents"`
        envelope: Word<AmqpEnvelope> = AmqpEnvelope::default();
        /// the address to which commands ask for replies. A source reads it
        reply_to: Option<AddressName>;
        /// a larger message is rejected before it is sent. Without it the limit is the one that the broker announces
        message_bytes_max: Option<ByteSize>;
        /// PEM file with the certificates that sign the broker's, besides those of the system
        tls_ca: Option<FilePath>;
        /// PEM file with the client's certificate chain
        tls_certificate: Option<FilePath>;
        /// PEM file with its private key
        tls_key: Option<FilePath>;
    }
}

text_kinds! {
    /// The address of a source.
    pub AddressName -> String, "text", |text| match text.len() {
            1..=ADDRESS_BYTES_MAX => Ok(text.to_owned()),
            _ => Err(format!("must have 1 to {ADDRESS_BYTES_MAX} bytes")),
        }, form SettingForm::Text(".+");
    /// The address of a message, with places of the message.
    pub AddressTemplate -> RoutingTemplate, "text", address_template, show ToString::to_string,
        form SettingForm::Text(".+");
}

fn address_template(text: &str) -> Result<RoutingTemplate, String> {
    match text.len() {
        1..=ADDRESS_BYTES_MAX => text.parse().map_err(|error: InvalidSettings| error.to_string()),
        _ => Err(format!("must have 1 to {ADDRESS_BYTES_MAX} bytes")),
    }
}

/// The envelope around a payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AmqpEnvelope {
    /// The body is the payload.
    #[default]
    None,
    /// CloudEvents: sent in binary mode, received in binary or structured mode.
    CloudEvents,
}

impl SettingWords for AmqpEnvelope {
    const WORDS: &'static [(&'static str, Self)] =
        &[("none", Self::None), ("cloudevents", Self::CloudEvents)];
}

impl AmqpSourceKeys {
    /// Reports keys that do not fit together, by name.
    pub fn check(&self, report: &mut dyn FnMut(&str, String)) {
        check_message_id(&self.message_id, report);
        check_tls_files(
            (self.url.is_tls(), "amqps"),
            [&self.tls_ca, &self.tls_certificate, &self.tls_key],
            report,
        );
    }
}

impl AmqpTargetKeys {
    /// Reports keys that do not fit together, by name.
    pub fn check(&self, report: &mut dyn FnMut(&str, String)) {
        check_tls_files(
            (self.url.is_tls(), "amqps"),
            [&self.tls_ca, &self.tls_certificate, &self.tls_key],
            report,
        );
    }
}

pub(crate) fn check_message_id(id: &Pick, report: &mut dyn FnMut(&str, String)) {
    if *id == Pick::Position {
        let why = "AMQP has no positions; use `header:NAME`, `payload:/JSON/POINTER` or `key`";
        report("message_id", why.to_owned());
    }
}
