//! Kafka: the connector's settings from the keys of the configuration. Nothing connects here yet.

use std::sync::Arc;

use relais::{
    http::SecretString,
    kafka::{
        KafkaConnection, KafkaPublisher, KafkaPublisherSettings, KafkaSource, KafkaSourceSettings,
    },
};
use relais_admin::{AskSource, SourceState};
use relais_connect::kafka_settings::{KafkaSourceKeys, KafkaTargetKeys};
use relais_core::{publisher::Publisher, source::Source};

use super::WireError;
use crate::settings::{DestinationConfig, SourceSettings};

pub(super) fn source(
    source: &SourceSettings,
    keys: &KafkaSourceKeys,
) -> Result<(Box<dyn Source>, AskSource), WireError> {
    let settings = KafkaSourceSettings {
        start: keys.start,
        ..KafkaSourceSettings::new(
            &source.name,
            connection(&keys.brokers, &keys.options),
            &keys.group,
            keys.topics.clone(),
            source.mapping.clone(),
        )
    };
    let made = KafkaSource::new(settings).map_err(|error| source.error(error))?;
    let counters = made.counters();
    let state = move || SourceState {
        missed: counters.missed(),
        recreated: counters.recreated(),
        lag: counters.lag(),
        connected: counters.connected(),
    };
    Ok((Box::new(made), Arc::new(state)))
}

pub(super) fn publisher(
    destination: &DestinationConfig,
    keys: &KafkaTargetKeys,
) -> Result<Arc<dyn Publisher>, WireError> {
    let settings = KafkaPublisherSettings {
        cloudevents: keys.cloudevents,
        timeout: destination.limits.timeout,
        ..KafkaPublisherSettings::new(
            &destination.name,
            connection(&keys.brokers, &keys.options),
            keys.topic.as_deref().unwrap_or(&destination.name),
        )
    };
    let made = KafkaPublisher::new(settings).map_err(|error| destination.error(error))?;
    Ok(Arc::new(made))
}

pub(super) async fn probe_source(keys: &KafkaSourceKeys) -> Result<String, String> {
    Ok(connection(&keys.brokers, &keys.options).probe_source(&keys.topics).await?)
}

pub(super) async fn probe_destination(keys: &KafkaTargetKeys) -> Result<String, String> {
    let topic = keys.topic.as_deref().unwrap_or_default();
    Ok(connection(&keys.brokers, &keys.options).probe_destination(topic).await?)
}

fn connection(brokers: &str, options: &[(String, SecretString)]) -> KafkaConnection {
    KafkaConnection { options: options.to_vec(), ..KafkaConnection::new(brokers) }
}
