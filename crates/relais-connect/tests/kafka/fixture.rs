//! The places of the contract: a topic behind a proxy, and sources whose database is in memory.
//!
//! A broker returns its own address to its clients, so the proxy must be at the one address that the broker
//! names: the checks run one after the other.

use std::{collections::BTreeSet, hash::BuildHasher, sync::Arc, time::Duration};

use rdkafka::{
    Message,
    message::{Header, Headers as _, OwnedHeaders, OwnedMessage},
};
use relais_connect::kafka::{KafkaConnection, KafkaPublisher, KafkaSource, KafkaSourceSettings};
use relais_core::{
    async_trait,
    extract::{Mapping, Pick},
    inbox::AcceptOutcome,
    outbox::OutboxRow,
    publisher::Publisher,
    source::{Source, SourceBatch, SourceError},
};
use relais_testkit::{
    connector::{PublisherFixture, SourceFixture, WireMessage, soon},
    proxy::FaultProxy,
};
use tokio::sync::{Mutex, MutexGuard};

use crate::{
    incoming::{Db, Record, World},
    outgoing,
};

const PARTITIONS: i32 = 3;
/// The largest record of the topic.
const RECORD_MAX: usize = 1 << 20;
/// The pause before a check looks again.
const PAUSE: Duration = Duration::from_millis(50);

static ADDRESS: Mutex<()> = Mutex::const_new(());

pub(crate) struct Place {
    /// The topic and the database, without the proxy.
    world: World,
    proxy: FaultProxy,
    _alone: MutexGuard<'static, ()>,
}

pub(crate) async fn place() -> Option<Place> {
    let what = "the contract of connectors";
    let brokers = outgoing::broker(what)?;
    let listener = outgoing::server("RELAIS_TEST_KAFKA_PROXIED", what)?;
    let (server, advertised) = listener.split_once(',').unwrap();
    let alone = ADDRESS.lock().await;
    let (server, advertised) = (server.parse().unwrap(), advertised.parse().unwrap());
    let binding = async {
        loop {
            // The listener of the check before closes when its runtime has ended.
            match FaultProxy::bind(advertised, server).await {
                Ok(proxy) => return proxy,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    };
    let proxy = soon("the address is free", binding).await;
    let world = World::at(&brokers);
    let limit = RECORD_MAX.to_string();
    let config = [("max.message.bytes", limit.as_str())];
    outgoing::create(&brokers, &world.topic, PARTITIONS, &config).await;
    Some(Place { world, proxy, _alone: alone })
}

/// A source whose batches are stored, with their positions, before they are acknowledged.
struct StoringSource {
    source: KafkaSource,
    db: Db,
    batch: SourceBatch,
}

#[async_trait]
impl Source for StoringSource {
    async fn next(&mut self, max: usize) -> Result<SourceBatch, SourceError> {
        let batch = self.source.next(max).await?;
        let (messages, positions) = (batch.messages.clone(), batch.positions.clone());
        self.batch = SourceBatch { messages, positions };
        Ok(batch)
    }

    async fn acknowledge(&mut self, _accepted: Vec<AcceptOutcome>) -> Result<(), SourceError> {
        let accepted = self.db.accept(&self.batch).unwrap();
        self.source.acknowledge(accepted).await
    }

    async fn refuse(&mut self, reason: String) {
        self.source.refuse(reason).await;
    }

    async fn pause(&mut self) {
        self.source.pause().await;
    }

    async fn resume(&mut self) {
        self.source.resume().await;
    }

    async fn close(&mut self) {
        self.source.close().await;
    }
}

#[async_trait]
impl SourceFixture for Place {
    async fn source(&self) -> Box<dyn Source> {
        let mapping = Mapping::json("test")
            .message_id("header:message-id".parse().unwrap())
            .aggregate_id(Pick::Key);
        let mut connection = KafkaConnection::new(&self.proxy.address().to_string());
        // A source that was dropped without a shutdown is soon out of its group.
        for (name, value) in [("session.timeout.ms", "3000"), ("heartbeat.interval.ms", "500")] {
            connection.options.push((name.to_owned(), value.into()));
        }
        let (group, topics) = (&self.world.group, vec![self.world.topic.clone()]);
        let settings = KafkaSourceSettings::new("test", connection, group, topics, mapping);
        let mut source = KafkaSource::new(settings).unwrap();
        source.attach(Arc::new(self.world.db.clone()));
        let db = self.world.db.clone();
        Box::new(StoringSource { source, db, batch: SourceBatch::default() })
    }

    async fn send(&self, messages: &[WireMessage]) {
        let records: Vec<Record> = messages.iter().map(record).collect();
        self.world.send(&records).await;
    }

    fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }
}

/// Returns the record of a message. One without a body is a tombstone.
fn record(message: &WireMessage) -> Record {
    let id = Header { key: "message-id", value: Some(&message.id) };
    let mut headers = OwnedHeaders::new().insert(id);
    for (name, value) in &message.headers {
        headers = headers.insert(Header { key: name, value: Some(value) });
    }
    let hasher = std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default();
    let partition = hasher.hash_one(&message.key) % u64::from(PARTITIONS.cast_unsigned());
    Record {
        partition: i32::try_from(partition).unwrap(),
        key: Some(message.key.clone().into_bytes()),
        value: (!message.body.is_empty()).then(|| message.body.clone()),
        timestamp: None,
        headers: Some(headers),
    }
}

#[async_trait]
impl PublisherFixture for Place {
    async fn publisher(&self) -> Box<dyn Publisher> {
        let address = self.proxy.address().to_string();
        Box::new(outgoing::publisher(&address, &self.world.topic))
    }

    async fn unreachable(&self) -> Box<dyn Publisher> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let settings = outgoing::settings(&listener.local_addr().unwrap().to_string(), "orders");
        drop(listener);
        Box::new(KafkaPublisher::new(settings).unwrap())
    }

    async fn received(&self, count: usize) -> Vec<WireMessage> {
        let arrived = async {
            loop {
                let (brokers, topic) = (self.world.brokers.clone(), self.world.topic.clone());
                let read = tokio::task::spawn_blocking(move || outgoing::read(&brokers, &topic));
                let received: Vec<_> = read.await.unwrap().iter().map(wire).collect();
                let ids: BTreeSet<_> = received.iter().map(|message| &message.id).collect();
                if ids.len() >= count {
                    return received;
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        soon("the records are in the topic", arrived).await
    }

    fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }

    fn oversized(&self) -> usize {
        RECORD_MAX + 1
    }

    fn unroutable(&self, _number: usize) -> Option<OutboxRow> {
        None
    }
}

fn wire(record: &OwnedMessage) -> WireMessage {
    let key = String::from_utf8(record.key().unwrap().to_vec()).unwrap();
    let mut message = WireMessage::new("", &key, record.payload().unwrap_or_default());
    for header in record.headers().unwrap().iter() {
        message.headers.push((header.key.to_owned(), header.value.unwrap_or_default().to_vec()));
    }
    let id = message.header("message-id").unwrap_or_default().to_vec();
    message.id = String::from_utf8(id).unwrap();
    message
}
