//! `relais run` beside a database that is not there yet.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

// Some helpers are made for other tests of the program.
#[allow(dead_code)]
mod support;

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    thread,
};

use support::{Site, assert_said, postgres::PostgresSchema};

/// An address without a listener; the listener's port is not given out again soon.
fn nowhere() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn settings(url: &str, wait: &str) -> String {
    format!("[store]\nurl = \"{url}\"\nwait = \"{wait}\"\n\n[admin]\nlisten = \"127.0.0.1:0\"\n")
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
fn what_a_wait_cannot_change_ends_the_start_at_once() {
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
    let place = nowhere();
    let site = Site::with(&settings(&schema.url.replacen(host, &place.to_string(), 1), "60s"));
    let command = site.command(&["run", "--log", "json"]);
    let mut running = support::Running::start(command, "waiting for the database");
    forward(TcpListener::bind(place).unwrap(), server);
    running.wait_for("\"message\":\"running\"");
    running.stop();
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
