//! Orders → Kafka → shipping, with a crash in the middle and every event sent twice. In the end each
//! order has one shipment, or the example fails.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context, bail, ensure};
use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
};
use relais::{
    Mapping, Pick, Publisher, Source,
    kafka::{
        KafkaConnection, KafkaPublisher, KafkaPublisherSettings, KafkaSource, KafkaSourceSettings,
    },
};
use uuid::Uuid;

use crate::{
    orders::OrderService,
    shipping::{SOURCE, ShippingService},
};

const ORDERS: i64 = 300;
const PARTITIONS: i32 = 3;

pub(crate) async fn run(orders: &OrderService, dir: &Path, brokers: &str) -> anyhow::Result<()> {
    let topic = Topic::create(brokers).await?;
    let placed_before = 3;
    for number in placed_before..ORDERS {
        orders.place(&format!("customer-{}", number % 20), 100 * number).await?;
    }
    let backup = dir.join("backup.db");
    orders.back_up(&backup).await?;

    let shipping = ShippingService::open(&dir.join("shipping.db")).await?;
    let running = shipping.start(topic.source()?);
    let published = orders.publish(topic.publisher()?).await?;
    eprintln!("{published} events published to Kafka");
    wait_until(async || Ok(shipping.shipments().await?.0 > 0)).await?;
    drop(running); // without a shutdown, as in a crash
    eprintln!("shipping crashed after {} shipments", shipping.shipments().await?.0);

    // An operator restores the backup: it does not contain what was published, so all of it happens again.
    let restored = OrderService::open(&backup).await?;
    let published = restored.publish(topic.publisher()?).await?;
    restored.close().await;
    eprintln!("{published} events published once more, from a restored backup");

    let running = shipping.start(topic.source()?);
    let observer = running.observer();
    let duplicates = || observer.snapshot().inbox.duplicates;
    wait_until(async || Ok(duplicates() >= published && shipping.shipments().await?.1 == ORDERS))
        .await?;
    running.stop().await;

    let (shipments, shipped_orders) = shipping.shipments().await?;
    ensure!(
        shipments == ORDERS && shipped_orders == ORDERS,
        "{shipments} shipments for {shipped_orders} of {ORDERS} orders"
    );
    eprintln!("{} duplicates recognised, {shipments} shipments for {ORDERS} orders", duplicates());
    shipping.close().await;
    Ok(())
}

/// A topic for this run alone.
struct Topic {
    brokers: String,
    name: String,
}

impl Topic {
    async fn create(brokers: &str) -> anyhow::Result<Self> {
        let name = format!("orders-{}", Uuid::now_v7());
        let admin: AdminClient<DefaultClientContext> =
            ClientConfig::new().set("bootstrap.servers", brokers).create()?;
        let topic = NewTopic::new(&name, PARTITIONS, TopicReplication::Fixed(1));
        let made = admin.create_topics([&topic], &AdminOptions::new()).await;
        let made = made.with_context(|| format!("no Kafka answers at {brokers}"))?;
        if let Some(Err((_, code))) = made.into_iter().next() {
            bail!("the topic {name} cannot be made: {code}");
        }
        Ok(Self { brokers: brokers.to_owned(), name })
    }

    fn publisher(&self) -> anyhow::Result<Arc<dyn Publisher>> {
        let connection = KafkaConnection::new(&self.brokers);
        let settings = KafkaPublisherSettings::new("orders", connection, &self.name);
        Ok(Arc::new(KafkaPublisher::new(settings)?))
    }

    fn source(&self) -> anyhow::Result<Box<dyn Source>> {
        let mapping = Mapping::json("orders")
            .event_type(Pick::header("event-type"))
            .aggregate_id(Pick::header("aggregate-id"));
        let connection = KafkaConnection::new(&self.brokers);
        let topics = vec![self.name.clone()];
        let settings = KafkaSourceSettings::new(SOURCE, connection, "shipping", topics, mapping);
        Ok(Box::new(KafkaSource::new(settings)?))
    }
}

async fn wait_until(mut done: impl AsyncFnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    const LOOKS_MAX: usize = 1_200;
    for _ in 0..LOOKS_MAX {
        if done().await? {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("it did not happen within a minute")
}
