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
