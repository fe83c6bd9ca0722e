//! The dead-letter dead_letters.

use std::{collections::HashMap, ops::ControlFlow, sync::Arc, time::Duration};

use relais_core::{
    dead_letter::{DeadLetter, Origin},
    delivery::Delivery,
    handler::{Handler, Outcome, Received},
    inspect::InspectExt,
    lane::Scope,
    query::Filter,
    repair::Mode,
    retry::RetryPolicy,
    route::Route,
};
use relais_store::sqlite;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    ingest::received,
    support::{Bench, Script, drain},
};
use crate::{
    App, DestinationSettings, OnDeadLetter,
    dead_letters::{
        Basis, DeadLetters, DecisionAuthor, DecisionOutcome, DecisionReport, EditValidation,
        KeyLetters, Pace, PayloadEdit, SelectedLetter, many::in_order,
    },
    inbox::{EventAction, InboxWorker},
    worker::run_until_idle,
};

/// Does what the payload's `say` says, and writes each message down in the user's table.
fn obedient(bench: &Bench) -> Arc<dyn Handler> {
    bench.sql("CREATE TABLE IF NOT EXISTS note (id INTEGER PRIMARY KEY, text TEXT)");
    sqlite::handler(bench.sqlite(), |tx: &rusqlite::Transaction<'_>, message: Received<Value>| {
        tx.execute("INSERT INTO note (text) VALUES (?1)", [&message.message_id]).unwrap();
        match message.payload["say"].as_str() {
            Some("done") => Outcome::Done,
            Some("fail") => Outcome::fail("INVALID", "no such customer"),
            Some("panic") => panic!("the handler is told to"),
            _ => Outcome::park("ODD", "an operator must decide"),
        }
    })
}

struct Office {
    bench: Bench,
    handler: Arc<dyn Handler>,
    dead_letters: DeadLetters,
}

impl Office {
    async fn open() -> Self {
        let bench = Bench::new().await;
        let handler = obedient(&bench);
        let app = App::new(bench.store.clone())
            .handle("T", Arc::clone(&handler))
            .route(Route::new("Many", "d").each("/ids"));
        let dead_letters = app.dead_letters();
        Self { bench, handler, dead_letters }
    }

    /// Receives messages of event type `T` (`id`, `key`, what the handler is to do) and handles them.
    async fn receive(&self, messages: &[(&str, &str, &str)]) {
        let rows = messages.iter().map(|(id, key, say)| received(id, &body(key, say))).collect();
        self.bench.store.accept(rows, Vec::new()).await.unwrap();
        self.handle().await;
    }

    async fn handle(&self) {
        let keeper = self.bench.keeper(Scope::Inbox, "w");
        keeper.beat().await.unwrap();
        let actions = HashMap::from([("T".to_owned(), EventAction::Handler(self.handler.clone()))]);
        let retry = RetryPolicy::default().attempts_max(1);
        let (store, counters) = (self.bench.store.clone(), &self.bench.observer.inbox);
        let mut worker = InboxWorker::new(store, keeper, actions, retry, Arc::clone(counters))
            .unknown_type_wait(Duration::ZERO);
        run_until_idle(&mut worker).await;
    }

    /// Message ids in the order their handling was committed.
    fn notes(&self) -> Vec<String> {
        self.bench.texts("SELECT text FROM note ORDER BY id")
    }

    /// Open dead letters in the order their messages came.
    async fn letters(&self) -> Vec<DeadLetter> {
        let filter = Filter { status: Some("open".into()), limit: 500, ..Filter::default() };
        let mut letters = self.dead_letters.list(filter).await.unwrap();
        letters.sort_by_key(|letter| letter.origin_id);
        letters
    }

    async fn letter(&self, id: Uuid) -> DeadLetter {
        self.bench.store.find_dead_letter(id).await.unwrap().unwrap()
    }

    async fn edit(&self, id: Uuid, payload: &str) -> DecisionOutcome {
        self.dead_letters.edit(id, PayloadEdit::new(payload), &by("ann")).await.unwrap()
    }

    async fn held(&self, key: &str) -> KeyLetters {
        let mut held = self.dead_letters.of_key(key).await.unwrap();
        assert_eq!(held.len(), 1, "{held:?}");
        held.remove(0)
    }

    fn audit(&self) -> Vec<String> {
        self.bench
            .texts("SELECT actor || ' ' || action || ': ' || reason FROM relais_audit ORDER BY id")
    }
}

fn body(key: &str, say: &str) -> String {
    json!({ "type": "T", "of": key, "say": say }).to_string()
}

fn by(actor: &str) -> DecisionAuthor {
    DecisionAuthor::new(actor, "mended")
}

fn code(answer: &DecisionOutcome) -> &str {
    match answer {
        DecisionOutcome::WouldFail { problem } | DecisionOutcome::Refused { problem } => {
            &problem.code
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_edited_message_is_validated_then_retried_and_the_original_is_kept() {
    let office = Office::open().await;
    office.receive(&[("m-1", "k", "fail")]).await;
    let letter = office.letters().await.remove(0);
    let original = body("k", "fail");
    assert_eq!(letter.payload.as_deref(), Some(original.as_str()));

    let refused = office.edit(letter.id, "{\"type\": }").await;
    assert!(matches!(refused, DecisionOutcome::Refused { .. }) && code(&refused) == "INVALID_JSON");
    let refused = office.edit(letter.id, &body("k", "fail")).await;
    let DecisionOutcome::WouldFail { problem } = &refused else { panic!("{refused:?}") };
    assert_eq!((problem.code.as_str(), problem.message.as_str()), ("INVALID", "no such customer"));
    assert_eq!(office.letter(letter.id).await, letter, "nothing was changed");

    let good = body("k", "done");
    let tried = PayloadEdit { mode: Mode::Try, ..PayloadEdit::new(&good) };
    assert_eq!(
        office.dead_letters.edit(letter.id, tried, &by("ann")).await.unwrap(),
        DecisionOutcome::Done
    );
    assert_eq!(office.letter(letter.id).await, letter, "a dry run changes nothing");
    assert_eq!(office.edit(letter.id, &good).await, DecisionOutcome::Done);
    assert!(office.notes().is_empty(), "the validator is rolled back");
    let edited = office.letter(letter.id).await;
    assert_eq!(edited.payload.as_ref(), Some(&good));
    assert_eq!(edited.original_payload.as_ref(), Some(&original));
    assert_eq!((edited.edited_by.as_deref(), edited.resolution), (Some("ann"), None));
    assert_eq!(office.bench.texts("SELECT status FROM relais_inbox"), ["FAILED"], "until replayed");

    let better = good.replace("}", ",\"n\":2}");
    assert_eq!(office.edit(letter.id, &better).await, DecisionOutcome::Done);
    let twice = office.letter(letter.id).await;
    assert_eq!(twice.original_payload, Some(original), "the first original is kept");

    assert_eq!(
        office.dead_letters.retry(letter.id, &by("bob")).await.unwrap(),
        DecisionOutcome::Done
    );
    office.handle().await;
    assert_eq!(office.notes(), ["m-1"]);
    assert_eq!(office.bench.texts("SELECT payload FROM relais_inbox"), [better]);
    assert_eq!(
        office.audit(),
        [
            "ann dead-letter.edited: mended",
            "ann dead-letter.edited: mended",
            "bob dead-letter.retried: mended"
        ]
    );
}

#[tokio::test]
async fn an_operator_may_force_what_the_validation_refuses_but_not_invalid_json() {
    let office = Office::open().await;
    office.receive(&[("m-1", "k", "fail")]).await;
    let id = office.letters().await[0].id;
    let forced = |payload: &str| PayloadEdit {
        insist: EditValidation::Skipped,
        ..PayloadEdit::new(payload)
    };
    let answer = office.dead_letters.edit(id, forced("{"), &by("ann")).await.unwrap();
    assert_eq!(code(&answer), "INVALID_JSON");
    let answer = office.edit(id, &body("k", "panic")).await;
    assert_eq!(code(&answer), "HANDLER_PANIC");
    let answer =
        office.dead_letters.edit(id, forced(&body("k", "panic")), &by("ann")).await.unwrap();
    assert_eq!(answer, DecisionOutcome::Done);
    // A shape the handler cannot even decode is the handler's word too.
    assert_eq!(office.letter(id).await.edited_by.as_deref(), Some("ann"));
}

#[tokio::test]
async fn routes_are_validated_and_an_unknown_event_type_is_reported() {
    let office = Office::open().await;
    let rows = vec![
        received("m-1", r#"{"type":"Many","of":"k"}"#),
        received("m-2", r#"{"type":"Huh","of":"k2"}"#),
    ];
    office.bench.store.accept(rows, Vec::new()).await.unwrap();
    office.handle().await; // This worker knows neither type, and waits for no other.
    let letters = office.letters().await;
    let answer = office.edit(letters[0].id, r#"{"type":"Many","ids":{}}"#).await;
    assert_eq!(code(&answer), "ROUTE_EACH");
    assert_eq!(
        office.edit(letters[0].id, r#"{"type":"Many","ids":[1]}"#).await,
        DecisionOutcome::Done
    );
    assert_eq!(office.bench.texts("SELECT count(*) FROM relais_outbox"), ["0"]);
    let answer = office.edit(letters[1].id, "{}").await;
    assert_eq!(code(&answer), "UNKNOWN_EVENT_TYPE");
}

#[tokio::test]
async fn an_edited_outbox_message_goes_out_as_edited() {
    let bench = Bench::new().await;
    let dead_letters = App::new(bench.store.clone()).dead_letters();
    bench.enqueue(&[("k", "a"), ("k", "b")]).await;
    let script = Script::new(&[("a", vec![Delivery::reject("400", "bad")])]);
    let mut relay = bench.relay("w", &script).await;
    drain(&mut relay).await;
    let letter =
        dead_letters.list(Filter { limit: 10, ..Filter::default() }).await.unwrap().remove(0);
    let answer =
        dead_letters.edit(letter.id, PayloadEdit::new("better"), &by("ann")).await.unwrap();
    assert_eq!(code(&answer), "INVALID_JSON");
    let answer =
        dead_letters.edit(letter.id, PayloadEdit::new("\"better\""), &by("ann")).await.unwrap();
    assert_eq!(answer, DecisionOutcome::Done);
    assert_eq!(dead_letters.retry(letter.id, &by("ann")).await.unwrap(), DecisionOutcome::Done);
    drain(&mut relay).await;
    assert_eq!(script.seen(), ["a", "better", "b"], "first in its key");
    let message_ids = bench.texts("SELECT message_id FROM relais_outbox WHERE id = 1");
    assert_eq!(message_ids, [letter.message_id], "the receiver's dedupe key stays");
}

#[tokio::test]
async fn the_second_decision_reports_the_first() {
    let office = Office::open().await;
    office.receive(&[("m-1", "k", "fail")]).await;
    let id = office.letters().await[0].id;
    let operators = (0..6).map(|n| {
        let dead_letters = office.dead_letters.clone();
        tokio::spawn(async move {
            let by = by(&format!("operator-{n}"));
            if n % 2 == 0 {
                dead_letters.retry(id, &by).await
            } else {
                dead_letters.discard(id, &by).await
            }
        })
    });
    let mut answers = Vec::new();
    for operator in operators.collect::<Vec<_>>() {
        answers.push(operator.await.unwrap().unwrap());
    }
    let letter = office.letter(id).await;
    let faster = DecisionOutcome::ResolvedBefore {
        resolution: letter.resolution.unwrap(),
        by: letter.resolved_by.unwrap(),
        at: letter.resolved_at.unwrap(),
    };
    assert_eq!(answers.iter().filter(|answer| **answer == DecisionOutcome::Done).count(), 1);
    assert_eq!(answers.iter().filter(|answer| **answer == faster).count(), 5);
    assert_eq!(office.audit().len(), 1);
    // An edit gets the same answer, and a dead letter that never existed is not found.
    assert_eq!(office.edit(id, &body("k", "done")).await, faster);
    let unknown = Uuid::nil();
    assert_eq!(
        office.dead_letters.retry(unknown, &by("ann")).await.unwrap(),
        DecisionOutcome::NotFound
    );
    assert_eq!(
        office.dead_letters.discard(unknown, &by("ann")).await.unwrap(),
        DecisionOutcome::NotFound
    );
    assert_eq!(office.edit(unknown, "{}").await, DecisionOutcome::NotFound);
}

#[tokio::test]
async fn of_two_editors_the_second_does_not_overwrite_what_they_have_not_seen() {
    let office = Office::open().await;
    office.receive(&[("m-1", "k", "fail")]).await;
    let seen = office.letters().await.remove(0);
    assert_eq!(office.edit(seen.id, &body("k", "done")).await, DecisionOutcome::Done);
    let late =
        PayloadEdit { basis: Basis::Seen(seen.edited_at), ..PayloadEdit::new(&body("k", "done")) };
    let answer = office.dead_letters.edit(seen.id, late.clone(), &by("bob")).await.unwrap();
    assert!(
        matches!(&answer, DecisionOutcome::EditedMeanwhile { by, .. } if by == "ann"),
        "{answer:?}"
    );
    let now = office.letter(seen.id).await;
    let informed = PayloadEdit { basis: Basis::Seen(now.edited_at), ..late };
    let answer = office.dead_letters.edit(seen.id, informed, &by("bob")).await.unwrap();
    assert_eq!(answer, DecisionOutcome::Done);
}

#[tokio::test]
async fn a_dead_letter_shows_what_was_tried_and_what_waits() {
    let office = Office::open().await;
    office.receive(&[("m-1", "k", "park"), ("m-2", "k", "done"), ("m-3", "other", "fail")]).await;
    let letters = office.letters().await;
    let shown = office.dead_letters.show(letters[0].id).await.unwrap().unwrap();
    assert_eq!(shown.letter, letters[0]);
    let tried: Vec<_> = shown.history.iter().map(|a| (a.attempt, a.outcome.as_str())).collect();
    assert_eq!(tried, [(1, "failed")]);
    assert_eq!(shown.history[0].error_message.as_deref(), Some("an operator must decide"));
    let key = shown.parked_key.unwrap();
    assert_eq!((key.msg_key.as_str(), key.backlog), ("k", 1));
    assert_eq!(office.dead_letters.parked_keys(10).await.unwrap(), [key]);
    let free = office.dead_letters.show(letters[1].id).await.unwrap().unwrap();
    assert_eq!(free.parked_key, None, "its key goes on");

    // What was tried before a replay stays, and counts from one again.
    office.dead_letters.retry(letters[0].id, &by("ann")).await.unwrap();
    office.handle().await;
    let again = office.letters().await.remove(0);
    let shown = office.dead_letters.show(again.id).await.unwrap().unwrap();
    assert_eq!(shown.history.iter().map(|a| a.attempt).collect::<Vec<_>>(), [1, 1]);
}

#[tokio::test]
async fn a_replay_by_filter_goes_oldest_first_and_leaves_the_rest() {
    let office = Office::open().await;
    office.bench.sql("CREATE TABLE IF NOT EXISTS note (id INTEGER PRIMARY KEY, text TEXT)");
    let messages: Vec<_> = (1..=5).map(|n| (format!("m-{n}"), "k")).collect();
    for (id, key) in &messages {
        office.receive(&[(id, key, "fail")]).await;
    }
    office.receive(&[("x-1", "x", "fail")]).await;
    // The first one fails again: it is the youngest dead letter of the oldest message now.
    let first = office.letters().await[0].id;
    office.dead_letters.retry(first, &by("ann")).await.unwrap();
    office.handle().await;
    office.bench.sql("UPDATE relais_inbox SET payload = replace(payload, 'fail', 'done')");

    let filter = Filter { key: Some("k".into()), ..Filter::default() };
    let mut told = Vec::new();
    let each = |report: DecisionReport| {
        told.push(report);
        ControlFlow::Continue(())
    };
    let summary =
        office.dead_letters.retry_all(&filter, Pace::AtOnce, &by("ann"), each).await.unwrap();
    assert_eq!((summary.done, summary.unchanged, summary.refused), (5, 0, 0));
    assert!(told.iter().all(|report| report.answer == DecisionOutcome::Done));
    office.handle().await;
    assert_eq!(office.notes(), ["m-1", "m-2", "m-3", "m-4", "m-5"]);
    let left = office.letters().await;
    assert_eq!(left.iter().map(|l| l.message_id.as_str()).collect::<Vec<_>>(), ["x-1"]);
}

#[tokio::test]
async fn a_retry_of_many_keeps_its_pace_and_stops_on_request() {
    let office = Office::open().await;
    for id in ["m-1", "m-2", "m-3", "m-4"] {
        office.receive(&[(id, id, "fail")]).await;
    }
    let everything = Filter::default();
    let stop = |_| ControlFlow::Break(());
    let done =
        office.dead_letters.retry_all(&everything, Pace::AtOnce, &by("ann"), stop).await.unwrap();
    assert_eq!(done.done, 1);
    // Two an hour: the first two at once; the test does not wait for the third.
    let slow = Pace::Rate(2, Duration::from_secs(3_600));
    let (told, mut heard) = tokio::sync::watch::channel(0);
    let each = |_| {
        told.send_modify(|count| *count += 1);
        ControlFlow::Continue(())
    };
    let (ann, a_moment) = (by("ann"), Duration::from_millis(200));
    tokio::select! {
        done = office.dead_letters.retry_all(&everything, slow, &ann, each) => panic!("{done:?}"),
        () = async {
            heard.wait_for(|count| *count == 2).await.unwrap();
            tokio::time::sleep(a_moment).await;
        } => {}
    }
    assert_eq!(office.letters().await.len(), 1, "what was done is done");
}

#[tokio::test]
async fn a_dead_letter_that_parked_nothing_holds_no_replay_back() {
    let office = Office::open().await;
    office.receive(&[("m-1", "k", "fail"), ("m-2", "k", "park"), ("m-3", "k", "done")]).await;
    let letters = office.letters().await;
    assert_eq!((letters.len(), office.notes().len()), (2, 0), "the third waits");
    office.bench.sql("UPDATE relais_inbox SET payload = replace(payload, 'park', 'done')");
    office.bench.sql("UPDATE relais_inbox SET payload = replace(payload, 'fail', 'done')");
    office.dead_letters.retry(letters[1].id, &by("ann")).await.unwrap();
    office.handle().await;
    assert_eq!(office.notes(), ["m-2", "m-3"], "the key went on without the first one");
    office.dead_letters.retry(letters[0].id, &by("ann")).await.unwrap();
    office.handle().await;
    assert_eq!(office.notes(), ["m-2", "m-3", "m-1"]);
    assert!(office.dead_letters.parked_keys(10).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_released_key_retries_all_its_dead_letters_in_order_and_continues() {
    let office = Office::open().await;
    office.receive(&[("m-1", "k", "fail"), ("m-2", "k", "park"), ("m-3", "k", "done")]).await;
    office.receive(&[("x-1", "x", "park")]).await;
    office.bench.sql("UPDATE relais_inbox SET payload = replace(payload, 'park', 'done')");
    office.bench.sql("UPDATE relais_inbox SET payload = replace(payload, 'fail', 'done')");
    let held = office.held("k").await;
    assert_eq!((held.origin, held.letters.len()), (Origin::Inbox, 2));
    let summary = office.dead_letters.release_key(&held, &by("ann")).await.unwrap();
    assert_eq!(summary.done, 2);
    office.handle().await;
    assert_eq!(office.notes(), ["m-1", "m-2", "m-3"]);
    let parked = office.dead_letters.parked_keys(10).await.unwrap();
    assert_eq!(parked.iter().map(|key| key.msg_key.as_str()).collect::<Vec<_>>(), ["x"]);
    // Pressed twice: nothing of it is left.
    let again = office.dead_letters.release_key(&held, &by("bob")).await.unwrap();
    assert_eq!((again.done, again.unchanged), (0, 2));
    assert!(office.dead_letters.of_key("k").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_skipped_key_leaves_its_dead_letters_and_continues() {
    let office = Office::open().await;
    office.receive(&[("m-1", "k", "fail"), ("m-2", "k", "park"), ("m-3", "k", "done")]).await;
    let held = office.held("k").await;
    assert_eq!(office.dead_letters.skip_key(&held, &by("ann")).await.unwrap().done, 2);
    office.handle().await;
    assert_eq!(office.notes(), ["m-3"]);
    assert_eq!(
        office.bench.texts("SELECT status FROM relais_inbox ORDER BY id"),
        ["FAILED", "FAILED", "PROCESSED"]
    );
    assert_eq!(
        office.audit(),
        ["ann dead-letter.discarded: mended", "ann dead-letter.discarded: mended"]
    );
}

#[tokio::test]
async fn a_key_is_held_at_each_destination_by_itself() {
    let bench = Bench::new().await;
    let dead_letters = App::new(bench.store.clone()).dead_letters();
    bench.enqueue(&[("k", "a"), ("k", "b"), ("k", "c")]).await;
    let reject = || vec![Delivery::reject("400", "bad")];
    let script = Script::new(&[("a", reject()), ("b", reject())]);
    let skip = DestinationSettings {
        on_dead_letter: OnDeadLetter::Skip,
        ..DestinationSettings::default()
    };
    let mut relay = bench.relay_with("w", &script, skip).await;
    drain(&mut relay).await;
    // The same key fails in the inbox too.
    bench.store.accept(vec![received("m-1", r#"{"type":"T","of":"k"}"#)], vec![]).await.unwrap();
    let office_handler = obedient(&bench);
    let actions = HashMap::from([("T".to_owned(), EventAction::Handler(office_handler))]);
    let keeper = bench.keeper(Scope::Inbox, "w");
    keeper.beat().await.unwrap();
    let (store, counters) = (bench.store.clone(), Arc::clone(&bench.observer.inbox));
    let mut worker = InboxWorker::new(store, keeper, actions, RetryPolicy::default(), counters);
    run_until_idle(&mut worker).await;

    let held = dead_letters.of_key("k").await.unwrap();
    let places: Vec<_> =
        held.iter().map(|k| (k.origin, k.destination.as_deref(), k.letters.len())).collect();
    assert_eq!(places, [(Origin::Inbox, None, 1), (Origin::Outbox, Some("d"), 2)]);
    assert_eq!(dead_letters.release_key(&held[1], &by("ann")).await.unwrap().done, 2);
    drain(&mut relay).await;
    assert_eq!(script.seen(), ["a", "b", "c", "a", "b"]);
    assert_eq!(dead_letters.of_key("k").await.unwrap().len(), 1, "the inbox was not meant");
}

#[tokio::test]
async fn a_conflict_holds_nothing_and_its_edit_leaves_the_first_message_alone() {
    let office = Office::open().await;
    let rows = vec![received("m-1", &body("k", "done")), received("m-1", &body("k", "fail"))];
    office.bench.store.accept(rows, Vec::new()).await.unwrap();
    let letter = office.letters().await.remove(0);
    assert_eq!(letter.failed_status, "CONFLICT");
    assert!(office.dead_letters.of_key("k").await.unwrap().is_empty());
    let other = body("k", "done").replace("}", ",\"n\":2}");
    assert_eq!(office.edit(letter.id, &other).await, DecisionOutcome::Done);
    assert_eq!(office.bench.texts("SELECT payload FROM relais_inbox"), [body("k", "done")]);
    assert_eq!(
        office.dead_letters.retry(letter.id, &by("ann")).await.unwrap(),
        DecisionOutcome::Done
    );
    office.handle().await;
    assert_eq!(office.notes().len(), 2, "both are messages now");
}

#[tokio::test]
async fn an_undecodable_row_is_discarded_once() {
    let office = Office::open().await;
    let row = received("m-1", "{oops");
    office.bench.store.accept(vec![row], Vec::new()).await.unwrap();
    assert_eq!(
        office.dead_letters.discard_undecodable(1, &by("ann")).await.unwrap(),
        DecisionOutcome::Done
    );
    assert_eq!(office.bench.texts("SELECT status FROM relais_inbox"), ["FAILED"]);
    assert!(office.letters().await.is_empty(), "it is resolved");
    let again = office.dead_letters.discard_undecodable(1, &by("bob")).await.unwrap();
    assert!(
        matches!(&again, DecisionOutcome::ResolvedBefore { by, resolution, .. }
            if by == "ann" && resolution == "discarded"),
        "{again:?}"
    );
    office.receive(&[("m-2", "k", "done")]).await;
    let sound = office.dead_letters.discard_undecodable(2, &by("ann")).await.unwrap();
    let DecisionOutcome::Refused { problem } = sound else { panic!("{sound:?}") };
    assert!(problem.message.contains("PROCESSED"), "{problem:?}");
    assert_eq!(
        office.dead_letters.discard_undecodable(9, &by("ann")).await.unwrap(),
        DecisionOutcome::NotFound
    );
}

#[test]
fn the_oldest_message_is_decided_first_whenever_it_failed() {
    let picked = |origin, origin_id, parked_at| SelectedLetter {
        id: Uuid::from_u128(parked_at),
        origin,
        origin_id,
        message_id: String::new(),
        destination: None,
        msg_key: String::new(),
        failed_status: "FAILED".into(),
        parked_at: crate::core::time::Timestamp(i64::try_from(parked_at).unwrap()),
    };
    let mut all = [
        picked(Origin::Process, None, 1),
        picked(Origin::Outbox, Some(7), 2),
        picked(Origin::Inbox, Some(9), 3),
        picked(Origin::Inbox, Some(2), 4),
    ];
    in_order(&mut all);
    assert_eq!(all.map(|one| one.id.as_u128()), [4, 3, 2, 1]);
}
