//! A real Kafka as a plain client sees it: topics, records, offsets.

use std::time::{Duration, Instant};

use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    error::RDKafkaErrorCode,
    message::{Header, Headers, OwnedHeaders, OwnedMessage},
    producer::{BaseProducer, BaseRecord, Producer},
};

/// Time limit of a condition.
const PATIENCE: Duration = Duration::from_secs(60);

/// The broker the environment names.
pub(crate) struct Broker {
    pub(crate) address: String,
    /// Asks its own questions inside synchronous tests.
    runtime: tokio::runtime::Runtime,
}

impl Broker {
    pub(crate) fn from_environment() -> Option<Self> {
        let Ok(address) = std::env::var("RELAIS_TEST_KAFKA") else {
            assert!(std::env::var_os("CI").is_none(), "CI must set RELAIS_TEST_KAFKA");
            eprintln!("NOT TESTED: the program with Kafka; set RELAIS_TEST_KAFKA");
            return None;
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Some(Self { address, runtime })
    }

    pub(crate) fn client(&self) -> ClientConfig {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", &self.address);
        client
    }

    /// Creates a topic with a unique name, which is deleted afterwards.
    pub(crate) fn topic(&self, what: &str, partitions: i32) -> Topic<'_> {
        let name = format!("relais-{what}-{}", uuid::Uuid::new_v4().simple());
        self.topic_named(&name, partitions)
    }

    /// Creates a topic with this name, which is deleted afterwards.
    pub(crate) fn topic_named(&self, name: &str, partitions: i32) -> Topic<'_> {
        let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        let made = self.runtime.block_on(self.admin().create_topics([&topic], &options()));
        assert!(made.as_ref().is_ok_and(|topics| topics[0].is_ok()), "{made:?}");
        Topic { broker: self, name: name.to_owned(), partitions }
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.client().create().unwrap()
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(PATIENCE))
}

/// A topic of one test.
pub(crate) struct Topic<'a> {
    broker: &'a Broker,
    pub(crate) name: String,
    partitions: i32,
}

impl Topic<'_> {
    /// Returns the end of each partition.
    pub(crate) fn ends(&self) -> Vec<i64> {
        let client: BaseConsumer = self.broker.client().create().unwrap();
        let end = |partition| client.fetch_watermarks(&self.name, partition, PATIENCE).unwrap().1;
        (0..self.partitions).map(end).collect()
    }

    /// Returns the committed offsets of a group by partition; zero without a commit, and for a group without a
    /// coordinator, which a new broker creates at the first use.
    pub(crate) fn committed(&self, group: &str) -> Vec<i64> {
        let client: BaseConsumer = self.broker.client().set("group.id", group).create().unwrap();
        let mut asked = TopicPartitionList::new();
        asked.add_partition_range(&self.name, 0, self.partitions - 1);
        let answer = match client.committed_offsets(asked, PATIENCE) {
            Ok(answer) => answer,
            Err(error) => match error.rdkafka_error_code() {
                Some(
                    RDKafkaErrorCode::NotCoordinator
                    | RDKafkaErrorCode::CoordinatorLoadInProgress
                    | RDKafkaErrorCode::CoordinatorNotAvailable,
                ) => return vec![0; usize::try_from(self.partitions).unwrap()],
                _ => panic!("asking what group {group} has committed: {error}"),
            },
        };
        let committed = |partition| match answer.find_partition(&self.name, partition) {
            Some(found) => match found.offset() {
                Offset::Offset(offset) => offset,
                _ => 0,
            },
            None => 0,
        };
        (0..self.partitions).map(committed).collect()
    }
}

impl Topic<'_> {
    /// Adds one record; no value is a tombstone.
    pub(crate) fn send(&self, key: &str, headers: &[(&str, &str)], value: Option<&[u8]>) {
        let producer: BaseProducer = self.broker.client().create().unwrap();
        let add = |all: OwnedHeaders, (key, value): &(&str, &str)| {
            all.insert(Header { key, value: Some(*value) })
        };
        let mut record = BaseRecord::to(&self.name).key(key);
        record = record.headers(headers.iter().fold(OwnedHeaders::new(), add));
        record.payload = value;
        producer.send(record).unwrap();
        producer.flush(PATIENCE).unwrap();
    }

    /// The records of the first partition; waits for this many.
    pub(crate) fn read(&self, count: usize) -> Vec<OwnedMessage> {
        let client: BaseConsumer = self.broker.client().set("group.id", "none").create().unwrap();
        let mut all = TopicPartitionList::new();
        all.add_partition_offset(&self.name, 0, Offset::Beginning).unwrap();
        client.assign(&all).unwrap();
        let until = Instant::now() + PATIENCE;
        // A poll ends early, without a record, when the client has handled another event.
        let next = || loop {
            let wait = until.saturating_duration_since(Instant::now());
            match client.poll(wait) {
                Some(record) => break record.unwrap().detach(),
                None => assert!(!wait.is_zero(), "no record came in time"),
            }
        };
        (0..count).map(|_| next()).collect()
    }
}

/// A header of a record, as text.
pub(crate) fn header(record: &OwnedMessage, name: &str) -> Option<String> {
    let found = record.headers()?.iter().find(|header| header.key == name)?;
    Some(String::from_utf8_lossy(found.value?).into_owned())
}

impl Drop for Topic<'_> {
    fn drop(&mut self) {
        let admin = self.broker.admin();
        let _ = self.broker.runtime.block_on(admin.delete_topics(&[&self.name], &options()));
    }
}
