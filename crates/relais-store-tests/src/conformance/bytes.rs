//! Reads are bounded by the bytes of payloads, and planning a bulk job reads no payload.

use relais_core::{
    inbox::{InboxRow, NewInbox},
    inspect::InspectExt,
    message::{Headers, NewMessage},
    outbox::{OutboxFate, OutboxRow},
    repair::{Identity, Mode, Repair, ReprocessOutcome, RewrittenRow},
    store::{Fetch, Payloads},
};

use super::{
    Start, assert_invalid,
    bulk::Held,
    worker::{MANY, Worker, all, make_due, processed, retry_later},
};
use crate::{
    build::{arrival_with, message, undecodable},
    fixture::Fixture,
};

pub const START: Start = Start::Migrated;

/// Returns a JSON text of this many bytes, part of them in characters of two bytes.
fn payload(bytes: usize) -> String {
    let wide = bytes / 4;
    format!("\"{}{}\"", "é".repeat(wide), "x".repeat(bytes - 2 - 2 * wide))
}

fn sized(key: &str, bytes: usize) -> NewMessage {
    NewMessage { payload: payload(bytes), ..message("orders", key) }
}

async fn enqueue(f: &dyn Fixture, messages: Vec<NewMessage>) -> Vec<i64> {
    f.store().enqueue(messages).await.expect("enqueue")
}

async fn outbox(worker: &Worker, bytes: usize) -> Vec<OutboxRow> {
    let fetch = Fetch { payloads: Payloads::UpTo(bytes), ..worker.fetch(MANY) };
    worker.store.fetch_outbox(fetch).await.expect("fetch outbox")
}

async fn inbox(worker: &Worker, bytes: usize) -> Vec<InboxRow> {
    let fetch = Fetch { payloads: Payloads::UpTo(bytes), ..worker.fetch(MANY) };
    worker.store.fetch_inbox(fetch).await.expect("fetch inbox")
}

fn ids(rows: &[OutboxRow]) -> Vec<i64> {
    rows.iter().map(|row| row.id).collect()
}

pub async fn a_fetch_ends_with_the_row_that_reaches_its_bytes(f: &dyn Fixture) {
    let sizes = [400, 300, 200_000, 100, 100];
    let sent = sizes.iter().enumerate().map(|(n, bytes)| sized(&format!("k{n}"), *bytes));
    let written = enqueue(f, sent.collect()).await;
    let worker = Worker::outbox(f, "orders", "w").await;
    for (bytes, rows) in [
        (1, 1),
        (400, 1),
        (401, 2),
        (700, 2),
        (701, 3),
        (200_700, 3),
        (200_701, 4),
        (200_801, 5),
        (usize::MAX, 5),
    ] {
        let found = outbox(&worker, bytes).await;
        assert_eq!(ids(&found), written[..rows], "{bytes}");
        assert!(found.iter().zip(sizes).all(|(row, bytes)| row.payload.len() == bytes));
    }
    // What a worker has in its hands does not count.
    let payloads = Payloads::UpTo(1);
    let fetch = Fetch { skip_ids: written[..3].to_vec(), payloads, ..worker.fetch(MANY) };
    let rest = f.store().fetch_outbox(fetch).await.expect("fetch");
    assert_eq!(ids(&rest), written[3..4]);
}

pub async fn a_fetch_of_the_inbox_ends_with_the_row_that_reaches_its_bytes(f: &dyn Fixture) {
    let sent: Vec<NewInbox> =
        [500, 100_000, 20].map(|n| arrival_with(&format!("m{n}"), &payload(n))).into();
    f.store().accept(sent, Vec::new()).await.expect("accept");
    let worker = Worker::inbox(f, "w").await;
    for (bytes, rows) in [(1, 1), (500, 1), (501, 2), (100_500, 2), (100_501, 3)] {
        assert_eq!(inbox(&worker, bytes).await.len(), rows, "{bytes}");
    }
}

/// Of one key the earlier rows come first, whichever way they are found.
pub async fn a_cut_by_bytes_is_a_prefix_of_due_and_fresh_rows(f: &dyn Fixture) {
    let keys = ["a", "b", "a", "c", "a", "b"];
    let written = enqueue(f, keys.iter().map(|key| sized(key, 1_000)).collect()).await;
    let worker = Worker::outbox(f, "orders", "w").await;
    let first = worker.pending(MANY).await;
    let later = [0, 1].map(|n| worker.outbox_fate(&first[n], retry_later()));
    assert_eq!(worker.settle_all(later.into()).await, all(2));
    make_due(f, "relais_outbox").await;
    let whole = ids(&outbox(&worker, usize::MAX).await);
    assert!(whole.is_sorted() && whole.starts_with(&written[..2]), "{whole:?}");
    for rows in 1..=whole.len() {
        let bytes = (rows - 1) * 1_000 + 1;
        assert_eq!(ids(&outbox(&worker, bytes).await), whole[..rows]);
    }
    // In small bites, everything comes and no key is turned round.
    let (mut seen, mut bites) = (Vec::new(), 0);
    while let Some(row) = outbox(&worker, 1).await.into_iter().next() {
        seen.push(row.id);
        worker.settle(&row, OutboxFate::Dispatched).await;
        bites += 1;
        assert!(bites <= written.len(), "{seen:?}");
    }
    for key in ["a", "b", "c"] {
        let of = |ids: &[i64]| -> Vec<i64> {
            let is = |id: &i64| keys[written.iter().position(|w| w == id).expect("ours")] == key;
            ids.iter().copied().filter(is).collect()
        };
        assert_eq!(of(&seen), of(&written), "{key}");
    }
}

pub async fn raw_bytes_of_a_repaired_row_count(f: &dyn Fixture) {
    let garbage = vec![0xff; 3_000];
    f.store().accept(vec![undecodable("m1", &garbage)], Vec::new()).await.expect("accept");
    let row = f.store().find_inbox("m1".into()).await.expect("find").expect("the row");
    let rewritten = RewrittenRow {
        message_id: "m1".into(),
        identity: Identity::Promised,
        msg_key: "k".into(),
        aggregate_id: None,
        event_type: None,
        payload: payload(100),
        headers: Headers::default(),
    };
    let repair = Repair { rewritten, actor: "ann".into(), reason: "a new decoder".into() };
    let repaired = f.store().reprocess(row.id, repair, Mode::Write).await.expect("repair");
    assert_eq!(repaired, ReprocessOutcome::Received);
    f.store().accept(vec![arrival_with("m2", &payload(100))], Vec::new()).await.expect("accept");
    let worker = Worker::inbox(f, "w").await;
    let rows = inbox(&worker, usize::MAX).await;
    assert_eq!(rows.len(), 2);
    let raw = rows[0].raw_payload_base64.as_ref().map_or(0, String::len);
    assert_eq!(inbox(&worker, 100 + raw).await.len(), 1);
    assert_eq!(inbox(&worker, 101 + raw).await.len(), 2);
    assert_eq!(worker.settle_inbox(&rows[0], processed()).await, all(1));
}

pub async fn a_fetch_without_payloads_has_the_same_rows(f: &dyn Fixture) {
    let keys = ["a", "b", "a", "c", "d"];
    enqueue(f, keys.iter().map(|key| sized(key, 50_000)).collect()).await;
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(MANY).await;
    worker.settle(&rows[1], retry_later()).await;
    let found = f.store().fetch_outbox(without_payloads(&worker, MANY)).await.expect("fetch");
    let mut wanted = worker.pending(MANY).await;
    for row in &mut wanted {
        (row.payload, row.headers) = (String::new(), Headers::default());
    }
    assert_eq!((found.len(), found), (4, wanted));
    let few = f.store().fetch_outbox(without_payloads(&worker, 2)).await.expect("fetch");
    assert_eq!(few.len(), 2);
}

fn without_payloads(worker: &Worker, limit: usize) -> Fetch {
    Fetch { payloads: Payloads::Omitted, ..worker.fetch(limit) }
}

pub async fn a_fetch_of_the_inbox_without_payloads_is_refused(f: &dyn Fixture) {
    let worker = Worker::inbox(f, "w").await;
    assert_invalid(f.store().fetch_inbox(without_payloads(&worker, 1)).await);
}

async fn held(f: &dyn Fixture) -> Held {
    let sent =
        ["a", "b", "c"].map(|key| NewMessage { destination: "bulk".into(), ..sized(key, 1_000) });
    enqueue(f, sent.into()).await;
    Held::of_pending(f).await
}

pub async fn rows_of_a_job_end_with_the_one_that_reaches_the_bytes(f: &dyn Fixture) {
    let held = held(f).await;
    for (bytes, rows) in [(1, 1), (1_000, 1), (1_001, 2), (2_001, 3), (usize::MAX, 3)] {
        let page = f.store().bulk_rows(held.job.id, 0, 10, Payloads::UpTo(bytes)).await;
        assert_eq!(page.expect("rows"), held_rows(f, &held, rows).await, "{bytes}");
    }
    let next = f.store().bulk_rows(held.job.id, held.id(0), 10, Payloads::UpTo(1)).await;
    assert_eq!(ids(&next.expect("rows")), [held.id(1)]);
}

/// The first rows of the job, as they are.
async fn held_rows(f: &dyn Fixture, held: &Held, count: usize) -> Vec<OutboxRow> {
    let mut rows = Vec::new();
    for row in &held.rows[..count] {
        let found = f.store().find_outbox(row.id.to_string()).await.expect("find");
        rows.push(found.expect("the row"));
    }
    rows
}

pub async fn rows_of_a_job_are_read_without_payloads(f: &dyn Fixture) {
    let held = held(f).await;
    let page = f.store().bulk_rows(held.job.id, 0, 10, Payloads::Omitted).await.expect("rows");
    let mut wanted = held_rows(f, &held, 3).await;
    wanted.iter_mut().for_each(|row| row.payload.clear());
    assert_eq!(page, wanted);
}
