//! Kafka in a build without it: every part says how to get one with it.

use std::sync::Arc;

use relais_admin::AskSource;
use relais_core::{publisher::Publisher, source::Source};

use super::WireError;
use crate::settings::{Destination, KafkaOrigin, KafkaTarget, SourceSettings};

const HOW: &str =
    "this build has no Kafka; build one with `cargo build --release --features kafka`";

pub(super) fn source(
    source: &SourceSettings,
    _origin: &KafkaOrigin,
) -> Result<(Box<dyn Source>, AskSource), WireError> {
    Err(source.error(HOW))
}

pub(super) fn publisher(
    destination: &Destination,
    _target: &KafkaTarget,
) -> Result<Arc<dyn Publisher>, WireError> {
    Err(destination.error(HOW))
}

pub(super) async fn probe_source(_origin: &KafkaOrigin) -> Result<String, String> {
    Err(HOW.to_owned())
}

pub(super) async fn probe_destination(_target: &KafkaTarget) -> Result<String, String> {
    Err(HOW.to_owned())
}
