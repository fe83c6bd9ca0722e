//! Requests without a token see nothing, for every path in every notation.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
};

use crate::{
    PATIENCE,
    client::Client,
    support::{Site, post},
    wait_for,
};

/// A value that only requests with a token may see.
const DATA: &str = "V3RY-PRIVATE";
const SETTINGS: &str = "[store]\nurl = \"sqlite:relais.db\"\n\
    [[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\nsource_system = \"V3RY-PRIVATE\"\n\
    [[route]]\non = \"Order\"\ndestination = \"V3RY-PRIVATE\"\n\
    [[destination]]\nname = \"V3RY-PRIVATE\"\nkind = \"log\"\npath = \"out.jsonl\"\n\
    [inbox]\nunknown_type_wait = \"0s\"\n\
    [admin]\nlisten = \"127.0.0.1:0\"\ntoken = \"t0ken\"\n";

/// Everything beside `/api/v1`. A test of `relais-admin` holds the router to this list.
const OUTSIDE: [&str; 8] = [
    "/",
    "/api/openapi.json",
    "/console/app.js",
    "/healthz",
    "/login",
    "/logout",
    "/metrics",
    "/readyz",
];

#[test]
fn no_request_reveals_data_without_a_token() {
    let site = Site::with(SETTINGS);
    let running = site.run();
    let hook = running.address("hook");
    for (id, body) in [
        ("V3RY-PRIVATE-1", r#"{"type":"Order","id":"V3RY-PRIVATE"}"#),
        ("V3RY-PRIVATE-2", r#"{"type":"V3RY-PRIVATE"}"#),
        ("V3RY-PRIVATE-3", r#"{"V3RY-PRIVATE"#),
    ] {
        assert_eq!(post(hook, "/hook", &[("message-id", id)], body).0, 202);
    }
    let address = running.logged("admin http://");
    let client = Client::at(address);
    let admin = client.with("authorization", "Bearer t0ken");
    // The search finds what is there to be found.
    for page in ["/metrics", "/api/v1/overview", "/api/v1/inbox", "/api/v1/dead-letters"] {
        wait_for(page, || admin.page(page).body.contains(DATA).then_some(()));
    }
    let described = admin.page("/api/openapi.json").ok();
    let paths: Vec<&String> = described["paths"].as_object().unwrap().keys().collect();
    assert!(paths.len() > 25, "{}", paths.len());
    for path in paths.into_iter().map(String::as_str).chain(OUTSIDE) {
        let (path, open) = (filled(path), is_open(path));
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"] {
            reveals_nothing(&client, method, &path, open);
        }
        for client in forged(&client) {
            reveals_nothing(&client, "GET", &path, open);
            reveals_nothing(&client, "POST", &path, open);
        }
        for path in disguised(&path) {
            reveals_nothing(&client, "GET", &path, open);
            reveals_nothing(&client, "POST", &path, open);
        }
    }
}

fn reveals_nothing(client: &Client, method: &str, path: &str, open: bool) {
    let answer = client.ask(method, path, "{}");
    assert!(!answer.body.contains(DATA), "{method} {path}: {answer:?}");
    assert!(answer.status >= 300 || open, "{method} {path}: {answer:?}");
}

/// Paths that need no token, because they hold no data.
fn is_open(path: &str) -> bool {
    ["/", "/healthz", "/readyz", "/logout", "/console/app.js"].contains(&path)
}

fn filled(path: &str) -> String {
    path.replace("{id}", "1")
        .replace("{row}", "1")
        .replace("{uuid}", "01890a5d-ac96-774b-bcce-b302099a8057")
        .replace("{process}", "order%2F1")
        .replace("{action}", "pause")
}

/// Notations that might bypass a careless check.
fn disguised(path: &str) -> Vec<String> {
    let inside = path.trim_start_matches('/');
    vec![
        format!("{path}/"),
        format!("//{inside}"),
        format!("/console/../{inside}"),
        format!("/console/..%2f{inside}"),
        format!("/healthz/../{inside}"),
        format!("/./{inside}"),
        format!("/{}", inside.to_uppercase()),
        format!("{path}?token=t0ken"),
        format!("{path};/healthz"),
        format!("{path}%00"),
        path.replacen('p', "%70", 1),
    ]
}

/// Clients with forged credentials.
fn forged(client: &Client) -> Vec<Client> {
    let with = |name: &'static str, value: &str| client.with(name, value);
    vec![
        with("authorization", "Bearer "),
        with("authorization", "Basic YWRtaW46dDBrZW4="),
        with("cookie", "relais_session=admin.9999999999.0.x"),
        with("x-forwarded-for", "127.0.0.1"),
        with("x-http-method-override", "GET"),
    ]
}

#[test]
fn a_stream_needs_a_token() {
    let site = Site::with(SETTINGS);
    let running = site.run();
    let address = running.logged("admin http://");
    assert!(stream(address, "").starts_with("HTTP/1.1 401 "));
    assert!(stream(address, "authorization: Bearer wrong\r\n").starts_with("HTTP/1.1 401 "));
    assert!(stream(address, "authorization: Bearer t0ken\r\n").starts_with("HTTP/1.1 200 "));
}

/// The first line of the answer of a stream, which may never end.
fn stream(address: SocketAddr, header: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET /api/v1/live HTTP/1.1\r\nhost: {address}\r\n{header}\r\n").unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

#[test]
fn an_address_others_can_reach_needs_a_token_in_whatever_form_it_is_written() {
    let open = |listen: &str, more: &str| {
        let settings = SETTINGS.split("[admin]").next().unwrap();
        let site = Site::with(&format!("{settings}[admin]\nlisten = \"{listen}\"\n{more}"));
        site.relais(&["check", "--offline"])
    };
    for listen in ["0.0.0.0:0", "[::]:0", "192.168.0.1:0", "[::ffff:0.0.0.0]:0", "[fe80::1]:0"] {
        let said = open(listen, "");
        assert!(said.code != 0 && said.out.contains("admin.listen"), "{listen}: {said:?}");
        let said = open(listen, "token = \"\"\n");
        assert!(said.code != 0 && said.out.contains("admin.token"), "{listen}: {said:?}");
        let said = open(listen, "tokens = []\n");
        assert!(said.code != 0 && said.out.contains("admin.listen"), "{listen}: {said:?}");
        assert_eq!(open(listen, "token = \"t0ken\"\n").code, 0, "{listen}");
    }
    for listen in ["127.0.0.1:0", "[::1]:0", "127.8.9.10:0", "localhost:0"] {
        assert_eq!(open(listen, "").code, 0, "{listen}");
    }
}
