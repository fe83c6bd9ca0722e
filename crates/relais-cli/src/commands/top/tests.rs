//! The picture and the keys, with generated states.

use serde_json::json;

use super::*;

/// Returns the state after this many seconds, with these numbers of received and delivered rows.
pub(in crate::commands::top) fn state(seconds: i64, received: u64, dispatched: u64) -> TopState {
    let now = relais_core::time::Timestamp(seconds * 1_000_000);
    let oldest = relais_core::time::Timestamp(-5_000_000);
    let counted = |name: &str, rows: u64| json!({ "name": name, "rows": rows });
    let reason = json!({ "code": "HTTP_503", "message": "down\u{1b}[2J" });
    let until = "2026-11-17T05:00:00.000Z";
    let state = json!({
        "now": now, "inbox_oldest": oldest, "dead_letters_open": 2, "parked_keys": 1, "timers_due": 0,
        "processes_need_operator": 1, "limited": ["destination orders, by an operator: 1 at a time"],
        "inbox": [counted("RECEIVED", 3), counted("PROCESSED", received - 3)],
        "outbox": [counted("PENDING", 7), counted("DISPATCHED", dispatched)],
        "processes": [counted("PAUSED", 1), counted("RUNNING", 0)],
        "backlogs": [{ "destination": "orders", "pending": 7, "oldest": oldest },
                     { "destination": "stray", "pending": 1, "oldest": null }],
        "workers": [{ "scope": "inbox", "worker": "w-1", "lanes": 64, "alive": true },
                    { "scope": "inbox", "worker": "w-0", "lanes": 0, "alive": false }],
        "destinations": { "orders": { "breaker": "open", "reason": reason, "calls": null, "open_until": until,
                                      "dispatched": dispatched } },
    });
    serde_json::from_value(state).unwrap()
}

fn drawn(choice: &Choice, trouble: Option<&str>) -> String {
    drawn_in(120, choice, trouble)
}

fn drawn_in(width: usize, choice: &Choice, trouble: Option<&str>) -> String {
    let place = TopConfig {
        store: "sqlite:a.db".to_owned(),
        sources: vec!["hook".to_owned()],
        destinations: vec![("orders".to_owned(), Some("50/s".to_owned()))],
    };
    let mut history = RateHistory::default();
    history.add(&state(0, 100, 50));
    let now = state(2, 300, 250);
    history.add(&now);
    let scene = TopView { place: &place, state: &now, history: &history, choice, trouble, width };
    let lines = picture(&scene).into_iter();
    let lines = lines.map(|line| line.into_iter().map(|(text, _)| text).collect::<String>());
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_picture_shows_rates_depths_ages_breakers_and_workers() {
    let text = drawn(&Choice::default(), None);
    for wanted in [
        "received",
        "100/s",
        "3 open, oldest 7s",
        "1 needs an operator; 1 paused; 0 timers due",
        "MSG/S",
        "8 pending",
        "dead letters 2, parked keys 1",
        "limited      destination orders, by an operator: 1 at a time",
        "> orders",
        "open      HTTP_503: down",
        "rate limit 50/s",
        "2026-11-17T05:00:00.000Z",
        "stray",
        "waits: no [[destination]] names it",
        "worker w-1: 64 lanes in 1 scope",
    ] {
        assert!(text.contains(wanted), "{wanted}:\n{text}");
    }
    assert!(!text.contains("w-0"), "a lost worker:\n{text}");
    assert!(!text.contains('\u{1b}'), "a target writes to the terminal:\n{text}");
}

#[test]
fn every_line_fits_80_columns_or_has_an_ellipsis() {
    for choice in [Choice::default(), Choice { help: true, ..Choice::default() }] {
        for width in [80, 100] {
            let text = drawn_in(width, &choice, None);
            for line in text.lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
            let whole = drawn_in(400, &choice, None);
            assert!(text.contains('…') || text.lines().count() >= whole.lines().count(), "{text}");
        }
    }
    let text = drawn_in(80, &Choice::default(), None);
    for wanted in [
        "dead letters 2, parked keys 1",
        "3 open, oldest 7s",
        "> orders",
        "HTTP_503: down",
        "1 needs an operator;",
    ] {
        assert!(text.contains(wanted), "{wanted}:\n{text}");
    }
}

#[test]
fn errors_pause_and_help_are_shown() {
    let text = drawn(&Choice { paused: true, ..Choice::default() }, Some("database unavailable"));
    assert!(text.contains("paused") && text.contains("database unavailable"), "{text}");
    let text = drawn(&Choice { help: true, ..Choice::default() }, None);
    assert!(text.contains("breaker") && !text.contains("worker w-1"), "{text}");
}

#[test]
fn a_choice_stays_among_the_destinations() {
    let mut choice = Choice::default();
    for (key, wanted) in
        [(KeyCommand::Up, 0), (KeyCommand::Down, 1), (KeyCommand::Down, 1), (KeyCommand::Up, 0)]
    {
        pressed(&mut choice, key, 2);
        assert_eq!(choice.destination, SelectedRow::At(wanted), "{key:?}");
    }
    pressed(&mut choice, KeyCommand::Down, 0);
    assert_eq!(choice.destination, SelectedRow::At(0));
}

/// Joins the lines of a picture, so that a text can be found that is wrapped.
fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_whole_reason_of_a_destination_is_shown_in_80_columns() {
    let url = format!("https://api.example.com/{}", "a".repeat(90));
    let message = format!("{url} answered 503 Service Unavailable: no healthy upstream, try later");
    let mut now = state(2, 300, 250);
    let orders = now.destinations.get_mut("orders").unwrap();
    orders.reason.as_mut().unwrap().message = message.clone();
    let failing = json!({ "id": 17, "msg_key": "o-17", "since": now.now, "attempts": 4,
                          "next_attempt_at": null, "error_code": "HTTP_500", "error_message": "it broke" });
    now.backlogs[0].failing_keys = 2;
    now.backlogs[0].failing = serde_json::from_value(failing).unwrap();
    let place = TopConfig {
        store: "sqlite:a.db".to_owned(),
        sources: Vec::new(),
        destinations: vec![("orders".to_owned(), None)],
    };
    let mut history = RateHistory::default();
    history.add(&now);
    for destination in [SelectedRow::At(0), SelectedRow::InTrouble] {
        let choice = Choice { destination, ..Choice::default() };
        let scene = TopView {
            place: &place,
            state: &now,
            history: &history,
            choice: &choice,
            trouble: None,
            width: 80,
        };
        let lines = picture(&scene).into_iter();
        let lines = lines.map(|line| line.into_iter().map(|(text, _)| text).collect::<String>());
        let lines: Vec<String> = lines.collect();
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
        // A word that is longer than a line is broken anywhere.
        let text = joined(&lines.join("\n")).replace(' ', "");
        assert!(text.contains(&message.replace(' ', "")), "{lines:#?}");
        let failing = "2 keys are failing; oldest: outbox row 17 (key o-17), for 0s, 4 attempts used: HTTP_500: it broke";
        assert!(text.contains(&failing.replace(' ', "")), "{lines:#?}");
    }
    let other = Choice { destination: SelectedRow::At(1), ..Choice::default() };
    let scene = TopView {
        place: &place,
        state: &now,
        history: &history,
        choice: &other,
        trouble: None,
        width: 80,
    };
    let lines = picture(&scene).into_iter();
    let text: String = lines.flatten().map(|(text, _)| text).collect();
    assert!(text.contains("HTTP_503: https://api"), "{text}");
    assert!(!text.contains("no healthy upstream"), "it is cut elsewhere: {text}");
}
