//! Records of one topic become records of another, through inbox, route and outbox, with a broker that
//! is killed now and then.
//!
//! A record is produced until the broker has acknowledged it, so all of them must arrive, in the order
//! of their keys; copies keep the id of the first. What cannot be decoded must be kept.

use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    message::{Header, Headers, OwnedHeaders},
    producer::{FutureProducer, FutureRecord},
};
use tokio::task::JoinHandle;

use super::{FlowContext, rate};
use crate::{
    base::DatabaseClient,
    check::Findings,
    faults::{self, NodeSlot},
    history::{Arrivals, Flow, WrittenKeys},
    node::NodeProcess,
    rng::Rng,
    writers::{self, WriterKeys},
};

const PARTITIONS: i32 = 4;
/// Records a second, and how many keys they have.
const RECORDS_A_SECOND: u64 = 20;
const KEYS: usize = 100;
/// Share of records that are produced twice, and of undecodable ones.
const AGAIN_PERCENT: u64 = 5;
const GARBAGE_PERCENT: u64 = 2;
/// Time until the broker is killed.
const BROKER_LIFE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(90));
/// Longest time of one request to the broker, which may be starting.
const PATIENCE: Duration = Duration::from_secs(60);
const GLANCE: Duration = Duration::from_millis(100);
/// Processes that read from the topic, and their settings.
const READERS: usize = 2;
const SETTINGS: &str = "kafka.toml";
/// Most attempts to produce a record.
const TRIES_MAX: usize = 20;
/// Longer than a process of the other slots works: a group needs time to form.
const LIFE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(6));

/// A broker, and the program that kills and starts it, if that is allowed.
#[derive(Clone, Debug)]
pub(crate) struct KafkaBroker {
    pub(crate) address: String,
    pub(crate) restart: Option<PathBuf>,
}

/// Two topics, and who produces to the first.
pub(crate) struct Kafka {
    broker: KafkaBroker,
    topic_in: String,
    topic_out: String,
    disturber: Option<JoinHandle<Result<u64>>>,
    producer: Option<JoinHandle<Result<ProducedRecords>>>,
    produced: ProducedRecords,
    restarts: u64,
}

/// Records that the broker has acknowledged.
#[derive(Debug, Default)]
struct ProducedRecords {
    written: WrittenKeys,
    garbage: u64,
    again: u64,
}

impl Kafka {
    /// Makes the topics.
    pub(crate) async fn start(broker: KafkaBroker) -> Result<Self> {
        let name = |what| format!("torture-{what}-{}", uuid::Uuid::new_v4().simple());
        let (topic_in, topic_out) = (name("in"), name("out"));
        let topics = [&topic_in, &topic_out]
            .map(|name| NewTopic::new(name, PARTITIONS, TopicReplication::Fixed(1)));
        for made in broker.admin()?.create_topics(&topics, &options()).await? {
            ensure!(made.is_ok(), "cannot make a topic: {made:?}");
        }
        let (disturber, producer) = (None, None);
        let produced = ProducedRecords::default();
        Ok(Self { broker, topic_in, topic_out, disturber, producer, produced, restarts: 0 })
    }

    /// Returns the destination, which every process has.
    pub(crate) fn settings(&self) -> String {
        format!(
            r#"
[[route]]
on = "Recorded"
destination = "records"

[[destination]]
name = "records"
kind = "kafka"
brokers = "{}"
topic = "{}"

[destination.retry]
attempts = 400
first = "10ms"
max = "20ms"

[destination.limits]
timeout = "5s"

[destination.breaker]
open_for = "300ms"
"#,
            self.broker.address, self.topic_out,
        )
    }

    /// Writes the configuration of the processes that read the topic.
    pub(crate) fn write_settings(&self, context: &FlowContext, common: &str) -> Result<()> {
        let file = context.program.folder.join(SETTINGS);
        Ok(std::fs::write(file, common.to_owned() + &self.source())?)
    }

    fn source(&self) -> String {
        format!(
            r#"
[[source]]
name = "records"
kind = "kafka"
brokers = "{}"
group = "{topic}"
topics = ["{topic}"]
source_system = "recorder"
message_id = "header:message-id"
event_type = "payload:/type"
aggregate_id = "key"

[source.options]
session.timeout.ms = 2000
heartbeat.interval.ms = 500
"#,
            self.broker.address,
            topic = self.topic_in,
        )
    }

    /// Starts to produce and read records, and to kill the broker now and then. The readers are processes
    /// like the others of the run.
    pub(crate) fn go(&mut self, context: &FlowContext) -> Vec<JoinHandle<Result<NodeProcess>>> {
        let producing = produce(self.broker.clone(), self.topic_in.clone(), context.clone());
        self.producer = Some(tokio::spawn(producing));
        if let Some(program) = self.broker.restart.clone() {
            self.disturber = Some(tokio::spawn(restart(program, context.clone())));
        }
        let FlowContext { plan, control, event_log, http, shared, .. } = context;
        let mut program = context.program.clone();
        program.args.push(format!("--config={SETTINGS}"));
        let disrupt_node = |number| {
            let rng = Rng::new(plan.seed, 32 + number as u64);
            let mut slot = NodeSlot::new(program.clone(), format!("kafka-{number}"), rng);
            slot.source = Some((Arc::clone(shared), plan.nodes + number));
            slot.life = LIFE;
            let (control, event_log) = (Arc::clone(control), event_log.clone());
            tokio::spawn(faults::disrupt_node(slot, control, event_log, http.clone()))
        };
        (0..READERS).map(disrupt_node).collect()
    }

    /// The faults are over.
    pub(crate) async fn calm(&mut self) -> Result<()> {
        if let Some(disturber) = self.disturber.take() {
            self.restarts = disturber.await??;
        }
        Ok(())
    }

    /// No more records are produced.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        if let Some(producer) = self.producer.take() {
            self.produced = producer.await??;
        }
        Ok(())
    }

    /// Records that the group has not read.
    pub(crate) async fn open(&self) -> Result<Vec<String>> {
        let (broker, topic) = (self.broker.clone(), self.topic_in.clone());
        let unread = tokio::task::spawn_blocking(move || broker.unread(&topic)).await?;
        // A broker that has just come back may not know its groups yet.
        Ok(unread.unwrap_or_else(|error| vec![format!("{error:#}")]))
    }

    pub(crate) async fn check(
        &self,
        client: &mut DatabaseClient,
        findings: &mut Findings,
    ) -> Result<()> {
        let (broker, topic) = (self.broker.clone(), self.topic_out.clone());
        let arrivals = tokio::task::spawn_blocking(move || broker.read(&topic)).await??;
        findings.compare(&self.produced.written, &arrivals.close());
        // Each is unlike the others, and a copy of it is no other.
        let kept = "SELECT CAST(count(DISTINCT raw_payload_base64) AS TEXT) FROM relais_inbox \
                    WHERE status = 'SERDE_ERROR'";
        let (kept, garbage) = (client.number(kept).await?, self.produced.garbage);
        if kept < garbage {
            findings.add("lost", [format!("{} records that are no JSON", garbage - kept)]);
        }
        if kept > garbage {
            findings.add("phantom", [format!("{} rows that are no JSON", kept - garbage)]);
        }
        self.broker.admin()?.delete_topics(&[&self.topic_in, &self.topic_out], &options()).await?;
        Ok(())
    }

    pub(crate) fn counts(&self) -> [(&'static str, u64); 4] {
        let ProducedRecords { written, garbage, again } = &self.produced;
        [
            ("records", written.names().count() as u64),
            ("records produced twice", *again),
            ("records kept undecoded", *garbage),
            ("broker kills", self.restarts),
        ]
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(PATIENCE)).request_timeout(Some(PATIENCE))
}

impl KafkaBroker {
    fn client(&self) -> ClientConfig {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", &self.address);
        client
    }

    fn admin(&self) -> Result<AdminClient<DefaultClientContext>> {
        Ok(self.client().create()?)
    }

    /// Returns the end offsets of a topic.
    fn ends(client: &BaseConsumer, topic: &str) -> Result<Vec<i64>> {
        let ends = (0..PARTITIONS).map(|at| Ok(client.fetch_watermarks(topic, at, PATIENCE)?.1));
        ends.collect()
    }

    /// The partitions of which the group, named like the topic, has not read everything.
    fn unread(&self, topic: &str) -> Result<Vec<String>> {
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

    /// Everything in a topic.
    fn read(&self, topic: &str) -> Result<Arrivals> {
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
                let value: serde_json::Value =
                    serde_json::from_slice(record.payload().unwrap_or_default())
                        .unwrap_or_default();
                let headers = record.headers().into_iter().flat_map(Headers::iter);
                let mut ids = headers.filter(|header| header.key == "message-id");
                let id = ids.next().and_then(|header| header.value).unwrap_or_default();
                let name = value["name"].as_str().unwrap_or_default();
                arrivals.note(name, &String::from_utf8_lossy(id));
            }
        }
        Ok(arrivals)
    }
}

/// Produces records, one after the other.
async fn produce(
    broker: KafkaBroker,
    topic: String,
    context: FlowContext,
) -> Result<ProducedRecords> {
    let mut producer = Producer::new(broker, topic)?;
    let mut rng = Rng::new(context.plan.seed, 30);
    let mut keys = WriterKeys::new(Flow::Record, 0, KEYS);
    let mut produced = ProducedRecords::default();
    let (records, pace) = rate(&context.plan, RECORDS_A_SECOND);
    for number in 0..records {
        if context.shared.closed.load(Relaxed) {
            break;
        }
        if rng.percent(GARBAGE_PERCENT) {
            producer.put("garbage", None, &format!("{{\"garbage\":{number}")).await?;
            produced.garbage += 1;
        }
        let name = keys.next(&mut rng);
        let (key, id, payload) = (name.key(), name.to_string(), writers::payload(name));
        producer.put(&key, Some(&id), &payload).await?;
        if rng.percent(AGAIN_PERCENT) {
            producer.put(&key, Some(&id), &payload).await?;
            produced.again += 1;
        }
        context.event_log.note(format_args!("produced {name}"));
        tokio::time::sleep(Duration::from_micros(1_000_000 / pace)).await;
    }
    produced.written = keys.written();
    Ok(produced)
}

struct Producer {
    broker: KafkaBroker,
    topic: String,
    client: FutureProducer,
}

impl Producer {
    fn new(broker: KafkaBroker, topic: String) -> Result<Self> {
        let client = Self::client(&broker)?;
        Ok(Self { broker, topic, client })
    }

    fn client(broker: &KafkaBroker) -> Result<FutureProducer> {
        let mut config = broker.client();
        config.set("partitioner", "murmur2_random").set("enable.idempotence", "true");
        Ok(config.set("message.timeout.ms", "10000").create()?)
    }

    /// Produces until the broker acknowledges. A record whose acknowledgement was lost may be stored; the
    /// next attempt is a copy of it then.
    async fn put(&mut self, key: &str, id: Option<&str>, payload: &str) -> Result<()> {
        for _ in 0..TRIES_MAX {
            let mut record = FutureRecord::to(&self.topic).key(key).payload(payload);
            if let Some(id) = id {
                let header = Header { key: "message-id", value: Some(id) };
                record = record.headers(OwnedHeaders::new().insert(header));
            }
            if self.client.send(record, PATIENCE).await.is_ok() {
                return Ok(());
            }
            // One that has met a fatal error never works again.
            self.client = Self::client(&self.broker)?;
        }
        anyhow::bail!("the broker takes nothing")
    }
}

/// Kills the broker and starts it again, until the faults are over; how often.
async fn restart(program: PathBuf, context: FlowContext) -> Result<u64> {
    let mut rng = Rng::new(context.plan.seed, 31);
    let mut times = 0;
    // A broker that starts slowly beside other work must live long enough to take something.
    let (shortest, longest) =
        (BROKER_LIFE.0 * context.plan.calm, BROKER_LIFE.1 * context.plan.calm);
    while context.control.wait(rng.between(shortest, longest)).await {
        context.event_log.note("kill the broker");
        let status = tokio::process::Command::new(&program).status().await?;
        ensure!(status.success(), "the broker does not start again: {status}");
        context.event_log.note("the broker is back");
        times += 1;
    }
    Ok(times)
}
