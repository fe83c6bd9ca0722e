//! What other programs do with plain SQL: consumers that store messages and mark them, and publishers of destinations
//! that relais does not serve.

use relais_core::{
    dead_letter::{DeadLetterStore, DecisionAction, DecisionResult, OperatorDecision, Resolution},
    inbox::InboxStatus,
    inspect::InspectExt,
    lane::{LaneRelease, Scope},
    outbox::OutboxStatus,
    query::Filter,
    store::Store,
};
use tokio_postgres::Client;

use crate::{
    bed::{Bed, fence, message},
    roles::assert_denied,
    support::postgres::Role,
};

/// A message of the destination `orders`, with the columns that a service writes.
const SEND: &str = "INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload) \
                    VALUES ('Order', 'o-1', 'OrderPaid', 'orders', '{\"n\":1}') RETURNING id";

async fn send(bed: &Bed, count: usize) -> Vec<i64> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(bed.raw.query_one(SEND, &[]).await.unwrap().get(0));
    }
    ids
}

/// Returns id and fence of each claimed message.
async fn sweep(client: &Client, max: i32, worker: &str) -> Vec<(i64, i64)> {
    let sql = "SELECT id, fence FROM relais_sweep_batch('orders', $1, $2)";
    let rows = client.query(sql, &[&max, &worker]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

async fn yes(client: &Client, sql: &str) -> bool {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

async fn expire(bed: &Bed) {
    let sql = "UPDATE relais_claim SET lease_until = clock_timestamp() - INTERVAL '1 second'";
    bed.raw.batch_execute(sql).await.unwrap();
}

/// Retries the only open dead letter.
async fn retry_dead_letter(bed: &Bed) {
    let letters = bed.store.list_dead_letters(Filter { limit: 10, ..Filter::default() });
    let dead_letter = letters.await.unwrap()[0].id;
    let action = DecisionAction::Resolve { dead_letter, resolution: Resolution::Retried };
    let decision = OperatorDecision { action, actor: "ann".into(), reason: "fixed".into() };
    assert_eq!(bed.store.decide(decision).await.unwrap(), DecisionResult::Done);
}

#[tokio::test]
async fn the_insert_of_a_consumer_needs_no_key_and_no_headers() {
    let Some(bed) = Bed::new().await else { return };
    let consumer = bed.schema.client_as(Role::Consumer).await;
    let insert = "INSERT INTO relais_inbox (message_id, source_system, topic, partition_num, offset_num, \
                  key_str, aggregate_id, event_type, payload, headers, event_ts, status, received_at) \
                  VALUES ('m-1', 'crm', 'members', 3, 42, NULL, 'a-1', 'MembersCreated', '{\"a\":1}', NULL, \
                  now(), 'RECEIVED', now()) ON CONFLICT (source_system, message_id) DO NOTHING";
    assert_eq!(consumer.execute(insert, &[]).await.unwrap(), 1);
    assert_eq!(consumer.execute(insert, &[]).await.unwrap(), 0, "a duplicate");
    let keyless = insert.replace("'m-1'", "'m-2'").replace("NULL, 'a-1'", "'k-2', NULL");
    assert_eq!(consumer.execute(&keyless, &[]).await.unwrap(), 1);
    let bare = keyless.replace("'m-2'", "'m-3'").replace("'k-2'", "NULL");
    assert_eq!(consumer.execute(&bare, &[]).await.unwrap(), 1);
    let undecodable = "INSERT INTO relais_inbox (message_id, source_system, topic, partition_num, offset_num, \
                       key_str, raw_payload_base64, headers, event_ts, status, error_stage, error_code, \
                       error_message, received_at) VALUES ('m-4', 'crm', 'members', 3, 43, 'k', 'e29vcHM=', \
                       '{}', now(), 'SERDE_ERROR', 'CONSUMER_SERDE', 'INVALID_JSON', 'oops', now())";
    assert_eq!(consumer.execute(undecodable, &[]).await.unwrap(), 1);
    let filter = Filter { limit: 10, ..Filter::default() };
    let rows = bed.store.list_inbox(filter).await.unwrap();
    let keys: Vec<&str> = rows.iter().rev().map(|row| row.msg_key.as_str()).collect();
    assert_eq!(keys, ["a-1", "k-2", "m-3", "k"]);
    assert_eq!(rows[0].status, InboxStatus::SerdeError);
    assert_eq!(rows[3].payload.as_deref(), Some("{\"a\":1}"));
    // Once for each handler, in the transaction of the consumer.
    let once = "INSERT INTO relais_handled (message_id, handler) VALUES ('m-1', 'billing') \
                ON CONFLICT (message_id, handler) DO NOTHING";
    assert_eq!(consumer.execute(once, &[]).await.unwrap(), 1);
    assert_eq!(consumer.execute(once, &[]).await.unwrap(), 0);
    assert_eq!(consumer.execute(&once.replace("billing", "mail"), &[]).await.unwrap(), 1);
    assert!(!bed.store.once("billing".into(), "m-1".into()).await.unwrap(), "the same marks");
    let denied = [
        "SELECT payload FROM relais_inbox",
        "UPDATE relais_inbox SET status = 'PROCESSED'",
        "DELETE FROM relais_handled",
        "INSERT INTO relais_outbox (destination) VALUES ('orders')",
        "SELECT relais_mark_published(1, 1)",
        "SELECT relais_sweep_batch('orders', 1, 'w')",
    ];
    assert_denied(&consumer, &denied).await;
}

#[tokio::test]
async fn headers_of_a_sent_message_may_be_null() {
    let Some(bed) = Bed::new().await else { return };
    let insert = "INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload, headers) \
                  VALUES ('Order', 'o-1', 'OrderPaid', 'orders', '{}', NULL)";
    bed.schema.client_as(Role::Producer).await.execute(insert, &[]).await.unwrap();
    let filter = Filter { limit: 10, ..Filter::default() };
    let rows = bed.store.list_outbox(filter).await.unwrap();
    assert!(rows[0].headers.texts().next().is_none() && rows[0].msg_key == "o-1", "{rows:?}");
    let refused = insert.replace("NULL)", "'[1]')");
    assert!(bed.raw.execute(&refused, &[]).await.is_err(), "an array is refused");
}

#[tokio::test]
async fn a_publisher_claims_each_message_once_in_the_order_of_the_inserts() {
    let Some(bed) = Bed::new().await else { return };
    let ids = send(&bed, 5).await;
    let publisher = bed.schema.client_as(Role::Publisher).await;
    let first = sweep(&publisher, 2, "a").await;
    let second = sweep(&publisher, 10, "b").await;
    let claimed: Vec<i64> = first.iter().chain(&second).map(|(id, _)| *id).collect();
    assert_eq!(claimed, ids);
    assert!(sweep(&publisher, 10, "c").await.is_empty());
    let sql = "SELECT id, payload, headers, msg_key, attempts FROM relais_claim_one($1, 'c')";
    assert!(publisher.query_opt(sql, &[&ids[0]]).await.unwrap().is_none(), "another has it");
    let next = send(&bed, 1).await[0];
    let row = publisher.query_one(sql, &[&next]).await.unwrap();
    let (payload, headers, key): (&str, &str, &str) = (row.get(1), row.get(2), row.get(3));
    assert_eq!((payload, headers, key), ("{\"n\":1}", "{}", "o-1"));
    let (id, fence) = first[0];
    assert!(yes(&publisher, &format!("SELECT relais_mark_published({id}, {fence})")).await);
    assert!(!yes(&publisher, &format!("SELECT relais_mark_published({id}, {fence})")).await);
    assert!(!yes(&publisher, "SELECT relais_mark_published(999, 1)").await, "no error");
    let found = bed.store.find_outbox(id.to_string()).await.unwrap().unwrap();
    assert!(found.status == OutboxStatus::Dispatched && found.dispatched_at.is_some());
    let denied = [
        "SELECT * FROM relais_outbox",
        "SELECT * FROM relais_claim",
        "UPDATE relais_outbox SET attempts = 0",
    ];
    assert_denied(&publisher, &denied).await;
}

#[tokio::test]
async fn concurrent_sweeps_share_no_message() {
    let Some(bed) = Bed::new().await else { return };
    let mut ids = send(&bed, 200).await;
    let mut workers = Vec::new();
    for n in 0..4 {
        let client = bed.schema.client_as(Role::Publisher).await;
        workers.push(tokio::spawn(async move {
            let mut all = Vec::new();
            loop {
                let batch = sweep(&client, 7, &format!("w{n}")).await;
                if batch.is_empty() {
                    return all;
                }
                for (id, fence) in batch {
                    let done = format!("SELECT relais_mark_published({id}, {fence})");
                    assert!(yes(&client, &done).await);
                    all.push(id);
                }
            }
        }));
    }
    let mut published = Vec::new();
    for worker in workers {
        published.extend(worker.await.unwrap());
    }
    // A sweep that met only locked rows may have ended early: the rest is still there.
    published.extend(sweep(&bed.raw, 1000, "last").await.iter().map(|(id, _)| *id));
    published.sort_unstable();
    ids.sort_unstable();
    assert_eq!(published, ids);
}

#[tokio::test]
async fn a_lost_claim_settles_nothing() {
    let Some(bed) = Bed::new().await else { return };
    let id = send(&bed, 1).await[0];
    let publisher = bed.schema.client_as(Role::Publisher).await;
    let old = sweep(&publisher, 1, "a").await[0].1;
    let renew = format!("SELECT relais_renew_claim({id}, {old}, INTERVAL '1 minute')");
    assert!(yes(&publisher, &renew).await);
    expire(&bed).await;
    assert!(!yes(&publisher, &renew).await, "it has expired");
    // Old, but not claimed: age alone does not make a message claimed twice.
    bed.raw
        .batch_execute("UPDATE relais_outbox SET created_at = now() - INTERVAL '1 day'")
        .await
        .unwrap();
    let new = sweep(&publisher, 1, "b").await[0].1;
    assert_ne!(old, new);
    for call in [
        "relais_mark_published({id}, {old})",
        "relais_mark_failed({id}, {old}, 'x')",
        "relais_reschedule({id}, {old}, 1, 'x')",
    ] {
        let call = call.replace("{id}", &id.to_string()).replace("{old}", &old.to_string());
        assert!(!yes(&publisher, &format!("SELECT {call}")).await, "{call}");
    }
    assert_eq!(bed.count("relais_outbox WHERE status = 'PENDING' AND attempts = 0").await, 1);
    assert!(yes(&publisher, &format!("SELECT relais_mark_published({id}, {new})")).await);
    assert_eq!(bed.count("relais_claim").await, 0);
}

#[tokio::test]
async fn a_failed_message_waits_and_finally_is_a_dead_letter_that_can_be_retried() {
    let Some(bed) = Bed::new().await else { return };
    let id = send(&bed, 1).await[0];
    let publisher = bed.schema.client_as(Role::Publisher).await;
    let claim = sweep(&publisher, 1, "a").await[0].1;
    assert!(
        yes(&publisher, &format!("SELECT relais_reschedule({id}, {claim}, 60000, 'busy')")).await
    );
    assert!(sweep(&publisher, 1, "a").await.is_empty(), "not due yet");
    let row = bed.store.find_outbox(id.to_string()).await.unwrap().unwrap();
    assert_eq!(
        (row.status, row.attempts, row.error_message.as_deref()),
        (OutboxStatus::Pending, 1, Some("busy"))
    );
    bed.raw.batch_execute("UPDATE relais_outbox SET next_attempt_at = now()").await.unwrap();
    let claim = sweep(&publisher, 1, "a").await[0].1;
    assert!(yes(&publisher, &format!("SELECT relais_mark_failed({id}, {claim}, 'gone')")).await);
    let letter = bed.raw.query_one("SELECT concat_ws(' ', origin, failed_status, error_message, attempts, parked_by, destination) FROM relais_dead_letter", &[]).await.unwrap();
    assert_eq!(letter.get::<_, &str>(0), "outbox FAILED gone 2 a orders");
    assert_eq!(bed.count("relais_attempt").await, 2);
    assert!(sweep(&publisher, 1, "a").await.is_empty());
    retry_dead_letter(&bed).await;
    assert_eq!(sweep(&publisher, 1, "b").await.len(), 1, "an operator retried it");
}

#[tokio::test]
async fn a_destination_that_relais_serves_cannot_be_claimed() {
    let Some(bed) = Bed::new().await else { return };
    bed.store.enqueue(vec![message("k")]).await.unwrap();
    bed.lanes().await;
    let publisher = bed.schema.client_as(Role::Publisher).await;
    let error =
        publisher.query("SELECT relais_sweep_batch('orders', 1, 'w')", &[]).await.unwrap_err();
    let text = error.as_db_error().unwrap().message().to_owned();
    assert!(text.contains("a running relais serves it; declare it with external = true"), "{text}");
    let scope = Scope::Outbox("orders".into());
    bed.store.release_lanes(fence(scope, "w1"), LaneRelease::All).await.unwrap();
    assert_eq!(sweep(&publisher, 1, "w").await.len(), 1);
}

#[tokio::test]
async fn a_command_of_another_program_is_parked_with_every_field_and_can_be_retried() {
    let Some(bed) = Bed::new().await else { return };
    let consumer = bed.schema.client_as(Role::Consumer).await;
    let park = "SELECT relais_park($1, 'Pay', $2, $3, 'FAILED_PERMANENT', 'java.lang.IllegalState', $4, 3, 'pay-1')::text";
    let long = "x".repeat(12_000);
    let (none, key) = (None::<&str>, Some("o-1"));
    consumer.query_one(park, &[&"c-1", &key, &"{\"cents\":5}", &Some("no money")]).await.unwrap();
    consumer.query_one(park, &[&"c-2", &none, &long.as_str(), &none]).await.unwrap();
    let filter = Filter { limit: 10, ..Filter::default() };
    let letters = bed.store.list_dead_letters(filter).await.unwrap();
    let one = letters.iter().find(|letter| letter.message_id == "c-1").unwrap();
    assert_eq!(
        (
            one.event_type.as_deref(),
            one.msg_key.as_str(),
            one.payload.as_deref(),
            one.failed_status.as_str()
        ),
        (Some("Pay"), "o-1", Some("{\"cents\":5}"), "FAILED_PERMANENT")
    );
    assert_eq!(
        (
            one.error_class.as_deref(),
            one.error_message.as_deref(),
            one.attempts,
            one.parked_by.as_str()
        ),
        (Some("java.lang.IllegalState"), Some("no money"), 3, "pay-1")
    );
    let two = letters.iter().find(|letter| letter.message_id == "c-2").unwrap();
    assert_eq!((two.msg_key.as_str(), two.error_message.as_deref()), ("c-2", None));
    assert_eq!(
        two.payload.as_deref(),
        Some(format!("\"{long}\"").as_str()),
        "text that is no JSON"
    );
    // Retried: a handler of this name gets it.
    bed.raw.batch_execute("DELETE FROM relais_dead_letter WHERE message_id = 'c-2'").await.unwrap();
    retry_dead_letter(&bed).await;
    assert_eq!(bed.count("relais_inbox WHERE message_id = 'c-1' AND status = 'RECEIVED'").await, 1);
}
