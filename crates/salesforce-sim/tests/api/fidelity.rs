//! Details that clients depend on.

use reqwest::Method;
use serde_json::{Value as Json, json};

use crate::support::{Org, V66};

fn contact(key: &str, version: Json) -> Json {
    json!({
        "attributes": {"type": "Contact"}, "ExternalId__c": key, "LastName": "L",
        "Version__c": version,
    })
}

#[tokio::test]
async fn a_value_of_the_wrong_json_type_refuses_the_whole_call() {
    let org = Org::start().await;
    let path = "composite/sobjects/Contact/ExternalId__c";
    for (bad, says) in [
        (json!("abc"), "double from VALUE_STRING value abc"),
        (json!(true), "double from VALUE_TRUE"),
    ] {
        let records = [contact("a", json!(1)), contact("b", bad)];
        let reply = org.patch(path, json!({"allOrNone": false, "records": records})).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "JSON_PARSER_ERROR"));
        assert!(reply.message().contains(says), "{reply:?}");
    }
    assert!(org.sim.records("Contact").is_empty(), "nothing of it was written");
    let text = json!({"LastName": 5});
    let reply = org.post("sobjects/Contact", text).await;
    assert!(reply.message().contains("string from VALUE_NUMBER_INT value 5"), "{reply:?}");
    let good = json!({"records": [contact("a", json!("7"))]});
    assert_eq!(org.patch(path, good).await.json()[0]["success"], true);
}

#[tokio::test]
async fn a_record_of_a_collection_names_its_type() {
    let org = Org::start().await;
    let records = json!([{"ExternalId__c": "a", "LastName": "L"}]);
    let path = "composite/sobjects/Contact/ExternalId__c";
    let reply = org.patch(path, json!({"records": records})).await;
    assert_eq!((reply.status, reply.code().as_str()), (400, "INVALID_INPUT"));
}

#[tokio::test]
async fn blanks_at_the_ends_of_a_text_are_removed() {
    let org = Org::start().await;
    org.run("Contact", "ExternalId__c,LastName,FirstName\n\" a \",\"  L  M \",\"   \"\n").await;
    let record = org.record("Contact", "a").unwrap();
    assert_eq!((&record["LastName"], &record["FirstName"]), (&json!("L  M"), &Json::Null));
    let reply = org.post("sobjects/Contact", json!({"LastName": " \t "})).await;
    assert_eq!(reply.code(), "REQUIRED_FIELD_MISSING", "blanks alone are nothing");
}

#[tokio::test]
async fn a_wrong_method_is_refused() {
    let org = Org::start().await;
    for path in [
        "/services/data".to_owned(),
        V66.to_owned(),
        format!("{V66}/limits"),
        format!("{V66}/sobjects"),
        format!("{V66}/sobjects/Account/describe"),
        format!("{V66}/query?q=SELECT+Id+FROM+Account"),
    ] {
        for method in [Method::PUT, Method::POST, Method::DELETE] {
            let reply = org.send(method.clone(), &path, json!({})).await;
            let found = (reply.status, reply.code());
            assert_eq!(found, (405, "METHOD_NOT_ALLOWED".to_owned()), "{method} {path}");
        }
        assert_eq!(org.get(&path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn a_call_without_a_valid_token_gets_401_with_the_scheme() {
    let mut org = Org::start().await;
    org.token = "gone".to_owned();
    let reply = org.read("limits").await;
    assert_eq!((reply.status, reply.header("www-authenticate")), (401, "Token"));
}

#[tokio::test]
async fn describe_has_every_documented_name() {
    let org = Org::start().await;
    let all = org.read("sobjects").await.json();
    for name in [
        "activateable",
        "associateEntityType",
        "associateParentEntity",
        "createable",
        "custom",
        "customSetting",
        "deepCloneable",
        "deletable",
        "deprecatedAndHidden",
        "feedEnabled",
        "hasSubtypes",
        "implementedBy",
        "implementsInterfaces",
        "isInterface",
        "isSubtype",
        "keyPrefix",
        "label",
        "labelPlural",
        "layoutable",
        "mergeable",
        "mruEnabled",
        "name",
        "queryable",
        "replicateable",
        "retrieveable",
        "searchable",
        "triggerable",
        "undeletable",
        "updateable",
        "urls",
    ] {
        assert!(all["sobjects"][0].get(name).is_some(), "{name}");
    }
    let one = org.read("sobjects/Contact/describe").await.json();
    for name in ["actionOverrides", "childRelationships", "fields", "supportedScopes"] {
        assert!(one[name].is_array(), "{name}");
    }
    for name in ["soapType", "precision", "scale", "digits", "calculated", "sortable", "nameField"]
    {
        assert!(one["fields"][0].get(name).is_some(), "{name}");
    }
}

#[tokio::test]
async fn an_upload_is_csv_with_values_of_at_most_32_000_characters() {
    let org = Org::start().await;
    let job = org.open("Account").await;
    let path = format!("{V66}/jobs/ingest/{job}/batches");
    let reply =
        org.try_send(Method::PUT, &path, "application/json", "{}".to_owned()).await.unwrap();
    assert_eq!(reply.status, 415, "{reply:?}");
    let csv = format!("ExternalId__c,Name,Description\na,A,{}\nb,B,x\n", "x".repeat(32_001));
    assert_eq!(org.upload(&job, &csv).await.status, 201);
    org.close(&job).await;
    org.ended(&job).await;
    assert!(org.failed(&job).await.contains("32000 characters"));
    assert!(org.record("Account", "a").is_none() && org.record("Account", "b").is_some());
    let odd = json!({"object": "Account", "operation": "insert", "odd": 1});
    assert_eq!(org.post("jobs/ingest", odd).await.code(), "JSON_PARSER_ERROR");
}

#[tokio::test]
async fn a_poisoned_row_fails_its_whole_job() {
    let org = Org::with_faults(json!({"jobs": [{"poison": "^bad$", "message": "X : why"}]})).await;
    let job = org.run("Account", "ExternalId__c,Name\na,A\nb,bad\n").await;
    let info = org.info(&job).await;
    assert_eq!((&info["state"], &info["errorMessage"]), (&json!("Failed"), &json!("X : why")));
    assert_eq!(info["numberRecordsProcessed"], 0);
    assert_eq!(org.unprocessed(&job).await.lines().count(), 3);
    let good = org.run("Account", "ExternalId__c,Name\na,A\n").await;
    assert_eq!(org.info(&good).await["state"], "JobComplete");
}
