//! One of two brokers is killed: only the partitions that it leads wait, and no message becomes a dead letter.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

mod cluster;
// Shared with tests that use more of them.
#[allow(dead_code)]
#[path = "../trouble/place.rs"]
mod place;
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;
#[allow(dead_code)]
#[path = "../trouble/target.rs"]
mod target;

use std::{
    collections::HashMap,
    thread,
    time::{Duration, Instant},
};

use cluster::Cluster;
use place::{Place, on_both};

/// Outage of the second broker, longer than the time limit of a publisher's call.
const OUTAGE: Duration = Duration::from_secs(35);
const KEYS: usize = 40;

#[test]
fn a_partition_without_a_leader_delays_only_its_own_keys() {
    let Some(cluster) = Cluster::from_environment() else { return };
    on_both(|store| {
        cluster.start_second();
        let topic = cluster.topic();
        let place = Place::new(
            &store,
            &format!(
                "[[destination]]\nname = \"out\"\nkind = \"kafka\"\nbrokers = \"{}\"\n\
                 topic = \"{topic}\"\n",
                cluster.addresses()
            ),
        );
        let all: Vec<String> = (0..KEYS).map(|n| format!("k{n}")).collect();
        place.send("out", &all);
        let running = place.run();
        place.until("DISPATCHED", KEYS as u64);
        let led_by_first: Vec<String> =
            cluster.read(&topic, 0).into_iter().map(|(key, _)| key).collect();
        assert!((1..KEYS).contains(&led_by_first.len()), "keys on both brokers: {led_by_first:?}");

        cluster.stop_second();
        let started = Instant::now();
        place.send("out", &all);
        let mut delivered = KEYS;
        while started.elapsed() < OUTAGE {
            place.send("out", &led_by_first);
            thread::sleep(Duration::from_secs(1));
            delivered += led_by_first.len();
        }
        place.until("DISPATCHED", (delivered + led_by_first.len()) as u64);
        assert!(place.dead_letters().is_empty());

        cluster.start_second();
        place.until("DISPATCHED", (delivered + KEYS) as u64);
        assert_eq!(running.stop().code, 0);
        for partition in [0, 1] {
            let mut last = HashMap::new();
            for (key, n) in cluster.read(&topic, partition) {
                let before = last.insert(key.clone(), n);
                assert!(before.is_none_or(|before| before <= n), "{key}: {n} after {before:?}");
            }
        }
    });
}
