//! `relais run` as a supervisor sees it: beside a database that is not there yet, with systemd's socket, and
//! asked by `relais health`.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

// Some helpers are made for other tests of the program.
#[allow(dead_code)]
mod support;

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    os::unix::net::UnixDatagram,
    thread,
    time::Duration,
};

use support::{Site, assert_said, get, postgres::PostgresSchema};

/// An address without a listener; the listener's port is not given out again soon.
fn nowhere() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn settings(url: &str, wait: &str) -> String {
    settings_at(url, wait, SocketAddr::from(([127, 0, 0, 1], 0)))
}

fn settings_at(url: &str, wait: &str, admin: SocketAddr) -> String {
    format!("[store]\nurl = \"{url}\"\nwait = \"{wait}\"\n\n[admin]\nlisten = \"{admin}\"\n")
}

#[test]
fn a_start_without_a_database_ends_after_the_grace_and_names_host_and_port() {
    let place = nowhere();
    let site = Site::with(&settings(&format!("postgres://relais:CANARY@{place}/app"), "300ms"));
    let said = site.relais(&["run"]);
    let ended = format!("cannot start: the database at {place} did not answer within 300ms");
    assert_said(&said, 1, &["waiting for the database", &ended, "raise `store.wait`"]);
    assert!(!format!("{said:?}").contains("CANARY"), "{said:?}");
}

#[test]
fn other_commands_do_not_wait_for_a_database() {
    let place = nowhere();
    let site = Site::with(&settings(&format!("postgres://relais@{place}/app"), "1d"));
    for command in ["status", "check", "migrate"] {
        let said = site.relais(&[command]);
        assert_ne!(said.code, 0, "{said:?}");
        assert!(!said.err.contains("waiting for the database"), "{said:?}");
    }
}

#[test]
fn errors_that_waiting_cannot_fix_end_the_start_at_once() {
    let Some(schema) = PostgresSchema::new() else { return };
    let nowhere = schema.url.replace(&schema.name, "no_such_schema");
    let said = Site::with(&settings(&nowhere, "1d")).relais(&["run"]);
    assert_said(&said, 1, &["check user, password, database and schema in the URL"]);
    assert!(!said.err.contains("waiting for the database"), "{said:?}");
}

#[test]
fn a_database_that_comes_later_is_waited_for() {
    let Some(schema) = PostgresSchema::new() else { return };
    let host = schema.url.split_once("://").unwrap().1.split(['/', '?']).next().unwrap();
    let host = host.rsplit('@').next().unwrap();
    let server = if host.contains(':') { host.to_owned() } else { format!("{host}:5432") };
    let server = server.to_socket_addrs().unwrap().next().unwrap();
    let (place, admin) = (nowhere(), nowhere());
    let url = schema.url.replacen(host, &place.to_string(), 1);
    let site = Site::with(&settings_at(&url, "60s", admin));
    let command = site.command(&["run", "--log", "json"]);
    let mut running = support::Running::start(command, "waiting for the database");
    assert_waits(admin, place);
    forward(TcpListener::bind(place).unwrap(), server);
    running.wait_for("\"message\":\"running\"");
    while get(admin, "/readyz").0 != 200 {
        thread::sleep(Duration::from_millis(20));
    }
    // The first sample may take a moment.
    while get(admin, "/api/v1/overview").0 != 200 {
        thread::sleep(Duration::from_millis(20));
    }
    running.stop();
}

/// A liveness probe must not end a process that only waits, and a readiness probe shows what it waits for.
#[test]
fn probes_are_answered_while_there_is_no_database() {
    let (place, admin) = (nowhere(), nowhere());
    let site = Site::with(&settings_at(&format!("postgres://r:CANARY@{place}/app"), "1d", admin));
    let command = site.command(&["run"]);
    let running = support::Running::start(command, "waiting for the database");
    assert_waits(admin, place);
    assert_said(&site.relais(&["health"]), 0, &["alive"]);
    assert_said(&site.relais(&["health", "--ready"]), 1, &[&place.to_string()]);
    let (status, answer) = get(admin, "/api/v1/overview");
    assert_eq!((status, answer.contains("STARTING")), (503, true), "{answer}");
    let said = running.stop();
    assert_eq!(said.code, 0, "{said:?}");
}

fn assert_waits(admin: SocketAddr, place: SocketAddr) {
    assert_eq!(get(admin, "/healthz").0, 200, "it is alive");
    let (status, answer) = get(admin, "/readyz");
    let reason = format!("waiting for the database at {place}");
    assert_eq!((status, answer.contains(&reason)), (503, true), "{answer}");
    assert!(answer.contains("\"ready\":false") && !answer.contains("CANARY"), "{answer}");
}

/// Passes connections on, until the test program ends.
fn forward(listener: TcpListener, server: SocketAddr) {
    thread::spawn(move || {
        for near in listener.incoming() {
            let (near, far) = (near.unwrap(), TcpStream::connect(server).unwrap());
            for (mut from, mut to) in
                [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)]
            {
                thread::spawn(move || io::copy(&mut from, &mut to));
            }
        }
    });
}

/// The next message to systemd's socket that is not a `WATCHDOG=1`, or that is.
fn next_state(socket: &UnixDatagram, watchdog: bool) -> String {
    loop {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).expect("a message for systemd");
        let text = String::from_utf8_lossy(&bytes[..length]).trim().to_owned();
        if (text == "WATCHDOG=1") == watchdog {
            return text;
        }
    }
}

#[test]
fn systemd_hears_of_ready_and_stopping_and_its_watchdog_is_fed() {
    let site = Site::with(&settings("sqlite:relais.db", "1s"));
    let path = site.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let variables = [("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "200000")];
    let running = site.run_with(&variables);
    assert_eq!(next_state(&socket, false), "READY=1");
    for _ in 0..3 {
        assert_eq!(next_state(&socket, true), "WATCHDOG=1");
    }
    assert_eq!(running.stop().code, 0);
    assert_eq!(next_state(&socket, false), "STOPPING=1");
}

#[test]
fn health_answers_by_exit_code_for_a_running_relais_and_for_none() {
    let place = nowhere();
    let file = settings("sqlite:relais.db", "1s").replace("127.0.0.1:0", &place.to_string());
    let site = Site::with(&file);
    let url = format!("http://{place}");
    assert_said(
        &site.relais(&["health"]),
        1,
        &["cannot reach", &url, "check that relais is running"],
    );
    let running = site.run();
    assert_said(&site.relais(&["health"]), 0, &["alive", &url]);
    assert_said(&site.relais(&["health", "--ready"]), 0, &["ready", "/readyz"]);
    assert_eq!(site.json(&["health", "--ready"])["healthy"], true);
    // A container's health command needs neither the file nor its secrets.
    site.write("relais.toml", "");
    assert_said(&site.relais(&["health"]), 2, &["no [admin]", "--url"]);
    assert_said(&site.relais(&["health", "--url", &url]), 0, &["alive"]);
    site.write("relais.toml", &settings("sqlite:relais.db", "1s"));
    assert_said(&site.relais(&["health"]), 2, &["port 0", "--url"]);
    assert_eq!(running.stop().code, 0);
    let said = site.relais(&["health", "--url", &url, "--json"]);
    assert_said(&said, 1, &["\"healthy\":false"]);
    assert_said(&site.relais(&["health", "--url", "nowhere"]), 2, &["is not a URL"]);
}

#[test]
fn health_asks_over_tls_where_the_admin_address_has_a_certificate() {
    let place = nowhere();
    let file = settings("sqlite:relais.db", "1s").replace("127.0.0.1:0", &place.to_string());
    let keys = "tls_certificate = \"cert.pem\"\ntls_key = \"key.pem\"\n";
    let site = Site::with(&file.replace("[admin]\n", &format!("[admin]\n{keys}")));
    site.write("cert.pem", include_str!("../../relais-connect/tests/http/untrusted-cert.pem"));
    site.write("key.pem", include_str!("../../relais-connect/tests/http/untrusted-key.pem"));
    let running = site.run();
    assert_said(&site.relais(&["health"]), 0, &["alive", &format!("https://{place}/healthz")]);
    assert_said(&site.relais(&["health", "--ready"]), 0, &["ready", "https://"]);
    assert_eq!(running.stop().code, 0);
}

/// Reads a request and answers that it is not ready.
fn not_ready(mut stream: impl io::Read + io::Write) {
    let body = r#"{"ready":false,"reason":"disk full"}"#;
    let length = body.len();
    let _ = stream.read(&mut [0; 4096]);
    let answer =
        format!("HTTP/1.1 503 X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
    stream.write_all(answer.as_bytes()).unwrap();
    stream.flush().unwrap();
}

fn tls() -> rustls::ServerConfig {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
    let certificate = include_bytes!("../../relais-connect/tests/http/untrusted-cert.pem");
    let key = include_bytes!("../../relais-connect/tests/http/untrusted-key.pem");
    let chain = vec![CertificateDer::from_pem_slice(certificate).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key).unwrap();
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let versions = rustls::ServerConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .unwrap();
    versions.with_no_client_auth().with_single_cert(chain, key).unwrap()
}

#[test]
fn health_names_the_reason_of_a_relais_that_is_not_ready_with_and_without_tls() {
    for scheme in ["http", "https"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let server = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            if scheme == "http" {
                return not_ready(stream);
            }
            // No authority has signed its certificate.
            let connection = rustls::ServerConnection::new(tls().into()).unwrap();
            not_ready(rustls::StreamOwned::new(connection, stream));
        });
        let said = Site::new().relais(&["health", "--ready", "--url", &url]);
        assert_said(&said, 1, &["not healthy", "disk full"]);
        server.join().unwrap();
    }
}
