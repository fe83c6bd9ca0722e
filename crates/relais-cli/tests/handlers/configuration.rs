//! What `relais check` reports about `[[handler]]`.

use std::net::SocketAddr;

use crate::{
    settings,
    support::{Site, assert_said},
};

fn nowhere() -> SocketAddr {
    // Its listener is closed.
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn a_handler_is_explained_without_its_secrets() {
    let site = Site::with(&settings("sqlite:relais.db", nowhere(), ""));
    let said = site.relais(&["check"]);
    assert_said(
        &said,
        0,
        &[
            "handler billing",
            "`OrderPlaced`",
            "signed (2 secrets)",
            "its answers may send messages to `mail`",
            "10 at a time, 30s each",
            "paused and limited as destination `@billing`",
        ],
    );
    assert!(!said.out.contains("MfKQ9r8"), "{said:?}");
}

#[test]
fn a_mistake_in_a_handler_is_an_error_with_the_next_step() {
    let good = settings("sqlite:relais.db", nowhere(), "");
    for (from, to, expected) in [
        ("destinations = [\"mail\"]", "destinations = [\"mial\"]", "did you mean `mail`?"),
        ("allow_private = true\n", "", "is a private address; set `allow_private = true`"),
        ("kind = \"http\"\non", "kind = \"grpc\"\non", "is not known here"),
        ("on = [\"OrderPlaced\"]\n", "", "name one event type, or a list of them"),
        ("name = \"billing\"", "name = \"a@b\"", "must not contain `::` or `@`"),
        ("name = \"mail\"", "name = \"@billing\"", "which stands for this handler"),
        (
            "[handler.retry]",
            "[inbox]\nignore = [\"OrderPlaced\"]\n[handler.retry]",
            "[[handler]] `billing`",
        ),
        ("destinations =", "destination =", "unknown key"),
        ("[handler.retry]", "[handler.headers]\nattempt = \"9\"\n[handler.retry]", "set by relais"),
    ] {
        assert!(good.contains(from), "{from}");
        let site = Site::with(&good.replacen(from, to, 1));
        assert_said(&site.relais(&["check"]), 2, &[expected]);
    }
    let twice = "[[handler]]\nname = \"billing\"\nkind = \"http\"\non = \"Other\"\nurl = \"https://a.example\"\n";
    let site = Site::with(&format!("{good}{twice}"));
    assert_said(&site.relais(&["check"]), 2, &["another handler is named `billing`"]);
}

#[test]
fn connecting_reports_an_endpoint_that_does_not_answer() {
    let site = Site::with(&settings("sqlite:relais.db", nowhere(), ""));
    let said = site.relais(&["check", "--connect"]);
    assert_said(&said, 1, &["FAIL handler[billing].url", "cannot connect"]);
}
