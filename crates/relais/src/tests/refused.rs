//! Bulk jobs whose settlement the database refuses for one row.

use std::sync::Arc;

use relais_core::{
    delivery::Delivery,
    publisher::{Batching, Publisher},
};

use super::{
    bulk::{bulk, drain_bulk, settings},
    remote::{Outcome, RemoteTarget},
    support::{Bench, Script, on_both},
};
use crate::{BulkSettings, bulk::BulkRelay, worker::run_until_idle};

const REFUSED: &str =
    "SELECT status || ' ' || coalesce(error_code, '') FROM relais_outbox ORDER BY id";

#[tokio::test]
async fn a_row_whose_settlement_is_refused_is_the_only_dead_letter_of_its_job() {
    on_both(async |bench| {
        bench.refuse("bad", "'DISPATCHED'");
        let remote = RemoteTarget::new();
        bench.enqueue(&[("a", "a1"), ("bad", "bad1"), ("b", "b1"), ("c", "c1")]).await;
        remote.outcome("c1", Outcome::Fails(1, Delivery::reject("400", "refused")));
        drain_bulk(&bench, &mut bulk(&bench, "w", &remote, settings()).await).await;
        assert_eq!(
            bench.texts(REFUSED),
            ["DISPATCHED ", "FAILED STORE_REFUSED", "DISPATCHED ", "FAILED 400"]
        );
        assert_eq!(bench.texts("SELECT phase FROM relais_bulk_job"), ["RECONCILED"]);
        let letters =
            bench.texts("SELECT error_class FROM relais_dead_letter ORDER BY error_class");
        assert_eq!(letters, ["400", "STORE_REFUSED"]);
        let snapshot = &bench.observer.snapshot().destinations["d"];
        assert_eq!((snapshot.dispatched, snapshot.failed), (2, 2));
    })
    .await;
}

/// Runs passes until no job is open and only these rows wait.
async fn until_left(bench: &Bench, relay: &mut BulkRelay, left: &[&str]) {
    const PASSES_MAX: usize = 5_000;
    for _ in 0..PASSES_MAX {
        run_until_idle(relay).await;
        let waiting = bench
            .texts("SELECT aggregate_id FROM relais_outbox WHERE status = 'PENDING' ORDER BY id");
        let open = bench.texts("SELECT phase FROM relais_bulk_job WHERE finished_at IS NULL");
        if waiting == left && open.is_empty() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    panic!("{:?} {:?}", bench.texts(REFUSED), bench.texts("SELECT phase FROM relais_bulk_job"));
}

#[tokio::test]
async fn a_row_that_cannot_be_settled_at_all_is_left_out_and_stops_no_other_row() {
    on_both(async |bench| {
        bench.refuse("bad", "'DISPATCHED', 'FAILED'");
        let remote = RemoteTarget::new();
        bench.enqueue(&[("a", "a1"), ("bad", "bad1"), ("b", "b1")]).await;
        let mut relay = bulk(&bench, "w", &remote, settings()).await;
        until_left(&bench, &mut relay, &["bad"]).await;
        bench.enqueue(&[("bad", "bad2"), ("c", "c1")]).await;
        until_left(&bench, &mut relay, &["bad", "bad"]).await;
        assert_eq!(remote.applied(), ["a1", "bad1", "b1", "c1"], "sent once, its key waits");
        bench.accept_changes();
        drop(relay);
        bench.expire_leases();
        drain_bulk(&bench, &mut bulk(&bench, "restarted", &remote, settings()).await).await;
        assert_eq!(bench.statuses(), ["DISPATCHED 1"; 5]);
    })
    .await;
}

#[tokio::test]
async fn a_row_that_a_job_could_not_settle_is_not_sent_by_itself_either() {
    on_both(async |bench| {
        bench.refuse("bad", "'DISPATCHED', 'FAILED'");
        let remote = RemoteTarget::new();
        let small = Script::batching(Batching::Distinct { max: 10 }, &[]);
        let auto = BulkSettings {
            threshold: 3,
            small: Some(Arc::clone(&small) as Arc<dyn Publisher>),
            ..settings()
        };
        bench.enqueue(&[("a", "a1"), ("bad", "bad1"), ("b", "b1")]).await;
        let mut relay = bulk(&bench, "w", &remote, auto).await;
        until_left(&bench, &mut relay, &["bad"]).await;
        bench.enqueue(&[("c", "c1")]).await;
        until_left(&bench, &mut relay, &["bad"]).await;
        assert_eq!((remote.applied().len(), small.seen()), (3, vec!["c1".to_owned()]));
    })
    .await;
}
