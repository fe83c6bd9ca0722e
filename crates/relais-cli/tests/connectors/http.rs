//! The example for HTTP.

use crate::{
    example::{BODY, Example, end},
    support::{Target, post},
};

#[test]
fn the_example_for_http_delivers_a_message() {
    let target = Target::start();
    let example = Example::of_page(
        "http.md",
        &[("127.0.0.1:7071", "127.0.0.1:0"), ("127.0.0.1:9000", &target.address.to_string())],
    );
    let (site, running) = example.run();
    // The check may have sent a request of its own.
    target.rest();
    let headers = [("message-id", "m-1"), ("content-type", "application/json")];
    let (status, answer) = post(running.address("hook"), "/hook", &headers, BODY);
    assert_eq!(status, 202, "{answer}");
    assert_eq!(target.next().body, BODY);
    end(&site, running);
}
