//! Figures: a backlog relayed to a topic, beside the relay to nothing and the bare loop; a topic read
//! into the inbox, beside a bare INSERT of the same rows into it and into a plain table.
//!
//! Topics have eight partitions and are new in each round. The broker shares the machine: what it takes
//! is missing on the side of relais.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rdkafka::{
    ClientConfig, Message,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    error::RDKafkaErrorCode,
    message::{Header, Headers, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, Producer},
};
use relais::{
    Publisher,
    core::inspect::InspectExt,
    core::{
        extract::{Mapping, Pick},
        lane::{Fence, LaneRequest, Scope},
        query::Filter,
    },
    kafka::{
        KafkaConnection, KafkaPublisher, KafkaPublisherSettings, KafkaSource, KafkaSourceSettings,
    },
};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::{
    cost::{CostLines, CostReading, NO_TARGETS},
    fixture::{Database, Fixture, RAW_BATCH, Rows, Table},
    ingest::ingest,
    options::{Figure, Options},
    relay::{progress, raw_rate, relay},
    report::{Entry, Report, Target, Unit},
    workload::{Counter, DESTINATION, ONE, PATIENCE, Received},
};

/// The variable with the address of the broker; `cargo xtask bench` starts one and sets it.
const VARIABLE: &str = "RELAIS_TEST_KAFKA";
const PARTITIONS: i32 = 8;
/// The longest wait of the bare consumer for a record.
const POLL: Duration = Duration::from_millis(100);
const OUT_TARGET: f64 = 0.6;
const IN_TARGET: f64 = 0.6;

pub(crate) async fn measure<D: Database>(
    database: &D,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let wanted = [Figure::KafkaOut, Figure::KafkaIn];
    if !wanted.iter().any(|figure| options.wants(*figure)) {
        return Ok(());
    }
    let Ok(address) = std::env::var(VARIABLE) else {
        report.left_out(&format!("{} with kafka: set {VARIABLE} to HOST:PORT", D::NAME));
        return Ok(());
    };
    let broker = Broker::new(&address)?;
    if options.wants(Figure::KafkaOut) {
        out(database, &broker, options, report).await.context("outbox to kafka")?;
    }
    if options.wants(Figure::KafkaIn) {
        inward(database, &broker, options, report).await.context("kafka to inbox")?;
    }
    Ok(())
}

async fn out<D: Database>(
    database: &D,
    broker: &Broker,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let rows = options.size.rows;
    let fixture = database.fixture("kafka_out").await?;
    let (mut raw, mut nothing, mut kafka) = (Vec::new(), Vec::new(), Vec::new());
    let (mut producer, mut costs, received) = (Vec::new(), Vec::new(), Received::some(rows));
    for round in 1..=options.size.relay_rounds {
        eprintln!("{} outbox to kafka, round {round}: raw, relay to nothing, to kafka", D::NAME);
        let topic = broker.topic().await?;
        let started = Instant::now();
        broker.fill(&topic, Arc::clone(&received)).await?;
        producer.push(rows as f64 / started.elapsed().as_secs_f64());
        progress(&producer);
        broker.delete(&topic).await?;
        raw.push(raw_rate(&fixture, rows).await?);
        progress(&raw);
        load(&fixture, rows).await?;
        nothing.push(relay(&fixture, Counter::new(rows)).await?.rate);
        progress(&nothing);
        load(&fixture, rows).await?;
        let topic = broker.topic().await?;
        let publisher = broker.publisher(&topic)?;
        // The connection is there before: the bare loop has its own too.
        let some = Filter { limit: 1, ..Filter::default() };
        publisher.publish(&fixture.store().list_outbox(some).await?).await;
        let counter = Counter::before(Box::new(publisher), rows);
        let before = CostReading::take(&fixture).await?;
        kafka.push(relay(&fixture, counter).await?.rate);
        costs.push(before.since(&fixture, rows).await?);
        progress(&kafka);
        broker.delete(&topic).await?;
    }
    fixture.remove().await?;
    let yardsticks =
        [(producer, "a bare producer"), (nothing, "the relay to nothing"), (raw, "the bare loop")];
    for (raw, note) in yardsticks {
        report.add(Entry {
            store: D::NAME,
            name: format!("outbox to kafka, {rows} rows"),
            unit: Unit::PerSecond,
            raw,
            relais: kafka.clone(),
            target: Target::RatioAtLeast(OUT_TARGET),
            note: format!("beside {note}"),
        });
    }
    let (raw, relais, targets) = (&[][..], &costs[..], NO_TARGETS);
    CostLines { store: D::NAME, name: "outbox to kafka", raw, relais, targets }.add_to(report);
    Ok(())
}

pub(crate) async fn load<B: Fixture>(fixture: &B, rows: u64) -> Result<()> {
    fixture.clear().await?;
    fixture.add(rows, Rows::Pending, ONE).await?;
    fixture.calm().await
}

async fn inward<D: Database>(
    database: &D,
    broker: &Broker,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let rows = Received::some(options.size.rows);
    let fixture = database.fixture("kafka_in").await?;
    // The inbox worker finds every lane taken: what is measured is the way into the inbox.
    let fence = Fence { scope: Scope::Inbox, worker: "bench".into() };
    fixture.store().lease_lanes(LaneRequest::new(fence, PATIENCE)).await?;
    let (mut plain, mut inbox, mut kafka) = (Vec::new(), Vec::new(), Vec::new());
    let (mut consumer, mut consumer_costs, mut costs) = (Vec::new(), Vec::new(), Vec::new());
    let count = rows.len() as u64;
    for round in 1..=options.size.relay_rounds {
        eprintln!("{} kafka to inbox, round {round}: plain table, inbox, relais", D::NAME);
        for (table, rates) in [(Table::Plain, &mut plain), (Table::Inbox, &mut inbox)] {
            fixture.clear().await?;
            fixture.calm().await?;
            let elapsed = fixture.insert(Arc::clone(&rows), table).await?;
            rates.push(rows.len() as f64 / elapsed.as_secs_f64());
            progress(rates);
        }
        let topic = broker.topic().await?;
        broker.fill(&topic, Arc::clone(&rows)).await?;
        fixture.clear().await?;
        fixture.calm().await?;
        let before = CostReading::take(&fixture).await?;
        consumer.push(consume(&fixture, broker, &topic, rows.len()).await?);
        consumer_costs.push(before.since(&fixture, count).await?);
        progress(&consumer);
        fixture.clear().await?;
        fixture.calm().await?;
        let before = CostReading::take(&fixture).await?;
        kafka.push(ingest(&fixture, Box::new(broker.source(&topic)?), rows.len()).await?);
        costs.push(before.since(&fixture, count).await?);
        progress(&kafka);
        broker.delete(&topic).await?;
    }
    fixture.remove().await?;
    let yardsticks = [
        (consumer, "a bare consumer and INSERT, plain table"),
        (plain, "a bare INSERT, plain table"),
        (inbox, "a bare INSERT, inbox"),
    ];
    for (raw, note) in yardsticks {
        report.add(Entry {
            store: D::NAME,
            name: format!("kafka to inbox, {} rows", rows.len()),
            unit: Unit::PerSecond,
            raw,
            relais: kafka.clone(),
            target: Target::RatioAtLeast(IN_TARGET),
            note: format!("beside {note}"),
        });
    }
    let (raw, relais, targets) = (&consumer_costs[..], &costs[..], NO_TARGETS);
    CostLines { store: D::NAME, name: "kafka to inbox", raw, relais, targets }.add_to(report);
    Ok(())
}

/// Measures a bare consumer from its first record until this many rows are stored.
async fn consume<B: Fixture>(
    fixture: &B,
    broker: &Broker,
    topic: &str,
    rows: usize,
) -> Result<f64> {
    let consumer = broker.consumer(topic)?;
    let (batches, stored) = mpsc::channel(1);
    let read = tokio::task::spawn_blocking(move || {
        let (mut started, mut read) = (None, 0);
        while read < rows {
            let batch = next_batch(&consumer, rows - read)?;
            started.get_or_insert_with(Instant::now);
            read += batch.len();
            batches.blocking_send(batch).context("the batch is not stored")?;
        }
        started.context("no record")
    });
    fixture.insert_batches(stored).await?;
    Ok(rows as f64 / read.await??.elapsed().as_secs_f64())
}

/// Reads what is there, at most as much as a batch of relais, and at least one record.
fn next_batch(consumer: &BaseConsumer, most: usize) -> Result<Vec<Received>> {
    let most = most.min(usize::try_from(RAW_BATCH)?);
    let (mut batch, started) = (Vec::new(), Instant::now());
    while batch.len() < most && started.elapsed() < PATIENCE {
        let wait = if batch.is_empty() { POLL } else { Duration::ZERO };
        let Some(record) = consumer.poll(wait) else {
            // It also ends without a record when partitions are assigned.
            if batch.is_empty() {
                continue;
            }
            break;
        };
        let record = record?;
        let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into();
        let id = record.headers().and_then(|headers| headers.try_get(0)?.value);
        let (id, key, payload) = (text(id), text(record.key()), text(record.payload()));
        batch.push(Received { id, key, payload });
    }
    anyhow::ensure!(!batch.is_empty(), "no record within {PATIENCE:?}");
    Ok(batch)
}

struct Broker {
    address: String,
    admin: AdminClient<DefaultClientContext>,
}

impl Broker {
    fn new(address: &str) -> Result<Self> {
        let admin = ClientConfig::new().set("bootstrap.servers", address).create()?;
        Ok(Self { address: address.to_owned(), admin })
    }

    /// A new topic; its name.
    async fn topic(&self) -> Result<String> {
        let name = format!("relais-bench-{}", Uuid::new_v4());
        let topic = NewTopic::new(&name, PARTITIONS, TopicReplication::Fixed(1));
        for made in self.admin.create_topics([&topic], &patient()).await? {
            made.map_err(|(name, code)| anyhow::anyhow!("{name}: {code}"))?;
        }
        Ok(name)
    }

    async fn delete(&self, topic: &str) -> Result<()> {
        self.admin.delete_topics(&[topic], &patient()).await?;
        Ok(())
    }

    /// Writes the rows as another system would.
    async fn fill(&self, topic: &str, rows: Arc<[Received]>) -> Result<()> {
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", &self.address)
            .set("enable.idempotence", "true")
            .create()?;
        let topic = topic.to_owned();
        let fill = move || {
            for Received { id, key, payload } in rows.iter() {
                let headers = OwnedHeaders::new()
                    .insert(Header { key: "message-id", value: Some(id) })
                    .insert(Header { key: "event-type", value: Some("OrderChanged") });
                let mut record = BaseRecord::to(&topic).key(key).payload(payload).headers(headers);
                while let Err((error, back)) = producer.send(record) {
                    anyhow::ensure!(
                        error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull)
                    );
                    producer.poll(Duration::from_millis(10));
                    record = back;
                }
            }
            Ok(producer.flush(PATIENCE)?)
        };
        tokio::task::spawn_blocking(fill).await?
    }

    fn consumer(&self, topic: &str) -> Result<BaseConsumer> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", &self.address)
            .set("group.id", format!("{topic}-bare"))
            .set("auto.offset.reset", "earliest")
            .set("enable.auto.commit", "false")
            .create()?;
        consumer.subscribe(&[topic])?;
        Ok(consumer)
    }

    fn source(&self, topic: &str) -> Result<KafkaSource> {
        let mapping = Mapping::json("bench")
            .message_id(Pick::Header("message-id".into()))
            .event_type(Pick::Header("event-type".into()))
            .aggregate_id(Pick::Key);
        let connection = KafkaConnection::new(&self.address);
        // Each topic has a group of its own: no member waits for one that has left.
        let settings =
            KafkaSourceSettings::new("bench", connection, topic, vec![topic.to_owned()], mapping);
        KafkaSource::new(settings).map_err(anyhow::Error::msg)
    }

    fn publisher(&self, topic: &str) -> Result<KafkaPublisher> {
        let connection = KafkaConnection::new(&self.address);
        KafkaPublisher::new(KafkaPublisherSettings::new(DESTINATION, connection, topic))
            .map_err(anyhow::Error::msg)
    }
}

fn patient() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(PATIENCE))
}
