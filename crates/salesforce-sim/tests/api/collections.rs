//! Up to 200 records in one call.

use reqwest::Method;
use serde_json::{Value as Json, json};

use crate::support::{Org, V66};

const UPSERT: &str = "composite/sobjects/Account/ExternalId__c";

fn account(key: &str, name: &str) -> Json {
    json!({"attributes": {"type": "Account"}, "ExternalId__c": key, "Name": name})
}

fn body(records: Vec<Json>) -> Json {
    json!({"allOrNone": false, "records": records})
}

#[tokio::test]
async fn results_are_in_the_order_of_the_records() {
    let org = Org::start().await;
    org.patch(UPSERT, body(vec![account("b", "B")])).await;
    let records = vec![
        account("a", "A"),
        account("b", "B2"),
        json!({"attributes": {"type": "Account"}, "ExternalId__c": "c"}),
    ];
    let reply = org.patch(UPSERT, body(records)).await;
    assert_eq!(reply.status, 200);
    let answers = reply.json();
    assert_eq!((&answers[0]["success"], &answers[0]["created"]), (&json!(true), &json!(true)));
    assert_eq!((&answers[1]["success"], &answers[1]["created"]), (&json!(true), &json!(false)));
    assert_eq!(
        answers[2],
        json!({"success": false, "created": false, "errors": [{
            "statusCode": "REQUIRED_FIELD_MISSING",
            "message": "Required fields are missing: [Name]",
            "fields": ["Name"],
        }]})
    );
}

#[tokio::test]
async fn all_records_fail_with_all_or_none_and_the_others_are_rolled_back() {
    let org = Org::start().await;
    let records =
        vec![account("a", "A"), json!({"attributes": {"type": "Account"}, "ExternalId__c": "c"})];
    let reply = org.patch(UPSERT, json!({"allOrNone": true, "records": records})).await;
    assert_eq!(reply.status, 200);
    let answers = reply.json();
    assert_eq!(answers[0]["errors"][0]["statusCode"], "ALL_OR_NONE_OPERATION_ROLLED_BACK");
    assert_eq!(answers[1]["errors"][0]["statusCode"], "REQUIRED_FIELD_MISSING");
    assert_eq!((org.sim.records("Account").len(), org.sim.ledger().writes()), (0, 0));
}

#[tokio::test]
async fn more_than_200_records_are_refused() {
    let org = Org::start().await;
    let many = |count: usize| (0..count).map(|n| account(&format!("k{n}"), "A")).collect();
    assert_eq!(org.patch(UPSERT, body(many(200))).await.status, 200);
    let reply = org.patch(UPSERT, body(many(201))).await;
    assert_eq!((reply.status, reply.code().as_str()), (400, "EXCEEDED_ID_LIMIT"));
    let expected = "record limit reached. cannot submit more than 200 records into this call";
    assert_eq!(reply.message(), expected);
}

#[tokio::test]
async fn a_repeated_key_fails_for_both_records() {
    let org = Org::start().await;
    let records = vec![account("a", "A"), account("b", "B"), account("A", "A2")];
    let answers = org.patch(UPSERT, body(records)).await.json();
    for index in [0, 2] {
        assert_eq!(answers[index]["errors"][0]["statusCode"], "DUPLICATE_VALUE");
    }
    let message = answers[2]["errors"][0]["message"].as_str().unwrap();
    assert_eq!(message, "Duplicate external id specified: A");
    assert_eq!(answers[1]["success"], true);
}

#[tokio::test]
async fn records_are_created_updated_and_deleted_by_id() {
    let org = Org::start().await;
    let contact = json!({"attributes": {"type": "Contact"}, "LastName": "L"});
    let created =
        org.post("composite/sobjects", body(vec![account("a", "A"), contact])).await.json();
    assert!(created[0].get("created").is_none());
    let (account, contact) = (created[0]["id"].clone(), created[1]["id"].clone());
    let change = json!({"attributes": {"type": "Account"}, "id": account, "Name": "B"});
    let updated = org.patch("composite/sobjects", body(vec![change])).await.json();
    assert_eq!(updated[0], json!({"id": account, "success": true, "errors": []}));
    let (a, c) = (account.as_str().unwrap(), contact.as_str().unwrap());
    let path = format!("composite/sobjects/Account?ids={a},0015f0000000099&fields=Name");
    let found = org.read(&path).await.json();
    assert_eq!((&found[0]["Name"], &found[1]), (&json!("B"), &Json::Null));
    let path = format!("composite/sobjects?ids={a},{c},{c}x&allOrNone=false");
    let deleted = org.delete(&path).await.json();
    assert_eq!((&deleted[0]["success"], &deleted[1]["success"]), (&json!(true), &json!(true)));
    assert_eq!(deleted[2]["errors"][0]["statusCode"], "MALFORMED_ID");
    let again = org.delete(&format!("composite/sobjects?ids={a}")).await.json();
    assert_eq!(again[0]["errors"][0]["statusCode"], "ENTITY_IS_DELETED");
}

#[tokio::test]
async fn a_malformed_body_is_400() {
    let org = Org::start().await;
    for (path, body) in [
        (UPSERT, json!({"records": 5})),
        (UPSERT, json!([])),
        (UPSERT, body(vec![json!({"ExternalId__c": "a", "Name": "A", "Nope__c": 1})])),
        (UPSERT, body(vec![json!({"attributes": {"type": "Contact"}, "ExternalId__c": "a"})])),
        ("composite/sobjects", body(vec![json!({"Name": "A"})])),
        ("composite/sobjects", body(vec![json!({"attributes": {"type": "Nothing"}})])),
    ] {
        assert_eq!(org.patch(path, body).await.status, 400);
    }
    let broken = format!("{V66}/{UPSERT}");
    let broken =
        org.try_send(Method::PATCH, &broken, "application/json", "{\"rec".to_owned()).await;
    assert_eq!(broken.unwrap().status, 400);
    assert_eq!(org.patch("composite/sobjects/Account/Name", body(vec![])).await.status, 404);
}

#[tokio::test]
async fn an_unknown_field_can_fail_only_its_record() {
    let org = Org::with_faults(json!({"collections": {"unknown_field": "record"}})).await;
    let kind = json!({"type": "Account"});
    let bad = json!({"attributes": kind, "ExternalId__c": "a", "Name": "A", "Nope__c": 1});
    let answers = org.patch(UPSERT, body(vec![bad, account("b", "B")])).await.json();
    assert_eq!(answers[0]["errors"][0]["statusCode"], "INVALID_FIELD");
    assert_eq!(answers[1]["success"], true);
}

#[tokio::test]
async fn upserts_need_version_46() {
    let org = Org::start().await;
    let path = format!("/services/data/v45.0/{UPSERT}");
    assert_eq!(org.send(Method::PATCH, &path, body(vec![])).await.status, 404);
}
