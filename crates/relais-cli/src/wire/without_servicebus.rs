//! Azure Service Bus in a build without it: every part fails with the command that builds one with it.

use std::sync::Arc;

use relais_admin::AskSource;
use relais_connect::servicebus_settings::{ServiceBusSourceKeys, ServiceBusTargetKeys};
use relais_core::{publisher::Publisher, source::Source};

use super::WireError;
use crate::settings::{DestinationConfig, SourceSettings};

const HOW: &str =
    "this build has no Azure Service Bus; build one with `cargo build --release --features amqp`";

pub(super) fn source(
    source: &SourceSettings,
    _origin: &ServiceBusSourceKeys,
) -> Result<(Box<dyn Source>, AskSource), WireError> {
    Err(source.error(HOW))
}

pub(super) fn publisher(
    destination: &DestinationConfig,
    _target: &ServiceBusTargetKeys,
) -> Result<Arc<dyn Publisher>, WireError> {
    Err(destination.error(HOW))
}

pub(super) async fn probe_source(_origin: &ServiceBusSourceKeys) -> Result<String, String> {
    Err(HOW.to_owned())
}

pub(super) async fn probe_destination(_target: &ServiceBusTargetKeys) -> Result<String, String> {
    Err(HOW.to_owned())
}
