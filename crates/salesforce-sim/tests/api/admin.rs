//! The control interface.

use reqwest::Method;
use serde_json::{Value as Json, json};

use crate::support::{Org, accounts};

#[tokio::test]
async fn the_ledger_counts_each_version_of_each_record() {
    let org = Org::start().await;
    let header = "ExternalId__c,LastName,Version__c\n";
    org.run("Contact", &format!("{header}m1,A,1\nm2,A,1\n")).await;
    org.run("Contact", &format!("{header}m1,B,2\n")).await;
    let ledger = org.get("/sim/ledger").await.json();
    assert_eq!(
        (&ledger["records"], &ledger["writes"], &ledger["repeated"]),
        (&json!(2), &json!(3), &json!(0))
    );
    assert_eq!(ledger["entries"][0]["versions"], json!({"1": 1, "2": 1}));
    org.run("Contact", &format!("{header}m1,B,2\n")).await;
    let ledger = org.get("/sim/ledger?object=contact&repeated=true").await.json();
    assert_eq!(ledger["repeated"], 1);
    assert_eq!(ledger["entries"].as_array().unwrap().len(), 1);
    let entry = &ledger["entries"][0];
    assert_eq!((&entry["externalId"], &entry["unchanged"]), (&json!("m1"), &json!(1)));
    assert_eq!(entry["versions"], json!({"1": 1, "2": 2}));
}

#[tokio::test]
async fn records_are_listed_in_parts() {
    let org = Org::start().await;
    org.run("Account", &accounts(5)).await;
    let all = org.get("/sim/records/account").await.json();
    assert_eq!(all["totalSize"], 5);
    assert_eq!(all["records"][4]["ExternalId__c"], "key4");
    let part = org.get("/sim/records/Account?offset=1&limit=2").await.json();
    assert_eq!(part["records"].as_array().unwrap().len(), 2);
    assert_eq!(part["records"][0]["ExternalId__c"], "key1");
    assert_eq!(org.get("/sim/records/Nothing").await.status, 404);
}

#[tokio::test]
async fn calls_are_counted_by_what_they_do() {
    let org = Org::start().await;
    let job = org.run("Account", &accounts(1)).await;
    org.successful(&job).await;
    let calls = org.get("/sim/calls").await.json();
    for call in [
        "POST jobs/ingest",
        "PUT jobs/ingest/{id}/batches",
        "PATCH jobs/ingest/{id}",
        "GET jobs/ingest/{id}/successfulResults",
    ] {
        assert_eq!(calls[call], 1, "{call}");
    }
    assert_eq!(org.sim.calls()["POST jobs/ingest"], 1);
}

#[tokio::test]
async fn a_reset_removes_all_but_the_session() {
    let org = Org::start().await;
    org.run("Account", &accounts(1)).await;
    org.put_faults(json!({"rows": [{"code": "X"}]})).await;
    assert_eq!(org.send(Method::POST, "/sim/reset", Json::Null).await.status, 204);
    assert_eq!((org.sim.records("Account").len(), org.sim.jobs().len()), (0, 0));
    assert!(org.sim.ledger().is_empty() && org.sim.faults().rows.is_empty());
    org.run("Account", &accounts(1)).await;
    assert_eq!(org.writes("Account", "key0"), 1);
}

#[tokio::test]
async fn time_and_jobs_advance_on_demand() {
    let org = Org::manual().await;
    org.submit("Account", &accounts(1)).await;
    let jobs = org.send(Method::POST, "/sim/tick?rounds=2", Json::Null).await.json();
    assert_eq!(jobs[0]["state"], "JobComplete");
    let skipped = org.send(Method::POST, "/sim/clock", json!({"skip_seconds": 604_800})).await;
    assert_eq!(skipped.status, 200);
    org.sim.tick(1);
    assert!(org.sim.jobs().is_empty());
    assert_eq!(org.send(Method::POST, "/sim/clock", json!({})).await.status, 400);
    assert_eq!(org.send(Method::POST, "/sim/expire", Json::Null).await.status, 204);
    assert_eq!(org.read("limits").await.status, 401);
}

#[tokio::test]
async fn the_page_escapes_its_contents() {
    let org = Org::start().await;
    let csv = "ExternalId__c,Name\n<script>alert(1)</script>,\"<b>&\"\"x\"\"\"\n";
    let job = org.run("Account", csv).await;
    let page = org.get("/").await;
    assert_eq!(page.status, 200);
    assert!(page.header("content-type").starts_with("text/html"));
    assert!(page.text.contains(&job) && page.text.contains("JobComplete"));
    assert!(page.text.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert!(page.text.contains("&lt;b&gt;&amp;&quot;x&quot;"));
    assert!(!page.text.contains("<script>") && !page.text.contains("<b>"));
}

#[tokio::test]
async fn a_stopped_simulator_does_not_answer() {
    let org = Org::start().await;
    let url = org.sim.url();
    let address = url.replace("http://", "");
    assert!(std::net::TcpStream::connect(&address).is_ok());
    org.sim.stop().await;
    assert!(std::net::TcpStream::connect(&address).is_err());
}
