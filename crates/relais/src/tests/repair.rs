//! Reprocessing of `SERDE_ERROR` rows.

use std::ops::ControlFlow;

use relais_core::{
    extract::{Incoming, Value},
    inbox::InboxRow,
    inspect::InspectExt,
    query::PAGE_MAX,
};

use super::support::Bench;
use crate::repair::{
    self, DeclaredSource, Decoder, Fix, Identity, Mapping, Mode, Pick, RepairOutcome, RepairPlan,
    RepairReport, RepairSummary, SerdeErrors,
};

fn mapping(decoder: Decoder) -> Mapping {
    Mapping::json("crm")
        .decoder(decoder)
        .message_id(Pick::Payload("/id".into()))
        .event_type(Pick::Payload("/type".into()))
        .aggregate_id(Pick::Payload("/of".into()))
}

fn declared(decoder: Decoder) -> Vec<DeclaredSource> {
    vec![DeclaredSource { topics: vec!["hook".into()], mapping: mapping(decoder), schemas: None }]
}

/// Returns JSON behind a schema number.
fn framed(json: &str) -> Vec<u8> {
    [b"\0\0\0\0\x01", json.as_bytes()].concat()
}

/// Receives these bytes from a source that declares JSON.
async fn receive(bench: &Bench, bodies: &[Vec<u8>]) {
    let read = |body: &Vec<u8>| {
        let value = Value::Bytes(body.clone());
        let incoming = Incoming { topic: "hook".into(), value, ..Incoming::default() };
        mapping(Decoder::Json).read(incoming).unwrap()
    };
    bench.store.accept(bodies.iter().map(read).collect(), Vec::new()).await.unwrap();
}

async fn find(bench: &Bench, id: i64) -> InboxRow {
    bench.store.find_inbox(id.to_string()).await.unwrap().unwrap()
}

async fn all(
    bench: &Bench,
    plan: &RepairPlan,
    rows_max: usize,
) -> (RepairSummary, Vec<RepairReport>) {
    let (mut reports, sources) = (Vec::new(), declared(Decoder::ConfluentJson));
    let store = bench.store.as_ref();
    let summary = repair::all(store, &sources, SerdeErrors::default(), plan, rows_max, |report| {
        reports.push(report);
        ControlFlow::Continue(())
    });
    (summary.await.unwrap(), reports)
}

async fn one(bench: &Bench, id: i64, plan: &RepairPlan) -> RepairOutcome {
    let sources = declared(Decoder::Json);
    let row = find(bench, id).await;
    repair::row(bench.store.as_ref(), &sources, &row, plan).await.unwrap().outcome
}

fn plan(fix: Fix) -> RepairPlan {
    RepairPlan { fix, ..RepairPlan::new("ann", "typo") }
}

fn statuses(bench: &Bench) -> Vec<String> {
    bench.texts("SELECT message_id || ' ' || status FROM relais_inbox ORDER BY id")
}

#[tokio::test]
async fn a_new_configuration_repairs_what_it_can_and_reports_the_rest() {
    let bench = Bench::new().await;
    receive(&bench, &[framed(r#"{"id":"m-1"}"#), b"{oops".into(), framed(r#"{"id":"m-2"}"#)]).await;
    let dry_run = RepairPlan { mode: Mode::Try, ..RepairPlan::new("ann", "typo") };
    let before = statuses(&bench);
    let (tried, expected) = all(&bench, &dry_run, 10).await;
    assert_eq!((statuses(&bench), tried.repaired, tried.unreadable), (before, 2, 1));
    let (done, reports) = all(&bench, &RepairPlan::new("ann", "typo"), 10).await;
    assert_eq!((done, &reports), (tried, &expected), "as the dry run reported");
    assert_eq!(reports.iter().map(|r| r.row).collect::<Vec<_>>(), [1, 2, 3], "oldest first");
    let RepairOutcome::Unreadable { problem, readable_by } = &reports[1].outcome else {
        panic!("{reports:?}")
    };
    assert_eq!(problem.code, "WRONG_MAGIC_BYTE");
    assert_eq!(*readable_by, ["text", "bytes"]);
    let now = statuses(&bench);
    assert_eq!((now[0].as_str(), now[2].as_str()), ("m-1 RECEIVED", "m-2 RECEIVED"));
    assert!(now[1].ends_with("SERDE_ERROR"));
    assert_eq!(
        bench.texts("SELECT actor || ' ' || target || ': ' || reason FROM relais_audit"),
        ["ann 1: typo (decoder confluent-json)", "ann 3: typo (decoder confluent-json)"]
    );
}

#[tokio::test]
async fn more_than_a_page_is_repaired_and_a_limit_holds() {
    let bench = Bench::new().await;
    let bodies: Vec<_> = (0..PAGE_MAX + 20).map(|n| framed(&format!("{{\"id\":{n}}}"))).collect();
    receive(&bench, &bodies).await;
    let (some, _) = all(&bench, &RepairPlan::new("ann", ""), 5).await;
    assert_eq!(some.rows(), 5);
    let (rest, reports) = all(&bench, &RepairPlan::new("ann", ""), usize::MAX).await;
    assert_eq!((rest.repaired, rest.rows()), (PAGE_MAX as u64 + 15, PAGE_MAX as u64 + 15));
    assert!(reports.is_sorted_by_key(|report| report.row));
}

#[tokio::test]
async fn the_caller_may_stop_a_repair() {
    let bench = Bench::new().await;
    receive(&bench, &[framed("{\"id\":1}"), framed("{\"id\":2}")]).await;
    let (sources, plan) = (declared(Decoder::ConfluentJson), RepairPlan::new("ann", ""));
    let store = bench.store.as_ref();
    let stop = |_| ControlFlow::Break(());
    let done = repair::all(store, &sources, SerdeErrors::default(), &plan, 10, stop).await.unwrap();
    assert_eq!(done.rows(), 1);
    assert!(statuses(&bench)[1].ends_with("SERDE_ERROR"));
}

#[tokio::test]
async fn a_payload_of_an_operator_is_checked_decoded_and_recorded() {
    let bench = Bench::new().await;
    receive(&bench, &[br#"{"id":"m-1","type":"Joined","of":7"#.to_vec()]).await;
    let wrong = one(&bench, 1, &plan(Fix::Payload(b"{\n  \"id\": }".into()))).await;
    let RepairOutcome::Unreadable { problem, readable_by } = wrong else { panic!("{wrong:?}") };
    assert!(problem.message.contains("line 2 column 9"), "names the place: {problem:?}");
    assert!(readable_by.is_empty(), "a decoder would not help");
    let payload = br#"{"id":"m-1","type":"Joined","of":7}"#;
    let outcome = one(&bench, 1, &plan(Fix::Payload(payload.to_vec()))).await;
    let RepairOutcome::Repaired { message_id, identity, key, event_type } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!((message_id.as_str(), identity), ("m-1", Identity::Promised));
    assert_eq!((key.as_str(), event_type.as_deref()), ("7", Some("Joined")));
    let reasons = bench.texts("SELECT reason FROM relais_audit");
    assert_eq!(reasons, ["typo (payload written by hand)"]);
    let again = one(&bench, 1, &plan(Fix::Payload(payload.to_vec()))).await;
    assert!(matches!(again, RepairOutcome::Refused { status: Some(_) }), "{again:?}");
}

#[tokio::test]
async fn a_conflict_is_not_changed_and_can_get_its_own_id() {
    let bench = Bench::new().await;
    receive(&bench, &[br#"{"id":"m-1"}"#.to_vec(), framed(r#"{"id":"m-1","other":true}"#)]).await;
    let by_decoder = plan(Fix::Decoder(Decoder::ConfluentJson));
    let outcome = one(&bench, 2, &by_decoder).await;
    assert_eq!(outcome, RepairOutcome::Conflict { message_id: "m-1".into(), with: 1 });
    let outcome = one(&bench, 2, &RepairPlan { identity: Identity::Own, ..by_decoder }).await;
    assert!(
        matches!(&outcome, RepairOutcome::Repaired { identity: Identity::Own, .. }),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_row_without_its_source_is_reported() {
    let bench = Bench::new().await;
    receive(&bench, &[b"{oops".to_vec()]).await;
    let (row, plan) = (find(&bench, 1).await, RepairPlan::new("ann", ""));
    let report = repair::row(bench.store.as_ref(), &[], &row, &plan).await.unwrap();
    let RepairOutcome::Unreadable { problem, .. } = report.outcome else { panic!("{report:?}") };
    assert_eq!(problem.code, "NO_SOURCE");
}
