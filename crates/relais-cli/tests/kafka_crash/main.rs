//! Kafka → inbox with two processes, one of which is killed again and again: every record becomes
//! one row, order per key holds, and the group's lag is zero in the end.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

// Some helpers are made for other tests of the program.
#[allow(dead_code)]
#[path = "../support/broker.rs"]
mod broker;
mod database;
#[allow(dead_code)]
#[path = "../support/node.rs"]
mod node;
mod plan;
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;

use std::{
    collections::{HashMap, HashSet},
    thread,
    time::{Duration, Instant},
};

use rdkafka::{
    error::{KafkaError, RDKafkaErrorCode},
    message::{Header, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, Producer},
};

use broker::{Broker, Topic};
use database::{Database, Row};
use node::{Node, kill_until};
use plan::{Plan, Record};
use support::{Site, postgres::PostgresSchema};

const PARTITIONS: i32 = 8;
/// Time limit of a condition.
const PATIENCE: Duration = Duration::from_secs(300);
/// Pause of the producer when its queue is full.
const GLANCE: Duration = Duration::from_millis(100);
/// Interval of reads of the database, long enough not to disturb it.
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// The size of a run, and the faults that it must have to count.
struct Size {
    records: usize,
    keys: usize,
    /// The records are sent over this time, so that there is work whenever a process is killed.
    spread: Duration,
    /// Kills of a process that had received something.
    kills_min: usize,
    goal: Goal,
}

/// The end of the run. A debug build needs longer to handle the rows than to store them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goal {
    Stored,
    Handled,
}

#[test]
fn two_processes_one_of_them_killed_again_and_again_store_every_record_once_on_postgres() {
    let Some(broker) = Broker::from_environment() else { return };
    let Some(schema) = PostgresSchema::new() else { return };
    let size = Size {
        records: 200_000,
        keys: 1_000,
        spread: Duration::from_secs(20),
        kills_min: 5,
        goal: Goal::Stored,
    };
    let url = schema.url.clone();
    survives(&broker, &Site::new(), &url, &Database::Postgres(schema), &size);
}

#[test]
fn two_processes_one_of_them_killed_again_and_again_store_every_record_once_on_sqlite() {
    let Some(broker) = Broker::from_environment() else { return };
    let site = Site::new();
    let database = Database::Sqlite(site.path("crash.db"));
    let size = Size {
        records: 20_000,
        keys: 100,
        spread: Duration::from_secs(5),
        kills_min: 2,
        goal: Goal::Handled,
    };
    survives(&broker, &site, "sqlite:crash.db", &database, &size);
}

fn survives(broker: &Broker, site: &Site, store: &str, database: &Database, size: &Size) {
    let started = Instant::now();
    let topic = broker.topic("crash", PARTITIONS);
    let group = &topic.name;
    site.write("relais.toml", &settings(broker, store, &topic));
    let plan = Plan::new(size.records, size.keys);
    let wanted = i64::try_from(plan.distinct() + plan.garbage).unwrap();

    let steady = Node::start(site, "steady");
    let kills = thread::scope(|scope| {
        scope.spawn(|| produce(broker, &topic, &plan, size.spread));
        let is_at_work = |node: &mut Node| node.received() > 0;
        kill_until(site, is_at_work, || {
            let stored = database.progress().map_or(0, |(stored, _)| stored);
            assert!(stored <= wanted, "{stored} rows for {wanted} records: one was stored twice");
            assert!(started.elapsed() < PATIENCE, "{stored} of {wanted} rows\n{}", steady.said());
            stored == wanted
        })
    });
    // The other process takes over the partitions of the killed one and commits their offsets.
    let ends = topic.ends();
    assert_eq!(usize::try_from(ends.iter().sum::<i64>()).unwrap(), size.records);
    wait(
        started,
        || topic.committed(group) == ends,
        || format!("committed {:?} of {ends:?}\n{}", topic.committed(group), steady.said()),
    );
    if size.goal == Goal::Handled {
        wait(
            started,
            || database.progress() == Some((wanted, wanted)),
            || format!("{:?} of {wanted} finished\n{}", database.progress(), steady.said()),
        );
    }
    let duplicates = steady.stop();
    assert_eq!(topic.committed(group), ends, "lag after the end");

    check_rows(&database.rows(), &plan, size.goal);
    assert_eq!(database.dead_letters(), 0);
    assert!(duplicates > 0, "the run was too easy: no duplicate came to the steady process");
    assert!(kills.at_work >= size.kills_min, "the run was too easy: {kills:?}");
    eprintln!(
        "{} records, {} repeated, {} garbage: {wanted} rows; {kills:?}; {duplicates} duplicates \
         came to the steady process; {:.1?}",
        size.records,
        plan.repeated,
        plan.garbage,
        started.elapsed(),
    );
}

fn settings(broker: &Broker, store: &str, topic: &Topic<'_>) -> String {
    // A dead process is noticed after two seconds instead of 45. No message comes of an empty list.
    format!(
        "[store]\nurl = \"{store}\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n\
         [lanes]\nlease = \"2s\"\n\
         [[source]]\nname = \"counted\"\nkind = \"kafka\"\nbrokers = \"{}\"\n\
         group = \"{topic}\"\ntopics = [\"{topic}\"]\nsource_system = \"counter\"\n\
         message_id = \"header:message-id\"\naggregate_id = \"key\"\n\
         [source.options]\nsession.timeout.ms = 2000\nheartbeat.interval.ms = 500\n\
         [[route]]\non = \"Counted\"\neach = \"payload:/none\"\ndestination = \"missing\"\n\
         [[destination]]\nname = \"missing\"\nkind = \"log\"\n",
        broker.address,
        topic = topic.name,
    )
}

fn produce(broker: &Broker, topic: &Topic<'_>, plan: &Plan, spread: Duration) {
    const SLICES: u32 = 50;
    let producer: BaseProducer = broker
        .client()
        .set("partitioner", "murmur2_random")
        .set("enable.idempotence", "true")
        .set("linger.ms", "20")
        .create()
        .unwrap();
    let slice = plan.records.len().div_ceil(usize::try_from(SLICES).unwrap());
    for records in plan.records.chunks(slice) {
        let next = Instant::now() + spread / SLICES;
        for record in records {
            send(&producer, &topic.name, record);
        }
        producer.flush(PATIENCE).unwrap();
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

fn send(producer: &BaseProducer, topic: &str, record: &Record) {
    let (key, payload, id) = match record {
        Record::Garbage { key } => (key, "{\"type\":\"Counted\",\"key\":".to_owned(), None),
        Record::Message { key, seq } => {
            let payload = format!(r#"{{"type":"Counted","key":{key},"seq":{seq},"none":[]}}"#);
            (key, payload, Some(message_id(*key, *seq)))
        }
    };
    let key = key.to_string();
    let mut record = BaseRecord::to(topic).key(&key).payload(&payload);
    if let Some(id) = &id {
        let header = Header { key: "message-id", value: Some(id) };
        record = record.headers(OwnedHeaders::new().insert(header));
    }
    while let Err((error, again)) = producer.send(record) {
        let full = KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull);
        assert_eq!(error, full, "only a full queue may refuse");
        producer.poll(GLANCE);
        record = again;
    }
}

fn message_id(key: usize, seq: usize) -> String {
    format!("{key}-{seq}")
}

fn wait(started: Instant, mut done: impl FnMut() -> bool, state: impl Fn() -> String) {
    while !done() {
        assert!(started.elapsed() < PATIENCE, "{}", state());
        thread::sleep(CHECK_EVERY);
    }
}

fn check_rows(rows: &[Row], plan: &Plan, goal: Goal) {
    let (garbage, messages): (Vec<&Row>, Vec<&Row>) =
        rows.iter().partition(|row| row.status == "SERDE_ERROR");
    let places: HashSet<_> =
        garbage.iter().map(|row| (row.partition_num, row.offset_num)).collect();
    assert_eq!((garbage.len(), places.len()), (plan.garbage, plan.garbage), "garbage rows");

    let mut last: HashMap<usize, usize> = HashMap::new();
    for row in messages {
        let waits = goal == Goal::Stored && row.status == "RECEIVED";
        assert!(waits || row.status == "PROCESSED", "{row:?}");
        let (key, seq) = row.message_id.split_once('-').unwrap();
        let (key, seq): (usize, usize) = (key.parse().unwrap(), seq.parse().unwrap());
        assert_eq!(row.msg_key, key.to_string(), "{row:?}");
        // One more than the last one of its key: none lost, none doubled, none overtaken.
        let before = last.insert(key, seq).unwrap_or(0);
        assert_eq!(seq, before + 1, "order of key {key}: {row:?}");
    }
    assert_eq!(last, plan.messages, "the last message of each key");
}
