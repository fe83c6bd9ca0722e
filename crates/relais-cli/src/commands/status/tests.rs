//! The texts of `relais status` about waiting rows and jobs.

use std::time::Duration;

use relais_core::{
    bulk::{BulkJob, Phase},
    control::{Control, ControlKind, LimitChange},
    query::{Backlog, Count, FailingRow, Overview, WorkerRow},
    report::Report,
    time::Timestamp,
};
use uuid::Uuid;

use super::{DestinationStatus, Status, guards::DestinationGuards, lost_workers, show};
use crate::{commands::control::limits, output::Output};

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
        operator_limits: None,
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
        lost_workers: Vec::new(),
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

#[test]
fn limits_of_an_operator_are_shown_with_rate_and_concurrency() {
    let control = |rate, concurrency| Control {
        kind: ControlKind::Destination,
        name: "contacts".into(),
        pause: None,
        limits: LimitChange { rate, concurrency },
        limits_changed: 1,
        breaker_resets: 0,
    };
    let output = Output { json: false, color: false, terminal: false, width: None };
    let second = Duration::from_secs(1);
    for (rate, concurrency, expected) in [
        (None, Some(1), "50/s, 1 at a time"),
        (Some((5, second)), Some(2), "5/s, 2 at a time"),
        (Some((5, second)), None, "5/s"),
        (None, None, "50/s"),
    ] {
        let controls = [control(rate, concurrency)];
        let mut status = status(None, Vec::new());
        let destination = &mut status.destinations[0];
        destination.rate = Some("50/s".to_owned());
        destination.operator_limits = limits(&controls).remove("contacts");
        assert_eq!(destination.limit().as_deref(), Some(expected));
        let json = serde_json::to_value(&status).unwrap();
        let set = &json["destinations"][0]["operator_limits"];
        assert_eq!(set["concurrency"].as_u64(), concurrency.map(u64::from), "{json}");
        let text = show(&output, &status, &[], &controls);
        assert!(text.contains(&format!("  {expected}  ")), "{text}");
        let line = "limited       destination contacts, by an operator: ";
        assert_eq!(text.contains(line), rate.is_some() || concurrency.is_some(), "{text}");
    }
}

#[test]
fn workers_that_were_lost_more_than_ten_minutes_ago_are_left_out() {
    let mut status = status(None, Vec::new());
    status.overview.now = Timestamp(3_600_000_000);
    let worker = |name: &str| WorkerRow {
        scope: "inbox".into(),
        worker: name.to_owned(),
        lanes: 0,
        alive: false,
    };
    status.overview.workers = ["unreported", "old", "new", "new"].map(worker).to_vec();
    let report = |name: &str, seconds_ago: i64| Report {
        worker: name.to_owned(),
        host: "h".to_owned(),
        pid: 1,
        version: "1".to_owned(),
        started_at: Timestamp(0),
        reported_at: Timestamp(status.overview.now.0 - seconds_ago * 1_000_000),
        alive: false,
        figures: String::new(),
    };
    let lost = lost_workers(&status.overview, &[report("old", 601), report("new", 599)]);
    assert_eq!(lost, ["new"]);
    status.lost_workers = lost;
    let text = printed(&status);
    assert!(text.contains("1 worker lost in the last ten minutes (no clean shutdown)"), "{text}");
    status.lost_workers.clear();
    assert!(!printed(&status).contains("lost"));
}

#[test]
fn the_reason_of_a_destination_that_waits_is_whole_on_80_columns() {
    let mut status = status(None, Vec::new());
    status.destinations[0].defined = false;
    status.destinations[0].rate = Some("1000/s".to_owned());
    let output = Output { json: false, color: false, terminal: true, width: Some(80) };
    let text = show(&output, &status, &[], &[]);
    assert!(text.contains("\ncontacts waits: no [[destination]] names it\n"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}
