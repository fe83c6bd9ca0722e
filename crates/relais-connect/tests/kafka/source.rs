//! Reading from a real broker: nothing is lost, whichever side loses its state.

use std::time::Duration;

use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    admin::AdminOptions,
    producer::{FutureProducer, FutureRecord, Producer},
};
use relais_connect::kafka::KafkaStartOffset;
use relais_core::source::{Source, SourceBatch, SourceError};

use crate::{
    incoming::{Record, World, number, until},
    outgoing::LONG,
};

#[tokio::test]
async fn every_record_of_every_partition_is_stored_once_and_the_group_has_no_lag() {
    let Some(world) = World::new("reading several partitions", 4).await else { return };
    world.send_plain(1_000, 4).await;
    let mut source = world.source();
    world.fill(&mut source, 1_000).await;
    world.no_lag(4).await;
    source.close().await;
    let db = world.db.snapshot();
    assert_eq!(world.numbers(), (0..1_000).collect::<Vec<_>>());
    assert_eq!(db.duplicates, 0);
    let offsets: Vec<i64> = db
        .positions
        .iter()
        .filter(|(key, _)| !key.ends_with("topic-id"))
        .map(|(_, position)| *position)
        .collect();
    assert_eq!(offsets, [250; 4]);
}

#[tokio::test]
async fn order_within_a_partition_is_the_order_of_the_topic() {
    let Some(world) = World::new("the order of records", 3).await else { return };
    world.send_plain(600, 3).await;
    world.read_until(600).await;
    let db = world.db.snapshot();
    for partition in 0..3 {
        let rows = db.order.iter().map(|id| &db.rows[id]);
        let offsets: Vec<i64> =
            rows.filter(|row| row.partition_num == partition).map(|row| row.offset_num).collect();
        assert_eq!(offsets, (0..200).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_new_group_can_start_at_the_next_record() {
    let Some(mut world) = World::new("starting at the end", 1).await else { return };
    world.start = KafkaStartOffset::Latest;
    world.options.push(("topic.metadata.refresh.interval.ms", "500".into()));
    world.send_plain(5, 1).await;
    let worker = world.worker();
    until("the group has begun", || world.committed(1) == [Some(5)]).await;
    world.send(&[Record::new(b"{\"n\":5}")]).await;
    until("the new record is stored", || world.db.count() == 1).await;
    // A partition that is added later is read from its beginning, whenever it is noticed.
    world.add_partitions(2).await;
    world.send(&[Record { partition: 1, ..Record::new(b"{\"n\":6}") }]).await;
    until("the record of the new partition is stored", || world.db.count() == 2).await;
    worker.stop().await.close().await;
    assert_eq!(world.numbers(), [5, 6]);
}

#[tokio::test]
async fn a_refused_batch_is_read_again() {
    let Some(world) = World::new("refusing a batch", 2).await else { return };
    world.send_plain(40, 2).await;
    let mut source = world.source();
    world.fill(&mut source, 1).await;
    world.send_plain(10, 2).await;
    world.db.down(true);
    let refused = world.batch(&mut source).await;
    assert!(!refused.messages.is_empty());
    source.refuse("the database is down".into()).await;
    // The positions are read from the database, which does not answer yet.
    let error = world.error(&mut source).await;
    assert!(error.contains("the database is down"), "{error}");
    world.db.down(false);
    world.fill(&mut source, 50).await;
    source.close().await;
    assert_eq!(world.db.snapshot().duplicates, 0);
}

#[tokio::test]
async fn a_batch_read_ahead_follows_the_one_before_and_is_refused_with_it() {
    let Some(world) = World::new("reading ahead", 1).await else { return };
    world.send_plain(30, 1).await;
    let mut source = world.source();
    let first = source.next(10).await.unwrap();
    let ahead = source.read_ahead(10).await.unwrap();
    let offsets = |batch: &SourceBatch| -> Vec<i64> {
        batch.messages.iter().map(|message| message.offset_num).collect()
    };
    assert_eq!(offsets(&ahead)[0], offsets(&first).last().unwrap() + 1);
    source.refuse("the database is down".into()).await;
    let again = source.next(10).await.unwrap();
    assert_eq!(offsets(&again)[0], offsets(&first)[0]);
    world.db.accept(&again).unwrap();
    // Dropped while it waits for the batch in flight: nothing is lost.
    let ahead = source.read_ahead(10);
    let _ = tokio::time::timeout(Duration::from_millis(1), ahead).await;
    source.acknowledge(Vec::new()).await.unwrap();
    world.fill(&mut source, 30).await;
    source.close().await;
    assert_eq!(world.db.snapshot().duplicates, 0);
}

#[tokio::test]
async fn a_batch_that_was_not_settled_is_read_again() {
    let Some(world) = World::new("leaving a batch unsettled", 1).await else { return };
    world.send_plain(10, 1).await;
    let mut source = world.source();
    let first = world.batch(&mut source).await;
    let again = world.batch(&mut source).await;
    assert_eq!(first.messages[0].message_id, again.messages[0].message_id);
    world.db.accept(&again).unwrap();
    source.acknowledge(Vec::new()).await.unwrap();
    world.fill(&mut source, 10).await;
}

#[tokio::test]
async fn dropping_the_future_of_the_next_batch_loses_nothing() {
    let Some(world) = World::new("dropping a future", 2).await else { return };
    let mut source = world.source();
    let mut sent = 0;
    while world.db.count() < 60 {
        if sent < 60 {
            world.send_plain(10, 2).await;
            sent += 10;
        }
        for micros in [0, 100, 3_000, 200_000] {
            let soon = tokio::time::timeout(Duration::from_micros(micros), source.next(7)).await;
            if let Ok(Ok(batch)) = soon {
                assert!(batch.messages.len() <= 7);
                world.db.accept(&batch).unwrap();
                source.acknowledge(Vec::new()).await.unwrap();
            }
        }
    }
    assert_eq!(world.db.snapshot().duplicates, 0);
    source.close().await;
}

#[tokio::test]
async fn records_are_read_again_after_the_database_was_restored() {
    let Some(world) = World::new("a restored database", 2).await else { return };
    world.send_plain(30, 2).await;
    world.read_until(30).await;
    let snapshot = world.db.snapshot();
    world.send_plain(50, 2).await;
    world.read_until(80).await;
    world.no_lag(2).await;
    world.db.restore(snapshot);
    world.read_until(80).await;
    world.no_lag(2).await;
    assert_eq!(world.db.snapshot().duplicates, 0);
}

#[tokio::test]
async fn a_database_restored_while_running_gets_its_records_again_after_the_first_failure() {
    let Some(world) = World::new("a failover of the database", 1).await else { return };
    world.send_plain(10, 1).await;
    let mut source = world.source();
    world.fill(&mut source, 10).await;
    let replica = world.db.snapshot();
    world.send_plain(10, 1).await;
    world.fill(&mut source, 20).await;
    world.db.down(true);
    world.send_plain(10, 1).await;
    assert_eq!(world.step(&mut source, 100).await.unwrap(), 0);
    world.db.restore(replica);
    world.fill(&mut source, 30).await;
    source.close().await;
}

#[tokio::test]
async fn after_a_crash_between_store_and_commit_the_group_catches_up_without_new_records() {
    let Some(world) = World::new("a death before the commit", 2).await else { return };
    world.send_plain(20, 2).await;
    let mut source = world.source();
    let mut stored = 0;
    while stored < 20 {
        let batch = world.batch(&mut source).await;
        stored += batch.messages.len();
        world.db.accept(&batch).unwrap();
        if stored == 20 {
            drop(source);
            break;
        }
        source.acknowledge(Vec::new()).await.unwrap();
    }
    assert_ne!(world.committed(2), [Some(10), Some(10)]);
    let worker = world.worker();
    world.no_lag(2).await;
    worker.stop().await.close().await;
    assert_eq!(world.db.snapshot().duplicates, 0);
}

#[tokio::test]
async fn records_deleted_before_they_were_read_are_counted() {
    let Some(world) = World::new("records deleted unread", 1).await else { return };
    world.send_plain(10, 1).await;
    world.read_until(10).await;
    world.send_plain(40, 1).await;
    let mut before = TopicPartitionList::new();
    before.add_partition_offset(&world.topic, 0, Offset::Offset(30)).unwrap();
    world.admin().delete_records(&before, &AdminOptions::new()).await.unwrap();
    let mut source = world.source();
    let counters = source.counters();
    world.fill(&mut source, 30).await;
    assert_eq!((counters.missed(), counters.recreated()), (20, 0));
    // The same while running.
    world.db.down(true);
    world.send_plain(40, 1).await;
    assert_eq!(world.step(&mut source, 1).await.unwrap(), 0);
    before.set_partition_offset(&world.topic, 0, Offset::Offset(60)).unwrap();
    world.admin().delete_records(&before, &AdminOptions::new()).await.unwrap();
    world.db.down(false);
    world.fill(&mut source, 60).await;
    assert_eq!(counters.missed(), 30);
    world.no_lag(1).await;
    source.close().await;
}

#[tokio::test]
async fn a_missing_topic_is_named_and_read_once_it_exists() {
    let what = "an unknown topic";
    let Some(brokers) = crate::outgoing::broker(what) else { return };
    let mut world = World::at(&brokers);
    world.options.push(("topic.metadata.refresh.interval.ms", "200".into()));
    let mut source = world.source();
    let error = world.error(&mut source).await;
    assert!(error.contains(&world.topic), "{error}");
    assert!(error.contains("create the topic"), "{error}");
    world.create_topic(1).await;
    world.send_plain(3, 1).await;
    world.fill(&mut source, 3).await;
    source.close().await;
}

#[tokio::test]
async fn an_unreachable_broker_is_named_and_closing_does_not_wait_for_it() {
    let world = World::at("127.0.0.1:1");
    let mut source = world.source();
    let error = world.error(&mut source).await;
    assert!(error.contains("127.0.0.1:1"), "{error}");
    tokio::time::timeout(LONG, source.close()).await.expect("it closes");
    assert!(matches!(source.next(1).await, Err(SourceError::Closed)));
}

#[tokio::test]
async fn tls_and_sasl_errors_are_explained_without_the_secret() {
    let Some(mut world) = World::new("trouble with TLS and SASL", 1).await else { return };
    for protocol in ["SASL_PLAINTEXT", "SSL", "SASL_SSL"] {
        world.options = vec![
            ("security.protocol", protocol.into()),
            ("sasl.mechanism", "PLAIN".into()),
            ("sasl.username", "ann".into()),
            ("sasl.password", "hunter2".into()),
        ];
        let mut source = world.source();
        let error = world.error(&mut source).await;
        assert!(error.contains(&world.brokers), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
        source.close().await;
    }
}

#[tokio::test]
async fn a_source_that_is_too_slow_for_the_group_rejoins() {
    let Some(mut world) = World::new("exceeding max.poll.interval.ms", 1).await else { return };
    world.options.push(("max.poll.interval.ms", "1500".into()));
    world.options.push(("session.timeout.ms", "1000".into()));
    world.send_plain(20, 1).await;
    let mut source = world.source();
    let batch = source.next(10).await.unwrap();
    // The database is slow; meanwhile the group removes the member.
    until("the group gives up on us", || world.members() == 0).await;
    world.db.accept(&batch).unwrap();
    source.acknowledge(Vec::new()).await.unwrap();
    world.fill(&mut source, 20).await;
    world.no_lag(1).await;
    assert_eq!(world.db.snapshot().duplicates, 0);
    source.close().await;
}

#[tokio::test]
async fn a_batch_is_bounded_in_bytes_and_a_larger_record_passes_alone() {
    let Some(world) = World::new("large records", 1).await else { return };
    let large = |n: usize, bytes: usize| {
        Record::new(format!("{{\"n\":{n},\"fill\":\"{}\"}}", "x".repeat(bytes)).as_bytes())
    };
    let mut records: Vec<Record> = (0..20).map(|n| large(n, 1_000_000)).collect();
    records.push(large(20, 10_000_000));
    records.push(large(21, 10_000_000));
    world.send(&records).await;
    let mut source = world.source();
    while world.db.count() < records.len() {
        let batch = world.batch(&mut source).await;
        let sizes: Vec<usize> =
            batch.messages.iter().map(|m| if number(m) < 20 { 1 } else { 10 }).collect();
        let before_last: usize = sizes.iter().take(sizes.len() - 1).sum();
        assert!(before_last <= 8, "{sizes:?}");
        world.db.accept(&batch).unwrap();
        source.acknowledge(Vec::new()).await.unwrap();
    }
    source.close().await;
}

#[tokio::test]
async fn only_committed_transactions_are_read() {
    let Some(world) = World::new("transactions of others", 1).await else { return };
    let producer: FutureProducer = ClientConfig::new()
        .set("bootstrap.servers", &world.brokers)
        .set("transactional.id", &world.group)
        .create()
        .unwrap();
    producer.init_transactions(LONG).unwrap();
    for n in 0..6 {
        producer.begin_transaction().unwrap();
        let value = format!("{{\"n\":{n}}}");
        let record: FutureRecord<'_, [u8], str> = FutureRecord::to(&world.topic).payload(&value);
        producer.send(record, LONG).await.map_err(|(error, _)| error).unwrap();
        if n % 2 == 0 {
            producer.commit_transaction(LONG).unwrap();
        } else {
            producer.abort_transaction(LONG).unwrap();
        }
    }
    let mut source = world.source();
    world.fill(&mut source, 3).await;
    // Transaction markers are skipped, here and in the database.
    let worker = async {
        loop {
            world.step(&mut source, 100).await.unwrap();
        }
    };
    tokio::select! {
        () = worker => {}
        () = world.no_lag(1) => {}
    }
    assert!(world.db.snapshot().positions.values().any(|position| *position == 12));
    source.close().await;
    assert_eq!(world.numbers(), [0, 2, 4]);
}
