//! Figures: a backlog relayed to a topic, beside the bare loop; a topic read into the inbox, beside a
//! bare INSERT of the same rows.
//!
//! Topics have eight partitions and are new in each round. What the broker itself takes of the machine
//! is paid by relais.

use std::time::Duration;

use anyhow::{Context, Result};
use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
};
use relais::kafka::{KafkaConnection, KafkaPublisher, KafkaPublisherSettings};
use uuid::Uuid;

use crate::{
    bed::{Bed, Database, Rows},
    options::{Figure, Options},
    relay::{progress, raw_rate, relay},
    report::{Entry, Report, Target, Unit},
    workload::{Counter, DESTINATION},
};

/// Where the broker to measure is; `cargo xtask bench` starts one and sets it.
const VARIABLE: &str = "RELAIS_TEST_KAFKA";
const PARTITIONS: i32 = 8;
const OUT_TARGET: f64 = 0.6;
/// How long one question to the broker may take.
const PATIENCE: Duration = Duration::from_secs(30);

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
    Ok(())
}

async fn out<D: Database>(
    database: &D,
    broker: &Broker,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let rows = options.size.rows;
    let bed = database.bed("kafka_out").await?;
    let (mut raw, mut nothing, mut kafka) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=options.size.relay_rounds {
        eprintln!("{} outbox to kafka, round {round}: raw, relay to nothing, to kafka", D::NAME);
        raw.push(raw_rate(&bed, rows).await?);
        progress(&raw);
        load(&bed, rows).await?;
        nothing.push(relay(&bed, Counter::new(rows)).await?.rate);
        progress(&nothing);
        load(&bed, rows).await?;
        let topic = broker.topic().await?;
        let counter = Counter::before(Box::new(broker.publisher(&topic)?), rows);
        kafka.push(relay(&bed, counter).await?.rate);
        progress(&kafka);
        broker.delete(&topic).await?;
    }
    bed.remove().await?;
    let entry = |name, raw, target, note: &str| Entry {
        store: D::NAME,
        name,
        unit: Unit::PerSecond,
        raw,
        relais: kafka.clone(),
        target,
        note: note.into(),
    };
    report.add(entry(
        format!("outbox to kafka, {rows} rows"),
        raw,
        Target::RatioAtLeast(OUT_TARGET),
        "beside the bare loop",
    ));
    report.add(entry(
        format!("outbox to kafka, {rows} rows"),
        nothing,
        Target::None,
        "beside the relay to nothing",
    ));
    Ok(())
}

async fn load<B: Bed>(bed: &B, rows: u64) -> Result<()> {
    bed.clear().await?;
    bed.add(rows, Rows::Pending).await?;
    bed.calm().await
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

    fn publisher(&self, topic: &str) -> Result<KafkaPublisher> {
        let connection = KafkaConnection::new(&self.address);
        KafkaPublisher::new(KafkaPublisherSettings::new(DESTINATION, connection, topic))
            .map_err(anyhow::Error::msg)
    }
}

fn patient() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(PATIENCE))
}
