//! Rebalances: two sources of one group, with the same database.

use std::time::Duration;

use relais_core::source::Source;

use crate::{
    incoming::{World, until},
    outgoing::LONG,
};

/// Members are removed after a second without a heartbeat.
fn impatient(world: &mut World) {
    world.options.push(("session.timeout.ms", "1000".into()));
    world.options.push(("heartbeat.interval.ms", "200".into()));
}

#[tokio::test]
async fn two_sources_share_the_partitions_and_everything_is_stored_once_in_effect() {
    let Some(world) = World::new("two sources in a group", 4).await else { return };
    world.send_plain(400, 4).await;
    let first = world.worker();
    until("the first one reads", || world.db.count() > 0).await;
    let second = world.worker();
    world.send_plain(400, 4).await;
    until("everything is stored", || world.db.count() == 800).await;
    world.no_lag(4).await;
    until("both are members", || world.members() == 2).await;
    // Now only one is left.
    first.stop().await.close().await;
    world.send_plain(400, 4).await;
    until("everything is stored", || world.db.count() == 1_200).await;
    world.no_lag(4).await;
    second.stop().await.close().await;
}

#[tokio::test]
async fn sources_that_join_and_leave_repeatedly_lose_nothing() {
    let Some(mut world) = World::new("sources that come and go", 8).await else { return };
    impatient(&mut world);
    let steady = world.worker();
    for round in 1..=8 {
        let passing = world.worker();
        world.send_plain(200, 8).await;
        until("half of it is stored", || world.db.count() > round * 200 - 100).await;
        // At any point: in the middle of a batch, or of a rebalance.
        passing.abort();
    }
    until("everything is stored", || world.db.count() == 1_600).await;
    world.no_lag(8).await;
    steady.stop().await.close().await;
}

#[tokio::test]
async fn a_source_joins_while_another_has_a_batch_in_flight_and_nothing_is_read_twice() {
    let Some(world) = World::new("a rebalance in the middle of a batch", 2).await else { return };
    world.send_plain(40, 2).await;
    let mut first = world.source();
    let batch = world.batch(&mut first).await;
    let second = world.worker();
    until("the second one has joined", || world.members() == 2).await;
    // The second one gets nothing before the first one releases it, and the first one is busy.
    world.db.accept(&batch).unwrap();
    first.acknowledge(Vec::new()).await.unwrap();
    world.fill(&mut first, batch.messages.len()).await;
    let both = tokio::time::timeout(LONG, async {
        while world.db.count() < 40 {
            // It must poll for the rebalance to continue.
            let step = world.step(&mut first, 100);
            let _ = tokio::time::timeout(Duration::from_millis(100), step).await;
        }
    });
    both.await.expect("both read");
    world.no_lag(2).await;
    assert_eq!(world.db.snapshot().duplicates, 0);
    second.stop().await.close().await;
    first.close().await;
}

#[tokio::test]
async fn a_removed_member_acknowledges_nothing_of_reassigned_partitions() {
    let Some(mut world) = World::new("an old owner's acknowledgement", 1).await else { return };
    world.send_plain(30, 1).await;
    let mut slow = World { options: Vec::new(), ..world.clone() };
    slow.options.push(("max.poll.interval.ms", "1200".into()));
    slow.options.push(("session.timeout.ms", "1000".into()));
    impatient(&mut world);
    let mut first = slow.source();
    let batch = first.next(10).await.unwrap();
    until("the first one is thrown out", || world.members() == 0).await;
    let second = world.worker();
    until("the second one has read it all", || world.db.count() == 30).await;
    world.no_lag(1).await;
    // It has stored the batch late; the others had it already.
    world.db.accept(&batch).unwrap();
    assert_eq!(world.db.snapshot().duplicates, 10);
    first.acknowledge(Vec::new()).await.unwrap();
    first.close().await;
    assert_eq!(world.committed(1), [Some(30)]);
    second.stop().await.close().await;
    // The late batch moved the position back: repeated records are detected as duplicates.
    world.send_plain(1, 1).await;
    world.read_until(31).await;
    world.no_lag(1).await;
}

#[tokio::test]
async fn the_older_protocol_of_groups_works_too() {
    let Some(mut world) = World::new("the eager protocol", 4).await else { return };
    world.options.push(("partition.assignment.strategy", "range".into()));
    impatient(&mut world);
    let first = world.worker();
    world.send_plain(200, 4).await;
    until("the first one reads", || world.db.count() > 0).await;
    let second = world.worker();
    until("both are members", || world.members() == 2).await;
    world.db.down(true);
    world.send_plain(200, 4).await;
    world.db.down(false);
    until("everything is stored", || world.db.count() == 400).await;
    world.no_lag(4).await;
    first.stop().await.close().await;
    second.stop().await.close().await;
}
