//! RabbitMQ: the connector's settings from the keys of the configuration. Nothing connects here yet.

use std::{path::PathBuf, sync::Arc};

use relais::rabbitmq::{
    HiddenBrokerUrl, RabbitConnection, RabbitPublisher, RabbitPublisherSettings, RabbitSource,
    RabbitSourceSettings,
};
use relais_admin::{AskSource, SourceState};
use relais_connect::rabbitmq_settings::{RabbitSourceKeys, RabbitTargetKeys};
use relais_core::{publisher::Publisher, source::Source};

use super::WireError;
use crate::settings::{DestinationConfig, SourceSettings};

pub(super) fn source(
    source: &SourceSettings,
    keys: &RabbitSourceKeys,
) -> Result<(Box<dyn Source>, AskSource), WireError> {
    let settings = RabbitSourceSettings {
        prefetch: u16::try_from(keys.prefetch).unwrap_or(u16::MAX),
        prefetch_bytes: keys.prefetch_bytes,
        envelope: keys.envelope,
        without_id: keys.without_id,
        ..RabbitSourceSettings::new(
            &source.name,
            of_source(keys),
            &keys.queue,
            source.mapping.clone(),
        )
    };
    let made = RabbitSource::new(settings).map_err(|error| source.error(error))?;
    let state = made.state();
    let ask = move || SourceState {
        missed: 0,
        recreated: 0,
        lag: None,
        connected: Some(state.is_connected()),
    };
    Ok((Box::new(made), Arc::new(ask)))
}

pub(super) fn publisher(
    destination: &DestinationConfig,
    keys: &RabbitTargetKeys,
) -> Result<Arc<dyn Publisher>, WireError> {
    let settings = RabbitPublisherSettings {
        envelope: keys.envelope,
        namespace: keys.namespace.clone(),
        reply_to: keys.reply_to.clone(),
        timeout: destination.limits.timeout,
        ..RabbitPublisherSettings::new(
            &destination.name,
            of_target(keys),
            keys.exchange.clone(),
            keys.routing_key.clone(),
        )
    };
    let made = RabbitPublisher::new(settings).map_err(|error| destination.error(error))?;
    Ok(Arc::new(made))
}

pub(super) async fn probe_source(keys: &RabbitSourceKeys) -> Result<String, String> {
    Ok(of_source(keys).probe_source(&keys.queue).await?)
}

pub(super) async fn probe_destination(keys: &RabbitTargetKeys) -> Result<String, String> {
    let reply_to = keys.reply_to.as_deref();
    Ok(of_target(keys).probe_destination(&keys.exchange, &keys.routing_key, reply_to).await?)
}

fn of_source(keys: &RabbitSourceKeys) -> RabbitConnection {
    connection(&keys.url, [&keys.tls_ca, &keys.tls_certificate, &keys.tls_key])
}

fn of_target(keys: &RabbitTargetKeys) -> RabbitConnection {
    connection(&keys.url, [&keys.tls_ca, &keys.tls_certificate, &keys.tls_key])
}

fn connection(url: &HiddenBrokerUrl, files: [&Option<PathBuf>; 3]) -> RabbitConnection {
    let [tls_ca, tls_certificate, tls_key] = files.map(Clone::clone);
    RabbitConnection { url: url.clone(), tls_ca, tls_certificate, tls_key }
}
