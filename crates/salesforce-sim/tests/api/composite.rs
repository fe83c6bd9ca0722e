//! Several calls in one, and graphs of them.

use serde_json::{Value as Json, json};

use crate::support::{Org, V66};

fn account(reference: &str, key: &str, body: Json) -> Json {
    json!({
        "method": "PATCH", "referenceId": reference, "body": body,
        "url": format!("{V66}/sobjects/Account/ExternalId__c/{key}"),
    })
}

fn contact_of(reference: &str, key: &str, account: &str) -> Json {
    json!({
        "method": "PATCH", "referenceId": reference,
        "url": format!("{V66}/sobjects/Contact/ExternalId__c/{key}"),
        "body": {"LastName": "L", "AccountId": format!("@{{{account}.id}}")},
    })
}

async fn composite(org: &Org, all_or_none: bool, calls: Vec<Json>) -> Json {
    let body = json!({"allOrNone": all_or_none, "compositeRequest": calls});
    let reply = org.post("composite", body).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["compositeResponse"].clone()
}

#[tokio::test]
async fn calls_refer_to_the_answers_of_earlier_ones() {
    let org = Org::start().await;
    let calls = vec![account("a1", "a", json!({"Name": "A"})), contact_of("c1", "c", "a1")];
    let answers = composite(&org, true, calls).await;
    assert_eq!(
        (&answers[0]["httpStatusCode"], &answers[0]["referenceId"]),
        (&json!(201), &json!("a1"))
    );
    let id = answers[0]["body"]["id"].as_str().unwrap();
    let location = format!("{V66}/sobjects/Account/{id}");
    assert_eq!(answers[0]["httpHeaders"]["Location"], location);
    assert_eq!(org.record("Contact", "c").unwrap()["AccountId"], id);
}

#[tokio::test]
async fn all_or_none_rolls_everything_back_and_names_the_failed_call() {
    let org = Org::start().await;
    let calls = vec![account("a1", "a", json!({"Name": "A"})), account("a2", "b", json!({}))];
    let answers = composite(&org, true, calls).await;
    assert_eq!(answers[0]["httpStatusCode"], 400);
    assert_eq!(answers[0]["body"][0]["errorCode"], "PROCESSING_HALTED");
    let expected = "The transaction was rolled back since another operation in the same \
                    transaction failed.";
    assert_eq!(answers[0]["body"][0]["message"], expected);
    assert_eq!(answers[1]["body"][0]["errorCode"], "REQUIRED_FIELD_MISSING");
    assert_eq!((org.sim.records("Account").len(), org.sim.ledger().writes()), (0, 0));
}

#[tokio::test]
async fn otherwise_only_those_that_depend_on_a_failure_halt() {
    let org = Org::start().await;
    let calls = vec![
        account("a1", "a", json!({})),
        contact_of("c1", "c", "a1"),
        account("a2", "b", json!({"Name": "B"})),
    ];
    let answers = composite(&org, false, calls).await;
    assert_eq!(answers[1]["body"][0]["errorCode"], "PROCESSING_HALTED");
    assert_eq!(answers[2]["httpStatusCode"], 201);
    assert_eq!((org.sim.records("Account").len(), org.sim.records("Contact").len()), (1, 0));
}

#[tokio::test]
async fn queries_and_collections_can_be_among_the_calls() {
    let org = Org::start().await;
    let records = json!({"records": [
        {"attributes": {"type": "Account"}, "ExternalId__c": "a", "Name": "A"},
    ]});
    let calls = vec![
        json!({"method": "PATCH", "referenceId": "u", "body": records,
            "url": format!("{V66}/composite/sobjects/Account/ExternalId__c")}),
        json!({"method": "GET", "referenceId": "q",
            "url": format!("{V66}/query?q=SELECT+Name+FROM+Account")}),
        json!({"method": "GET", "referenceId": "r",
            "url": format!("{V66}/sobjects/Account/@{{q.records[0].attributes.type}}/x")}),
    ];
    let answers = composite(&org, false, calls).await;
    assert_eq!(answers[0]["body"][0]["success"], true);
    assert_eq!(answers[1]["body"]["records"][0]["Name"], "A");
    assert_eq!(answers[2]["httpStatusCode"], 404);
}

#[tokio::test]
async fn limits_and_names_are_checked() {
    let org = Org::start().await;
    let many = |count: usize| {
        (0..count).map(|n| account(&format!("r{n}"), "k", json!({"Name": "A"}))).collect::<Vec<_>>()
    };
    for calls in [
        many(26),
        vec![account("a", "k", json!({})), account("a", "k", json!({}))],
        vec![account("a-b", "k", json!({}))],
        (0..6)
            .map(|n| {
                json!({"method": "GET", "referenceId": format!("q{n}"),
            "url": format!("{V66}/query?q=x")})
            })
            .collect(),
    ] {
        let reply = org.post("composite", json!({"compositeRequest": calls})).await;
        assert_eq!(reply.status, 400, "{reply:?}");
    }
    let answers = composite(&org, false, many(25)).await;
    assert_eq!(answers.as_array().unwrap().len(), 25);
}

async fn graphs(org: &Org, graphs: Vec<Json>) -> Json {
    let reply = org.post("composite/graph", json!({"graphs": graphs})).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["graphs"].clone()
}

#[tokio::test]
async fn each_graph_is_applied_completely_or_not_at_all() {
    let org = Org::start().await;
    let good = vec![account("a1", "a", json!({"Name": "A"})), contact_of("c1", "c", "a1")];
    let bad = vec![account("a1", "b", json!({"Name": "B"})), account("a2", "x", json!({}))];
    let answers = graphs(
        &org,
        vec![
            json!({"graphId": "g1", "compositeRequest": good}),
            json!({"graphId": "g2", "compositeRequest": bad}),
        ],
    )
    .await;
    assert_eq!((&answers[0]["graphId"], &answers[0]["isSuccessful"]), (&json!("g1"), &json!(true)));
    let first = &answers[0]["graphResponse"]["compositeResponse"][0];
    assert_eq!((&first["httpStatusCode"], &first["body"]["success"]), (&json!(201), &json!(true)));
    assert_eq!(answers[1]["isSuccessful"], false);
    let calls = &answers[1]["graphResponse"]["compositeResponse"];
    assert_eq!(calls[0]["body"][0]["errorCode"], "PROCESSING_HALTED");
    assert_eq!(calls[1]["body"][0]["errorCode"], "REQUIRED_FIELD_MISSING");
    assert!(org.record("Account", "a").is_some() && org.record("Account", "b").is_none());
    assert!(org.record("Contact", "c").is_some());
}

#[tokio::test]
async fn after_fourteen_failures_further_graphs_are_not_tried_once_exceeded() {
    let org = Org::start().await;
    let graph = |n: usize| {
        let body = if n < 15 { json!({}) } else { json!({"Name": "A"}) };
        json!({"graphId": format!("g{n}"), "compositeRequest": [account("a", &format!("k{n}"), body)]})
    };
    let answers = graphs(&org, (0..16).map(graph).collect()).await;
    let code = |n: usize| {
        answers[n]["graphResponse"]["compositeResponse"][0]["body"][0]["errorCode"].clone()
    };
    assert_eq!((code(14), code(15)), (json!("REQUIRED_FIELD_MISSING"), json!("PROCESSING_HALTED")));
    assert_eq!(org.sim.ledger().writes(), 0);
}

#[tokio::test]
async fn graphs_have_their_limits() {
    let org = Org::start().await;
    let node = |n: usize| account(&format!("n{n}"), &format!("k{n}"), json!({"Name": "A"}));
    let chain = |n: usize| {
        let parent = if n == 0 { json!(null) } else { json!(format!("@{{n{}.id}}", n - 1)) };
        account(&format!("n{n}"), &format!("k{n}"), json!({"Name": "A", "ParentId": parent}))
    };
    let one = |nodes: Vec<Json>| vec![json!({"graphId": "g", "compositeRequest": nodes})];
    let query = json!({"method": "GET", "referenceId": "q", "url": format!("{V66}/query?q=x")});
    for graphs in [
        (0..76).map(|n| json!({"graphId": format!("g{n}"), "compositeRequest": []})).collect(),
        one((0..501).map(node).collect()),
        one((0..16).map(chain).collect()),
        one(vec![query]),
    ] {
        let reply = org.post("composite/graph", json!({"graphs": graphs})).await;
        assert_eq!(reply.status, 400);
    }
    let deep = graphs(&org, one((0..15).map(chain).collect())).await;
    assert_eq!(deep[0]["isSuccessful"], true);
    let path = "/services/data/v49.0/composite/graph";
    let old = org.send(reqwest::Method::POST, path, json!({"graphs": []})).await;
    assert_eq!(old.status, 404);
}
