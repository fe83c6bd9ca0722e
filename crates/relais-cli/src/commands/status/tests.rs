//! The texts of `relais status` about waiting rows and jobs.

use relais_core::{
    bulk::{BulkJob, Phase},
    query::{Backlog, Count, FailingRow, Overview},
    time::Timestamp,
};
use uuid::Uuid;

use super::{DestinationStatus, Status, guards::DestinationGuards, show};
use crate::output::Output;

fn status(guards: Option<DestinationGuards>, bulk_jobs: Vec<BulkJob>) -> Status {
    let overview = Overview {
        now: Timestamp(60_000_000),
        schema_version: 1,
        inbox: Vec::new(),
        inbox_oldest: None,
        inbox_parked: 0,
        outbox: Vec::new(),
        backlogs: Vec::new(),
        dead_letters_open: 0,
        parked_keys: 0,
        processes: Vec::new(),
        processes_need_operator: 0,
        timers_due: 0,
        unknown_types: Vec::new(),
        unserved_inboxes: Vec::new(),
        workers: Vec::new(),
    };
    let backlog = Backlog { destination: "contacts".into(), pending: 7, ..Backlog::default() };
    let destination = DestinationStatus {
        backlog,
        defined: true,
        external: false,
        rate: None,
        guards,
        conflict: None,
    };
    Status {
        store: "sqlite:relais.db".into(),
        database: "SQLite".into(),
        overview,
        destinations: vec![destination],
        handlers: Vec::new(),
        guards_unknown: None,
        bulk_jobs,
        paused: Vec::new(),
    }
}

fn job(owner: Option<&str>, phase: Phase, error: Option<&str>) -> BulkJob {
    BulkJob {
        id: Uuid::nil(),
        destination: "contacts".into(),
        remote_id: Some("750x".into()),
        phase,
        row_count: 7,
        owner: owner.map(str::to_owned),
        epoch: 1,
        created_at: Timestamp(0),
        finished_at: None,
        error_message: error.map(str::to_owned),
    }
}

fn printed(status: &Status) -> String {
    let output = Output { json: false, color: false, terminal: false, width: None };
    show(&output, status, &[], &[])
}

/// Returns the report of a destination whose breaker is open.
fn unavailable() -> DestinationGuards {
    let json = r#"{"breaker": "open", "cause": "throttled", "open_until": "2026-11-17T09:00:00Z",
                   "reason": {"code": "REQUEST_LIMIT_EXCEEDED", "message": "TotalRequests Limit exceeded"},
                   "calls": null}"#;
    serde_json::from_str(json).unwrap()
}

#[test]
fn a_bulk_job_of_an_unavailable_destination_shows_cause_and_time() {
    let text = printed(&status(Some(unavailable()), vec![job(Some("w"), Phase::Uploading, None)]));
    let why = "is unavailable, breaker open until 2026-11-17T09:00:00Z (throttled): \
               REQUEST_LIMIT_EXCEEDED: TotalRequests Limit exceeded";
    assert!(text.contains(&format!("\nbulk job of contacts {why}\n")), "{text}");
    assert!(text.contains(&format!("\ncontacts {why}\n")), "the destination shows it too: {text}");
}

#[test]
fn a_bulk_job_without_a_worker_shows_the_next_step_and_the_last_error() {
    let stuck = job(None, Phase::Uploading, Some("upload: connection reset"));
    let text = printed(&status(None, vec![stuck]));
    let expected = "bulk job of contacts waits for a worker; a running relais continues it within one lease; \
                    last error: upload: connection reset";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_bulk_job_in_progress_shows_where() {
    let text = printed(&status(None, vec![job(Some("w"), Phase::Closed, None)]));
    assert!(text.contains("bulk job of contacts is in progress at the target"), "{text}");
    let text = printed(&status(None, vec![job(Some("w"), Phase::Uploading, None)]));
    assert!(text.contains("bulk job of contacts is in progress at its worker"), "{text}");
}

#[test]
fn rows_of_a_subscriber_without_a_worker_are_shown() {
    let mut status = status(None, Vec::new());
    status.overview.unserved_inboxes = vec![Count { name: "@search".into(), rows: 2 }];
    let text = printed(&status);
    assert!(text.contains("2 wait in inbox @search, which no worker serves"), "{text}");
}

#[test]
fn a_failing_key_is_shown_beside_healthy_ones() {
    let mut status = status(None, Vec::new());
    assert!(!printed(&status).contains("failing;"));
    let backlog = &mut status.destinations[0].backlog;
    backlog.failing_keys = 1;
    backlog.failing = Some(FailingRow {
        id: 17,
        msg_key: "c-17\u{1b}[2J".into(),
        since: Timestamp(-120_000_000),
        attempts: 4,
        next_attempt_at: Some(Timestamp(65_000_000)),
        error_code: Some("HTTP_500".into()),
        error_message: Some("answered 500".into()),
    });
    let text = printed(&status);
    assert!(text.contains("FAILING"), "{text}");
    let line = "contacts: 1 key is failing; oldest: outbox row 17 (key c-17\\u{1b}[2J), for 3m, \
                4 attempts used, next in 5s: HTTP_500: answered 500\n";
    assert!(text.contains(line), "{text}");
    let json = serde_json::to_value(&status).unwrap();
    assert_eq!(json["destinations"][0]["failing"]["attempts"], 4, "{json}");
    assert_eq!(json["destinations"][0]["failing_keys"], 1, "{json}");
}
