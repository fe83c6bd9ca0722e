//! Actions of operators on processes.

use relais_core::process::{ProcessRef, ProcessStatus};
use uuid::Uuid;

use super::process_support::{Hand, order, placed};
use crate::process::{ActError, Action};

#[tokio::test]
async fn an_action_needs_an_actor_and_a_reason() {
    let hand = Hand::order().await;
    let id = hand.process_id();
    for (actor, reason) in [("", "because"), ("ann", " ")] {
        let refused = hand.operator.act(id, Action::Pause, actor, reason).await;
        assert!(matches!(refused, Err(ActError::Refused(_))), "{refused:?}");
        let refused = hand.operator.create("order", None, "{}", actor, reason).await;
        assert!(matches!(refused, Err(ActError::Refused(_))), "{refused:?}");
    }
    assert_eq!(hand.log().len(), 2);
}

#[tokio::test]
async fn every_action_is_in_the_log_with_its_actor() {
    let mut hand = Hand::order().await;
    hand.act(Action::RetryStep).await;
    assert_eq!(hand.commands(), ["Charge", "Charge"]);
    hand.act(Action::SkipStep).await;
    assert_eq!(hand.state(), "RUNNING stock");
    hand.act(Action::Compensate).await;
    assert_eq!(hand.state(), "COMPENSATING payment");
    hand.act(Action::Cancel).await;
    assert_eq!(hand.state(), "FAILED -");
    assert!(hand.dead_letters().is_empty(), "the operator knows already");
    hand.answer("Refund", "Refunded").await;
    let signed = hand.bench.texts(
        "SELECT event_type || ' ' || json_extract(event, '$.actor') || ' ' || json_extract(event, '$.because')
         FROM relais_process_log WHERE json_extract(event, '$.actor') IS NOT NULL ORDER BY seq",
    );
    let all = [
        "StepStarted ann because",
        "StepCompleted ann because",
        "CompensationStarted ann because",
        "ProcessFailed ann because",
    ];
    assert_eq!(signed, all);
}

#[tokio::test]
async fn an_action_that_is_not_possible_names_those_that_are() {
    let hand = Hand::order().await;
    let refused = hand.operator.act(hand.process_id(), Action::Resume, "ann", "x").await;
    let Err(ActError::Refused(problem)) = refused else { panic!("{refused:?}") };
    assert_eq!(problem.code, "PROCESS_ACTION");
    assert!(problem.message.contains("pause, retry, skip"), "{}", problem.message);
    let unknown = hand.operator.act(Uuid::nil(), Action::Pause, "ann", "x").await;
    assert!(matches!(unknown, Err(ActError::NotFound(_))), "{unknown:?}");
}

#[tokio::test]
async fn a_process_can_be_created_first_and_started_later() {
    let mut hand = Hand::new(vec![order().build().unwrap()]).await;
    let data = r#"{"orderId":"o-7"}"#;
    let made = hand.operator.create("order", Some("o-7"), data, "ann", "by hand").await.unwrap();
    assert_eq!((made.status, hand.commands().len()), (ProcessStatus::New, 0));
    let twice = hand.operator.create("order", Some("o-7"), data, "ann", "by hand").await;
    let Err(ActError::Refused(problem)) = twice else { panic!("{twice:?}") };
    assert_eq!(problem.code, "BUSINESS_KEY_TAKEN");
    hand.act(Action::Resume).await;
    hand.answer("Charge", "Charged").await;
    assert_eq!(hand.state(), "RUNNING stock");
    let found = ProcessRef::Key { process_type: "order".into(), business_key: "o-7".into() };
    assert_eq!(hand.operator.find(found).await.unwrap().unwrap().process_id, made.process_id);
    let started = hand.operator.start("order", Some("o-8"), data, "ann", "by hand").await.unwrap();
    assert_eq!((started.status, started.version), (ProcessStatus::Running, 2));
    let log = hand.operator.log(started.process_id, None, 1).await.unwrap();
    assert_eq!(log[0].seq, 2);
    let first = hand.operator.log(started.process_id, Some(2), 10).await.unwrap();
    assert_eq!(first[0].entry.actor.as_deref(), Some("ann"));
    let unknown = hand.operator.create("no such", None, "{}", "ann", "x").await;
    assert!(matches!(unknown, Err(ActError::Refused(_))), "{unknown:?}");
}

#[tokio::test]
async fn retrying_the_dead_letter_of_a_process_retries_its_step() {
    let mut hand = Hand::order().await;
    hand.answer("Charge", "ChargeFailed").await;
    assert_eq!(hand.dead_letters(), ["FAILED STEP_FAILED"]);
    let letter = hand.bench.texts("SELECT id FROM relais_dead_letter").remove(0).parse().unwrap();
    let process = hand.operator.retry(letter, "ann", "card renewed").await.unwrap();
    assert_eq!(process.status, ProcessStatus::Running);
    assert!(hand.dead_letters().is_empty());
    let again = hand.operator.retry(letter, "bob", "again").await;
    assert!(matches!(again, Err(ActError::Refused(_))), "{again:?}");
    let unknown = hand.operator.retry(Uuid::nil(), "ann", "x").await;
    assert!(matches!(unknown, Err(ActError::NotFound(_))), "{unknown:?}");
    hand.answer("Charge", "Charged").await;
    assert_eq!(hand.state(), "RUNNING stock");
}

#[tokio::test]
async fn a_dead_letter_of_a_message_is_not_retried_as_a_process() {
    let mut hand = Hand::order().await;
    let mut again = placed("o-1");
    again.message_id = "again".into();
    hand.receive(vec![again]).await;
    let letter = hand.bench.texts("SELECT id FROM relais_dead_letter").remove(0).parse().unwrap();
    let refused = hand.operator.retry(letter, "ann", "x").await;
    assert!(matches!(refused, Err(ActError::Refused(_))), "{refused:?}");
}

#[tokio::test]
async fn two_operators_at_once_act_one_after_the_other() {
    let hand = Hand::order().await;
    let id = hand.process_id();
    let pause = |actor: &'static str| hand.operator.act(id, Action::Pause, actor, "x");
    let (ann, bob) = tokio::join!(pause("ann"), pause("bob"));
    assert_eq!(usize::from(ann.is_ok()) + usize::from(bob.is_ok()), 1, "{ann:?} {bob:?}");
    assert_eq!(hand.log().len(), 3);
}
