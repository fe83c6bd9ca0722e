//! Any request to the API: answered, never with a fault of the server, and with a reason where it is
//! refused.

use std::collections::BTreeSet;

use serde_json::Value;

use super::client::{Answer, Client};

#[path = "../../../../fuzz/run.rs"]
mod run;

/// Requests beside the corpus.
const ROUNDS: u64 = 300;

/// The first line is the path with its query, what follows the body; without one it is only asked.
pub(crate) fn any_request_is_answered(client: &Client) {
    run::run("admin", ROUNDS, |input| {
        let (path, body) = match input.iter().position(|byte| *byte == b'\n') {
            Some(at) => (&input[..at], &input[at + 1..]),
            None => (input, &[][..]),
        };
        let path = format!("/{}", printable(path.strip_prefix(b"/").unwrap_or(path)));
        // A stream, which ends when its reader closes it.
        if path.starts_with("/live") {
            return;
        }
        let answer = match body {
            [] => client.get(&path),
            body => client.post_text(&path, &String::from_utf8_lossy(body)),
        };
        assert_answered(&answer);
        assert_next_page_is_another(client, &path, &answer);
    });
}

fn assert_answered(answer: &Answer) {
    assert!((200..500).contains(&answer.status), "{answer:?}");
    if answer.status >= 400 {
        answer.fails(answer.status);
    }
}

fn assert_next_page_is_another(client: &Client, path: &str, answer: &Answer) {
    let Ok(list) = serde_json::from_str::<Value>(&answer.body) else { return };
    let (Some(_), Some(next)) = (list["items"].as_array(), list["next"].as_str()) else { return };
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let mut query: Vec<_> = query.split('&').filter(|pair| !pair.starts_with("before=")).collect();
    let before = format!("before={next}");
    query.push(&before);
    let more = client.get(&format!("{path}?{}", query.join("&"))).ok();
    let ids = |list: &Value| -> BTreeSet<String> {
        let items = list["items"].as_array().expect("a list").iter();
        items.map(|item| item["id"].to_string()).collect()
    };
    assert!(ids(&list).is_disjoint(&ids(&more)), "{path} {before}: a row on two pages");
}

/// Returns true for characters allowed in the first line of a request; hyper refuses the others.
fn printable(path: &[u8]) -> String {
    let one = |byte: &u8| match byte {
        byte if byte.is_ascii_alphanumeric() || b"-._~/?&=%+:;,@!$'()*".contains(byte) => {
            char::from(*byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    path.iter().map(one).collect()
}
