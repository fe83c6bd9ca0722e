//! Dead letters of processes: the scenarios of the specification's dead-letter repository, and what
//! closes one.

use relais_core::{
    dead_letter::{DeadLetter, Origin, Resolution},
    delivery::Problem,
    inspect::{AuditFilter, InspectExt},
    message::Headers,
    process::{
        Action, ActionRecord, Change, ChangeOutcome, Closure, DeadLetterChange, Process,
        ProcessStatus,
    },
    store::StoreError,
    text::ERROR_MESSAGE_MAX,
};
use serde_json::json;
use uuid::Uuid;

use super::{
    Start, only_dead_letter, open_dead_letters,
    process_build::{
        TYPE, after, applied, begun, failed, failed_process, found, history, opened, running,
        settle_one, step_started,
    },
    resolution_of, resolve,
    worker::{Worker, all},
};
use crate::{build::wide_text, fixture::Fixture};

pub const START: Start = Start::Migrated;

fn closed() -> DeadLetterChange {
    closed_by(Closure::Action(Action::RetryStep))
}

fn closed_by(closure: Closure) -> DeadLetterChange {
    let (actor, reason) = ("ann".to_owned(), "the bank is back 😀".to_owned());
    DeadLetterChange::Close { closure, actor, reason }
}

/// Continues the process, and changes its dead letter as asked.
async fn continue_process(
    f: &dyn Fixture,
    process: &Process,
    dead_letter: DeadLetterChange,
) -> Process {
    let change = after(process, ProcessStatus::Running, vec![step_started("again")]);
    applied(f, Change { dead_letter, ..change }).await
}

async fn find(f: &dyn Fixture, id: Uuid) -> DeadLetter {
    f.store().find_dead_letter(id).await.expect("find").expect("the dead letter")
}

pub async fn insert_keeps_every_field_of_the_process(f: &dyn Fixture) {
    let worker = Worker::inbox(f, "worker-7").await;
    let process = running(f, Some("order-7")).await;
    let mut change = after(&process, ProcessStatus::Failed, vec![failed("declined")]);
    change.process.data = r#"{ "total" : 5, "name": "É 😀 ' \" \\" }"#.to_owned();
    change.dead_letter = opened("TIMED_OUT");
    let before = f.now().await;
    assert_eq!(settle_one(f, &worker, "m-1", change.clone()).await, all(1));
    let overview = f.store().overview().await.expect("overview");
    assert_eq!(overview.processes_need_operator, 1);
    let dead = only_dead_letter(f).await;
    assert_ne!(dead.id, Uuid::nil());
    assert_eq!((dead.origin, dead.origin_id), (Origin::Process, None));
    assert_eq!(dead.message_id, process.process_id.to_string());
    assert_eq!((&dead.source_system, &dead.destination), (&None, &None));
    assert_eq!((dead.event_type.as_deref(), dead.msg_key.as_str()), (Some(TYPE), "order-7"));
    assert_eq!(dead.payload.as_deref(), Some(change.process.data.as_str()));
    assert_eq!((&dead.headers, dead.failed_status.as_str()), (&Headers::default(), "TIMED_OUT"));
    assert_eq!(dead.error_class.as_deref(), Some("PAYMENT_DECLINED"));
    assert_eq!(dead.error_message.as_deref(), Some("the bank said no 😀"));
    assert_eq!((dead.attempts, dead.parked_by.as_str()), (3, "worker-7"));
    assert!(dead.parked_at >= before && dead.parked_at <= f.now().await);
    assert_eq!((&dead.resolution, &dead.original_payload, &dead.edited_by), (&None, &None, &None));
    assert!(f.store().parked_keys(10).await.expect("parked keys").is_empty(), "no row waits");
    assert_eq!(find(f, dead.id).await, dead);
}

pub async fn insert_takes_long_values(f: &dyn Fixture) {
    let long = wide_text(ERROR_MESSAGE_MAX + 500, 3);
    let process = running(f, Some(&wide_text(1_000, 4))).await;
    let mut change = after(&process, ProcessStatus::Failed, vec![failed("declined")]);
    change.process.data = json!({ "long": wide_text(20_000, 5) }).to_string();
    let problem = Problem::new(&wide_text(300, 6), &long);
    change.dead_letter = DeadLetterChange::Open { failed_status: "FAILED", problem, attempts: 1 };
    applied(f, change.clone()).await;
    let dead = only_dead_letter(f).await;
    let cut: String = long.chars().take(ERROR_MESSAGE_MAX).collect();
    assert_eq!(dead.error_message, Some(cut), "cut, not refused");
    assert_eq!(dead.payload, Some(change.process.data), "whole");
    assert_eq!(Some(dead.msg_key), process.business_key);
}

pub async fn insert_without_a_business_key_or_a_text_takes_what_there_is(f: &dyn Fixture) {
    let process = running(f, None).await;
    let change = after(&process, ProcessStatus::Failed, vec![failed("")]);
    let problem = Problem::new("", "");
    let dead_letter = DeadLetterChange::Open { failed_status: "FAILED", problem, attempts: 0 };
    applied(f, Change { dead_letter, ..change }).await;
    let dead = only_dead_letter(f).await;
    assert_eq!(dead.msg_key, process.process_id.to_string());
    assert_eq!((dead.error_message.as_deref(), dead.attempts), (Some(""), 0));
}

pub async fn a_process_has_at_most_one_open_dead_letter(f: &dyn Fixture) {
    let process = failed_process(f, Some("order-7")).await;
    let first = only_dead_letter(f).await;
    let mut again = after(&process, ProcessStatus::Compensating, vec![failed("stuck")]);
    again.process.data = r#"{"undone": 1}"#.to_owned();
    let problem = Problem::new("REFUND_REFUSED", "try by hand");
    let failed_status = "COMPENSATION_FAILED";
    again.dead_letter = DeadLetterChange::Open { failed_status, problem, attempts: 9 };
    applied(f, again).await;
    let now = only_dead_letter(f).await;
    assert_eq!(now.id, first.id, "its id does not change");
    assert_eq!(
        (now.failed_status.as_str(), now.attempts),
        (failed_status, 9),
        "and see the latest"
    );
    assert_eq!(now.error_class.as_deref(), Some("REFUND_REFUSED"));
    assert_eq!(now.payload.as_deref(), Some(r#"{"undone": 1}"#));
    failed_process(f, Some("order-8")).await;
    assert_eq!(open_dead_letters(f).await.len(), 2, "each process has its own");
}

pub async fn going_on_closes_the_open_dead_letter(f: &dyn Fixture) {
    let process = failed_process(f, None).await;
    let dead = only_dead_letter(f).await;
    let process = continue_process(f, &process, DeadLetterChange::Keep).await;
    assert_eq!(only_dead_letter(f).await, dead, "kept as it was");
    let before = f.now().await;
    let process = continue_process(f, &process, closed()).await;
    assert!(open_dead_letters(f).await.is_empty());
    let closed_one = find(f, dead.id).await;
    assert_eq!(closed_one.resolution.as_deref(), Some("retried"));
    assert_eq!(closed_one.resolved_by.as_deref(), Some("ann"));
    assert_eq!(closed_one.reason.as_deref(), Some("the bank is back 😀"));
    assert!(closed_one.resolved_at >= Some(before));
    let filter = AuditFilter { target: Some(dead.id.to_string()), limit: 10, ..Default::default() };
    let audit = f.store().list_audit(filter).await.expect("audit");
    assert_eq!(audit.len(), 1);
    let line = (audit[0].actor.as_str(), audit[0].action.as_str(), audit[0].reason.as_str());
    assert_eq!(line, ("ann", "dead-letter.retried", "the bank is back 😀"));

    let process = continue_process(f, &process, closed()).await;
    assert_eq!(f.number("SELECT count(*) FROM relais_audit").await, 1, "nothing was open");
    let change = after(&process, ProcessStatus::Failed, vec![failed("again")]);
    applied(f, Change { dead_letter: opened("FAILED"), ..change }).await;
    assert_ne!(only_dead_letter(f).await.id, dead.id, "a new failure is a new dead letter");
    assert_eq!(find(f, dead.id).await, closed_one);
}

pub async fn a_dead_letter_of_a_process_names_what_closed_it(f: &dyn Fixture) {
    let actions = Action::ALL.into_iter().filter(|action| *action != Action::Pause);
    for closure in actions.map(Closure::Action).chain([Closure::LateReply]) {
        let process = failed_process(f, None).await;
        let dead = only_dead_letter(f).await;
        continue_process(f, &process, closed_by(closure)).await;
        let wanted = closure.as_str();
        assert_eq!(find(f, dead.id).await.resolution.as_deref(), Some(wanted));
        let target = Some(dead.id.to_string());
        let audit = audit(f, target).await;
        assert_eq!(audit, [("ann".to_owned(), format!("dead-letter.{wanted}"))]);
    }
}

pub async fn an_action_on_a_process_is_in_the_audit(f: &dyn Fixture) {
    let process = running(f, None).await;
    let mut change = after(&process, ProcessStatus::Paused, vec![step_started("again")]);
    change.audit = Some(ActionRecord::new("paused", "ben", "wrong address 😀"));
    let process = applied(f, change).await;
    let target = process.process_id.to_string();
    let wanted = ("ben".to_owned(), "process.paused".to_owned());
    assert_eq!(audit(f, Some(target.clone())).await, std::slice::from_ref(&wanted));
    let mut stale = after(&process, ProcessStatus::Running, vec![step_started("again")]);
    (stale.from, stale.audit) = (1, Some(ActionRecord::new("resumed", "ben", "mended")));
    let applied = f.store().change_process(stale).await.expect("change");
    assert_eq!((applied, audit(f, Some(target)).await), (ChangeOutcome::Stale, vec![wanted]));
}

async fn audit(f: &dyn Fixture, target: Option<String>) -> Vec<(String, String)> {
    let filter = AuditFilter { target, limit: 10, ..Default::default() };
    let lines = f.store().list_audit(filter).await.expect("audit");
    lines.into_iter().map(|line| (line.actor, line.action)).collect()
}

pub async fn a_process_is_not_retried_by_its_dead_letter_alone(f: &dyn Fixture) {
    let process = failed_process(f, None).await;
    let dead = only_dead_letter(f).await;
    let refused = f.store().decide(resolution_of(dead.id, Resolution::Retried)).await;
    let Err(StoreError::Invalid(why)) = refused else { panic!("accepted: {refused:?}") };
    assert!(why.contains("process") && why.contains(&process.process_id.to_string()), "{why}");
    assert_eq!(only_dead_letter(f).await, dead, "still open");
    assert_eq!(found(f, process.process_id).await, Some(process));
    assert_eq!(f.number("SELECT count(*) FROM relais_audit").await, 0);
}

pub async fn skipping_the_dead_letter_of_a_process_only_closes_it(f: &dyn Fixture) {
    let process = failed_process(f, None).await;
    let dead = only_dead_letter(f).await;
    assert!(resolve(f, dead.id, Resolution::Discarded).await);
    assert!(!resolve(f, dead.id, Resolution::Discarded).await);
    let closed = find(f, dead.id).await;
    assert_eq!(closed.resolution.as_deref(), Some("discarded"));
    assert_eq!(found(f, process.process_id).await, Some(process.clone()));
    assert_eq!(history(f, process.process_id).await.len(), 3);
    assert_eq!(f.number("SELECT count(*) FROM relais_audit").await, 1);
}

pub async fn a_stale_change_opens_and_closes_nothing(f: &dyn Fixture) {
    let process = failed_process(f, None).await;
    let dead = only_dead_letter(f).await;
    let other = running(f, None).await;
    continue_process(f, &process, DeadLetterChange::Keep).await;
    continue_process(f, &other, DeadLetterChange::Keep).await;
    for (process, dead_letter) in [(process, closed()), (other, opened("FAILED"))] {
        let late = after(&process, ProcessStatus::Failed, vec![failed("late")]);
        let applied = f.store().change_process(Change { dead_letter, ..late }).await;
        assert_eq!(applied.expect("change"), ChangeOutcome::Stale);
    }
    assert_eq!(only_dead_letter(f).await, dead);
}

pub async fn a_process_that_never_went_well_may_begin_with_a_dead_letter(f: &dyn Fixture) {
    let mut change = begun(TYPE, Some("order-7"));
    change.process.status = ProcessStatus::Paused;
    change.dead_letter = opened("PAUSED");
    applied(f, change).await;
    assert_eq!(only_dead_letter(f).await.failed_status, "PAUSED");
}
