//! Secrets that must show nowhere: each place that takes one gets a word that is nowhere else, everything
//! is run, much of it to failure, and whatever relais said anywhere is searched.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    process::Command,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;

use crate::{
    canary_settings::{EVENTS, VARIABLES, settings},
    client::Client,
    server::Server,
    support::{Site, post},
    traced::Traced,
    wait_for,
};

/// The prefix of each secret.
pub(crate) const CANARY: &str = "CANARY-";
/// A public value: where the search does not find it, it could not have found a secret either.
const PLANTED: &str = "PLANTED";

/// Everything that was said, and where.
#[derive(Default)]
pub(crate) struct Said(Vec<(String, String)>);

impl Said {
    pub(crate) fn note(&mut self, place: &str, text: impl Into<String>) {
        self.0.push((place.to_owned(), text.into()));
    }

    pub(crate) fn holds_no_secret(&self) {
        let mut shown = Vec::new();
        for (place, text) in &self.0 {
            for at in forms().iter().filter_map(|form| text.find(form)) {
                let from = text.floor_char_boundary(at.saturating_sub(200));
                let to = text.ceil_char_boundary((at + 100).min(text.len()));
                shown.push(format!("{place}: …{}…", &text[from..to]));
            }
        }
        assert!(shown.is_empty(), "secrets are shown: {shown:#?}");
    }

    /// True after the public value was found in these places.
    fn was_searched_in(&self, place: &str) {
        let found = self.0.iter().any(|(of, text)| of.starts_with(place) && text.contains(PLANTED));
        assert!(found, "nothing planted was found in {place}, so no secret could have been");
    }
}

/// Searches for the value and its Base64 forms at any offset.
fn forms() -> Vec<String> {
    let shifted = ["", "x", "xx"].iter().enumerate().map(|(shift, before)| {
        let text = STANDARD.encode(format!("{before}{CANARY}"));
        // Without the ends, which depend on the neighbours.
        let (from, to) = [(0, 9), (2, 10), (3, 12)][shift];
        text[from..to].to_owned()
    });
    shifted.chain([CANARY.trim_end_matches('-').to_owned()]).collect()
}

#[test]
fn the_search_finds_a_secret_in_each_of_its_forms() {
    for before in ["", "a", "ab", "abc"] {
        let mut said = Said::default();
        said.note("here", format!("Basic {}", STANDARD.encode(format!("{before}{CANARY}123"))));
        assert!(std::panic::catch_unwind(|| said.holds_no_secret()).is_err(), "{before}");
    }
    let mut said = Said::default();
    said.note("here", format!("token={CANARY}1"));
    assert!(std::panic::catch_unwind(|| said.holds_no_secret()).is_err());
    let mut said = Said::default();
    said.note("here", "nothing of the kind");
    said.holds_no_secret();
}

#[test]
fn no_secret_shows_anywhere_while_everything_runs_and_fails() {
    let collector = Server::start(|_| "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned());
    // Sends everything back that it was sent, its path and its headers included.
    let gossip = Server::start(|request| {
        let length = request.len();
        format!("HTTP/1.1 400 No\r\ncontent-length: {length}\r\n\r\n{request}")
    });
    let plain = plain();
    let site = Site::with(&settings(collector.address, gossip.address, plain));
    let running = Traced::start(&site, "json", &variables());
    let mut said = Said::default();
    said.note(
        "command line",
        fs::read_to_string(format!("/proc/{}/cmdline", running.pid())).unwrap(),
    );
    send(&running);
    wait_for("refused and unavailable destinations", || {
        let refused = ask(&site, &["dead-letter", "list", "--json"]).contains("HTTP_400");
        (refused && running.said().matches("target is unavailable").count() >= 3).then_some(())
    });
    wait_for("a trace", || {
        collector.seen().iter().any(|request| request.contains(PLANTED)).then_some(())
    });
    pages(running.admin(), &mut said);
    commands(&site, &mut said);
    said.note("log", running.stop());
    for request in collector.seen() {
        // What it is sent as a header is meant for it.
        said.note("trace", request.split_once("\r\n\r\n").unwrap().1);
    }
    for file in ["relais.db", "relais.db-wal"] {
        let bytes = fs::read(site.path(file)).unwrap_or_default();
        said.note("database", String::from_utf8_lossy(&bytes));
    }
    for place in ["log", "page", "command relais explain", "database", "trace"] {
        said.was_searched_in(place);
    }
    said.holds_no_secret();
}

fn variables() -> Vec<(&'static str, &'static str)> {
    VARIABLES.iter().copied().chain([("RUST_LOG", "trace")]).collect()
}

/// Takes connections and says nothing of use: no TLS here.
fn plain() -> SocketAddr {
    let server = Server::start(|_| "HTTP/1.1 400 No\r\n\r\n".to_owned());
    server.address
}

/// A message for each destination, with right and wrong credentials.
fn send(running: &Traced) {
    let hook = running.source("hook");
    for (number, event) in EVENTS.iter().enumerate() {
        let id = format!("{PLANTED}-{number}");
        let body = json!({ "type": event, "id": id, "note": PLANTED }).to_string();
        let headers = |token| [("message-id", id.clone()), ("authorization", token)];
        for (token, status) in [("Bearer CANARY-wrong", 401), ("Bearer CANARY-source-token", 202)] {
            let headers = headers(token.to_owned());
            let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
            assert_eq!(post(hook, "/hook", &headers, &body).0, status, "{token}");
        }
    }
    let signed = [
        ("webhook-id", "1"),
        ("webhook-timestamp", "1"),
        ("webhook-signature", "v1,CANARY-signature"),
        ("message-id", "1"),
    ];
    assert_eq!(post(running.source("signed"), "/signed", &signed, "{}").0, 401);
}

/// Every page there is, asked well and asked badly.
fn pages(address: SocketAddr, said: &mut Said) {
    let without_token = Client::at(address);
    let admin = without_token.with("authorization", "Bearer CANARY-admin-token");
    let described = admin.page("/api/openapi.json").ok();
    let mut ask = |client: &Client, method: &str, path: &str, body: &str| {
        let answer = client.ask(method, path, body);
        said.note(&format!("page {method} {path}"), format!("{}\n{}", answer.head, answer.body));
    };
    for page in ["/", "/metrics", "/healthz", "/readyz", "/api/openapi.json"] {
        ask(&admin, "GET", page, "");
    }
    ask(&without_token, "POST", "/login", r#"{"token":"CANARY-typed"}"#);
    ask(&without_token, "POST", "/login", r#"{"token":["CANARY-typed"]}"#);
    ask(&without_token.with("authorization", "Bearer CANARY-typed"), "GET", "/api/v1/inbox", "");
    ask(&without_token.with("cookie", "relais_session=CANARY-typed"), "GET", "/api/v1/inbox", "");
    for (path, operations) in described["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            if path.ends_with("/live") {
                continue;
            }
            for id in ["1", "2", "3"] {
                let path = path
                    .replace("{id}", &format!("{PLANTED}-{id}"))
                    .replace("{row}", id)
                    .replace("{uuid}", "01890a5d-ac96-774b-bcce-b302099a8057")
                    .replace("{process}", "order%2F1")
                    .replace("{action}", "pause");
                ask(&admin, &method.to_uppercase(), &path, r#"{"reason":"a test"}"#);
            }
        }
    }
}

/// All commands that print data.
fn commands(site: &Site, said: &mut Said) {
    let mut all: Vec<Vec<&str>> = [
        "check",
        "check --offline",
        "status",
        "inbox list",
        "inbox show 1",
        "outbox list",
        "outbox show 1",
        "outbox show 2",
        "dead-letter list",
        "process list",
        "reprocess list",
        "audit",
        "cleanup",
        "migrate --print",
        "explain PLANTED-0",
        "explain PLANTED-1",
        "explain missing",
    ]
    .iter()
    .map(|line| line.split(' ').collect())
    .collect();
    let letters = ask(site, &["dead-letter", "list", "--json"]);
    let letters: serde_json::Value = serde_json::from_str(&letters).unwrap();
    let ids: Vec<String> =
        letters.as_array().unwrap().iter().map(|l| l["id"].as_str().unwrap().into()).collect();
    all.extend(ids.iter().map(|id| vec!["dead-letter", "show", id.as_str()]));
    for command in all {
        for json in [&[][..], &["--json"]] {
            let line = [&command, json].concat();
            said.note(&format!("command relais {}", line.join(" ")), ask(site, &line));
        }
    }
}

/// Returns the output of a command on both streams.
fn ask(site: &Site, args: &[&str]) -> String {
    let output = site.command(args).envs(VARIABLES.iter().copied()).output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if args.contains(&"--json") && output.status.success() {
        return text(&output.stdout);
    }
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn a_refused_connection_does_not_reveal_the_password() {
    let refuses_tls = answering(b"N");
    let speaks_nonsense = answering(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let refuses_login = answering(
        b"E\x00\x00\x00\x3cSFATAL\0VFATAL\0C28P01\0Mpassword authentication failed for CANA\0\0",
    );
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut said = Said::default();
    for url in [
        format!("postgres://relais:CANARY-store@{closed}/app"),
        format!("postgres://relais:CANARY-store@{refuses_tls}/app?sslmode=require"),
        format!("postgres://relais:CANARY-store@{speaks_nonsense}/app?sslmode=disable"),
        format!("postgres://relais:CANARY-store@{refuses_login}/app?sslmode=disable"),
        "postgres://relais:CANARY-store@no-such-host.invalid/app".to_owned(),
        "postgres://relais:CANARY-store@[::1/app".to_owned(),
        "postgres://relais:CANARY-store@127.0.0.1:99999/app".to_owned(),
        "postgres://127.0.0.1:1/app?user=relais&password=CANARY-store".to_owned(),
        "postgres://relais:CANARY-store@127.0.0.1:1/app?sslmode=CANARY-mode".to_owned(),
        "postgres://relais:CANARY-store@127.0.0.1:1/app?CANARY-option=1".to_owned(),
        "mysql://relais:CANARY-store@127.0.0.1/app".to_owned(),
        "CANARY-store".to_owned(),
    ] {
        for args in [&["check"][..], &["status"], &["migrate"], &["inbox", "list", "--json"]] {
            let site = Site::with(&format!("[store]\nurl = \"{url}\"\n"));
            let mut command: Command = site.command(args);
            command.env("RUST_LOG", "trace").env("STORE", "CANARY-store");
            let output = command.output().unwrap();
            assert!(!output.status.success(), "{url} {args:?}");
            let text = [output.stdout, output.stderr].concat();
            said.note(&format!("{args:?} of {url}"), String::from_utf8_lossy(&text));
        }
    }
    said.holds_no_secret();
}

/// A server that sends the same answer to every client.
fn answering(words: &'static [u8]) -> SocketAddr {
    use std::io::{Read, Write};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 512]);
            let _ = stream.write_all(words);
        }
    });
    address
}
