//! The program with Salesforce and rows that cannot succeed: each concerns itself only, and its error
//! names it.

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
    Faults,
    faults::{HttpAction, HttpFault, JobFault, Pattern, RowFault},
};

use org::{Base, Org, members_created, settings, until};
use support::{Running, Site, post};

/// Posts an event to the source; it must be taken.
fn send(running: &Running, id: &str, body: &str) {
    let headers = [("content-type", "application/json"), ("message-id", id)];
    let (status, answer) = post(running.address("hook"), "/hook", &headers, body);
    assert_eq!(status, 202, "{answer}");
}

/// Few attempts, so that a row that cannot succeed is a dead letter soon.
fn impatient(settings: &str) -> String {
    settings.replace("attempts = 20", "attempts = 3")
}

fn dead(base: &Base) -> Vec<String> {
    base.texts(
        "SELECT aggregate_id || ' ' || error_code || ': ' || error_message FROM relais_outbox \
         WHERE status = 'FAILED' ORDER BY id",
    )
}

#[test]
fn one_bad_business_row_is_a_dead_letter_and_the_others_go() {
    for api in ["bulk-v2", "collections"] {
        for (site, base) in Base::all(&Site::new) {
            let org = Org::with(Faults::default());
            base.members(50);
            // The statement fails for M-7, and finds M-9 twice.
            base.execute(
                "CREATE TABLE twice (id TEXT); INSERT INTO twice SELECT id FROM members; \
                 INSERT INTO twice VALUES ('M-9'); \
                 UPDATE members SET first_name = '{}'; \
                 UPDATE members SET first_name = '{' WHERE id = 'M-7'",
            );
            let json = match &base {
                Base::Sqlite(_) => "json(m.first_name)",
                Base::Postgres(_) => "m.first_name::json::text",
            };
            let hydrate = format!(
                "SELECT m.id, {json} AS first_name, last_name, email, family, version \
                 FROM members m JOIN twice t ON t.id = m.id WHERE m.id IN (:ids)"
            );
            let text = settings(&base, &org, api, "")
                .replace("SELECT * FROM members WHERE id IN (:ids)", &hydrate);
            site.write("relais.toml", &impatient(&text));
            let running = site.run();
            send(&running, "e-1", &members_created(1..=50, 1));
            until(|| base.outbox("DISPATCHED") == 48 && base.outbox("FAILED") == 2);
            assert_eq!(running.stop().code, 0);
            org.assert_once("Contact", 48);
            let dead = dead(&base);
            assert!(dead[0].starts_with("M-7 HYDRATE_FAILED: "), "{dead:?}");
            assert!(dead[0].contains("the id \"M-7\""), "{dead:?}");
            assert!(dead[1].starts_with("M-9 HYDRATE_FAILED: "), "{dead:?}");
            assert!(dead[1].contains("several rows for the id \"M-9\""), "{dead:?}");
        }
    }
}

#[test]
fn a_row_that_fails_its_job_as_a_whole_is_found_by_halving() {
    for (site, base) in Base::all(&Site::new) {
        let poison =
            JobFault { poison: Some(Pattern::new("^Doe \"42\"$").unwrap()), ..JobFault::default() };
        let org = Org::with(Faults { jobs: vec![poison], ..Faults::default() });
        base.members(300);
        site.write("relais.toml", &impatient(&settings(&base, &org, "bulk-v2", "")));
        let running = site.run();
        send(&running, "e-1", &members_created(1..=300, 1));
        until(|| base.outbox("DISPATCHED") == 299 && base.outbox("FAILED") == 1);
        assert_eq!(running.stop().code, 0);
        org.assert_once("Contact", 299);
        let dead = dead(&base);
        assert!(dead[0].starts_with("M-42 InternalServerError: "), "{dead:?}");
    }
}

#[test]
fn an_external_id_arrives_as_it_is_or_is_a_dead_letter_with_its_own_name() {
    for (site, base) in Base::all(&Site::new) {
        let org = Org::with(Faults::default());
        base.members(1);
        let (long, too_long) = ("z".repeat(250), "y".repeat(300));
        base.execute(&format!("UPDATE members SET id = '{long}'"));
        let text = settings(&base, &org, "collections", "")
            + "[[route]]\non = \"FamilyRenamed\"\ndestination = \"HTTP:SFDC:BulkV2:Contact\"\n";
        site.write("relais.toml", &text);
        let running = site.run();
        let event = |ids: &[&str]| {
            serde_json::json!({"type": "MembersCreated", "familyId": "F-1", "memberIds": ids,
                "asOfVersion": 1})
        };
        send(&running, "e-1", &event(&[&long, &too_long]).to_string());
        // Ids that no row can keep: the event is the dead letter, and names them.
        send(&running, "e-2", &event(&["a\0b"]).to_string());
        let unstorable = "x".repeat(1_001);
        send(
            &running,
            "e-3",
            &serde_json::json!({"type": "FamilyRenamed", "familyId": unstorable}).to_string(),
        );
        let refused = "SELECT error_code || ': ' || error_message FROM relais_inbox \
                       WHERE status = 'FAILED' ORDER BY id";
        until(|| base.texts(refused).len() == 2);
        until(|| base.outbox("DISPATCHED") == 1 && base.outbox("FAILED") == 1);
        assert_eq!(running.stop().code, 0);
        org.assert_once("Contact", 1);
        assert_eq!(org.record("Contact", &long)["ExternalId__c"], long.as_str());
        let dead = dead(&base);
        assert!(dead[0].starts_with(&format!("{too_long} EXTERNAL_ID_INVALID: ")), "{dead:?}");
        let refused = base.texts(refused);
        assert!(refused[0].starts_with("AGGREGATE_ID_INVALID: the id \"a\\0b\""), "{refused:?}");
        assert!(refused[1].starts_with("AGGREGATE_ID_INVALID: the id \"xxxx"), "{refused:?}");
    }
}

#[test]
fn one_row_that_spoils_a_collection_of_200_is_a_dead_letter_and_the_others_go() {
    for bad in [1, 137, 200] {
        for (site, base) in Base::all(&Site::new) {
            let org = Org::with(Faults::default());
            base.members(200);
            base.execute(&format!(
                "UPDATE members SET family = '7'; \
                 UPDATE members SET family = 'no number' WHERE id = 'M-{bad}'"
            ));
            // A number field is filled from a text column: the org refuses the whole call.
            let text = settings(&base, &org, "collections", "")
                .replace("Family__c = \"family\", ", "")
                .replace("Version__c = \"version\"", "Version__c = \"family\"");
            site.write("relais.toml", &text);
            let running = site.run();
            send(&running, "e-1", &members_created(1..=200, 1));
            until(|| base.outbox("DISPATCHED") == 199 && base.outbox("FAILED") == 1);
            assert_eq!(running.stop().code, 0);
            org.assert_once("Contact", 199);
            let dead = dead(&base);
            assert!(dead[0].starts_with(&format!("M-{bad} JSON_PARSER_ERROR: ")), "{dead:?}");
            assert!(dead[0].contains("value no number"), "{dead:?}");
        }
    }
}

#[test]
fn a_record_that_is_always_locked_uses_its_attempts_while_others_succeed() {
    for api in ["bulk-v2", "collections", "auto"] {
        for (site, base) in Base::all(&Site::new) {
            let locked = RowFault {
                key: Pattern::new("^M-7$").unwrap(),
                code: "UNABLE_TO_LOCK_ROW".to_owned(),
                message: "unable to obtain exclusive access to this record".to_owned(),
                ..RowFault::default()
            };
            let org = Org::with(Faults { rows: vec![locked], ..Faults::default() });
            base.members(500);
            site.write("relais.toml", &impatient(&settings(&base, &org, api, "")));
            let running = site.run();
            send(&running, "e-0", &members_created(1..=10, 1));
            let mut sent = 10_usize;
            until(|| {
                sent += 1;
                send(&running, &format!("e-{sent}"), &members_created(sent..=sent, 1));
                base.outbox("FAILED") == 1 || sent == 500
            });
            until(|| base.outbox("DISPATCHED") + base.outbox("FAILED") == sent);
            assert_eq!(running.stop().code, 0);
            org.assert_once("Contact", sent - 1);
            let dead = dead(&base);
            assert!(dead[0].starts_with("M-7 UNABLE_TO_LOCK_ROW: "), "{api}: {dead:?}");
        }
    }
}

const EVERY_API: [&str; 4] = ["bulk-v2", "collections", "graph", "auto"];

/// A destination without a query: its messages carry their records.
fn plain(base: &Base, org: &Org, api: &str) -> String {
    let listen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mapping = match api {
        "graph" => "",
        _ => "object = \"Contact\"\ncolumns = { LastName = \"/name\" }\n",
    };
    format!(
        "[store]\nurl = \"{}\"\n[admin]\nlisten = \"{listen}\"\n\
         [[destination]]\nname = \"out\"\nkind = \"salesforce\"\napi = \"{api}\"\n\
         login_url = \"{}\"\nclient_id = \"app\"\nclient_secret = \"hush-hush\"\n{mapping}\
         [destination.bulk]\nlinger = \"100ms\"\npoll_first = \"20ms\"\n",
        base.url(),
        org.url()
    )
}

/// Writes messages about the contacts with these numbers.
fn enqueue(base: &Base, api: &str, contacts: std::ops::RangeInclusive<usize>) {
    let row = |number| {
        let record = match api {
            "graph" => format!(
                r#"[{{"attributes":{{"type":"Contact"}},"ExternalId__c":"K-{number}","LastName":"Doe"}}]"#
            ),
            _ => r#"{"name":"Doe"}"#.to_owned(),
        };
        format!("('Contact', 'K-{number}', 'Changed', 'out', '{record}')")
    };
    let rows: Vec<String> = contacts.map(row).collect();
    base.execute(&format!(
        "INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload) \
         VALUES {}",
        rows.join(", ")
    ));
}

#[test]
fn an_org_that_is_unavailable_makes_no_dead_letter_whatever_the_api() {
    no_dead_letter_during(HttpAction::Unavailable);
}

#[test]
fn an_org_that_answers_500_makes_no_dead_letter_whatever_the_api() {
    no_dead_letter_during(HttpAction::ServerError);
}

#[test]
fn an_org_that_cuts_each_call_makes_no_dead_letter_whatever_the_api() {
    no_dead_letter_during(HttpAction::DropBefore);
}

/// Every call of the API fails this way until the breaker is open.
fn no_dead_letter_during(action: HttpAction) {
    for api in EVERY_API {
        for (site, base) in Base::all(&Site::new) {
            let path = Pattern::new("services/data").unwrap();
            let outage = HttpFault { path, action, ..HttpFault::default() };
            let org = Org::with(Faults { http: vec![outage], ..Faults::default() });
            site.write("relais.toml", &plain(&base, &org, api));
            assert_eq!(site.relais(&["migrate"]).code, 0);
            enqueue(&base, api, 1..=20);
            let running = site.run();
            until(|| site.json(&["status"])["destinations"][0]["guards"]["breaker"] == "open");
            org.set_faults(Faults::default());
            until(|| base.outbox("DISPATCHED") == 20);
            assert_eq!(running.stop().code, 0);
            org.assert_once("Contact", 20);
            let tried = "SELECT event_type FROM relais_outbox WHERE attempts <> 1";
            assert!(base.texts(tried).is_empty(), "{action:?} {api}");
        }
    }
}

#[test]
fn a_locked_record_in_graphs_uses_its_attempts_while_others_succeed() {
    for (site, base) in Base::all(&Site::new) {
        let locked = RowFault {
            key: Pattern::new("^K-7$").unwrap(),
            code: "UNABLE_TO_LOCK_ROW".to_owned(),
            message: "unable to obtain exclusive access to this record".to_owned(),
            ..RowFault::default()
        };
        let org = Org::with(Faults { rows: vec![locked], ..Faults::default() });
        let quick = "[destination.retry]\nattempts = 5\nfirst = \"10ms\"\nmax = \"100ms\"\n";
        site.write("relais.toml", &(plain(&base, &org, "graph") + quick));
        assert_eq!(site.relais(&["migrate"]).code, 0);
        enqueue(&base, "graph", 1..=10);
        let running = site.run();
        let mut sent = 10;
        until(|| {
            sent += 1;
            enqueue(&base, "graph", sent..=sent);
            base.outbox("FAILED") == 1 || sent == 1_000
        });
        until(|| base.outbox("DISPATCHED") + base.outbox("FAILED") == sent);
        assert_eq!(running.stop().code, 0);
        org.assert_once("Contact", sent - 1);
        let dead = dead(&base);
        assert!(dead[0].starts_with("K-7 UNABLE_TO_LOCK_ROW: "), "{dead:?}");
    }
}

/// OUTBOX_MIN without the check of its payload.
fn outbox_min(base: &Base) -> String {
    let id = match base {
        Base::Sqlite(_) => "integer PRIMARY KEY",
        Base::Postgres(_) => "bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
    };
    format!(
        "CREATE TABLE outbox_min (id {id}, destination varchar(200) NOT NULL, payload text, \
         status varchar(20) DEFAULT 'PENDING' NOT NULL, next_attempt_at timestamp, \
         attempts numeric(10) DEFAULT 0 NOT NULL)"
    )
}

#[test]
fn adopted_rows_of_a_bulk_job_show_each_result_in_their_own_table() {
    for (site, base) in Base::all(&Site::new) {
        let refused = RowFault {
            key: Pattern::new("^3$").unwrap(),
            code: "REQUIRED_FIELD_MISSING".to_owned(),
            message: "a field is missing".to_owned(),
            ..RowFault::default()
        };
        let org = Org::with(Faults { rows: vec![refused], ..Faults::default() });
        base.execute(&outbox_min(&base));
        let adopt = "[[adopt]]\ntable = \"outbox_min\"\npreset = \"minimal\"\n\
                     destination = \"column:destination\"\n";
        site.write("relais.toml", &(plain(&base, &org, "bulk-v2") + adopt));
        assert_eq!(site.relais(&["migrate"]).code, 0);
        let record =
            |n| if n == 4 { "{oops".to_owned() } else { format!(r#"{{"name":"Doe {n}"}}"#) };
        let rows: Vec<String> = (1..=5).map(|n| format!("({n}, 'out', '{}')", record(n))).collect();
        base.execute(&format!(
            "INSERT INTO outbox_min (id, destination, payload) VALUES {}",
            rows.join(", ")
        ));
        let running = site.run();
        let states = "SELECT status || ' ' || attempts FROM outbox_min ORDER BY id";
        let expected = ["DISPATCHED 0", "DISPATCHED 0", "FAILED 1", "FAILED 1", "DISPATCHED 0"];
        until(|| base.texts(states) == expected);
        org.assert_once("Contact", 3);
        let dead = dead(&base);
        assert!(dead[0].starts_with("3 REQUIRED_FIELD_MISSING: "), "{dead:?}");
        assert!(dead[1].starts_with("4 INVALID_JSON: the payload is not JSON"), "{dead:?}");
        assert!(org.jobs("JobComplete") > 0, "they were in a job");
        // The manual retry of the table, after the causes are corrected.
        org.set_faults(Faults::default());
        base.execute(
            "UPDATE outbox_min SET status = 'PENDING', payload = '{\"name\":\"Fixed\"}' WHERE status = 'FAILED'",
        );
        until(|| base.texts(states).iter().all(|state| state.starts_with("DISPATCHED")));
        org.assert_once("Contact", 5);
        assert_eq!(org.record("Contact", "4")["LastName"], "Fixed");
        assert_eq!(running.stop().code, 0);
    }
}
