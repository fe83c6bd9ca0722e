//! Results in every order and format, and truncated results.

use std::time::Duration;

use relais_core::{
    bulk::{BulkTarget, Remote},
    delivery::Delivery,
};
use salesforce_sim::{
    Faults,
    faults::{EmptyResults, HttpAction, HttpFault, JobFault, Pattern, ResultSettings, RowFault},
};

use crate::common::{
    bulk, calls, code, ended, failing, http_fault, ids, kind, members, once, send, simulator,
    split, start,
};

fn some_rows_fail() -> Vec<RowFault> {
    vec![RowFault {
        key: Pattern::new("[13579]$").unwrap(),
        code: "REQUIRED_FIELD_MISSING".into(),
        message: "Required fields are missing: [X, \"Y\"]".into(),
        fields: vec!["X".into()],
        ..RowFault::default()
    }]
}

#[tokio::test]
async fn shuffled_and_repeated_results_are_matched_by_external_id() {
    let results = ResultSettings {
        shuffle_rows: true,
        shuffle_columns: true,
        repeat: Some(Pattern::new("[05]$").unwrap()),
        ..ResultSettings::default()
    };
    let sim = simulator(Faults { results, rows: some_rows_fail(), ..Faults::default() }).await;
    let answers = send(&bulk(&sim), &members(500)).await;
    for (n, answer) in answers.iter().enumerate() {
        let expected = if n % 2 == 0 { "accepted" } else { "REQUIRED_FIELD_MISSING" };
        assert_eq!(code(answer), expected, "M-{n}");
    }
}

#[tokio::test]
async fn results_without_rows_have_three_forms() {
    for empty in [EmptyResults::Header, EmptyResults::NoContent, EmptyResults::Body] {
        let results = ResultSettings { empty, ..ResultSettings::default() };
        let sim = simulator(Faults { results, ..Faults::default() }).await;
        assert_eq!(send(&bulk(&sim), &members(3)).await, vec![Delivery::Accepted; 3]);
    }
}

#[tokio::test]
async fn rows_in_no_result_have_an_unknown_outcome() {
    let fault = JobFault { missing: Some(Pattern::new("^M-1$").unwrap()), ..JobFault::default() };
    let sim = simulator(Faults { jobs: vec![fault], ..Faults::default() }).await;
    let answers = send(&bulk(&sim), &members(3)).await;
    assert_eq!((&answers[0], &answers[2]), (&Delivery::Accepted, &Delivery::Accepted));
    assert_eq!(code(&answers[1]), "RESULT_MISSING");
    assert!(matches!(answers[1], Delivery::Retry { .. }));
}

#[tokio::test]
async fn rows_settled_earlier_are_ignored() {
    let sim = simulator(Faults { rows: some_rows_fail(), ..Faults::default() }).await;
    let (bulk, rows) = (bulk(&sim), members(10));
    let id = start(&bulk, &rows).await;
    ended(&bulk, &id).await;
    let answers = bulk.results(&id, &ids(&rows[7..])).await.unwrap();
    let codes: Vec<&str> = answers.iter().map(code).collect();
    assert_eq!(codes, ["REQUIRED_FIELD_MISSING", "accepted", "REQUIRED_FIELD_MISSING"]);
}

fn cut(path: &str, bytes: u64) -> HttpFault {
    HttpFault { bytes: Some(bytes), ..http_fault("GET", path, HttpAction::Truncate) }
}

#[tokio::test]
async fn a_truncated_result_is_read_again() {
    for bytes in [0, 10, 100, 400] {
        let mut faults = failing(vec![once(cut("successfulResults", bytes))]);
        faults.gzip = false;
        let sim = simulator(faults).await;
        assert_eq!(send(&bulk(&sim), &members(50)).await, vec![Delivery::Accepted; 50]);
        assert_eq!(calls(&sim, "successfulResults"), 2, "cut after {bytes}");
    }
}

#[tokio::test]
async fn a_result_that_stays_truncated_settles_nothing() {
    for gzip in [false, true] {
        let mut faults = failing(vec![cut("successfulResults", 60)]);
        faults.gzip = gzip;
        let sim = simulator(faults).await;
        let (bulk, rows) = (bulk(&sim), members(50));
        let id = start(&bulk, &rows).await;
        ended(&bulk, &id).await;
        assert_eq!(kind(bulk.results(&id, &ids(&rows)).await), "unclear");
        sim.set_faults(Faults::default());
        assert_eq!(bulk.results(&id, &ids(&rows)).await.unwrap(), vec![Delivery::Accepted; 50]);
    }
}

#[tokio::test]
async fn a_web_page_instead_of_results_settles_nothing() {
    let page = HttpFault {
        status: Some(200),
        ..once(http_fault("GET", "failedResults", HttpAction::Html))
    };
    let sim = simulator(failing(vec![page])).await;
    let (bulk, rows) = (bulk(&sim), members(5));
    let id = start(&bulk, &rows).await;
    ended(&bulk, &id).await;
    let (kind, problem, _) = split(bulk.results(&id, &ids(&rows)).await);
    assert_eq!((kind, problem.code.as_str()), ("outage", "HTML_PAGE"));
    assert_eq!(bulk.results(&id, &ids(&rows)).await.unwrap(), vec![Delivery::Accepted; 5]);
}

#[tokio::test]
async fn a_job_that_fails_half_way_settles_what_was_done() {
    let fault = JobFault {
        fail_after_rows: Some(200),
        message: Some("TooManyLockFailure : too many".into()),
        ..JobFault::default()
    };
    let sim = simulator(Faults { jobs: vec![fault], ..Faults::default() }).await;
    let (bulk, rows) = (bulk(&sim), members(600));
    let id = start(&bulk, &rows).await;
    assert!(matches!(ended(&bulk, &id).await, Remote::Failed(problem)
        if problem.code == "TooManyLockFailure"));
    let answers = bulk.results(&id, &ids(&rows)).await.unwrap();
    let done = answers.iter().filter(|answer| **answer == Delivery::Accepted).count();
    assert_eq!(done as u64, sim.ledger().writes());
    assert!((200..600).contains(&done));
    for answer in answers.iter().filter(|answer| **answer != Delivery::Accepted) {
        // No attempt is used, and the next job waits.
        assert!(matches!(answer, Delivery::Outage { after: Some(_), .. }), "{answer:?}");
    }
}

#[tokio::test]
async fn a_job_older_than_a_week_no_longer_exists() {
    let sim = simulator(Faults::default()).await;
    let (bulk, rows) = (bulk(&sim), members(2));
    let id = start(&bulk, &rows).await;
    ended(&bulk, &id).await;
    sim.skip(Duration::from_secs(8 * 24 * 60 * 60));
    assert_eq!(bulk.state(&id).await.unwrap(), Remote::Gone);
}
