//! Rows over HTTP: what is in the inbox and the outbox, what could not be read, many dead letters at once,
//! and payloads of any size.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

#[path = "admin/client.rs"]
#[allow(dead_code)]
mod client;
#[path = "admin/fuzz.rs"]
mod fuzz;
// Some helpers are made for other tests of the program.
#[allow(dead_code)]
#[macro_use]
#[path = "process/fixture.rs"]
mod fixture;
#[allow(dead_code)]
mod support;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    thread,
};

use client::Client;
use fixture::{LONG, OrderFixture};
use serde_json::{Value, json};
use support::{Running, Site, post};

scenarios!(
    rows_are_listed_without_their_payloads_and_shown_with_them,
    a_filter_is_compared_and_never_carried_out,
    pages_are_bounded_and_continue_after_the_last_row,
    of_two_tabs_that_retry_a_row_one_is_refused,
    undecodable_bytes_are_shown_reprocessed_and_discarded,
    many_dead_letters_are_counted_retried_and_discarded,
    a_process_shows_its_steps_and_possible_actions,
    unknown_paths_and_methods_are_reported_first,
    the_overview_and_its_history_come_without_counting,
    any_request_is_answered_without_a_fault,
);

fn who(fields: Value) -> Value {
    let mut body = json!({"actor": "ann", "reason": "a test"});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

fn opened(fixture: OrderFixture) -> (OrderFixture, Client) {
    let fixture = fixture.open(LONG);
    let client = Client::at(fixture.admin());
    (fixture, client)
}

fn items(list: &Value) -> &Vec<Value> {
    list["items"].as_array().unwrap()
}

/// Waits until a list has this many entries.
fn until(fixture: &OrderFixture, client: &Client, path: &str, count: usize) -> Vec<Value> {
    fixture.wait(path, || {
        let list = client.get(path).ok();
        (items(&list).len() == count).then(|| items(&list).clone())
    })
}

fn rows_are_listed_without_their_payloads_and_shown_with_them(fixture: OrderFixture) {
    let (fixture, client) = opened(fixture);
    fixture.place("o-1");
    fixture.command("TakePayment");
    let row = until(&fixture, &client, "/inbox?status=processed&type=OrderPlaced", 1).remove(0);
    assert!(row["preview"].as_str().unwrap().contains("o-1"), "{row}");
    assert!(row.get("payload").is_none() && row.get("headers").is_none(), "{row}");
    let id = row["id"].as_i64().unwrap();
    for name in [id.to_string(), "place-o-1".to_owned()] {
        let shown = client.get(&format!("/inbox/{name}")).ok();
        assert_eq!(shown["payload"].as_str().unwrap().len() as u64, row["payload_bytes"]);
        assert_eq!((&shown["payload_truncated"], &shown["history"]), (&json!(false), &json!([])));
        assert!(shown["headers"].is_object());
    }
    let file = client.get(&format!("/inbox/{id}/payload"));
    assert_eq!(file.header("content-type").as_deref(), Some("text/plain; charset=utf-8"));
    assert!(file.header("content-disposition").unwrap().starts_with("attachment"));
    assert_eq!(file.body, client.get(&format!("/inbox/{id}")).ok()["payload"]);

    let sent =
        until(&fixture, &client, "/outbox?destination=payments&status=DISPATCHED", 1).remove(0);
    let shown = client.get(&format!("/outbox/{}", sent["message_id"].as_str().unwrap())).ok();
    assert_eq!((&shown["id"], &shown["causation_id"]), (&sent["id"], &json!("place-o-1")));
    assert_eq!(client.get(&format!("/outbox/{}/payload", sent["id"])).status, 200);
    let fail = |id: &Value| client.post(&format!("/outbox/{id}/fail"), &who(json!({})));
    fail(&sent["id"]).problem(409, "NOT_PENDING");
    fail(&json!(77)).problem(404, "NOT_FOUND");
    let send = client.post(&format!("/outbox/{}/retry", sent["id"]), &who(json!({})));
    send.problem(409, "NOT_FAILED");
    for path in ["/inbox/none", "/inbox/none/payload", "/outbox/77", "/outbox/77/payload"] {
        client.get(path).problem(404, "NOT_FOUND");
    }
    let retry = client.post(&format!("/inbox/{id}/retry"), &who(json!({})));
    assert!(retry.problem(409, "NOT_FAILED")["detail"].as_str().unwrap().contains("PROCESSED"));
}

fn a_filter_is_compared_and_never_carried_out(fixture: OrderFixture) {
    let (fixture, client) = opened(fixture);
    fixture.place("o-1");
    fixture.command("TakePayment");
    for attack in ["'%20OR%20'1'='1", "%25", "x';DROP%20TABLE%20relais_inbox;--", "%2500", "%01"] {
        for list in ["/inbox?key=", "/inbox?source=", "/outbox?destination=", "/audit?actor="] {
            let path = format!("{list}{attack}");
            assert_eq!(client.get(&path).ok()["items"], json!([]), "{path}");
        }
    }
    for wrong in [
        "/inbox?key=%00",
        "/inbox/%00",
        "/inbox?before=1%20OR%201",
        "/inbox?status='",
        "/outbox?since_seconds=-1",
        "/outbox?since_seconds=99999999999999",
    ] {
        client.get(wrong).problem(400, "BAD_REQUEST");
    }
    let long = format!("/inbox?key={}", "x".repeat(1_001));
    client.get(&long).problem(400, "BAD_REQUEST");
    assert_eq!(items(&client.get("/inbox").ok()).len(), 1, "all is still there");
}

fn pages_are_bounded_and_continue_after_the_last_row(fixture: OrderFixture) {
    let (fixture, client) = opened(fixture);
    for n in 0..5 {
        fixture.send(&format!("m-{n}"), &[], &json!({"type": "Unheard"}));
    }
    for list in ["/inbox", "/outbox", "/serde-errors", "/dead-letters"] {
        for limit in ["0", "501", "1000000000", "18446744073709551616", "-1", "x"] {
            client.get(&format!("{list}?limit={limit}")).problem(400, "BAD_REQUEST");
        }
    }
    until(&fixture, &client, "/dead-letters", 5);
    for (list, id) in [("/inbox", "id"), ("/dead-letters", "id")] {
        let all: Vec<Value> = items(&client.get(list).ok()).iter().map(|i| i[id].clone()).collect();
        let (mut paged, mut path) = (Vec::new(), format!("{list}?limit=2"));
        loop {
            let page = client.get(&path).ok();
            paged.extend(items(&page).iter().map(|item| item[id].clone()));
            let Some(next) = page["next"].as_str() else { break };
            path = format!("{list}?limit=2&before={next}");
        }
        assert_eq!(paged, all, "{list}");
    }
    let unknown = client.get("/inbox?colour=red").problem(400, "BAD_REQUEST");
    assert!(unknown["detail"].as_str().unwrap().starts_with("unknown parameter `colour`"));
}

fn of_two_tabs_that_retry_a_row_one_is_refused(fixture: OrderFixture) {
    let (fixture, client) = opened(fixture);
    fixture.send("m-1", &[], &json!({"type": "Unheard"}));
    let row = until(&fixture, &client, "/inbox?status=failed", 1).remove(0);
    let shown = client.get(&format!("/inbox/{}", row["id"])).ok();
    assert_eq!(shown["history"].as_array().unwrap().len(), 1, "{shown}");
    let letter = until(&fixture, &client, "/dead-letters", 1).remove(0);
    // One tab has the row, the other the dead letter: both decide about the same thing.
    let retry = format!("/inbox/{}/retry", row["id"]);
    let replay = format!("/dead-letters/{}/replay", letter["id"].as_str().unwrap());
    let act = |path: &str| client.post(path, &who(json!({}))).status;
    let mut both: Vec<u16> = thread::scope(|scope| {
        [scope.spawn(|| act(&retry)), scope.spawn(|| act(&replay))]
            .map(|tab| tab.join().unwrap())
            .to_vec()
    });
    both.sort_unstable();
    assert_eq!(both, [200, 409]);
}

fn undecodable_bytes_are_shown_reprocessed_and_discarded(fixture: OrderFixture) {
    let (fixture, client) = opened(fixture);
    for (id, bytes) in [("b-1", "{oops"), ("b-2", "<script>"), ("b-3", "[1,"), ("b-4", "nope")] {
        assert_eq!(fixture.send_bytes(id, bytes), 202);
    }
    let rows = until(&fixture, &client, "/serde-errors?code=INVALID_JSON&source=shop", 4);
    let row = &rows[3];
    assert_eq!(
        (&row["bytes"], &row["topic"], &row["message_id"]),
        (&json!(5), &json!("hook"), &json!("b-1"))
    );
    let path = format!("/serde-errors/{}", row["id"]);
    let shown = client.get(&path).ok();
    assert_eq!((&shown["text"], &shown["base64"]), (&json!("{oops"), &json!("e29vcHM=")));
    assert_eq!(shown["readable_by"], json!(["text", "bytes"]));
    let raw = client.get(&format!("/inbox/{}/payload", row["id"]));
    assert_eq!(raw.header("content-type").as_deref(), Some("application/octet-stream"));

    let repair = |path: &str, fields: Value| client.post(&format!("{path}/repair"), &who(fields));
    repair(&path, json!({})).problem(422, "INVALID_JSON");
    repair(&path, json!({"payload": "{oops"})).problem(422, "INVALID_JSON");
    repair(&path, json!({"decoder": "avro"})).problem(422, "INVALID");
    repair(&path, json!({"decoder": "text", "payload": "{}"})).problem(422, "INVALID");
    let good = json!({"payload": r#"{"type":"Unheard"}"#, "dry_run": true});
    assert_eq!(repair(&path, good).ok()["result"], "repaired");
    assert_eq!(client.get(&path).ok()["status"], "SERDE_ERROR", "a dry run changes nothing");
    assert_eq!(
        repair(&path, json!({"payload": r#"{"type":"Unheard"}"#})).ok()["result"],
        "repaired"
    );
    let late = repair(&path, json!({"decoder": "text"}));
    assert!(
        late.problem(409, "NO_SERDE_ERROR")["detail"]
            .as_str()
            .unwrap()
            .contains("nothing was changed")
    );

    let discard = format!("/serde-errors/{}/discard", rows[2]["id"]);
    client.post(&discard, &who(json!({}))).ok();
    client.post(&discard, &who(json!({}))).problem(409, "RESOLVED_BEFORE");
    let many = |fields: Value| client.post("/serde-errors/repair", &who(fields)).ok();
    let tried = many(json!({"decoder": "text", "dry_run": true, "filter": {"source": "shop"}}));
    assert_eq!(
        (&tried["matching"], &tried["repaired"], &tried["more"]),
        (&json!(2), &json!(2), &json!(false))
    );
    let one = many(json!({"decoder": "text", "max": 1, "all": true}));
    assert_eq!((&one["repaired"], &one["more"]), (&json!(1), &json!(true)));
    assert_eq!(many(json!({"decoder": "text", "all": true}))["repaired"], 1);
    assert_eq!(client.get("/serde-errors").ok()["items"], json!([]));
    client.get("/serde-errors/999").problem(404, "NOT_FOUND");
    let audit = client.get("/audit?limit=500").ok();
    assert!(items(&audit).iter().all(|entry| entry["actor"] == "ann"), "{audit}");
    assert_eq!(items(&audit).len(), 4, "{audit}");
}

fn many_dead_letters_are_counted_retried_and_discarded(fixture: OrderFixture) {
    let (fixture, client) = opened(fixture);
    for n in 0..4 {
        fixture.send(&format!("a-{n}"), &[], &json!({"type": "Unheard"}));
        fixture.send(&format!("b-{n}"), &[], &json!({"type": "Unknown"}));
    }
    until(&fixture, &client, "/dead-letters", 8);
    let many =
        |action: &str, fields: Value| client.post(&format!("/dead-letters/{action}"), &fields);
    let preview = json!({"dry_run": true, "filter": {"type": "Unheard"}});
    assert_eq!(many("discard", preview).ok(), json!({"matching": 4}));
    for unsaid in [json!({}), json!({"filter": {}}), json!({"filter": {"type": null}})] {
        many("discard", who(unsaid)).problem(422, "NO_FILTER");
    }
    many("discard", who(json!({"filter": {"type": "Unheard"}, "all": true})))
        .problem(422, "NO_FILTER");
    for odd in [json!([]), json!(["Unheard"]), json!("Unheard"), json!(null)] {
        many("discard", who(json!({ "filter": odd }))).problem(422, "INVALID");
    }
    many("discard", json!([{"type": "Unheard"}, true])).problem(422, "INVALID");
    many("discard", json!({"all": true})).problem(422, "INVALID");
    many("discard", who(json!({"max": 0, "all": true}))).problem(422, "INVALID");
    many("discard", who(json!({"filter": {"colour": 1}}))).problem(422, "INVALID");
    assert_eq!(items(&client.get("/dead-letters").ok()).len(), 8, "nothing was done");
    let some = who(json!({"filter": {"type": "Unheard"}, "max": 3, "rate": 1000}));
    let expected = json!({"done": 3, "unchanged": 0, "refused": 0, "more": true});
    assert_eq!(many("discard", some).ok(), expected);
    // They fail again: replayed letters come back as new ones.
    let replayed = many("replay", who(json!({"filter": {"type": "Unknown"}}))).ok();
    assert_eq!((&replayed["done"], &replayed["more"]), (&json!(4), &json!(false)));
    until(&fixture, &client, "/dead-letters?type=Unknown&status=open", 4);
    assert_eq!(many("discard", who(json!({"all": true}))).ok()["done"], 5);
}

fn a_process_shows_its_steps_and_possible_actions(fixture: OrderFixture) {
    let (fixture, client) = opened(fixture);
    fixture.place("o-1");
    let pay = fixture.command("TakePayment");
    let process = client.get("/processes/order%2Fo-1").ok();
    let steps = process["steps"].as_array().unwrap();
    assert_eq!((&steps[0]["name"], &steps[0]["state"]), (&json!("payment"), &json!("running")));
    assert_eq!((&steps[1]["name"], &steps[1]["state"]), (&json!("shipment"), &json!("waiting")));
    let actions = process["actions"].as_array().unwrap();
    assert!(actions.contains(&json!("pause")) && !actions.contains(&json!("resume")), "{process}");
    fixture.reply(&pay, "PaymentTaken", json!({"id": "p-7"}));
    fixture.command("Ship");
    let process = client.get("/processes/order%2Fo-1").ok();
    let step = &process["steps"][0];
    assert_eq!((&step["state"], &step["attempts"]), (&json!("completed"), &json!(1)), "{process}");
    let drawn = client.get("/processes/order%2Fo-1/diagram");
    assert!(drawn.body.starts_with("stateDiagram-v2"), "{drawn:?}");
    assert_eq!(drawn.header("content-type").as_deref(), Some("text/plain; charset=utf-8"));
    client.get("/processes/order%2Fnone/diagram").problem(404, "NOT_FOUND");
}

fn unknown_paths_and_methods_are_reported_first(fixture: OrderFixture) {
    let (_shop, client) = opened(fixture);
    let bare = client.with("content-type", "text/plain");
    bare.post("/nowhere", &json!({})).problem(404, "NOT_FOUND");
    let wrong = bare.post("/inbox", &json!({}));
    wrong.problem(405, "METHOD_NOT_ALLOWED");
    assert!(wrong.header("allow").unwrap().contains("get"), "{wrong:?}");
    assert_eq!(bare.ask("DELETE", "/api/v1/nowhere", "").status, 404);
    assert_eq!(bare.ask("DELETE", "/api/v1/inbox/1", "").status, 405);
    bare.post("/inbox/1/retry", &json!({})).problem(415, "UNSUPPORTED_MEDIA_TYPE");
}

fn the_overview_and_its_history_come_without_counting(fixture: OrderFixture) {
    let (fixture, client) = opened(fixture);
    fixture.place("o-1");
    fixture.command("TakePayment");
    let overview = fixture.wait("an overview that has seen it", || {
        let overview = client.get("/overview");
        let shown = (overview.status == 200).then(|| overview.ok())?;
        (shown["outbox"][1]["rows"] == 1).then_some(shown)
    });
    assert_eq!(overview["sources"][0]["kind"], "http");
    assert_eq!(overview["destinations"]["payments"]["limits"]["timeout_ms"], 30_000);
    let history = fixture.wait("a point that has seen it", || {
        let history = client.get("/history").ok();
        let seen = history["series"]["dispatched"].as_array().unwrap().iter().any(|n| n != 0.0);
        seen.then_some(history)
    });
    let points = |name: &str| history["series"][name].as_array().unwrap().len();
    assert_eq!(points("stored"), points("latency_p95_ms"));

    let mut stream = TcpStream::connect(fixture.admin()).unwrap();
    write!(stream, "GET /api/v1/live HTTP/1.1\r\nhost: {}\r\n\r\n", fixture.admin()).unwrap();
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    let mut wanted = vec!["event: overview", "event: sample"];
    for line in lines {
        wanted.retain(|event| *event != line);
        if wanted.is_empty() {
            break;
        }
    }
    assert!(wanted.is_empty(), "{wanted:?}");
}

/// A relais on SQLite whose inbox and outbox have one row of 50 MB each.
fn large() -> (Site, Running, usize) {
    let site = Site::with(
        "[store]\nurl = \"sqlite:relais.db\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\nsource_system = \"s\"\n",
    );
    assert_eq!(site.relais(&["migrate"]).code, 0);
    let payload = format!("{{\"text\": \"{}\"}}", "€uro ".repeat(50_000_000 / 7));
    let database = rusqlite::Connection::open(site.path("relais.db")).unwrap();
    let insert = "INSERT INTO relais_inbox (message_id, source_system, topic, partition_num, \
                  offset_num, msg_key, payload, status) VALUES ('big', 's', 't', 0, 0, 'k', ?1, 'PROCESSED')";
    database.execute(insert, [&payload]).unwrap();
    let insert = "INSERT INTO relais_outbox (message_id, aggregate_type, aggregate_id, event_type, \
                  destination, payload) VALUES (?1, 'a', 'b', 'E', 'nowhere', ?2)";
    database.execute(insert, [&uuid::Uuid::new_v4().to_string(), &payload]).unwrap();
    drop(database);
    let running = site.run();
    (site, running, payload.len())
}

#[test]
fn a_payload_of_50_mb_is_previewed_cut_and_downloaded_whole() {
    let (_site, running, bytes) = large();
    let client = Client::at(running.logged("admin http://"));
    for (list, name) in [("/inbox", "big"), ("/outbox", "1")] {
        let page = client.get(list);
        assert!(page.body.len() < 10_000, "{} bytes", page.body.len());
        let row = &page.ok()["items"][0];
        assert_eq!(row["payload_bytes"], bytes);
        assert_eq!(row["preview"].as_str().unwrap().chars().count(), 200);
        let shown = client.get(&format!("{list}/{name}")).ok();
        assert_eq!(
            (&shown["payload_bytes"], &shown["payload_truncated"]),
            (&json!(bytes), &json!(true))
        );
        assert!(shown["payload"].as_str().unwrap().len() <= 1 << 20);
        assert_eq!(client.get(&format!("{list}/{name}/payload")).body.len(), bytes, "{list}");
    }
}

#[test]
fn a_body_that_is_too_large_is_refused() {
    let (_site, running, bytes) = large();
    let client = Client::at(running.logged("admin http://"));
    let edit = who(json!({"payload": "x".repeat(bytes)}));
    let path = format!("/dead-letters/{}/edit", uuid::Uuid::new_v4());
    client.post(&path, &edit).problem(413, "TOO_LARGE");
}

#[test]
fn more_streams_than_there_are_seats_are_refused() {
    let (_site, running, _) = large();
    let address = running.logged("admin http://");
    let open = || {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET /api/v1/live HTTP/1.1\r\nhost: {address}\r\n\r\n").unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        (String::from_utf8(start.to_vec()).unwrap(), stream)
    };
    let streams: Vec<_> = (0..32).map(|_| open()).collect();
    assert!(streams.iter().all(|(start, _)| start == "HTTP/1.1 200"));
    assert_eq!(open().0, "HTTP/1.1 503");
    drop(streams);
    let started = std::time::Instant::now();
    while open().0 != "HTTP/1.1 200" {
        assert!(started.elapsed().as_secs() < 60, "a seat that was left is free again");
    }
}

impl OrderFixture {
    /// Sends bytes that may be no JSON.
    fn send_bytes(&self, id: &str, bytes: &str) -> u16 {
        post(self.hook(), "/hook", &[("message-id", id)], bytes).0
    }
}

fn any_request_is_answered_without_a_fault(fixture: OrderFixture) {
    let (fixture, client) = opened(fixture);
    for order in ["o-1", "o-2", "o-3"] {
        fixture.place(order);
        fixture.command("TakePayment");
    }
    post(fixture.hook(), "/hook", &[("message-id", "odd")], "{odd");
    until(&fixture, &client, "/inbox?status=processed", 3);
    fuzz::any_request_is_answered(&client);
}
