//! Reading records with queries.

use serde_json::json;

use crate::support::{Org, Reply, accounts};

async fn query(org: &Org, text: &str) -> Reply {
    let encoded: String = text.bytes().map(|b| format!("%{b:02X}")).collect();
    org.read(&format!("query/?q={encoded}")).await
}

async fn names(org: &Org, text: &str) -> Vec<String> {
    let reply = query(org, text).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let json = reply.json();
    let records = json["records"].as_array().unwrap();
    assert_eq!(json["totalSize"], records.len());
    records.iter().map(|record| record["Name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn records_are_found_by_external_id() {
    let org = Org::start().await;
    org.run("Account", &accounts(10)).await;
    for (condition, expected) in [
        ("ExternalId__c = 'key3'", vec!["Name 3"]),
        ("ExternalId__c = 'KEY3'", vec!["Name 3"]),
        ("ExternalId__c IN ('key9', 'key1', 'none')", vec!["Name 1", "Name 9"]),
        ("ExternalId__c IN ('key9', 'key1') AND Name = 'Name 9'", vec!["Name 9"]),
        ("ExternalId__c NOT IN ('key0') AND Name LIKE '%_0'", vec![]),
        ("(Name = 'Name 1' OR Name = 'Name 2') AND NOT Name = 'Name 1'", vec!["Name 2"]),
        ("Phone = null AND Name > 'Name 7'", vec!["Name 8", "Name 9"]),
        ("IsDeleted = true", vec![]),
    ] {
        let text = format!("SELECT Id, Name FROM Account WHERE {condition}");
        assert_eq!(names(&org, &text).await, expected, "{condition}");
    }
    let text = "SELECT Name FROM Account ORDER BY Name DESC LIMIT 2 OFFSET 1";
    assert_eq!(names(&org, text).await, ["Name 8", "Name 7"]);
    let count = query(&org, "SELECT COUNT() FROM Account WHERE Name != 'Name 0'").await.json();
    assert_eq!(count, json!({"totalSize": 9, "done": true, "records": []}));
}

#[tokio::test]
async fn parents_are_reached_through_their_relationship() {
    let org = Org::start().await;
    org.run("Account", "ExternalId__c,Name\nacme,Acme\n").await;
    org.run("Contact", "ExternalId__c,LastName,Account.ExternalId__c\nc1,L,acme\nc2,M,\n").await;
    let text = "SELECT LastName, Account.Name FROM Contact WHERE Account.ExternalId__c = 'acme'";
    let reply = query(&org, text).await.json();
    assert_eq!(reply["totalSize"], 1);
    assert_eq!(reply["records"][0]["Account"]["Name"], "Acme");
    assert_eq!(reply["records"][0]["Account"]["attributes"]["type"], "Account");
    let reply = query(&org, "SELECT Account.Name FROM Contact WHERE ExternalId__c = 'c2'").await;
    assert_eq!(reply.json()["records"][0]["Account"], json!(null));
}

#[tokio::test]
async fn a_long_answer_comes_in_pages() {
    let org = Org::start().await;
    org.run("Account", &accounts(4_500)).await;
    let first = query(&org, "SELECT Id FROM Account").await.json();
    assert_eq!((&first["totalSize"], &first["done"]), (&json!(4_500), &json!(false)));
    let mut seen = first["records"].as_array().unwrap().len();
    let mut next = first["nextRecordsUrl"].as_str().map(str::to_owned);
    while let Some(url) = next {
        let page = org.get(&url).await.json();
        seen += page["records"].as_array().unwrap().len();
        next = page["nextRecordsUrl"].as_str().map(str::to_owned);
    }
    assert_eq!(seen, 4_500);
    assert_eq!(org.read("query/01gx-2000").await.code(), "INVALID_QUERY_LOCATOR");
}

#[tokio::test]
async fn wrong_queries_are_refused_with_the_reason() {
    let org = Org::start().await;
    for (text, code) in [
        ("SELECT FROM Account", "MALFORMED_QUERY"),
        ("SELECT Id FROM Nothing", "INVALID_TYPE"),
        ("SELECT Nope FROM Account", "INVALID_FIELD"),
        ("SELECT Id FROM Account WHERE Nope = 1", "INVALID_FIELD"),
        ("SELECT Nobody.Name FROM Account", "INVALID_FIELD"),
        ("SELECT Id FROM Account ORDER BY Nope", "INVALID_FIELD"),
    ] {
        let reply = query(&org, text).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, code), "{text}");
    }
    assert_eq!(org.read("query").await.code(), "MALFORMED_QUERY");
}
