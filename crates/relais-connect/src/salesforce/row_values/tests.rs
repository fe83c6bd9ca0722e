//! Conversion of values, and every outcome of reading fresh data.

use relais_core::async_trait;
use serde_json::json;

use super::*;
use crate::{
    SecretString,
    salesforce::{Auth, SalesforceSettings},
    testing::row,
};

type Rows = Vec<(&'static str, Value)>;

/// A table in memory, or a database that fails.
struct TestTable(Result<Rows, fn() -> StoreError>);

#[async_trait]
impl Hydrator for TestTable {
    async fn hydrate(&self, ids: Vec<String>) -> Result<HydratedRecords, StoreError> {
        match &self.0 {
            Err(error) => Err(error()),
            Ok(rows) => {
                let mut hydrated = HydratedRecords::default();
                for (id, value) in rows {
                    if !ids.iter().any(|wanted| wanted == id) {
                        continue;
                    }
                    match value.as_object() {
                        Some(record) => {
                            hydrated.records.insert((*id).to_owned(), record.clone());
                        }
                        // A value that is not an object stands for an invalid row.
                        None => {
                            hydrated.failed.insert((*id).to_owned(), value.to_string());
                        }
                    }
                }
                Ok(hydrated)
            }
        }
    }
}

fn settings(columns: &[(&str, &str)]) -> SalesforceSettings {
    let auth = Auth::ClientCredentials {
        client_id: "app".into(),
        client_secret: SecretString::from("secret"),
    };
    let mut settings = SalesforceSettings::new("https://x", auth, "Contact", "ExternalId__c");
    settings.columns = columns.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    settings
}

fn records(settings: &SalesforceSettings, table: Option<TestTable>) -> RowValues {
    let hydrator = table.map(|table| Arc::new(table) as Arc<dyn Hydrator>);
    RowValues::new(ColumnMapping::new(settings).unwrap(), hydrator)
}

fn message(id: &str, payload: &str) -> OutboxRow {
    OutboxRow { aggregate_id: id.to_owned(), ..row(payload) }
}

async fn cells(columns: &[(&str, &str)], payload: &str) -> Result<Vec<String>, RowValueError> {
    let records = records(&settings(columns), None);
    let rows = [message("M-1", payload)];
    let gathered = records.select(&rows).await.unwrap();
    let mut cells = Vec::new();
    records.cells(&rows[0], &gathered, &mut cells)?;
    Ok(cells.iter().map(|cell| format!("{cell:?}")).collect())
}

#[tokio::test]
async fn values_of_a_payload_are_passed_as_they_are() {
    let payload = r#"{"t": "x\ny", "n": 9007199254740993, "f": 1.50, "b": true, "z": null,
                      "d": "2026-11-15", "e": "", "deep": {"a/b": [1, "two"]}}"#;
    let columns = [
        ("A", "t"),
        ("B", "n"),
        ("C", "f"),
        ("D", "b"),
        ("E", "z"),
        ("F", "d"),
        ("G", "e"),
        ("H", "gone"),
        ("I", "/deep/a~1b/1"),
        ("J", "payload:/deep/gone"),
    ];
    let expected = [
        "Text(\"x\\ny\")",
        "Plain(\"9007199254740993\")",
        "Plain(\"1.50\")",
        "Plain(\"true\")",
        "Null",
        "Text(\"2026-11-15\")",
        "Text(\"\")",
        "Absent",
        "Text(\"two\")",
        "Absent",
    ];
    assert_eq!(cells(&columns, payload).await.unwrap(), expected);
}

#[tokio::test]
async fn values_that_are_no_value_refuse_their_row() {
    for (payload, code) in [
        (r#"{"a": {"b": 1}}"#, "VALUE_INVALID"),
        (r#"{"a": [1]}"#, "VALUE_INVALID"),
        (r#"{"a": "\ud800"}"#, "VALUE_INVALID"),
        (r#"{"a": "x\u0000y"}"#, "VALUE_INVALID"),
        ("[1]", "PAYLOAD_NOT_OBJECT"),
        ("null", "PAYLOAD_NOT_OBJECT"),
    ] {
        match cells(&[("A", "a")], payload).await {
            Err(RowValueError::Row(Delivery::Reject { problem })) => assert_eq!(problem.code, code),
            other => panic!("{payload}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn two_messages_about_one_record_do_not_go_together() {
    let records = records(&settings(&[("A", "a")]), None);
    let rows = [
        message("M-1", "{}"),
        message("m-1", "{}"),
        message(" M-2", "{}"),
        message("M-1", "{}"),
        message("M-3", "{}"),
    ];
    let gathered = records.select(&rows).await.unwrap();
    assert_eq!(gathered.chosen, [0, 4]);
    assert_eq!(gathered.left_out[0], (1, Delivery::Held));
    assert!(matches!(gathered.left_out[1], (2, Delivery::Reject { .. })));
    assert_eq!(gathered.left_out[2], (3, Delivery::Held));
}

#[tokio::test]
async fn fresh_rows_replace_the_payload() {
    let fresh = json!({"ID": "M-1", "LAST_NAME": "Doe", "age": 7, "ok": false, "note": null});
    let columns = [
        ("LastName", "last_name"),
        ("Age__c", "age"),
        ("Ok__c", "ok"),
        ("Note__c", "note"),
        ("Family__c", "payload:/familyId"),
    ];
    let records = records(&settings(&columns), Some(TestTable(Ok(vec![("M-1", fresh)]))));
    let rows = [message("M-1", r#"{"id": "M-1", "last_name": "old", "familyId": "F-1"}"#)];
    let gathered = records.select(&rows).await.unwrap();
    let mut cells = Vec::new();
    records.cells(&rows[0], &gathered, &mut cells).unwrap();
    let expected = [
        Cell::Text("Doe".into()),
        Cell::Plain("7".into()),
        Cell::Plain("false".into()),
        Cell::Null,
        Cell::Text("F-1".into()),
    ];
    assert_eq!(cells, expected);
}

#[tokio::test]
async fn a_row_that_was_deleted_is_rejected_or_skipped() {
    let mut settings = settings(&[("A", "a")]);
    let rows = [message("M-1", "{}"), message("M-2", "{}")];
    let table = || Some(TestTable(Ok(vec![("M-2", json!({"a": 1}))])));
    let gathered = records(&settings, table()).select(&rows).await.unwrap();
    assert_eq!(gathered.chosen, [1]);
    let [(0, Delivery::Reject { problem })] = gathered.left_out.as_slice() else {
        panic!("{gathered:?}")
    };
    assert_eq!(problem.code, "ROW_MISSING");
    settings.on_missing = OnMissing::Skip;
    let gathered = records(&settings, table()).select(&rows).await.unwrap();
    assert_eq!(gathered.left_out, [(0, Delivery::Accepted)]);
}

#[tokio::test]
async fn an_invalid_row_uses_an_attempt_and_the_others_are_sent() {
    let rows = [message("M-1", "{}"), message("M-2", "{}"), message("M-3", "{}")];
    let table = TestTable(Ok(vec![
        ("M-1", json!({"a": 1})),
        ("M-2", json!("division by zero in \"M-2\"")),
        ("M-3", json!({"a": 3})),
    ]));
    let records = records(&settings(&[("A", "a")]), Some(table));
    let gathered = records.select(&rows).await.unwrap();
    assert_eq!(gathered.chosen, [0, 2]);
    let [(1, Delivery::Retry { problem, .. })] = gathered.left_out.as_slice() else {
        panic!("{gathered:?}")
    };
    assert_eq!(problem.code, "HYDRATE_FAILED");
    assert!(problem.message.contains("M-2"), "{problem:?}");
}

#[tokio::test]
async fn a_row_older_than_its_message_waits_and_a_newer_one_goes() {
    let mut settings = settings(&[("A", "a")]);
    settings.version = Some("v".into());
    let fresh = |version: Value| json!({"a": 1, "v": version});
    let table = TestTable(Ok(vec![
        ("older", fresh(json!(6))),
        ("same", fresh(json!("7"))),
        ("newer", fresh(json!(8))),
        ("unknown", fresh(Value::Null)),
        ("unasked", fresh(Value::Null)),
    ]));
    let records = records(&settings, Some(table));
    let rows = [
        message("older", r#"{"version": 7}"#),
        message("same", r#"{"asOfVersion": 7}"#),
        message("newer", r#"{"version": "7"}"#),
        message("unknown", r#"{"version": 7}"#),
        message("unasked", r#"{"id": "x"}"#),
    ];
    let gathered = records.select(&rows).await.unwrap();
    assert_eq!(gathered.chosen, [1, 2, 4]);
    let [(0, Delivery::Retry { problem: stale, .. }), (3, Delivery::Reject { problem: unread })] =
        gathered.left_out.as_slice()
    else {
        panic!("{gathered:?}")
    };
    assert_eq!((stale.code.as_str(), unread.code.as_str()), ("STALE_READ", "VERSION_UNREADABLE"));
}

#[tokio::test]
async fn a_column_the_query_does_not_give_stops_everything_and_no_row() {
    let records = records(
        &settings(&[("A", "a"), ("B", "b")]),
        Some(TestTable(Ok(vec![("M-1", json!({"a": 1}))]))),
    );
    let rows = [message("M-1", "{}")];
    let gathered = records.select(&rows).await.unwrap();
    match records.cells(&rows[0], &gathered, &mut Vec::new()) {
        Err(RowValueError::Settings(failure)) => {
            assert_eq!(failure.problem.code, "COLUMN_MISSING");
            assert!(failure.problem.message.contains("`b`"));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_unavailable_database_uses_no_attempt() {
    let failed = |error: fn() -> StoreError| async move {
        let records = records(&settings(&[("A", "a")]), Some(TestTable(Err(error))));
        records.select(&[message("M-1", "{}")]).await.unwrap_err()
    };
    let away = failed(|| StoreError::unavailable("refused")).await;
    assert_eq!((away.class, away.problem.code.as_str()), (Class::Down, "DATABASE_AWAY"));
    let wrong = failed(|| StoreError::invalid("no such table")).await;
    assert_eq!((wrong.class, wrong.problem.code.as_str()), (Class::Settings, "HYDRATE_FAILED"));
}
