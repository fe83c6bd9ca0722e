//! A topic that is deleted and created again: its offsets begin again, and every record is new.

use relais_core::source::Source;

use crate::incoming::{World, until};

const OLD: usize = 10;

/// A world with some records read.
async fn world(what: &str) -> Option<World> {
    let mut world = World::new(what, 2).await?;
    world.options.push(("topic.metadata.refresh.interval.ms", "500".into()));
    world.send_plain(OLD, 2).await;
    Some(world)
}

#[tokio::test]
async fn under_way_it_is_read_from_its_beginning_even_if_it_is_longer_at_once() {
    let Some(world) = world("a longer topic of the same name, under way").await else { return };
    let mut source = world.source();
    let counters = source.counters();
    world.fill(&mut source, OLD).await;
    world.delete_topic().await;
    world.create_topic(2).await;
    world.send_plain(100, 2).await;
    world.fill(&mut source, OLD + 100).await;
    assert_eq!((counters.recreated(), counters.missed()), (2, 0));
    world.no_lag(2).await;
    source.close().await;
}

#[tokio::test]
async fn under_way_it_is_read_from_its_beginning_if_it_is_shorter() {
    let Some(world) = world("a shorter topic of the same name, under way").await else { return };
    let mut source = world.source();
    world.fill(&mut source, OLD).await;
    world.delete_topic().await;
    world.create_topic(2).await;
    world.send_plain(4, 2).await;
    world.fill(&mut source, OLD + 4).await;
    world.no_lag(2).await;
    source.close().await;
}

#[tokio::test]
async fn what_had_not_been_settled_of_the_old_topic_is_stored_too() {
    let Some(world) = world("a batch of a topic that is gone").await else { return };
    let mut source = world.source();
    let mut have = 0;
    let batch = loop {
        let batch = world.batch(&mut source).await;
        have += batch.messages.len();
        if have == OLD {
            break batch;
        }
        world.db.accept(&batch).unwrap();
        source.acknowledge(Vec::new()).await.unwrap();
    };
    world.delete_topic().await;
    world.create_topic(2).await;
    world.send_plain(100, 2).await;
    world.db.accept(&batch).unwrap();
    source.acknowledge(Vec::new()).await.unwrap();
    world.fill(&mut source, OLD + 100).await;
    source.close().await;
}

#[tokio::test]
async fn while_nobody_reads_it_is_noticed_at_the_next_start_even_if_it_is_longer() {
    let Some(world) = world("a topic created again while nobody reads").await else { return };
    world.read_until(OLD).await;
    world.read_until(OLD).await;
    world.delete_topic().await;
    world.create_topic(2).await;
    world.send_plain(100, 2).await;
    let mut source = world.source();
    let counters = source.counters();
    world.fill(&mut source, OLD + 100).await;
    assert_eq!(counters.recreated(), 2);
    source.close().await;
    // Once is enough.
    let mut source = world.source();
    let counters = source.counters();
    world.send_plain(4, 2).await;
    world.fill(&mut source, OLD + 104).await;
    assert_eq!(counters.recreated(), 0);
    assert_eq!(world.db.snapshot().duplicates, 0);
    source.close().await;
}

#[tokio::test]
async fn while_it_is_gone_it_is_missed_by_name() {
    let Some(world) = world("a topic that is gone for a while").await else { return };
    let mut source = world.source();
    world.fill(&mut source, OLD).await;
    world.delete_topic().await;
    let complaint = world.complaint(&mut source).await;
    assert!(complaint.contains(&world.topic), "{complaint}");
    world.create_topic(2).await;
    world.send_plain(100, 2).await;
    world.fill(&mut source, OLD + 100).await;
    source.close().await;
}

#[tokio::test]
async fn two_processes_that_share_it_miss_nothing() {
    let Some(world) = world("a shared topic created again").await else { return };
    let (first, second) = (world.worker(), world.worker());
    until("the old records are stored", || world.db.count() == OLD).await;
    world.delete_topic().await;
    world.create_topic(2).await;
    world.send_plain(100, 2).await;
    until("the new records are stored", || world.db.count() == OLD + 100).await;
    first.stop().await.close().await;
    second.stop().await.close().await;
}
