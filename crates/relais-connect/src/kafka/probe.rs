//! Checks a cluster before the first record: whether a broker answers, and whether the topics
//! exist. Reads the metadata of all topics, because a request for one topic may create it.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rdkafka::{
    ClientContext,
    client::Client,
    config::{FromClientConfigAndContext, RDKafkaLogLevel},
    consumer::{BaseConsumer, Consumer, ConsumerContext},
    error::KafkaError,
    producer::{BaseProducer, DeliveryResult, Producer, ProducerContext},
};

use super::{
    KafkaConnection,
    client_log::ClientLog,
    config::{DESTINATION, SOURCE, Side},
};
use crate::ProbeError;

/// Time limit for a broker.
const PATIENCE: Duration = Duration::from_secs(10);
/// Number of events that are fetched after a failure, and the time for each.
const EVENTS: usize = 20;
const EVENT_TIME: Duration = Duration::from_millis(20);

/// The facility of librdkafka's warnings about options.
const CONFIG_WARNING: &str = "CONFWARN";

/// The known topics, and the last error of the client.
type Asked = (Result<Vec<String>, KafkaError>, Option<String>);

impl KafkaConnection {
    /// Asks a broker for the topics of a source. The error says what to change.
    pub async fn probe_source(&self, topics: &[String]) -> Result<String, ProbeError> {
        self.probe(&SOURCE, topics, |consumer: &BaseConsumer<Listener>| {
            let found = metadata(consumer.client());
            if found.is_err() {
                // The errors of librdkafka wait to be polled.
                (0..EVENTS).for_each(|_| drop(consumer.poll(EVENT_TIME)));
            }
            (found, consumer.context().reason())
        })
        .await
    }

    /// Asks a broker for the topic of a destination. The error says what to change.
    pub async fn probe_destination(&self, topic: &str) -> Result<String, ProbeError> {
        // The topics of a template are known when there is a message.
        let topics: Vec<String> =
            (!topic.contains("{{")).then(|| topic.to_owned()).into_iter().collect();
        self.probe(&DESTINATION, &topics, |producer: &BaseProducer<Listener>| {
            let found = metadata(producer.client());
            if found.is_err() {
                (0..EVENTS).for_each(|_| producer.poll(EVENT_TIME));
            }
            (found, producer.context().reason())
        })
        .await
    }

    async fn probe<C: FromClientConfigAndContext<Listener> + 'static>(
        &self,
        side: &Side,
        topics: &[String],
        ask: fn(&C) -> Asked,
    ) -> Result<String, ProbeError> {
        let config = self.client(side)?;
        let listener = Listener { log: ClientLog::new("check", self), reason: Mutex::default() };
        let asked = tokio::task::spawn_blocking(move || {
            let client: C = config.create_with_context(listener)?;
            Ok(ask(&client))
        });
        let log = ClientLog::new("check", self);
        let failed = |why: &str| {
            let why = log.clean(why);
            format!(
                "cannot reach a broker at {}: {why}; check `brokers` and `options`, and that the broker \
                 is running",
                self.brokers
            )
        };
        let answer: Result<_, KafkaError> =
            asked.await.map_err(|_| failed("the client ended early"))?;
        let (found, reason) = answer.map_err(|error| failed(&error.to_string()))?;
        let found = found.map_err(|error| failed(&reason.unwrap_or_else(|| error.to_string())))?;
        let missing: Vec<String> = topics
            .iter()
            .filter(|topic| !found.contains(topic))
            .map(|topic| format!("`{topic}`"))
            .collect();
        if !missing.is_empty() {
            return Err(format!(
                "the cluster at {} has no topic {}, or its user cannot see it; create it or grant \
                 access",
                self.brokers,
                missing.join(", ")
            )
            .into());
        }
        let has = if topics.is_empty() { "" } else { " and has " };
        Ok(format!("a broker at {} answers{has}{}", self.brokers, topics.join(", ")))
    }
}

fn metadata<C: ClientContext>(client: &Client<C>) -> Result<Vec<String>, KafkaError> {
    let found = client.fetch_metadata(None, PATIENCE)?;
    Ok(found.topics().iter().map(|topic| topic.name().to_owned()).collect())
}

/// Keeps the last error of librdkafka: the error of the call only reports the time-out.
struct Listener {
    log: ClientLog,
    reason: Mutex<Option<String>>,
}

impl Listener {
    fn note_error(&self, text: &str) {
        // Drops the prefix `[thrd:NAME]: `. "brokers are down" adds nothing to an earlier error.
        let text = text.split_once("]: ").map_or(text, |(_, rest)| rest);
        let mut reason = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        if reason.is_none() || !text.contains("brokers are down") {
            *reason = Some(self.log.clean(text));
        }
    }

    fn reason(&self) -> Option<String> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ClientContext for Listener {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        use RDKafkaLogLevel::{Debug, Info, Notice};
        // A warning about options is not the reason why no broker answers.
        if facility != CONFIG_WARNING && !matches!(level, Notice | Info | Debug) {
            self.note_error(text);
        }
    }

    fn error(&self, _error: KafkaError, reason: &str) {
        self.note_error(reason);
    }
}

impl ConsumerContext for Listener {}

impl ProducerContext for Listener {
    type DeliveryOpaque = ();

    fn delivery(&self, _: &DeliveryResult<'_>, _: Self::DeliveryOpaque) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_about_options_is_not_the_reason_of_a_failure() {
        let log = ClientLog::new("check", &KafkaConnection::new("localhost:9092"));
        let listener = Listener { log, reason: Mutex::default() };
        let warning = RDKafkaLogLevel::Warning;
        listener.log(
            warning,
            CONFIG_WARNING,
            "[thrd:app]: Configuration property x is experimental",
        );
        assert_eq!(listener.reason(), None);
        listener.log(warning, "FAIL", "[thrd:b]: Disconnected: connecting to a SSL listener?");
        assert_eq!(
            listener.reason().as_deref(),
            Some("Disconnected: connecting to a SSL listener?")
        );
    }
}
