//! Workers that are lost with rows in flight.

use std::time::Duration;

use relais_core::lane::Scope;

use super::support::{Bench, Script, drain, on_both};
use crate::worker::Worker;

#[tokio::test]
async fn a_message_that_kills_its_worker_becomes_a_dead_letter_and_its_neighbours_are_delivered() {
    on_both(a_killer_beside_neighbours).await;
}

async fn a_killer_beside_neighbours(bench: Bench) {
    bench.enqueue(&[("a", "killer"), ("b", "b1"), ("c", "c1")]).await;
    let mut lives = 0;
    while !bench.statuses()[0].starts_with("FAILED") {
        lives += 1;
        assert!(lives < 12, "{:?}", bench.statuses());
        let publisher = Script::new(&[]);
        publisher.stick("killer");
        let mut relay = bench.relay(&format!("w{lives}"), &publisher).await;
        // Everything starts, and the worker is lost before all of it is settled.
        for _ in 0..3 {
            relay.run_once().await.unwrap();
            tokio::task::yield_now().await;
        }
        if publisher.sizes().is_empty() {
            // All are quarantined: that is settled.
            drain(&mut relay).await;
        }
        let held = bench.texts("SELECT id FROM relais_outbox WHERE lost_workers = 3");
        if !held.is_empty() {
            // Held, and no worker is lost meanwhile: they are sent one by one.
            bench.make_due();
            drain(&mut relay).await;
        }
        drop(relay);
        bench.expire_leases();
    }
    let publisher = Script::new(&[]);
    let mut relay = bench.relay("last", &publisher).await;
    drain(&mut relay).await;
    // What was accepted and not settled at the losses is quarantined too.
    bench.make_due();
    drain(&mut relay).await;
    assert_eq!(bench.statuses(), ["FAILED 0", "DISPATCHED 1", "DISPATCHED 1"]);
    assert_eq!(bench.texts("SELECT error_code FROM relais_outbox WHERE id = 1"), ["WORKER_LOST"]);
}

#[tokio::test]
async fn a_process_that_is_lost_again_and_again_makes_no_dead_letter() {
    on_both(many_losses_of_workers).await;
}

async fn many_losses_of_workers(bench: Bench) {
    let names: Vec<String> = (0..40).map(|n| format!("m{n}")).collect();
    let messages: Vec<_> = names.iter().map(|n| (n.as_str(), n.as_str())).collect();
    bench.enqueue(&messages).await;
    for life in 0..20 {
        let publisher = Script::new(&[]);
        names.iter().for_each(|name| publisher.stick(name));
        let mut relay = bench.relay(&format!("w{life}"), &publisher).await;
        for _ in 0..4 {
            relay.run_once().await.unwrap();
        }
        drop(relay);
        bench.expire_leases();
    }
    assert_eq!(bench.statuses(), ["PENDING 0"; 40], "no attempts are used");
    let publisher = Script::new(&[]);
    let mut relay = bench.relay("last", &publisher).await;
    drain(&mut relay).await;
    bench.make_due();
    drain(&mut relay).await;
    assert_eq!(bench.statuses(), ["DISPATCHED 1"; 40]);
}

#[tokio::test]
async fn losses_are_noted_on_what_is_sent_and_not_on_what_waits() {
    on_both(losses_of_a_backlog).await;
}

async fn losses_of_a_backlog(bench: Bench) {
    let names: Vec<String> = (0..500).map(|n| format!("m{n}")).collect();
    let messages: Vec<(&str, &str)> = names.iter().map(|n| (n.as_str(), n.as_str())).collect();
    bench.enqueue(&messages).await;
    for life in 0..2 {
        // No call returns before the worker is lost.
        let publisher = Script::new(&[]);
        names.iter().for_each(|name| publisher.stick(name));
        let mut relay = bench.relay(&format!("w{life}"), &publisher).await;
        for _ in 0..5 {
            relay.run_once().await.unwrap();
        }
        drop(relay);
        bench.expire_leases();
    }
    let noted = bench.texts("SELECT message_id FROM relais_outbox WHERE lost_workers > 0").len();
    assert_eq!(noted, 10, "as many as are sent at once");
}

#[tokio::test]
async fn a_worker_that_leaves_does_not_release_the_lanes_of_suspects_it_has_not_sent() {
    let bench = Bench::new().await;
    let names: Vec<String> = (0..40).map(|n| format!("m{n}")).collect();
    let messages: Vec<(&str, &str)> = names.iter().map(|n| (n.as_str(), n.as_str())).collect();
    bench.enqueue(&messages).await;
    let publisher = Script::new(&[]);
    names.iter().for_each(|name| publisher.stick(name));
    let mut lost = bench.relay("lost", &publisher).await;
    lost.run_once().await.unwrap();
    drop(lost);
    bench.expire_leases();
    // It sends ten of them and has the others in its queues.
    let mut leaving = bench.relay("leaving", &publisher).await;
    for _ in 0..3 {
        leaving.run_once().await.unwrap();
    }
    leaving.stop(Duration::ZERO).await;
    let next = bench.keeper(Scope::Outbox("d".into()), "next");
    next.beat().await.unwrap();
    let lanes = bench.texts("SELECT DISTINCT lane FROM relais_outbox").len();
    assert_eq!(next.owned(), 64 - lanes, "they wait for the lease to expire");
    bench.expire_leases();
    next.beat().await.unwrap();
    assert_eq!(next.take_unclean(&next.usable()).len(), lanes);
}
