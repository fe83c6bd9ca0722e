//! Messages with several records: all of them or none.

use relais_connect::salesforce::{SalesforceGraph, SalesforceSettings};
use relais_core::{
    delivery::Delivery,
    publisher::{Batching, Publisher},
};
use salesforce_sim::{
    Faults, RunningSimulator,
    faults::{HttpAction, Pattern, RowFault},
};
use serde_json::{Value, json};

use crate::common::{
    calls, client_credentials, code, failing, http_fault, once, record, row, simulator,
};

fn graph(sim: &RunningSimulator) -> SalesforceGraph {
    let settings = SalesforceSettings::new(&sim.url(), client_credentials(), "", "ExternalId__c");
    SalesforceGraph::new(settings, None).unwrap()
}

fn family(name: &str, last: Option<&str>) -> Value {
    json!([
        {
            "attributes": {"type": "Account", "referenceId": "family"},
            "ExternalId__c": format!("A-{name}"), "Name": name,
        },
        {
            "attributes": {"type": "Contact"},
            "ExternalId__c": format!("M-{name}"), "LastName": last, "AccountId": "@{family.id}",
        },
    ])
}

#[tokio::test]
async fn all_records_of_a_message_arrive_together() {
    let sim = simulator(Faults::default()).await;
    let graph = graph(&sim);
    assert_eq!(graph.batching(), Batching::Distinct { max: 75 });
    let messages = [
        row("F-1", family("one", Some("Doe"))),
        row("F-2", family("two", None)),
        row("F-3", json!({"records": family("three", Some("Roe"))})),
        row("F-4", json!({"no": "records"})),
    ];
    let answers = graph.publish(&messages).await;
    let codes: Vec<&str> = answers.iter().map(code).collect();
    assert_eq!(codes, ["accepted", "REQUIRED_FIELD_MISSING", "accepted", "PAYLOAD_INVALID"]);
    let parent = record(&sim, "Account", "A-one")["Id"].clone();
    assert_eq!(record(&sim, "Contact", "M-one")["AccountId"], parent);
    // The valid half of a failed message is rolled back.
    assert_eq!(record(&sim, "Account", "A-two"), Value::Null);
    assert_eq!((sim.ledger().len(), sim.ledger().repeated()), (4, 0));
    assert_eq!(calls(&sim, "composite/graph"), 1);
}

#[tokio::test]
async fn messages_after_too_many_failures_are_held() {
    let fault = RowFault {
        key: Pattern::new("bad").unwrap(),
        code: "FIELD_CUSTOM_VALIDATION_EXCEPTION".into(),
        message: "no".into(),
        ..RowFault::default()
    };
    let sim = simulator(Faults { rows: vec![fault], ..Faults::default() }).await;
    let name = |n: usize| if n < 20 { format!("bad{n}") } else { format!("good{n}") };
    let messages: Vec<_> =
        (0..25).map(|n| row(&format!("F-{n}"), family(&name(n), Some("Doe")))).collect();
    let graph = graph(&sim);
    let answers = graph.publish(&messages).await;
    let count = |wanted: &str| answers.iter().filter(|answer| code(answer) == wanted).count();
    assert!(count("FIELD_CUSTOM_VALIDATION_EXCEPTION") >= 15, "{answers:?}");
    let held = count("held");
    assert!(held > 0);
    assert_eq!(count("accepted") + held + count("FIELD_CUSTOM_VALIDATION_EXCEPTION"), 25);
    let rest: Vec<_> = messages[20..].to_vec();
    assert_eq!(graph.publish(&rest).await, vec![Delivery::Accepted; 5]);
}

#[tokio::test]
async fn messages_about_the_same_record_are_sent_one_after_the_other() {
    let sim = simulator(Faults::default()).await;
    let version = |version: u32| {
        json!([{
            "attributes": {"type": "Account"}, "ExternalId__c": "A-1",
            "Name": format!("name {version}"), "Version__c": version,
        }])
    };
    let messages = [row("F-1", version(1)), row("F-2", version(2)), row("F-3", version(3))];
    assert_eq!(graph(&sim).publish(&messages).await, vec![Delivery::Accepted; 3]);
    assert_eq!(record(&sim, "Account", "A-1")["Name"], "name 3");
    assert_eq!(sim.ledger().entry("Account", "A-1").unwrap().writes, 3);
    assert_eq!(calls(&sim, "composite/graph"), 3);
}

#[tokio::test]
async fn a_throttled_call_uses_no_attempt_and_a_lost_one_is_repeated() {
    for (action, is_outage) in [(HttpAction::TotalLimit, true), (HttpAction::DropAfter, false)] {
        let fault = once(http_fault("POST", "composite/graph", action));
        let sim = simulator(failing(vec![fault])).await;
        let graph = graph(&sim);
        let messages = [row("F-1", family("one", Some("Doe")))];
        let first = graph.publish(&messages).await;
        assert_eq!(matches!(first[0], Delivery::Outage { .. }), is_outage, "{first:?}");
        assert_eq!(graph.publish(&messages).await, [Delivery::Accepted]);
        assert!(sim.ledger().entries().all(|entry| entry.created == 1));
    }
}

#[test]
fn graphs_know_no_columns() {
    let mut settings =
        SalesforceSettings::new("https://x", client_credentials(), "", "ExternalId__c");
    settings.columns = vec![("Name".into(), "name".into())];
    assert!(SalesforceGraph::new(settings, None).unwrap_err().to_string().contains("columns"));
}
