//! Bulk query jobs: create, follow, read in pages, abort, delete.

use serde_json::{Value as Json, json};

use crate::support::{Org, Reply, accounts};

const SOQL: &str = "SELECT Id, Name, externalid__c FROM account ORDER BY ExternalId__c";

async fn create(org: &Org, query: &str) -> Reply {
    org.post("jobs/query", json!({"operation": "query", "query": query})).await
}

async fn page(org: &Org, job: &str, query: &str) -> Reply {
    org.read(&format!("jobs/query/{job}/results{query}")).await
}

fn id_of(reply: &Reply) -> String {
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_query_job_runs_and_is_read_in_pages() {
    let org = Org::start().await;
    org.run("Account", &accounts(25)).await;
    let created = create(&org, SOQL).await;
    let job = created.json();
    for (name, value) in [
        ("operation", "query"),
        ("object", "Account"),
        ("state", "UploadComplete"),
        ("contentType", "CSV"),
        ("lineEnding", "LF"),
        ("columnDelimiter", "COMMA"),
        ("concurrencyMode", "Parallel"),
    ] {
        assert_eq!(job[name], value, "{name}");
    }
    let id = id_of(&created);
    let info = org.read(&format!("jobs/query/{id}")).await.json();
    assert_eq!((&info["state"], &info["jobType"]), (&json!("JobComplete"), &json!("V2Query")));
    assert_eq!(info["numberRecordsProcessed"], 25);

    let (mut locator, mut pages, mut lines) = (String::new(), 0, Vec::new());
    while locator != "null" {
        let reply = page(&org, &id, &format!("?maxRecords=10&locator={locator}")).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        assert!(reply.header("content-type").starts_with("text/csv"));
        let mut rows = reply.text.lines();
        assert_eq!(rows.next(), Some("\"Id\",\"Name\",\"ExternalId__c\""));
        let rows: Vec<String> = rows.map(str::to_owned).collect();
        assert_eq!(reply.header("sforce-numberofrecords"), rows.len().to_string());
        lines.extend(rows);
        locator = reply.header("sforce-locator").to_owned();
        pages += 1;
    }
    assert_eq!((pages, lines.len()), (3, 25));
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), 25, "no row twice");
    let whole = page(&org, &id, "").await;
    assert_eq!((whole.header("sforce-locator"), whole.text.lines().count()), ("null", 26));
    for wrong in ["?locator=xyz", "?maxRecords=0", "?maxRecords=a", "?locator=OTk"] {
        assert_eq!(page(&org, &id, wrong).await.status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn parents_numbers_and_other_delimiters_are_written_as_in_bulk() {
    let org = Org::start().await;
    org.run("Account", "ExternalId__c,Name\na1,\"a;\"\"b\"\"\"\n").await;
    org.run(
        "Contact",
        "ExternalId__c,LastName,Version__c,Account.ExternalId__c\nc1,L,5,a1\nc2,M,,\n",
    )
    .await;
    let wanted = json!({
        "operation": "queryAll", "columnDelimiter": "SEMICOLON", "lineEnding": "CRLF",
        "query": "SELECT ExternalId__c, Version__c, Account.Name FROM Contact ORDER BY ExternalId__c",
    });
    let id = id_of(&org.post("jobs/query", wanted).await);
    let expected = "\"ExternalId__c\";\"Version__c\";\"Account.Name\"\r\n\
                    \"c1\";\"5.0\";\"a;\"\"b\"\"\"\r\n\"c2\";\"\";\"\"\r\n";
    assert_eq!(page(&org, &id, "").await.text, expected);
}

#[tokio::test]
async fn an_invalid_query_job_is_refused() {
    let org = Org::start().await;
    for (body, code) in [
        (json!({"operation": "query", "query": "SELECT"}), "MALFORMED_QUERY"),
        (json!({"operation": "query", "query": "SELECT Nope FROM Account"}), "INVALID_FIELD"),
        (json!({"operation": "query", "query": "SELECT Id FROM Nope"}), "INVALID_TYPE"),
        (
            json!({"operation": "query", "query": "SELECT COUNT() FROM Account"}),
            "FUNCTIONALITY_NOT_ENABLED",
        ),
        (json!({"operation": "insert", "query": "SELECT Id FROM Account"}), "INVALIDJOB"),
        (json!({"operation": "query"}), "JSON_PARSER_ERROR"),
        (json!({"operation": "query", "query": SOQL, "contentType": "XML"}), "INVALIDJOB"),
        (json!({"operation": "query", "query": SOQL, "odd": 1}), "JSON_PARSER_ERROR"),
    ] {
        let reply = org.post("jobs/query", body).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, code), "{reply:?}");
    }
}

#[tokio::test]
async fn a_query_job_is_aborted_while_it_works_and_deleted_afterwards() {
    let org = Org::manual().await;
    let id = id_of(&create(&org, SOQL).await);
    let path = format!("jobs/query/{id}");
    assert_eq!(page(&org, &id, "").await.code(), "INVALIDJOBSTATE", "no result yet");
    assert_eq!(org.delete(&path).await.code(), "INVALIDJOBSTATE");
    org.sim.tick(1);
    assert_eq!(org.read(&path).await.json()["state"], "InProgress");
    let aborted = org.patch(&path, json!({"state": "Aborted"})).await;
    assert_eq!((aborted.status, &aborted.json()["state"]), (200, &json!("Aborted")));
    assert_eq!(org.patch(&path, json!({"state": "Aborted"})).await.code(), "INVALIDJOBSTATE");
    let list = org.read("jobs/query?jobType=V2Query").await.json();
    assert_eq!(
        (list["done"].as_bool(), list["records"].as_array().map(Vec::len)),
        (Some(true), Some(1))
    );
    assert_eq!(org.delete(&path).await.status, 204);
    assert_eq!(org.read(&path).await.status, 404);
    assert_eq!(page(&org, &id, "").await.status, 404);
    let other = id_of(&create(&org, SOQL).await);
    org.sim.tick(2);
    assert_eq!(org.read(&format!("jobs/query/{other}")).await.json()["state"], "JobComplete");
    assert_eq!(
        org.send(reqwest::Method::PUT, &format!("{}/{path}", crate::support::V66), Json::Null)
            .await
            .status,
        405
    );
}
