//! `[[handler]]` in plain words.

use std::fmt::Write;

use relais_core::outbox::OnDeadLetter;

use super::{breaker, limits, retry};
use crate::settings::HandlerConfig;

pub(super) fn handler(handler: &HandlerConfig) -> Vec<String> {
    let mut call = format!("http, POST {}", handler.http.url);
    if !handler.http.headers.is_empty() {
        let names = handler.http.headers.iter().map(|(name, _)| name.as_str());
        let _ = write!(call, ", headers {}", names.collect::<Vec<_>>().join(", "));
    }
    match handler.http.signing().len() {
        0 => call.push_str(", not signed"),
        1 => call.push_str(", signed"),
        n => drop(write!(call, ", signed ({n} secrets)")),
    }
    if handler.http.allow_private {
        call.push_str(", private addresses allowed");
    }
    let dead = match handler.on_dead_letter {
        OnDeadLetter::Park => "a dead letter parks its key",
        OnDeadLetter::Skip => "later messages continue past a dead letter",
        OnDeadLetter::Retry => {
            "a failing call is repeated: only answers `fail` and `park` make dead letters"
        }
    };
    let sends = match handler.destinations.as_slice() {
        [] => "its answers send no messages".to_owned(),
        names => format!("its answers may send messages to `{}`", names.join("`, `")),
    };
    vec![
        match handler.on.as_slice() {
            [] => "only steps of processes".to_owned(),
            names => format!("`{}`", names.join("`, `")),
        },
        call,
        sends,
        format!("{}; {dead}", retry(&handler.retry)),
        format!("{}; {}", limits(&handler.limits), breaker(&handler.breaker)),
        format!("paused and limited as destination `{}`", handler.target()),
    ]
}
