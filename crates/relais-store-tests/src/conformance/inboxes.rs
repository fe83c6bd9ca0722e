//! Named inboxes on one database: they share no rows, lanes, keys or duplicates.

use relais_core::{
    dead_letter::Resolution,
    inbox::{AcceptOutcome, InboxFate, NewInbox, in_inbox},
    inspect::InspectExt,
    lane::Scope,
    query::Count,
    store::RowMark,
};

use super::{
    Start, only_dead_letter, resolve,
    worker::{Worker, all, dead_message, handle_later, processed},
};
use crate::{build::arrival_for, fixture::Fixture};

pub const START: Start = Start::Migrated;

fn arrival_in(inbox: &str, message_id: &str, key: &str) -> NewInbox {
    let message = arrival_for(message_id, key);
    NewInbox { source_system: in_inbox(inbox, &message.source_system), ..message }
}

async fn accept(f: &dyn Fixture, messages: Vec<NewInbox>) -> Vec<AcceptOutcome> {
    f.store().accept(messages, Vec::new()).await.expect("accept")
}

/// A worker of each inbox, with two messages of one key in each.
async fn two_inboxes(f: &dyn Fixture) -> (Worker, Worker) {
    let messages = ["", "billing"]
        .into_iter()
        .flat_map(|inbox| ["1", "2"].map(|message_id| arrival_in(inbox, message_id, "k")));
    assert_eq!(accept(f, messages.collect()).await, [AcceptOutcome::Stored; 4]);
    let unnamed = Worker::inbox(f, "a").await;
    let billing = Worker::start(f.second(), Scope::of_inbox("billing"), "b").await;
    assert_eq!((unnamed.lanes.len(), billing.lanes.len()), (64, 64), "lanes of their own");
    (unnamed, billing)
}

async fn sources(worker: &Worker) -> Vec<String> {
    let rows = worker.received(10).await;
    rows.into_iter().map(|row| format!("{} {}", row.source_system, row.message_id)).collect()
}

pub async fn each_inbox_has_its_own_rows_and_duplicates(f: &dyn Fixture) {
    let (unnamed, billing) = two_inboxes(f).await;
    assert_eq!(sources(&unnamed).await, ["ihub 1", "ihub 2"]);
    assert_eq!(sources(&billing).await, ["billing::ihub 1", "billing::ihub 2"]);
    let again = accept(f, vec![arrival_in("billing", "1", "k"), arrival_in("crm", "1", "k")]).await;
    assert_eq!(again, [AcceptOutcome::Duplicate, AcceptOutcome::Stored]);
    let rows = billing.received(10).await;
    let fates = rows.iter().map(|row| billing.inbox_fate(row, processed())).collect();
    assert_eq!(billing.settle_inbox_all(fates).await, all(2), "the fence knows the inbox");
    assert_eq!(sources(&billing).await, [] as [String; 0]);
    assert_eq!(sources(&unnamed).await.len(), 2);
}

/// In order, in the commit that settles the row, and never twice.
pub async fn a_settled_row_is_copied_to_other_inboxes_once(f: &dyn Fixture) {
    let (unnamed, billing) = two_inboxes(f).await;
    let mail = Worker::start(f.store(), Scope::of_inbox("@mail"), "m").await;
    let copied = |inboxes: &[&str]| InboxFate::Processed {
        messages: Vec::new(),
        changes: Vec::new(),
        copies: inboxes.iter().map(|inbox| (*inbox).to_owned()).collect(),
    };
    let rows = unnamed.received(10).await;
    let mut fates: Vec<_> =
        rows.iter().map(|row| unnamed.inbox_fate(row, copied(&["@mail", "billing"]))).collect();
    fates[1].epoch += 1;
    let settled = unnamed.settle_inbox_all(fates.clone()).await;
    assert_eq!((settled.settled, settled.refused), (1, 1));
    assert_eq!(sources(&mail).await, ["@mail::ihub 1"], "no copy of a row that was refused");
    fates[1].epoch -= 1;
    unnamed.settle_inbox_all(fates).await;
    assert_eq!(sources(&mail).await, ["@mail::ihub 1", "@mail::ihub 2"]);
    assert_eq!(sources(&billing).await.len(), 2, "they were there already");
    let (first, copy) = (&rows[0], &mail.received(1).await[0]);
    assert_eq!((&copy.payload, &copy.headers), (&first.payload, &first.headers));
    assert_eq!((copy.received_at, copy.attempts), (first.received_at, 0));
    assert_eq!((&copy.msg_key, &copy.event_type), (&first.msg_key, &first.event_type));
    // From a named inbox the name is replaced.
    let row = &billing.received(1).await[0];
    assert_eq!(billing.settle_inbox(row, copied(&["billing@mail"])).await, all(1));
    let mail = Worker::start(f.store(), Scope::of_inbox("billing@mail"), "n").await;
    assert_eq!(sources(&mail).await, ["billing@mail::ihub 1"]);
}

pub async fn a_key_that_waits_in_one_inbox_continues_in_the_other(f: &dyn Fixture) {
    let (unnamed, billing) = two_inboxes(f).await;
    let row = &billing.received(1).await[0];
    assert_eq!(billing.settle_inbox(row, handle_later()).await, all(1));
    assert_eq!(sources(&billing).await, [] as [String; 0]);
    assert_eq!(sources(&unnamed).await, ["ihub 1", "ihub 2"]);
}

pub async fn a_key_is_parked_in_its_inbox_only(f: &dyn Fixture) {
    let (unnamed, billing) = two_inboxes(f).await;
    let row = &billing.received(1).await[0];
    let counted = vec![(row.id, billing.holding(row.lane))];
    let counted = billing
        .store
        .mark_rows(RowMark::LostWorker { fence: billing.fence.clone(), rows: counted })
        .await;
    assert_eq!(counted.expect("count"), all(1));
    assert_eq!(billing.settle_inbox(row, dead_message()).await, all(1));
    assert_eq!(sources(&billing).await, [] as [String; 0], "its key is parked");
    assert_eq!(sources(&unnamed).await, ["ihub 1", "ihub 2"], "that of the other is not");
    let parked = f.store().parked_keys(10).await.expect("parked keys");
    let parked: Vec<_> =
        parked.iter().map(|key| (key.destination.as_deref(), key.backlog)).collect();
    assert_eq!(parked, [(Some("billing"), 1)], "one message waits behind it");
    let letter = only_dead_letter(f).await;
    assert_eq!(letter.destination.as_deref(), Some("billing"));
    assert!(resolve(f, letter.id, Resolution::Retried).await);
    assert_eq!(sources(&billing).await, ["billing::ihub 1", "billing::ihub 2"], "in order");
}

pub async fn rows_of_an_inbox_without_a_live_worker_are_counted(f: &dyn Fixture) {
    let (_unnamed, mut billing) = two_inboxes(f).await;
    let mut mail = Worker::start(f.store(), Scope::of_inbox("@mail"), "m").await;
    accept(f, vec![arrival_in("@mail", "1", "k"), arrival_in("@mail", "2", "k")]).await;
    let unserved = async || f.store().overview().await.expect("overview").unserved_inboxes;
    assert_eq!(unserved().await, [], "each has a live worker");
    let row = &mail.received(1).await[0];
    assert_eq!(mail.settle_inbox(row, handle_later()).await, all(1));
    mail.leave().await;
    let expected = |name: &str, rows| Count { name: name.to_owned(), rows };
    assert_eq!(unserved().await, [expected("@mail", 2)], "fresh rows and waiting ones");
    let past = f.past();
    f.run(&format!("UPDATE relais_lease SET lease_until = {past} WHERE worker = 'b'")).await;
    assert_eq!(unserved().await, [expected("@mail", 2), expected("billing", 2)], "a lost worker");
    billing.leave().await;
    let _mail = Worker::start(f.store(), Scope::of_inbox("@mail"), "n").await;
    assert_eq!(unserved().await, [expected("billing", 2)], "it is served again");
}
