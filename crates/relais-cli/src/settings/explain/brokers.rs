//! Sources of brokers in the explanation of a configuration.

use relais_connect::{
    amqp_settings::{AmqpEnvelope, AmqpSourceKeys},
    nats_settings::{NatsEnvelope, NatsSourceKeys},
    rabbitmq_settings::{RabbitEnvelope, RabbitSourceKeys},
    servicebus_settings::ServiceBusSourceKeys,
};

use super::{super::quantity::show_size, s};

pub(super) fn nats_origin(nats: &NatsSourceKeys) -> (String, String) {
    let NatsSourceKeys { stream, consumer, url, prefetch, .. } = nats;
    (
        format!("nats, stream {stream}, consumer {consumer} at {url}{}", as_event(nats.envelope)),
        format!(
            "decoded as {}; undecodable messages are stored as SERDE_ERROR; prefetch up to \
             {prefetch} messages and {}",
            nats.decoder.as_str(),
            show_size(nats.prefetch_bytes)
        ),
    )
}

pub(super) fn as_event(envelope: NatsEnvelope) -> &'static str {
    match envelope {
        NatsEnvelope::None => "",
        NatsEnvelope::CloudEvents => ", CloudEvents",
    }
}

pub(super) fn rabbitmq_origin(rabbitmq: &RabbitSourceKeys) -> (String, String) {
    let envelope = envelope(rabbitmq.envelope);
    (
        format!("rabbitmq, queue {} at {}{envelope}", rabbitmq.queue, rabbitmq.url),
        format!(
            "decoded as {}; undecodable messages are stored as SERDE_ERROR; prefetch up to {} \
             messages and {}",
            rabbitmq.decoder.as_str(),
            rabbitmq.prefetch,
            show_size(rabbitmq.prefetch_bytes)
        ),
    )
}

pub(super) fn amqp_origin(amqp: &AmqpSourceKeys) -> (String, String) {
    (
        format!("amqp, address {} at {}{}", amqp.address, amqp.url, in_amqp(amqp.envelope)),
        format!(
            "decoded as {}; undecodable messages are stored as SERDE_ERROR; prefetch up to {} \
             messages and {}",
            amqp.decoder.as_str(),
            amqp.prefetch,
            show_size(amqp.prefetch_bytes)
        ),
    )
}

pub(super) fn servicebus_origin(keys: &ServiceBusSourceKeys) -> (String, String) {
    let sessions = if keys.sessions {
        format!(", {} session{} at a time", keys.sessions_max, s(keys.sessions_max as usize))
    } else {
        String::new()
    };
    let envelope = in_amqp(keys.envelope);
    (
        format!("servicebus, {} at {}{sessions}{envelope}", keys.address(), keys.connection),
        format!(
            "decoded as {}; undecodable messages are stored as SERDE_ERROR; prefetch up to {} \
             messages and {}",
            keys.decoder.as_str(),
            keys.prefetch,
            show_size(keys.prefetch_bytes)
        ),
    )
}

pub(super) fn in_amqp(envelope: AmqpEnvelope) -> &'static str {
    match envelope {
        AmqpEnvelope::None => "",
        AmqpEnvelope::CloudEvents => ", CloudEvents",
    }
}

pub(super) fn envelope(envelope: RabbitEnvelope) -> &'static str {
    match envelope {
        RabbitEnvelope::None => "",
        RabbitEnvelope::MassTransit => ", MassTransit",
        RabbitEnvelope::CloudEvents => ", CloudEvents",
    }
}
