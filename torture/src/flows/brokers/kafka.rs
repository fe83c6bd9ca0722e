//! Two topics of Kafka.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use async_trait::async_trait;
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    message::{Header, Headers, OwnedHeaders},
    producer::{FutureProducer, FutureRecord},
};

use super::{BrokerKind, MessageBroker, MessageSender, PATIENCE};
use crate::history::{ArrivalTable, Arrivals, Flow};

const PARTITIONS: i32 = 4;
const GLANCE: Duration = Duration::from_millis(100);
/// Most attempts to produce a record.
const TRIES_MAX: usize = 20;

const KIND: BrokerKind = BrokerKind {
    flow: Flow::Record,
    event_type: "Recorded",
    name: "records",
    readers: super::READERS,
    figures: ["records", "records produced twice", "records kept undecoded", "broker kills"],
};

#[derive(Clone, Debug)]
pub(super) struct KafkaTopics {
    address: String,
    topic_in: String,
    topic_out: String,
}

impl KafkaTopics {
    pub(super) async fn create(address: &str) -> Result<Self> {
        let name = |what| format!("torture-{what}-{}", uuid::Uuid::new_v4().simple());
        let (topic_in, topic_out) = (name("in"), name("out"));
        let made = Self { address: address.to_owned(), topic_in, topic_out };
        let topics = [&made.topic_in, &made.topic_out]
            .map(|name| NewTopic::new(name, PARTITIONS, TopicReplication::Fixed(1)));
        for made in made.admin()?.create_topics(&topics, &options()).await? {
            ensure!(made.is_ok(), "cannot make a topic: {made:?}");
        }
        Ok(made)
    }

    fn client(&self) -> ClientConfig {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", &self.address);
        client
    }

    fn admin(&self) -> Result<AdminClient<DefaultClientContext>> {
        Ok(self.client().create()?)
    }

    fn producer(&self) -> Result<FutureProducer> {
        let mut config = self.client();
        config.set("partitioner", "murmur2_random").set("enable.idempotence", "true");
        Ok(config.set("message.timeout.ms", "10000").create()?)
    }

    /// Returns the end offsets of a topic.
    fn ends(client: &BaseConsumer, topic: &str) -> Result<Vec<i64>> {
        let ends = (0..PARTITIONS).map(|at| Ok(client.fetch_watermarks(topic, at, PATIENCE)?.1));
        ends.collect()
    }

    /// Returns the partitions of which the group, named like the topic, has not read everything.
    fn unread_partitions(&self) -> Result<Vec<String>> {
        let topic = &self.topic_in;
        let client: BaseConsumer = self.client().set("group.id", topic).create()?;
        let ends = Self::ends(&client, topic)?;
        let mut asked = TopicPartitionList::new();
        asked.add_partition_range(topic, 0, PARTITIONS - 1);
        let committed = client.committed_offsets(asked, PATIENCE)?;
        let unread = ends.into_iter().zip(0..).filter_map(|(end, partition)| {
            let found = committed.find_partition(topic, partition);
            let read = found.and_then(|found| found.offset().to_raw()).unwrap_or(0).max(0);
            (read < end).then(|| format!("{topic}/{partition} {read} of {end} read"))
        });
        Ok(unread.collect())
    }

    /// Reads everything in the second topic.
    fn read(&self) -> Result<Arrivals> {
        let topic = &self.topic_out;
        let client: BaseConsumer = self.client().set("group.id", topic).create()?;
        let ends = Self::ends(&client, topic)?;
        let (arrivals, started) = (Arrivals::default(), Instant::now());
        for (end, partition) in ends.into_iter().zip(0..) {
            let mut one = TopicPartitionList::new();
            one.add_partition_offset(topic, partition, Offset::Beginning)?;
            client.assign(&one)?;
            let mut next = 0;
            while next < end {
                let Some(record) = client.poll(GLANCE) else {
                    ensure!(started.elapsed() < PATIENCE, "{next} of {end} records come");
                    continue;
                };
                let record = record?;
                next = record.offset() + 1;
                let headers = record.headers().into_iter().flat_map(Headers::iter);
                let mut ids = headers.filter(|header| header.key == "message-id");
                let id = ids.next().and_then(|header| header.value).unwrap_or_default();
                arrivals.note_payload(
                    record.payload().unwrap_or_default(),
                    &String::from_utf8_lossy(id),
                );
            }
        }
        Ok(arrivals)
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(PATIENCE)).request_timeout(Some(PATIENCE))
}

#[async_trait]
impl MessageBroker for KafkaTopics {
    fn kind(&self) -> &'static BrokerKind {
        &KIND
    }

    fn source(&self) -> String {
        format!(
            r#"kind = "kafka"
brokers = "{}"
group = "{topic}"
topics = ["{topic}"]

[source.options]
session.timeout.ms = 2000
heartbeat.interval.ms = 500"#,
            self.address,
            topic = self.topic_in,
        )
    }

    fn destination(&self) -> String {
        let Self { address, topic_out, .. } = self;
        format!("kind = \"kafka\"\nbrokers = \"{address}\"\ntopic = \"{topic_out}\"")
    }

    async fn sender(&self) -> Result<Box<dyn MessageSender>> {
        Ok(Box::new(KafkaSender { topics: self.clone(), client: self.producer()? }))
    }

    async fn unread(&self, _expected: u64) -> Result<Vec<String>> {
        let topics = self.clone();
        tokio::task::spawn_blocking(move || topics.unread_partitions()).await?
    }

    async fn arrived(&self) -> Result<ArrivalTable> {
        let topics = self.clone();
        Ok(tokio::task::spawn_blocking(move || topics.read()).await??.close())
    }

    async fn remove(&self) -> Result<()> {
        let topics = [self.topic_in.as_str(), &self.topic_out];
        self.admin()?.delete_topics(&topics, &options()).await?;
        Ok(())
    }
}

struct KafkaSender {
    topics: KafkaTopics,
    client: FutureProducer,
}

#[async_trait]
impl MessageSender for KafkaSender {
    async fn put(&mut self, key: &str, id: Option<&str>, payload: &str) -> Result<()> {
        for _ in 0..TRIES_MAX {
            let mut record = FutureRecord::to(&self.topics.topic_in).key(key).payload(payload);
            if let Some(id) = id {
                let header = Header { key: "message-id", value: Some(id) };
                record = record.headers(OwnedHeaders::new().insert(header));
            }
            if self.client.send(record, PATIENCE).await.is_ok() {
                return Ok(());
            }
            // One that has met a fatal error never works again.
            self.client = self.topics.producer()?;
        }
        anyhow::bail!("the broker takes nothing")
    }
}
