//! Another payload for a dead letter and its row, and the end of an undecodable row.

use relais_core::{
    dead_letter::{
        DeadLetter, DecisionAction, DecisionResult, OperatorDecision, Origin, Resolution,
    },
    inbox::{AcceptOutcome, InboxRow, InboxStatus},
    inspect::InspectExt,
    outbox::{OutboxFate, OutboxStatus},
    query::Filter,
};
use uuid::Uuid;

use super::{
    Start, assert_invalid,
    dead_letters::{dead_inbox, dead_outbox},
    decision, only_dead_letter, open_dead_letters,
    process_build::failed_process,
    resolution_of, resolve,
    worker::{Worker, all, dead_message},
};
use crate::{
    build::{arrival, arrival_with, message, undecodable},
    fixture::Fixture,
};

pub const START: Start = Start::Migrated;

const EDITED: &str = "{ \"amount\" : 12345678901234567890, \"name\": \"É 😀\" }";

/// An edit comes from another process than the workers'.
async fn edit(f: &dyn Fixture, id: Uuid, payload: &str) -> DecisionResult {
    f.second().decide(edit_of(id, payload)).await.expect("edit")
}

fn edit_of(dead_letter: Uuid, payload: &str) -> OperatorDecision {
    let (actor, reason) = ("ben".to_owned(), "the amount's wrong 😀".to_owned());
    let action = DecisionAction::Edit { dead_letter, payload: payload.to_owned() };
    OperatorDecision { action, actor, reason }
}

async fn find(f: &dyn Fixture, id: Uuid) -> DeadLetter {
    f.store().find_dead_letter(id).await.expect("find").expect("the dead letter")
}

async fn inbox_row(f: &dyn Fixture, message_id: &str) -> InboxRow {
    f.store().find_inbox(message_id.to_owned()).await.expect("find").expect("the row")
}

pub async fn an_edit_changes_an_inbox_row_that_stays_failed_until_it_is_replayed(f: &dyn Fixture) {
    let (worker, dead) = dead_inbox(f, arrival("m-1")).await;
    let before = f.now().await;
    assert_eq!(edit(f, dead.id, EDITED).await, DecisionResult::Done);
    let edited = find(f, dead.id).await;
    assert_eq!(edited.payload.as_deref(), Some(EDITED), "byte for byte");
    assert_eq!(edited.original_payload, dead.payload);
    assert_eq!(edited.edited_by.as_deref(), Some("ben"));
    assert!(edited.edited_at >= Some(before) && edited.edited_at <= Some(f.now().await));
    assert_eq!((&edited.resolution, &edited.reason), (&None, &None));
    let row = inbox_row(f, "m-1").await;
    assert_eq!((row.status, row.payload.as_deref()), (InboxStatus::Failed, Some(EDITED)));
    assert_eq!((row.attempts, &row.error_message), (5, &dead.error_message));
    assert!(worker.received(10).await.is_empty());
    assert!(resolve(f, dead.id, Resolution::Retried).await);
    assert_eq!(worker.received(10).await[0].payload.as_deref(), Some(EDITED));
}

pub async fn an_edit_changes_an_outbox_row_too(f: &dyn Fixture) {
    let sent = message("orders", "k");
    let (worker, dead) = dead_outbox(f, sent.clone()).await;
    assert_eq!(edit(f, dead.id, EDITED).await, DecisionResult::Done);
    let row = f.store().find_outbox(sent.message_id.to_string()).await.expect("find");
    let row = row.expect("the row");
    assert_eq!((row.status, row.payload.as_str()), (OutboxStatus::Failed, EDITED));
    assert!(worker.pending(10).await.is_empty());
    assert!(resolve(f, dead.id, Resolution::Retried).await);
    let rows = worker.pending(10).await;
    assert_eq!((rows[0].payload.as_str(), rows[0].message_id), (EDITED, sent.message_id));
    assert_eq!(worker.settle(&rows[0], OutboxFate::Dispatched).await, all(1));
}

pub async fn the_original_is_kept_after_two_edits(f: &dyn Fixture) {
    let (_, dead) = dead_inbox(f, arrival("m-1")).await;
    for payload in ["1", EDITED] {
        assert_eq!(edit(f, dead.id, payload).await, DecisionResult::Done);
        let edited = find(f, dead.id).await;
        assert_eq!(edited.payload.as_deref(), Some(payload));
        assert_eq!(edited.original_payload, dead.payload, "what came, not the first edit");
    }
    let filter = Filter { limit: 10, ..Filter::default() };
    let listed = f.store().list_dead_letters(filter).await.expect("list");
    assert_eq!(listed, [find(f, dead.id).await], "the list shows it as well");
}

pub async fn every_edit_is_recorded(f: &dyn Fixture) {
    let (_, dead) = dead_outbox(f, message("orders", "k")).await;
    let changes = f.store().changes().await.expect("changes");
    for payload in ["1", "2"] {
        assert_eq!(edit(f, dead.id, payload).await, DecisionResult::Done);
    }
    assert_ne!(f.store().changes().await.expect("changes").rows, changes.rows);
    let audit = f.rows("SELECT actor, action, target, reason FROM relais_audit ORDER BY id").await;
    let line = ["ben", "dead-letter.edited", &dead.id.to_string(), "the amount's wrong 😀"];
    let line = line.map(|text| Some(text.to_owned())).to_vec();
    assert_eq!(audit, [line.clone(), line]);
}

pub async fn what_is_resolved_is_not_edited(f: &dyn Fixture) {
    let (_, dead) = dead_outbox(f, message("orders", "k")).await;
    for resolution in [Resolution::Retried, Resolution::Discarded] {
        let dead = open_dead_letters(f).await.pop().unwrap_or_else(|| dead.clone());
        resolve(f, dead.id, resolution).await;
        let resolved = find(f, dead.id).await;
        assert_eq!(edit(f, dead.id, "1").await, DecisionResult::ResolvedBefore);
        assert_eq!(find(f, dead.id).await, resolved);
    }
    let row = f.store().find_outbox(dead.message_id.clone()).await.expect("find");
    assert_eq!(row.map(|row| row.payload), dead.payload);
    assert_eq!(edit(f, Uuid::new_v4(), "1").await, DecisionResult::NotFound);
    assert_eq!(f.number("SELECT count(*) FROM relais_audit").await, 1, "the decision only");
}

pub async fn only_json_can_be_edited_in(f: &dyn Fixture) {
    let (_, dead) = dead_inbox(f, arrival("m-1")).await;
    let batch = vec![arrival_with("m-2", "1"), arrival_with("m-2", "2")];
    f.store().accept(batch, Vec::new()).await.expect("accept");
    for dead in open_dead_letters(f).await {
        for wrong in ["", "{", "{'a': 1}", "1 2", "NaN"] {
            assert_invalid(f.store().decide(edit_of(dead.id, wrong)).await);
        }
        assert_eq!(find(f, dead.id).await, dead);
    }
    assert_eq!(inbox_row(f, "m-1").await.payload, dead.payload);
    assert_eq!(f.number("SELECT count(*) FROM relais_audit").await, 0);
}

pub async fn an_edited_conflict_leaves_the_first_message_alone(f: &dyn Fixture) {
    let batch = vec![arrival_with("m-1", "{\"n\": 1}"), arrival_with("m-1", "{\"n\": 2}")];
    f.store().accept(batch, Vec::new()).await.expect("accept");
    let dead = only_dead_letter(f).await;
    assert_eq!(edit(f, dead.id, EDITED).await, DecisionResult::Done);
    assert_eq!(inbox_row(f, "m-1").await.payload.as_deref(), Some("{\"n\": 1}"));
    let again = f.store().accept(vec![arrival_with("m-1", "{\"n\": 2}")], Vec::new()).await;
    assert_eq!(again.expect("accept"), [AcceptOutcome::Conflict]);
    assert_eq!(only_dead_letter(f).await.id, dead.id, "what was edited is known already");
    assert!(resolve(f, dead.id, Resolution::Retried).await);
    let rows = Worker::inbox(f, "w").await.received(10).await;
    let payloads: Vec<_> = rows.iter().map(|row| row.payload.as_deref()).collect();
    assert_eq!(payloads, [Some("{\"n\": 1}"), Some(EDITED)]);
}

/// A broker that delivers again delivers what it has: the original.
pub async fn the_original_of_an_edited_message_is_still_a_duplicate(f: &dyn Fixture) {
    let (worker, dead) = dead_inbox(f, arrival("m-1")).await;
    for payload in ["1", EDITED] {
        assert_eq!(edit(f, dead.id, payload).await, DecisionResult::Done);
    }
    let again = async || f.store().accept(vec![arrival("m-1")], Vec::new()).await.expect("accept");
    assert_eq!(again().await, [AcceptOutcome::Duplicate]);
    assert!(resolve(f, dead.id, Resolution::Retried).await);
    let rows = worker.received(10).await;
    assert_eq!(worker.settle_inbox(&rows[0], dead_message()).await, all(1));
    let second = only_dead_letter(f).await;
    assert_eq!(edit(f, second.id, "3").await, DecisionResult::Done);
    assert_eq!(again().await, [AcceptOutcome::Duplicate]);
    let other = f.store().accept(vec![arrival_with("m-1", "\"other\"")], Vec::new()).await;
    assert_eq!(other.expect("accept"), [AcceptOutcome::Conflict]);
    assert_eq!(f.number("SELECT count(*) FROM relais_inbox").await, 1);
}

pub async fn a_process_is_not_edited(f: &dyn Fixture) {
    failed_process(f, None).await;
    let dead = only_dead_letter(f).await;
    assert_invalid(f.store().decide(edit_of(dead.id, "1")).await);
    assert_eq!(only_dead_letter(f).await, dead);
}

pub async fn of_edits_and_decisions_at_once_each_is_whole(f: &dyn Fixture) {
    let (_, dead) = dead_inbox(f, arrival("m-1")).await;
    let operators = (0..8).map(|n| {
        let store = if n % 2 == 0 { f.store() } else { f.second() };
        let id = dead.id;
        tokio::spawn(async move {
            if n == 4 {
                store.decide(resolution_of(id, Resolution::Discarded)).await.expect("resolve");
                return 1;
            }
            let decided = store.decide(edit_of(id, &n.to_string())).await;
            i64::from(decided.expect("edit") == DecisionResult::Done)
        })
    });
    let mut done = 0;
    for operator in operators.collect::<Vec<_>>() {
        done += operator.await.expect("operator");
    }
    assert_eq!(f.number("SELECT count(*) FROM relais_audit").await, done);
    assert_eq!(find(f, dead.id).await.payload, inbox_row(f, "m-1").await.payload);
}

fn discarding(row: i64) -> OperatorDecision {
    decision(DecisionAction::DiscardUndecodable { row })
}

async fn broken(f: &dyn Fixture) -> i64 {
    f.store().accept(vec![undecodable("m-1", b"\xff")], Vec::new()).await.expect("accept");
    inbox_row(f, "m-1").await.id
}

pub async fn an_undecodable_row_is_closed_with_a_resolved_dead_letter(f: &dyn Fixture) {
    let id = broken(f).await;
    let before = inbox_row(f, "m-1").await;
    let decided = f.second().decide(discarding(id)).await.expect("discard");
    assert_eq!(decided, DecisionResult::Done);
    let row = inbox_row(f, "m-1").await;
    assert_eq!(row, InboxRow { status: InboxStatus::Failed, ..before }, "its bytes stay");
    assert!(open_dead_letters(f).await.is_empty());
    let dead = f.store().trail("m-1".to_owned()).await.expect("trail").dead_letters;
    assert_eq!(dead.len(), 1);
    assert_eq!((dead[0].origin, dead[0].origin_id), (Origin::Inbox, Some(id)));
    assert_eq!(dead[0].error_class.as_deref(), Some("NOT_UTF8"));
    assert_eq!(dead[0].resolution.as_deref(), Some("discarded"));
    assert_eq!(dead[0].resolved_by.as_deref(), Some("ann"));
    assert!(dead[0].resolved_at.is_some() && dead[0].reason.is_some());
    assert!(f.store().parked_keys(10).await.expect("parked keys").is_empty());
    let audit = f.rows("SELECT actor, action, target FROM relais_audit").await;
    let line = ["ann", "inbox.discarded", &id.to_string()].map(|text| Some(text.to_owned()));
    assert_eq!(audit, [line.to_vec()]);
}

pub async fn only_what_could_not_be_read_is_discarded_and_only_once(f: &dyn Fixture) {
    let id = broken(f).await;
    let discard = async |id| f.store().decide(discarding(id)).await.expect("discard");
    assert_eq!(discard(id).await, DecisionResult::Done);
    assert_eq!(discard(id).await, DecisionResult::ResolvedBefore);
    assert_eq!(discard(id + 1_000).await, DecisionResult::NotFound);
    f.store().accept(vec![arrival("m-2")], Vec::new()).await.expect("accept");
    let good = inbox_row(f, "m-2").await;
    assert_eq!(discard(good.id).await, DecisionResult::ResolvedBefore);
    assert_eq!(inbox_row(f, "m-2").await, good);
    assert_eq!(f.number("SELECT count(*) FROM relais_audit").await, 1);
}

pub async fn what_could_not_be_read_is_not_retried(f: &dyn Fixture) {
    broken(f).await;
    assert!(open_dead_letters(f).await.is_empty(), "there is no dead letter to retry");
    let retry = resolution_of(Uuid::new_v4(), Resolution::Retried);
    assert_eq!(f.store().decide(retry).await.expect("retry"), DecisionResult::NotFound);
    assert_eq!(inbox_row(f, "m-1").await.status, InboxStatus::SerdeError);
}
