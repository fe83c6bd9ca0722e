//! A topic for this run alone.

use std::time::Duration;

use anyhow::{Context, bail};
use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    message::{Header, OwnedHeaders},
    producer::{FutureProducer, FutureRecord},
};
use uuid::Uuid;

const PARTITIONS: i32 = 3;
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Topic {
    pub(crate) brokers: String,
    pub(crate) name: String,
    producer: FutureProducer,
}

impl Topic {
    pub(crate) async fn create(brokers: &str) -> anyhow::Result<Option<Self>> {
        let name = format!("families-{}", Uuid::now_v7());
        let topic = NewTopic::new(&name, PARTITIONS, TopicReplication::Fixed(1));
        let made = admin(brokers)?.create_topics([&topic], &AdminOptions::new()).await;
        let made = made.with_context(|| format!("no Kafka answers at {brokers}"))?;
        if let Some(Err((_, code))) = made.into_iter().next() {
            bail!("the topic {name} cannot be made: {code}");
        }
        let producer = ClientConfig::new().set("bootstrap.servers", brokers).create()?;
        Ok(Some(Self { brokers: brokers.to_owned(), name, producer }))
    }

    pub(crate) async fn send(&self, id: &str, body: &str) -> anyhow::Result<()> {
        let headers = OwnedHeaders::new().insert(Header { key: "message-id", value: Some(id) });
        let record = FutureRecord::to(&self.name).key(id).payload(body).headers(headers);
        let sent = self.producer.send(record, PATIENCE).await;
        sent.map_err(|(error, _)| error).context("a record was not taken")?;
        Ok(())
    }

    pub(crate) async fn delete(self) {
        if let Ok(admin) = admin(&self.brokers) {
            let _ = admin.delete_topics(&[&self.name], &AdminOptions::new()).await;
        }
    }
}

fn admin(brokers: &str) -> anyhow::Result<AdminClient<DefaultClientContext>> {
    Ok(ClientConfig::new().set("bootstrap.servers", brokers).create()?)
}
