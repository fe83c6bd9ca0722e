//! Messages as Kafka records, many in one call, in order per key.
//!
//! Invariant: `Accepted` is said only of what all replicas in sync have acknowledged, and no message
//! is accepted behind one of its key that was not. How: the producer is idempotent and gapless, so
//! that a refused batch stops all that follow it, and whatever goes wrong ends the line (one producer
//! of librdkafka) before anything of it is sent again. See `call` for what becomes of the messages of
//! one call, and `line` for the end of a line.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rdkafka::{ClientConfig, error::RDKafkaErrorCode as Code};
use relais_core::{
    BoxFuture, InvalidSettings,
    delivery::{Delivery, Problem},
    outbox::OutboxRow,
    publisher::{Batching, Publisher},
};
use tokio::time::Instant;

use super::{
    KafkaConnection, call::Call, classify, client_log::ClientLog, config, line::Line, record::Dress,
};

/// Most messages of one call.
const CALL_MAX: usize = 1_000;
/// What remains of the time limit of a call to end a line and hear what became of its messages.
const MARGIN_MAX: Duration = Duration::from_secs(2);
/// How long a topic may take to be known to all brokers before it does not exist.
const TOPIC_UNKNOWN_MAX: Duration = Duration::from_secs(5);
/// How long closing waits for messages under way.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// Where and how a [`KafkaPublisher`] sends. Start from [`KafkaPublisherSettings::new`].
#[derive(Clone, Debug)]
pub struct KafkaPublisherSettings {
    /// The name of the destination, for the log.
    pub destination: String,
    pub connection: KafkaConnection,
    pub topic: String,
    /// Whether records are CloudEvents in binary mode.
    pub cloudevents: bool,
    /// For the whole call.
    pub timeout: Duration,
}

impl KafkaPublisherSettings {
    /// Everything but the cluster and the topic has a default.
    pub fn new(destination: &str, connection: KafkaConnection, topic: &str) -> Self {
        Self {
            destination: destination.to_owned(),
            connection,
            topic: topic.to_owned(),
            cloudevents: false,
            timeout: Duration::from_secs(30),
        }
    }
}

/// Sends messages to one topic.
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
/// The key is the ordering key, and goes to the partition where Java clients look for it; the value
/// is the payload, byte for byte. Headers: `message-id`, `event-type`, `event-version`,
/// `aggregate-type`, `aggregate-id`, `correlation-id`, `causation-id`, and those of the message itself,
/// `traceparent` among them.
pub struct KafkaPublisher {
    topic: String,
    dress: Dress,
    /// How long a call may take, less than its time limit.
    patience: Duration,
    together: ClientConfig,
    alone: ClientConfig,
    log: Arc<ClientLog>,
    lines: Mutex<Lines>,
}

#[derive(Default)]
struct Lines {
    /// For whole calls, shared by all of them.
    shared: Option<Arc<Line>>,
    /// Each of one call, for messages that are sent one by one.
    alone: Vec<Arc<Line>>,
}

impl KafkaPublisher {
    /// Checks the settings; connects to nobody yet. The error says which setting to change.
    pub fn new(settings: KafkaPublisherSettings) -> Result<Self, InvalidSettings> {
        let KafkaPublisherSettings { destination, connection, topic, cloudevents, timeout } =
            settings;
        let log = Arc::new(ClientLog::new(&destination, &connection));
        let patience = timeout.saturating_sub(MARGIN_MAX.min(timeout / 4));
        let mut together = connection.client(&config::DESTINATION)?;
        // Never reached: a call gives up before, and all of its messages at once. If messages timed
        // out one by one, a later one of a key could overtake.
        together.set("message.timeout.ms", millis(timeout * 2));
        let propagation = TOPIC_UNKNOWN_MAX.min(patience / 2);
        together.set("topic.metadata.propagation.max.ms", millis(propagation));
        Line::rehearse(&together, Arc::clone(&log))?;
        let mut alone = together.clone();
        // One message at a time is handed over, so a gap harms nobody.
        alone.set("enable.gapless.guarantee", "false").set("linger.ms", "0");
        let dress = if cloudevents { Dress::CloudEvents } else { Dress::Plain };
        let lines = Mutex::default();
        Ok(Self { topic, dress, patience, together, alone, log, lines })
    }

    pub(super) fn topic(&self) -> &str {
        &self.topic
    }

    pub(super) fn dress(&self) -> Dress {
        self.dress
    }

    /// The line for whole calls, once every line that is ending has ended: what it had is sent again.
    pub(super) async fn line(&self, deadline: Instant) -> Result<Arc<Line>, Problem> {
        loop {
            let ending = {
                let mut lines = self.lines();
                lines.alone.retain(|line| !line.has_ended());
                let ending = |line: &&Arc<Line>| line.is_ending() && !line.has_ended();
                match lines.alone.iter().chain(&lines.shared).find(ending).cloned() {
                    Some(line) => line,
                    None => match lines.shared.as_ref().filter(|line| !line.is_ending()) {
                        Some(line) => return Ok(Arc::clone(line)),
                        None => {
                            let line = self.open(&self.together)?;
                            return Ok(Arc::clone(lines.shared.insert(line)));
                        }
                    },
                }
            };
            self.until_ended(&ending, deadline).await?;
        }
    }

    /// A line of its own for messages that are sent one by one. Whoever opens it ends it.
    pub(super) fn line_alone(&self) -> Result<Arc<Line>, Problem> {
        let line = self.open(&self.alone)?;
        self.lines().alone.push(Arc::clone(&line));
        Ok(line)
    }

    pub(super) async fn until_ended(&self, line: &Line, deadline: Instant) -> Result<(), Problem> {
        let ended = tokio::time::timeout_at(deadline, line.ended()).await;
        ended.map_err(|_| classify::problem(Code::OperationTimedOut, &self.topic, ""))
    }

    fn open(&self, config: &ClientConfig) -> Result<Arc<Line>, Problem> {
        Line::open(config, Arc::clone(&self.log))
            .map_err(|why| Problem::new("KAFKA_CLIENT", &format!("no producer: {why}")))
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Publisher for KafkaPublisher {
    fn publish<'a>(&'a self, messages: &'a [OutboxRow]) -> BoxFuture<'a, Vec<Delivery>> {
        Box::pin(Call::new(self, messages, Instant::now() + self.patience).run())
    }

    fn batching(&self) -> Batching {
        Batching::InOrder { max: CALL_MAX }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let Some(line) = self.lines().shared.clone() else { return };
            let flushed = Arc::clone(&line);
            let flush = tokio::task::spawn_blocking(move || flushed.flush(CLOSE_MAX));
            let _ = flush.await;
            line.end();
            let _ = tokio::time::timeout(CLOSE_MAX, line.ended()).await;
        })
    }
}

impl Drop for KafkaPublisher {
    fn drop(&mut self) {
        if let Some(line) = self.lines().shared.take() {
            line.end();
        }
    }
}

impl fmt::Debug for KafkaPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KafkaPublisher").field(&self.topic).finish()
    }
}

fn millis(duration: Duration) -> String {
    let most = i32::MAX.unsigned_abs().into();
    duration.as_millis().clamp(1, most).to_string()
}
