//! RabbitMQ in a build without it: every part fails with the command that builds one with it.

use std::sync::Arc;

use relais_admin::AskSource;
use relais_connect::rabbitmq_settings::{RabbitSourceKeys, RabbitTargetKeys};
use relais_core::{publisher::Publisher, source::Source};

use super::WireError;
use crate::settings::{DestinationConfig, SourceSettings};

const HOW: &str =
    "this build has no RabbitMQ; build one with `cargo build --release --features rabbitmq`";

pub(super) fn source(
    source: &SourceSettings,
    _origin: &RabbitSourceKeys,
) -> Result<(Box<dyn Source>, AskSource), WireError> {
    Err(source.error(HOW))
}

pub(super) fn publisher(
    destination: &DestinationConfig,
    _target: &RabbitTargetKeys,
) -> Result<Arc<dyn Publisher>, WireError> {
    Err(destination.error(HOW))
}

pub(super) async fn probe_source(_origin: &RabbitSourceKeys) -> Result<String, String> {
    Err(HOW.to_owned())
}

pub(super) async fn probe_destination(_target: &RabbitTargetKeys) -> Result<String, String> {
    Err(HOW.to_owned())
}
