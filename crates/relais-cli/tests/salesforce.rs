//! The program with Salesforce: configuration, members in the database, an org.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

// Each of these files uses its part of them.
#[allow(dead_code)]
#[path = "support/org.rs"]
mod org;
#[allow(dead_code)]
mod support;

use std::net::TcpListener;

use salesforce_sim::{
    AuthConfig, Faults, SimulatorConfig,
    faults::{HttpAction, HttpFault, LimitSettings, Pattern, RowFault},
};

use org::{Base, Org, fault, members_created, settings, until};
use support::{Running, Site, get, post};

/// Posts an event to the source; it must be taken.
fn send(running: &Running, id: &str, body: &str) {
    let headers = [("content-type", "application/json"), ("message-id", id)];
    let (status, answer) = post(running.address("hook"), "/hook", &headers, body);
    assert_eq!(status, 202, "{answer}");
}

/// `relais status` must know the address before the process starts.
fn admin() -> String {
    let listen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    format!("[admin]\nlisten = \"{listen}\"\n")
}

#[test]
fn members_become_contacts_once_whatever_the_api() {
    for api in ["bulk-v2", "collections", "auto"] {
        for (site, base) in Base::all(&Site::new) {
            let org = Org::with(Faults::default());
            base.members(300);
            site.write("relais.toml", &settings(&base, &org, api, ""));
            let running = site.run();
            let event = members_created(1..=300, 1);
            send(&running, "e-1", &event);
            send(&running, "e-1", &event);
            until(|| base.outbox("DISPATCHED") == 300);
            let said = running.stop();
            assert_eq!(said.code, 0, "{said:?}");
            org.assert_once("Contact", 300);
            let one = org.record("Contact", "M-7");
            assert_eq!(one["LastName"], "Doe \"7\"", "{api}");
            assert_eq!(
                (&one["Email"], &one["Family__c"]),
                (&"m7@example.com".into(), &"F-1".into())
            );
            // `auto` has few rows here, so it makes no job.
            assert_eq!(org.jobs("JobComplete") > 0, api == "bulk-v2", "{api}");
            assert_eq!(org.jobs("Open"), 0, "{api}");
        }
    }
}

#[test]
fn many_waiting_rows_go_in_a_job_by_themselves() {
    let site = Site::new();
    let base = Base::Sqlite(site.path("relais.db"));
    let org = Org::with(Faults::default());
    base.members(3_000);
    site.write("relais.toml", &settings(&base, &org, "auto", ""));
    let running = site.run();
    send(&running, "e-1", &members_created(1..=3_000, 1));
    until(|| base.outbox("DISPATCHED") == 3_000);
    drop(running);
    org.assert_once("Contact", 3_000);
    assert!(org.jobs("JobComplete") > 0);
}

#[test]
fn an_update_sends_the_current_row_of_the_database() {
    for (site, base) in Base::all(&Site::new) {
        let org = Org::with(Faults::default());
        base.members(2);
        site.write("relais.toml", &settings(&base, &org, "auto", ""));
        let running = site.run();
        send(&running, "e-1", &members_created(1..=2, 1));
        until(|| base.outbox("DISPATCHED") == 2);
        base.execute(
            "UPDATE members SET last_name = 'Smith', email = NULL, version = 3 WHERE id = 'M-1'",
        );
        send(&running, "e-2", &members_created(1..=1, 2));
        until(|| base.outbox("DISPATCHED") == 3);
        // Older than what was seen: no message comes of it.
        send(&running, "e-3", &members_created(1..=1, 1));
        until(|| {
            base.texts("SELECT message_id FROM relais_inbox WHERE status = 'PROCESSED'").len() == 3
        });
        assert_eq!(running.stop().code, 0);
        let one = org.record("Contact", "M-1");
        assert_eq!((&one["LastName"], one["Email"].is_null()), (&"Smith".into(), true));
        assert_eq!(org.ledger().entry("Contact", "M-1").unwrap().writes, 2);
        assert_eq!(base.texts("SELECT event_type FROM relais_outbox").len(), 3);
    }
}

#[test]
fn a_deleted_member_is_a_dead_letter_or_skipped() {
    for (more, dispatched) in [("", 1), ("on_missing = \"skip\"\n", 2)] {
        let site = Site::new();
        let base = Base::Sqlite(site.path("relais.db"));
        let org = Org::with(Faults::default());
        base.members(1);
        site.write("relais.toml", &settings(&base, &org, "bulk-v2", more));
        let running = site.run();
        send(&running, "e-1", &members_created(1..=2, 1));
        until(|| base.outbox("PENDING") == 0 && base.outbox("DISPATCHED") > 0);
        drop(running);
        assert_eq!(base.outbox("DISPATCHED"), dispatched);
        let dead = base.texts("SELECT error_code FROM relais_outbox WHERE status = 'FAILED'");
        assert_eq!(dead, vec!["ROW_MISSING"; 2 - dispatched]);
        org.assert_once("Contact", 1);
    }
}

#[test]
fn wrong_credentials_stop_the_lane_and_status_shows_the_error() {
    for api in ["bulk-v2", "collections"] {
        for (site, base) in Base::all(&Site::new) {
            let auth =
                AuthConfig { client_secret: Some("the right one".into()), ..AuthConfig::default() };
            let org = Org::start(SimulatorConfig { auth, ..SimulatorConfig::default() });
            base.members(5);
            let wrong = settings(&base, &org, api, "") + &admin();
            site.write("relais.toml", &wrong);
            let running = site.run();
            send(&running, "e-1", &members_created(1..=5, 1));
            let destination = || site.json(&["status"])["destinations"][0].clone();
            until(|| destination()["guards"]["breaker"] == "open");
            let reason = destination()["guards"]["reason"].clone();
            assert!(reason["code"].as_str().unwrap().starts_with("invalid_client"), "{reason}");
            let text = site.relais(&["status"]).out;
            let why = "HTTP:SFDC:BulkV2:Contact is unavailable";
            assert!(text.contains(why) && text.contains(": invalid_client"), "{text}");
            assert!(!text.contains("hush-hush"), "{text}");
            let said = running.stop();
            assert!(!said.err.contains("hush-hush"), "{said:?}");
            assert!(said.err.contains("target is unavailable"), "{said:?}");
            let left = "SELECT status FROM relais_outbox WHERE status = 'PENDING' AND attempts = 0";
            assert_eq!(base.texts(left).len(), 5, "no attempts are used");
            assert!(org.ledger().is_empty());

            site.write("relais.toml", &wrong.replace("hush-hush", "the right one"));
            let running = site.run();
            until(|| base.outbox("DISPATCHED") == 5);
            assert_eq!(running.stop().code, 0);
            org.assert_once("Contact", 5);
        }
    }
}

#[test]
fn a_wrong_configuration_stops_the_lane_and_loses_nothing() {
    let site = Site::new();
    let base = Base::Sqlite(site.path("relais.db"));
    let org = Org::with(Faults::default());
    base.members(3);
    let good = settings(&base, &org, "bulk-v2", "") + &admin();
    site.write("relais.toml", &good.replace("FirstName", "NoSuchColumn__c"));
    let running = site.run();
    send(&running, "e-1", &members_created(1..=3, 1));
    until(|| site.relais(&["status"]).out.contains("Contact is unavailable"));
    let text = site.relais(&["status"]).out;
    assert!(text.contains("NoSuchColumn__c"), "{text}");
    assert_eq!(running.stop().code, 0);
    let spared = "SELECT status FROM relais_outbox WHERE status = 'PENDING' AND attempts = 0";
    assert_eq!((base.texts(spared).len(), org.ledger().len()), (3, 0));
    site.write("relais.toml", &good);
    let running = site.run();
    until(|| base.outbox("DISPATCHED") == 3);
    drop(running);
    org.assert_once("Contact", 3);
}

#[test]
fn an_org_that_throttles_costs_time_and_no_attempts() {
    for api in ["bulk-v2", "collections"] {
        for (site, base) in Base::all(&Site::new) {
            let slow = |action| HttpFault {
                path: Pattern::new("services/data").unwrap(),
                times: Some(2),
                retry_after: Some(1),
                action,
                ..HttpFault::default()
            };
            let http = vec![slow(HttpAction::Throttled), slow(HttpAction::Unavailable)];
            let org = Org::with(Faults { http, ..Faults::default() });
            base.members(20);
            site.write("relais.toml", &settings(&base, &org, api, ""));
            let running = site.run();
            send(&running, "e-1", &members_created(1..=20, 1));
            until(|| base.outbox("DISPATCHED") == 20);
            drop(running);
            org.assert_once("Contact", 20);
            let tried = "SELECT event_type FROM relais_outbox WHERE attempts <> 1";
            assert!(base.texts(tried).is_empty(), "{api}");
        }
    }
}

#[test]
fn rows_that_fail_and_replies_that_are_lost_leave_each_contact_once() {
    for (site, base) in Base::all(&Site::new) {
        let rows = vec![
            RowFault {
                key: Pattern::new("7$").unwrap(),
                times: Some(2),
                code: "UNABLE_TO_LOCK_ROW".into(),
                ..RowFault::default()
            },
            RowFault {
                key: Pattern::new("^M-13$").unwrap(),
                code: "FIELD_CUSTOM_VALIDATION_EXCEPTION".into(),
                message: "not this one".into(),
                ..RowFault::default()
            },
        ];
        let lost = |method: &str, path: &str| HttpFault {
            times: Some(1),
            ..fault(method, path, HttpAction::DropAfter)
        };
        let http = vec![
            lost("POST", "jobs/ingest$"),
            lost("PUT", "batches$"),
            lost("PATCH", "jobs/ingest/"),
            lost("GET", "jobs/ingest/[^/]+$"),
            lost("GET", "failedResults"),
        ];
        let org = Org::with(Faults { rows, http, ..Faults::default() });
        base.members(200);
        site.write("relais.toml", &settings(&base, &org, "bulk-v2", ""));
        let running = site.run();
        send(&running, "e-1", &members_created(1..=200, 1));
        until(|| base.outbox("PENDING") == 0 && base.outbox("DISPATCHED") == 199);
        until(|| org.jobs("Open") == 0);
        assert_eq!(running.stop().code, 0);
        org.assert_once("Contact", 199);
        let dead = base.texts("SELECT aggregate_id FROM relais_outbox WHERE status = 'FAILED'");
        assert_eq!(dead, ["M-13"]);
    }
}

#[test]
fn the_budget_of_the_org_shows_in_status_and_metrics() {
    let site = Site::new();
    let base = Base::Sqlite(site.path("relais.db"));
    let limits = LimitSettings { api_spent: 420, ..LimitSettings::default() };
    let org = Org::with(Faults { limits, ..Faults::default() });
    base.members(1);
    let limits = "[destination.limits]\nrate = \"50/s\"\n";
    site.write("relais.toml", &(settings(&base, &org, "collections", "") + limits + &admin()));
    let running = site.run();
    send(&running, "e-1", &members_created(1..=1, 1));
    until(|| base.outbox("DISPATCHED") == 1);
    // What a running relais says of itself is a few seconds old.
    let status = || site.json(&["status"])["destinations"][0].clone();
    until(|| status()["guards"]["calls"]["used"].is_u64());
    let status = status();
    let used = status["guards"]["calls"]["used"].as_u64().unwrap();
    assert!(used > 420 && used < 440, "{status}");
    assert_eq!(
        (&status["guards"]["calls"]["limit"], &status["rate"]),
        (&100_000.into(), &"50/s".into())
    );
    let (_, metrics) = get(running.logged("admin http://"), "/metrics");
    let line = "relais_api_calls_limit{destination=\"HTTP:SFDC:BulkV2:Contact\"} 100000";
    assert!(metrics.contains(line), "{metrics}");
    let shown = site.relais(&["status"]).out;
    assert!(shown.contains(&format!("{used} of 100000")) && shown.contains("closed"), "{shown}");
    drop(running);
    let shown = site.json(&["status"]);
    assert!(shown["destinations"][0]["guards"].is_null(), "{shown}");
}

#[test]
fn an_open_job_shows_in_status() {
    let site = Site::new();
    let base = Base::Sqlite(site.path("relais.db"));
    let mut faults = Faults::default();
    faults.bulk.manual = true;
    let org = Org::with(faults);
    base.members(4);
    site.write("relais.toml", &settings(&base, &org, "bulk-v2", ""));
    let running = site.run();
    send(&running, "e-1", &members_created(1..=4, 1));
    until(|| site.json(&["status"])["bulk_jobs"][0]["phase"] == "CLOSED");
    let text = site.relais(&["status"]).out;
    assert!(text.contains("BULK JOB") && text.contains("CLOSED"), "{text}");
    org.set_faults(Faults::default());
    until(|| base.outbox("DISPATCHED") == 4);
    assert_eq!(site.json(&["status"])["bulk_jobs"], serde_json::json!([]));
    drop(running);
}

#[test]
fn check_asks_the_database_whether_the_query_can_be_asked() {
    for (site, base) in Base::all(&Site::new) {
        let org = Org::with(Faults::default());
        let good = settings(&base, &org, "auto", "");
        site.write("relais.toml", &good);
        assert_eq!(site.relais(&["migrate"]).code, 0);
        let said = site.relais(&["check"]);
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.out.contains("destination[HTTP:SFDC:BulkV2:Contact].hydrate: "), "{said:?}");
        assert!(said.out.contains("members"), "{said:?}");
        assert_eq!(site.relais(&["check", "--offline"]).code, 0);
        base.members(1);
        let said = site.relais(&["check"]);
        assert_eq!(said.code, 0, "{said:?}");
        assert!(said.out.contains("upserts Contact by ExternalId__c"), "{said:?}");
        assert!(!said.out.contains("hush-hush"), "{said:?}");
        let absent = good.replace("LastName = \"last_name\"", "LastName = \"no_such\"");
        site.write("relais.toml", &absent);
        let said = site.relais(&["check"]);
        assert_eq!(said.code, 1, "{said:?}");
        assert!(
            said.out.contains("`hydrate` gives no column `no_such`; it gives id, "),
            "{said:?}"
        );
        site.write("relais.toml", &good.replace("IN (:ids)", "= 1"));
        let said = site.relais(&["check"]);
        assert!(said.out.contains("exactly as `… IN (:ids)`"), "{said:?}");
    }
}
