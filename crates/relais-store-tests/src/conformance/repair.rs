//! Reprocessing of undecodable rows: promoted once, found by workers, never doubled.

use relais_core::{
    dead_letter::Resolution,
    inbox::{AcceptOutcome, InboxRow, InboxStatus, NewInbox},
    inspect::InspectExt,
    message::Headers,
    query::{PAGE_MAX, SerdeErrors},
    repair::{
        CODE_DUPLICATE, HEADER_ORIGINAL_ID, Identity, Mode, Repair, ReprocessOutcome, RewrittenRow,
        duplicate_message,
    },
};
use uuid::Uuid;

use super::{
    Start, assert_invalid, only_dead_letter, open_dead_letters, resolve,
    worker::{Worker, all, dead_message, processed},
};
use crate::{
    build::{arrival, arrival_for, arrival_with, undecodable},
    fixture::Fixture,
};

pub const START: Start = Start::Migrated;

const GARBAGE: &[u8] = b"\xff{\"n\": 1}";
const PAYLOAD: &str = "{\"n\":  1}";

async fn accept(f: &dyn Fixture, messages: Vec<NewInbox>) -> Vec<AcceptOutcome> {
    f.store().accept(messages, Vec::new()).await.expect("accept")
}

/// Stores one message that cannot be decoded; its row.
async fn broken(f: &dyn Fixture, message_id: &str) -> InboxRow {
    assert_eq!(accept(f, vec![undecodable(message_id, GARBAGE)]).await, [AcceptOutcome::Stored]);
    find(f, message_id).await
}

async fn find(f: &dyn Fixture, id: &str) -> InboxRow {
    f.store().find_inbox(id.to_owned()).await.expect("find").expect("the row is there")
}

async fn row(f: &dyn Fixture, id: i64) -> InboxRow {
    find(f, &id.to_string()).await
}

fn rewritten(message_id: &str, key: &str) -> RewrittenRow {
    RewrittenRow {
        message_id: message_id.to_owned(),
        identity: Identity::Promised,
        msg_key: key.to_owned(),
        aggregate_id: Some("7".to_owned()),
        event_type: Some("MembersRemoved".to_owned()),
        payload: PAYLOAD.to_owned(),
        headers: Headers::default(),
    }
}

fn by_ann(rewritten: RewrittenRow) -> Repair {
    Repair { rewritten, actor: "ann".to_owned(), reason: "it's the decoder 😀".to_owned() }
}

/// A repair comes from another process than the workers'.
async fn repair(f: &dyn Fixture, id: i64, new: RewrittenRow) -> ReprocessOutcome {
    f.second().reprocess(id, by_ann(new), Mode::Write).await.expect("repair")
}

async fn audits(f: &dyn Fixture) -> i64 {
    f.number("SELECT count(*) FROM relais_audit").await
}

pub async fn a_repaired_row_is_received_with_its_new_parts(f: &dyn Fixture) {
    let before = broken(f, "m-1").await;
    let mut new = rewritten("m-1", "f7");
    new.headers.set("trace", "t");
    assert_eq!(repair(f, before.id, new).await, ReprocessOutcome::Received);
    let after = row(f, before.id).await;
    assert_eq!((after.status, after.attempts), (InboxStatus::Received, 0));
    assert_eq!((after.payload.as_deref(), after.msg_key.as_str()), (Some(PAYLOAD), "f7"));
    assert_eq!(after.aggregate_id.as_deref(), Some("7"));
    assert_eq!(after.event_type.as_deref(), Some("MembersRemoved"));
    assert_eq!(after.headers.get("trace"), Some("t"));
    assert_eq!((after.next_attempt_at, after.processed_at), (None, None));
    assert_eq!((after.error_stage, after.error_code, after.error_message), (None, None, None));
    assert!(after.raw_payload_base64.is_some(), "the original bytes stay");
    assert_eq!(after.raw_payload_base64, before.raw_payload_base64);
    assert_eq!((after.received_at, after.topic), (before.received_at, before.topic));
    assert_eq!((after.key_str, after.offset_num), (before.key_str, before.offset_num));
    accept(f, vec![arrival_for("m-2", "f7")]).await;
    assert_eq!(after.lane, find(f, "m-2").await.lane, "the lane follows the key");
    let worker = Worker::inbox(f, "w").await;
    let rows = worker.received(10).await;
    assert_eq!(worker.settle_inbox(&rows[0], processed()).await, all(1));
    assert_eq!(row(f, before.id).await.status, InboxStatus::Processed);
}

pub async fn a_repair_is_recorded_with_who_and_why(f: &dyn Fixture) {
    let id = broken(f, "m-1").await.id;
    repair(f, id, rewritten("m-1", "k")).await;
    let audit = f.query("SELECT actor, action, target, reason FROM relais_audit").await;
    let expected = ["ann", "inbox.repaired", &id.to_string(), "it's the decoder 😀"];
    let audit = audit.expect("query");
    let [only] = audit.as_slice() else { panic!("one entry, not {audit:?}") };
    assert_eq!(only.iter().flatten().collect::<Vec<_>>(), expected);
}

pub async fn a_trial_says_the_same_and_changes_nothing(f: &dyn Fixture) {
    let before = broken(f, "m-1").await;
    accept(f, vec![arrival_with("same", PAYLOAD), arrival_with("other", "{}")]).await;
    let (same, other) = (find(f, "same").await.id, find(f, "other").await.id);
    let changes = f.store().changes().await.expect("changes");
    for (message_id, expected) in [
        ("m-1", ReprocessOutcome::Received),
        ("m-9", ReprocessOutcome::Received),
        ("same", ReprocessOutcome::Duplicate { of: same }),
        ("other", ReprocessOutcome::Conflict { with: other }),
    ] {
        let new = by_ann(rewritten(message_id, "k"));
        let said = f.store().reprocess(before.id, new, Mode::Try).await.expect("repair");
        assert_eq!(said, expected, "{message_id}");
    }
    assert_eq!(row(f, before.id).await, before);
    assert_eq!((audits(f).await, f.store().changes().await.expect("changes")), (0, changes));
}

pub async fn a_repaired_row_takes_the_id_of_its_message(f: &dyn Fixture) {
    let id = broken(f, "sha256:00").await.id;
    let mut new = rewritten("m-1", "k");
    new.headers.set(HEADER_ORIGINAL_ID, "sha256:00");
    assert_eq!(repair(f, id, new).await, ReprocessOutcome::Received);
    let after = find(f, "m-1").await;
    assert_eq!((after.id, after.headers.get(HEADER_ORIGINAL_ID)), (id, Some("sha256:00")));
    assert_eq!(accept(f, vec![arrival_with("m-1", PAYLOAD)]).await, [AcceptOutcome::Duplicate]);
    assert_eq!(Worker::inbox(f, "w").await.received_ids().await, ["m-1"]);
}

pub async fn a_message_that_is_there_already_is_not_handled_twice(f: &dyn Fixture) {
    accept(f, vec![arrival_with("m-1", PAYLOAD)]).await;
    let (first, before) = (find(f, "m-1").await, broken(f, "sha256:00").await);
    let worker = Worker::inbox(f, "w").await;
    let rows = worker.received(10).await;
    worker.settle_inbox(&rows[0], processed()).await;
    let said = repair(f, before.id, rewritten("m-1", "k")).await;
    assert_eq!(said, ReprocessOutcome::Duplicate { of: first.id });
    let after = row(f, before.id).await;
    assert_eq!(after.status, InboxStatus::Processed);
    assert_eq!(after.error_code.as_deref(), Some(CODE_DUPLICATE));
    assert_eq!(after.error_message, Some(duplicate_message(first.id)));
    assert!(after.processed_at.is_some(), "so that it goes with its retention");
    assert_eq!(after.message_id, "sha256:00");
    assert_eq!(after.raw_payload_base64, before.raw_payload_base64);
    assert!(worker.received(10).await.is_empty());
    let audit = f.query("SELECT action FROM relais_audit").await.expect("query");
    assert_eq!(audit, [[Some("inbox.duplicate".to_owned())]]);
}

pub async fn bytes_repaired_before_under_the_id_are_the_same_message(f: &dyn Fixture) {
    let first = broken(f, "sha256:00").await.id;
    let edited = RewrittenRow { payload: "{\"by\":\"hand\"}".to_owned(), ..rewritten("m-1", "k") };
    assert_eq!(repair(f, first, edited).await, ReprocessOutcome::Received);
    let again = broken(f, "sha256:00").await.id;
    assert_ne!(again, first, "the first row has another id by now");
    let said = repair(f, again, rewritten("m-1", "k")).await;
    assert_eq!(said, ReprocessOutcome::Duplicate { of: first });
}

pub async fn an_id_that_has_other_content_is_not_changed(f: &dyn Fixture) {
    accept(f, vec![arrival_with("m-1", "{\"n\":2}")]).await;
    let (first, before) = (find(f, "m-1").await, broken(f, "sha256:00").await);
    let said = repair(f, before.id, rewritten("m-1", "k")).await;
    assert_eq!(said, ReprocessOutcome::Conflict { with: first.id });
    assert_eq!((row(f, before.id).await, find(f, "m-1").await), (before.clone(), first));
    assert_eq!(audits(f).await, 0);
    let own = repair(f, before.id, rewritten("sha256:00", "k")).await;
    assert_eq!(own, ReprocessOutcome::Received, "under its own id it goes");
}

pub async fn an_id_of_another_source_is_another_message(f: &dyn Fixture) {
    let other = NewInbox { source_system: "crm".to_owned(), ..arrival_with("m-1", PAYLOAD) };
    accept(f, vec![other]).await;
    let id = broken(f, "sha256:00").await.id;
    assert_eq!(repair(f, id, rewritten("m-1", "k")).await, ReprocessOutcome::Received);
}

pub async fn only_what_could_not_be_decoded_is_repaired(f: &dyn Fixture) {
    accept(f, vec![arrival("m-1")]).await;
    for status in InboxStatus::ALL.into_iter().filter(|s| *s != InboxStatus::SerdeError) {
        f.run(&format!("UPDATE relais_inbox SET status = '{}'", status.as_str())).await;
        let before = find(f, "m-1").await;
        let said = repair(f, before.id, rewritten("m-1", "k")).await;
        assert_eq!(said, ReprocessOutcome::Refused { status: Some(status) });
        assert_eq!(row(f, before.id).await, before);
    }
    let gone = repair(f, 987_654_321, rewritten("m-1", "k")).await;
    assert_eq!((gone, audits(f).await), (ReprocessOutcome::Refused { status: None }, 0));
}

pub async fn of_two_operators_at_once_one_repairs(f: &dyn Fixture) {
    let id = broken(f, "m-1").await.id;
    let operators = (0..6).map(|n| {
        let store = if n % 2 == 0 { f.store() } else { f.second() };
        let new = by_ann(rewritten(&format!("p-{n}"), "k"));
        tokio::spawn(async move { store.reprocess(id, new, Mode::Write).await })
    });
    let mut said = Vec::new();
    for operator in operators.collect::<Vec<_>>() {
        said.push(operator.await.expect("operator").expect("repair"));
    }
    let refused = ReprocessOutcome::Refused { status: Some(InboxStatus::Received) };
    assert_eq!(
        said.iter().filter(|said| **said == ReprocessOutcome::Received).count(),
        1,
        "{said:?}"
    );
    assert_eq!(said.iter().filter(|said| **said == refused).count(), 5, "{said:?}");
    assert_eq!(audits(f).await, 1);
}

pub async fn a_message_that_comes_while_its_row_is_repaired_is_one_message(f: &dyn Fixture) {
    const ROWS: usize = 20;
    for n in 0..ROWS {
        let id = broken(f, &format!("sha256:{n}")).await.id;
        let wanted = format!("m-{n}");
        let (operator, source) = (f.store(), f.second());
        let (new, arrives) = (by_ann(rewritten(&wanted, "k")), arrival_with(&wanted, PAYLOAD));
        let repairing = tokio::spawn(async move { operator.reprocess(id, new, Mode::Write).await });
        let receiving = tokio::spawn(async move { source.accept(vec![arrives], Vec::new()).await });
        let said = repairing.await.expect("operator").expect("repair");
        let heard = receiving.await.expect("source").expect("accept");
        match said {
            ReprocessOutcome::Received => assert_eq!(heard, [AcceptOutcome::Duplicate]),
            ReprocessOutcome::Duplicate { of } => {
                assert_eq!((heard, find(f, &wanted).await.id), (vec![AcceptOutcome::Stored], of));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(Worker::inbox(f, "w").await.received(100).await.len(), ROWS);
    assert!(open_dead_letters(f).await.is_empty());
}

pub async fn a_repair_waits_for_a_message_that_is_being_received(f: &dyn Fixture) {
    let (name, dialect) = (format!("source-{}", Uuid::now_v7()), f.dialect());
    let (Some(named), Some(waiting)) = (dialect.name_session(&name), dialect.waiting_behind(&name))
    else {
        return; // One writer at a time: nothing is half received.
    };
    let id = broken(f, "sha256:00").await.id;
    let mut source = f.begin().await.expect("begin");
    source.execute(&named).await.expect("name");
    let insert = format!(
        "INSERT INTO relais_inbox
             (source_system, message_id, topic, partition_num, offset_num, msg_key, payload)
         VALUES ('ihub', 'm-1', 't', 0, 0, 'k', '{PAYLOAD}')"
    );
    source.execute(&insert).await.expect("insert");
    let (operator, new) = (f.store(), by_ann(rewritten("m-1", "k")));
    let repairing = tokio::spawn(async move { operator.reprocess(id, new, Mode::Write).await });
    while f.number(&waiting).await == 0 {
        assert!(!repairing.is_finished(), "it does not wait for the id");
        tokio::task::yield_now().await;
    }
    source.commit().await.expect("commit");
    let said = repairing.await.expect("operator").expect("repair");
    assert_eq!(said, ReprocessOutcome::Duplicate { of: find(f, "m-1").await.id });
}

pub async fn what_comes_again_after_its_repair_is_a_duplicate(f: &dyn Fixture) {
    let id = broken(f, "m-1").await.id;
    repair(f, id, rewritten("m-1", "k")).await;
    for again in [undecodable("m-1", GARBAGE), arrival_with("m-1", PAYLOAD)] {
        assert_eq!(accept(f, vec![again]).await, [AcceptOutcome::Duplicate]);
    }
    assert!(open_dead_letters(f).await.is_empty());
    for other in [undecodable("m-1", b"\xff"), arrival_with("m-1", "{\"n\":2}")] {
        assert_eq!(accept(f, vec![other]).await, [AcceptOutcome::Conflict]);
    }
    assert_eq!(Worker::inbox(f, "w").await.received_ids().await, ["m-1"]);
}

pub async fn a_repaired_row_goes_before_later_rows_of_its_key(f: &dyn Fixture) {
    let id = broken(f, "m-1").await.id;
    accept(f, vec![arrival_for("m-2", "k"), arrival_for("m-3", "other")]).await;
    let worker = Worker::inbox(f, "w").await;
    assert_eq!(worker.received_ids().await, ["m-2", "m-3"]);
    repair(f, id, rewritten("m-1", "k")).await;
    assert_eq!(worker.received_ids().await, ["m-1", "m-2", "m-3"]);
}

pub async fn a_repaired_row_is_found_long_after_later_ones(f: &dyn Fixture) {
    let id = broken(f, "m-1").await.id;
    let worker = Worker::inbox(f, "w").await;
    for n in 0..5 {
        accept(f, (0..20).map(|m| arrival(&format!("later-{n}-{m}"))).collect()).await;
        let rows = worker.received(100).await;
        let fates = rows.iter().map(|row| worker.inbox_fate(row, processed())).collect();
        assert_eq!(worker.settle_inbox_all(fates).await, all(20));
        assert!(worker.received(100).await.is_empty());
    }
    repair(f, id, rewritten("m-1", "k")).await;
    assert_eq!(worker.received_ids().await, ["m-1"]);
}

pub async fn a_repaired_row_of_a_parked_key_waits(f: &dyn Fixture) {
    accept(f, vec![arrival_for("m-0", "k")]).await;
    let worker = Worker::inbox(f, "w").await;
    let rows = worker.received(1).await;
    worker.settle_inbox(&rows[0], dead_message()).await;
    let id = broken(f, "m-1").await.id;
    repair(f, id, rewritten("m-1", "k")).await;
    assert!(worker.received(10).await.is_empty());
    let parked = only_dead_letter(f).await.id;
    assert!(resolve(f, parked, Resolution::Discarded).await);
    assert_eq!(worker.received_ids().await, ["m-1"]);
}

pub async fn a_repair_changes_the_number_that_wakes_workers(f: &dyn Fixture) {
    let id = broken(f, "m-1").await.id;
    let before = f.store().changes().await.expect("changes");
    repair(f, id, rewritten("m-1", "k")).await;
    assert_ne!(f.store().changes().await.expect("changes").rows, before.rows);
}

pub async fn a_payload_that_is_no_json_leaves_the_row_as_it_was(f: &dyn Fixture) {
    let before = broken(f, "m-1").await;
    let new = RewrittenRow { payload: "{".to_owned(), ..rewritten("m-1", "k") };
    assert_invalid(f.store().reprocess(before.id, by_ann(new), Mode::Write).await);
    assert_eq!((row(f, before.id).await, audits(f).await), (before, 0));
}

pub async fn rows_to_repair_are_listed_oldest_first_by_every_filter(f: &dyn Fixture) {
    let mut crm = undecodable("b", GARBAGE);
    (crm.source_system, crm.msg_key) = ("crm".to_owned(), "k".to_owned());
    let batch = vec![undecodable("a", GARBAGE), arrival("fine"), crm, undecodable("c", GARBAGE)];
    accept(f, batch).await;
    f.run("UPDATE relais_inbox SET error_code = 'EMPTY' WHERE message_id = 'c'").await;
    let day = f.dialect().ago(86_400);
    f.run(&format!("UPDATE relais_inbox SET received_at = {day} WHERE message_id = 'a'")).await;
    let [a, b, c] = [find(f, "a").await.id, find(f, "b").await.id, find(f, "c").await.id];
    let list = async |wanted: SerdeErrors| f.store().undecodable_rows(wanted).await.expect("list");
    let every = || SerdeErrors { limit: 10, ..SerdeErrors::default() };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(list(every()).await, [a, b, c]);
    assert_eq!(list(SerdeErrors { source_system: some("crm"), ..every() }).await, [b]);
    assert_eq!(list(SerdeErrors { error_code: some("EMPTY"), ..every() }).await, [c]);
    assert_eq!(list(SerdeErrors { key: some("k"), ..every() }).await, [b]);
    assert_eq!(list(SerdeErrors { since_seconds: Some(3_600), ..every() }).await, [b, c]);
    assert_eq!(list(SerdeErrors { limit: 2, ..every() }).await, [a, b]);
    assert_eq!(list(SerdeErrors { after: b, ..every() }).await, [c]);
    assert!(list(SerdeErrors { source_system: some("' OR 1=1 --"), ..every() }).await.is_empty());
    repair(f, b, rewritten("b", "k")).await;
    assert_eq!(list(every()).await, [a, c]);
}

pub async fn a_page_of_rows_to_repair_has_an_upper_limit(f: &dyn Fixture) {
    let batch = (0..PAGE_MAX + 1).map(|n| undecodable(&n.to_string(), b"\xff")).collect();
    accept(f, batch).await;
    let wanted = SerdeErrors { limit: usize::MAX, ..SerdeErrors::default() };
    let page = f.store().undecodable_rows(wanted.clone()).await.expect("list");
    assert_eq!(page.len(), PAGE_MAX);
    let next = SerdeErrors { after: page[PAGE_MAX - 1], ..wanted };
    assert_eq!(f.store().undecodable_rows(next).await.expect("list").len(), 1);
}
