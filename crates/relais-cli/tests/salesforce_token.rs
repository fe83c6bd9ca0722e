//! The program with an org that replaces the refresh token at every use.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

// Each of these files uses its part of them.
#[allow(dead_code)]
#[path = "support/org.rs"]
mod org;
#[allow(dead_code)]
mod support;

use salesforce_sim::{AuthConfig, SimulatorConfig};

use org::{Base, Org, members_created, settings, until};
use support::{Running, Site, post};

const KEY: &str = "refresh_token_key = \"a key of more than thirty-two characters\"\n";

/// Posts an event to the source; it must be taken.
fn send(running: &Running, id: &str, body: &str) {
    let headers = [("content-type", "application/json"), ("message-id", id)];
    let (status, answer) = post(running.address("hook"), "/hook", &headers, body);
    assert_eq!(status, 202, "{answer}");
}

/// An org that takes each refresh token once, beginning with `r0`.
fn rotating() -> Org {
    let auth = AuthConfig {
        refresh_token: Some("r0".to_owned()),
        rotate_refresh_tokens: true,
        ..AuthConfig::default()
    };
    Org::start(SimulatorConfig { auth, ..SimulatorConfig::default() })
}

fn with_refresh_token(base: &Base, org: &Org, more: &str) -> String {
    let text = settings(base, org, "collections", more);
    text.replace("client_secret = \"hush-hush\"\n", "refresh_token = \"r0\"\n")
}

#[test]
fn a_rotated_refresh_token_survives_restarts() {
    for (site, base) in Base::all(&Site::new) {
        let org = rotating();
        base.members(4);
        site.write("relais.toml", &with_refresh_token(&base, &org, KEY));
        for round in 1..=4 {
            let running = site.run();
            let id = format!("e-{round}");
            send(&running, &id, &members_created(round..=round, 1));
            until(|| base.outbox("DISPATCHED") == round);
            match round {
                // A crash keeps it too.
                1 => drop(running),
                _ => assert_eq!(running.stop().code, 0),
            }
        }
        org.assert_once("Contact", 4);
        let stored = base.texts("SELECT sealed FROM relais_credential WHERE version = 4");
        assert_eq!(stored.len(), 1, "one log-in for each start");
        // Without its key it is of no use, and the reason is reported.
        let other = KEY.replace("a key", "another key");
        site.write("relais.toml", &with_refresh_token(&base, &org, &other));
        let mut running = site.run();
        send(&running, "e-5", &members_created(1..=1, 1));
        running.wait_for("cannot decrypt the stored refresh token; set `refresh_token_key`");
        assert_eq!(base.outbox("FAILED"), 0, "no row pays for it");
    }
}

#[test]
fn processes_that_rotate_at_once_lose_no_token() {
    for (site, base) in Base::all(&Site::new) {
        let org = rotating();
        base.members(60);
        // Every call of every process rotates.
        let more = KEY.to_owned() + "token_life = \"1ms\"\n";
        site.write("relais.toml", &with_refresh_token(&base, &org, &more));
        let (one, two) = (site.run(), site.run());
        for n in 1..=30 {
            send(&one, &format!("a-{n}"), &members_created(n..=n, 1));
            send(&two, &format!("b-{n}"), &members_created(30 + n..=30 + n, 1));
        }
        until(|| base.outbox("DISPATCHED") == 60);
        for running in [one, two] {
            let said = running.stop();
            assert!(said.code == 0 && !said.err.contains("invalid_grant"), "{said:?}");
        }
        org.assert_once("Contact", 60);
    }
}

#[test]
fn a_refresh_token_without_a_key_is_refused_by_check() {
    let site = Site::new();
    let base = Base::Sqlite(site.path("relais.db"));
    let org = rotating();
    site.write("relais.toml", &with_refresh_token(&base, &org, ""));
    let said = site.relais(&["check"]);
    assert_eq!(said.code, 2, "{said:?}");
    let text = format!("{}{}", said.out, said.err);
    assert!(text.contains("refresh_token_key: is missing; an org may replace"), "{text}");
    site.write("relais.toml", &with_refresh_token(&base, &org, "refresh_token_key = \"short\"\n"));
    let said = site.relais(&["check", "--offline"]);
    assert!(said.out.contains("at least 32 characters"), "{said:?}");
}
