//! Messages as Kafka records, many per call, in order per key.
//!
//! Invariant: `Accepted` means that all in-sync replicas have acknowledged the message, and that no
//! earlier message of its key failed. The producer is idempotent and gapless, so that a refused
//! batch stops all that follow it. Any error ends the producer before its messages are sent again.
//! See `call` for the messages of one call, and `producer` for the end of a producer.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rdkafka::{ClientConfig, error::RDKafkaErrorCode as Code};
use relais_core::{
    InvalidSettings, async_trait,
    delivery::{Delivery, Problem},
    outbox::OutboxRow,
    publisher::{Batching, Publisher},
};
use tokio::time::Instant;

use super::{
    KafkaConnection, KafkaEncoding,
    call::PublishCall,
    classify::{self, TopicOrigin},
    client_log::ClientLog,
    closed_topics::ClosedTopics,
    config,
    encoder::ValueEncoder,
    producer::KafkaProducer,
    record::RecordFormat,
};
use crate::{kafka_settings::topic_template, template::RoutingTemplate};

/// Maximum number of messages in one call.
const CALL_MAX: usize = 1_000;
/// The part of a call's time limit that is reserved to end a producer and read its reports.
const MARGIN_MAX: Duration = Duration::from_secs(2);
/// Time for a topic to become known to all brokers before it counts as missing.
const TOPIC_UNKNOWN_MAX: Duration = Duration::from_secs(5);
/// Time that closing waits for messages in flight.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// The target of a [`KafkaPublisher`]. Start from [`KafkaPublisherSettings::new`].
#[derive(Clone, Debug)]
pub struct KafkaPublisherSettings {
    /// The name of the destination, for the log.
    pub destination: String,
    /// The connection to the cluster.
    pub connection: KafkaConnection,
    /// The topic that messages are sent to; may have places of the message, such as `{{aggregate_type}}`.
    pub topic: String,
    /// Sends CloudEvents in binary mode.
    pub cloudevents: bool,
    /// The encoding of values by schemas of a registry; without it the payload is sent byte for byte.
    pub encoding: Option<KafkaEncoding>,
    /// Time limit of the whole call.
    pub timeout: Duration,
}

impl KafkaPublisherSettings {
    /// Sets a default for everything except the cluster and the topic.
    pub fn new(destination: &str, connection: KafkaConnection, topic: &str) -> Self {
        Self {
            destination: destination.to_owned(),
            connection,
            topic: topic.to_owned(),
            cloudevents: false,
            encoding: None,
            timeout: Duration::from_secs(30),
        }
    }
}

/// Sends messages to one topic, or to one that each message names.
///
/// ```
/// use relais_connect::kafka::{KafkaConnection, KafkaPublisher, KafkaPublisherSettings};
///
/// let mut connection = KafkaConnection::new("kafka-1.example:9092");
/// connection.options.push(("compression.type".into(), "zstd".into()));
/// let publisher = KafkaPublisher::new(KafkaPublisherSettings::new("orders", connection, "orders"))?;
/// assert_eq!(format!("{publisher:?}"), r#"KafkaPublisher("orders")"#);
/// # Ok::<(), String>(())
/// ```
///
/// The key is the ordering key, hashed to the same partition as by Java clients. The value is the
/// payload, byte for byte. Headers: `message-id`, `event-type`, `event-version`, `aggregate-type`,
/// `aggregate-id`, `correlation-id`, `causation-id`, and those of the message itself, including
/// `traceparent`.
pub struct KafkaPublisher {
    topic: RoutingTemplate,
    format: RecordFormat,
    encoder: Option<ValueEncoder>,
    /// Time limit of a call, less than that of the destination.
    patience: Duration,
    together: ClientConfig,
    alone: ClientConfig,
    log: Arc<ClientLog>,
    producers: Mutex<Producers>,
    closed_topics: ClosedTopics,
}

#[derive(Default)]
struct Producers {
    /// For whole calls; shared.
    shared: Option<Arc<KafkaProducer>>,
    /// For messages that are sent one by one; each belongs to one call.
    alone: Vec<Arc<KafkaProducer>>,
}

impl KafkaPublisher {
    /// Validates the settings, without connecting. The error says which setting to change.
    pub fn new(settings: KafkaPublisherSettings) -> Result<Self, InvalidSettings> {
        let KafkaPublisherSettings {
            destination,
            connection,
            topic,
            cloudevents,
            encoding,
            timeout,
        } = settings;
        let encoder = ValueEncoder::new(encoding)?;
        let topic = topic_template(&topic).map_err(|why| format!("topic {why}"))?;
        let log = Arc::new(ClientLog::new(&destination, &connection));
        let patience = timeout.saturating_sub(MARGIN_MAX.min(timeout / 4));
        let mut together = connection.client(&config::DESTINATION)?;
        // Never reached: a call gives up earlier, with all its messages. If messages timed out one
        // by one, a later one of a key could overtake.
        together.set("message.timeout.ms", millis(timeout * 2));
        let propagation = TOPIC_UNKNOWN_MAX.min(patience / 2);
        together.set("topic.metadata.propagation.max.ms", millis(propagation));
        KafkaProducer::validate(&together, Arc::clone(&log))?;
        let mut alone = together.clone();
        // One message at a time is queued, so a gap is harmless.
        alone.set("enable.gapless.guarantee", "false").set("linger.ms", "0");
        let content_type = encoder.as_ref().map_or("application/json", ValueEncoder::content_type);
        let format = match cloudevents {
            true => RecordFormat::CloudEvents { content_type },
            false => RecordFormat::Plain,
        };
        let (producers, closed_topics) = (Mutex::default(), ClosedTopics::default());
        Ok(Self {
            topic,
            format,
            encoder,
            patience,
            together,
            alone,
            log,
            producers,
            closed_topics,
        })
    }

    pub(super) fn topic(&self) -> &RoutingTemplate {
        &self.topic
    }

    /// Returns whether a problem of a topic concerns all messages.
    pub(super) fn origin(&self) -> TopicOrigin {
        if self.topic.is_fixed() { TopicOrigin::Fixed } else { TopicOrigin::OfMessage }
    }

    pub(super) fn closed_topics(&self) -> &ClosedTopics {
        &self.closed_topics
    }

    pub(super) fn format(&self) -> RecordFormat {
        self.format
    }

    pub(super) fn encoder(&self) -> Option<&ValueEncoder> {
        self.encoder.as_ref()
    }

    /// Returns the producer for whole calls, after every ending producer has ended: their messages
    /// are sent again.
    pub(super) async fn producer(&self, deadline: Instant) -> Result<Arc<KafkaProducer>, Problem> {
        loop {
            let ending = {
                let mut producers = self.producers();
                producers.alone.retain(|producer| !producer.has_ended());
                let ending =
                    |producer: &&Arc<KafkaProducer>| producer.is_ending() && !producer.has_ended();
                match producers.alone.iter().chain(&producers.shared).find(ending).cloned() {
                    Some(producer) => producer,
                    None => {
                        match producers.shared.as_ref().filter(|producer| !producer.is_ending()) {
                            Some(producer) => return Ok(Arc::clone(producer)),
                            None => {
                                let producer = self.open(&self.together)?;
                                return Ok(Arc::clone(producers.shared.insert(producer)));
                            }
                        }
                    }
                }
            };
            self.until_ended(&ending, deadline).await?;
        }
    }

    /// Opens a producer for messages that are sent one by one. The caller ends it.
    pub(super) fn own_producer(&self) -> Result<Arc<KafkaProducer>, Problem> {
        let producer = self.open(&self.alone)?;
        self.producers().alone.push(Arc::clone(&producer));
        Ok(producer)
    }

    pub(super) async fn until_ended(
        &self,
        producer: &KafkaProducer,
        deadline: Instant,
    ) -> Result<(), Problem> {
        let ended = tokio::time::timeout_at(deadline, producer.ended()).await;
        ended.map_err(|_| classify::problem(Code::OperationTimedOut, &self.topic.to_string(), ""))
    }

    fn open(&self, config: &ClientConfig) -> Result<Arc<KafkaProducer>, Problem> {
        KafkaProducer::open(config, Arc::clone(&self.log))
            .map_err(|why| Problem::new("KAFKA_CLIENT", &format!("cannot open a producer: {why}")))
    }

    fn producers(&self) -> MutexGuard<'_, Producers> {
        self.producers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Publisher for KafkaPublisher {
    async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery> {
        PublishCall::new(self, messages, Instant::now() + self.patience).run().await
    }

    fn batching(&self) -> Batching {
        Batching::InOrder { max: CALL_MAX }
    }

    async fn close(&self) {
        let Some(producer) = self.producers().shared.clone() else { return };
        let flushed = Arc::clone(&producer);
        let flush = tokio::task::spawn_blocking(move || flushed.flush(CLOSE_MAX));
        let _ = flush.await;
        producer.end();
        let _ = tokio::time::timeout(CLOSE_MAX, producer.ended()).await;
    }
}

impl Drop for KafkaPublisher {
    fn drop(&mut self) {
        if let Some(producer) = self.producers().shared.take() {
            producer.end();
        }
    }
}

impl fmt::Debug for KafkaPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KafkaPublisher").field(&self.topic.to_string()).finish()
    }
}

fn millis(duration: Duration) -> String {
    let most = i32::MAX.unsigned_abs().into();
    duration.as_millis().clamp(1, most).to_string()
}
