//! Bulk jobs without faults: every value arrives, every row has its result, each step can be
//! repeated.

use std::{sync::Arc, time::Duration};

use relais_connect::salesforce::SalesforceBulk;
use relais_core::{
    async_trait,
    bulk::{BulkTarget, Remote},
    delivery::Delivery,
    hydrate::{HydratedRecords, Hydrator},
    outbox::OutboxRow,
    store::StoreError,
};
use salesforce_sim::{Faults, faults::RowFault};
use serde_json::{Value, json};

use crate::common::{
    bulk, code, columns, ended, ids, kind, members, record, row, send, settings, simulator, start,
};

#[tokio::test]
async fn every_value_arrives_unchanged() {
    let sim = simulator(Faults::default()).await;
    let values = [
        "plain",
        "with \"quotes\" and , commas",
        "two\nlines",
        "\u{feff}mark in front",
        "emoji 😀 and é",
        "`^|;\t,",
        " #N/A ",
    ];
    let one = |(n, value): (usize, &&str)| OutboxRow {
        id: n as i64,
        ..row(&format!("V-{n}"), json!({"last": value, "first": null, "version": n}))
    };
    let rows: Vec<OutboxRow> = values.iter().enumerate().map(one).collect();
    let answers = send(&bulk(&sim), &rows).await;
    assert_eq!(answers, vec![Delivery::Accepted; rows.len()]);
    for (n, value) in values.iter().enumerate() {
        let stored = record(&sim, "Contact", &format!("V-{n}"));
        assert_eq!(stored["LastName"].as_str().unwrap().trim(), value.trim(), "{value:?}");
        assert_eq!(stored["Version__c"].as_f64(), Some(n as f64));
    }
    assert_eq!(sim.ledger().repeated(), 0);
}

#[tokio::test]
async fn null_clears_a_field_and_absence_keeps_it() {
    let sim = simulator(Faults::default()).await;
    let bulk = bulk(&sim);
    let first = json!({"last": "Doe", "first": "Jane", "email": "jane@example.org", "version": 1});
    send(&bulk, &[row("M-1", first)]).await;
    send(&bulk, &[row("M-1", json!({"last": "Roe", "first": null, "version": 2}))]).await;
    let stored = record(&sim, "Contact", "M-1");
    assert_eq!(stored["LastName"], "Roe");
    assert_eq!(stored["FirstName"], Value::Null);
    assert_eq!(stored["Email"], "jane@example.org");
}

#[tokio::test]
async fn another_line_ending_does_not_fail_the_job() {
    let sim = simulator(Faults::default()).await;
    let payload = json!({"last": "two\r\nlines", "first": "old\rmac", "version": 1});
    assert_eq!(send(&bulk(&sim), &[row("M-1", payload)]).await, [Delivery::Accepted]);
    assert_eq!(record(&sim, "Contact", "M-1")["LastName"], "two\nlines");
}

#[tokio::test]
async fn records_refer_to_others_by_external_id() {
    let sim = simulator(Faults::default()).await;
    let mut accounts = settings(&sim);
    accounts.object = "Account".into();
    accounts.columns = columns(&[("Name", "name")]);
    let accounts = SalesforceBulk::new(accounts, None).unwrap();
    send(&accounts, &[row("A-1", json!({"name": "Acme"}))]).await;
    let mut contacts = settings(&sim);
    contacts.columns = columns(&[("LastName", "last"), ("Account.ExternalId__c", "account")]);
    let contacts = SalesforceBulk::new(contacts, None).unwrap();
    let rows = [
        OutboxRow { id: 1, ..row("M-1", json!({"last": "Doe", "account": "A-1"})) },
        OutboxRow { id: 2, ..row("M-2", json!({"last": "Doe", "account": "A-2"})) },
    ];
    let answers = send(&contacts, &rows).await;
    assert_eq!(answers[0], Delivery::Accepted);
    // Its parent may still arrive.
    assert!(matches!(&answers[1], Delivery::Retry { problem, after: Some(_) }
        if problem.code == "INVALID_FIELD" && problem.message.contains("A-2")));
    let parent = record(&sim, "Account", "A-1")["Id"].clone();
    assert_eq!(record(&sim, "Contact", "M-1")["AccountId"], parent);
}

#[tokio::test]
async fn rows_that_cannot_be_sent_are_left_out_with_a_reason() {
    let sim = simulator(Faults::default()).await;
    let doe = |id: &str, last: &str| row(id, json!({"last": last, "version": 1}));
    let long = "x".repeat(32_001);
    let rows: Vec<OutboxRow> = [
        doe("good", "Doe"),
        doe("na", "#N/A"),
        doe("long", &long),
        doe(" blank", "Doe"),
        doe("GOOD", "Roe"),
        doe("ctl\u{1}", "Doe"),
        row("list", json!({"last": ["Doe"]})),
    ]
    .into_iter()
    .enumerate()
    .map(|(n, row)| OutboxRow { id: n as i64, ..row })
    .collect();
    let bulk = bulk(&sim);
    let mut encoded = bulk.encode(&rows, 0).await.unwrap();
    assert_eq!(encoded.count, 1);
    encoded.left_out.sort_by_key(|(id, _)| *id);
    let left_out: Vec<(i64, &str)> =
        encoded.left_out.iter().map(|(id, delivery)| (*id, code(delivery))).collect();
    let expected = [
        (1, "VALUE_INVALID"),
        (2, "VALUE_INVALID"),
        (3, "EXTERNAL_ID_INVALID"),
        (4, "held"),
        (5, "EXTERNAL_ID_INVALID"),
        (6, "VALUE_INVALID"),
    ];
    assert_eq!(left_out, expected);
    assert_eq!(send(&bulk, &rows[..1]).await, [Delivery::Accepted]);
    let nothing = bulk.encode(&rows[1..2], 0).await.unwrap();
    assert_eq!((nothing.count, nothing.body.len()), (0, 0));
}

#[tokio::test]
async fn only_failed_rows_are_sent_again() {
    let fault = |key: &str, code: &str, times: Option<u64>| RowFault {
        key: salesforce_sim::faults::Pattern::new(key).unwrap(),
        times,
        code: code.to_owned(),
        message: "no".to_owned(),
        ..RowFault::default()
    };
    let faults = Faults {
        rows: vec![
            fault("^M-1$", "UNABLE_TO_LOCK_ROW", Some(1)),
            fault("^M-2$", "FIELD_CUSTOM_VALIDATION_EXCEPTION", None),
        ],
        ..Faults::default()
    };
    let sim = simulator(faults).await;
    let (bulk, mut rows) = (bulk(&sim), members(4));
    rows.push(OutboxRow { id: 5, ..row("M-4", json!({"first": "nameless", "version": 1})) });
    let answers = send(&bulk, &rows).await;
    let codes: Vec<&str> = answers.iter().map(code).collect();
    let expected = [
        "accepted",
        "UNABLE_TO_LOCK_ROW",
        "FIELD_CUSTOM_VALIDATION_EXCEPTION",
        "accepted",
        "REQUIRED_FIELD_MISSING",
    ];
    assert_eq!(codes, expected);
    assert!(matches!(answers[1], Delivery::Retry { .. }));
    assert!(matches!(answers[2], Delivery::Reject { .. }));
    assert_eq!(send(&bulk, &rows[1..2]).await, [Delivery::Accepted]);
    assert_eq!(sim.ledger().repeated(), 0);
    assert_eq!(sim.ledger().writes(), 3);
}

/// Members in a test database.
struct Members;

#[async_trait]
impl Hydrator for Members {
    async fn hydrate(&self, ids: Vec<String>) -> Result<HydratedRecords, StoreError> {
        let one = |id: String| {
            let record = json!({"ID": id, "LAST_NAME": format!("of {id}"), "VERSION": 7});
            (id, record.as_object().unwrap().clone())
        };
        let records = ids.into_iter().filter(|id| id != "M-gone").map(one).collect();
        Ok(HydratedRecords { records, ..HydratedRecords::default() })
    }
}

#[tokio::test]
async fn events_that_carry_ids_are_sent_with_fresh_data() {
    let sim = simulator(Faults::default()).await;
    let mut settings = settings(&sim);
    settings.columns = columns(&[
        ("LastName", "last_name"),
        ("Version__c", "version"),
        ("Family__c", "payload:/familyId"),
    ]);
    settings.version = Some("version".into());
    let bulk = SalesforceBulk::new(settings, Some(Arc::new(Members))).unwrap();
    let rows: Vec<OutboxRow> = [("M-1", 7), ("M-2", 6), ("M-3", 8), ("M-gone", 1)]
        .into_iter()
        .map(|(id, version)| row(id, json!({"id": id, "version": version, "familyId": "F-8842"})))
        .enumerate()
        .map(|(n, row)| OutboxRow { id: n as i64, ..row })
        .collect();
    let encoded = bulk.encode(&rows, 0).await.unwrap();
    let left_out: Vec<(i64, &str)> =
        encoded.left_out.iter().map(|(id, delivery)| (*id, code(delivery))).collect();
    assert_eq!(left_out, [(2, "STALE_READ"), (3, "ROW_MISSING")]);
    assert_eq!(send(&bulk, &rows[..2]).await, vec![Delivery::Accepted; 2]);
    let stored = record(&sim, "Contact", "M-2");
    assert_eq!((&stored["LastName"], &stored["Family__c"]), (&json!("of M-2"), &json!("F-8842")));
    assert_eq!(stored["Version__c"].as_f64(), Some(7.0));
}

#[tokio::test]
async fn many_rows_take_few_calls() {
    let sim = simulator(Faults::default()).await;
    let (bulk, rows) = (bulk(&sim), members(5_000));
    let id = start(&bulk, &rows).await;
    while bulk.state(&id).await.unwrap() == Remote::Running {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let answers = bulk.results(&id, &ids(&rows)).await.unwrap();
    assert!(answers.iter().all(|answer| *answer == Delivery::Accepted));
    assert_eq!(sim.ledger().len(), 5_000);
    assert_eq!(sim.ledger().repeated(), 0);
    let polls = crate::common::calls(&sim, "GET jobs/ingest/{id}");
    let all: u64 = sim.calls().values().sum();
    assert!(all - polls <= 10, "{:?}", sim.calls());
}

#[tokio::test]
async fn repeated_steps_report_another_state() {
    let sim = simulator(Faults::default()).await;
    let (bulk, rows) = (bulk(&sim), members(3));
    let id = start(&bulk, &rows).await;
    ended(&bulk, &id).await;
    assert_eq!(kind(bulk.close(&id).await), "other state");
    assert_eq!(kind(bulk.abort(&id).await), "other state");
    assert_eq!(kind(bulk.upload(&id, vec![b"late".to_vec()]).await), "other state");
    let unknown = "750000000000000AAA";
    assert_eq!(bulk.state(unknown).await.unwrap(), Remote::Gone);
    assert_eq!(kind(bulk.close(unknown).await), "other state");
    assert_eq!(kind(bulk.abort(unknown).await), "other state");
    let lost = bulk.results(unknown, &ids(&rows)).await.unwrap();
    assert!(lost.iter().all(|answer| code(answer) == "RESULTS_GONE"));
    assert!(matches!(lost[0], Delivery::Retry { .. }));
}

#[tokio::test]
async fn a_job_can_be_aborted_and_its_rows_are_sent_again() {
    let sim = simulator(Faults::default()).await;
    let (bulk, rows) = (bulk(&sim), members(3));
    let id = bulk.create().await.unwrap();
    assert_eq!(bulk.state(&id).await.unwrap(), Remote::Open);
    assert_eq!(kind(bulk.results(&id, &ids(&rows)).await), "other state");
    let body = bulk.encode(&rows, 0).await.unwrap().body;
    bulk.upload(&id, vec![body]).await.unwrap();
    bulk.abort(&id).await.unwrap();
    assert_eq!(bulk.state(&id).await.unwrap(), Remote::Aborted);
    assert_eq!(bulk.results(&id, &ids(&rows)).await.unwrap(), vec![Delivery::Held; 3]);
    assert_eq!(sim.ledger().writes(), 0);
}

#[tokio::test]
async fn an_upload_in_parts_is_one_file() {
    let sim = simulator(Faults::default()).await;
    let (bulk, rows) = (bulk(&sim), members(5));
    let first = bulk.encode(&rows[..2], 0).await.unwrap();
    let second = bulk.encode(&rows[2..], first.body.len()).await.unwrap();
    assert_eq!((first.count, second.count), (2, 3));
    let id = bulk.create().await.unwrap();
    bulk.upload(&id, vec![first.body, second.body]).await.unwrap();
    bulk.close(&id).await.unwrap();
    ended(&bulk, &id).await;
    assert_eq!(bulk.results(&id, &ids(&rows)).await.unwrap(), vec![Delivery::Accepted; 5]);
    assert_eq!(sim.ledger().len(), 5);
}

#[tokio::test]
async fn rows_after_a_full_upload_wait_for_the_next_one() {
    let sim = simulator(Faults::default()).await;
    let rows = members(2);
    let encoded = bulk(&sim).encode(&rows, 50 * 1024 * 1024).await.unwrap();
    assert_eq!((encoded.count, encoded.body.len()), (0, 0));
    assert!(encoded.left_out.iter().all(|(_, delivery)| *delivery == Delivery::Held));
    assert_eq!(encoded.left_out.len(), 2);
}
