//! Rows sent at once: values, results by row, and the classification of failed calls.

use relais_connect::salesforce::SalesforceCollections;
use relais_core::{
    delivery::Delivery,
    outbox::OutboxRow,
    publisher::{Batching, Publisher},
};
use salesforce_sim::{
    Faults, RunningSimulator,
    faults::{HttpAction, HttpFault, Pattern, RowFault, UnknownField},
};
use serde_json::{Value, json};

use crate::common::{
    calls, code, columns, failing, http_fault, members, once, record, row, settings, simulator,
};

fn collections(sim: &RunningSimulator) -> SalesforceCollections {
    SalesforceCollections::new(settings(sim), None).unwrap()
}

fn codes(answers: &[Delivery]) -> Vec<&str> {
    answers.iter().map(code).collect()
}

#[tokio::test]
async fn two_hundred_rows_go_in_one_call() {
    let sim = simulator(Faults::default()).await;
    let collections = collections(&sim);
    assert_eq!(collections.batching(), Batching::Distinct { max: 200 });
    assert_eq!(collections.publish(&members(200)).await, vec![Delivery::Accepted; 200]);
    assert_eq!(calls(&sim, "composite/sobjects"), 1);
    assert_eq!((sim.ledger().len(), sim.ledger().repeated()), (200, 0));
    assert_eq!(collections.publish(&[]).await, []);
}

#[tokio::test]
async fn values_keep_their_type_and_null_clears() {
    let sim = simulator(Faults::default()).await;
    let mut settings = settings(&sim);
    settings.columns = columns(&[
        ("LastName", "/who/last"),
        ("FirstName", "first"),
        ("Email", "email"),
        ("HasOptedOutOfEmail", "out"),
        ("Birthdate", "born"),
        ("Version__c", "version"),
    ]);
    let collections = SalesforceCollections::new(settings, None).unwrap();
    let payload = json!({
        "who": {"last": "#N/A"}, "first": "say \"hi\"\r\n😀", "email": "a@example.org",
        "out": true, "born": "1999-12-31", "version": 1.5,
    });
    assert_eq!(collections.publish(&[row("M-1", payload)]).await, [Delivery::Accepted]);
    let stored = record(&sim, "Contact", "M-1");
    // In JSON it is an ordinary text.
    assert_eq!(stored["LastName"], "#N/A");
    assert_eq!(stored["FirstName"].as_str().map(|text| text.contains("\"hi\"")), Some(true));
    assert_eq!(
        (&stored["HasOptedOutOfEmail"], &stored["Birthdate"]),
        (&json!(true), &json!("1999-12-31"))
    );
    let update = json!({"who": {"last": "Doe"}, "first": null, "version": 2});
    assert_eq!(collections.publish(&[row("M-1", update)]).await, [Delivery::Accepted]);
    let stored = record(&sim, "Contact", "M-1");
    assert_eq!((&stored["FirstName"], &stored["Email"]), (&Value::Null, &json!("a@example.org")));
}

#[tokio::test]
async fn records_refer_to_others_by_external_id() {
    let sim = simulator(Faults::default()).await;
    let mut accounts = settings(&sim);
    accounts.object = "Account".into();
    accounts.columns = columns(&[("Name", "name")]);
    let accounts = SalesforceCollections::new(accounts, None).unwrap();
    accounts.publish(&[row("A-1", json!({"name": "Acme"}))]).await;
    let mut contacts = settings(&sim);
    contacts.columns = columns(&[("LastName", "last"), ("Account.ExternalId__c", "account")]);
    let contacts = SalesforceCollections::new(contacts, None).unwrap();
    let rows = [
        row("M-1", json!({"last": "Doe", "account": "A-1"})),
        row("M-2", json!({"last": "Doe", "account": "A-2"})),
    ];
    let answers = contacts.publish(&rows).await;
    assert_eq!(codes(&answers), ["accepted", "INVALID_FIELD"]);
    assert!(matches!(answers[1], Delivery::Retry { after: Some(_), .. }), "{answers:?}");
    let parent = record(&sim, "Account", "A-1")["Id"].clone();
    assert_eq!(record(&sim, "Contact", "M-1")["AccountId"], parent);
    let orphan = row("M-1", json!({"last": "Doe", "account": null}));
    assert_eq!(contacts.publish(&[orphan]).await, [Delivery::Accepted]);
    assert_eq!(record(&sim, "Contact", "M-1")["AccountId"], Value::Null);
}

#[tokio::test]
async fn each_row_has_its_own_result() {
    let fault = |key: &str, code: &str| RowFault {
        key: Pattern::new(key).unwrap(),
        code: code.to_owned(),
        message: "no".to_owned(),
        ..RowFault::default()
    };
    let faults = Faults {
        rows: vec![fault("^M-1$", "UNABLE_TO_LOCK_ROW"), fault("^M-2$", "STORAGE_LIMIT_EXCEEDED")],
        ..Faults::default()
    };
    let sim = simulator(faults).await;
    let mut rows = members(4);
    rows[3].payload = json!({"first": "nameless"}).to_string();
    rows.push(row("m-0", json!({"last": "same record"})));
    rows.push(row(" M-9", json!({"last": "blank"})));
    let answers = collections(&sim).publish(&rows).await;
    let expected = [
        "accepted",
        "UNABLE_TO_LOCK_ROW",
        "STORAGE_LIMIT_EXCEEDED",
        "REQUIRED_FIELD_MISSING",
        "held",
        "EXTERNAL_ID_INVALID",
    ];
    assert_eq!(codes(&answers), expected);
    assert!(matches!(answers[1], Delivery::Retry { .. }));
    assert!(matches!(answers[2], Delivery::Outage { .. }));
    assert!(matches!(answers[3], Delivery::Reject { .. }));
}

#[tokio::test]
async fn one_row_that_fails_the_call_is_isolated() {
    // Like Salesforce for a value that it cannot parse.
    let spoiled = HttpFault {
        status: Some(400),
        code: Some("JSON_PARSER_ERROR".into()),
        message: Some("Cannot deserialize instance of date".into()),
        times: Some(2),
        ..http_fault("PATCH", "composite/sobjects", HttpAction::Error)
    };
    let sim = simulator(failing(vec![spoiled])).await;
    let answers = collections(&sim).publish(&members(2)).await;
    assert_eq!(codes(&answers), ["JSON_PARSER_ERROR", "accepted"]);
    assert!(matches!(answers[0], Delivery::Reject { .. }));
}

#[tokio::test]
async fn an_unknown_column_stops_the_destination_and_fails_no_row() {
    for unknown_field in [UnknownField::Call, UnknownField::Record] {
        let mut faults = Faults::default();
        faults.collections.unknown_field = unknown_field;
        let sim = simulator(faults).await;
        let mut settings = settings(&sim);
        settings.columns = columns(&[("LastName", "last"), ("Unknown__c", "first")]);
        let collections = SalesforceCollections::new(settings, None).unwrap();
        for answer in collections.publish(&members(3)).await {
            assert!(
                matches!(&answer, Delivery::Misconfigured { after: Some(_), problem }
                if problem.message.contains("Unknown__c")),
                "{unknown_field:?}: {answer:?}"
            );
        }
        assert_eq!(sim.ledger().writes(), 0);
    }
}

#[tokio::test]
async fn failed_calls_are_classified() {
    for (action, expected) in [
        (HttpAction::TotalLimit, "outage"),
        (HttpAction::ConcurrentLimit, "outage"),
        (HttpAction::Throttled, "busy"),
        (HttpAction::Unavailable, "busy"),
        (HttpAction::Html, "busy"),
        (HttpAction::ServerError, "retry"),
        (HttpAction::DropBefore, "retry"),
        (HttpAction::DropAfter, "retry"),
    ] {
        let sim = simulator(failing(vec![once(http_fault("PATCH", "composite", action))])).await;
        let collections = collections(&sim);
        let rows = members(3);
        for answer in collections.publish(&rows).await {
            let found = match answer {
                Delivery::Outage { .. } => "outage",
                Delivery::Busy { .. } => "busy",
                Delivery::Retry { .. } => "retry",
                other => panic!("{action:?}: {other:?}"),
            };
            assert_eq!(found, expected, "{action:?}");
        }
        assert_eq!(collections.publish(&rows).await, vec![Delivery::Accepted; 3]);
        assert_eq!(sim.ledger().len(), 3);
        assert!(sim.ledger().entries().all(|entry| entry.created == 1));
    }
}

#[tokio::test]
async fn an_expired_session_is_renewed() {
    let sim = simulator(Faults::default()).await;
    let collections = collections(&sim);
    for n in 0..3 {
        sim.expire_sessions();
        let rows: Vec<OutboxRow> = members(6).split_off(n * 2).into_iter().take(2).collect();
        assert_eq!(collections.publish(&rows).await, vec![Delivery::Accepted; 2]);
    }
    assert_eq!((sim.ledger().len(), sim.ledger().repeated()), (6, 0));
}

#[tokio::test]
async fn rows_that_overloaded_a_trigger_are_sent_in_smaller_calls() {
    let sim = simulator(Faults::default()).await;
    let mut rows = members(12);
    for row in &mut rows[..6] {
        row.attempts = 2;
        row.error_code = Some("CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY".into());
        row.error_message = Some("System.LimitException: Too many SOQL queries: 101".into());
    }
    assert_eq!(collections(&sim).publish(&rows).await, vec![Delivery::Accepted; 12]);
    // The six new ones, then three and three.
    assert_eq!(calls(&sim, "composite/sobjects"), 3);
}
