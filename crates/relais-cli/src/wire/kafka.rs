//! Kafka: the connector's settings from the keys of the configuration. Nothing connects here yet.

use std::sync::Arc;

use relais::{
    http::SecretString,
    kafka::{
        KafkaConnection, KafkaEncoding, KafkaPublisher, KafkaPublisherSettings, KafkaSource,
        KafkaSourceSettings, SchemaRegistry, SchemaRegistrySettings,
    },
};
use relais_admin::{AskSource, SourceState};
use relais_connect::kafka_settings::{KafkaSourceKeys, KafkaTargetKeys, RegistryKeys};
use relais_core::{InvalidSettings, decode::SchemaDecoder, publisher::Publisher, source::Source};

use super::WireError;
use crate::settings::{DestinationConfig, SourceSettings};

pub(super) fn source(
    source: &SourceSettings,
    keys: &KafkaSourceKeys,
) -> Result<(Box<dyn Source>, AskSource), WireError> {
    let settings = KafkaSourceSettings {
        start: keys.start,
        registry: registry(keys.registry()).map_err(|error| source.error(error))?,
        unknown_schema_wait: keys.unknown_schema_wait,
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
    let registry = registry(keys.registry()).map_err(|error| destination.error(error))?;
    let settings = KafkaPublisherSettings {
        cloudevents: keys.cloudevents,
        encoding: registry.map(|registry| KafkaEncoding {
            subject: keys.subject.clone(),
            schema_file: keys.schema_file.clone(),
            ..KafkaEncoding::new(keys.encoder, registry)
        }),
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

/// Asks the schema registry, if there is one.
pub(super) async fn probe_registry(keys: RegistryKeys<'_>) -> Option<Result<String, String>> {
    let registry = match registry(keys) {
        Ok(registry) => registry?,
        Err(error) => return Some(Err(error.to_string())),
    };
    Some(registry.probe().await.map_err(String::from))
}

/// Returns what decodes the rows of a source again.
pub(super) fn schemas(keys: &KafkaSourceKeys) -> Option<Arc<dyn SchemaDecoder>> {
    // A wrong setting is reported when the source is made.
    let registry = registry(keys.registry()).ok()??;
    Some(registry)
}

fn registry(keys: RegistryKeys<'_>) -> Result<Option<Arc<SchemaRegistry>>, InvalidSettings> {
    let Some(url) = keys.url else { return Ok(None) };
    let settings = SchemaRegistrySettings {
        user: keys.user.cloned(),
        password: keys.password.cloned(),
        token: keys.token.cloned(),
        tls_ca: keys.tls_ca.cloned(),
        ..SchemaRegistrySettings::new(url)
    };
    SchemaRegistry::new(&settings).map(|registry| Some(Arc::new(registry)))
}

fn connection(brokers: &str, options: &[(String, SecretString)]) -> KafkaConnection {
    KafkaConnection { options: options.to_vec(), ..KafkaConnection::new(brokers) }
}
