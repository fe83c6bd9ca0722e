//! Lists for operators: a page reads a bounded number of rows, and returns where the next one begins.

use relais_core::{
    inspect::{InspectExt, PayloadPart, SCAN_MAX},
    outbox::OutboxFate,
    query::Filter,
};

use super::{
    Start,
    worker::{Worker, all},
};
use crate::{
    build::{arrival, messages, problem},
    fixture::Fixture,
};

pub const START: Start = Start::Migrated;

/// Rows so that the first of them is in the second page.
const MANY: usize = SCAN_MAX as usize + 100;

fn rare(status: Option<&str>) -> Filter {
    let status = status.map(str::to_owned);
    Filter { event_type: Some("Rare".into()), status, limit: 10, ..Filter::default() }
}

async fn rare_is_first(f: &dyn Fixture, table: &str, id: &str) {
    let first = format!("SELECT min({id}) FROM {table}");
    f.run(&format!("UPDATE {table} SET event_type = 'Rare' WHERE {id} = ({first})")).await;
}

/// The ids of one page, and where the next one begins.
async fn inbox_page(f: &dyn Fixture, filter: Filter) -> (Vec<i64>, Option<String>) {
    let page = f.store().inbox_page(filter, PayloadPart::BoundedPreview).await.expect("page");
    (page.rows.into_iter().map(|listed| listed.row.id).collect(), page.next)
}

async fn outbox_page(f: &dyn Fixture, filter: Filter) -> (Vec<i64>, Option<String>) {
    let page = f.store().outbox_page(filter, PayloadPart::BoundedPreview).await.expect("page");
    (page.rows.into_iter().map(|listed| listed.row.id).collect(), page.next)
}

async fn letters_page(f: &dyn Fixture, filter: Filter) -> (Vec<String>, Option<String>) {
    let page = f.store().dead_letter_page(filter, PayloadPart::BoundedPreview).await.expect("page");
    (page.rows.into_iter().map(|listed| listed.row.id.to_string()).collect(), page.next)
}

pub async fn a_short_list_is_looked_through_at_once(f: &dyn Fixture) {
    f.store().accept(vec![arrival("1"), arrival("2")], Vec::new()).await.expect("accept");
    f.store().enqueue(messages("orders", 2)).await.expect("enqueue");
    assert_eq!(inbox_page(f, rare(None)).await, (Vec::new(), None));
    assert_eq!(outbox_page(f, rare(None)).await, (Vec::new(), None));
    assert_eq!(letters_page(f, rare(None)).await, (Vec::new(), None));
}

pub async fn what_is_far_back_in_the_inbox_is_found_page_by_page(f: &dyn Fixture) {
    let batch = (0..MANY).map(|n| arrival(&n.to_string())).collect();
    f.store().accept(batch, Vec::new()).await.expect("accept");
    rare_is_first(f, "relais_inbox", "id").await;
    let first = f.number("SELECT min(id) FROM relais_inbox").await;
    let (found, next) = inbox_page(f, rare(None)).await;
    assert!(found.is_empty() && next.is_some(), "{found:?} {next:?}");
    let (found, end) = inbox_page(f, Filter { before: next, ..rare(None) }).await;
    assert_eq!((found, end), (vec![first], None));
    let (found, next) = inbox_page(f, rare(Some("RECEIVED"))).await;
    assert!(found.is_empty() && next.is_some(), "too many wait to look at all of them");
}

pub async fn what_is_far_back_in_the_outbox_is_found_page_by_page(f: &dyn Fixture) {
    f.store().enqueue(messages("orders", MANY)).await.expect("enqueue");
    rare_is_first(f, "relais_outbox", "id").await;
    let first = f.number("SELECT min(id) FROM relais_outbox").await;
    let (found, next) = outbox_page(f, rare(None)).await;
    assert!(found.is_empty() && next.is_some(), "{found:?} {next:?}");
    let (found, end) = outbox_page(f, Filter { before: next, ..rare(None) }).await;
    assert_eq!((found, end), (vec![first], None));
}

/// Rows of the history below.
const HISTORY: i64 = 100_000;

/// Returns the ids of all pages of a key, and how many pages there are.
async fn of_key(f: &dyn Fixture, table: &str, key: &str) -> (Vec<i64>, i64) {
    let (mut ids, mut pages, mut before) = (Vec::new(), 0, None);
    loop {
        let key = Some(key.to_owned());
        let filter = Filter { key, before, limit: 10, ..Filter::default() };
        let (mut found, next) = match table {
            "relais_inbox" => inbox_page(f, filter).await,
            _ => outbox_page(f, filter).await,
        };
        pages += 1;
        assert!(pages <= HISTORY, "the list has an end");
        before = match found.len() {
            10 => found.last().map(i64::to_string),
            _ => next,
        };
        ids.append(&mut found);
        if before.is_none() {
            return (ids, pages);
        }
    }
}

/// The list of an aggregate has its oldest message too, however many came since; each page reads a bounded part.
pub async fn the_list_of_a_key_is_complete_in_a_long_history(f: &dyn Fixture) {
    let numbers = match f.dialect().writes_in_parallel() {
        true => format!("generate_series(1, {HISTORY}) AS s (n)"),
        false => format!(
            "(WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {HISTORY}) \
             SELECT n FROM s) AS s"
        ),
    };
    // Of one aggregate: the first row, 25 in the middle, and the last one.
    let key = format!(
        "CASE WHEN n IN (1, {HISTORY}) OR n BETWEEN 50001 AND 50025 THEN 'a-1' ELSE 'a-0' END"
    );
    f.run(&format!(
        "INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload, status) \
         SELECT 'Order', {key}, 'OrderPaid', 'orders', '{{}}', 'DISPATCHED' FROM {numbers} ORDER BY n"
    ))
    .await;
    f.run(&format!(
        "INSERT INTO relais_inbox (message_id, source_system, topic, partition_num, offset_num, msg_key, \
         event_type, payload, status) \
         SELECT 'm-' || n, 'crm', 't', 0, n, {key}, 'OrderPaid', '{{}}', 'PROCESSED' FROM {numbers} ORDER BY n"
    ))
    .await;
    for table in ["relais_outbox", "relais_inbox"] {
        let first = f.number(&format!("SELECT min(id) FROM {table}")).await;
        let (ids, pages) = of_key(f, table, "a-1").await;
        let middle = (50_000..50_025).rev();
        let expected: Vec<i64> = [HISTORY - 1].into_iter().chain(middle).chain([0]).collect();
        assert_eq!(ids.iter().map(|id| id - first).collect::<Vec<_>>(), expected, "{table}");
        // Two pages more, where a page is full of rows.
        assert!(pages <= HISTORY / SCAN_MAX + 3, "{table}: {pages} pages");
        // A list without previews is complete at once.
        let filter = Filter { key: Some("a-1".into()), limit: 100, ..Filter::default() };
        let whole = match table {
            "relais_inbox" => f.store().list_inbox(filter).await.expect("list").len(),
            _ => f.store().list_outbox(filter).await.expect("list").len(),
        };
        assert_eq!(whole, expected.len(), "{table}");
    }
}

pub async fn rows_that_wait_are_found_at_once_while_they_are_few(f: &dyn Fixture) {
    f.store().enqueue(messages("orders", MANY)).await.expect("enqueue");
    let batch = (0..MANY).map(|n| arrival(&n.to_string())).collect();
    f.store().accept(batch, Vec::new()).await.expect("accept");
    f.run("UPDATE relais_outbox SET status = 'DISPATCHED' WHERE event_type <> 'Rare'").await;
    f.run("UPDATE relais_inbox SET status = 'PROCESSED'").await;
    let soon = f.past();
    let ids = ["SELECT min(id) FROM relais_outbox", "SELECT min(id) + 1 FROM relais_outbox"];
    let (fresh, waiting) = (f.number(ids[0]).await, f.number(ids[1]).await);
    for (table, status) in [("relais_outbox", "PENDING"), ("relais_inbox", "RECEIVED")] {
        let low = format!("(SELECT min(id) FROM {table})");
        f.run(&format!("UPDATE {table} SET status = '{status}' WHERE id <= {low} + 1")).await;
        f.run(&format!("UPDATE {table} SET next_attempt_at = {soon} WHERE id = {low} + 1")).await;
    }
    let waits = |status: &str| Filter { event_type: None, ..rare(Some(status)) };
    assert_eq!(outbox_page(f, waits("PENDING")).await, (vec![waiting, fresh], None));
    let one = Filter { limit: 1, ..waits("PENDING") };
    assert_eq!(outbox_page(f, one).await.0, [waiting]);
    let before = Filter { before: Some(waiting.to_string()), ..waits("PENDING") };
    assert_eq!(outbox_page(f, before).await.0, [fresh]);
    assert_eq!(inbox_page(f, waits("RECEIVED")).await.0.len(), 2);
}

pub async fn a_page_ends_where_rows_are_too_old(f: &dyn Fixture) {
    f.store().enqueue(messages("orders", MANY)).await.expect("enqueue");
    let hour = f.dialect().ago(3_600);
    f.run(&format!("UPDATE relais_outbox SET created_at = {hour}")).await;
    let recent = Filter { since_seconds: Some(60), ..rare(None) };
    assert_eq!(outbox_page(f, recent).await, (Vec::new(), None), "none behind them can match");
}

pub async fn what_is_far_back_among_dead_letters_is_found_page_by_page(f: &dyn Fixture) {
    f.store().enqueue(messages("orders", MANY)).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(MANY).await;
    let dead = || OutboxFate::Dead { attempts: 1, problem: problem(), park: false };
    let fates = rows.iter().map(|row| worker.outbox_fate(row, dead()));
    assert_eq!(worker.settle_all(fates.collect()).await, all(MANY as u64));
    let (table, hour) = ("relais_dead_letter", f.dialect().ago(3_600));
    let first = format!("SELECT min(origin_id) FROM {table}");
    f.run(&format!("UPDATE {table} SET parked_at = {hour} WHERE origin_id = ({first})")).await;
    rare_is_first(f, table, "origin_id").await;
    for status in [None, Some("open")] {
        let (found, next) = letters_page(f, rare(status)).await;
        assert!(found.is_empty() && next.is_some(), "{found:?} {next:?}");
        let (found, end) = letters_page(f, Filter { before: next, ..rare(status) }).await;
        assert_eq!((found.len(), end), (1, None));
    }
}
