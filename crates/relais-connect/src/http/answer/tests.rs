//! Answers of services, valid and not.

use relais_core::inbox::NewInbox;

use super::*;

fn row() -> InboxRow {
    let message = NewInbox::new("@billing::shop", "m-1", "OrderPlaced", "{}")
        .aggregate("o-1")
        .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    InboxRow::received(1, message)
}

fn read(answer: &str) -> Result<RemoteReply, String> {
    let destinations = ["shipping".to_owned(), "mail".to_owned()];
    let row = row();
    let context = AnswerContext { row: &row, call_id: "call", destinations: &destinations };
    parse(answer.as_bytes(), &context)
}

fn messages(answer: &str) -> Vec<NewMessage> {
    match read(answer) {
        Ok(RemoteReply::Done { messages, .. }) => messages,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_message_of_three_values_is_about_the_aggregate_of_the_event() {
    let answer = r#"{"outcome":"done","messages":[
        {"destination":"shipping","event_type":"PickOrder","payload":{ "n": 9007199254740993 }}]}"#;
    let sent = messages(answer);
    let [message] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!(message.payload, r#"{ "n": 9007199254740993 }"#, "byte for byte");
    assert_eq!((message.aggregate_type.as_str(), message.aggregate_id.as_str()), ("shop", "o-1"));
    assert_eq!((message.msg_key.as_str(), message.event_version), ("o-1", 1));
    assert!(message.headers.get("traceparent").is_some());
    assert_eq!(messages(answer), sent, "the same answer gives the same ids");
}

#[test]
fn a_message_can_say_everything_about_itself() {
    let sent = messages(
        r#"{"outcome":"done","messages":[{"destination":"mail","event_type":"Send","payload":1,
        "aggregate_type":"Customer","aggregate_id":"c-7","key":"k","event_version":3,
        "category":"command","headers":{"lang":"fr"},"delay_seconds":1.5},
        {"destination":"mail","event_type":"Send","payload":2,"aggregate_id":"c-8"}]}"#,
    );
    let [first, second] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!((first.aggregate_type.as_str(), first.aggregate_id.as_str()), ("Customer", "c-7"));
    assert_eq!((first.msg_key.as_str(), first.event_version), ("k", 3));
    assert_eq!(first.category, Category::Command);
    assert_eq!(first.headers.get("lang"), Some("fr"));
    assert_eq!(first.delay, Some(Duration::from_millis(1_500)));
    assert_eq!(second.msg_key, "c-8", "the aggregate is the key");
    assert_ne!(first.message_id, second.message_id);
}

#[test]
fn every_outcome_has_its_word() {
    let done = |data: Option<&str>| {
        Ok(RemoteReply::Done { messages: Vec::new(), data: data.map(str::to_owned) })
    };
    assert_eq!(read(r#"{"outcome":"done"}"#), done(None));
    let data = r#"{"outcome":"done","data":{"cents": 12345678901234567890}}"#;
    assert_eq!(read(data), done(Some(r#"{"cents": 12345678901234567890}"#)));
    let refused = read(r#"{"outcome":"fail","data":{}}"#);
    assert_eq!(refused, Err("has `data`, but its outcome is not `done`".to_owned()));
    let cases = [
        (r#"{"outcome":"retry"}"#, Outcome::retry("HANDLER_RETRY", "the service gave no reason")),
        (
            r#"{"outcome":"retry","after_seconds":30,"code":"LOCKED","message":"later\u001b"}"#,
            Outcome::retry_after(Duration::from_secs(30), "LOCKED", "later\u{FFFD}"),
        ),
        (r#"{"outcome":"fail","message":"no"}"#, Outcome::fail("HANDLER_FAILED", "no")),
        (r#"{"outcome":"park","code":"ASK"}"#, Outcome::park("ASK", "the service gave no reason")),
    ];
    for (answer, outcome) in cases {
        assert_eq!(read(answer), Ok(RemoteReply::Refused(outcome)), "{answer}");
    }
}

#[test]
fn an_answer_that_does_not_follow_the_contract_says_what_to_change() {
    let message = |rest: &str| {
        format!(r#"{{"outcome":"done","messages":[{{"event_type":"E","payload":{{}},{rest}}}]}}"#)
    };
    let many = format!(
        r#"{{"outcome":"done","messages":[{}]}}"#,
        [r#"{"destination":"mail","event_type":"E","payload":1}"#; MESSAGES_MAX + 1].join(",")
    );
    let long = "x".repeat(NAME_MAX + 1);
    let cases = [
        (String::new(), "empty"),
        ("<html>".to_owned(), "JSON"),
        ("[]".to_owned(), "is not a JSON object"),
        ("{}".to_owned(), "missing field `outcome`"),
        (r#"{"outcome":"ok"}"#.to_owned(), "unknown variant `ok`"),
        (r#"{"outcome":"done","mesages":[]}"#.to_owned(), "unknown field `mesages`"),
        (message(r#""destination":"shiping""#), "`shiping` is not listed in `destinations`"),
        (message(r#""destination":"mail","event_version":0"#), "event_version"),
        (message(r#""destination":"mail","delay_seconds":-1"#), "delay_seconds"),
        (message(r#""destination":"mail","category":"letter""#), "unknown variant `letter`"),
        (message(r#""destination":"mail","headers":{"Relais-Value":"x"}"#), "set by relais"),
        (message(&format!(r#""destination":"mail","aggregate_type":"{long}""#)), "201 characters"),
        (r#"{"outcome":"fail","after_seconds":3}"#.to_owned(), "outcome is not `retry`"),
        (r#"{"outcome":"retry","after_seconds":1e300}"#.to_owned(), "after_seconds"),
        (
            r#"{"outcome":"retry","messages":[{"destination":"mail","event_type":"E","payload":1}]}"#
                .to_owned(),
            "outcome is not `done`",
        ),
        (many, "1001 messages"),
    ];
    for (answer, expected) in cases {
        let error = read(&answer).expect_err(&answer[..answer.len().min(200)]);
        assert!(error.contains(expected), "{error}\n{expected}");
    }
}
