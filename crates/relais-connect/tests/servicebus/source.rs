//! Checks of the source that only Service Bus needs.

use std::collections::{BTreeMap, BTreeSet};

use relais_connect::servicebus::{ServiceBusSource, ServiceBusSourceSettings};
use relais_core::{
    delivery::Delivery,
    inbox::{AcceptOutcome, NewInbox},
    source::Source,
};
use relais_testkit::connector::{SourceFixture, WireMessage, outbox_row, soon};

use crate::fixture::World;

async fn read(source: &mut ServiceBusSource, count: usize) -> Vec<NewInbox> {
    let mut rows: Vec<NewInbox> = Vec::new();
    let mut ids = BTreeSet::new();
    while ids.len() < count {
        let batch = soon("more", source.next(10)).await.unwrap();
        source.acknowledge(vec![AcceptOutcome::Stored; batch.messages.len()]).await.unwrap();
        ids.extend(batch.messages.iter().map(|row| row.message_id.clone()));
        rows.extend(batch.messages);
    }
    rows
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_sessions_than_links_are_read_in_order_of_each() {
    let world = World::new("sessions", "sessions").await;
    let rows: Vec<_> = (0..60).map(|n| outbox_row(n, &format!("k-{}", n % 12))).collect();
    let deliveries = world.publish(&rows).await;
    assert!(deliveries.iter().all(|one| *one == Delivery::Accepted), "{deliveries:?}");
    let settings = ServiceBusSourceSettings { sessions: Some(3), ..world.origin_settings() };
    let mut source = ServiceBusSource::new(settings).unwrap();
    let read = read(&mut source, rows.len()).await;
    let mut by_key: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in &read {
        by_key.entry(row.msg_key.as_str()).or_default().push(&row.message_id);
    }
    assert_eq!(by_key.len(), 12);
    for (key, ids) in by_key {
        let sent = rows.iter().filter(|row| row.msg_key == key);
        assert_eq!(ids, sent.map(|row| row.message_id.to_string()).collect::<Vec<_>>());
    }
    source.close().await;
    assert!(world.sim.is_empty("sessions"));
}

#[tokio::test]
async fn dead_letters_are_a_source() {
    let world = World::new("short", "short").await;
    world.send(&[WireMessage::new("m-1", "k", b"{}")]).await;
    // Delivered too often: each time the lock expires.
    let mut source = ServiceBusSource::new(world.origin_settings()).unwrap();
    let dead = "short/$deadletterqueue";
    let dying = async {
        while world.sim.is_empty(dead) {
            let waiting = std::time::Duration::from_millis(50);
            let _ = tokio::time::timeout(waiting, source.next(10)).await;
            source.pause().await;
        }
    };
    soon("it is a dead letter", dying).await;
    source.close().await;
    let address = dead.to_owned();
    let settings = ServiceBusSourceSettings { address, ..world.origin_settings() };
    let mut source = ServiceBusSource::new(settings).unwrap();
    let rows = read(&mut source, 1).await;
    assert_eq!(rows[0].message_id, "m-1");
    assert_eq!(rows[0].headers.get("DeadLetterReason"), Some("MaxDeliveryCountExceeded"));
    source.close().await;
    assert!(world.sim.is_empty(dead));
}

#[tokio::test]
async fn a_message_whose_lock_expired_arrives_again_with_the_same_id() {
    let world = World::new("short", "short").await;
    world.send(&[WireMessage::new("m-1", "k", b"{}")]).await;
    // It has no credit for the second delivery, so that goes to the other one.
    let settings = ServiceBusSourceSettings { prefetch: 1, ..world.origin_settings() };
    let mut slow = ServiceBusSource::new(settings).unwrap();
    let batch = soon("it is read", slow.next(10)).await.unwrap();
    let mut other = ServiceBusSource::new(world.origin_settings()).unwrap();
    let again = soon("the lock expires", other.next(10)).await.unwrap();
    assert_eq!(again.messages[0].message_id, batch.messages[0].message_id);
    other.acknowledge(vec![AcceptOutcome::Duplicate]).await.unwrap();
    // Too late, and without effect.
    slow.acknowledge(vec![AcceptOutcome::Stored]).await.unwrap();
    slow.close().await;
    other.close().await;
    assert!(world.sim.is_empty("short"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_continue_when_the_gateway_ends_every_connection() {
    let world = World::new("sessions", "sessions").await;
    let rows: Vec<_> = (0..40).map(|n| outbox_row(n, &format!("k-{}", n % 4))).collect();
    world.publish(&rows).await;
    let mut source = ServiceBusSource::new(world.origin_settings()).unwrap();
    let mut ids = BTreeSet::new();
    let mut rounds = 0;
    let reading = async {
        while ids.len() < rows.len() {
            rounds += 1;
            if rounds % 3 == 0 {
                world.sim.cut_connections();
            }
            let Ok(batch) = source.next(4).await else { continue };
            let _ = source.acknowledge(vec![AcceptOutcome::Stored; batch.messages.len()]).await;
            ids.extend(batch.messages.into_iter().map(|row| row.message_id));
        }
    };
    soon("everything is read", reading).await;
    source.close().await;
}
