//! The example for NATS.

use crate::{
    example::{BODY, EVENT_TYPE, Example, end, with_wrong_password},
    server::{Server, wait_until},
};

const URL: &str = "nats://127.0.0.1:4222";

#[test]
fn the_example_for_nats_delivers_a_message() {
    let Some(server) = Server::from_environment() else { return };
    server.create_stream("ORDERS", "orders.>");
    server.create_stream("ACCEPTED", "accepted.>");
    let (site, running) = Example::of_page("nats.md", &[(URL, &server.url())]).run();
    let headers = [("Nats-Msg-Id", "m-1"), ("event-type", EVENT_TYPE)];
    server.send("orders.eu", &headers, BODY.as_bytes());
    wait_until("it is delivered", || server.messages("ACCEPTED") == 1);
    assert_eq!(server.message("ACCEPTED", 1).1, BODY.as_bytes());
    wait_until("it is acknowledged", || server.open_messages("ORDERS", "relais") == (0, 0));
    end(&site, running);
}

#[test]
fn a_missing_stream_and_a_wrong_login_to_nats_are_found_before_the_start() {
    let Some(server) = Server::from_environment() else { return };
    let example = Example::of_page("nats.md", &[(URL, &server.url())]);
    example.fails("source[orders].url", &["the stream does not exist; create it"]);
    server.create_stream("ORDERS", "orders.>");
    let fixed = example.with("accepted.{{aggregate_id}}", "accepted.orders");
    fixed.fails(
        "destination[accepted-orders].url",
        &["no stream has the subject `accepted.orders`; add it to one"],
    );
    let wrong =
        example.with(&server.url(), &with_wrong_password(&server.url()).replace("CANARY", "no"));
    for setting in ["source[orders].url", "destination[accepted-orders].url"] {
        wrong.fails(setting, &["the server refuses the login; check `url`"]);
    }
}
