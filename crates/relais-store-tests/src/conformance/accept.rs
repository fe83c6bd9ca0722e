//! Storing what was received: each message once, conflicts kept, positions in the same commit.

use relais_core::{
    dead_letter::STATUS_CONFLICT,
    inbox::{AcceptOutcome, Content, InboxRow, InboxStatus, NewInbox, STAGE_SERDE, SourcePosition},
    inspect::InspectExt,
    message::HeaderValue,
    store::StoreError,
    text::{KEY_MAX, MESSAGE_ID_MAX, identity},
    time::Timestamp,
};

use super::{Start, assert_invalid, open_dead_letters, worker::Worker};
use crate::{
    build::{arrival, arrival_with, undecodable, wide_text},
    fixture::Fixture,
};

pub const START: Start = Start::Migrated;

use AcceptOutcome::{Conflict, Duplicate, Stored};

async fn accept(f: &dyn Fixture, messages: Vec<NewInbox>) -> Vec<AcceptOutcome> {
    f.store().accept(messages, Vec::new()).await.expect("accept")
}

async fn find(f: &dyn Fixture, message_id: &str) -> InboxRow {
    let found = f.store().find_inbox(message_id.to_owned()).await.expect("find");
    found.expect("the row is there")
}

async fn count(f: &dyn Fixture) -> i64 {
    f.number("SELECT count(*) FROM relais_inbox").await
}

fn position(partition: &str, position: i64) -> SourcePosition {
    SourcePosition { source: "members".to_owned(), partition: partition.to_owned(), position }
}

pub async fn every_field_of_a_received_message_comes_back(f: &dyn Fixture) {
    let mut sent = arrival("m-1");
    sent.partition_num = 3;
    sent.offset_num = 9_007_199_254_740_993;
    sent.key_str = Some("family-7".to_owned());
    sent.msg_key = "f7".to_owned();
    sent.aggregate_id = Some("7".to_owned());
    sent.headers.push("trace", HeaderValue::Text("a".to_owned()));
    sent.headers.push("trace", HeaderValue::from_bytes(b"\xff\x00"));
    sent.headers.push("empty", HeaderValue::Null);
    sent.event_ts = Timestamp::parse("2026-11-15T12:00:00.123Z");
    let before = f.now().await;
    assert_eq!(accept(f, vec![sent.clone()]).await, [Stored]);
    let row = find(f, "m-1").await;
    assert!(row.id > 0);
    assert_eq!((row.status, row.attempts), (InboxStatus::Received, 0));
    assert_eq!((row.source_system, row.topic), (sent.source_system, sent.topic));
    assert_eq!((row.partition_num, row.offset_num), (3, 9_007_199_254_740_993));
    assert_eq!((row.key_str, row.msg_key.as_str()), (sent.key_str, "f7"));
    assert_eq!((row.aggregate_id, row.event_type), (sent.aggregate_id, sent.event_type));
    assert_eq!(row.payload.map(Content::Json), Some(sent.content));
    assert_eq!((row.headers, row.event_ts), (sent.headers, sent.event_ts));
    assert!(before <= row.received_at && row.received_at <= f.now().await);
    assert_eq!((row.raw_payload_base64, row.next_attempt_at, row.processed_at), (None, None, None));
    assert_eq!((row.error_stage, row.error_code, row.error_message), (None, None, None));
}

pub async fn what_a_message_lacks_stays_null(f: &dyn Fixture) {
    let mut sent = arrival("m-1");
    (sent.key_str, sent.aggregate_id, sent.event_type) = (None, None, None);
    accept(f, vec![sent]).await;
    let row = find(f, "m-1").await;
    assert_eq!((row.key_str, row.aggregate_id, row.event_type), (None, None, None));
    let mut empty = arrival("m-2");
    empty.key_str = Some(String::new());
    accept(f, vec![empty]).await;
    assert_eq!(find(f, "m-2").await.key_str.as_deref(), Some(""), "empty is not missing");
}

pub async fn a_message_that_comes_again_is_a_duplicate(f: &dyn Fixture) {
    assert_eq!(accept(f, vec![arrival("m-1")]).await, [Stored]);
    let mut again = arrival("m-1");
    again.offset_num = 99;
    again.headers.set("attempt", "2");
    let answers = f.second().accept(vec![again, arrival("m-2")], Vec::new()).await;
    assert_eq!(answers.expect("accept"), [Duplicate, Stored]);
    assert_eq!((count(f).await, find(f, "m-1").await.offset_num), (2, 0));
    assert!(open_dead_letters(f).await.is_empty());
}

pub async fn a_message_that_comes_again_after_its_end_is_a_duplicate(f: &dyn Fixture) {
    let broken = || undecodable("serde", b"\xff");
    accept(f, vec![arrival("done"), arrival("dead"), broken()]).await;
    let worker = Worker::inbox(f, "w").await;
    let rows = worker.received(10).await;
    worker.settle_inbox(&rows[0], super::worker::processed()).await;
    worker.settle_inbox(&rows[1], super::worker::dead_message()).await;
    let again = vec![arrival("done"), arrival("dead"), broken()];
    assert_eq!(accept(f, again).await, [Duplicate; 3]);
    assert!(worker.received(10).await.is_empty(), "it has no second effect");
    assert_eq!(find(f, "done").await.status, InboxStatus::Processed);
}

pub async fn duplicates_inside_one_batch_are_found_too(f: &dyn Fixture) {
    let batch = vec![arrival("a"), arrival("b"), arrival("a"), arrival("a"), arrival("b")];
    assert_eq!(accept(f, batch).await, [Stored, Stored, Duplicate, Duplicate, Duplicate]);
    assert_eq!(count(f).await, 2);
}

pub async fn one_id_from_two_sources_is_two_messages(f: &dyn Fixture) {
    let other = NewInbox { source_system: "crm".to_owned(), ..arrival_with("m-1", "{\"b\":2}") };
    assert_eq!(accept(f, vec![arrival("m-1"), other]).await, [Stored, Stored]);
}

pub async fn the_same_id_with_other_content_is_kept_as_a_conflict(f: &dyn Fixture) {
    accept(f, vec![arrival_with("m-1", "{\"n\":1}")]).await;
    let mut other = arrival_with("m-1", "{\"n\":2}");
    other.headers.set("who", "me");
    assert_eq!(accept(f, vec![other]).await, [Conflict]);
    let row = find(f, "m-1").await;
    assert_eq!(row.payload.as_deref(), Some("{\"n\":1}"), "the first one stays");
    let dead = open_dead_letters(f).await;
    let [dead] = dead.as_slice() else { panic!("one dead letter, not {dead:?}") };
    assert_eq!(dead.failed_status, STATUS_CONFLICT);
    assert_eq!(dead.error_class.as_deref(), Some(STATUS_CONFLICT));
    assert_eq!((dead.origin.as_str(), dead.origin_id), ("inbox", Some(row.id)));
    assert_eq!((dead.message_id.as_str(), dead.source_system.as_deref()), ("m-1", Some("ihub")));
    assert_eq!(dead.payload.as_deref(), Some("{\"n\":2}"));
    assert!(dead.headers.get("who").is_some(), "{:?}", dead.headers);
    assert_eq!(
        (dead.msg_key.as_str(), dead.event_type.as_deref()),
        ("m-1", Some("MembersCreated"))
    );
    assert_eq!(f.number("SELECT count(*) FROM relais_parked_key").await, 0, "parks nothing");
}

pub async fn a_conflict_that_comes_again_is_kept_once(f: &dyn Fixture) {
    accept(f, vec![arrival_with("m-1", "{\"n\":1}")]).await;
    let other = || arrival_with("m-1", "{\"n\":2}");
    assert_eq!(accept(f, vec![other(), other()]).await, [Conflict, Conflict]);
    assert_eq!(f.second().accept(vec![other()], Vec::new()).await.expect("accept"), [Conflict]);
    assert_eq!(open_dead_letters(f).await.len(), 1);
    assert_eq!(accept(f, vec![arrival_with("m-1", "{\"n\":3}")]).await, [Conflict]);
    assert_eq!(open_dead_letters(f).await.len(), 2, "other content, another conflict");
}

pub async fn a_conflict_inside_one_batch_is_found_too(f: &dyn Fixture) {
    let batch = vec![
        arrival_with("m", "{\"n\":1}"),
        arrival_with("m", "{\"n\":2}"),
        arrival_with("m", "{\"n\":1}"),
        arrival_with("m", "{\"n\": 1}"),
    ];
    assert_eq!(accept(f, batch).await, [Stored, Conflict, Duplicate, Conflict]);
    assert_eq!(find(f, "m").await.payload.as_deref(), Some("{\"n\":1}"));
    assert_eq!(open_dead_letters(f).await.len(), 2);
}

pub async fn undecodable_bytes_are_kept_as_base64_with_the_reason(f: &dyn Fixture) {
    let bytes: Vec<u8> = (0..=255).rev().collect();
    assert_eq!(accept(f, vec![undecodable("m-1", &bytes), arrival("m-2")]).await, [Stored; 2]);
    let row = find(f, "m-1").await;
    let HeaderValue::Bytes { base64 } = HeaderValue::from_bytes(&bytes) else {
        panic!("these bytes are no text")
    };
    assert_eq!(row.raw_payload_base64, Some(base64));
    assert_eq!((row.status, row.payload), (InboxStatus::SerdeError, None));
    assert_eq!(row.error_stage.as_deref(), Some(STAGE_SERDE));
    assert_eq!(row.error_code.as_deref(), Some("NOT_UTF8"));
    assert_eq!(row.error_message.as_deref(), Some("not UTF-8 at byte 0"));
    assert_eq!(Worker::inbox(f, "w").await.received_ids().await, ["m-2"], "no work for handlers");
}

pub async fn no_bytes_at_all_are_kept_too(f: &dyn Fixture) {
    assert_eq!(accept(f, vec![undecodable("m-1", b"")]).await, [Stored]);
    assert_eq!(find(f, "m-1").await.raw_payload_base64.as_deref(), Some(""));
    assert_eq!(accept(f, vec![undecodable("m-1", b"")]).await, [Duplicate]);
}

pub async fn undecodable_messages_are_compared_by_their_bytes(f: &dyn Fixture) {
    let (a, b) = (b"\xff\x00".as_slice(), b"\xfe".as_slice());
    assert_eq!(accept(f, vec![undecodable("m", a)]).await, [Stored]);
    assert_eq!(accept(f, vec![undecodable("m", a)]).await, [Duplicate]);
    assert_eq!(accept(f, vec![undecodable("m", b)]).await, [Conflict]);
    assert_eq!(accept(f, vec![undecodable("m", b)]).await, [Conflict]);
    let dead = open_dead_letters(f).await;
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].payload.as_deref(), Some("\"/g==\""), "Base64 as a JSON string");
    assert_eq!(accept(f, vec![arrival("m")]).await, [Conflict], "and against decoded ones");
}

pub async fn ids_that_look_alike_are_different_messages(f: &dyn Fixture) {
    let ids = ["A", "a", "ä", "a\u{308}", "a ", " a", "á", "ａ", "a\t", "'", "\\", "%", "_"];
    let batch: Vec<_> = ids.iter().map(|id| arrival(id)).collect();
    assert_eq!(accept(f, batch.clone()).await, vec![Stored; ids.len()]);
    assert_eq!(accept(f, batch).await, vec![Duplicate; ids.len()]);
    for id in ids {
        assert_eq!(find(f, id).await.message_id, id);
    }
}

pub async fn ids_and_keys_at_their_limit_are_kept_whole(f: &dyn Fixture) {
    let (one, two) = (wide_text(MESSAGE_ID_MAX, 1), wide_text(MESSAGE_ID_MAX, 2));
    let (one, two) = (identity(&one, MESSAGE_ID_MAX), identity(&two, MESSAGE_ID_MAX));
    let mut long = arrival(&one);
    long.msg_key = identity(&wide_text(KEY_MAX, 3), KEY_MAX);
    long.key_str = Some(wide_text(4_000, 4));
    let batch = vec![long.clone(), arrival(&two), arrival(&"x".repeat(MESSAGE_ID_MAX))];
    assert_eq!(accept(f, batch).await, [Stored; 3]);
    assert_eq!(accept(f, vec![long.clone()]).await, [Duplicate]);
    let row = find(f, &one).await;
    assert_eq!((row.message_id, row.msg_key, row.key_str), (one, long.msg_key, long.key_str));
}

pub async fn a_large_batch_keeps_its_order(f: &dyn Fixture) {
    let ids: Vec<_> = (0..1_500).map(|n| format!("m-{}", n * 7919 % 1_500)).collect();
    let batch = ids.iter().map(|id| arrival(id)).collect();
    assert_eq!(accept(f, batch).await, vec![Stored; 1_500]);
    assert_eq!(Worker::inbox(f, "w").await.received_ids().await, ids);
}

pub async fn positions_are_stored_with_the_messages(f: &dyn Fixture) {
    let store = f.store();
    store.accept(vec![arrival("m-1")], vec![position("0", 5), position("1", 7)]).await.expect("ok");
    store.accept(vec![arrival("m-2")], vec![position("1", 8)]).await.expect("accept");
    store.accept(Vec::new(), vec![position("2", i64::MAX)]).await.expect("only a position");
    assert!(store.accept(Vec::new(), Vec::new()).await.expect("nothing").is_empty());
    let found = f.second().positions("members".to_owned()).await.expect("positions");
    assert_eq!(found, [position("0", 5), position("1", 8), position("2", i64::MAX)]);
    assert!(store.positions("Members".to_owned()).await.expect("positions").is_empty());
}

pub async fn the_last_position_of_a_partition_in_one_batch_stands(f: &dyn Fixture) {
    let twice = vec![position("0", 5), position("0", 6), position("1", 1), position("0", 7)];
    f.store().accept(vec![arrival("m-1")], twice).await.expect("accept");
    let found = f.store().positions("members".to_owned()).await.expect("positions");
    assert_eq!(found, [position("0", 7), position("1", 1)]);
}

pub async fn a_batch_that_cannot_be_stored_moves_no_position(f: &dyn Fixture) {
    for broken in [arrival(""), NewInbox { source_system: String::new(), ..arrival("m") }] {
        let batch = vec![arrival("good"), broken];
        assert_invalid(f.store().accept(batch, vec![position("0", 5)]).await);
        assert_eq!(count(f).await, 0);
        assert!(f.store().positions("members".to_owned()).await.expect("positions").is_empty());
    }
}

pub async fn times_no_calendar_holds_do_not_stop_the_batch(f: &dyn Fixture) {
    let times = [i64::MIN, -62_135_596_800_000_001, -1, 0, 253_402_300_800_000, i64::MAX];
    let batch = times.into_iter().enumerate().map(|(n, millis)| {
        let mut sent = arrival(&format!("m-{n}"));
        sent.event_ts = Some(Timestamp::from_millis(millis));
        sent
    });
    assert_eq!(accept(f, batch.collect()).await, [Stored; 6]);
    assert_eq!(Worker::inbox(f, "w").await.received(10).await.len(), 6, "and can be read");
    assert_eq!(find(f, "m-2").await.event_ts, Some(Timestamp::from_millis(-1)));
}

pub async fn a_zero_character_is_stored_or_refused_for_good(f: &dyn Fixture) {
    let mut sent = arrival("m-1");
    sent.key_str = Some("a\0b".to_owned());
    match f.store().accept(vec![sent], Vec::new()).await {
        Ok(answers) => {
            assert_eq!(answers, [Stored]);
            assert_eq!(find(f, "m-1").await.key_str.as_deref(), Some("a\0b"));
        }
        Err(StoreError::Invalid(_)) => {}
        Err(other) => panic!("asking again will not help: {other}"),
    }
}

pub async fn nodes_that_accept_the_same_messages_store_each_once(f: &dyn Fixture) {
    let ids: Vec<_> = (0..100).map(|n| format!("m-{n}")).collect();
    let nodes = (0..4).map(|n| {
        let store = if n % 2 == 0 { f.store() } else { f.second() };
        let mut batch: Vec<_> = ids.iter().map(|id| arrival(id)).collect();
        if n >= 2 {
            batch.reverse();
        }
        tokio::spawn(async move {
            // Two nodes may be each other's victim (a deadlock); then nothing happened, and the
            // caller asks again.
            for _ in 0..50 {
                match store.accept(batch.clone(), Vec::new()).await {
                    Ok(answers) => return answers,
                    Err(StoreError::Unavailable(_)) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            panic!("never got through")
        })
    });
    let mut stored = 0;
    for node in nodes.collect::<Vec<_>>() {
        let answers = node.await.expect("node");
        assert!(!answers.contains(&Conflict));
        stored += answers.iter().filter(|a| **a == Stored).count();
    }
    assert_eq!((stored, count(f).await), (100, 100));
    assert!(open_dead_letters(f).await.is_empty());
}
