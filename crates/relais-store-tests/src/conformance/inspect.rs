//! Reads of operators: the overview, lists with filters and pages, one row by its id.

use relais_core::{
    dead_letter::Resolution,
    id_prefix::{IDS_MAX, IdKind, IdPrefix},
    inbox::{InboxStatus, NewInbox},
    inspect::InspectExt,
    outbox::{OutboxFate, OutboxStatus},
    query::{Count, Filter, Overview, PAGE_MAX},
};
use uuid::Uuid;

use super::{
    Start, only_dead_letter, open_dead_letters,
    process_build::failed_process,
    resolve,
    worker::{
        MANY, Worker, all, dead_and_parked, dead_message, handle_later, processed, retry_later,
    },
};
use crate::{
    build::{arrival, arrival_for, message, messages, undecodable},
    fixture::Fixture,
};

pub const START: Start = Start::Migrated;

fn filter(limit: usize) -> Filter {
    Filter { limit, ..Filter::default() }
}

async fn overview(f: &dyn Fixture) -> Overview {
    f.store().overview().await.expect("overview")
}

fn rows_of(counts: &[Count], name: &str) -> u64 {
    counts.iter().find(|c| c.name == name).map(|c| c.rows).expect("every status appears")
}

async fn outbox_ids(f: &dyn Fixture, filter: Filter) -> Vec<i64> {
    let rows = f.store().list_outbox(filter).await.expect("list");
    rows.into_iter().map(|row| row.id).collect()
}

async fn inbox_ids(f: &dyn Fixture, filter: Filter) -> Vec<String> {
    let rows = f.store().list_inbox(filter).await.expect("list");
    rows.into_iter().map(|row| row.message_id).collect()
}

pub async fn an_empty_store_shows_every_status_with_zero(f: &dyn Fixture) {
    let before = f.now().await;
    let seen = overview(f).await;
    assert!(before <= seen.now && seen.now <= f.now().await);
    for status in InboxStatus::ALL {
        assert_eq!(rows_of(&seen.inbox, status.as_str()), 0);
    }
    for status in OutboxStatus::ALL {
        assert_eq!(rows_of(&seen.outbox, status.as_str()), 0);
    }
    assert_eq!((seen.inbox.len(), seen.outbox.len()), (5, 3));
    assert_eq!((seen.inbox_oldest, seen.dead_letters_open, seen.parked_keys), (None, 0, 0));
    assert!(seen.backlogs.iter().all(|b| b.pending == 0) && seen.workers.is_empty());
    assert!(seen.schema_version >= 1);
}

pub async fn the_overview_counts_every_status(f: &dyn Fixture) {
    f.store().enqueue(messages("orders", 6)).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(10).await;
    worker.settle(&rows[0], OutboxFate::Dispatched).await;
    worker.settle(&rows[1], dead_and_parked()).await;
    worker.settle(&rows[2], retry_later()).await;
    let batch = vec![arrival("1"), arrival("2"), arrival("3"), undecodable("4", b"\xff")];
    f.store().accept(batch, Vec::new()).await.expect("accept");
    let handler = Worker::inbox(f, "w").await;
    let rows = handler.received(10).await;
    handler.settle_inbox(&rows[0], super::worker::processed()).await;
    handler.settle_inbox(&rows[1], handle_later()).await;
    let seen = overview(f).await;
    let outbox = ["PENDING", "DISPATCHED", "FAILED"].map(|s| rows_of(&seen.outbox, s));
    assert_eq!(outbox, [4, 1, 1]);
    let names = ["RECEIVED", "RETRY", "FAILED", "PROCESSED", "SERDE_ERROR"];
    assert_eq!(names.map(|s| rows_of(&seen.inbox, s)), [1, 1, 0, 1, 1]);
    assert_eq!((seen.dead_letters_open, seen.parked_keys), (1, 1));
}

pub async fn rows_behind_a_parked_key_are_counted_apart(f: &dyn Fixture) {
    let keys = ["a", "a", "b", "a"];
    let batch = keys.map(|key| message("orders", key)).to_vec();
    let ids = f.store().enqueue(batch).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    let row = worker.pending(1).await.remove(0);
    worker.settle(&row, dead_and_parked()).await;
    let arrivals = ["1", "2", "3"].map(|id| arrival_for(id, if id == "2" { "y" } else { "x" }));
    f.store().accept(arrivals.to_vec(), Vec::new()).await.expect("accept");
    let handler = Worker::inbox(f, "w").await;
    let received = handler.received(1).await;
    handler.settle_inbox(&received[0], dead_message()).await;
    // What is parked is old; what is not is of now.
    let old = f.dialect().ago(3_600);
    f.run(&format!("UPDATE relais_outbox SET created_at = {old} WHERE msg_key = 'a'")).await;
    f.run(&format!("UPDATE relais_inbox SET received_at = {old} WHERE msg_key = 'x'")).await;
    let seen = f.store().overview().await.expect("overview");
    let [orders] = &seen.backlogs[..] else { panic!("{:?}", seen.backlogs) };
    assert_eq!((orders.pending, orders.parked), (3, 2));
    assert!(orders.oldest.expect("b").seconds_until(seen.now) < 600, "{orders:?}");
    assert_eq!(seen.inbox_parked, 1);
    assert!(seen.inbox_oldest.expect("y").seconds_until(seen.now) < 600);
    // Nothing else is left.
    let b = worker.pending(1).await.remove(0);
    assert_eq!(b.id, ids[2]);
    worker.settle(&b, OutboxFate::Dispatched).await;
    handler.settle_inbox(&handler.received(1).await[0], processed()).await;
    let seen = f.store().overview().await.expect("overview");
    assert_eq!((seen.backlogs[0].oldest, seen.backlogs[0].parked), (None, 2));
    assert_eq!((seen.inbox_oldest, seen.inbox_parked), (None, 1));
}

pub async fn the_overview_shows_the_oldest_open_row(f: &dyn Fixture) {
    f.store().accept(vec![arrival("1"), arrival("2"), arrival("3")], Vec::new()).await.expect("ok");
    let worker = Worker::inbox(f, "w").await;
    let rows = worker.received(2).await;
    worker.settle_inbox(&rows[0], super::worker::processed()).await;
    worker.settle_inbox(&rows[1], handle_later()).await;
    for (id, age) in [("1", 86_400), ("2", 3_600)] {
        let at = f.dialect().ago(age);
        f.run(&format!("UPDATE relais_inbox SET received_at = {at} WHERE message_id = '{id}'"))
            .await;
    }
    let seen = overview(f).await;
    let age = seen.inbox_oldest.expect("an open row").seconds_until(seen.now);
    assert!((3_600..7_200).contains(&age), "{age}");
}

pub async fn the_overview_shows_what_waits_for_each_destination(f: &dyn Fixture) {
    f.store().enqueue(messages("orders", 3)).await.expect("enqueue");
    let mails = f.store().enqueue(messages("mails", 2)).await.expect("enqueue");
    let done = f.store().enqueue(messages("done", 1)).await.expect("enqueue");
    let hour = f.dialect().ago(3_600);
    f.run(&format!("UPDATE relais_outbox SET created_at = {hour} WHERE id = {}", mails[0])).await;
    f.run(&format!("UPDATE relais_outbox SET status = 'DISPATCHED' WHERE id = {}", done[0])).await;
    let seen = overview(f).await;
    let pending = |name: &str| seen.backlogs.iter().find(|b| b.destination == name);
    assert_eq!(pending("orders").map(|b| b.pending), Some(3));
    let mails = pending("mails").expect("a backlog");
    assert_eq!(mails.pending, 2);
    let age = mails.oldest.expect("the oldest").seconds_until(seen.now);
    assert!((3_600..7_200).contains(&age), "{age}");
    assert!(pending("done").is_none_or(|b| b.pending == 0));
}

pub async fn the_overview_shows_workers_and_whether_they_live(f: &dyn Fixture) {
    Worker::inbox(f, "a").await;
    Worker::outbox(f, "orders", "b").await;
    let past = f.past();
    f.run(&format!("UPDATE relais_lease SET lease_until = {past} WHERE worker = 'b'")).await;
    let workers = overview(f).await.workers;
    let worker = |name: &str| workers.iter().find(|w| w.worker == name).expect("shown");
    let (a, b) = (worker("a"), worker("b"));
    assert_eq!((a.scope.as_str(), a.lanes, a.alive), ("inbox", 64, true));
    assert_eq!((b.scope.as_str(), b.lanes, b.alive), ("outbox:orders", 64, false));
}

pub async fn lists_are_newest_first_and_paged(f: &dyn Fixture) {
    let mut ids = f.store().enqueue(messages("orders", 7)).await.expect("enqueue");
    ids.reverse();
    assert_eq!(outbox_ids(f, filter(100)).await, ids);
    let first = outbox_ids(f, filter(3)).await;
    assert_eq!(first, ids[..3]);
    let next = Filter { before: Some(first[2].to_string()), ..filter(3) };
    assert_eq!(outbox_ids(f, next).await, ids[3..6]);
    let batch = (0..7).map(|n| arrival(&n.to_string())).collect();
    f.store().accept(batch, Vec::new()).await.expect("accept");
    let page = f.store().list_inbox(filter(3)).await.expect("list");
    assert_eq!(page.iter().map(|r| r.message_id.as_str()).collect::<Vec<_>>(), ["6", "5", "4"]);
    let next = Filter { before: Some(page[2].id.to_string()), ..filter(100) };
    assert_eq!(inbox_ids(f, next).await, ["3", "2", "1", "0"]);
}

pub async fn a_page_has_an_upper_limit(f: &dyn Fixture) {
    f.store().enqueue(messages("orders", PAGE_MAX + 10)).await.expect("enqueue");
    assert_eq!(outbox_ids(f, filter(usize::MAX)).await.len(), PAGE_MAX);
    let batch = (0..PAGE_MAX + 10).map(|n| arrival(&n.to_string())).collect();
    f.store().accept(batch, Vec::new()).await.expect("accept");
    assert_eq!(inbox_ids(f, filter(usize::MAX)).await.len(), PAGE_MAX);
}

pub async fn outbox_rows_are_filtered_by_every_field(f: &dyn Fixture) {
    let mut other = message("mails", "b");
    other.event_type = "OrderPaid".to_owned();
    let batch = vec![message("orders", "a"), other, message("orders", "b")];
    let ids = f.store().enqueue(batch).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(1).await;
    assert_eq!(worker.settle(&rows[0], dead_and_parked()).await, all(1));
    let day = f.dialect().ago(86_400);
    f.run(&format!("UPDATE relais_outbox SET created_at = {day} WHERE id = {}", ids[0])).await;
    let some = |text: &str| Some(text.to_owned());
    let by = |change: &dyn Fn(&mut Filter)| {
        let mut wanted = filter(10);
        change(&mut wanted);
        wanted
    };
    let status = by(&|w| w.status = some("FAILED"));
    assert_eq!(outbox_ids(f, status).await, [ids[0]]);
    assert_eq!(outbox_ids(f, by(&|w| w.event_type = some("OrderPaid"))).await, [ids[1]]);
    assert_eq!(outbox_ids(f, by(&|w| w.key = some("b"))).await, [ids[2], ids[1]]);
    assert_eq!(outbox_ids(f, by(&|w| w.destination = some("orders"))).await, [ids[2], ids[0]]);
    assert_eq!(outbox_ids(f, by(&|w| w.since_seconds = Some(60))).await, [ids[2], ids[1]]);
    let both = by(&|w| (w.key, w.destination) = (some("b"), some("orders")));
    assert_eq!(outbox_ids(f, both).await, [ids[2]]);
    for odd in ["NOPE", "", "' OR 1=1 --"] {
        assert!(outbox_ids(f, by(&|w| w.status = some(odd))).await.is_empty());
        assert!(outbox_ids(f, by(&|w| w.event_type = some(odd))).await.is_empty());
    }
}

pub async fn inbox_rows_are_filtered_by_every_field(f: &dyn Fixture) {
    let mut other = arrival_for("2", "b");
    other.event_type = Some("MembersRemoved".to_owned());
    let batch =
        vec![arrival_for("1", "a"), other, arrival_for("3", "b"), undecodable("4", b"\xff")];
    f.store().accept(batch, Vec::new()).await.expect("accept");
    let day = f.dialect().ago(86_400);
    f.run(&format!("UPDATE relais_inbox SET received_at = {day} WHERE message_id = '1'")).await;
    let some = |text: &str| Some(text.to_owned());
    let with = |status: Option<String>, event_type: Option<String>, key: Option<String>| Filter {
        status,
        event_type,
        key,
        ..filter(10)
    };
    assert_eq!(inbox_ids(f, with(some("SERDE_ERROR"), None, None)).await, ["4"]);
    assert_eq!(inbox_ids(f, with(None, some("MembersRemoved"), None)).await, ["2"]);
    assert_eq!(inbox_ids(f, with(None, None, some("b"))).await, ["3", "2"]);
    let both = with(some("RECEIVED"), some("MembersCreated"), some("b"));
    assert_eq!(inbox_ids(f, both).await, ["3"]);
    let recent = Filter { since_seconds: Some(3_600), ..filter(10) };
    assert_eq!(inbox_ids(f, recent).await, ["4", "3", "2"]);
}

pub async fn dead_letters_are_filtered_and_paged_without_gaps(f: &dyn Fixture) {
    f.store().enqueue(messages("orders", 7)).await.expect("enqueue");
    f.store().enqueue(vec![message("mails", "m")]).await.expect("enqueue");
    for destination in ["orders", "mails"] {
        let worker = Worker::outbox(f, destination, "w").await;
        let rows = worker.pending(MANY).await;
        let fates = rows.iter().map(|row| worker.outbox_fate(row, dead_and_parked())).collect();
        worker.settle_all(fates).await;
    }
    let list = async |wanted: Filter| f.store().list_dead_letters(wanted).await.expect("list");
    let everything = list(filter(100)).await;
    assert_eq!(everything.len(), 8);
    assert!(everything.is_sorted_by(|a, b| a.parked_at >= b.parked_at), "newest first");
    let mut paged = Vec::new();
    loop {
        let before = paged.last().map(|id: &Uuid| id.to_string());
        let page = list(Filter { before, ..filter(3) }).await;
        paged.extend(page.iter().map(|dead| dead.id));
        if page.len() < 3 {
            break;
        }
    }
    assert_eq!(paged, everything.iter().map(|dead| dead.id).collect::<Vec<_>>());
    let some = |text: &str| Some(text.to_owned());
    assert!(resolve(f, everything[0].id, Resolution::Discarded).await);
    let status = |text: &str| Filter { status: some(text), ..filter(100) };
    assert_eq!(list(status("open")).await.len(), 7);
    let resolved = list(status("resolved")).await;
    assert!(resolved.len() == 1 && resolved[0].id == everything[0].id);
    let mails = list(Filter { destination: some("mails"), ..filter(100) }).await;
    assert!(mails.len() == 1 && mails[0].msg_key == "m");
    assert_eq!(list(Filter { key: some("key-3"), ..filter(100) }).await.len(), 1);
    assert_eq!(list(Filter { event_type: some("OrderCreated"), ..filter(100) }).await.len(), 8);
    assert!(list(Filter { event_type: some("Other"), ..filter(100) }).await.is_empty());
    let day = f.dialect().ago(86_400);
    f.run(&format!("UPDATE relais_dead_letter SET parked_at = {day} WHERE msg_key <> 'm'")).await;
    assert_eq!(list(Filter { since_seconds: Some(3_600), ..filter(100) }).await.len(), 1);
}

pub async fn a_row_is_found_by_id_and_by_message_id(f: &dyn Fixture) {
    let sent = message("orders", "k");
    let ids = f.store().enqueue(vec![sent.clone()]).await.expect("enqueue");
    let store = f.store();
    let by_id = store.find_outbox(ids[0].to_string()).await.expect("find").expect("by id");
    let by_message = store.find_outbox(sent.message_id.to_string()).await.expect("find");
    assert_eq!(Some(by_id), by_message);
    store.accept(vec![arrival("987654321"), arrival("m-1")], Vec::new()).await.expect("accept");
    let row = store.find_inbox("m-1".to_owned()).await.expect("find").expect("by message id");
    let by_id = store.find_inbox(row.id.to_string()).await.expect("find");
    assert_eq!(by_id, Some(row));
    let digits = store.find_inbox("987654321".to_owned()).await.expect("find");
    assert!(digits.is_some(), "a message id may be all digits");
}

pub async fn what_is_not_there_is_not_found(f: &dyn Fixture) {
    f.store().enqueue(messages("orders", 1)).await.expect("enqueue");
    f.store().accept(vec![arrival("m-1")], Vec::new()).await.expect("accept");
    let absent = ["", "0", "-1", "nope", "99999999999999999999999", "1e3", "' OR 1=1 --", "M-1"];
    for id in absent {
        assert_eq!(f.store().find_outbox(id.to_owned()).await.expect("find"), None, "{id}");
        assert_eq!(f.store().find_inbox(id.to_owned()).await.expect("find"), None, "{id}");
    }
    let unknown = Uuid::now_v7();
    assert_eq!(f.store().find_outbox(unknown.to_string()).await.expect("find"), None);
    assert_eq!(f.store().find_dead_letter(unknown).await.expect("find"), None);
}

pub async fn a_dead_letter_is_found_by_its_id(f: &dyn Fixture) {
    f.store().accept(vec![arrival("m-1")], Vec::new()).await.expect("accept");
    let worker = Worker::inbox(f, "w").await;
    let rows = worker.received(1).await;
    assert_eq!(worker.settle_inbox(&rows[0], dead_message()).await, all(1));
    let listed = open_dead_letters(f).await.remove(0);
    let found = f.second().find_dead_letter(listed.id).await.expect("find");
    assert_eq!(found, Some(listed));
}

pub async fn ids_are_found_by_their_prefix(f: &dyn Fixture) {
    f.store().enqueue(messages("orders", IDS_MAX + 2)).await.expect("enqueue");
    let process = failed_process(f, None).await.process_id.to_string();
    let letter = only_dead_letter(f).await.id.to_string();
    let found = async |kind, text: &str| {
        let prefix = IdPrefix::parse(kind, text).expect("a prefix");
        f.store().ids_with(prefix).await.expect("ids")
    };
    assert_eq!(found(IdKind::Process, &process).await, [process.as_str()]);
    assert_eq!(found(IdKind::Process, &process[..13]).await, [process.as_str()]);
    assert_eq!(found(IdKind::DeadLetter, &letter[..13]).await, [letter.as_str()]);
    assert!(found(IdKind::DeadLetter, "ffffffff").await.is_empty());
    // Ids begin with the time: the first digits change once in 49 days.
    let rows = f.store().list_outbox(filter(PAGE_MAX)).await.expect("rows");
    let first = rows[0].message_id.to_string();
    let several = found(IdKind::OutboxMessage, &first[..4]).await;
    assert_eq!(several.len(), IDS_MAX, "no more than are shown");
    assert!(several.is_sorted() && several.iter().all(|id| id[..4] == first[..4]), "{several:?}");
    assert_eq!(found(IdKind::OutboxMessage, &first).await, [first]);
}

pub async fn inbox_messages_are_found_by_their_prefix(f: &dyn Fixture) {
    let row = |source: &str, id: &str| NewInbox::new(source, id, "OrderPlaced", "{}");
    let shop = (10..40).map(|n| row("shop", &format!("order-{n}")));
    let others = [row("bank", "order-17"), row("bank", "order-17/é"), row("mail", "ORDER-17")];
    f.store().accept(shop.chain(others).collect(), Vec::new()).await.expect("accept");
    let found = async |text: &str| {
        let prefix = IdPrefix::parse(IdKind::InboxMessage, text).expect("a prefix");
        f.store().ids_with(prefix).await.expect("ids")
    };
    assert_eq!(found("order-17").await, ["order-17", "order-17/é"], "of two sources, each once");
    assert_eq!(found("ORDER").await, ["ORDER-17"]);
    assert!(found("order-4").await.is_empty() && found("%rder").await.is_empty());
    let several = found("order-").await;
    assert_eq!((several.len(), several[0].as_str()), (IDS_MAX, "order-10"));
    assert!(several.is_sorted(), "{several:?}");
}
