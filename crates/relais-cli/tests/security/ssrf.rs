//! Addresses that messages must not be sent to: this machine, its network, its cloud. The real program is
//! tested, with a listener at the forbidden address.
//!
//! Names that lie (private and mixed answers, an answer that changes) need a name server that lies; they
//! are in `relais-connect/src/http/private_address/tests.rs`, against the publisher this program uses.

use std::{
    io::ErrorKind,
    net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs},
};

use serde_json::Value;

use crate::{
    server::{Server, field},
    support::{Running, Site, post},
    wait_for,
};

/// Each stands for a place inside.
const INSIDE: &str =
    include_str!("../../../relais-connect/src/http/private_address/private_hosts.txt");
/// Names that do without any name server.
const OURSELVES: [&str; 3] = ["localhost", "LOCALHOST", "a.localhost"];

fn inside() -> Vec<&'static str> {
    INSIDE.lines().filter(|line| !line.starts_with('#')).chain(OURSELVES).collect()
}

/// No places for messages at all.
const NO_TARGETS: &[&str] = &[
    "ftp://example.org/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_FLUSHALL",
    "unix:/run/docker.sock",
    "data:text/plain,x",
    "javascript:x",
    "//example.org/",
    "example.org",
    "http://",
    "https://user@example.org/",
    "https://user:pass@example.org/",
    "http://example.org@127.0.0.1/",
    "http://[::1%25eth0]/",
    "http://exa mple.org/",
    "http://example.org:99999/",
];

fn destination(name: usize, url: &str) -> String {
    format!("[[destination]]\nname = \"d-{name}\"\nkind = \"http\"\nurl = \"{url}\"\n")
}

/// The destinations `relais check` complains of.
fn refused(settings: &str) -> (i32, String) {
    let said = Site::with(settings).relais(&["check", "--offline"]);
    (said.code, said.out + &said.err)
}

#[test]
fn private_addresses_are_refused_in_every_notation() {
    // The configuration and the connector both check; each is tested alone.
    for (number, host) in inside().into_iter().enumerate() {
        let (code, said) = refused(&destination(number, &format!("http://{host}:8080/a?b")));
        assert_ne!(code, 0, "{host}: {said}");
        assert!(said.contains("allow_private"), "{host}: {said}");
    }
    let all: String =
        (0..).zip(inside()).map(|(n, host)| destination(n, &format!("https://{host}/"))).collect();
    let (code, said) = refused(&all.replace("kind =", "allow_private = true\nkind ="));
    assert_eq!(code, 0, "it can be allowed explicitly: {said}");
}

#[test]
fn only_http_urls_without_credentials_are_targets() {
    let all: String = (0..).zip(NO_TARGETS).map(|(n, url)| destination(n, url)).collect();
    let (code, said) = refused(&all.replace("kind =", "allow_private = true\nkind ="));
    assert_ne!(code, 0);
    for (number, url) in NO_TARGETS.iter().enumerate() {
        assert!(said.contains(&format!("destination[d-{number}].url")), "{url}: {said}");
    }
}

/// A server that must not be called.
struct Quiet(TcpListener);

impl Quiet {
    fn listen(address: &str) -> Option<Self> {
        let listener = TcpListener::bind(address).ok()?;
        listener.set_nonblocking(true).unwrap();
        Some(Self(listener))
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    fn was_not_called(&self) {
        let called = self.0.accept().map(|(_, from)| from);
        assert_eq!(called.unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}

fn settings(url: &str, allow_private: bool) -> String {
    format!(
        "[store]\nurl = \"sqlite:relais.db\"\n\
         [[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
         source_system = \"shop\"\n\
         [[route]]\non = \"Order\"\ndestination = \"out\"\n\
         [[destination]]\nname = \"out\"\nkind = \"http\"\nurl = \"{url}\"\n\
         allow_private = {allow_private}\nretry.attempts = 1\nlimits.timeout = \"5s\"\n"
    )
}

fn send(running: &Running, id: &str) {
    let order = format!(r#"{{"type":"Order","id":"{id}"}}"#);
    let sent =
        post(running.address("hook"), "/hook", &[("message-id", id), ("message-key", id)], &order);
    assert_eq!(sent.0, 202, "{sent:?}");
}

/// The dead letter of a key.
fn letter(site: &Site, key: &str) -> Value {
    wait_for("a dead letter", || {
        let letters = site.json(&["dead-letter", "list"]);
        letters.as_array().unwrap().iter().find(|letter| letter["msg_key"] == key).cloned()
    })
}

/// A name of this machine that is none of the words the settings know.
fn name_inside() -> Option<String> {
    let hosts = std::fs::read_to_string("/etc/hosts").ok()?;
    let listed = hosts.lines().filter_map(|line| line.split('#').next());
    let mut names = listed.flat_map(|line| line.split_whitespace().skip(1));
    names.find(|name| !name.contains("localhost") && leads_inside(name)).map(str::to_owned)
}

fn leads_inside(name: &str) -> bool {
    let is_inside = |address: SocketAddr| match address.ip() {
        IpAddr::V4(four) => four.is_loopback() || four.is_private(),
        IpAddr::V6(six) => six.is_loopback() || six.is_unique_local(),
    };
    (name, 0).to_socket_addrs().is_ok_and(|mut found| found.any(is_inside))
}

/// The settings cannot know where a name leads; the connection does.
#[test]
fn a_name_that_leads_inside_is_refused_when_it_is_called() {
    let Some(name) = name_inside() else {
        println!("NOT TESTED: /etc/hosts has no name but localhost for this machine");
        return;
    };
    let inside = Quiet::listen("0.0.0.0:0").unwrap();
    let port = inside.address().port();
    let site = Site::with(&settings(&format!("http://{name}:{port}/"), false));
    let running = site.run();
    send(&running, "1");
    let letter = letter(&site, "1");
    assert_eq!(letter["error_class"], "ADDRESS_REFUSED", "{letter}");
    assert!(letter["error_message"].as_str().unwrap().contains("allow_private = true"), "{letter}");
    inside.was_not_called();
}

#[test]
fn a_redirect_leads_nowhere() {
    let inside = Quiet::listen("127.0.0.1:0").unwrap();
    let place = format!("http://{}/latest/meta-data/", inside.address());
    // Answers each message with the status that is its id.
    let outside = Server::start(move |request| {
        let status = field(request, "message-key").unwrap_or("500").to_owned();
        format!("HTTP/1.1 {status} X\r\nlocation: {place}\r\ncontent-length: 0\r\n\r\n")
    });
    let site = Site::with(&settings(&format!("http://{}/", outside.address), true));
    let running = site.run();
    for status in ["301", "302", "303", "307", "308"] {
        send(&running, status);
        assert_eq!(letter(&site, status)["error_class"], format!("HTTP_{status}"));
    }
    assert_eq!(outside.seen().len(), 5);
    inside.was_not_called();
}

#[test]
fn no_proxy_of_the_environment_is_used() {
    let proxy = Quiet::listen("127.0.0.1:0").unwrap();
    let address = format!("http://{}", proxy.address());
    let names =
        ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    let variables: Vec<(&str, &str)> = names.iter().map(|name| (*name, address.as_str())).collect();
    let ok = |_: &str| "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned();
    let (target, collector) = (Server::start(ok), Server::start(ok));
    let site = Site::with(&format!(
        "{}[telemetry]\notlp = \"http://{}\"\n",
        settings(&format!("http://{}/", target.address), true),
        collector.address
    ));
    let running = site.run_with(&variables);
    send(&running, "1");
    wait_for("the message", || (!target.seen().is_empty()).then_some(()));
    wait_for("its trace", || (!collector.seen().is_empty()).then_some(()));
    proxy.was_not_called();
}
