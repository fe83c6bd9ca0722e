//! Leases and their heartbeat.

use relais_core::lane::Scope;

use super::support::Bench;

#[tokio::test]
async fn a_second_worker_gets_its_share_once_the_first_has_drained() {
    let bench = Bench::new().await;
    let (one, two) = (bench.keeper(Scope::Inbox, "one"), bench.keeper(Scope::Inbox, "two"));
    one.beat().await.unwrap();
    assert_eq!(one.usable().len(), 64);
    two.beat().await.unwrap();
    assert_eq!(two.usable().len(), 0, "nothing is free yet");
    one.beat().await.unwrap();
    assert_eq!(one.usable().len(), 32, "no new rows are read from lanes to be given back");
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
async fn lanes_of_a_dead_worker_are_taken_over_as_unclean() {
    let bench = Bench::new().await;
    bench.keeper(Scope::Inbox, "dead").beat().await.unwrap();
    bench.expire_leases();
    let heir = bench.keeper(Scope::Inbox, "heir");
    heir.beat().await.unwrap();
    assert_eq!(heir.owned(), 64);
    assert_eq!(heir.take_unclean(&heir.usable()).len(), 64);
    heir.beat().await.unwrap();
    assert!(heir.take_unclean(&heir.usable()).is_empty(), "caution is for the first rows only");
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
async fn a_lane_nobody_was_cautious_about_is_not_handed_over_as_clean() {
    let bench = Bench::new().await;
    bench.keeper(Scope::Inbox, "dead").beat().await.unwrap();
    bench.expire_leases();
    let heir = bench.keeper(Scope::Inbox, "heir");
    heir.beat().await.unwrap();
    heir.leave(|_| false).await;
    let next = bench.keeper(Scope::Inbox, "next");
    next.beat().await.unwrap();
    assert_eq!(next.owned(), 0, "they wait for their lease to run out");
    bench.expire_leases();
    next.beat().await.unwrap();
    assert_eq!(next.take_unclean(&next.usable()).len(), 64);
}

#[tokio::test]
async fn a_lane_is_read_with_caution_before_it_is_given_back() {
    let bench = Bench::new().await;
    bench.keeper(Scope::Inbox, "dead").beat().await.unwrap();
    bench.expire_leases();
    let (heir, next) = (bench.keeper(Scope::Inbox, "heir"), bench.keeper(Scope::Inbox, "next"));
    heir.beat().await.unwrap();
    next.beat().await.unwrap();
    heir.beat().await.unwrap();
    assert_eq!(heir.usable().len(), 64, "what was not read yet is not held back from reading");
    assert_eq!(heir.take_unclean(&heir.usable()).len(), 64);
    heir.beat().await.unwrap();
    heir.report_empty(|_| true);
    heir.beat().await.unwrap();
    next.beat().await.unwrap();
    assert_eq!((heir.owned(), next.owned()), (32, 32));
}
