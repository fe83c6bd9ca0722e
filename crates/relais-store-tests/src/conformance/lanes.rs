//! Who holds which lanes: fair shares, hand-over, take-over.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use relais_core::{
    lane::{Fence, LANES, LaneRelease, LaneRequest, LeaseRenewal, Scope, ScopeAnnouncement, share},
    outbox::OutboxFate,
};

use super::{
    Start,
    worker::{Worker, expire_all},
};
use crate::{build::messages, fixture::Fixture};

pub const START: Start = Start::Migrated;

const ALL: usize = LANES as usize;

fn lanes(worker: &Worker) -> BTreeSet<i16> {
    worker.lanes.iter().map(|l| l.lane).collect()
}

fn epochs(worker: &Worker) -> BTreeMap<i16, i64> {
    worker.lanes.iter().map(|l| (l.lane, l.epoch)).collect()
}

/// Renews and releases until no worker has more than a fair share.
async fn balance(workers: &mut [Worker]) {
    for _ in 0..3 {
        for worker in workers.iter_mut() {
            worker.heartbeat().await;
            let surplus = worker.surplus;
            worker.release(surplus).await;
        }
    }
}

/// The workers hold every lane, each only one of them, none more than its share.
fn assert_fair(workers: &[Worker]) {
    let mut seen = BTreeSet::new();
    for worker in workers {
        assert!(worker.lanes.len() <= share(workers.len()), "{} lanes", worker.lanes.len());
        for lane in lanes(worker) {
            assert!(seen.insert(lane), "lane {lane} is held twice");
        }
    }
    assert_eq!(seen.len(), ALL, "every lane is held");
}

pub async fn a_worker_alone_holds_every_lane(f: &dyn Fixture) {
    let worker = Worker::inbox(f, "a").await;
    assert_eq!(lanes(&worker), (0..64).collect());
    assert_eq!((worker.lanes.len(), worker.surplus), (ALL, 0));
    assert!(worker.lanes.iter().all(|l| l.epoch == 1 && !l.unclean), "{:?}", worker.lanes);
    let rows = "SELECT count(*) FROM relais_lane WHERE scope = 'inbox' AND owner = 'a'";
    assert_eq!(f.number(rows).await, 64);
}

pub async fn a_newcomer_takes_nothing_that_is_held(f: &dyn Fixture) {
    let mut first = Worker::inbox(f, "a").await;
    let second = Worker::start(f.second(), Scope::Inbox, "b").await;
    assert!(second.lanes.is_empty());
    first.heartbeat().await;
    assert_eq!((first.lanes.len(), first.surplus), (ALL, ALL / 2));
}

pub async fn two_workers_share_evenly(f: &dyn Fixture) {
    let first = Worker::inbox(f, "a").await;
    let second = Worker::start(f.second(), Scope::Inbox, "b").await;
    let mut workers = [first, second];
    balance(&mut workers).await;
    assert_fair(&workers);
    assert_eq!((workers[0].lanes.len(), workers[1].lanes.len()), (32, 32));
}

pub async fn three_workers_share_evenly(f: &dyn Fixture) {
    let first = Worker::inbox(f, "a").await;
    let second = Worker::start(f.second(), Scope::Inbox, "b").await;
    let third = Worker::inbox(f, "c").await;
    let mut workers = [first, second, third];
    balance(&mut workers).await;
    assert_fair(&workers);
    assert!(workers.iter().all(|w| w.lanes.len() >= 20));
}

pub async fn more_workers_than_lanes_leave_no_worker_stuck(f: &dyn Fixture) {
    let mut workers = Vec::new();
    for n in 0..70 {
        workers.push(Worker::inbox(f, &format!("w{n}")).await);
    }
    balance(&mut workers).await;
    let held: usize = workers.iter().map(|w| w.lanes.len()).sum();
    assert_eq!(held, ALL);
    assert!(workers.iter().all(|w| w.lanes.len() <= 1));
}

pub async fn scopes_share_nothing(f: &dyn Fixture) {
    let inbox = Worker::inbox(f, "a").await;
    let orders = Worker::outbox(f, "orders", "a").await;
    let mails = Worker::outbox(f, "mails", "b").await;
    for worker in [&inbox, &orders, &mails] {
        assert_eq!((worker.lanes.len(), worker.surplus), (ALL, 0));
    }
}

pub async fn a_lane_given_back_is_handed_over_at_once_and_clean(f: &dyn Fixture) {
    let mut first = Worker::inbox(f, "a").await;
    let before = epochs(&first);
    let mut second = Worker::start(f.second(), Scope::Inbox, "b").await;
    first.release(10).await;
    second.heartbeat().await;
    assert_eq!(second.lanes.len(), 10);
    for lane in &second.lanes {
        assert_eq!(lane.epoch, before[&lane.lane] + 1, "a new owner, a new epoch");
        assert!(!lane.unclean, "it was given back");
    }
    first.heartbeat().await;
    assert!(lanes(&first).is_disjoint(&lanes(&second)));
}

pub async fn a_worker_that_leaves_frees_everything(f: &dyn Fixture) {
    let mut first = Worker::inbox(f, "a").await;
    let mut second = Worker::start(f.second(), Scope::Inbox, "b").await;
    first.leave().await;
    assert_eq!(f.number("SELECT count(*) FROM relais_worker WHERE worker = 'a'").await, 0);
    second.heartbeat().await;
    assert_eq!((second.lanes.len(), second.surplus), (ALL, 0));
    assert!(second.lanes.iter().all(|l| !l.unclean));
}

pub async fn leaving_frees_lanes_the_worker_forgot(f: &dyn Fixture) {
    let mut first = Worker::inbox(f, "a").await;
    first.lanes.clear();
    first.leave().await;
    assert_eq!(f.number("SELECT count(*) FROM relais_lane WHERE owner IS NOT NULL").await, 0);
}

pub async fn a_lane_of_another_worker_cannot_be_given_back(f: &dyn Fixture) {
    let first = Worker::inbox(f, "a").await;
    let mut thief = Worker::start(f.second(), Scope::Inbox, "b").await;
    thief.lanes.clone_from(&first.lanes);
    thief.release(ALL).await;
    let still = "SELECT count(*) FROM relais_lane WHERE owner = 'a'";
    assert_eq!(f.number(still).await, 64);
}

pub async fn dead_workers_are_taken_over_unclean_with_a_new_epoch(f: &dyn Fixture) {
    let first = Worker::inbox(f, "a").await;
    expire_all(f).await;
    let mut second = Worker::start(f.second(), Scope::Inbox, "b").await;
    assert_eq!((second.lanes.len(), second.surplus), (ALL, 0), "the dead do not count");
    let before = epochs(&first);
    for lane in &second.lanes {
        assert_eq!(lane.epoch, before[&lane.lane] + 1);
        assert!(lane.unclean, "nobody gave it back");
    }
    second.heartbeat().await;
    assert!(second.lanes.iter().all(|l| !l.unclean), "said once, when it is taken");
}

pub async fn a_live_lease_is_not_taken_even_from_an_unannounced_worker(f: &dyn Fixture) {
    Worker::inbox(f, "a").await;
    f.run("DELETE FROM relais_worker").await;
    let second = Worker::start(f.second(), Scope::Inbox, "b").await;
    assert!(second.lanes.is_empty());
}

/// The clock was set back while a worker was dead.
pub async fn a_lease_that_ends_later_than_any_can_is_taken(f: &dyn Fixture) {
    let first = Worker::inbox(f, "a").await;
    let set_back = |seconds| {
        let until = f.dialect().ahead(seconds);
        async move {
            f.run(&format!("UPDATE relais_lease SET lease_until = {until} WHERE worker = 'a'"))
                .await;
        }
    };
    set_back(3_500).await;
    let mut second = Worker::start(f.second(), Scope::Inbox, "b").await;
    assert!(second.lanes.is_empty(), "a lease of an hour is possible");
    assert_eq!(first.renew().await, first.term);
    let before = f.store().changes().await.expect("changes").workers;
    set_back(7_200).await;
    assert_ne!(f.store().changes().await.expect("changes").workers, before, "workers notice");
    second.heartbeat().await;
    assert_eq!(second.lanes.len(), ALL, "the dead worker has no share");
    assert!(second.lanes.iter().all(|lane| lane.unclean && lane.epoch == 2));
    assert!(first.renew().await > first.term, "it must ask for its lanes again");
}

pub async fn an_expired_lease_is_taken_up_to_the_share(f: &dyn Fixture) {
    let mut first = Worker::inbox(f, "a").await;
    let mut second = Worker::start(f.second(), Scope::Inbox, "b").await;
    let mut third = Worker::inbox(f, "c").await;
    assert!(second.unsettled && third.unsettled, "they wait for lanes of the first");
    let past = f.past();
    f.run(&format!("UPDATE relais_lease SET lease_until = {past} WHERE worker = 'a'")).await;
    second.heartbeat().await;
    assert_eq!(second.lanes.len(), share(2), "the third lives");
    assert_eq!(lanes(&second), (0..32).collect(), "lowest first");
    third.heartbeat().await;
    assert_eq!(lanes(&third), (32..64).collect());
    assert!(!second.unsettled && !third.unsettled, "all is shared");
    first.heartbeat().await;
    assert!(first.lanes.is_empty() && first.unsettled);
}

pub async fn one_lease_covers_the_lanes_of_all_scopes(f: &dyn Fixture) {
    let (inbox, orders) = (Worker::inbox(f, "a").await, Worker::outbox(f, "orders", "a").await);
    assert_eq!((inbox.term, f.number("SELECT count(*) FROM relais_lease").await), (orders.term, 1));
    let soon = f.dialect().ahead(1);
    f.run(&format!("UPDATE relais_lease SET lease_until = {soon}")).await;
    assert_eq!(inbox.renew().await, inbox.term, "renewed in time");
    let minute = f.dialect().ahead(60);
    let short = format!("SELECT count(*) FROM relais_lease WHERE lease_until < {minute}");
    assert_eq!(f.number(&short).await, 0, "the lease is longer now");
    let mut other = Worker::start(f.second(), orders.fence.scope.clone(), "b").await;
    assert!(other.lanes.is_empty());
    expire_all(f).await;
    other.heartbeat().await;
    assert_eq!(other.lanes.len(), ALL);
    let inbox = Worker::start(f.second(), Scope::Inbox, "b").await;
    assert_eq!(inbox.lanes.len(), ALL);
}

pub async fn renewing_keeps_epoch_and_term(f: &dyn Fixture) {
    let mut worker = Worker::inbox(f, "a").await;
    let (before, term) = (epochs(&worker), worker.term);
    let soon = f.dialect().ahead(1);
    f.run(&format!("UPDATE relais_lease SET lease_until = {soon}")).await;
    worker.heartbeat().await;
    assert_eq!((epochs(&worker), worker.term), (before, term));
}

pub async fn an_expired_lease_that_was_not_taken_is_renewed_in_a_new_term(f: &dyn Fixture) {
    let mut worker = Worker::inbox(f, "a").await;
    let (before, term) = (epochs(&worker), worker.term);
    expire_all(f).await;
    let renewed = worker.renew().await;
    assert!(renewed > term, "a lane may have been taken");
    worker.heartbeat().await;
    assert_eq!((epochs(&worker), worker.term), (before, renewed), "none was");
    assert!(worker.lanes.iter().all(|l| !l.unclean));
}

/// An operator removed the row, or it was restored from a backup.
pub async fn lanes_of_an_owner_without_a_lease_are_taken_unclean(f: &dyn Fixture) {
    let mut first = Worker::inbox(f, "a").await;
    f.run("DELETE FROM relais_lease").await;
    let second = Worker::start(f.second(), Scope::Inbox, "b").await;
    assert_eq!(second.lanes.len(), ALL);
    assert!(second.lanes.iter().all(|lane| lane.unclean && lane.epoch == 2));
    let term = first.term;
    first.heartbeat().await;
    assert!(first.lanes.is_empty() && first.term > term);
}

pub async fn a_forgotten_worker_leaves_its_lanes_free_and_unclean(f: &dyn Fixture) {
    let (first, orders) = (Worker::inbox(f, "a").await, Worker::outbox(f, "orders", "a").await);
    let long_ago = f.dialect().ago(7_200);
    f.run(&format!("UPDATE relais_lease SET lease_until = {long_ago}")).await;
    let mut second = Worker::start(f.second(), Scope::Outbox("mails".to_owned()), "b").await;
    second.announce(vec![announcement(second.fence.scope.clone())]).await;
    assert_eq!(f.number("SELECT count(*) FROM relais_lease WHERE worker = 'a'").await, 0);
    assert_eq!(f.number("SELECT count(*) FROM relais_worker WHERE worker = 'a'").await, 0);
    assert_eq!(f.number("SELECT count(*) FROM relais_lane WHERE owner = 'a'").await, 0);
    for scope in [first.fence.scope, orders.fence.scope] {
        second = Worker::start(f.second(), scope, "b").await;
        assert_eq!(second.lanes.len(), ALL);
        assert!(second.lanes.iter().all(|lane| lane.unclean && lane.epoch == 2));
    }
    second.release(ALL).await;
    second.heartbeat().await;
    assert!(second.lanes.iter().all(|lane| !lane.unclean), "its successor was careful");
}

fn announcement(scope: Scope) -> ScopeAnnouncement {
    ScopeAnnouncement { scope, event_types: Vec::new() }
}

pub async fn an_announced_worker_has_a_share_before_it_asks_for_lanes(f: &dyn Fixture) {
    let mut first = Worker::inbox(f, "a").await;
    let second = Worker::start(f.second(), Scope::Outbox("orders".to_owned()), "b").await;
    first.heartbeat().await;
    assert_eq!(first.surplus, 0, "it serves another scope");
    let before = f.store().changes().await.expect("changes").workers;
    let term = second.announce(vec![announcement(Scope::Inbox)]).await;
    assert_eq!(term, second.term);
    assert_ne!(f.store().changes().await.expect("changes").workers, before, "workers notice");
    first.heartbeat().await;
    assert_eq!(first.surplus, ALL / 2);
}

/// A lease so short that it expires while others ask for its lanes: if a lane was taken, the owner learns of
/// it with its next renewal, however the two meet.
pub async fn a_lease_that_lost_a_lane_is_never_renewed_in_the_same_term(f: &dyn Fixture) {
    let lease = Duration::from_millis(2);
    let mut taker = Worker::start(f.second(), Scope::Inbox, "b").await;
    let mut taken_over = 0;
    for round in 0..40 {
        taker.leave().await;
        let fence = Fence { scope: Scope::Inbox, worker: format!("a{round}") };
        let request = LaneRequest::new(fence.clone(), lease);
        let owner = f.store().lease_lanes(request).await.expect("lease lanes");
        let renewal = LeaseRenewal { worker: fence.worker.clone(), lease, announce: Vec::new() };
        let store = f.store();
        let renewing = tokio::spawn(async move {
            let mut terms = Vec::new();
            for _ in 0..10 {
                terms.push(store.renew_lease(renewal.clone()).await.expect("renew the lease"));
            }
            terms
        });
        taker.heartbeat().await;
        let taken = taker.lanes.len();
        let terms = renewing.await.expect("no panic");
        let owned = format!("SELECT count(*) FROM relais_lane WHERE owner = '{}'", fence.worker);
        assert_eq!(f.number(&owned).await + taken as i64, 64);
        let renewal = LeaseRenewal { worker: fence.worker.clone(), lease, announce: Vec::new() };
        let last = f.store().renew_lease(renewal).await.expect("renew the lease");
        assert!(taken == 0 || last > owner.term, "round {round}: {owner:?} {terms:?} {last}");
        taken_over += usize::from(taken > 0);
        f.store().release_lanes(fence, LaneRelease::All).await.expect("leave");
    }
    // How often depends on the machine; the rule holds either way.
    assert!(taken_over <= 40);
}

pub async fn taking_a_lane_again_raises_the_epoch_for_the_same_name_too(f: &dyn Fixture) {
    let mut worker = Worker::inbox(f, "a").await;
    let before = epochs(&worker);
    worker.release(ALL).await;
    worker.heartbeat().await;
    for (lane, epoch) in epochs(&worker) {
        assert_eq!(epoch, before[&lane] + 1);
    }
}

pub async fn nodes_that_lease_together_never_share_a_lane(f: &dyn Fixture) {
    let workers = (0..6).map(|n| {
        let store = if n % 2 == 0 { f.store() } else { f.second() };
        tokio::spawn(async move {
            let mut held = Vec::new();
            let mut worker = Worker::start(store, Scope::Inbox, &format!("w{n}")).await;
            for _ in 0..8 {
                held.extend(epochs(&worker));
                let surplus = worker.surplus;
                worker.release(surplus).await;
                worker.heartbeat().await;
            }
            held.extend(epochs(&worker));
            (worker, held)
        })
    });
    let (mut owners, mut all) = (BTreeMap::new(), Vec::new());
    for running in workers.collect::<Vec<_>>() {
        let (worker, held) = running.await.expect("worker");
        for lane in held {
            let name = owners.entry(lane).or_insert_with(|| worker.fence.worker.clone());
            assert_eq!(*name, worker.fence.worker, "(lane, epoch) {lane:?} had two owners");
        }
        all.push(worker);
    }
    balance(&mut all).await;
    assert_fair(&all);
}

pub async fn nodes_that_work_together_dispatch_each_row_once(f: &dyn Fixture) {
    let scope = Scope::Outbox("orders".to_owned());
    f.store().enqueue(messages("orders", 400)).await.expect("enqueue");
    let first = Worker::start(f.store(), scope.clone(), "a").await;
    let second = Worker::start(f.second(), scope, "b").await;
    let mut workers = [first, second];
    balance(&mut workers).await;
    let nodes = workers.map(|worker| {
        tokio::spawn(async move {
            let mut done = 0;
            loop {
                let rows = worker.pending(30).await;
                if rows.is_empty() {
                    return done;
                }
                let fates = rows.iter().map(|r| worker.outbox_fate(r, OutboxFate::Dispatched));
                let settled = worker.settle_all(fates.collect()).await;
                assert_eq!(settled.refused, 0, "nobody else works on these lanes");
                done += settled.settled;
            }
        })
    });
    let mut done = 0;
    for node in nodes {
        done += node.await.expect("node");
    }
    assert_eq!(done, 400);
    assert_eq!(f.number("SELECT count(*) FROM relais_outbox WHERE attempts <> 1").await, 0);
}

pub async fn others_notice_when_a_worker_comes_or_leaves(f: &dyn Fixture) {
    let store = f.store();
    let workers = async || store.changes().await.expect("changes").workers;
    let alone = workers().await;
    let mut worker = Worker::inbox(f, "a").await;
    let with_it = workers().await;
    assert_ne!(with_it, alone);
    worker.heartbeat().await;
    assert_eq!(workers().await, with_it, "a heartbeat is no news");
    expire_all(f).await;
    assert_eq!(workers().await, alone, "a lost worker does not count");
    worker.heartbeat().await;
    let again = workers().await;
    assert_ne!(again, alone);
    let orders = Worker::outbox(f, "orders", "a").await;
    let two_scopes = workers().await;
    assert_ne!(two_scopes, again, "it serves another scope");
    { orders }.leave().await;
    assert_ne!(workers().await, two_scopes, "it left one scope");
    worker.leave().await;
    assert_eq!(workers().await, alone);
}
