//! Kafka: the connector's own settings from ours. Nothing connects here yet.

use std::sync::Arc;

use relais::kafka::{
    KafkaConnection, KafkaPublisher, KafkaPublisherSettings, KafkaSource, KafkaSourceSettings,
};
use relais_admin::{AskSource, SourceState};
use relais_core::{publisher::Publisher, source::Source};
use secrecy::SecretString;

use super::WireError;
use crate::settings::{Destination, KafkaOrigin, KafkaTarget, SourceSettings, Start};

pub(super) fn source(
    source: &SourceSettings,
    origin: &KafkaOrigin,
) -> Result<(Box<dyn Source>, AskSource), WireError> {
    let settings = KafkaSourceSettings {
        start: match origin.start {
            Start::Earliest => relais::kafka::KafkaStartOffset::Earliest,
            Start::Latest => relais::kafka::KafkaStartOffset::Latest,
        },
        ..KafkaSourceSettings::new(
            &source.name,
            connection(&origin.brokers, &origin.options),
            &origin.group,
            origin.topics.clone(),
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
    destination: &Destination,
    target: &KafkaTarget,
) -> Result<Arc<dyn Publisher>, WireError> {
    let settings = KafkaPublisherSettings {
        cloudevents: target.cloudevents,
        timeout: destination.limits.timeout,
        ..KafkaPublisherSettings::new(
            &destination.name,
            connection(&target.brokers, &target.options),
            &target.topic,
        )
    };
    let made = KafkaPublisher::new(settings).map_err(|error| destination.error(error))?;
    Ok(Arc::new(made))
}

pub(super) async fn probe_source(origin: &KafkaOrigin) -> Result<String, String> {
    connection(&origin.brokers, &origin.options).probe_source(&origin.topics).await
}

pub(super) async fn probe_destination(target: &KafkaTarget) -> Result<String, String> {
    connection(&target.brokers, &target.options).probe_destination(&target.topic).await
}

fn connection(brokers: &str, options: &[(String, SecretString)]) -> KafkaConnection {
    KafkaConnection {
        options: options.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        ..KafkaConnection::new(brokers)
    }
}
