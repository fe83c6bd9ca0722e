//! Explanations of messages and processes.

use std::{sync::Arc, time::Duration};

use relais_core::{
    dead_letter::{DeadLetter, Origin},
    delivery::Delivery,
    extract::Pick,
    handler::Outcome,
    inbox::NewInbox,
    inspect::InspectExt,
    process::{
        Definition, Process, ProcessFilter, ProcessStatus,
        declared::{DeclaredCall, DeclaredProcess, DeclaredStep},
        definition::{CallTarget, Correlate, KeyUse},
    },
    query::Filter,
    retry::RetryPolicy,
    route::Route,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    ingest::received,
    support::{Bench, Script, on_both},
};
use crate::{
    App, DestinationSettings, RunningApp,
    dead_letters::{DecisionAuthor, DecisionOutcome, EditValidation, PayloadEdit},
    explain::{
        EventDetail, ExplainOutcome, Explanation, THINGS_MAX, ThingKind, ThingName, ThingRole,
        TimelineEvent, explain,
    },
};

/// The time limit of a test.
const PATIENCE: Duration = Duration::from_secs(30);

fn route(each: Option<&str>) -> Route {
    let route = Route::new("T", "d");
    match each {
        Some(pointer) => route.each(pointer),
        None => route,
    }
}

pub(super) fn app(bench: &Bench, script: &Arc<Script>) -> App {
    let retry =
        RetryPolicy::default().attempts_max(2).first(Duration::from_millis(1)).jitter(false);
    let settings = DestinationSettings { retry, ..DestinationSettings::default() };
    let publisher = Arc::clone(script) as Arc<dyn crate::Publisher>;
    App::new(bench.store.clone()).destination_with("d", publisher, settings)
}

/// Returns a message from a broker.
pub(super) fn record(id: &str, body: &str, offset_num: i64) -> NewInbox {
    NewInbox { topic: "orders".into(), partition_num: 3, offset_num, ..received(id, body) }
}

async fn accept(bench: &Bench, running: &RunningApp, rows: Vec<NewInbox>) {
    bench.store.accept(rows, Vec::new()).await.unwrap();
    running.wake();
}

/// Waits until a query returns this.
pub(super) async fn until(bench: &Bench, sql: &str, wanted: &str) {
    let waited = async {
        while bench.texts(sql) != [wanted] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let done = tokio::time::timeout(PATIENCE, waited).await;
    assert!(done.is_ok(), "{sql}: {:?}, not {wanted}", bench.texts(sql));
}

const DONE: &str = "SELECT count(*) FROM relais_outbox WHERE status = 'DISPATCHED'";

pub(super) async fn story(bench: &Bench, id: &str) -> Explanation {
    match explain(bench.store.as_ref(), id).await.unwrap() {
        ExplainOutcome::One(story) => *story,
        other => panic!("{id}: {other:?}"),
    }
}

/// Returns the events as `inbox:1 received`, in order.
pub(super) fn lines(story: &Explanation) -> Vec<String> {
    story.events.iter().map(|event| format!("{} {}", event.about, kind(event))).collect()
}

fn kind(event: &TimelineEvent) -> String {
    let value = serde_json::to_value(event).unwrap();
    match &event.what {
        EventDetail::Step { entry, .. } => entry.name().to_owned(),
        EventDetail::Action { action, actor, .. } => format!("{action} by {actor}"),
        EventDetail::Attempt { attempt, outcome, .. } => format!("attempt {attempt} {outcome}"),
        _ => value["event"].as_str().unwrap().to_owned(),
    }
}

pub(super) fn roles(story: &Explanation) -> Vec<(String, ThingRole)> {
    story.things.iter().map(|thing| (thing.name.to_string(), thing.role)).collect()
}

async fn open_letter(bench: &Bench) -> DeadLetter {
    let filter = Filter { status: Some("open".into()), limit: 10, ..Filter::default() };
    bench.store.list_dead_letters(filter).await.unwrap().remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_explained_from_its_position_in_the_broker_to_the_acknowledgement() {
    let bench = Bench::new().await;
    let running = app(&bench, &Script::new(&[])).route(route(None)).start();
    accept(&bench, &running, vec![record("m-1", r#"{"type":"T","of":"k"}"#, 17)]).await;
    until(&bench, DONE, "1").await;
    running.stop().await;

    let explained = story(&bench, "m-1").await;
    assert_eq!(
        lines(&explained),
        ["inbox:1 received", "inbox:1 processed", "outbox:1 created", "outbox:1 dispatched"]
    );
    assert_eq!(explained.subject, ThingName::new(ThingKind::Inbox, 1));
    assert_eq!((explained.cut, explained.notes.len()), (false, 0));
    let json = serde_json::to_value(&explained).unwrap();
    let first = &json["events"][0];
    assert_eq!(
        (&first["source_system"], &first["topic"], &first["partition"], &first["offset"]),
        (&json!("crm"), &json!("orders"), &json!(3), &json!(17))
    );
    assert_eq!(json["things"][0]["status"], "PROCESSED");
    assert_eq!(json["things"][1]["status"], "DISPATCHED");
    assert!(explained.events[0].what.to_string().contains("orders partition 3 offset 17"));

    // From the other end, by the row's number and by its message id, the cause comes first.
    let message_id = bench.texts("SELECT message_id FROM relais_outbox").remove(0);
    let back = story(&bench, &message_id).await;
    assert_eq!(lines(&back), lines(&explained));
    assert_eq!(
        roles(&back),
        [("inbox:1".into(), ThingRole::Cause), ("outbox:1".into(), ThingRole::Subject)]
    );
    assert_eq!(story(&bench, "outbox:1").await, back);
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_dead_letters_and_decisions_of_operators_are_in_the_timeline() {
    let bench = Bench::new().await;
    let fails = vec![Delivery::retry("503", "busy"); 99];
    let script = Script::new(&[("a", fails)]);
    let app = app(&bench, &script);
    let dead_letters = app.dead_letters();
    let running = app.start();
    bench.enqueue(&[("k", "a"), ("k", "b")]).await;
    running.wake();
    until(&bench, "SELECT count(*) FROM relais_outbox WHERE error_code = '503'", "1").await;
    // The target works for another key meanwhile: the failures are the message's own.
    bench.enqueue(&[("healthy", "healthy")]).await;
    running.wake();
    until(&bench, "SELECT count(*) FROM relais_dead_letter", "1").await;

    // The second one waits behind the dead letter.
    let letter = open_letter(&bench).await;
    let waiting = story(&bench, "outbox:2").await;
    assert_eq!(waiting.things[0].held_by, Some(letter.id));
    let dead = story(&bench, &letter.id.to_string()).await;
    assert_eq!(
        dead.subject,
        ThingName::new(ThingKind::Outbox, 1),
        "a dead letter is about its row"
    );
    assert_eq!(dead.things[0].problem.as_ref().unwrap().code, "503");

    let by = DecisionAuthor::new("ann", "fixed");
    let rewrite = PayloadEdit::new("\"c\"");
    assert_eq!(dead_letters.edit(letter.id, rewrite, &by).await.unwrap(), DecisionOutcome::Done);
    assert_eq!(dead_letters.retry(letter.id, &by).await.unwrap(), DecisionOutcome::Done);
    running.wake();
    until(&bench, DONE, "3").await;
    running.stop().await;
    let explained = story(&bench, &letter.message_id).await;
    assert_eq!(
        lines(&explained),
        [
            "outbox:1 created",
            "outbox:1 attempt 1 retry",
            "outbox:1 attempt 2 failed",
            "outbox:1 dead_letter",
            "outbox:1 dead-letter.edited by ann",
            "outbox:1 dead-letter.retried by ann",
            "outbox:1 dispatched",
        ]
    );
    assert!(explained.events.is_sorted_by_key(|event| event.at));
    let reason = explained.events[5].what.to_string();
    assert_eq!(reason, "dead-letter.retried by ann: fixed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retried_conflict_leads_to_the_message_that_it_became() {
    on_both(async |bench| {
        let app = app(&bench, &Script::new(&[])).route(route(None));
        let dead_letters = app.dead_letters();
        let same_id =
            |n: u32| record("m-1", &format!(r#"{{"type":"T","of":"k","n":{n}}}"#), n.into());
        bench.store.accept(vec![same_id(1), same_id(2)], Vec::new()).await.unwrap();
        let letter = open_letter(&bench).await;
        let first = ThingName::new(ThingKind::Inbox, letter.origin_id.unwrap());
        let before = story(&bench, &letter.id.to_string()).await;
        assert_eq!(roles(&before), [(first.to_string(), ThingRole::Subject)]);
        let by = DecisionAuthor::new("ann", "both are meant");
        let rewrite = PayloadEdit::new(r#"{"type":"T","of":"k","n":3}"#);
        assert_eq!(
            dead_letters.edit(letter.id, rewrite, &by).await.unwrap(),
            DecisionOutcome::Done
        );
        assert_eq!(dead_letters.retry(letter.id, &by).await.unwrap(), DecisionOutcome::Done);
        let running = app.start();
        running.wake();
        until(&bench, DONE, "2").await;
        running.stop().await;
        let sql = "SELECT 'inbox:' || id FROM relais_inbox WHERE message_id <> 'm-1'";
        let became = bench.texts(sql).remove(0);
        let explained = story(&bench, &letter.id.to_string()).await;
        assert_eq!(explained.subject, first);
        assert!(roles(&explained).contains(&(became.clone(), ThingRole::Effect)), "{explained:?}");
        let sent = explained.things.iter().filter(|thing| thing.name.kind == ThingKind::Outbox);
        assert_eq!(sent.count(), 2, "each of the two was sent");
        assert!(lines(&explained).contains(&format!("{became} processed")), "{explained:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn handler_attempts_are_explained() {
    let bench = Bench::new().await;
    let handler = relais_store::sqlite::handler(
        bench.sqlite(),
        |_: &rusqlite::Transaction<'_>, message: crate::Received<Value>| match message.attempt {
            1 => Outcome::retry_after(Duration::from_millis(1), "LOCKED", "the row is locked"),
            _ => Outcome::Done,
        },
    );
    let retry = RetryPolicy::default().first(Duration::from_millis(1));
    let app = App::new(bench.store.clone()).handle("T", handler).inbox_retry(retry);
    let running = app.start();
    accept(&bench, &running, vec![record("m-1", r#"{"type":"T"}"#, 1)]).await;
    until(&bench, "SELECT status FROM relais_inbox", "PROCESSED").await;
    running.stop().await;
    let explained = story(&bench, "m-1").await;
    assert_eq!(
        lines(&explained),
        ["inbox:1 received", "inbox:1 attempt 1 retry", "inbox:1 processed"]
    );
    assert!(explained.events[1].what.to_string().contains("LOCKED: the row is locked"));
}

#[tokio::test]
async fn an_ambiguous_number_lists_all_its_things() {
    let bench = Bench::new().await;
    let rows = vec![received("m-1", "{}"), received("1", "{}"), received("3", "{}")];
    bench.store.accept(rows, Vec::new()).await.unwrap();
    bench.enqueue(&[("k", "a")]).await;
    let ExplainOutcome::Ambiguous(things) = explain(bench.store.as_ref(), "1").await.unwrap()
    else {
        panic!("1 is an inbox row and an outbox row")
    };
    let names: Vec<_> = things.iter().map(|thing| thing.name.to_string()).collect();
    assert_eq!(names, ["inbox:1", "outbox:1", "inbox:2"], "the last by its message id");
    assert_eq!(story(&bench, "message:1").await.subject.to_string(), "inbox:2");
    for name in names {
        assert_eq!(story(&bench, &name).await.subject.to_string(), name);
    }
    // Two sources may use the same id.
    let twin = NewInbox { source_system: "shop".into(), ..received("m-1", "{}") };
    bench.store.accept(vec![twin], Vec::new()).await.unwrap();
    let found = explain(bench.store.as_ref(), "m-1").await.unwrap();
    assert!(matches!(&found, ExplainOutcome::Ambiguous(things) if things.len() == 2), "{found:?}");
    // One row by its number and by its message id is one thing.
    assert_eq!(story(&bench, "3").await.subject, ThingName::new(ThingKind::Inbox, 3));
    assert_eq!(explain(bench.store.as_ref(), "unknown").await.unwrap(), ExplainOutcome::Nothing);
    let unknown = Uuid::nil().to_string();
    assert_eq!(explain(bench.store.as_ref(), &unknown).await.unwrap(), ExplainOutcome::Nothing);
    assert_eq!(explain(bench.store.as_ref(), "inbox:9").await.unwrap(), ExplainOutcome::Nothing);
    // One message id may be sent to two destinations.
    let sent = super::support::message("k", "b");
    let elsewhere = crate::NewMessage { destination: "e".into(), ..sent.clone() };
    let id = sent.message_id.to_string();
    bench.store.enqueue(vec![sent, elsewhere]).await.unwrap();
    let found = explain(bench.store.as_ref(), &id).await.unwrap();
    let ExplainOutcome::Ambiguous(things) = found else { panic!("{found:?}") };
    let names: Vec<_> = things.iter().map(|thing| thing.name.to_string()).collect();
    assert_eq!(names, ["outbox:2", "outbox:3"]);
}

#[tokio::test]
async fn the_first_characters_of_an_id_are_explained_unless_they_are_ambiguous() {
    let bench = Bench::new().await;
    let uuid = "0192f3c4-5a6b-7c8d-9e0f-112233445566";
    let rows = vec![received("order-17", "{}"), received(uuid, "{}")];
    bench.store.accept(rows, Vec::new()).await.unwrap();
    assert_eq!(story(&bench, "0192f3c4").await.subject.to_string(), "inbox:2");
    assert_eq!(story(&bench, "message:0192f3c4").await.subject.to_string(), "inbox:2");
    assert_eq!(story(&bench, "order-1*").await.subject.to_string(), "inbox:1");
    // order-1 may be a message that was removed.
    let doubtful = explain(bench.store.as_ref(), "order-1").await.unwrap();
    assert!(matches!(&doubtful, ExplainOutcome::Ambiguous(one) if one.len() == 1), "{doubtful:?}");
    for unknown in ["process:0192f3c4", "019", "order-2*"] {
        let found = explain(bench.store.as_ref(), unknown).await.unwrap();
        assert_eq!(found, ExplainOutcome::Nothing, "{unknown}");
    }
    let twin = received("0192f3c4-0000-7000-8000-000000000000", "{}");
    bench.store.accept(vec![twin], Vec::new()).await.unwrap();
    let found = explain(bench.store.as_ref(), "0192f3c4").await.unwrap();
    let ExplainOutcome::Ambiguous(things) = found else { panic!("{found:?}") };
    let names: Vec<_> = things.iter().map(|thing| thing.name.to_string()).collect();
    assert_eq!(names, ["inbox:3", "inbox:2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_explanation_is_bounded_and_reports_that_it_is_cut() {
    let bench = Bench::new().await;
    let running = app(&bench, &Script::new(&[])).route(route(Some("/ids"))).start();
    let ids: Vec<_> = (0..THINGS_MAX + 10).collect();
    let body = json!({ "type": "T", "of": "k", "ids": ids }).to_string();
    accept(&bench, &running, vec![record("m-1", &body, 1)]).await;
    until(&bench, "SELECT status FROM relais_inbox", "PROCESSED").await;
    running.stop().await;
    let explained = story(&bench, "m-1").await;
    assert!(explained.cut && explained.things.len() == THINGS_MAX, "{}", explained.things.len());
    // The explanation of each of its messages has its cause, and not its siblings.
    let one = story(&bench, "outbox:7").await;
    assert_eq!((one.cut, one.things.len()), (false, 2));
}

#[tokio::test]
async fn missing_data_is_reported_and_not_guessed() {
    let bench = Bench::new().await;
    let mut message = super::support::message("k", "a");
    message.causation_id = Some("m-1".into());
    bench.store.enqueue(vec![message]).await.unwrap();
    let explained = story(&bench, "outbox:1").await;
    assert_eq!(
        explained.notes,
        ["outbox:1 was caused by message m-1, which is not stored here (any more)"]
    );
    // Its id still leads to what it caused.
    let removed = story(&bench, "m-1").await;
    assert_eq!(removed.subject, ThingName::new(ThingKind::Message, "m-1"));
    assert_eq!(lines(&removed), ["outbox:1 created"]);
    // A row that merely has the number of the cause is not its cause; a message of that id is.
    bench.store.accept(vec![received("m-2", "{}")], Vec::new()).await.unwrap();
    let mut message = super::support::message("k", "b");
    message.causation_id = Some("1".into());
    bench.store.enqueue(vec![message]).await.unwrap();
    assert_eq!(roles(&story(&bench, "outbox:2").await).len(), 1);
    bench.store.accept(vec![received("1", "{}")], Vec::new()).await.unwrap();
    let explained = story(&bench, "outbox:2").await;
    assert_eq!(roles(&explained)[0], ("inbox:2".to_owned(), ThingRole::Cause));
}

#[tokio::test]
async fn a_discarded_undecodable_row_names_its_operator() {
    let bench = Bench::new().await;
    let dead_letters = App::new(bench.store.clone()).dead_letters();
    bench.store.accept(vec![received("m-1", "{oops")], Vec::new()).await.unwrap();
    dead_letters.discard_undecodable(1, &DecisionAuthor::new("ann", "garbage")).await.unwrap();
    let explained = lines(&story(&bench, "inbox:1").await);
    assert_eq!(explained[0], "inbox:1 received");
    assert!(explained.contains(&"inbox:1 inbox.discarded by ann".to_owned()), "{explained:?}");
}

/// Two steps; the second may fail.
fn checkout() -> Definition {
    let call = |command: &str, completed: &str, failed: &[&str]| DeclaredCall {
        target: CallTarget::Destination("d".into()),
        command: command.into(),
        payload: None,
        completed: vec![completed.into()],
        failed: failed.iter().map(|name| (*name).to_owned()).collect(),
        retryable: Vec::new(),
        error: None,
        correlate: Correlate::default(),
        timeout: None,
        retry: RetryPolicy::default(),
    };
    let step = |name: &str, call| DeclaredStep { name: name.into(), call, compensation: None };
    let declared = DeclaredProcess {
        process_type: "checkout".into(),
        version: 1,
        starts: vec!["Started".into()],
        business_key: Some(Pick::Payload("/of".into())),
        key_use: KeyUse::Once,
        steps: vec![
            step("payment", call("Pay", "Paid", &["Declined"])),
            step("shipment", call("Ship", "Shipped", &[])),
        ],
    };
    declared.build().unwrap()
}

async fn commands(bench: &Bench) -> Vec<crate::OutboxRow> {
    let filter = Filter { limit: 100, ..Filter::default() };
    let mut rows = bench.store.list_outbox(filter).await.unwrap();
    rows.reverse();
    rows
}

/// Returns the reply of a service to a command.
fn answer(id: &str, event_type: &str, command: &crate::OutboxRow) -> NewInbox {
    let mut reply = received(id, &json!({ "type": event_type }).to_string());
    reply.headers.set("correlation-id", command.correlation_id.as_deref().unwrap());
    reply.headers.set("causation-id", &command.message_id.to_string());
    reply.msg_key = command.correlation_id.clone().unwrap();
    reply
}

async fn process(bench: &Bench) -> Process {
    let filter = ProcessFilter { limit: 10, ..ProcessFilter::default() };
    bench.store.list_processes(filter).await.unwrap().remove(0)
}

/// Starts a checkout by the message `start`.
async fn begun(bench: &Bench) -> (App, RunningApp) {
    let app = || app(bench, &Script::new(&[])).process(checkout());
    let running = app().start();
    accept(bench, &running, vec![record("start", r#"{"type":"Started","of":"o-1"}"#, 5)]).await;
    until(bench, DONE, "1").await;
    (app(), running)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_is_explained_from_its_start_to_its_end_by_any_of_its_messages() {
    let bench = Bench::new().await;
    let (_, running) = begun(&bench).await;
    let pay = commands(&bench).await.remove(0);
    accept(&bench, &running, vec![answer("r-1", "Paid", &pay)]).await;
    until(&bench, DONE, "2").await;
    let ship = commands(&bench).await.remove(1);
    accept(&bench, &running, vec![answer("r-2", "Shipped", &ship)]).await;
    until(&bench, "SELECT status FROM relais_process", "SUCCEEDED").await;
    running.stop().await;

    let process = process(&bench).await;
    let of = format!("process:{}", process.process_id);
    let explained = story(&bench, "start").await;
    let all = lines(&explained);
    let log: Vec<_> = all.iter().filter_map(|line| line.strip_prefix(&of)).collect();
    let steps = [
        " ProcessStarted",
        " StepStarted",
        " StepCompleted",
        " StepStarted",
        " StepCompleted",
        " ProcessCompleted",
    ];
    assert_eq!(log, steps);
    for line in ["inbox:2 received", "inbox:3 processed", "outbox:1 dispatched"] {
        assert!(all.iter().any(|l| l == line), "{line}: {all:?}");
    }
    assert_eq!(all[0], "inbox:1 received");
    assert!(explained.events.is_sorted_by_key(|event| event.at));
    assert_eq!(explained.things.len(), 6, "three messages in, two out, one process: {all:?}");

    // The process has the same story; its second command has what came before as causes.
    let mut by_process = lines(&story(&bench, &process.process_id.to_string()).await);
    let mut by_start = all.clone();
    by_process.sort();
    by_start.sort();
    assert_eq!(by_process, by_start);
    let ship = story(&bench, &ship.message_id.to_string()).await;
    let causes: Vec<_> =
        roles(&ship).into_iter().filter(|(_, role)| *role == ThingRole::Cause).collect();
    let causes: Vec<_> = causes.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(causes, ["inbox:1", "outbox:1", "inbox:2"]);
    assert!(roles(&ship).contains(&("inbox:3".to_owned(), ThingRole::Effect)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dead_letter_of_a_process_is_retried_by_its_operator_and_explained() {
    let bench = Bench::new().await;
    let (app, running) = begun(&bench).await;
    let dead_letters = app.dead_letters();
    let pay = commands(&bench).await.remove(0);
    accept(&bench, &running, vec![answer("r-1", "Declined", &pay)]).await;
    until(&bench, "SELECT status FROM relais_process", "FAILED").await;
    let letter = open_letter(&bench).await;
    assert_eq!((letter.origin, letter.origin_id), (Origin::Process, None));
    let by = DecisionAuthor::new("ann", "card renewed");
    let rewrite = PayloadEdit { insist: EditValidation::Skipped, ..PayloadEdit::new("{}") };
    let edited = dead_letters.edit(letter.id, rewrite, &by).await.unwrap();
    assert!(
        matches!(&edited, DecisionOutcome::Refused { problem } if problem.code == "PROCESS_DATA")
    );

    assert_eq!(dead_letters.retry(letter.id, &by).await.unwrap(), DecisionOutcome::Done);
    running.wake();
    until(&bench, DONE, "2").await;
    let again = dead_letters.retry(letter.id, &DecisionAuthor::new("bob", "me too")).await.unwrap();
    assert!(
        matches!(&again, DecisionOutcome::ResolvedBefore { by, .. } if by == "ann"),
        "{again:?}"
    );
    let status = process(&bench).await.status;
    assert_eq!(status, ProcessStatus::Running);
    running.stop().await;

    let explained = lines(&story(&bench, &letter.id.to_string()).await);
    let at = |text: &str| {
        let found = explained.iter().position(|line| line.ends_with(text));
        found.unwrap_or_else(|| panic!("{text}: {explained:?}"))
    };
    assert!(at(" StepFailed") < at(" dead-letter.retried by ann"), "{explained:?}");
    assert!(at(" dead_letter") < at(" dead-letter.retried by ann"), "{explained:?}");
    assert!(
        explained.contains(&"outbox:2 dispatched".to_owned()),
        "the new command: {explained:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_is_validated_against_its_process() {
    let bench = Bench::new().await;
    let (app, running) = begun(&bench).await;
    let pay = commands(&bench).await.remove(0);
    let mut lost = answer("r-1", "Paid", &pay);
    lost.headers.set("correlation-id", &Uuid::nil().to_string());
    let second = record("start-2", r#"{"type":"Started","of":"o-1"}"#, 6);
    accept(&bench, &running, vec![lost, second]).await;
    until(&bench, "SELECT count(*) FROM relais_dead_letter", "2").await;
    running.stop().await;
    let dead_letters = app.dead_letters();
    let before = process(&bench).await;
    let filter = Filter { limit: 10, ..Filter::default() };
    let letters = bench.store.list_dead_letters(filter).await.unwrap();
    let letter = |message_id: &str| letters.iter().find(|l| l.message_id == message_id).unwrap();
    let by = DecisionAuthor::new("ann", "");
    let answer = dead_letters.edit(letter("r-1").id, PayloadEdit::new("{}"), &by).await.unwrap();
    assert!(
        matches!(&answer, DecisionOutcome::WouldFail { problem } if problem.code == "PROCESS_UNKNOWN")
    );
    let same_key = PayloadEdit::new(r#"{"type":"Started","of":"o-1"}"#);
    let answer = dead_letters.edit(letter("start-2").id, same_key, &by).await.unwrap();
    assert!(
        matches!(&answer, DecisionOutcome::WouldFail { problem } if problem.code == "BUSINESS_KEY_TAKEN"),
        "{answer:?}"
    );
    let other_key = PayloadEdit::new(r#"{"type":"Started","of":"o-2"}"#);
    let answer = dead_letters.edit(letter("start-2").id, other_key, &by).await.unwrap();
    assert_eq!(answer, DecisionOutcome::Done);
    assert_eq!(process(&bench).await, before, "a validation changes nothing");
}

#[tokio::test]
async fn a_message_that_returns_has_one_explanation() {
    let bench = Bench::new().await;
    let message = super::support::message("k", "a");
    let id = message.message_id.to_string();
    bench.store.enqueue(vec![message]).await.unwrap();
    bench.store.accept(vec![received(&id, "{}")], Vec::new()).await.unwrap();
    let explained = story(&bench, &id).await;
    assert_eq!(lines(&explained), ["outbox:1 created", "inbox:1 received"]);
    assert_eq!(lines(&story(&bench, "inbox:1").await), lines(&explained));
}
