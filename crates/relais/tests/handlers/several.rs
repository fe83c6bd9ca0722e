//! Several handlers of one event type: each has its own copy of the message, its own attempts, time limit
//! and concurrency, and its own parked keys.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use relais::{
    App, Handler, HandlerSettings, IntoHandler, Outcome, Received, RetryPolicy, Route,
    core::inspect::InspectExt,
    core::{
        async_trait,
        handler::{HandleOutcome, HandlerWork},
        inbox::InboxRow,
        store::StoreError,
    },
    dead_letters::DecisionAuthor,
    postgres, sqlite,
};
use relais_testkit::{
    Database,
    database::{PostgresScratch, SqliteScratch},
    scratch,
};
use sqlx::PgConnection;

use super::{Payment, accept, payment, postgres as server, rows, until};

const TABLE: &str =
    "CREATE TABLE seen (place BIGINT GENERATED ALWAYS AS IDENTITY, who TEXT, what TEXT)";
const TABLE_LITE: &str = "CREATE TABLE seen (place INTEGER PRIMARY KEY, who TEXT, what TEXT)";
const SEEN: &str = "SELECT who, what FROM seen ORDER BY who, place";

/// Returns a handler that writes what it gets, and refuses the message `m-2` while `broken` is set.
trait Notes: Database {
    fn notes(&self, who: &'static str, broken: &Arc<AtomicBool>) -> Arc<dyn Handler>;
}

fn refuses(m: &Received<Payment>, broken: &AtomicBool) -> bool {
    m.message_id == "m-2" && broken.load(SeqCst)
}

impl Notes for PostgresScratch {
    fn notes(&self, who: &'static str, broken: &Arc<AtomicBool>) -> Arc<dyn Handler> {
        let broken = Arc::clone(broken);
        let function = async move |tx: &tokio_postgres::Transaction<'_>, m: Received<Payment>| {
            let what = format!("{}/{}", m.source_system, m.message_id);
            tx.execute("INSERT INTO seen (who, what) VALUES ($1, $2)", &[&who, &what]).await?;
            anyhow::ensure!(!refuses(&m, &broken), "search is unavailable");
            Ok(())
        };
        postgres::handler(self.pool(), function)
    }
}

impl Notes for SqliteScratch {
    fn notes(&self, who: &'static str, broken: &Arc<AtomicBool>) -> Arc<dyn Handler> {
        let broken = Arc::clone(broken);
        sqlite::handler(self, move |tx: &rusqlite::Transaction<'_>, m: Received<Payment>| {
            let what = format!("{}/{}", m.source_system, m.message_id);
            tx.execute("INSERT INTO seen (who, what) VALUES (?1, ?2)", (who, what))?;
            anyhow::ensure!(!refuses(&m, &broken), "search is unavailable");
            Ok(())
        })
    }
}

/// Checks that a handler which fails is retried alone, and parks keys for itself only.
async fn check(database: &dyn Notes) {
    let store = database.store();
    let (sound, broken) = (Arc::default(), Arc::new(AtomicBool::new(true)));
    let thrice = RetryPolicy::default()
        .attempts_max(3)
        .first(Duration::from_millis(1))
        .max(Duration::from_millis(1));
    let route = Route::new("Paid", "ledger");
    let app = App::new(Arc::clone(&store))
        .subscribe("mail", "Paid", database.notes("mail", &sound))
        .subscribe("search", "Paid", database.notes("search", &broken))
        .subscriber("search", HandlerSettings::default().retry(thrice))
        .route(route);
    let dead_letters = app.dead_letters();
    let messages = ["m-1", "m-2", "m-3"].map(|id| payment(id, "Paid", "k"));
    accept(&*store, messages.to_vec()).await;
    let running = app.start();

    let mail = ["mail bank/m-1", "mail bank/m-2", "mail bank/m-3"];
    let some = [&mail[..], &["search bank/m-1"]].concat();
    until(database, SEEN, &some).await;
    let parked = "SELECT destination, msg_key FROM relais_parked_key";
    until(database, parked, &["@search k"]).await;
    // The message itself is handled, and a sender that repeats it changes nothing.
    accept(&*store, messages.to_vec()).await;
    let status =
        "SELECT source_system, message_id, status, attempts FROM relais_inbox ORDER BY 1, 2";
    let expected = [
        "@mail::bank m-1 PROCESSED 1",
        "@mail::bank m-2 PROCESSED 1",
        "@mail::bank m-3 PROCESSED 1",
        "@search::bank m-1 PROCESSED 1",
        "@search::bank m-2 FAILED 3",
        "@search::bank m-3 RECEIVED 0",
        "bank m-1 PROCESSED 1",
        "bank m-2 PROCESSED 1",
        "bank m-3 PROCESSED 1",
    ];
    until(database, status, &expected).await;
    assert_eq!(rows(database, "SELECT count(*) FROM relais_outbox").await, ["3"], "the route");
    let error = "SELECT error_message FROM relais_inbox WHERE status = 'FAILED'";
    assert_eq!(rows(database, error).await, ["search is unavailable"]);

    // The dead letter is the subscriber's: its handler validates it, and it alone runs again.
    let letters = store
        .list_dead_letters(relais::Filter { limit: 10, ..relais::Filter::default() })
        .await
        .unwrap();
    assert_eq!(letters.len(), 1);
    broken.store(false, SeqCst);
    dead_letters.retry(letters[0].id, &DecisionAuthor::new("ann", "search is back")).await.unwrap();
    let all = [&mail[..], &["search bank/m-1", "search bank/m-2", "search bank/m-3"]].concat();
    until(database, SEEN, &all).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_subscriber_has_its_own_attempts_and_dead_letters_on_postgresql() {
    let Some(scratch) = server().await else { return };
    scratch.run(TABLE).await;
    check(&scratch).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_subscriber_has_its_own_attempts_and_dead_letters_on_sqlite() {
    let scratch = scratch::sqlite().await;
    scratch.run(TABLE_LITE).await;
    check(&scratch).await;
}

/// Counts how many handlers run at once, and lets none end before `wanted` run.
struct Crowd {
    running: AtomicUsize,
    most: AtomicUsize,
    full: tokio::sync::Barrier,
}

impl Crowd {
    fn of(wanted: usize) -> Arc<Self> {
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { running, most, full: tokio::sync::Barrier::new(wanted) })
    }

    async fn join(&self) {
        let now = self.running.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(now, SeqCst);
        self.full.wait().await;
        self.running.fetch_sub(1, SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrency_and_time_limit_are_each_handlers_own() {
    let Some(scratch) = server().await else { return };
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(20);
    let pool = pool.connect(&scratch.url()).await.unwrap();
    let (own, two) = (Crowd::of(12), Crowd::of(2));
    let crowded = |crowd: &Arc<Crowd>| {
        let crowd = Arc::clone(crowd);
        let join = async move |_: &mut PgConnection, _: Received<Payment>| crowd.join().await;
        postgres::sqlx_handler(pool.clone(), join)
    };
    let hangs = async |_: &mut PgConnection, _: Received<Payment>| {
        std::future::pending::<()>().await;
    };
    let quick = RetryPolicy::default().attempts_max(1);
    let impatient = HandlerSettings::default().timeout(Duration::from_millis(50)).retry(quick);
    let few = HandlerSettings::default().concurrency(2);
    let running = App::new(scratch.store())
        .handle("Own", crowded(&own))
        .handler_concurrency(12)
        .subscribe("two", "Shared", crowded(&two))
        .subscriber("two", few)
        .subscribe("hangs", "Shared", postgres::sqlx_handler(pool.clone(), hangs))
        .subscriber("hangs", impatient)
        .start();
    let own_messages = (0..12).map(|n| payment(&format!("own-{n}"), "Own", &format!("o{n}")));
    let shared = (0..4).map(|n| payment(&format!("shared-{n}"), "Shared", &format!("s{n}")));
    accept(&*scratch.store(), own_messages.chain(shared).collect()).await;
    let sql =
        "SELECT source_system, status, count(*) FROM relais_inbox GROUP BY 1, 2 ORDER BY 1, 2";
    let expected = ["@hangs::bank FAILED 4", "@two::bank PROCESSED 4", "bank PROCESSED 16"];
    until(&scratch, sql, &expected).await;
    let codes = "SELECT DISTINCT error_code FROM relais_inbox WHERE status = 'FAILED'";
    assert_eq!(rows(&scratch, codes).await, ["HANDLER_TIMEOUT"]);
    assert_eq!((own.most.load(SeqCst), two.most.load(SeqCst)), (12, 2));
    running.stop().await;
}

/// A handler that is never called.
struct Idle;

#[async_trait]
impl Handler for Idle {
    async fn handle(&self, _: HandlerWork) -> HandleOutcome {
        HandleOutcome::RolledBack(Outcome::Done)
    }

    async fn validate(&self, _: InboxRow) -> Result<Outcome, StoreError> {
        Ok(Outcome::Done)
    }
}

#[tokio::test]
async fn a_handler_and_a_subscriber_of_one_event_type_are_refused_with_the_next_step() {
    let scratch = scratch::sqlite().await;
    let idle = || Arc::new(Idle).into_handler();
    let app = App::new(scratch.store()).handle("Paid", idle()).subscribe("mail", "Paid", idle());
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(app.start())));
    let text = caught.unwrap_err().downcast::<String>().unwrap();
    assert!(text.contains("make the handler a subscriber too: `App::subscribe`"), "{text}");
}
