//! Known tricks to hide a private address, and a name server that changes its answer.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use relais_core::{delivery::Delivery, publisher::Publisher};

use super::*;
use crate::{
    http::{HttpPublisher, HttpPublisherSettings, Method},
    testing::row,
};

const PRIVATE: &str = include_str!("private_hosts.txt");

fn private() -> impl Iterator<Item = &'static str> {
    PRIVATE.lines().filter(|line| !line.starts_with('#'))
}

#[test]
fn private_addresses_are_refused_in_every_form() {
    for host in private() {
        for url in [format!("http://{host}/"), format!("https://{host}:8443/a?b#c")] {
            let error = check_url(&url, false).expect_err(&url);
            assert!(error.contains("allow_private = true"), "{url}: {error}");
            assert!(check_url(&url, true).is_ok(), "{url}");
        }
    }
}

#[test]
fn public_addresses_and_names_are_allowed() {
    for host in [
        "example.org",
        "localhost.example.org",
        "8.8.8.8",
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.1",
        "100.63.255.255",
        "100.128.0.1",
        "126.255.255.255",
        "128.0.0.1",
        "169.253.255.255",
        "172.15.255.255",
        "172.32.0.1",
        "192.167.255.255",
        "192.169.0.1",
        "198.17.255.255",
        "198.20.0.1",
        "223.255.255.255",
        "[2606:4700:4700::1111]",
        "[2a00:1450:4001:800::200e]",
        "[2003::1]",
        "[::ffff:8.8.8.8]",
        "[64:ff9b::8.8.8.8]",
        "[2002:808:808::1]",
    ] {
        assert!(check_url(&format!("https://{host}/"), false).is_ok(), "{host}");
    }
}

#[test]
fn only_plain_http_urls_are_accepted_and_errors_never_repeat_them() {
    for url in [
        "ftp://example.org/k3y",
        "file:///etc/passwd?k3y",
        "gopher://example.org/k3y",
        "unix:/run/docker.sock?k3y",
        "javascript:k3y",
        "data:text/plain,k3y",
        "//example.org/k3y",
        "example.org/k3y",
        "http://",
        "http:///?k3y",
        "https://user@example.org/k3y",
        "https://user:k3y@example.org/",
        "https://:k3y@example.org/",
        "http://127.0.0.1:80\\@example.org/k3y",
        "http://[::1%25eth0]/k3y",
        "http://exa mple.org/k3y",
        "http://example.org:99999/k3y",
        "",
    ] {
        let error = check_url(url, false).expect_err(url);
        assert!(!error.contains("k3y"), "{error}");
    }
}

/// Returns one answer after the other, then the last one repeatedly.
struct ScriptedLookup {
    answers: Mutex<Vec<Vec<IpAddr>>>,
    asked: AtomicUsize,
}

impl ScriptedLookup {
    fn new(answers: &[&[&str]]) -> Arc<Self> {
        let parse = |answer: &&[&str]| answer.iter().map(|a| a.parse().unwrap()).collect();
        let answers = Mutex::new(answers.iter().map(parse).collect());
        Arc::new(Self { answers, asked: AtomicUsize::new(0) })
    }
}

impl NameLookup for ScriptedLookup {
    fn lookup(&self, _: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
        Box::pin(async move { Ok(answer) })
    }
}

async fn resolve(script: &Arc<ScriptedLookup>) -> Result<Vec<SocketAddr>, String> {
    let resolver = PublicResolver(Arc::clone(script) as Arc<dyn NameLookup>);
    let name = "rebind.example".parse().map_err(|_| "no name")?;
    resolver.resolve(name).await.map(Iterator::collect).map_err(|e| e.to_string())
}

#[tokio::test]
async fn one_private_address_among_public_ones_refuses_the_name() {
    let public = ScriptedLookup::new(&[&["8.8.8.8", "2606:4700:4700::1111"]]);
    assert_eq!(resolve(&public).await.unwrap().len(), 2);
    for second in ["127.0.0.1", "::1", "::ffff:10.0.0.1", "169.254.169.254"] {
        let error = resolve(&ScriptedLookup::new(&[&["8.8.8.8", second]])).await.unwrap_err();
        assert!(error.contains(second.trim_start_matches("::ffff:")), "{error}");
    }
}

#[tokio::test]
async fn an_answer_that_changes_is_checked_each_time() {
    let script = ScriptedLookup::new(&[&["8.8.8.8"], &["127.0.0.1"]]);
    assert_eq!(resolve(&script).await.unwrap(), ["8.8.8.8:0".parse().unwrap()]);
    assert!(resolve(&script).await.is_err());
    assert_eq!(script.asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_name_with_a_private_address_is_rejected_without_a_connection() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://rebind.example:{}/", listener.local_addr().unwrap().port());
    for method in [Method::Post, Method::Put, Method::Patch] {
        let script = ScriptedLookup::new(&[&["127.0.0.1"]]);
        let settings = HttpPublisherSettings { method, ..HttpPublisherSettings::new(&url) };
        let publisher = HttpPublisher::with_lookup(settings, script.clone()).unwrap();
        let deliveries = publisher.publish(&[row("{}")]).await;
        let Delivery::Reject { problem } = &deliveries[0] else { panic!("{deliveries:?}") };
        assert_eq!(problem.code, ADDRESS_REFUSED);
        assert!(problem.message.contains("allow_private = true"), "{}", problem.message);
        assert_eq!(script.asked.load(Ordering::SeqCst), 1);
    }
    assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

/// The connection uses the answer that was checked; a second lookup would return another one.
#[tokio::test]
async fn a_name_that_changes_after_the_check_does_not_reach_the_new_address() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://rebind.example:{}/", listener.local_addr().unwrap().port());
    // A public address without a host.
    let script = ScriptedLookup::new(&[&["2000::1"], &["127.0.0.1"]]);
    let connect_timeout = Duration::from_millis(300);
    let settings = HttpPublisherSettings { connect_timeout, ..HttpPublisherSettings::new(&url) };
    let publisher = HttpPublisher::with_lookup(settings, script.clone()).unwrap();
    let first = publisher.publish(&[row("{}")]).await;
    assert!(matches!(first[0], Delivery::Outage { .. }), "{first:?}");
    assert_eq!(script.asked.load(Ordering::SeqCst), 1);
    let second = publisher.publish(&[row("{}")]).await;
    assert!(matches!(second[0], Delivery::Reject { .. }), "{second:?}");
    assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn a_literal_private_address_is_refused_before_anything_is_sent() {
    let error = HttpPublisher::new(HttpPublisherSettings::new("http://[::ffff:7f00:1]/")).err();
    assert!(error.unwrap().to_string().contains("loopback"));
}

#[tokio::test]
async fn localhost_by_name_is_rejected() {
    let publisher = HttpPublisher::new(HttpPublisherSettings::new("http://localhost:9/")).unwrap();
    let deliveries = publisher.publish(&[row("{}")]).await;
    assert!(
        matches!(&deliveries[0], Delivery::Reject { problem } if problem.code == ADDRESS_REFUSED),
        "{deliveries:?}"
    );
}
