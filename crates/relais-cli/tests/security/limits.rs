//! Each limit has a name in the code, an answer that says so, and is survived.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    PATIENCE,
    client::Client,
    support::{Running, Site, get, post},
    wait_for,
};

const SETTINGS: &str = "[store]\nurl = \"sqlite:relais.db\"\n\
    [[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\nsource_system = \"shop\"\n\
    [[route]]\non = \"Order\"\ndestination = \"out\"\n\
    [[destination]]\nname = \"out\"\nkind = \"log\"\npath = \"out.jsonl\"\n\
    [admin]\nlisten = \"127.0.0.1:0\"\ntoken = \"t0ken\"\n";
/// `CONNECTIONS_MAX` of `relais-admin/src/serve.rs`.
const ADMIN_CONNECTIONS_MAX: usize = 256;
/// Number of connections beyond the limit.
const SURPLUS: usize = 50;
/// Nested much deeper than a stack is tall.
const DEEP: usize = 200_000;

struct Served {
    _site: Site,
    running: Running,
    admin: SocketAddr,
    hook: SocketAddr,
}

impl Served {
    fn start() -> Self {
        let site = Site::with(SETTINGS);
        let running = site.run();
        let (admin, hook) = (running.logged("admin http://"), running.address("hook"));
        Self { _site: site, running, admin, hook }
    }

    fn client(&self) -> Client {
        Client::at(self.admin).with("authorization", "Bearer t0ken")
    }

    fn alive(&self) {
        assert_eq!(get(self.admin, "/healthz").0, 200);
        let sent = post(self.hook, "/hook", &[("message-id", "alive")], r#"{"type":"Order"}"#);
        assert_eq!(sent.0, 202, "{sent:?}");
    }
}

/// Sends bytes as they are; the status of the answer, 0 if there is none.
fn raw(address: SocketAddr, bytes: &[u8]) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A server that refuses early does not read the rest.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer);
    text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

#[test]
fn heads_that_are_too_large_are_refused_at_both_doors() {
    let served = Served::start();
    let head = |line: &str, more: &str| format!("{line} HTTP/1.1\r\nhost: a\r\n{more}\r\n");
    let value = format!("x-large: {}\r\n", "a".repeat(300_000));
    let many = "x-one: 1\r\n".repeat(500);
    let long = "a".repeat(300_000);
    for (address, line) in [(served.admin, "GET /healthz"), (served.hook, "POST /hook")] {
        assert_eq!(raw(address, head(line, &value).as_bytes()), 431, "{line}: a large header");
        assert_eq!(raw(address, head(line, &many).as_bytes()), 431, "{line}: many headers");
        let status = raw(address, head(&format!("{line}?x={long}"), "").as_bytes());
        assert!([414, 431].contains(&status), "{line}: a long address: {status}");
    }
    served.alive();
}

#[test]
fn questions_that_ask_too_much_are_refused() {
    let served = Served::start();
    let client = served.client();
    client.get("/inbox?limit=501").problem(400, "BAD_REQUEST");
    client.get("/inbox?limit=18446744073709551616").problem(400, "BAD_REQUEST");
    client.get(&format!("/inbox?type={}", "a".repeat(1_001))).problem(400, "BAD_REQUEST");
    client.get(&format!("/inbox?type={}", "a".repeat(40_000))).problem(400, "BAD_REQUEST");
    client.get(&format!("/inbox?{}", "limit=1&".repeat(2_000))).problem(400, "BAD_REQUEST");
    client.get(&format!("/explain/{}", "a".repeat(40_000))).problem(404, "NOT_FOUND");
    let name = "a".repeat(40_000);
    assert_eq!(client.page(&format!("/console/{name}")).status, 404);
    served.alive();
}

#[test]
fn bodies_that_are_too_large_too_deep_or_packed_are_refused() {
    let served = Served::start();
    let client = served.client();
    let edit = format!("/dead-letters/{}/edit", uuid::Uuid::nil());
    let deep = "[".repeat(DEEP) + &"]".repeat(DEEP);
    for path in [edit.as_str(), "/serde-errors/1/repair"] {
        let body = format!(r#"{{"reason":"x","payload":{deep}}}"#);
        let status = client.post_text(path, &body).status;
        assert!([400, 404, 422].contains(&status), "{path}: {status}");
    }
    let (half, inside) = (&deep[..60_000], format!(r#"{{"reason":{}}}"#, &deep[..60_000]));
    client.post_text("/inbox/1/retry", half).problem(422, "INVALID");
    client.post_text("/inbox/1/retry", &inside).problem(422, "INVALID");
    let packed =
        client.with("content-encoding", "gzip").post_text("/inbox/1/retry", "\u{1f}\u{8b}");
    packed.problem(400, "BAD_REQUEST");
    let large = json!({ "token": "x".repeat(70_000) });
    client.post_page("/login", &large).problem(413, "TOO_LARGE");
    served.alive();
}

#[test]
fn a_message_that_is_nested_too_deep_is_kept_and_kills_no_worker() {
    let served = Served::start();
    let deep = r#"{"a":"#.repeat(DEEP) + "1" + &"}".repeat(DEEP);
    let half = "[".repeat(DEEP);
    for (id, body) in [("deep", deep.as_str()), ("half", &half)] {
        let sent = post(served.hook, "/hook", &[("message-id", id)], body);
        assert_eq!(sent.0, 202, "{sent:?}");
    }
    let items = served.client().get("/serde-errors").ok()["items"].clone();
    let codes: Vec<&Value> = items.as_array().unwrap().iter().map(|row| &row["code"]).collect();
    assert_eq!(codes, ["JSON_TOO_DEEP", "JSON_TOO_DEEP"], "{items}");
    for row in items.as_array().unwrap() {
        served.client().get(&format!("/serde-errors/{}", row["id"])).ok();
    }
    let packed =
        post(served.hook, "/hook", &[("message-id", "z"), ("content-encoding", "gzip")], "");
    assert_eq!(packed.0, 415, "{packed:?}");
    served.alive();
}

/// Connections that never finish their head, one byte a second.
struct Slow(Vec<TcpStream>);

impl Slow {
    fn open(address: SocketAddr, count: usize, line: &str) -> Self {
        let open = |_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            stream.write_all(format!("{line} HTTP/1.1\r\nhost: a\r\nx-slow: ").as_bytes()).unwrap();
            stream
        };
        Self((0..count).map(open).collect())
    }

    /// One more byte for each; those the other side has closed are let go.
    fn drip(&mut self) {
        self.0.retain_mut(|stream| {
            let sent = stream.write_all(b"a").is_ok();
            let end = match stream.read(&mut [0; 512]) {
                Ok(read) => read == 0,
                Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            };
            sent && !end
        });
    }
}

#[test]
fn slow_senders_do_not_block_others_and_are_disconnected_by_the_admin_server() {
    let served = Served::start();
    let mut slow = Slow::open(served.admin, ADMIN_CONNECTIONS_MAX + SURPLUS, "GET /healthz");
    let files = std::fs::read_dir(format!("/proc/{}/fd", served.running.pid())).unwrap().count();
    assert!(files < ADMIN_CONNECTIONS_MAX + 100, "{files} files are open");
    // All seats are taken; new clients are served as soon as the slow ones time out.
    assert_eq!(get(served.admin, "/healthz").0, 200);
    slow.drip();
    let left = slow.0.len();
    assert!(
        left >= SURPLUS,
        "it is answered before the last slow ones had a seat: {left} are left"
    );
    wait_for("the slow ones to be cut off", || {
        slow.drip();
        (slow.0.len() <= SURPLUS).then_some(())
    });
    served.alive();
}

#[test]
fn slow_senders_do_not_block_others_at_a_source() {
    let served = Served::start();
    let mut slow = Slow::open(served.hook, 300, "POST /hook");
    for _ in 0..3 {
        slow.drip();
        served.alive();
    }
    assert_eq!(slow.0.len(), 300, "they have some time left");
}
