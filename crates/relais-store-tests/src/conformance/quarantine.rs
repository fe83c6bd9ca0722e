//! Rows that may have killed their worker, and rows that wait without a used attempt.

use std::time::Duration;

use relais_core::{
    inbox::{InboxRow, InboxStatus},
    inspect::InspectExt,
    lane::Fence,
    outbox::{OutboxFate, OutboxRow, OutboxStatus},
    quarantine::{CLEARED, HOLD_AFTER, HOLD_FOR},
    store::{RowMark, StoreResult},
};

use super::{
    Start,
    worker::{
        Worker, all, handle_later, quarantined, quarantined_message, retry_later, wait_uncounted,
    },
};
use crate::{
    build::{arrival, message},
    fixture::Fixture,
};

pub const START: Start = Start::Migrated;

async fn find_outbox(f: &dyn Fixture, id: i64) -> OutboxRow {
    f.store().find_outbox(id.to_string()).await.expect("find").expect("the row is there")
}

async fn find_inbox(f: &dyn Fixture, id: i64) -> InboxRow {
    f.store().find_inbox(id.to_string()).await.expect("find").expect("the row is there")
}

async fn one_outbox_row(f: &dyn Fixture) -> (Worker, OutboxRow) {
    f.store().enqueue(vec![message("orders", "k")]).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    let row = worker.pending(1).await.remove(0);
    (worker, row)
}

async fn inbox_rows(f: &dyn Fixture, ids: &[&str]) -> (Worker, Vec<InboxRow>) {
    let batch = ids.iter().map(|id| arrival(id)).collect();
    f.store().accept(batch, Vec::new()).await.expect("accept");
    let worker = Worker::inbox(f, "w").await;
    let rows = worker.received(10).await;
    (worker, rows)
}

async fn end_quarantine(f: &dyn Fixture, fence: Fence, of: &Worker) -> StoreResult<u64> {
    let mark = RowMark::EndQuarantine { fence, lanes: of.lanes.clone() };
    f.store().mark_rows(mark).await.map(|woken| woken.settled)
}

pub async fn a_loss_is_noted_on_an_outbox_row_and_taken_back(f: &dyn Fixture) {
    let (worker, row) = one_outbox_row(f).await;
    for lost_workers in 1..=3 {
        let rows = vec![(row.id, worker.holding(row.lane))];
        let noted = f
            .store()
            .mark_rows(RowMark::LostWorker { fence: worker.fence.clone(), rows })
            .await
            .expect("note");
        assert_eq!(noted, all(1));
        let row = find_outbox(f, row.id).await;
        assert_eq!((row.status, row.lost_workers), (OutboxStatus::Pending, lost_workers));
        assert_eq!((row.next_attempt_at, row.attempts), (None, 0));
    }
    assert_eq!(worker.pending_ids().await, [row.id], "a note does not hold it back");
    worker.settle(&row, retry_later()).await;
    assert_eq!(find_outbox(f, row.id).await.lost_workers, 0);
}

pub async fn a_row_that_waits_without_an_attempt_holds_its_key(f: &dyn Fixture) {
    let batch = vec![message("orders", "k"), message("orders", "k"), message("orders", "other")];
    let ids = f.store().enqueue(batch).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(10).await;
    for fate in [wait_uncounted(), retry_later(), wait_uncounted()] {
        let attempts = find_outbox(f, ids[0]).await.attempts + u32::from(fate == retry_later());
        worker.settle(&rows[0], fate).await;
        let row = find_outbox(f, ids[0]).await;
        assert_eq!(row.attempts, attempts, "only a counted failure uses an attempt");
        assert!(row.next_attempt_at.is_some() && row.error_code.is_some());
        assert_eq!(worker.pending_ids().await, [ids[2]], "the later row of its key waits");
    }
}

pub async fn a_row_in_quarantine_goes_again_when_another_worker_is_lost(f: &dyn Fixture) {
    let batch = vec![message("orders", "a"), message("orders", "b"), message("mails", "a")];
    let ids = f.store().enqueue(batch).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(10).await;
    worker.settle(&rows[0], quarantined()).await;
    worker.settle(&rows[1], retry_later()).await;
    assert!(worker.pending_ids().await.is_empty());
    let mails = Worker::outbox(f, "mails", "w").await;
    let freed = end_quarantine(f, mails.fence.clone(), &mails).await;
    assert_eq!(freed.expect("end"), 0, "of its own destination only");
    let freed = end_quarantine(f, worker.fence.clone(), &worker).await;
    assert_eq!(freed.expect("end"), 1, "only what is in quarantine");
    assert_eq!(worker.pending_ids().await, [ids[0]]);
    assert_eq!(
        (find_outbox(f, ids[0]).await.lost_workers, find_outbox(f, ids[0]).await.attempts),
        (CLEARED, 0)
    );
}

pub async fn a_row_whose_hold_began_after_a_loss_is_not_acquitted_by_it(f: &dyn Fixture) {
    let (worker, row) = one_outbox_row(f).await;
    let pause = HOLD_FOR + Duration::from_secs(20);
    let OutboxFate::Wait { problem, lost_workers, .. } = quarantined() else { unreachable!() };
    worker.settle(&row, OutboxFate::Wait { pause, problem, lost_workers }).await;
    let freed = end_quarantine(f, worker.fence.clone(), &worker).await;
    assert_eq!(freed.expect("end"), 0);
    assert_eq!(find_outbox(f, row.id).await.lost_workers, HOLD_AFTER);
}

pub async fn a_loss_is_noted_on_an_inbox_row_and_taken_back(f: &dyn Fixture) {
    let (worker, rows) = inbox_rows(f, &["m-1"]).await;
    let (id, lane) = (rows[0].id, worker.holding(rows[0].lane));
    let store = f.store();
    let noted = store.mark_rows(RowMark::LostWorker {
        fence: worker.fence.clone(),
        rows: vec![(id, lane), (id + 99, lane)],
    });
    let noted = noted.await.expect("note");
    assert_eq!((noted.settled, noted.refused), (1, 1));
    assert_eq!((find_inbox(f, id).await.lost_workers, find_inbox(f, id).await.attempts), (1, 0));
    assert_eq!(worker.received_ids().await, ["m-1"], "a note does not hold it back");
    worker.settle_inbox(&rows[0], handle_later()).await;
    assert_eq!(find_inbox(f, id).await.lost_workers, 0);
}

pub async fn a_row_in_quarantine_holds_its_key_until_another_worker_is_lost(f: &dyn Fixture) {
    let (worker, rows) = inbox_rows(f, &["m-1", "m-2"]).await;
    worker.settle_inbox(&rows[0], quarantined_message()).await;
    worker.settle_inbox(&rows[1], handle_later()).await;
    let before = find_inbox(f, rows[0].id).await;
    assert_eq!((before.attempts, before.lost_workers, before.status), (0, 3, InboxStatus::Retry));
    let freed = end_quarantine(f, worker.fence.clone(), &worker).await;
    assert_eq!(freed.expect("end"), 1, "only what is in quarantine");
    assert_eq!(find_inbox(f, rows[0].id).await.lost_workers, CLEARED);
    assert_eq!(worker.received_ids().await, ["m-1"]);
    let stranger = Fence { worker: "stranger".to_owned(), ..worker.fence.clone() };
    worker.settle_inbox(&rows[0], quarantined_message()).await;
    let freed = end_quarantine(f, stranger, &worker).await;
    assert_eq!(freed.expect("end"), 0, "only the owner of the lane");
}
