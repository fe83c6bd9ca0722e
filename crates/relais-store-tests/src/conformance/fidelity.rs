//! Byte for byte: what goes in comes out, whatever it looks like.

use relais_core::{
    inbox::{Content, NewInbox},
    inspect::InspectExt,
    message::{HeaderValue, Headers, NewMessage},
    outbox::OutboxFate,
    text::{KEY_MAX, identity},
};

use super::{
    Start, only_dead_letter,
    worker::{MANY, Worker, all, dead_and_parked, dead_message, handle_later, retry_later},
};
use crate::{
    build::{arrival, arrival_with, message, wide_text},
    fixture::{Fixture, quote},
};

pub const START: Start = Start::Migrated;

/// Valid JSON that a parser, a driver or a column type might not give back as it was.
fn odd_payloads() -> Vec<String> {
    let mut all: Vec<String> = [
        "{\"n\": 9007199254740993, \"big\": 123456789012345678901234567890.5, \"e\": 1E400}",
        "{\"a\":1,\"a\":2,\"a\":null}",
        "{\"z\":1,\"a\":2}",
        "{\"zero\":\"\\u0000\",\"lone\":\"\\ud800\",\"pair\":\"\\ud83d\\ude00\"}",
        "{\"\\u0061\":\"\\/\",\"b\":\"\\\"\"}",
        " \t\r\n{ \"a\" :\t[ 1 ,\n2 ] }\r\n ",
        "-0",
        "1.0",
        "1e-7",
        "\"\"",
        "null",
        "[]",
        "{\"clef\":\"𝄞\",\"smile\":\"😀\",\"rtl\":\"\u{202e}abc\",\"bom\":\"\u{feff}\"}",
        "{\"quote\":\"it's\",\"back\":\"\\\\\",\"percent\":\"%s $1 ?1 :a @a\"}",
        "\"e\u{301} \u{e9} \u{fffd} \u{ffff} \u{7f}\"",
    ]
    .map(str::to_owned)
    .into();
    all.push(format!("{}1{}", "[".repeat(128), "]".repeat(128)));
    all
}

fn odd_headers() -> Headers {
    let mut headers = Headers::default();
    headers.set("", "empty name");
    headers.set("quote\"d", "a\\b'c\u{1}");
    headers.push("many", HeaderValue::Text(String::new()));
    headers.push("many", HeaderValue::from_bytes(b"\xff\x00\xfe"));
    headers.push("many", HeaderValue::Null);
    headers.push("many", HeaderValue::Text("😀".to_owned()));
    headers
}

fn odd_keys() -> Vec<String> {
    let mut keys = ["", " ", "é", "e\u{301}", "😀", "'", "\"", "\\", "\n", "%", "NULL", "\u{1}"]
        .map(str::to_owned)
        .to_vec();
    keys.extend(longest_keys());
    keys
}

/// The longest keys relais itself makes of what it receives, in one byte and in four a character.
fn longest_keys() -> [String; 3] {
    let raw = ["k".repeat(KEY_MAX), wide_text(KEY_MAX / 4, 7), wide_text(KEY_MAX, 11)];
    raw.map(|key| identity(&key, KEY_MAX))
}

pub async fn outbox_payloads_come_out_as_they_went_in(f: &dyn Fixture) {
    let payloads = odd_payloads();
    let batch = payloads.iter().enumerate().map(|(n, payload)| NewMessage {
        payload: payload.clone(),
        ..message("orders", &format!("k{n}"))
    });
    f.store().enqueue(batch.collect()).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(MANY).await;
    assert_eq!(rows.iter().map(|row| row.payload.clone()).collect::<Vec<_>>(), payloads);
    let raw = f.rows("SELECT payload FROM relais_outbox ORDER BY id").await;
    let raw: Vec<_> = raw.into_iter().map(|row| row[0].clone().expect("text")).collect();
    assert_eq!(raw, payloads, "for other programs too");
}

pub async fn inbox_payloads_come_out_as_they_went_in(f: &dyn Fixture) {
    let payloads = odd_payloads();
    let batch = payloads.iter().enumerate().map(|(n, p)| arrival_with(&format!("m{n}"), p));
    f.store().accept(batch.collect(), Vec::new()).await.expect("accept");
    let rows = Worker::inbox(f, "w").await.received(MANY).await;
    let found: Vec<_> = rows.into_iter().map(|row| row.payload.expect("payload")).collect();
    assert_eq!(found, payloads);
}

pub async fn payloads_of_other_writers_come_out_as_they_went_in(f: &dyn Fixture) {
    for payload in odd_payloads() {
        let sql = format!(
            "INSERT INTO relais_outbox \
             (aggregate_type, aggregate_id, event_type, destination, payload) \
             VALUES ('T', 'a', 'E', 'orders', {})",
            quote(&payload)
        );
        f.run(&sql).await;
    }
    let rows = Worker::outbox(f, "orders", "w").await.pending(MANY).await;
    assert_eq!(rows.into_iter().map(|row| row.payload).collect::<Vec<_>>(), odd_payloads());
}

pub async fn a_payload_of_a_megabyte_goes_through(f: &dyn Fixture) {
    let payload = format!("\"{}\"", wide_text(262_144, 5).replace(['"', '\\'], "x"));
    assert!(payload.len() > 1_000_000);
    let sent = NewMessage { payload: payload.clone(), ..message("orders", "k") };
    f.store().enqueue(vec![sent]).await.expect("enqueue");
    assert_eq!(Worker::outbox(f, "orders", "w").await.pending(1).await[0].payload, payload);
    f.store().accept(vec![arrival_with("m", &payload)], Vec::new()).await.expect("accept");
    let rows = Worker::inbox(f, "w").await.received(1).await;
    assert_eq!(rows[0].payload.as_ref(), Some(&payload));
}

pub async fn headers_come_out_as_they_went_in(f: &dyn Fixture) {
    let headers = odd_headers();
    let sent = NewMessage { headers: headers.clone(), ..message("orders", "k") };
    f.store().enqueue(vec![sent]).await.expect("enqueue");
    assert_eq!(Worker::outbox(f, "orders", "w").await.pending(1).await[0].headers, headers);
    let received = NewInbox { headers: headers.clone(), ..arrival("m") };
    f.store().accept(vec![received], Vec::new()).await.expect("accept");
    assert_eq!(Worker::inbox(f, "w").await.received(1).await[0].headers, headers);
    for table in ["relais_outbox", "relais_inbox"] {
        let raw = f.value(&format!("SELECT headers FROM {table}")).await;
        assert_eq!(raw, Some(headers.to_json()));
    }
}

pub async fn keys_come_out_as_they_went_in(f: &dyn Fixture) {
    let keys = odd_keys();
    let batch = keys.iter().map(|key| message("orders", key)).collect();
    f.store().enqueue(batch).await.expect("enqueue");
    let rows = Worker::outbox(f, "orders", "w").await.pending(MANY).await;
    assert_eq!(rows.into_iter().map(|row| row.msg_key).collect::<Vec<_>>(), keys);
    let batch = keys.iter().enumerate().map(|(n, key)| NewInbox {
        key_str: Some(key.clone()),
        msg_key: key.clone(),
        ..arrival(&format!("m{n}"))
    });
    f.store().accept(batch.collect(), Vec::new()).await.expect("accept");
    let rows = Worker::inbox(f, "w").await.received(MANY).await;
    let found: Vec<_> = rows.into_iter().map(|row| (row.key_str, row.msg_key)).collect();
    assert_eq!(found, keys.into_iter().map(|k| (Some(k.clone()), k)).collect::<Vec<_>>());
}

pub async fn the_longest_key_can_wait_and_be_parked(f: &dyn Fixture) {
    let worker = Worker::outbox(f, "orders", "w").await;
    let handler = Worker::inbox(f, "w").await;
    for (n, key) in longest_keys().into_iter().enumerate() {
        let two = vec![message("orders", &key), message("orders", &key)];
        f.store().enqueue(two).await.expect("enqueue");
        let rows = worker.pending(10).await;
        assert_eq!(worker.settle(&rows[0], retry_later()).await, all(1));
        assert!(worker.pending(10).await.is_empty());
        assert_eq!(worker.settle(&rows[0], dead_and_parked()).await, all(1));
        assert!(worker.pending(10).await.is_empty());
        let received = NewInbox { msg_key: key.clone(), ..arrival(&n.to_string()) };
        f.store().accept(vec![received], Vec::new()).await.expect("accept");
        let rows = handler.received(1).await;
        assert_eq!(handler.settle_inbox(&rows[0], handle_later()).await, all(1));
        assert_eq!(handler.settle_inbox(&rows[0], dead_message()).await, all(1));
        let parked = f.store().parked_keys(10).await.expect("parked keys");
        assert_eq!(parked.iter().filter(|p| p.msg_key == key).count(), 2);
    }
}

pub async fn a_longer_key_of_another_writer_stops_at_the_door_or_can_wait(f: &dyn Fixture) {
    let sql = format!(
        "INSERT INTO relais_outbox \
         (aggregate_type, aggregate_id, event_type, destination, payload) \
         VALUES ('T', {}, 'E', 'orders', '{{}}')",
        quote(&wide_text(10_000, 13))
    );
    if f.execute(&sql).await.is_err() {
        return; // The writer gets an error at once.
    }
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(1).await;
    assert_eq!(
        worker.settle(&rows[0], retry_later()).await,
        all(1),
        "or its retries fail for ever"
    );
    assert_eq!(worker.settle(&rows[0], dead_and_parked()).await, all(1));
}

pub async fn a_dead_letter_is_a_faithful_copy(f: &dyn Fixture) {
    let payload = odd_payloads().concat();
    let payload = serde_json::Value::from(payload).to_string();
    let sent = NewMessage {
        payload: payload.clone(),
        headers: odd_headers(),
        ..message("orders", "it's 😀")
    };
    f.store().enqueue(vec![sent]).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(1).await;
    assert_eq!(worker.settle(&rows[0], dead_and_parked()).await, all(1));
    let dead = only_dead_letter(f).await;
    assert_eq!(dead.payload, Some(payload));
    assert_eq!(dead.headers, odd_headers());
    assert_eq!(dead.msg_key, "it's 😀");
}

pub async fn what_relays_changes_nothing_but_the_state(f: &dyn Fixture) {
    let odd = " {\"a\" : 1.0} ";
    let received = NewInbox { content: Content::Json(odd.to_owned()), ..arrival("m") };
    f.store().accept(vec![received], Vec::new()).await.expect("accept");
    let inbox = Worker::inbox(f, "w").await;
    let row = inbox.received(1).await.remove(0);
    let payload = row.payload.clone().expect("payload");
    let out = NewMessage { payload, headers: odd_headers(), ..message("orders", "k") };
    let fate = relais_core::inbox::InboxFate::Processed {
        messages: vec![out],
        changes: Vec::new(),
        copies: Vec::new(),
    };
    assert_eq!(inbox.settle_inbox(&row, fate).await, all(1));
    let worker = Worker::outbox(f, "orders", "w").await;
    let before = worker.pending(1).await.remove(0);
    assert_eq!((before.payload.as_str(), &before.headers), (odd, &odd_headers()));
    assert_eq!(worker.settle(&before, OutboxFate::Dispatched).await, all(1));
    let after = f.store().find_outbox(before.id.to_string()).await.expect("find").expect("row");
    assert_eq!((after.payload, after.headers), (before.payload, before.headers));
}
