//! Sources of brokers, whatever their kind.

use relais_admin::AskSource;
use relais_core::source::Source;

use super::{WireError, amqp, kafka, nats, rabbitmq, servicebus};
use crate::settings::{SourceOrigin, SourceSettings};

/// The source of a broker, and how to ask for its state.
type BrokerSource = (Box<dyn Source>, AskSource);

/// Builds the source of a broker, which needs no connection for that. One that listens is no broker.
pub(super) fn source(source: &SourceSettings) -> Result<Option<BrokerSource>, WireError> {
    let made = match &source.origin {
        SourceOrigin::Http(_) => return Ok(None),
        SourceOrigin::Amqp(origin) => amqp::source(source, origin),
        SourceOrigin::Kafka(origin) => kafka::source(source, origin),
        SourceOrigin::Nats(origin) => nats::source(source, origin),
        SourceOrigin::Rabbitmq(origin) => rabbitmq::source(source, origin),
        SourceOrigin::Servicebus(origin) => servicebus::source(source, origin),
    };
    made.map(Some)
}
