//! The requests of the JetStream API that relais uses. Nothing is deleted or changed; only a missing
//! consumer is created.

use std::time::Duration;

use async_nats::{Request, Subject};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{NatsStart, classify::NatsFailure, connection::OpenNatsConnection};

/// Time that a request waits for its answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// An error in an answer of the server.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct JetStreamError {
    pub(super) code: u16,
    pub(super) err_code: u32,
    pub(super) description: String,
}

/// The answer to a published message.
#[derive(Debug, Deserialize)]
pub(super) struct PublishAnswer {
    pub(super) stream: Option<String>,
    pub(super) error: Option<JetStreamError>,
}

/// The state of a consumer.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ConsumerInfo {
    pub(super) config: ConsumerConfig,
    pub(super) delivered: ConsumerSequence,
    pub(super) ack_floor: ConsumerSequence,
    /// Messages that were delivered and not acknowledged.
    #[serde(default)]
    pub(super) num_ack_pending: usize,
    /// Messages that were not delivered yet.
    #[serde(default)]
    pub(super) num_pending: u64,
}

/// A position of a consumer.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct ConsumerSequence {
    /// The sequence in the stream.
    pub(super) stream_seq: u64,
}

/// The configuration of a consumer. Times are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ConsumerConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) durable_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) deliver_subject: Option<String>,
    pub(super) deliver_policy: String,
    pub(super) ack_policy: String,
    #[serde(default)]
    pub(super) ack_wait: u64,
    #[serde(default)]
    pub(super) max_deliver: i64,
    #[serde(default)]
    pub(super) max_ack_pending: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) filter_subject: Option<String>,
    /// Several filters, of a consumer that relais did not create.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) filter_subjects: Vec<String>,
    pub(super) replay_policy: String,
}

impl ConsumerConfig {
    /// Returns why a consumer that exists cannot be used, with the next step.
    pub(super) fn unusable(&self) -> Option<&'static str> {
        if self.deliver_subject.is_some() {
            Some("it pushes; use a pull consumer")
        } else if self.ack_policy != "explicit" {
            Some("it does not wait for each acknowledgement; use one with the policy `explicit`")
        } else if self.max_deliver > 0 {
            Some("it drops messages after `max_deliver` deliveries; use one without that limit")
        } else {
            None
        }
    }

    pub(super) fn ack_wait(&self) -> Duration {
        Duration::from_nanos(self.ack_wait)
    }
}

/// A consumer, and its configuration if relais creates it.
#[derive(Clone, Debug)]
pub(super) struct ConsumerPlan {
    pub(super) stream: String,
    pub(super) consumer: String,
    pub(super) domain: Option<String>,
    pub(super) filter: Option<String>,
    pub(super) start: NatsStart,
    pub(super) ack_wait: Duration,
    pub(super) max_ack_pending: u32,
}

impl ConsumerPlan {
    fn subject(&self, request: &str) -> String {
        let prefix = match &self.domain {
            Some(domain) => format!("$JS.{domain}.API"),
            None => "$JS.API".to_owned(),
        };
        format!("{prefix}.{request}")
    }

    /// Returns the subject of requests for messages.
    pub(super) fn next_subject(&self) -> String {
        self.subject(&format!("CONSUMER.MSG.NEXT.{}.{}", self.stream, self.consumer))
    }

    pub(super) async fn info(
        &self,
        connection: &OpenNatsConnection,
    ) -> Result<ConsumerInfo, NatsFailure> {
        let request = format!("CONSUMER.INFO.{}.{}", self.stream, self.consumer);
        ask(connection, self.subject(&request), &()).await
    }

    pub(super) async fn create(
        &self,
        connection: &OpenNatsConnection,
    ) -> Result<ConsumerInfo, NatsFailure> {
        let request = format!("CONSUMER.DURABLE.CREATE.{}.{}", self.stream, self.consumer);
        let body = CreateConsumer { stream_name: &self.stream, config: self.config() };
        ask(connection, self.subject(&request), &body).await
    }

    fn config(&self) -> ConsumerConfig {
        let start = match self.start {
            NatsStart::All => "all",
            NatsStart::New => "new",
        };
        ConsumerConfig {
            durable_name: Some(self.consumer.clone()),
            deliver_subject: None,
            deliver_policy: start.to_owned(),
            ack_policy: "explicit".to_owned(),
            ack_wait: u64::try_from(self.ack_wait.as_nanos()).unwrap_or(u64::MAX),
            max_deliver: -1,
            max_ack_pending: i64::from(self.max_ack_pending),
            filter_subject: self.filter.clone(),
            filter_subjects: Vec::new(),
            replay_policy: "instant".to_owned(),
        }
    }

    pub(super) async fn stream_info(
        &self,
        connection: &OpenNatsConnection,
    ) -> Result<StreamInfo, NatsFailure> {
        ask(connection, self.subject(&format!("STREAM.INFO.{}", self.stream)), &()).await
    }

    /// Returns the first message from this sequence on whose subject fits, if there is one.
    pub(super) async fn stored_message(
        &self,
        connection: &OpenNatsConnection,
        sequence: u64,
        filter: &str,
    ) -> Result<Option<StoredNatsMessage>, NatsFailure> {
        let request = self.subject(&format!("STREAM.MSG.GET.{}", self.stream));
        let body = GetMessage { seq: sequence, next_by_subj: filter };
        match ask::<GotMessage>(connection, request, &body).await {
            Ok(found) => Ok(Some(found.message)),
            Err(failure) if failure.is_no_message() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Returns the subject that acknowledges a delivered message of the consumer.
    ///
    /// The server takes the number of the delivery from its own record of the message. The number
    /// here is one that no delivery has, so that a message without such a record changes nothing.
    pub(super) fn acknowledgement(&self, sequence: u64, nanoseconds: i64) -> Subject {
        let (stream, consumer, no_delivery) = (&self.stream, &self.consumer, i64::MAX);
        format!("$JS.ACK.{stream}.{consumer}.1.{sequence}.{no_delivery}.{nanoseconds}.0").into()
    }
}

#[derive(Serialize)]
struct GetMessage<'a> {
    seq: u64,
    next_by_subj: &'a str,
}

#[derive(Deserialize)]
struct GotMessage {
    message: StoredNatsMessage,
}

/// A message as the stream has it. Headers and body are Base64.
#[derive(Debug, Deserialize)]
pub(super) struct StoredNatsMessage {
    pub(super) subject: String,
    pub(super) seq: u64,
    #[serde(default)]
    pub(super) hdrs: String,
    #[serde(default)]
    pub(super) data: String,
    time: String,
}

impl StoredNatsMessage {
    /// Returns the time at which it was stored, in nanoseconds since 1970.
    pub(super) fn nanoseconds(&self) -> Option<i64> {
        let time: jiff::Timestamp = self.time.parse().ok()?;
        i64::try_from(time.as_nanosecond()).ok()
    }
}

#[derive(Serialize)]
struct CreateConsumer<'a> {
    stream_name: &'a str,
    config: ConsumerConfig,
}

/// The state of a stream.
#[derive(Debug, Deserialize)]
pub(super) struct StreamInfo {
    pub(super) state: StreamState,
}

/// The messages of a stream.
#[derive(Debug, Deserialize)]
pub(super) struct StreamState {
    pub(super) messages: u64,
}

#[derive(Serialize)]
struct StreamFilter<'a> {
    subject: &'a str,
}

#[derive(Deserialize)]
struct StreamNames {
    streams: Option<Vec<String>>,
}

/// Returns the names of the streams that have a subject.
pub(super) async fn streams_of(
    connection: &OpenNatsConnection,
    subject: &str,
) -> Result<Vec<String>, NatsFailure> {
    let filter = StreamFilter { subject };
    let names: StreamNames = ask(connection, "$JS.API.STREAM.NAMES".to_owned(), &filter).await?;
    Ok(names.streams.unwrap_or_default())
}

#[derive(Deserialize)]
struct OnlyError {
    error: Option<JetStreamError>,
}

async fn ask<T: DeserializeOwned>(
    connection: &OpenNatsConnection,
    subject: String,
    body: &impl Serialize,
) -> Result<T, NatsFailure> {
    // The server ignores the body of requests that need none.
    let body = serde_json::to_vec(body).unwrap_or_default();
    let body = if body == b"null" { Vec::new() } else { body };
    let request = Request::new().payload(body.into()).timeout(Some(ANSWER_MAX));
    let answer = tokio::select! {
        biased;
        answer = connection.client().send_request(subject, request) => {
            answer.map_err(|error| NatsFailure::of_request(&error))?
        }
        reason = connection.until_lost() => return Err(NatsFailure::lost(&reason)),
    };
    let unreadable = |_| NatsFailure::unreadable(&answer.payload);
    let OnlyError { error } = serde_json::from_slice(&answer.payload).map_err(unreadable)?;
    match error {
        Some(error) => Err(NatsFailure::of_answer(&error)),
        None => serde_json::from_slice(&answer.payload).map_err(unreadable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> ConsumerPlan {
        ConsumerPlan {
            stream: "ORDERS".into(),
            consumer: "relais".into(),
            domain: None,
            filter: Some("orders.>".into()),
            start: NatsStart::New,
            ack_wait: Duration::from_secs(30),
            max_ack_pending: 500,
        }
    }

    #[test]
    fn a_created_consumer_can_be_used_and_never_drops_a_message() {
        let config = plan().config();
        assert_eq!(config.unusable(), None);
        assert_eq!(config.ack_wait(), Duration::from_secs(30));
        assert_eq!(
            serde_json::to_value(&config).unwrap(),
            serde_json::json!({
                "durable_name": "relais",
                "deliver_policy": "new",
                "ack_policy": "explicit",
                "ack_wait": 30_000_000_000_u64,
                "max_deliver": -1,
                "max_ack_pending": 500,
                "filter_subject": "orders.>",
                "replay_policy": "instant",
            })
        );
    }

    #[test]
    fn a_consumer_that_would_lose_messages_is_refused() {
        let good = plan().config();
        for (wrong, part) in [
            (ConsumerConfig { deliver_subject: Some("x".into()), ..good.clone() }, "pull"),
            (ConsumerConfig { ack_policy: "none".into(), ..good.clone() }, "explicit"),
            (ConsumerConfig { max_deliver: 5, ..good }, "max_deliver"),
        ] {
            assert!(wrong.unusable().unwrap().contains(part));
        }
    }

    #[test]
    fn a_stored_message_has_its_time_in_nanoseconds() {
        let of = |time: &str| {
            let text = format!("{{\"subject\": \"a\", \"seq\": 1, \"time\": \"{time}\"}}");
            serde_json::from_str::<StoredNatsMessage>(&text).unwrap().nanoseconds()
        };
        assert_eq!(of("2026-11-15T12:00:00.1234567Z"), Some(1_794_744_000_123_456_700));
        assert_eq!(of("2026-11-15T12:00:00Z"), Some(1_794_744_000_000_000_000));
        assert_eq!(of("yesterday"), None);
    }

    #[test]
    fn an_acknowledgement_names_the_message_and_no_delivery() {
        assert_eq!(
            plan().acknowledgement(17, 99).as_str(),
            "$JS.ACK.ORDERS.relais.1.17.9223372036854775807.99.0"
        );
    }

    #[test]
    fn a_domain_is_part_of_the_subject() {
        let leaf = ConsumerPlan { domain: Some("leaf".into()), ..plan() };
        assert_eq!(plan().next_subject(), "$JS.API.CONSUMER.MSG.NEXT.ORDERS.relais");
        assert_eq!(leaf.next_subject(), "$JS.leaf.API.CONSUMER.MSG.NEXT.ORDERS.relais");
    }
}
