//! One call: its messages are sent together; those without a clear result are sent again, one by
//! one.
//!
//! Invariant: of one key, a message is sent only while every earlier one of the call is accepted or
//! queued before it in the same producer. Dropping a call ends the producer that holds its
//! messages.

mod values;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use rdkafka::error::RDKafkaErrorCode as Code;
use relais_core::{
    delivery::{Delivery, Problem},
    fault::FailureKind,
    outbox::OutboxRow,
};
use tokio::time::Instant;

use super::{
    classify::{self, KafkaVerdict, TopicOrigin},
    producer::{DeliveryReports, KafkaProducer, ProducerError, Report},
    publisher::KafkaPublisher,
    record::OutgoingRecord,
};
use crate::kafka_settings::topic_name;

/// Longest time without an acknowledgement while no broker is reachable.
const DOWN_PATIENCE: Duration = Duration::from_secs(5);
/// The same while the brokers refuse the connection.
const REFUSED_PATIENCE: Duration = Duration::from_secs(1);
/// The same after a fatal error of the producer: by then the messages in flight are reported.
const FATAL_PATIENCE: Duration = Duration::from_millis(200);
/// Interval at which a waiting call checks its producer.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Time that an ended producer has to report its messages.
const PURGE_MAX: Duration = Duration::from_secs(1);
/// Maximum number of own producers that one call opens.
const OWN_PRODUCERS_MAX: usize = 4;

pub(super) struct PublishCall<'a> {
    publisher: &'a KafkaPublisher,
    rows: &'a [OutboxRow],
    /// The topic of each row; none of a row that is not sent.
    topics: Vec<String>,
    /// The encoded value of each row; none of a row whose payload is sent as it is.
    values: Vec<Option<Vec<u8>>>,
    /// `None` while the result is unknown.
    deliveries: Vec<Option<Delivery>>,
    /// Keys with a message that was not accepted: no more messages of them are sent.
    blocked: HashSet<&'a str>,
    deadline: Instant,
}

impl<'a> PublishCall<'a> {
    pub(super) fn new(
        publisher: &'a KafkaPublisher,
        rows: &'a [OutboxRow],
        deadline: Instant,
    ) -> Self {
        let mut call = Self {
            publisher,
            rows,
            topics: Vec::with_capacity(rows.len()),
            values: vec![None; rows.len()],
            deliveries: vec![None; rows.len()],
            blocked: HashSet::new(),
            deadline,
        };
        call.address();
        call
    }

    /// Finds the topic of each row. Of one key, only rows of the topic of the first one are sent: of two topics, a
    /// later message could be accepted though an earlier one is refused.
    fn address(&mut self) {
        let mut topics: HashMap<&'a str, String> = HashMap::new();
        for (at, row) in self.rows.iter().enumerate() {
            let (key, found) = (row.msg_key.as_str(), self.topic_of(row));
            let first = topics.get(key);
            let (topic, delivery) = match found {
                _ if self.blocked.contains(key) => (String::new(), Some(Delivery::Held)),
                Err(delivery) => (String::new(), Some(delivery)),
                Ok(topic) if first.is_some_and(|first| *first != topic) => {
                    (String::new(), Some(Delivery::Held))
                }
                Ok(topic) => (topic, None),
            };
            if delivery.is_some() {
                self.blocked.insert(key);
            } else if first.is_none() {
                topics.insert(key, topic.clone());
            }
            self.topics.push(topic);
            self.deliveries[at] = delivery;
        }
        // They block only what comes behind them, which is held already.
        self.blocked.clear();
    }

    /// Returns the topic of a row, or the delivery of a row that is not sent.
    fn topic_of(&self, row: &OutboxRow) -> Result<String, Delivery> {
        let rejected = |why: String| Delivery::reject("KAFKA_TOPIC", &why);
        let topic = self.publisher.topic().fill(row).map_err(rejected)?;
        if self.publisher.origin() == TopicOrigin::Fixed {
            return Ok(topic);
        }
        topic_name(&topic).map_err(|why| rejected(format!("`{topic}` {why}")))?;
        match self.publisher.closed_topics().reason(&topic, Instant::now()) {
            Some(code) => Err(classify::delivery(code, &topic, TopicOrigin::OfMessage)),
            None => Ok(topic),
        }
    }

    /// Classifies the failure of a row.
    fn failure(&self, code: Code, at: usize) -> Delivery {
        let topic = &self.topics[at];
        let delivery = classify::delivery(code, topic, self.publisher.origin());
        if matches!(delivery, Delivery::Wait { .. }) {
            self.publisher.closed_topics().note(topic, code, Instant::now());
        }
        delivery
    }

    pub(super) async fn run(mut self) -> Vec<Delivery> {
        if let Some(encoder) = self.publisher.encoder() {
            self.encode(encoder).await;
        }
        if self.deliveries.iter().all(Option::is_some) {
            return self.answers();
        }
        match self.together().await {
            Ok(()) => self.one_by_one().await,
            Err(problem) => self.give_up(&problem),
        }
        self.answers()
    }

    /// Sends everything, the first message of each key before the others. A broker that knows
    /// nothing of this producer yet accepts a batch even if it refused the one before; later it
    /// refuses what follows. An error concerns the cluster and ends the call.
    async fn together(&mut self) -> Result<(), Problem> {
        let producer = self.publisher.producer(self.deadline).await?;
        let mut seen = HashSet::with_capacity(self.rows.len());
        let is_first = |at: &usize| seen.insert(self.rows[*at].msg_key.as_str());
        let (first, others): (Vec<_>, Vec<_>) = (0..self.rows.len()).partition(is_first);
        for wave in [first, others] {
            let records = CallRecords::new(Arc::clone(&producer));
            self.enqueue(&records, wave);
            let waited = self.wait(&records).await;
            let clean = self.judge(records.reports.take());
            if waited.is_err() || !clean {
                // Some errors make the producer unusable (a refused batch, an unknown topic). They
                // are rare, so the next call always starts with a new producer.
                producer.end();
                waited?;
                return self.publisher.until_ended(&producer, self.deadline).await;
            }
        }
        Ok(())
    }

    /// Queues as many messages as possible; the others keep an unknown result.
    fn enqueue(&mut self, records: &CallRecords, wave: Vec<usize>) {
        for at in wave {
            let key = self.rows[at].msg_key.as_str();
            if self.blocked.contains(key) || self.deliveries[at].is_some() {
                continue;
            }
            let Err(code) = self.send(records, at) else { continue };
            match classify::verdict(code) {
                KafkaVerdict::Again => return,
                // The queue of the producer is full: there is no room for the others either.
                _ if code == Code::QueueFull => return,
                _ => {
                    self.blocked.insert(key);
                    self.deliveries[at] = Some(self.failure(code, at));
                }
            }
        }
    }

    fn send(&self, records: &CallRecords, at: usize) -> Result<(), Code> {
        let mut record = OutgoingRecord::of(&self.rows[at], self.publisher.format());
        record.value = self.values[at].as_deref().or(record.value);
        records.producer.send(&self.topics[at], record, &records.reports, at)
    }

    /// Waits for all reports. The error explains why no more are expected.
    async fn wait(&self, records: &CallRecords) -> Result<(), Problem> {
        while records.reports.awaited() > 0 {
            let now = Instant::now();
            let error = records.producer.error();
            let quiet = now.saturating_duration_since(records.reports.last());
            if quiet >= FATAL_PATIENCE && error.as_ref().is_some_and(|error| error.fatal) {
                // librdkafka purges queued messages, but not those that it takes back from a broker
                // later.
                records.end().await;
                return Ok(());
            }
            let patience = error.as_ref().and_then(patience);
            if now >= self.deadline || patience.is_some_and(|patience| quiet >= patience) {
                records.end().await;
                return Err(self.problem(error));
            }
            let next_check = (now + CHECK_INTERVAL).min(self.deadline);
            let _ = tokio::time::timeout_at(next_check, records.reports.complete()).await;
        }
        Ok(())
    }

    fn problem(&self, error: Option<ProducerError>) -> Problem {
        let (code, text) =
            error.map_or((Code::MessageTimedOut, String::new()), |error| (error.code, error.text));
        classify::problem(code, &self.publisher.topic().to_string(), &text)
    }

    /// Records the reports. Returns whether all messages were accepted.
    fn judge(&mut self, reports: Vec<(usize, Report)>) -> bool {
        let mut clean = true;
        for (at, report) in reports {
            self.deliveries[at] = match report {
                Ok(()) => Some(Delivery::Accepted),
                Err(code) => {
                    clean = false;
                    match classify::verdict(code) {
                        KafkaVerdict::Again | KafkaVerdict::Suspect => None,
                        KafkaVerdict::Topic
                        | KafkaVerdict::TopicName
                        | KafkaVerdict::Configuration
                        | KafkaVerdict::Retry
                        | KafkaVerdict::Outage => Some(self.failure(code, at)),
                    }
                }
            };
        }
        clean
    }

    /// Sends the messages without a result again, each alone on a producer of this call, so that a
    /// refused message fails alone. Stops at an outage; the remaining messages are sent later.
    async fn one_by_one(&mut self) {
        let mut producers = OwnProducers { current: None, opened: 0 };
        for at in 0..self.rows.len() {
            let key = self.rows[at].msg_key.as_str();
            if self.deliveries[at].is_none() && !self.blocked.contains(key) {
                let delivery = self.alone(at, &mut producers).await;
                let stop = delivery.failure() == Some(FailureKind::Unreachable);
                self.deliveries[at] = Some(delivery);
                if stop {
                    return;
                }
            }
            if self.deliveries[at] != Some(Delivery::Accepted) {
                self.blocked.insert(key);
            }
        }
    }

    async fn alone(&self, at: usize, producers: &mut OwnProducers) -> Delivery {
        let outage = |problem| Delivery::Outage { problem, after: None };
        loop {
            let records = match producers.records(self.publisher) {
                Ok(records) => records,
                Err(problem) => return outage(problem),
            };
            let code = match self.send(&records, at) {
                Err(code) => code,
                Ok(()) => {
                    let waited = self.wait(&records).await;
                    match (records.reports.take().pop(), waited) {
                        (Some((_, Ok(()))), _) => return Delivery::Accepted,
                        (_, Err(problem)) => return outage(problem),
                        (Some((_, Err(code))), Ok(())) => code,
                        (None, Ok(())) => Code::Fail,
                    }
                }
            };
            if classify::verdict(code) != KafkaVerdict::Again {
                return self.failure(code, at);
            }
            let error = records.producer.error();
            records.producer.end();
            if let Err(problem) = self.publisher.until_ended(&records.producer, self.deadline).await
            {
                return outage(problem);
            }
            if producers.opened >= OWN_PRODUCERS_MAX {
                let code = error.map_or(code, |error| error.code);
                return self.failure(code, at);
            }
        }
    }

    fn give_up(&mut self, problem: &Problem) {
        for delivery in &mut self.deliveries {
            let outage = || Delivery::Outage { problem: problem.clone(), after: None };
            delivery.get_or_insert_with(outage);
        }
    }

    /// Returns the deliveries. After a message that was not accepted, the rest of its key is held.
    fn answers(self) -> Vec<Delivery> {
        let mut blocked = HashSet::new();
        let answer = |(row, delivery): (&'a OutboxRow, Option<Delivery>)| match delivery {
            Some(Delivery::Accepted) => Delivery::Accepted,
            Some(delivery) if blocked.insert(row.msg_key.as_str()) => delivery,
            _ => {
                blocked.insert(row.msg_key.as_str());
                Delivery::Held
            }
        };
        self.rows.iter().zip(self.deliveries).map(answer).collect()
    }
}

/// Returns how long to wait while the cluster is in this state; `None` means the whole time of the
/// call.
fn patience(error: &ProducerError) -> Option<Duration> {
    match error.code {
        Code::AllBrokersDown | Code::Resolve => Some(DOWN_PATIENCE),
        Code::Authentication | Code::SSL => Some(REFUSED_PATIENCE),
        _ => None,
    }
}

/// The records that a call has given to a producer. Dropped before all are reported, it ends the
/// producer: no record may be delivered late, after newer messages.
struct CallRecords {
    producer: Arc<KafkaProducer>,
    reports: Arc<DeliveryReports>,
}

impl CallRecords {
    fn new(producer: Arc<KafkaProducer>) -> Self {
        Self { producer, reports: DeliveryReports::new() }
    }

    /// Ends the producer and waits for the reports of its records.
    async fn end(&self) {
        self.producer.end();
        let all = async {
            while self.reports.awaited() > 0 {
                self.reports.complete().await;
            }
        };
        let _ = tokio::time::timeout(PURGE_MAX, all).await;
    }
}

impl Drop for CallRecords {
    fn drop(&mut self) {
        if self.reports.awaited() > 0 {
            self.producer.end();
        }
    }
}

/// The producers of one call, one after the other.
struct OwnProducers {
    current: Option<Arc<KafkaProducer>>,
    opened: usize,
}

impl OwnProducers {
    fn records(&mut self, publisher: &KafkaPublisher) -> Result<CallRecords, Problem> {
        if let Some(producer) = self.current.as_ref().filter(|producer| !producer.is_ending()) {
            return Ok(CallRecords::new(Arc::clone(producer)));
        }
        self.opened += 1;
        Ok(CallRecords::new(Arc::clone(self.current.insert(publisher.own_producer()?))))
    }
}

impl Drop for OwnProducers {
    fn drop(&mut self) {
        if let Some(producer) = &self.current {
            producer.end();
        }
    }
}
