//! NATS: the connector's settings from the keys of the configuration. Nothing connects here yet.

use std::sync::Arc;

use relais::nats::{
    NatsConnection, NatsPublisher, NatsPublisherSettings, NatsSource, NatsSourceSettings,
};
use relais_admin::{AskSource, SourceState};
use relais_connect::nats_settings::{NatsSourceKeys, NatsTargetKeys};
use relais_core::{extract::Mapping, publisher::Publisher, source::Source};

use super::WireError;
use crate::settings::{DestinationConfig, SourceSettings};

pub(super) fn source(
    source: &SourceSettings,
    keys: &NatsSourceKeys,
) -> Result<(Box<dyn Source>, AskSource), WireError> {
    let settings = source_settings(&source.name, keys, source.mapping.clone());
    let made = NatsSource::new(settings).map_err(|error| source.error(error))?;
    let state = made.state();
    let ask = move || SourceState {
        missed: 0,
        recreated: 0,
        lag: None,
        connected: Some(state.is_connected()),
    };
    Ok((Box::new(made), Arc::new(ask)))
}

fn source_settings(name: &str, keys: &NatsSourceKeys, mapping: Mapping) -> NatsSourceSettings {
    NatsSourceSettings {
        filter: keys.filter.clone(),
        start: keys.start,
        ack_wait: keys.ack_wait,
        max_ack_pending: keys.max_ack_pending,
        prefetch: u16::try_from(keys.prefetch).unwrap_or(u16::MAX),
        prefetch_bytes: keys.prefetch_bytes,
        envelope: keys.envelope,
        domain: keys.domain.clone(),
        ..NatsSourceSettings::new(name, of_source(keys), &keys.stream, &keys.consumer, mapping)
    }
}

pub(super) fn publisher(
    destination: &DestinationConfig,
    keys: &NatsTargetKeys,
) -> Result<Arc<dyn Publisher>, WireError> {
    let settings = NatsPublisherSettings {
        envelope: keys.envelope,
        reply_to: keys.reply_to.clone(),
        timeout: destination.limits.timeout,
        ..NatsPublisherSettings::new(&destination.name, of_target(keys), keys.subject.clone())
    };
    let made = NatsPublisher::new(settings).map_err(|error| destination.error(error))?;
    Ok(Arc::new(made))
}

pub(super) async fn probe_source(name: &str, keys: &NatsSourceKeys) -> Result<String, String> {
    let settings = source_settings(name, keys, Mapping::json(name));
    Ok(of_source(keys).probe_source(&settings).await?)
}

pub(super) async fn probe_destination(keys: &NatsTargetKeys) -> Result<String, String> {
    Ok(of_target(keys).probe_destination(&keys.subject).await?)
}

fn of_source(keys: &NatsSourceKeys) -> NatsConnection {
    NatsConnection {
        url: keys.url.clone(),
        nkey: keys.nkey.clone(),
        credentials: keys.credentials.clone(),
        tls_ca: keys.tls_ca.clone(),
        tls_certificate: keys.tls_certificate.clone(),
        tls_key: keys.tls_key.clone(),
    }
}

fn of_target(keys: &NatsTargetKeys) -> NatsConnection {
    NatsConnection {
        url: keys.url.clone(),
        nkey: keys.nkey.clone(),
        credentials: keys.credentials.clone(),
        tls_ca: keys.tls_ca.clone(),
        tls_certificate: keys.tls_certificate.clone(),
        tls_key: keys.tls_key.clone(),
    }
}
