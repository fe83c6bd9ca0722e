//! The cost of reading beside many rows that wait, in buffers.

use std::time::Duration;

use relais_core::{
    delivery::Problem,
    inbox::{InboxFate, InboxSettlement},
    lane::Scope,
    outbox::OutboxFate,
    store::Store,
};
use relais_testkit::build;
use tokio_postgres::SimpleQueryMessage;

use crate::{
    bed::{Bed, fence, outbox},
    mark::{fetch_for_a_while, inbox, park},
};

/// Rows that must not make a fetch longer.
const MANY: usize = 50_000;

/// Shared buffers that the fetch of the destination `orders` reads at the mark, by tables with statistics.
async fn buffers(bed: &Bed) -> i64 {
    let analyze = "ANALYZE relais_outbox, relais_waiting, relais_parked_key";
    bed.raw.batch_execute(analyze).await.unwrap();
    buffers_of_fetch(bed).await
}

async fn buffers_of_fetch(bed: &Bed) -> i64 {
    let sql = include_str!("../../src/postgres/sql/fetch_outbox.sql");
    let types = "text, smallint[], bigint, bigint, text[], bigint[], bigint, bigint";
    let values = format!(
        "'orders', '{{{}}}', {}, 1000, '{{}}', '{{}}', 33554432, 1000",
        all_lanes(),
        bed.store.mark(&outbox())
    );
    buffers_of(bed, sql, types, &values).await
}

fn all_lanes() -> String {
    (0..64).map(|lane| lane.to_string()).collect::<Vec<_>>().join(",")
}

/// Shared buffers that a statement reads, planned as in a session of relais.
pub(crate) async fn buffers_of(bed: &Bed, sql: &str, types: &str, values: &str) -> i64 {
    bed.raw.batch_execute("BEGIN").await.unwrap();
    let session = include_str!("../../src/postgres/sql/session.sql");
    bed.raw.execute(session, &[&"30000", &"10000", &"30000"]).await.unwrap();
    bed.raw.batch_execute(&format!("PREPARE it ({types}) AS {sql}")).await.unwrap();
    let run = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE it ({values})");
    // The second run, when everything is cached and marked.
    let mut read = 0;
    for _ in 0..2 {
        let answer = bed.raw.simple_query(&run).await.unwrap();
        let rows = answer.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        let plan: serde_json::Value = serde_json::from_str(&rows.collect::<String>()).unwrap();
        let of = |name: &str| plan[0]["Plan"][name].as_i64().unwrap();
        read = of("Shared Hit Blocks") + of("Shared Read Blocks");
    }
    bed.raw.batch_execute("DEALLOCATE it; COMMIT").await.unwrap();
    read
}

/// As after a crash of the server, or before the first autovacuum.
#[tokio::test]
async fn a_backlog_without_statistics_is_walked_in_order() {
    let Some(bed) = Bed::new().await else { return };
    fill(&bed, "orders", "'k-' || n", MANY).await;
    let fetch = buffers_of_fetch(&bed).await;
    let sql = include_str!("../../src/postgres/sql/lowest_outbox.sql");
    let values = format!("'orders', '{{{}}}', 0, 0", all_lanes());
    let lowest = buffers_of(&bed, sql, "text, smallint[], bigint, bigint", &values).await;
    let sql = include_str!("../../src/postgres/sql/destinations_with_work.sql");
    let work = buffers_of(&bed, sql, "text[], bigint[]", "'{orders}', '{0}'").await;
    assert!(fetch < 500 && lowest < 50 && work < 50, "{fetch}, {lowest} and {work} buffers");
}

/// Rows of keys with an ordinary payload, made by the database.
pub(crate) async fn fill(bed: &Bed, destination: &str, key: &str, rows: usize) {
    let insert = format!(
        "INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload)
         SELECT 'Order', {key}, 'E', '{destination}', to_json(repeat('x', 300))
         FROM generate_series(1, {rows}) AS n"
    );
    bed.raw.batch_execute(&insert).await.unwrap();
}

/// Returns the buffers that a fetch reads beside `rows` rows of a parked key or another destination.
async fn buffers_beside(destination: &str, rows: usize) -> Option<i64> {
    let bed = Bed::new().await?;
    let lanes = bed.lanes().await;
    park(&bed, &lanes, "k").await;
    fill(&bed, destination, "'k'", rows).await;
    assert!(fetch_for_a_while(&bed, &lanes).await.is_empty());
    fill(&bed, "orders", "'other-' || n", 2_000).await;
    assert_eq!(fetch_for_a_while(&bed, &lanes).await.len(), 100);
    Some(buffers(&bed).await)
}

async fn assert_costs_nothing(destination: &str) {
    let Some(without) = buffers_beside(destination, 1).await else { return };
    let with = buffers_beside(destination, MANY).await.unwrap();
    assert!(with * 10 <= without * 12, "{with} buffers instead of {without}");
}

#[tokio::test]
async fn rows_behind_a_parked_key_cost_a_fetch_of_other_keys_nothing() {
    assert_costs_nothing("orders").await;
}

#[tokio::test]
async fn rows_that_wait_for_one_destination_cost_a_fetch_of_another_nothing() {
    assert_costs_nothing("unavailable").await;
}

/// An outage leaves the called rows in backoff and the remaining rows unchanged.
#[tokio::test]
async fn rows_that_wait_for_an_unavailable_destination_cost_its_own_fetch_nothing() {
    let mut read = Vec::new();
    for rows in [0, MANY] {
        let Some(bed) = Bed::new().await else { return };
        let lanes = bed.lanes().await;
        fill(&bed, "orders", "'called-' || n", 50).await;
        let called = bed.fetch(&lanes).await;
        let problem = Problem::new("REFUSED", "no connection");
        let pause = Duration::from_secs(3_600);
        let wait = OutboxFate::Wait { pause, problem, lost_workers: 0 };
        assert_eq!(bed.settle(&called, &lanes, &wait).await.settled, 50);
        fill(&bed, "orders", "'called-' || n", 50).await;
        fill(&bed, "orders", "'other-' || n", 2_000).await;
        fill(&bed, "orders", "'waits-' || n", rows).await;
        assert_eq!(fetch_for_a_while(&bed, &lanes).await.len(), 100);
        read.push(buffers(&bed).await);
    }
    let [without, with] = read[..] else { unreachable!() };
    assert!(with * 10 <= without * 12, "{with} buffers instead of {without}");
}

/// Received rows of keys, made by the database.
async fn fill_inbox(bed: &Bed, key: &str, rows: usize) {
    let insert = format!(
        "INSERT INTO relais_inbox (message_id, source_system, topic, partition_num, offset_num, msg_key,
                                   event_type, payload)
         SELECT {key} || '-' || n, 'crm', '', 0, 0, {key}, 'E', to_json(repeat('x', 300))
         FROM generate_series(1, {rows}) AS n"
    );
    bed.raw.batch_execute(&insert).await.unwrap();
}

/// Returns the buffers that a fetch of the inbox reads beside `rows` rows of a parked key.
async fn buffers_of_inbox_beside(rows: usize) -> Option<i64> {
    let bed = Bed::new().await?;
    let lanes = bed.lease(Scope::Inbox, "w1").await;
    let fetch = async || bed.store.fetch_inbox(inbox(&lanes)).await.unwrap();
    bed.store.accept(vec![build::arrival("k")], Vec::new()).await.unwrap();
    let row = fetch().await.remove(0);
    let epoch = lanes.iter().find(|owned| owned.lane == row.lane).unwrap().epoch;
    let problem = Problem::new("REFUSED", "no");
    let fate = InboxFate::Dead { attempts: 1, problem, park: true };
    let settlement = InboxSettlement { id: row.id, lane: row.lane, epoch, fate };
    let settled = bed.store.settle_inbox(fence(Scope::Inbox, "w1"), vec![settlement]);
    assert_eq!(settled.await.unwrap().settled, 1);
    fill_inbox(&bed, &format!("'{}'", row.msg_key), rows).await;
    let last = bed.raw.query_one("SELECT max(id) FROM relais_inbox", &[]).await.unwrap().get(0);
    while bed.store.mark(&Scope::Inbox) < last {
        assert!(fetch().await.is_empty(), "parked");
    }
    fill_inbox(&bed, "'other-' || n", 2_000).await;
    assert_eq!(fetch().await.len(), 100);
    bed.raw.batch_execute("ANALYZE relais_inbox, relais_parked_key").await.unwrap();
    let sql = include_str!("../../src/postgres/sql/fetch_inbox.sql");
    let types = "smallint[], bigint, bigint, text[], bigint[], bigint, text";
    let from = bed.store.mark(&Scope::Inbox);
    let values = format!("'{{{}}}', {from}, 1000, '{{}}', '{{}}', 33554432, ''", all_lanes());
    Some(buffers_of(&bed, sql, types, &values).await)
}

#[tokio::test]
async fn received_rows_behind_a_parked_key_cost_a_fetch_of_other_keys_nothing() {
    let Some(without) = buffers_of_inbox_beside(1).await else { return };
    let with = buffers_of_inbox_beside(MANY).await.unwrap();
    assert!(with * 10 <= without * 12, "{with} buffers instead of {without}");
}
