//! AMQP 1.0: the connector's settings from the keys of the configuration. Nothing connects here yet.

use std::{path::PathBuf, sync::Arc};

use relais::amqp::{
    AmqpConnection, AmqpPublisher, AmqpPublisherSettings, AmqpSource, AmqpSourceSettings,
    HiddenBrokerUrl,
};
use relais_admin::{AskSource, SourceState};
use relais_connect::amqp_settings::{AmqpSourceKeys, AmqpTargetKeys};
use relais_core::{publisher::Publisher, source::Source};

use super::WireError;
use crate::settings::{DestinationConfig, SourceSettings};

pub(super) fn source(
    source: &SourceSettings,
    keys: &AmqpSourceKeys,
) -> Result<(Box<dyn Source>, AskSource), WireError> {
    let mapping = source.mapping.clone();
    let settings = AmqpSourceSettings {
        capability: keys.capability.clone(),
        prefetch: u16::try_from(keys.prefetch).unwrap_or(u16::MAX),
        prefetch_bytes: keys.prefetch_bytes,
        envelope: keys.envelope,
        without_id: keys.without_id,
        ..AmqpSourceSettings::new(&source.name, of_source(keys), &keys.address, mapping)
    };
    let made = AmqpSource::new(settings).map_err(|error| source.error(error))?;
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
    keys: &AmqpTargetKeys,
) -> Result<Arc<dyn Publisher>, WireError> {
    let (name, address) = (&destination.name, keys.address.clone());
    let settings = AmqpPublisherSettings {
        capability: keys.capability.clone(),
        envelope: keys.envelope,
        message_bytes_max: keys.message_bytes_max,
        reply_to: keys.reply_to.clone(),
        timeout: destination.limits.timeout,
        ..AmqpPublisherSettings::new(name, of_target(keys), address)
    };
    let made = AmqpPublisher::new(settings).map_err(|error| destination.error(error))?;
    Ok(Arc::new(made))
}

pub(super) async fn probe_source(keys: &AmqpSourceKeys) -> Result<String, String> {
    Ok(of_source(keys).probe_source(&keys.address, keys.capability.as_deref()).await?)
}

pub(super) async fn probe_destination(keys: &AmqpTargetKeys) -> Result<String, String> {
    Ok(of_target(keys).probe_destination(&keys.address, keys.capability.as_deref()).await?)
}

fn of_source(keys: &AmqpSourceKeys) -> AmqpConnection {
    connection(&keys.url, [&keys.tls_ca, &keys.tls_certificate, &keys.tls_key])
}

fn of_target(keys: &AmqpTargetKeys) -> AmqpConnection {
    connection(&keys.url, [&keys.tls_ca, &keys.tls_certificate, &keys.tls_key])
}

fn connection(url: &HiddenBrokerUrl, files: [&Option<PathBuf>; 3]) -> AmqpConnection {
    let [tls_ca, tls_certificate, tls_key] = files.map(Clone::clone);
    AmqpConnection { url: url.clone(), tls_ca, tls_certificate, tls_key }
}
