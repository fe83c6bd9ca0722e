//! Rows that programs in other languages write, in whatever form SQLite lets them.

use std::time::Duration;

use relais_core::{
    inspect::InspectExt,
    lane::{Fence, Scope},
    outbox::{OutboxFate, OutboxSettlement},
    process::{Entry, ProcessEvent, ProcessRef},
    store::{Fetch, Store},
};
use rusqlite::{Connection, TransactionBehavior};
use uuid::Uuid;

use crate::bed::{Bed, DESTINATION, message};

const PLAIN: &str = "INSERT INTO relais_outbox \
    (aggregate_type, aggregate_id, event_type, destination, payload) \
    VALUES ('Order', ?1, 'OrderCreated', 'orders', '{}')";

#[tokio::test]
async fn plain_inserts_arrive_while_the_store_works() {
    let bed = Bed::new().await;
    let lanes = bed.lease(Scope::Outbox(DESTINATION.into()), "w1").await;
    let raw = bed.raw();
    for round in 0..20 {
        raw.execute(PLAIN, [format!("other-{round}")]).unwrap();
        bed.store.enqueue(vec![message(&format!("own-{round}"))]).await.unwrap();
        assert_eq!(bed.fetch(&lanes, 100).await.len(), 2 * (round + 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_writers_and_a_relay_neither_lose_nor_repeat() {
    const WRITERS: usize = 8;
    const EACH: usize = 25;
    let bed = Bed::new().await;
    let scope = Scope::Outbox(DESTINATION.into());
    let lanes = bed.lease(scope.clone(), "w1").await;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let mut db = bed.raw();
            db.busy_timeout(Duration::from_secs(60)).unwrap();
            std::thread::spawn(move || write_orders(&mut db, writer, EACH))
        })
        .collect();
    let mut relayed = 0;
    while relayed < WRITERS * EACH {
        let fetch = Fetch::new(scope.clone(), lanes.clone(), 50);
        let rows = bed.store.fetch_outbox(fetch).await.unwrap();
        let settlements = rows.iter().map(|row| OutboxSettlement {
            id: row.id,
            lane: row.lane,
            epoch: lanes.iter().find(|l| l.lane == row.lane).unwrap().epoch,
            fate: OutboxFate::Dispatched,
        });
        let fence = Fence { scope: scope.clone(), worker: "w1".into() };
        let settled = bed.store.settle_outbox(fence, settlements.collect()).await.unwrap();
        assert_eq!(settled.refused, 0);
        relayed += rows.len();
    }
    for writer in writers {
        writer.join().unwrap();
    }
    assert_eq!(bed.count("orders"), 200);
    assert_eq!(bed.count("relais_outbox WHERE status = 'DISPATCHED' AND attempts = 1"), 200);
}

fn write_orders(db: &mut Connection, writer: usize, orders: usize) {
    for order in 0..orders {
        let id = format!("{writer}-{order}");
        let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        tx.execute("INSERT INTO orders VALUES (?1)", [&id]).unwrap();
        tx.execute(PLAIN, [&id]).unwrap();
        tx.commit().unwrap();
    }
}

#[tokio::test]
async fn a_message_id_is_one_whatever_the_case_of_its_letters() {
    let bed = Bed::new().await;
    let id = Uuid::from_u128(0xABCD_EF01_2345_4678_9ABC_DEF0_1234_5678);
    let sql = "INSERT INTO relais_outbox \
        (message_id, aggregate_type, aggregate_id, event_type, destination, payload) \
        VALUES (?1, 'Order', 'o-1', 'OrderCreated', 'orders', '{}')";
    bed.raw().execute(sql, [id.to_string().to_uppercase()]).unwrap();
    assert!(bed.raw().execute(sql, [id.to_string()]).is_err(), "the same id twice");
    let mut again = message("o-1");
    again.message_id = id;
    (again.event_type, again.payload) = ("OrderCreated".into(), "{}".into());
    assert_eq!(bed.store.enqueue(vec![again]).await.unwrap(), [1]);
    let lanes = bed.lease(Scope::Outbox(DESTINATION.into()), "w1").await;
    assert_eq!(bed.fetch(&lanes, 10).await, [id]);
    assert!(bed.store.find_outbox(id.to_string()).await.unwrap().is_some());
    for wrong in ["", "order-7", &id.simple().to_string(), &format!("{id}0"), &"g".repeat(36)] {
        assert!(bed.raw().execute(sql, [wrong]).is_err(), "`{wrong}` is no UUID");
    }
}

#[tokio::test]
async fn a_time_that_would_not_sort_is_refused() {
    let bed = Bed::new().await;
    let sql = "INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, \
        payload, next_attempt_at) VALUES ('Order', 'o-1', 'E', 'orders', '{}', ?1)";
    for wrong in ["tomorrow", "2026-11-15 12:00:00", "2026-11-15T12:00:00+01:00", "1763208000"] {
        assert!(bed.raw().execute(sql, [wrong]).is_err(), "{wrong}");
    }
    for good in ["2026-11-15T12:00:00Z", "2026-11-15T12:00:00.123456Z"] {
        bed.raw().execute(sql, [good]).unwrap();
    }
}

#[tokio::test]
async fn a_broken_row_of_another_writer_blocks_no_other_row() {
    let bed = Bed::new().await;
    let broken = "PRAGMA ignore_check_constraints = ON; \
        INSERT INTO relais_outbox (message_id, aggregate_type, aggregate_id, event_type, \
            event_version, destination, payload, headers, created_at, attempts) \
        VALUES ('no uuid', CAST(x'ff' AS TEXT), 'o-1', 'E', 99999999999, 'orders', \
            CAST(x'7b22ff223a317d' AS TEXT), 'no json', 'once upon a time', -5);";
    bed.raw().execute_batch(broken).unwrap();
    bed.store.enqueue(vec![message("o-2")]).await.unwrap();
    let lanes = bed.lease(Scope::Outbox(DESTINATION.into()), "w1").await;
    let first = bed.fetch(&lanes, 10).await;
    assert_eq!(first.len(), 2);
    assert_eq!(bed.fetch(&lanes, 10).await, first, "its id is stable");
    let row = bed.store.find_outbox("1".into()).await.unwrap().unwrap();
    assert_eq!((row.attempts, row.event_version), (0, i32::MAX));
    assert_eq!(row.payload, "{\"\u{FFFD}\":1}");
}

#[tokio::test]
async fn a_commit_of_any_program_changes_the_number_of_changes() {
    let bed = Bed::new().await;
    let quiet = bed.store.changes().await.unwrap();
    assert_eq!(bed.store.changes().await.unwrap(), quiet);
    bed.raw().execute(PLAIN, ["o-1"]).unwrap();
    let other = bed.store.changes().await.unwrap();
    assert_ne!(other, quiet);
    bed.store.enqueue(vec![message("o-2")]).await.unwrap();
    assert_ne!(bed.store.changes().await.unwrap(), other);
}

#[tokio::test]
async fn a_process_that_another_version_wrote_is_not_changed_and_its_log_is_shown() {
    let bed = Bed::new().await;
    let id = Uuid::from_u128(7);
    let broken = format!(
        "PRAGMA ignore_check_constraints = ON; \
         INSERT INTO relais_process (process_id, process_type, definition, status, data, version) \
             VALUES ('{id}', 'Order', 1, 'SLEEPING', 'no json', 2); \
         INSERT INTO relais_process_log (process_id, seq, event_type, event) \
             VALUES ('{id}', 1, 'ProcessDreamt', '{{\"type\":\"ProcessDreamt\"}}'), \
                    ('{id}', 2, 'ProcessFailed', '{{\"type\":\"ProcessFailed\",\"reason\":\"x\"}}');"
    );
    bed.raw().execute_batch(&broken).unwrap();
    let found = bed.store.load_processes(vec![ProcessRef::Id(id)]).await;
    let text = found.unwrap_err().to_string();
    assert!(text.contains("`SLEEPING` is not known to this program"), "{text}");
    let log = bed.store.process_log(id, None, 10).await.unwrap();
    assert_eq!(log[0].entry, Entry::of(ProcessEvent::ProcessFailed { reason: "x".into() }));
    assert!(log[1].entry.note.as_deref().is_some_and(|note| note.contains("cannot decode")));
    let ProcessEvent::ProcessFailed { reason } = &log[1].entry.event else { panic!("{log:?}") };
    assert!(reason.contains("ProcessDreamt"));
}
