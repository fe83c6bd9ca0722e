//! Leases and their heartbeat.

use std::{sync::Arc, time::Duration};

use relais_core::lane::Scope;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::support::Bench;
use crate::{lanes::LaneKeeper, lease::WorkerLease};

#[tokio::test]
async fn a_second_worker_gets_its_share_once_the_first_has_drained() {
    let bench = Bench::new().await;
    let (one, two) = (bench.keeper(Scope::Inbox, "one"), bench.keeper(Scope::Inbox, "two"));
    one.beat().await.unwrap();
    assert_eq!(one.usable().len(), 64);
    two.beat().await.unwrap();
    assert_eq!(two.usable().len(), 0, "nothing is free yet");
    one.beat().await.unwrap();
    assert_eq!(one.usable().len(), 32, "no new rows are read from lanes to be released");
    one.report_empty(|lane| lane != 63);
    one.beat().await.unwrap();
    two.beat().await.unwrap();
    assert_eq!((one.owned(), two.owned()), (33, 31), "a lane in use stays until it is empty");
    one.report_empty(|_| true);
    one.beat().await.unwrap();
    two.beat().await.unwrap();
    assert_eq!((one.owned(), two.owned()), (32, 32));
    assert!(two.take_unclean(&two.usable()).is_empty());
}

#[tokio::test]
async fn lanes_of_a_lost_worker_are_taken_over_as_unclean() {
    let bench = Bench::new().await;
    bench.keeper(Scope::Inbox, "dead").beat().await.unwrap();
    bench.expire_leases();
    let successor = bench.keeper(Scope::Inbox, "successor");
    successor.beat().await.unwrap();
    assert_eq!(successor.owned(), 64);
    assert_eq!(successor.take_unclean(&successor.usable()).len(), 64);
    successor.beat().await.unwrap();
    assert!(
        successor.take_unclean(&successor.usable()).is_empty(),
        "only the first rows are suspects"
    );
}

#[tokio::test]
async fn scopes_are_leased_apart() {
    let bench = Bench::new().await;
    bench.keeper(Scope::Outbox("a".into()), "one").beat().await.unwrap();
    let other = bench.keeper(Scope::Outbox("b".into()), "two");
    other.beat().await.unwrap();
    assert_eq!(other.usable().len(), 64);
}

#[tokio::test]
async fn an_unclean_lane_that_was_not_read_is_not_released_as_clean() {
    let bench = Bench::new().await;
    bench.keeper(Scope::Inbox, "dead").beat().await.unwrap();
    bench.expire_leases();
    let successor = bench.keeper(Scope::Inbox, "successor");
    successor.beat().await.unwrap();
    successor.leave(|_| false).await;
    let next = bench.keeper(Scope::Inbox, "next");
    next.beat().await.unwrap();
    assert_eq!(next.owned(), 0, "they wait for their lease to expire");
    bench.expire_leases();
    next.beat().await.unwrap();
    assert_eq!(next.take_unclean(&next.usable()).len(), 64);
}

#[tokio::test]
async fn an_unclean_lane_is_read_before_it_is_released() {
    let bench = Bench::new().await;
    bench.keeper(Scope::Inbox, "dead").beat().await.unwrap();
    bench.expire_leases();
    let (successor, next) =
        (bench.keeper(Scope::Inbox, "successor"), bench.keeper(Scope::Inbox, "next"));
    successor.beat().await.unwrap();
    next.beat().await.unwrap();
    successor.beat().await.unwrap();
    assert_eq!(successor.usable().len(), 64, "unclean lanes that were not read yet stay readable");
    assert_eq!(successor.take_unclean(&successor.usable()).len(), 64);
    successor.beat().await.unwrap();
    successor.report_empty(|_| true);
    successor.beat().await.unwrap();
    next.beat().await.unwrap();
    assert_eq!((successor.owned(), next.owned()), (32, 32));
}

fn keepers(bench: &Bench) -> (Arc<WorkerLease>, Arc<LaneKeeper>, Arc<LaneKeeper>) {
    let lease = WorkerLease::new(bench.store.clone(), "w".to_owned(), Duration::from_secs(60));
    let keeper = |scope| Arc::new(LaneKeeper::under(Arc::clone(&lease), scope));
    let (inbox, orders) = (keeper(Scope::Inbox), keeper(Scope::Outbox("orders".into())));
    (lease, inbox, orders)
}

#[tokio::test]
async fn lanes_of_an_expired_lease_are_asked_for_again_before_they_are_used() {
    let bench = Bench::new().await;
    let (_lease, inbox, orders) = keepers(&bench);
    inbox.beat().await.unwrap();
    orders.beat().await.unwrap();
    assert_eq!((inbox.usable().len(), orders.usable().len()), (64, 64));
    bench.expire_leases();
    inbox.beat().await.unwrap();
    assert_eq!(inbox.usable().len(), 64);
    assert!(orders.usable().is_empty(), "another worker may own them");
    orders.beat().await.unwrap();
    assert_eq!((inbox.usable().len(), orders.usable().len()), (64, 64));
}

async fn until_owned(keepers: &[&Arc<LaneKeeper>]) {
    while !keepers.iter().all(|keeper| keeper.usable().len() == 64) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_worker_renews_one_lease_until_its_last_scope_has_left() {
    let bench = Bench::new().await;
    let (lease, inbox, orders) = keepers(&bench);
    let (stop, scopes, (_crowd, changes)) =
        (CancellationToken::new(), CancellationToken::new(), watch::channel(0));
    let tasks = [&inbox, &orders].map(|keeper| keeper.spawn(changes.clone(), scopes.clone()));
    let running = tokio::spawn(Arc::clone(&lease).run(stop.clone()));
    until_owned(&[&inbox, &orders]).await;
    let counts =
        "SELECT (SELECT count(*) FROM relais_lease) || ' ' || (SELECT count(*) FROM relais_worker)";
    assert_eq!(bench.texts(counts), ["1 2"]);
    stop.cancel();
    scopes.cancel();
    for task in tasks {
        task.await.unwrap();
    }
    inbox.leave(|_| false).await;
    assert_eq!(bench.texts(counts), ["1 1"]);
    assert!(!running.is_finished(), "one scope still needs the lease");
    orders.leave(|_| false).await;
    running.await.unwrap();
    assert_eq!(bench.texts(counts), ["0 0"]);
}

#[tokio::test]
async fn a_scope_that_ends_without_releasing_its_lanes_ends_the_lease() {
    let bench = Bench::new().await;
    let (lease, inbox, orders) = keepers(&bench);
    let (stop, scopes, (_crowd, changes)) =
        (CancellationToken::new(), CancellationToken::new(), watch::channel(0));
    let tasks = [&inbox, &orders].map(|keeper| keeper.spawn(changes.clone(), scopes.clone()));
    let running = tokio::spawn(Arc::clone(&lease).run(stop.clone()));
    until_owned(&[&inbox, &orders]).await;
    scopes.cancel();
    for task in tasks {
        task.await.unwrap();
    }
    drop(inbox);
    running.await.unwrap();
    assert!(orders.beat().await.is_err(), "the lease is not renewed by another scope either");
    bench.expire_leases();
    let next = bench.keeper(Scope::Inbox, "next");
    next.beat().await.unwrap();
    assert_eq!(next.owned(), 64);
}
