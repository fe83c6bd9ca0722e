//! Requests, refused payloads, and the classification of responses.

use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::testing::row;

const BASE: &str = "/services/data/v66.0/";

fn made(payload: &str) -> Result<Value, String> {
    graph(&row(payload), 0, BASE, "ExternalId__c").map(|graph| serde_json::to_value(graph).unwrap())
}

#[test]
fn a_message_becomes_a_graph() {
    let payload = r#"[
        {"attributes": {"type": "Account", "referenceId": "acc"}, "ExternalId__c": "A 1", "N": 1.50},
        {"attributes": {"type": "Contact", "externalId": "Key__c"}, "Key__c": 7,
         "AccountId": "@{acc.id}"}
    ]"#;
    let expected = json!({
        "graphId": row("").message_id.simple().to_string(),
        "compositeRequest": [
            {
                "method": "PATCH",
                "url": "/services/data/v66.0/sobjects/Account/ExternalId__c/A%201",
                "referenceId": "acc",
                "body": {"N": 1.5},
            },
            {
                "method": "PATCH",
                "url": "/services/data/v66.0/sobjects/Contact/Key__c/7",
                "referenceId": "n1",
                "body": {"AccountId": "@{acc.id}"},
            },
        ],
    });
    assert_eq!(made(payload).unwrap(), expected);
    assert_eq!(made(&format!("{{\"records\": {payload}}}")).unwrap(), expected);
}

#[test]
fn a_message_that_is_not_a_graph_is_refused_with_the_reason() {
    let record = r#"{"attributes": {"type": "A", "referenceId": "r"}, "ExternalId__c": "1"}"#;
    for (payload, says) in [
        ("{}".to_owned(), "not a list of records"),
        ("[]".to_owned(), "1 to 500"),
        ("[1]".to_owned(), "record 0: is not a JSON object"),
        (r#"[{"ExternalId__c": "1"}]"#.to_owned(), "attributes"),
        (r#"[{"attributes": {}}]"#.to_owned(), "cannot read"),
        (
            r#"[{"attributes": {"type": "A/B"}, "ExternalId__c": "1"}]"#.to_owned(),
            "not an API name",
        ),
        (r#"[{"attributes": {"type": "A"}}]"#.to_owned(), "has no ExternalId__c"),
        (r#"[{"attributes": {"type": "A"}, "ExternalId__c": null}]"#.to_owned(), "has no"),
        (r#"[{"attributes": {"type": "A"}, "ExternalId__c": " x"}]"#.to_owned(), "blanks"),
        (r#"[{"attributes": {"type": "A"}, "ExternalId__c": "a/b"}]"#.to_owned(), "`/`"),
        (format!("[{record}, {record}]"), "same `referenceId`"),
        (format!("[{}]", record.replace("\"r\"", "\"a-b\"")), "letters, digits"),
    ] {
        let why = made(&payload).unwrap_err();
        assert!(why.contains(says), "{payload}: {why}");
    }
    let many: Vec<String> = (0..16)
        .map(|n| format!(r#"{{"attributes": {{"type": "A{n}"}}, "ExternalId__c": "1"}}"#))
        .collect();
    assert!(made(&format!("[{}]", many.join(","))).unwrap_err().contains("15 objects"));
}

fn graphs(messages: &[Vec<String>]) -> Vec<OutboxRow> {
    let record = |id: &String| json!({"attributes": {"type": "A"}, "ExternalId__c": id});
    let message = |(at, ids): (usize, &Vec<String>)| OutboxRow {
        message_id: Uuid::from_u128(at as u128),
        ..row(&json!(ids.iter().map(record).collect::<Vec<_>>()).to_string())
    };
    messages.iter().enumerate().map(message).collect()
}

fn sizes(messages: &[Vec<String>]) -> Vec<usize> {
    let rows = graphs(messages);
    let graphs: Vec<_> =
        rows.iter().map(|row| graph(row, 0, BASE, "ExternalId__c").unwrap()).collect();
    split(&graphs).into_iter().map(|part| part.len()).collect()
}

#[test]
fn calls_keep_the_limits_and_have_no_record_twice() {
    let ids = |from: usize, count: usize| (from..from + count).map(|n| n.to_string()).collect();
    assert_eq!(sizes(&[]), [0; 0]);
    assert_eq!(sizes(&(0..76).map(|n| ids(n, 1)).collect::<Vec<_>>()), [75, 1]);
    assert_eq!(sizes(&[ids(0, 300), ids(300, 200), ids(500, 1)]), [2, 1]);
    assert_eq!(sizes(&[ids(0, 2), ids(2, 1), ids(1, 1), ids(0, 1)]), [2, 2]);
}

fn judged(answer: Value) -> Delivery {
    let judge = Judge { external_id: "ExternalId__c".into(), superseded: None };
    serde_json::from_value::<GraphResult>(answer).unwrap().delivery(&judge)
}

fn failed(nodes: Value) -> Delivery {
    judged(json!({
        "graphId": "g", "isSuccessful": false, "graphResponse": {"compositeResponse": nodes},
    }))
}

fn node(status: u16, code: &str) -> Value {
    json!({"httpStatusCode": status, "referenceId": "n", "body": [{"errorCode": code, "message": ""}]})
}

#[test]
fn the_record_to_blame_decides() {
    let accepted = json!({
        "graphId": "g", "isSuccessful": true,
        "graphResponse": {"compositeResponse": [
            {"httpStatusCode": 201, "referenceId": "n0", "body": {"id": "001", "success": true}},
            {"httpStatusCode": 204, "referenceId": "n1", "body": null},
        ]},
    });
    assert_eq!(judged(accepted), Delivery::Accepted);
    let halted = node(400, "PROCESSING_HALTED");
    assert_eq!(failed(json!([halted, halted])), Delivery::Held);
    assert_eq!(judged(json!({"graphId": "g", "isSuccessful": false})), Delivery::Held);
    let locked = node(400, "UNABLE_TO_LOCK_ROW");
    assert!(matches!(failed(json!([halted, locked])), Delivery::Retry { .. }));
    let missing = node(400, "REQUIRED_FIELD_MISSING");
    assert!(matches!(failed(json!([locked, missing])), Delivery::Reject { .. }));
    let several = json!({"httpStatusCode": 300, "referenceId": "n", "body": ["/services/data"]});
    assert!(matches!(failed(json!([several])), Delivery::Reject { problem }
        if problem.code == "DUPLICATE_EXTERNAL_ID"));
}
