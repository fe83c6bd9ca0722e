//! Helpers for the source: a database in memory, records to read, and an ingest worker.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewPartitions},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    message::OwnedHeaders,
    producer::{FutureProducer, FutureRecord},
};
use relais_connect::{
    SecretString,
    kafka::{KafkaConnection, KafkaSource, KafkaSourceSettings, KafkaStartOffset, SchemaRegistry},
};
use relais_core::{
    decode::Decoder,
    extract::Mapping,
    inbox::{AcceptOutcome, NewInbox, SourcePosition},
    source::{Positions, Source, SourceBatch, SourceError},
    store::{StoreError, StoreFuture},
};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::outgoing::{self, LONG};

/// A database that stores rows and positions together, and can be restored from a snapshot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) rows: HashMap<String, NewInbox>,
    /// Every message in the order in which it was first stored.
    pub(crate) order: Vec<String>,
    pub(crate) positions: BTreeMap<String, i64>,
    /// Messages that were duplicates.
    pub(crate) duplicates: usize,
    pub(crate) down: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Db(Arc<Mutex<Snapshot>>);

impl Db {
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn restore(&self, snapshot: Snapshot) {
        *self.0.lock().unwrap() = snapshot;
    }

    pub(crate) fn down(&self, down: bool) {
        self.0.lock().unwrap().down = down;
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().rows.len()
    }

    /// Stores rows and positions in one transaction.
    pub(crate) fn accept(&self, batch: &SourceBatch) -> Result<Vec<AcceptOutcome>, String> {
        let mut db = self.0.lock().unwrap();
        if db.down {
            return Err("the database is down".into());
        }
        let mut accepted = Vec::new();
        for message in &batch.messages {
            let id = &message.message_id;
            accepted.push(if db.rows.contains_key(id) {
                db.duplicates += 1;
                AcceptOutcome::Duplicate
            } else {
                db.rows.insert(id.clone(), message.clone());
                db.order.push(id.clone());
                AcceptOutcome::Stored
            });
        }
        for SourcePosition { partition, position, .. } in &batch.positions {
            db.positions.insert(partition.clone(), *position);
        }
        Ok(accepted)
    }
}

impl Positions for Db {
    fn positions(&self, source: String) -> StoreFuture<'_, Vec<SourcePosition>> {
        Box::pin(async move {
            let db = self.0.lock().unwrap();
            if db.down {
                return Err(StoreError::unavailable("the database is down"));
            }
            let row = |(partition, position): (&String, &i64)| SourcePosition {
                source: source.clone(),
                partition: partition.clone(),
                position: *position,
            };
            Ok(db.positions.iter().map(row).collect())
        })
    }
}

/// A topic, a group and a database for one test.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) brokers: String,
    pub(crate) topic: String,
    pub(crate) group: String,
    pub(crate) start: KafkaStartOffset,
    pub(crate) message_id: &'static str,
    pub(crate) decoder: Decoder,
    pub(crate) options: Vec<(&'static str, String)>,
    pub(crate) registry: Option<Arc<SchemaRegistry>>,
    pub(crate) unknown_schema_wait: Duration,
    pub(crate) db: Db,
}

impl World {
    /// Uses the real broker, if there is one.
    pub(crate) async fn new(what: &str, partitions: i32) -> Option<Self> {
        let world = Self::at(&outgoing::broker(what)?);
        outgoing::create(&world.brokers, &world.topic, partitions, &[]).await;
        Some(world)
    }

    pub(crate) fn at(brokers: &str) -> Self {
        let name = format!("source-{}", Uuid::now_v7());
        Self {
            brokers: brokers.to_owned(),
            topic: name.clone(),
            group: name,
            start: KafkaStartOffset::Earliest,
            message_id: "position",
            decoder: Decoder::Json,
            options: Vec::new(),
            registry: None,
            unknown_schema_wait: LONG,
            db: Db::default(),
        }
    }

    pub(crate) fn settings(&self) -> KafkaSourceSettings {
        let mapping = Mapping::json("test")
            .decoder(self.decoder)
            .message_id(self.message_id.parse().unwrap());
        let mut connection = KafkaConnection::new(&self.brokers);
        for (name, value) in &self.options {
            connection.options.push(((*name).to_owned(), SecretString::from(value.as_str())));
        }
        let topics = vec![self.topic.clone()];
        let settings = KafkaSourceSettings::new("test", connection, &self.group, topics, mapping);
        KafkaSourceSettings {
            start: self.start,
            registry: self.registry.clone(),
            unknown_schema_wait: self.unknown_schema_wait,
            ..settings
        }
    }

    /// Returns a source with the positions of the database.
    pub(crate) fn source(&self) -> KafkaSource {
        let mut source = KafkaSource::new(self.settings()).unwrap();
        source.attach(Arc::new(self.db.clone()));
        source
    }

    /// Reads until the database has `rows` rows, and closes the source.
    pub(crate) async fn read_until(&self, rows: usize) {
        let mut source = self.source();
        self.fill(&mut source, rows).await;
        source.close().await;
    }

    /// Reads with this source until the database has `rows` rows.
    pub(crate) async fn fill(&self, source: &mut KafkaSource, rows: usize) {
        let started = Instant::now();
        let mut errors = Vec::new();
        while self.db.count() < rows {
            let left = LONG.saturating_sub(started.elapsed());
            let have = self.db.count();
            let Ok(step) = tokio::time::timeout(left, self.step(source, 100)).await else {
                panic!("{have} of {rows} rows are stored; {errors:#?}");
            };
            match step {
                Ok(_) => {}
                Err(SourceError::Unavailable(reason)) => errors.push(reason),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Reads one batch, and stores and acknowledges it, or refuses it.
    pub(crate) async fn step(
        &self,
        source: &mut KafkaSource,
        max: usize,
    ) -> Result<usize, SourceError> {
        let batch = source.next(max).await?;
        match self.db.accept(&batch) {
            Ok(accepted) => {
                source.acknowledge(accepted).await?;
                Ok(batch.messages.len())
            }
            Err(reason) => {
                source.refuse(reason).await;
                Ok(0)
            }
        }
    }

    /// An ingest worker in the background.
    pub(crate) fn worker(&self) -> Worker {
        let (world, mut source) = (self.clone(), self.source());
        let (stop, mut stopped) = oneshot::channel::<()>();
        let handle = tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = &mut stopped => return source,
                    step = world.step(&mut source, 50) => {
                        if let Err(SourceError::Closed) = step {
                            panic!("the source closed by itself");
                        }
                    }
                }
            }
        });
        Worker { stop, handle }
    }

    /// Returns the next batch, ignoring errors before it.
    pub(crate) async fn batch(&self, source: &mut KafkaSource) -> SourceBatch {
        let started = Instant::now();
        loop {
            let left = LONG.saturating_sub(started.elapsed());
            match tokio::time::timeout(left, source.next(100)).await.expect("a batch comes") {
                Ok(batch) => return batch,
                Err(SourceError::Unavailable(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Returns the next error of the source.
    pub(crate) async fn error(&self, source: &mut KafkaSource) -> String {
        match tokio::time::timeout(LONG, source.next(100)).await.expect("a error comes") {
            Err(SourceError::Unavailable(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    /// Sends records one after the other, so that their order is that of the slice.
    pub(crate) async fn send(&self, records: &[Record]) {
        let producer: FutureProducer = ClientConfig::new()
            .set("bootstrap.servers", &self.brokers)
            .set("message.max.bytes", "20000000")
            .set("linger.ms", "0")
            .create()
            .unwrap();
        let mut sent = Vec::new();
        for record in records {
            let mut message: FutureRecord<'_, [u8], [u8]> =
                FutureRecord::to(&self.topic).partition(record.partition);
            message.key = record.key.as_deref();
            message.payload = record.value.as_deref();
            message.timestamp = record.timestamp;
            message.headers = record.headers.clone();
            sent.push(producer.send(message, LONG));
        }
        for sent in sent {
            sent.await.map_err(|(error, _)| error).unwrap();
        }
    }

    /// Returns `count` plain records, `{"n": 0}` and so on, spread over the partitions.
    pub(crate) async fn send_plain(&self, count: usize, partitions: i32) {
        let record = |n: usize| Record {
            partition: i32::try_from(n).unwrap() % partitions,
            ..Record::new(format!("{{\"n\":{n}}}").as_bytes())
        };
        self.send(&(0..count).map(record).collect::<Vec<_>>()).await;
    }

    fn observer(&self) -> BaseConsumer {
        ClientConfig::new()
            .set("bootstrap.servers", &self.brokers)
            .set("group.id", &self.group)
            .create()
            .unwrap()
    }

    /// Returns the group's offset of each partition; nothing if the broker does not answer.
    pub(crate) fn committed(&self, partitions: i32) -> Vec<Option<i64>> {
        let mut list = TopicPartitionList::new();
        list.add_partition_range(&self.topic, 0, partitions - 1);
        let Ok(found) = self.observer().committed_offsets(list, LONG) else { return Vec::new() };
        let offset = |offset| match offset {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        };
        found.elements().iter().map(|element| offset(element.offset())).collect()
    }

    pub(crate) fn ends(&self, partitions: i32) -> Vec<Option<i64>> {
        let observer = self.observer();
        let high = |p| observer.fetch_watermarks(&self.topic, p, LONG).ok().map(|(_, high)| high);
        (0..partitions).map(high).collect()
    }

    /// Waits until the group has no lag.
    pub(crate) async fn no_lag(&self, partitions: i32) {
        let is_so = || {
            let ends = self.ends(partitions);
            ends.iter().all(Option::is_some) && self.committed(partitions) == ends
        };
        until("the group has no lag", is_so).await;
    }

    /// Returns the number of members of the group.
    pub(crate) fn members(&self) -> usize {
        let groups = self.observer().fetch_group_list(Some(&self.group), LONG).unwrap();
        groups.groups().iter().map(|group| group.members().len()).sum()
    }

    pub(crate) fn admin(&self) -> AdminClient<DefaultClientContext> {
        ClientConfig::new().set("bootstrap.servers", &self.brokers).create().unwrap()
    }

    pub(crate) async fn delete_topic(&self) {
        let options = AdminOptions::new().operation_timeout(Some(LONG));
        for done in self.admin().delete_topics(&[&self.topic], &options).await.unwrap() {
            done.unwrap();
        }
    }

    pub(crate) async fn create_topic(&self, partitions: i32) {
        outgoing::create(&self.brokers, &self.topic, partitions, &[]).await;
    }

    pub(crate) async fn add_partitions(&self, total: usize) {
        let options = AdminOptions::new().operation_timeout(Some(LONG));
        let more = NewPartitions::new(&self.topic, total);
        for done in self.admin().create_partitions(&[more], &options).await.unwrap() {
            done.unwrap();
        }
    }

    /// Returns the `n` of every plain row, sorted.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        let rows = self.db.snapshot().rows;
        let mut numbers: Vec<u64> = rows.values().map(number).collect();
        numbers.sort_unstable();
        numbers
    }
}

/// Returns the `n` of a plain row.
pub(crate) fn number(row: &NewInbox) -> u64 {
    let relais_core::inbox::Content::Json(json) = &row.content else { panic!("{row:?}") };
    serde_json::from_str::<serde_json::Value>(json).unwrap()["n"].as_u64().unwrap()
}

/// A record to send.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) partition: i32,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) timestamp: Option<i64>,
    pub(crate) headers: Option<OwnedHeaders>,
}

impl Record {
    pub(crate) fn new(value: &[u8]) -> Self {
        let value = Some(value.to_vec());
        Self { partition: 0, key: None, value, timestamp: None, headers: None }
    }
}

pub(crate) struct Worker {
    stop: oneshot::Sender<()>,
    handle: tokio::task::JoinHandle<KafkaSource>,
}

impl Worker {
    /// Stops it between two batches and returns the source.
    pub(crate) async fn stop(self) -> KafkaSource {
        let _ = self.stop.send(());
        self.handle.await.unwrap()
    }

    /// Drops it at any point.
    pub(crate) fn abort(self) {
        self.handle.abort();
    }
}

/// Polls until the condition holds.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < LONG, "waited too long until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
