//! Handlers in another process, through a running `App`: on each store, with answers that are lost.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use relais::{
    App, Delivery, DestinationSettings, InboxRow, NewMessage, OnDeadLetter, Outcome, RemoteHandler,
    RemoteReply, RetryPolicy, Route,
    core::{async_trait, text},
    remote_target,
};
use relais_testkit::{Database, scratch};

use super::{accept, payment, postgres as server, rows, until};

/// A service with a memory of its own: it gives the same answer for the same message, and its first answer
/// to each message is lost.
#[derive(Default)]
struct Billing {
    lost: Mutex<HashSet<String>>,
    /// The invoices, in the order in which they were written, by key.
    invoices: Mutex<BTreeMap<String, Vec<String>>>,
}

#[async_trait]
impl RemoteHandler for Billing {
    async fn call(&self, row: &InboxRow) -> RemoteReply {
        if row.message_id == "bad" {
            return RemoteReply::Refused(Outcome::fail("BAD", "no such order"));
        }
        let mut invoices = self.invoices.lock().unwrap();
        let of_key = invoices.entry(row.msg_key.clone()).or_default();
        if !of_key.contains(&row.message_id) {
            of_key.push(row.message_id.clone());
        }
        if self.lost.lock().unwrap().insert(row.message_id.clone()) {
            return RemoteReply::Failed(Delivery::retry("CONNECTION_CUT", "no answer"));
        }
        let id = text::stable_uuid(&["invoice", &row.message_id]);
        let order = ("Order", row.msg_key.as_str());
        let message = NewMessage::new(id, order, "Invoiced", "mail", row.payload.clone().unwrap());
        RemoteReply::Done { messages: vec![message], data: None }
    }
}

async fn check(database: &dyn Database) {
    let store = database.store();
    let quick = RetryPolicy::default()
        .attempts_max(1_000)
        .first(Duration::from_millis(1))
        .max(Duration::from_millis(1));
    let settings = DestinationSettings::default().retry(quick).on_dead_letter(OnDeadLetter::Skip);
    let service = Arc::<Billing>::default();
    let handler = Arc::clone(&service) as Arc<dyn RemoteHandler>;
    let app = App::new(Arc::clone(&store))
        .remote_handler("billing", ["Paid", "Refunded"], handler, settings)
        // The same event may have routes: the handler has a copy of its own.
        .route(Route::new("Paid", "ledger"));
    let outline = app.outline();
    assert!(outline.destinations.iter().any(|(name, _)| *name == remote_target("billing")));
    let mut messages: Vec<_> = (0..24)
        .map(|n| {
            let event_type = if n % 4 == 0 { "Refunded" } else { "Paid" };
            payment(&format!("m-{n:02}"), event_type, &format!("k{}", n % 3))
        })
        .collect();
    messages.push(payment("bad", "Paid", "k0"));
    accept(&*store, messages.clone()).await;
    let running = app.start();

    let handled =
        "SELECT source_system, status, count(*) FROM relais_inbox GROUP BY 1, 2 ORDER BY 1, 2";
    let expected = ["@billing::bank FAILED 1", "@billing::bank PROCESSED 24", "bank PROCESSED 25"];
    until(database, handled, &expected).await;
    accept(&*store, messages).await;
    running.stop().await;

    let sent = "SELECT destination, count(*) FROM relais_outbox GROUP BY 1 ORDER BY 1";
    assert_eq!(rows(database, sent).await, ["ledger 19", "mail 24"]);
    for (key, invoices) in &*service.invoices.lock().unwrap() {
        assert_eq!(invoices.len(), 8, "{key}");
        assert!(invoices.is_sorted(), "order of {key}: {invoices:?}");
    }
    let letters = "SELECT source_system, error_class, attempts FROM relais_dead_letter";
    let letters = rows(database, letters).await;
    assert_eq!(letters.len(), 1, "{letters:?}");
    let causes =
        "SELECT count(DISTINCT causation_id) FROM relais_outbox WHERE destination = 'mail'";
    assert_eq!(rows(database, causes).await, ["24"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_repeats_the_call_and_sends_once_on_postgresql() {
    let Some(scratch) = server().await else { return };
    check(&scratch).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_repeats_the_call_and_sends_once_on_sqlite() {
    check(&scratch::sqlite().await).await;
}

#[tokio::test]
async fn a_name_that_is_taken_is_refused() {
    let store = scratch::sqlite().await.store();
    let add = |app: App| {
        let handler = Arc::<Billing>::default() as Arc<dyn RemoteHandler>;
        app.remote_handler("billing", ["Paid"], handler, DestinationSettings::default())
    };
    let app = add(App::new(store));
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(add(app))));
    let text = caught.unwrap_err().downcast::<String>().unwrap();
    assert!(text.contains("a subscriber `billing` exists already"), "{text}");
}
