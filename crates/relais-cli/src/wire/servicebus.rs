//! Azure Service Bus: the connector's settings from the keys of the configuration. Nothing connects here
//! yet.

use std::{path::PathBuf, sync::Arc};

use relais::servicebus::{
    ServiceBusConnection, ServiceBusConnectionString, ServiceBusPublisher,
    ServiceBusPublisherSettings, ServiceBusSource, ServiceBusSourceSettings,
};
use relais_admin::{AskSource, SourceState};
use relais_connect::servicebus_settings::{ServiceBusSourceKeys, ServiceBusTargetKeys};
use relais_core::{publisher::Publisher, source::Source};

use super::WireError;
use crate::settings::{DestinationConfig, SourceSettings};

pub(super) fn source(
    source: &SourceSettings,
    keys: &ServiceBusSourceKeys,
) -> Result<(Box<dyn Source>, AskSource), WireError> {
    let (connection, mapping) =
        (connection(&keys.connection, &keys.tls_ca), source.mapping.clone());
    let settings = ServiceBusSourceSettings {
        sessions: keys.sessions.then_some(keys.sessions_max as usize),
        session_idle: keys.session_idle,
        prefetch: u16::try_from(keys.prefetch).unwrap_or(u16::MAX),
        prefetch_bytes: keys.prefetch_bytes,
        envelope: keys.envelope,
        without_id: keys.without_id,
        ..ServiceBusSourceSettings::new(&source.name, connection, &keys.address(), mapping)
    };
    let made = ServiceBusSource::new(settings).map_err(|error| source.error(error))?;
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
    keys: &ServiceBusTargetKeys,
) -> Result<Arc<dyn Publisher>, WireError> {
    let connection = connection(&keys.connection, &keys.tls_ca);
    let settings = ServiceBusPublisherSettings {
        envelope: keys.envelope,
        schedule_header: keys.schedule_header.clone(),
        reply_to: keys.reply_to.clone(),
        timeout: destination.limits.timeout,
        ..ServiceBusPublisherSettings::new(&destination.name, connection, &keys.address())
    };
    let made = ServiceBusPublisher::new(settings).map_err(|error| destination.error(error))?;
    Ok(Arc::new(made))
}

pub(super) async fn probe_source(keys: &ServiceBusSourceKeys) -> Result<String, String> {
    let connection = connection(&keys.connection, &keys.tls_ca);
    Ok(connection.probe_source(&keys.address()).await?)
}

pub(super) async fn probe_destination(keys: &ServiceBusTargetKeys) -> Result<String, String> {
    let connection = connection(&keys.connection, &keys.tls_ca);
    Ok(connection.probe_destination(&keys.address()).await?)
}

fn connection(
    string: &ServiceBusConnectionString,
    tls_ca: &Option<PathBuf>,
) -> ServiceBusConnection {
    let tls_ca = tls_ca.clone();
    ServiceBusConnection { tls_ca, ..ServiceBusConnection::of(string.clone()) }
}
