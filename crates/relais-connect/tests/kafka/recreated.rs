//! A topic that is deleted and created again: its offsets start again, and every record is new.

use relais_core::source::Source;

use crate::incoming::{World, until};

const OLD: usize = 10;

/// Returns a world with some records read.
async fn world(what: &str) -> Option<World> {
    let mut world = World::new(what, 2).await?;
    world.options.push(("topic.metadata.refresh.interval.ms", "500".into()));
    world.send_plain(OLD, 2).await;
    Some(world)
}

#[tokio::test]
async fn while_running_it_is_read_from_its_beginning_even_if_it_is_longer() {
    let Some(world) = world("a longer topic of the same name, while running").await else { return };
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
async fn while_running_it_is_read_from_its_beginning_if_it_is_shorter() {
    let Some(world) = world("a shorter topic of the same name, while running").await else {
        return;
    };
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
async fn unsettled_records_of_the_old_topic_are_stored_too() {
    let Some(world) = world("a batch of a deleted topic").await else { return };
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
async fn without_a_reader_it_is_noticed_at_the_next_start_even_if_it_is_longer() {
    let Some(world) = world("a topic created again without a reader").await else { return };
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
async fn while_it_does_not_exist_it_is_named() {
    let Some(world) = world("a topic that is deleted for a while").await else { return };
    let mut source = world.source();
    world.fill(&mut source, OLD).await;
    world.delete_topic().await;
    let error = world.error(&mut source).await;
    assert!(error.contains(&world.topic), "{error}");
    world.create_topic(2).await;
    world.send_plain(100, 2).await;
    world.fill(&mut source, OLD + 100).await;
    source.close().await;
}

#[tokio::test]
async fn two_processes_that_share_the_group_miss_nothing() {
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
