//! NATS in a build without it: every part fails with the command that builds one with it.

use std::sync::Arc;

use relais_admin::AskSource;
use relais_connect::nats_settings::{NatsSourceKeys, NatsTargetKeys};
use relais_core::{publisher::Publisher, source::Source};

use super::WireError;
use crate::settings::{DestinationConfig, SourceSettings};

const HOW: &str = "this build has no NATS; build one with `cargo build --release --features nats`";

pub(super) fn source(
    source: &SourceSettings,
    _origin: &NatsSourceKeys,
) -> Result<(Box<dyn Source>, AskSource), WireError> {
    Err(source.error(HOW))
}

pub(super) fn publisher(
    destination: &DestinationConfig,
    _target: &NatsTargetKeys,
) -> Result<Arc<dyn Publisher>, WireError> {
    Err(destination.error(HOW))
}

pub(super) async fn probe_source(_name: &str, _origin: &NatsSourceKeys) -> Result<String, String> {
    Err(HOW.to_owned())
}

pub(super) async fn probe_destination(_target: &NatsTargetKeys) -> Result<String, String> {
    Err(HOW.to_owned())
}
