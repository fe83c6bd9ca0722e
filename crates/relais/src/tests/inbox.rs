//! Inbox → handlers and routes.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use relais_core::{
    async_trait,
    handler::{HandleOutcome, Handler, HandlerWork, Outcome, Received},
    inbox::InboxRow,
    lane::Scope,
    retry::RetryPolicy,
    route::Route,
    store::StoreError,
};
use relais_store::{postgres, sqlite};

use super::{
    ingest::received,
    support::{Bench, on_both},
};
use crate::{
    inbox::{EventAction, InboxWorker},
    worker::run_until_idle,
};

pub(super) fn route(on: &str) -> EventAction {
    EventAction::Routes(vec![Route::new(on, "d")])
}

pub(super) async fn worker(
    bench: &Bench,
    name: &str,
    actions: Vec<(&str, EventAction)>,
) -> InboxWorker {
    let keeper = bench.keeper(Scope::Inbox, name);
    keeper.beat().await.unwrap();
    let actions: HashMap<_, _> = actions.into_iter().map(|(n, a)| (n.to_owned(), a)).collect();
    let retry = RetryPolicy::default().jitter(false).first(Duration::from_secs(60));
    InboxWorker::new(bench.store.clone(), keeper, actions, retry, Arc::clone(&bench.observer.inbox))
}

pub(super) async fn accept(bench: &Bench, messages: &[(&str, &str)]) {
    let rows = messages.iter().map(|(id, body)| received(id, body)).collect();
    bench.store.accept(rows, Vec::new()).await.unwrap();
}

fn statuses(bench: &Bench) -> Vec<String> {
    bench.texts(
        "SELECT message_id || ' ' || status || ' ' || attempts FROM relais_inbox ORDER BY id",
    )
}

/// Returns a handler that writes its message to the user's table, and answers by a function.
pub(super) fn noting(
    bench: &Bench,
    answer: impl Fn(&Received<serde_json::Value>) -> Outcome + Send + Sync + 'static,
) -> Arc<dyn Handler> {
    let table = "CREATE TABLE IF NOT EXISTS note";
    let Some(scratch) = bench.postgres() else {
        bench.sql(&format!("{table} (id INTEGER PRIMARY KEY, text TEXT)"));
        let note = move |tx: &rusqlite::Transaction<'_>, message: Received<serde_json::Value>| {
            tx.execute("INSERT INTO note (text) VALUES (?1)", [&message.message_id]).unwrap();
            answer(&message)
        };
        return sqlite::handler(bench.sqlite(), note);
    };
    bench.sql(&format!("{table} (id bigserial PRIMARY KEY, text TEXT)"));
    let answer = Arc::new(answer);
    let note = async move |tx: &tokio_postgres::Transaction<'_>,
                           message: Received<serde_json::Value>| {
        let insert = "INSERT INTO note (text) VALUES ($1)";
        tx.execute(insert, &[&message.message_id]).await.unwrap();
        answer(&message)
    };
    postgres::handler(scratch.pool(), note)
}

#[tokio::test]
async fn a_route_turns_each_event_into_a_message_once() {
    let bench = Bench::new().await;
    accept(&bench, &[("1", r#"{"type":"T","of":"x"}"#), ("2", r#"{"type":"T","of":"x"}"#)]).await;
    run_until_idle(&mut worker(&bench, "w", vec![("T", route("T"))]).await).await;
    assert_eq!(statuses(&bench), ["1 PROCESSED 1", "2 PROCESSED 1"]);
    let sent = bench.texts("SELECT msg_key || ' ' || causation_id FROM relais_outbox ORDER BY id");
    assert_eq!(sent, ["x 1", "x 2"]);
}

#[tokio::test]
async fn a_handlers_changes_and_its_mark_share_one_commit() {
    let bench = Bench::new().await;
    accept(&bench, &[("1", r#"{"type":"T"}"#), ("2", r#"{"type":"T"}"#)]).await;
    let handler = noting(&bench, |message| match message.message_id.as_str() {
        "1" => Outcome::Done,
        _ => Outcome::fail("INVALID", "no such customer"),
    });
    run_until_idle(&mut worker(&bench, "w", vec![("T", EventAction::Handler(handler))]).await)
        .await;
    assert_eq!(statuses(&bench), ["1 PROCESSED 1", "2 FAILED 1"]);
    assert_eq!(bench.texts("SELECT text FROM note"), ["1"]);
}

#[tokio::test]
async fn a_retry_blocks_later_messages_of_its_key() {
    let bench = Bench::new().await;
    let body = r#"{"type":"T","of":"x"}"#;
    accept(&bench, &[("1", body), ("2", body), ("3", r#"{"type":"T","of":"y"}"#)]).await;
    let failures = AtomicUsize::new(1);
    let handler = noting(&bench, move |message| {
        let failing = message.message_id == "1"
            && failures.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1)).is_ok();
        if failing { Outcome::retry("LOCKED", "later") } else { Outcome::Done }
    });
    let mut worker = worker(&bench, "w", vec![("T", EventAction::Handler(handler))]).await;
    run_until_idle(&mut worker).await;
    assert_eq!(statuses(&bench), ["1 RETRY 1", "2 RECEIVED 0", "3 PROCESSED 1"]);
    bench.make_due();
    run_until_idle(&mut worker).await;
    assert_eq!(bench.texts("SELECT text FROM note ORDER BY id"), ["3", "1", "2"]);
}

#[tokio::test]
async fn a_panicking_handler_is_a_failed_attempt() {
    let bench = Bench::new().await;
    accept(&bench, &[("1", r#"{"type":"T"}"#)]).await;
    let handler = noting(&bench, |_| panic!("a bug in user code"));
    run_until_idle(&mut worker(&bench, "w", vec![("T", EventAction::Handler(handler))]).await)
        .await;
    assert_eq!(statuses(&bench), ["1 RETRY 1"]);
}

/// No clock can add such a pause.
#[tokio::test]
async fn an_absurd_pause_of_a_handler_harms_no_other_message() {
    let bench = Bench::new().await;
    accept(&bench, &[("1", r#"{"type":"T","of":"x"}"#), ("2", r#"{"type":"T","of":"y"}"#)]).await;
    let handler = noting(&bench, |message| match message.message_id.as_str() {
        "1" => Outcome::retry_after(Duration::MAX, "LATER", "not in this life"),
        _ => Outcome::Done,
    });
    run_until_idle(&mut worker(&bench, "w", vec![("T", EventAction::Handler(handler))]).await)
        .await;
    assert_eq!(statuses(&bench), ["1 RETRY 1", "2 PROCESSED 1"]);
}

#[tokio::test]
async fn a_handler_whose_lane_is_lost_changes_nothing() {
    let bench = Bench::new().await;
    accept(&bench, &[("1", r#"{"type":"T"}"#)]).await;
    let handler = noting(&bench, |_| Outcome::Done);
    let mut zombie = worker(&bench, "old", vec![("T", EventAction::Handler(handler))]).await;
    zombie.reader().top_up().await.unwrap();
    bench.expire_leases();
    bench.keeper(Scope::Inbox, "new").beat().await.unwrap();
    run_until_idle(&mut zombie).await;
    assert_eq!(statuses(&bench), ["1 RECEIVED 0"]);
    assert!(bench.texts("SELECT text FROM note").is_empty());
    assert!(bench.observer.snapshot().inbox.refused >= 1);
}

#[tokio::test]
async fn a_payload_of_another_shape_fails_clearly() {
    let bench = Bench::new().await;
    accept(&bench, &[("1", r#"{"type":"T"}"#)]).await;
    #[derive(serde::Deserialize)]
    struct Wanted {
        #[expect(dead_code, reason = "only its absence matters")]
        name: String,
    }
    let handler =
        sqlite::handler(bench.sqlite(), |_: &rusqlite::Transaction<'_>, _: Received<Wanted>| ());
    run_until_idle(&mut worker(&bench, "w", vec![("T", EventAction::Handler(handler))]).await)
        .await;
    assert_eq!(bench.texts("SELECT error_code FROM relais_inbox"), ["PAYLOAD_SHAPE"]);
}

#[tokio::test]
async fn a_loss_amid_routed_suspects_is_noted_on_one_of_them() {
    let bench = Bench::new().await;
    let bodies: Vec<_> =
        (0..20).map(|n| (format!("m{n}"), format!("{{\"type\":\"A\",\"of\":\"k{n}\"}}"))).collect();
    let messages: Vec<_> = bodies.iter().map(|(id, body)| (id.as_str(), body.as_str())).collect();
    accept(&bench, &messages).await;
    bench.sql("UPDATE relais_inbox SET lost_workers = 3, next_attempt_at = received_at");
    // Nothing can be settled any more, as after a crash before the settlement.
    bench.sql("ALTER TABLE relais_outbox RENAME TO renamed");
    let mut successor = worker(&bench, "successor", vec![("A", route("A"))]).await;
    assert!(crate::worker::Worker::run_once(&mut successor).await.is_err());
    let noted = bench.texts("SELECT message_id FROM relais_inbox WHERE lost_workers > 3");
    assert_eq!(noted.len(), 1, "{noted:?}");
}

/// A handler that never returns for one message, and handles every other.
struct NeverBackFor(&'static str, Arc<dyn Handler>);

#[async_trait]
impl Handler for NeverBackFor {
    async fn handle(&self, work: HandlerWork) -> HandleOutcome {
        if work.row.message_id == self.0 {
            std::future::pending::<()>().await;
        }
        self.1.handle(work).await
    }

    async fn validate(&self, row: InboxRow) -> Result<Outcome, StoreError> {
        self.1.validate(row).await
    }
}

#[tokio::test]
async fn a_message_that_kills_its_worker_becomes_a_dead_letter_and_its_neighbours_are_handled() {
    on_both(a_killer_beside_neighbours).await;
}

async fn a_killer_beside_neighbours(bench: Bench) {
    let body = |of: &str| format!("{{\"type\":\"T\",\"of\":\"{of}\"}}");
    let bodies = [("killer", body("x")), ("2", body("y")), ("3", body("z"))];
    let messages: Vec<_> = bodies.iter().map(|(id, body)| (*id, body.as_str())).collect();
    accept(&bench, &messages).await;
    let handler = noting(&bench, |_| Outcome::Done);
    for life in 0.. {
        assert!(life < 12, "{:?}", statuses(&bench));
        let handler = Arc::new(NeverBackFor("killer", Arc::clone(&handler)));
        let actions = vec![("T", EventAction::Handler(handler))];
        let mut worker = worker(&bench, &format!("w{life}"), actions).await;
        run_until_idle(&mut worker).await;
        if statuses(&bench)[0].contains("FAILED") {
            break;
        }
        // Held after three losses; here no other worker is lost meanwhile.
        bench.make_due();
        run_until_idle(&mut worker).await;
        drop(worker);
        bench.expire_leases();
    }
    assert_eq!(statuses(&bench), ["killer FAILED 0", "2 PROCESSED 1", "3 PROCESSED 1"]);
    assert_eq!(bench.texts("SELECT error_code FROM relais_inbox WHERE id = 1"), ["WORKER_LOST"]);
}

#[tokio::test]
async fn one_row_whose_messages_the_database_refuses_does_not_stop_others() {
    let bench = Bench::new().await;
    let bodies = [("1", "x"), ("2", "odd"), ("3", "y")];
    let bodies = bodies.map(|(id, of)| (id, format!("{{\"type\":\"T\",\"of\":\"{of}\"}}")));
    let messages: Vec<_> = bodies.iter().map(|(id, body)| (*id, body.as_str())).collect();
    accept(&bench, &messages).await;
    bench.sql(
        "CREATE TRIGGER odd BEFORE INSERT ON relais_outbox WHEN NEW.msg_key = 'odd'
         BEGIN SELECT RAISE(ABORT, 'not this one'); END",
    );
    run_until_idle(&mut worker(&bench, "w", vec![("T", route("T"))]).await).await;
    assert_eq!(statuses(&bench), ["1 PROCESSED 1", "2 FAILED 1", "3 PROCESSED 1"]);
    let reason =
        bench.texts("SELECT error_code || ' ' || error_message FROM relais_inbox WHERE id = 2");
    assert!(
        reason[0].starts_with("STORE_REFUSED ") && reason[0].contains("not this one"),
        "{reason:?}"
    );
}
