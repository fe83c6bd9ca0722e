//! Kafka in a build without it: every part fails with the command that builds one with it.

use std::sync::Arc;

use relais_admin::AskSource;
use relais_connect::kafka_settings::{KafkaSourceKeys, KafkaTargetKeys, RegistryKeys};
use relais_core::{decode::SchemaDecoder, publisher::Publisher, source::Source};

use super::WireError;
use crate::settings::{DestinationConfig, SourceSettings};

const HOW: &str =
    "this build has no Kafka; build one with `cargo build --release --features kafka`";

pub(super) fn source(
    source: &SourceSettings,
    _origin: &KafkaSourceKeys,
) -> Result<(Box<dyn Source>, AskSource), WireError> {
    Err(source.error(HOW))
}

pub(super) fn publisher(
    destination: &DestinationConfig,
    _target: &KafkaTargetKeys,
) -> Result<Arc<dyn Publisher>, WireError> {
    Err(destination.error(HOW))
}

pub(super) async fn probe_source(_origin: &KafkaSourceKeys) -> Result<String, String> {
    Err(HOW.to_owned())
}

pub(super) async fn probe_destination(_target: &KafkaTargetKeys) -> Result<String, String> {
    Err(HOW.to_owned())
}

pub(super) async fn probe_registry(_keys: RegistryKeys<'_>) -> Option<Result<String, String>> {
    None
}

pub(super) fn schemas(_keys: &KafkaSourceKeys) -> Option<Arc<dyn SchemaDecoder>> {
    None
}
