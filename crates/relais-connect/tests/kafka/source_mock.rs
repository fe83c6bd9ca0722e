//! Errors that a broker does not produce on request: protocol errors, brokers that stop and return,
//! and unreadable records. With librdkafka's mock cluster, in this process.

use rdkafka::{
    mocking::MockCluster,
    producer::DefaultProducerContext,
    types::{RDKafkaApiKey, RDKafkaRespErr},
};
use relais_connect::kafka::KafkaSource;
use relais_core::source::{Source, SourceError};

use crate::{
    incoming::World,
    raw::{self, Damage, RawRecord},
};

type Cluster = MockCluster<'static, DefaultProducerContext>;

fn world(partitions: i32) -> (Cluster, World) {
    let cluster = MockCluster::new(1).unwrap();
    let world = World::at(&cluster.bootstrap_servers());
    cluster.create_topic(&world.topic, partitions, 1).unwrap();
    (cluster, world)
}

/// Reads with the source until another condition holds.
async fn read_on(world: &World, source: &mut KafkaSource, is_so: impl Future<Output = ()>) {
    let reading =
        async { while !matches!(world.step(source, 100).await, Err(SourceError::Closed)) {} };
    tokio::select! {
        () = reading => panic!("the source gave up"),
        () = is_so => {}
    }
}

#[tokio::test]
async fn everything_is_read_whatever_errors_the_coordinator_returns() {
    use RDKafkaRespErr::{
        RD_KAFKA_RESP_ERR__TRANSPORT as TRANSPORT,
        RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS as LOADING,
        RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE as NOT_AVAILABLE,
        RD_KAFKA_RESP_ERR_NOT_COORDINATOR as NOT_COORDINATOR,
        RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION as NOT_LEADER,
        RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS as REBALANCE,
    };
    let (cluster, world) = world(2);
    cluster.request_errors(RDKafkaApiKey::FindCoordinator, &[NOT_AVAILABLE, TRANSPORT]);
    cluster.request_errors(RDKafkaApiKey::JoinGroup, &[LOADING, NOT_COORDINATOR, TRANSPORT]);
    cluster.request_errors(RDKafkaApiKey::OffsetFetch, &[LOADING, TRANSPORT, NOT_COORDINATOR]);
    cluster.request_errors(RDKafkaApiKey::ListOffsets, &[NOT_LEADER, TRANSPORT]);
    cluster.request_errors(RDKafkaApiKey::Fetch, &[NOT_LEADER, TRANSPORT, NOT_LEADER]);
    world.send_plain(100, 2).await;
    let mut source = world.source();
    world.fill(&mut source, 100).await;
    for round in 2..=4 {
        let errors = [NOT_COORDINATOR, REBALANCE, TRANSPORT, LOADING];
        cluster.request_errors(RDKafkaApiKey::OffsetCommit, &errors);
        cluster.request_errors(RDKafkaApiKey::Heartbeat, &[NOT_COORDINATOR, TRANSPORT]);
        cluster.request_errors(RDKafkaApiKey::Fetch, &[TRANSPORT, NOT_LEADER]);
        world.send_plain(100, 2).await;
        world.fill(&mut source, round * 100).await;
    }
    read_on(&world, &mut source, world.no_lag(2)).await;
    source.close().await;
}

#[tokio::test]
async fn a_failed_offset_commit_is_repeated() {
    use RDKafkaRespErr::{
        RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED as FORBIDDEN,
        RD_KAFKA_RESP_ERR_INVALID_COMMIT_OFFSET_SIZE as INVALID,
    };
    let (cluster, world) = world(1);
    world.send_plain(10, 1).await;
    let mut source = world.source();
    let batch = world.batch(&mut source).await;
    cluster.request_errors(RDKafkaApiKey::OffsetCommit, &[INVALID, FORBIDDEN, INVALID]);
    world.db.accept(&batch).unwrap();
    source.acknowledge(Vec::new()).await.unwrap();
    read_on(&world, &mut source, world.no_lag(1)).await;
    source.close().await;
}

#[tokio::test]
async fn reading_continues_when_a_broker_is_back() {
    let (cluster, world) = world(2);
    world.send_plain(100, 2).await;
    let mut source = world.source();
    world.fill(&mut source, 100).await;
    for round in 2..=3 {
        world.send_plain(100, 2).await;
        let batch = world.batch(&mut source).await;
        cluster.broker_down(1).unwrap();
        world.db.accept(&batch).unwrap();
        source.acknowledge(Vec::new()).await.unwrap();
        let error = loop {
            match source.next(100).await {
                Ok(batch) => {
                    world.db.accept(&batch).unwrap();
                    source.acknowledge(Vec::new()).await.unwrap();
                }
                Err(SourceError::Unavailable(reason)) => break reason,
                Err(error) => panic!("{error}"),
            }
        };
        assert!(error.contains(&world.brokers), "{error}");
        cluster.broker_up(1).unwrap();
        world.fill(&mut source, round * 100).await;
    }
    read_on(&world, &mut source, world.no_lag(2)).await;
    assert_eq!(world.db.snapshot().duplicates, 0);
    source.close().await;
}

#[tokio::test]
async fn unreadable_records_block_their_partition_and_are_never_skipped() {
    let unknown_codec = RawRecord { codec: 6, ..RawRecord::default() };
    let bad_checksum = RawRecord { damage: Damage::Checksum, ..RawRecord::default() };
    for bad in [unknown_codec, bad_checksum] {
        let (_cluster, mut world) = world(2);
        world.options.push(("fetch.error.backoff.ms", "10".into()));
        world.send_plain(10, 2).await;
        assert_eq!(raw::produce(&world.brokers, &world.topic, 0, &bad).await, 0, "{bad:?}");
        world.send_plain(10, 2).await;
        let mut source = world.source();
        let mut error = String::new();
        while world.db.count() < 15 || error.is_empty() {
            match world.step(&mut source, 100).await {
                Ok(_) => {}
                Err(SourceError::Unavailable(reason)) => error = reason,
                Err(error) => panic!("{error}"),
            }
        }
        let name = format!("{}/0 at offset 5", world.topic);
        assert!(error.contains(&name), "{bad:?}: {error}");
        source.close().await;
        // The records after them have not been read.
        let mut rows = world.db.snapshot().rows.into_values();
        assert!(!rows.any(|row| row.partition_num == 0 && row.offset_num >= 5), "{bad:?}");
        // An operator decides to continue after them.
        let mut db = world.db.snapshot();
        let key = db.positions.keys().find(|key| key.ends_with("/0")).unwrap().clone();
        assert_eq!(db.positions.insert(key, 6), Some(5));
        world.db.restore(db);
        // A mock cluster removes members slowly.
        world.group.push_str("-again");
        world.read_until(20).await;
    }
}
