//! Inbox → a handler in another process → settled.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use relais_core::{
    async_trait,
    breaker::BreakerState,
    delivery::Delivery,
    handler::Outcome,
    inbox::InboxRow,
    lane::Scope,
    message::NewMessage,
    outbox::OnDeadLetter,
    remote_handler::{RemoteHandler, RemoteReply},
    retry::RetryPolicy,
    text,
};
use tokio::sync::Semaphore;

use super::{inbox::accept, support::Bench};
use crate::{
    DestinationSettings,
    inbox::{EventAction, InboxWorker, RemoteWork},
    lanes::LaneKeeper,
    limits::SharedLimits,
    worker::{Worker, run_until_idle},
};

/// A service that answers by message id, and handles messages without an answer.
struct Service {
    replies: Mutex<HashMap<String, Vec<RemoteReply>>>,
    /// Every call: message id and attempt.
    seen: Mutex<Vec<String>>,
    running: Mutex<(usize, usize)>,
    /// Calls return when they get a permit.
    gate: Semaphore,
}

impl Service {
    fn new(replies: &[(&str, Vec<RemoteReply>)]) -> Arc<Self> {
        let replies = replies.iter().map(|(id, list)| ((*id).to_owned(), list.clone())).collect();
        Arc::new(Self {
            replies: Mutex::new(replies),
            seen: Mutex::default(),
            running: Mutex::default(),
            gate: Semaphore::new(Semaphore::MAX_PERMITS),
        })
    }

    /// A service whose calls wait for [`Service::release`].
    fn held() -> Arc<Self> {
        let service = Self::new(&[]);
        service.gate.forget_permits(Semaphore::MAX_PERMITS);
        service
    }

    fn release(&self) {
        self.gate.add_permits(1_000);
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    /// Returns the most calls that ran at once.
    fn most(&self) -> usize {
        self.running.lock().unwrap().1
    }
}

#[async_trait]
impl RemoteHandler for Service {
    async fn call(&self, row: &InboxRow) -> RemoteReply {
        self.seen.lock().unwrap().push(format!("{} {}", row.message_id, row.attempts + 1));
        {
            let mut running = self.running.lock().unwrap();
            running.0 += 1;
            running.1 = running.1.max(running.0);
        }
        self.gate.acquire().await.unwrap().forget();
        self.running.lock().unwrap().0 -= 1;
        let next = self
            .replies
            .lock()
            .unwrap()
            .get_mut(&row.message_id)
            .and_then(|list| if list.is_empty() { None } else { Some(list.remove(0)) });
        next.unwrap_or_else(|| sends(row))
    }
}

/// An answer with one message.
fn sends(row: &InboxRow) -> RemoteReply {
    let id = text::stable_uuid(&[&row.message_id]);
    let message = NewMessage::new(id, ("Order", &row.msg_key), "Shipped", "d", "{}".to_owned());
    RemoteReply::Done { messages: vec![message], data: None }
}

fn settings() -> DestinationSettings {
    let retry = RetryPolicy::default().jitter(false).first(Duration::from_secs(60));
    DestinationSettings { retry, ..DestinationSettings::default() }
}

async fn worker(
    bench: &Bench,
    name: &str,
    service: &Arc<Service>,
    settings: DestinationSettings,
) -> (InboxWorker, SharedLimits) {
    worker_at(bench, bench.keeper(Scope::Inbox, name), service, settings).await
}

/// A worker of an inbox of its own.
async fn worker_of(
    bench: &Bench,
    scope: Scope,
    service: &Arc<Service>,
    settings: DestinationSettings,
) -> (InboxWorker, SharedLimits) {
    worker_at(bench, bench.keeper(scope, "w"), service, settings).await
}

async fn worker_at(
    bench: &Bench,
    keeper: LaneKeeper,
    service: &Arc<Service>,
    settings: DestinationSettings,
) -> (InboxWorker, SharedLimits) {
    keeper.beat().await.unwrap();
    let actions = HashMap::from([("T".to_owned(), EventAction::Remote)]);
    let counters = bench.observer.destination("@service");
    let handler = Arc::clone(service) as Arc<dyn RemoteHandler>;
    let remote = RemoteWork::new(handler, settings.clone(), counters);
    let limits = remote.limits();
    let (store, inbox) = (bench.store.clone(), Arc::clone(&bench.observer.inbox));
    let worker = InboxWorker::new(store, keeper, actions, settings.retry, inbox).remote(remote);
    (worker, limits)
}

async fn receive(bench: &Bench, messages: &[(&str, &str)]) {
    let body = |key: &str| format!(r#"{{"type":"T","of":"{key}"}}"#);
    let bodies: Vec<_> = messages.iter().map(|(id, key)| (*id, body(key))).collect();
    let rows: Vec<_> = bodies.iter().map(|(id, body)| (*id, body.as_str())).collect();
    accept(bench, &rows).await;
}

fn statuses(bench: &Bench) -> Vec<String> {
    bench.texts(
        "SELECT message_id || ' ' || status || ' ' || attempts || coalesce(' ' || error_code, '')
         FROM relais_inbox ORDER BY id",
    )
}

fn sent(bench: &Bench) -> Vec<String> {
    bench.texts("SELECT aggregate_id FROM relais_outbox ORDER BY id")
}

#[tokio::test]
async fn the_messages_of_an_answer_and_the_status_share_one_commit_in_order_per_key() {
    let bench = Bench::new().await;
    receive(&bench, &[("1", "x"), ("2", "x"), ("3", "y")]).await;
    let service = Service::new(&[]);
    let (mut worker, _) = worker(&bench, "w", &service, settings()).await;
    run_until_idle(&mut worker).await;
    assert_eq!(statuses(&bench), ["1 PROCESSED 1", "2 PROCESSED 1", "3 PROCESSED 1"]);
    assert_eq!(sent(&bench).len(), 3);
    let of_x: Vec<_> = service.seen().into_iter().filter(|call| call != "3 1").collect();
    assert_eq!(of_x, ["1 1", "2 1"]);
    let counted = &bench.observer.snapshot().destinations["@service"];
    assert_eq!((counted.dispatched, counted.outages), (3, 0));
}

#[tokio::test]
async fn every_outcome_of_an_answer_has_the_fate_of_a_rust_handler() {
    let bench = Bench::new().await;
    receive(&bench, &[("1", "a"), ("2", "b"), ("3", "c"), ("4", "c"), ("5", "b")]).await;
    let service = Service::new(&[
        ("1", vec![RemoteReply::Refused(Outcome::retry("LOCKED", "later"))]),
        ("2", vec![RemoteReply::Refused(Outcome::fail("BAD", "no such order"))]),
        ("3", vec![RemoteReply::Refused(Outcome::park("ASK", "an operator decides"))]),
    ]);
    let (mut worker, _) = worker(&bench, "w", &service, settings()).await;
    run_until_idle(&mut worker).await;
    assert_eq!(
        statuses(&bench),
        ["1 RETRY 1 LOCKED", "2 FAILED 1 BAD", "3 FAILED 1 ASK", "4 RECEIVED 0", "5 PROCESSED 1"]
    );
    assert_eq!(bench.texts("SELECT msg_key FROM relais_parked_key"), ["c"]);
    bench.make_due();
    run_until_idle(&mut worker).await;
    assert!(service.seen().contains(&"1 2".to_owned()), "the attempt is sent along");
    let last = bench.observer.snapshot().destinations["@service"].last_error.clone().unwrap();
    assert!(["LOCKED", "BAD", "ASK"].contains(&last.code.as_str()), "{last:?}");
}

#[tokio::test]
async fn an_invalid_answer_uses_an_attempt_until_many_in_a_row_open_the_breaker() {
    let bench = Bench::new().await;
    let invalid = || RemoteReply::invalid("is not JSON");
    receive(&bench, &[("1", "a"), ("2", "b")]).await;
    let service = Service::new(&[("1", vec![invalid()])]);
    let (mut sound, _) = worker(&bench, "w", &service, settings()).await;
    run_until_idle(&mut sound).await;
    assert_eq!(statuses(&bench), ["1 RETRY 1 ANSWER_INVALID", "2 PROCESSED 1"]);

    let bench = Bench::new().await;
    let ids: Vec<String> = (0..40).map(|n| format!("m{n}")).collect();
    let broken: Vec<_> = ids.iter().map(|id| (id.as_str(), vec![invalid(); 50])).collect();
    let messages: Vec<_> = ids.iter().map(|id| (id.as_str(), id.as_str())).collect();
    receive(&bench, &messages).await;
    let (mut broken, limits) = worker(&bench, "w", &Service::new(&broken), settings()).await;
    run_until_idle(&mut broken).await;
    assert_eq!(limits.state(), BreakerState::Open);
    let counted = bench.texts("SELECT id FROM relais_inbox WHERE attempts > 0");
    assert!(counted.len() < 20, "{} of 40 used an attempt", counted.len());
}

#[tokio::test]
async fn an_outage_opens_the_breaker_and_uses_no_attempt() {
    let bench = Bench::new().await;
    let down = || RemoteReply::Failed(Delivery::outage("CONNECT_FAILED", "refused"));
    let ids: Vec<String> = (0..20).map(|n| format!("m{n}")).collect();
    let replies: Vec<_> = ids.iter().map(|id| (id.as_str(), vec![down(); 3])).collect();
    let service = Service::new(&replies);
    let messages: Vec<_> = ids.iter().map(|id| (id.as_str(), id.as_str())).collect();
    receive(&bench, &messages).await;
    let (mut worker, limits) = worker(&bench, "w", &service, settings()).await;
    run_until_idle(&mut worker).await;
    assert_eq!(limits.state(), BreakerState::Open);
    assert!(bench.texts("SELECT id FROM relais_inbox WHERE attempts > 0").is_empty());
    assert!(service.seen().len() < 20, "{}", service.seen().len());
    let counted = bench.observer.snapshot().destinations["@service"].clone();
    assert_eq!(counted.reason.unwrap().code, "CONNECT_FAILED");

    service.replies.lock().unwrap().clear();
    limits.reset();
    bench.make_due();
    run_until_idle(&mut worker).await;
    let done = bench.texts("SELECT id FROM relais_inbox WHERE status = 'PROCESSED'");
    assert_eq!((done.len(), sent(&bench).len()), (20, 20));
}

#[tokio::test]
async fn a_rejected_call_is_a_dead_letter_that_parks_its_key_unless_configured() {
    for (on_dead_letter, parked) in
        [(OnDeadLetter::Park, &["a"][..]), (OnDeadLetter::Skip, &[][..])]
    {
        let bench = Bench::new().await;
        let refused = RemoteReply::Failed(Delivery::reject("HTTP_422", "no"));
        receive(&bench, &[("1", "a"), ("2", "b")]).await;
        let service = Service::new(&[("1", vec![refused])]);
        let settings = DestinationSettings { on_dead_letter, ..settings() };
        let (mut worker, _) = worker(&bench, "w", &service, settings).await;
        run_until_idle(&mut worker).await;
        assert_eq!(statuses(&bench), ["1 FAILED 1 HTTP_422", "2 PROCESSED 1"]);
        assert_eq!(bench.texts("SELECT msg_key FROM relais_parked_key"), parked);
    }
}

#[tokio::test]
async fn a_call_is_repeated_without_a_dead_letter_if_that_is_configured() {
    let again = || RemoteReply::Refused(Outcome::retry("HANDLER_RETRY", "later"));
    let invalid = || RemoteReply::invalid("is not JSON");
    let rejected = || RemoteReply::Failed(Delivery::reject("HTTP_422", "no"));
    let fail = RemoteReply::Refused(Outcome::fail("NO_STOCK", "none"));
    let bench = Bench::new().await;
    receive(&bench, &[("1", "a"), ("2", "b"), ("3", "c"), ("4", "d")]).await;
    let service = Service::new(&[
        ("1", vec![again(), again(), again()]),
        ("2", vec![invalid(), invalid(), invalid()]),
        ("3", vec![rejected(), rejected(), rejected()]),
        ("4", vec![fail]),
    ]);
    let retry = settings().retry.attempts_max(2);
    let settings = DestinationSettings { retry, on_dead_letter: OnDeadLetter::Retry, ..settings() };
    let (mut worker, _) = worker(&bench, "w", &service, settings).await;
    for _ in 0..3 {
        run_until_idle(&mut worker).await;
        bench.make_due();
    }
    let tried = ["1 RETRY 3 HANDLER_RETRY", "2 RETRY 3 ANSWER_INVALID", "3 RETRY 3 HTTP_422"];
    let found = statuses(&bench);
    assert_eq!(found[..3], tried);
    assert_eq!(found[3], "4 FAILED 1 NO_STOCK", "an answer that the service does not want it");
    run_until_idle(&mut worker).await;
    assert!(statuses(&bench)[..3].iter().all(|state| state.contains("PROCESSED")));
    assert!(bench.texts("SELECT msg_key FROM relais_parked_key").is_empty());
}

#[tokio::test]
async fn a_lane_that_is_lost_during_a_call_refuses_the_answer() {
    let bench = Bench::new().await;
    receive(&bench, &[("1", "x")]).await;
    let service = Service::held();
    let (mut zombie, _) = worker(&bench, "old", &service, settings()).await;
    while service.seen().is_empty() {
        zombie.request_read();
        zombie.run_once().await.unwrap();
        tokio::task::yield_now().await;
    }
    bench.expire_leases();
    let (mut next, _) = worker(&bench, "new", &service, settings()).await;
    service.release();
    run_until_idle(&mut zombie).await;
    assert_eq!(statuses(&bench), ["1 RECEIVED 0"]);
    assert!(sent(&bench).is_empty());
    assert!(bench.observer.snapshot().inbox.refused >= 1);
    // The next owner repeats the call, and its answer counts once.
    run_until_idle(&mut next).await;
    assert_eq!(service.seen(), ["1 1", "1 1"]);
    assert_eq!((statuses(&bench), sent(&bench).len()), (vec!["1 PROCESSED 1".to_owned()], 1));
}

#[tokio::test]
async fn a_worker_that_is_lost_after_a_call_repeats_it_with_the_same_attempt() {
    let bench = Bench::new().await;
    receive(&bench, &[("1", "x")]).await;
    let service = Service::new(&[]);
    let (mut lost, _) = worker(&bench, "w1", &service, settings()).await;
    while service.seen().is_empty() {
        lost.request_read();
        lost.run_once().await.unwrap();
        tokio::task::yield_now().await;
    }
    // The call has returned, and its answer was never committed.
    drop(lost);
    bench.expire_leases();
    let (mut next, _) = worker(&bench, "w2", &service, settings()).await;
    run_until_idle(&mut next).await;
    assert_eq!(service.seen(), ["1 1", "1 1"]);
    assert_eq!((statuses(&bench), sent(&bench).len()), (vec!["1 PROCESSED 1".to_owned()], 1));
}

#[tokio::test]
async fn no_more_calls_run_at_once_than_configured_and_none_while_paused() {
    let bench = Bench::new().await;
    let ids: Vec<String> = (0..9).map(|n| format!("m{n}")).collect();
    let messages: Vec<_> = ids.iter().map(|id| (id.as_str(), id.as_str())).collect();
    receive(&bench, &messages).await;
    let service = Service::held();
    let settings = DestinationSettings { concurrency: 3, ..settings() };
    let (mut worker, limits) = worker(&bench, "w", &service, settings).await;
    limits.set_paused(true);
    run_until_idle(&mut worker).await;
    assert!(service.seen().is_empty(), "paused");
    limits.set_paused(false);
    while service.seen().len() < 3 {
        worker.request_read();
        worker.run_once().await.unwrap();
        tokio::task::yield_now().await;
    }
    service.release();
    run_until_idle(&mut worker).await;
    assert_eq!((service.seen().len(), service.most()), (9, 3));
}

#[tokio::test]
async fn a_call_without_an_answer_ends_at_its_time_limit_and_is_no_dead_letter() {
    let bench = Bench::new().await;
    receive(&bench, &[("1", "x")]).await;
    let service = Service::held();
    let settings = DestinationSettings { timeout: Duration::from_millis(10), ..settings() };
    let (mut worker, _) = worker(&bench, "w", &service, settings).await;
    run_until_idle(&mut worker).await;
    // One key alone is no evidence against the message.
    assert_eq!(statuses(&bench), ["1 RETRY 0 TIMEOUT"]);
}

struct Panics;

#[async_trait]
impl RemoteHandler for Panics {
    async fn call(&self, _: &InboxRow) -> RemoteReply {
        panic!("a bug of the caller")
    }
}

#[tokio::test]
async fn a_caller_that_panics_keeps_no_row_in_flight() {
    let bench = Bench::new().await;
    receive(&bench, &[("1", "x")]).await;
    let keeper = bench.keeper(Scope::Inbox, "w");
    keeper.beat().await.unwrap();
    let actions = HashMap::from([("T".to_owned(), EventAction::Remote)]);
    let counters = bench.observer.destination("@service");
    let remote = RemoteWork::new(Arc::new(Panics), settings(), counters);
    let (store, inbox) = (bench.store.clone(), Arc::clone(&bench.observer.inbox));
    let mut worker =
        InboxWorker::new(store, keeper, actions, settings().retry, inbox).remote(remote);
    run_until_idle(&mut worker).await;
    assert_eq!(statuses(&bench), ["1 RETRY 0 HANDLER_PANIC"]);
}

#[tokio::test]
async fn a_final_answer_to_a_command_is_a_reply_and_a_missing_one_a_dead_letter() {
    let bench = Bench::new().await;
    let command = |id: &str| {
        let row = relais_core::inbox::NewInbox::new("@shop::relais", id, "T", "{}");
        row.key(id).header("correlation-id", id).header("relais-handler", "shop")
    };
    let ids = ["done", "fail", "retry", "park", "reject", "cut", "invalid"];
    bench.store.accept(ids.map(command).to_vec(), Vec::new()).await.unwrap();
    let cut = || RemoteReply::Failed(Delivery::retry("CONNECTION_CUT", "no answer"));
    let busy = || RemoteReply::Refused(Outcome::retry("BUSY", "later"));
    let service = Service::new(&[
        ("done", vec![RemoteReply::Done { messages: Vec::new(), data: Some("[1]".into()) }]),
        ("fail", vec![RemoteReply::Refused(Outcome::fail("NO", "never"))]),
        ("retry", vec![busy(), busy()]),
        ("park", vec![RemoteReply::Refused(Outcome::park("ASK", "an operator decides"))]),
        ("reject", vec![RemoteReply::Failed(Delivery::reject("HTTP_422", "refused"))]),
        ("cut", vec![cut(), cut(), cut()]),
        ("invalid", vec![RemoteReply::invalid("no"), RemoteReply::invalid("no")]),
        ("later", vec![RemoteReply::Done { messages: Vec::new(), data: Some("[2]".into()) }]),
    ]);
    let settings = DestinationSettings { retry: settings().retry.attempts_max(2), ..settings() };
    let (mut worker, _) = worker_of(&bench, Scope::of_inbox("@shop"), &service, settings).await;
    run_until_idle(&mut worker).await;
    // The service works after the call was cut: only then the next ones use attempts.
    bench.store.accept(vec![command("later")], Vec::new()).await.unwrap();
    for _ in 0..2 {
        bench.make_due();
        run_until_idle(&mut worker).await;
    }
    assert_eq!(
        bench.texts(
            "SELECT correlation_id || ' ' || event_type || ' ' || payload FROM relais_outbox
             WHERE destination = 'inbox' AND causation_id = correlation_id ORDER BY 1"
        ),
        [
            "done relais.HandlerDone [1]",
            r#"fail relais.HandlerFailed {"code":"NO","message":"never"}"#,
            "later relais.HandlerDone [2]",
            r#"reject relais.HandlerFailed {"code":"HTTP_422","message":"refused"}"#,
            r#"retry relais.HandlerFailed {"code":"BUSY","message":"later"}"#,
        ]
    );
    // The service may have acted: only an operator knows.
    let letters = bench.texts("SELECT message_id FROM relais_dead_letter ORDER BY 1");
    assert_eq!(letters, ["cut", "invalid", "park"]);
}
