//! The checks of every source.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use relais_core::{
    inbox::{AcceptOutcome, Content, NewInbox},
    source::{Source, SourceBatch, SourceError},
};

use super::{SourceFixture, WireMessage, soon};
use crate::proxy::Fault;

/// Messages of a usual check.
const SOME: usize = 20;
/// Messages of one batch, at most.
const BATCH: usize = 100;
/// The pause of an ingest worker after an unavailable source.
const PAUSE: Duration = Duration::from_millis(50);

fn numbered(count: usize) -> Vec<WireMessage> {
    let one = |n: usize| {
        let (id, key) = (format!("m-{n}"), format!("k-{}", n % 3));
        WireMessage::new(&id, &key, format!("{{\"n\": {n}}}").as_bytes())
    };
    (0..count).map(one).collect()
}

/// Asks as an ingest worker does: an unavailable source is asked again.
async fn next(source: &mut dyn Source) -> SourceBatch {
    first_of(source, BATCH).await
}

/// Asks for at most `max` messages.
async fn first_of(source: &mut dyn Source, max: usize) -> SourceBatch {
    let asking = async {
        loop {
            match source.next(max).await {
                Ok(batch) => return batch,
                Err(SourceError::Unavailable(_)) => tokio::time::sleep(PAUSE).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    soon("a batch", asking).await
}

async fn acknowledge(source: &mut dyn Source, batch: &SourceBatch) {
    // A failure means that they arrive again.
    let _ = source.acknowledge(vec![AcceptOutcome::Stored; batch.messages.len()]).await;
}

/// Reads and acknowledges until `count` different messages are there; returns all that arrived.
async fn read(source: &mut dyn Source, count: usize) -> Vec<NewInbox> {
    let (mut rows, mut ids) = (Vec::new(), BTreeSet::new());
    while ids.len() < count {
        let batch = next(source).await;
        acknowledge(source, &batch).await;
        ids.extend(batch.messages.iter().map(|row| row.message_id.clone()));
        rows.extend(batch.messages);
    }
    rows
}

fn ids(rows: &[NewInbox]) -> Vec<&str> {
    rows.iter().map(|row| row.message_id.as_str()).collect()
}

fn ids_by_key(rows: &[NewInbox]) -> BTreeMap<&str, Vec<&str>> {
    let mut by_key: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in rows {
        by_key.entry(row.msg_key.as_str()).or_default().push(&row.message_id);
    }
    by_key
}

/// Messages whose batch was not acknowledged are read by the next source.
pub async fn messages_without_acknowledgement_arrive_again(fixture: &impl SourceFixture) {
    fixture.send(&numbered(SOME)).await;
    let mut first = fixture.source().await;
    let batch = next(&mut *first).await;
    assert!(!batch.messages.is_empty());
    drop(first);
    let mut second = fixture.source().await;
    let rows = read(&mut *second, SOME).await;
    assert_eq!(rows.len(), SOME, "each once");
    second.close().await;
}

/// Messages whose batch was acknowledged are not read again after a clean shutdown.
pub async fn acknowledged_messages_do_not_arrive_again(fixture: &impl SourceFixture) {
    fixture.send(&numbered(SOME)).await;
    let mut first = fixture.source().await;
    read(&mut *first, SOME).await;
    first.close().await;
    fixture.send(&[WireMessage::new("later", "k", b"{}")]).await;
    let mut second = fixture.source().await;
    let batch = next(&mut *second).await;
    assert_eq!(ids(&batch.messages), ["later"]);
    second.close().await;
}

/// A batch that could not be stored is returned again, in the order of its keys.
pub async fn a_refused_batch_is_returned_again(fixture: &impl SourceFixture) {
    fixture.send(&numbered(SOME)).await;
    let mut source = fixture.source().await;
    let refused = next(&mut *source).await;
    source.refuse("the database is unavailable".to_owned()).await;
    let rows = read(&mut *source, SOME).await;
    let again = ids_by_key(&rows);
    for (key, refused) in ids_by_key(&refused.messages) {
        assert_eq!(again[key][..refused.len()], refused, "{key}");
    }
    source.close().await;
}

/// A batch that is read while the one before is stored has the messages behind it. Both are returned again if
/// the first is refused, and only the first is settled with the first acknowledgement.
pub async fn a_batch_read_ahead_follows_the_one_before(fixture: &impl SourceFixture) {
    const FEW: usize = 5;
    let sent = numbered(3 * SOME);
    fixture.send(&sent[..SOME]).await;
    let mut source = fixture.source().await;
    if !fixture.reads_ahead() {
        next(&mut *source).await;
        let ahead = tokio::time::timeout(PAUSE, source.read_ahead(FEW)).await;
        assert!(ahead.is_err(), "a source without `read_ahead` returned {ahead:?}");
        return source.close().await;
    }
    // A source may read less ahead before it knows the size of messages.
    read(&mut *source, SOME).await;
    fixture.send(&sent[SOME..2 * SOME]).await;
    let first = first_of(&mut *source, FEW).await;
    let ahead = soon("a batch read ahead", source.read_ahead(FEW)).await.expect("a batch");
    let behind = ids(&ahead.messages);
    assert!(!behind.is_empty() && ids(&first.messages).iter().all(|id| !behind.contains(id)));
    source.refuse("the database is unavailable".to_owned()).await;
    let rows = read(&mut *source, SOME).await;
    assert_eq!(rows.len(), SOME, "each once");
    let refused = [first.messages, ahead.messages].concat();
    let again = ids_by_key(&rows);
    for (key, refused) in ids_by_key(&refused) {
        assert_eq!(again[key][..refused.len()], refused, "{key}");
    }

    fixture.send(&sent[2 * SOME..]).await;
    let first = first_of(&mut *source, FEW).await;
    let ahead = soon("a batch read ahead", source.read_ahead(FEW)).await.expect("a batch");
    assert!(!ahead.messages.is_empty());
    acknowledge(&mut *source, &first).await;
    source.close().await;
    let mut second = fixture.source().await;
    let rows = read(&mut *second, SOME - first.messages.len()).await;
    let settled = ids(&first.messages);
    assert!(ids(&rows).iter().all(|id| !settled.contains(id)), "what was acknowledged is gone");
    second.close().await;
}

/// A call of `next` that is dropped at any time loses no message.
pub async fn a_cancelled_next_loses_nothing(fixture: &impl SourceFixture) {
    let mut source = fixture.source().await;
    for wait_ms in [0, 1, 5, 200, 1_000] {
        let cancelled = source.next(BATCH);
        let _ = tokio::time::timeout(Duration::from_millis(wait_ms), cancelled).await;
    }
    fixture.send(&numbered(SOME)).await;
    for wait_ms in [0, 1, 2] {
        let cancelled = source.next(BATCH);
        let _ = tokio::time::timeout(Duration::from_millis(wait_ms), cancelled).await;
    }
    let rows = read(&mut *source, SOME).await;
    assert_eq!(rows.len(), SOME);
    source.close().await;
}

/// Messages of one key arrive in the order in which they were sent.
pub async fn messages_of_a_key_keep_their_order(fixture: &impl SourceFixture) {
    let sent = numbered(300);
    fixture.send(&sent).await;
    let mut source = fixture.source().await;
    let rows = read(&mut *source, sent.len()).await;
    for (key, arrived) in ids_by_key(&rows) {
        let of_key = sent.iter().filter(|message| message.key == key);
        assert_eq!(arrived, of_key.map(|message| message.id.as_str()).collect::<Vec<_>>());
    }
    source.close().await;
}

/// Id, key, headers and payload arrive unchanged.
pub async fn ids_headers_and_bodies_arrive_byte_for_byte(fixture: &impl SourceFixture) {
    let body = "{ \"amount\":1.50, \"text\":\"Grüße 😀\\u0041\",\"big\":12345678901234567890 }";
    let mut message = WireMessage::new("id/1 é", "key é", body.as_bytes());
    message.headers = vec![
        (
            "traceparent".to_owned(),
            b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_vec(),
        ),
        ("x-empty".to_owned(), Vec::new()),
    ];
    if fixture.has_binary_headers() {
        message.headers.push(("x-bytes".to_owned(), vec![0xFF, 0, 7]));
    }
    fixture.send(std::slice::from_ref(&message)).await;
    let mut source = fixture.source().await;
    let rows = read(&mut *source, 1).await;
    let row = &rows[0];
    assert_eq!((row.message_id.as_str(), row.msg_key.as_str()), ("id/1 é", "key é"));
    assert_eq!(row.content, Content::Json(body.to_owned()));
    assert!(row.headers.get("traceparent").is_some_and(|value| value.starts_with("00-0af7")));
    assert_eq!(row.headers.get("x-empty"), Some(""));
    let headers = row.headers.to_json();
    assert_eq!(headers.contains(r#""x-bytes":{"base64":"/wAH"}"#), fixture.has_binary_headers());
    source.close().await;
}

/// Bytes that are not JSON are kept, and an empty body is a message.
pub async fn undecodable_and_empty_bodies_are_messages(fixture: &impl SourceFixture) {
    let bodies = [&b"{oops"[..], b"\xff\x00\xfe", b""];
    let messages: Vec<WireMessage> = (0..)
        .zip(bodies)
        .map(|(n, body)| WireMessage::new(&format!("bad-{n}"), "k", body))
        .collect();
    fixture.send(&messages).await;
    let mut source = fixture.source().await;
    let rows = read(&mut *source, bodies.len()).await;
    let kept: BTreeMap<&str, Option<&[u8]>> = rows
        .iter()
        .map(|row| match &row.content {
            Content::Undecodable { bytes, .. } => (row.message_id.as_str(), Some(bytes.as_slice())),
            Content::Json(_) => (row.message_id.as_str(), None),
        })
        .collect();
    assert_eq!(kept["bad-0"], Some(bodies[0]));
    assert_eq!(kept["bad-1"], Some(bodies[1]));
    let empty = (!fixture.has_empty_messages()).then_some(bodies[2]);
    assert_eq!(kept["bad-2"], empty, "JSON's null, or undecodable");
    source.close().await;
}

/// A large message arrives, between small ones.
pub async fn a_large_body_arrives_whole(fixture: &impl SourceFixture) {
    let large = format!("\"{}\"", "x".repeat(fixture.large_body()));
    let mut messages = numbered(SOME);
    for n in [3, 4, 17] {
        messages[n].body = large.clone().into_bytes();
    }
    fixture.send(&messages).await;
    let mut source = fixture.source().await;
    let rows = read(&mut *source, SOME).await;
    let whole = rows.iter().filter(|row| row.content == Content::Json(large.clone())).count();
    assert!(whole >= 3, "{whole}");
    source.close().await;
}

/// Two processes read one place; together they read everything.
pub async fn several_sources_share_the_messages(fixture: &impl SourceFixture) {
    const ALL: usize = 200;
    let (mut one, mut two) = (fixture.source().await, fixture.source().await);
    let seen = std::sync::Mutex::new(BTreeSet::new());
    let read_some = async |source: &mut dyn Source| loop {
        if seen.lock().unwrap_or_else(|e| e.into_inner()).len() == ALL {
            return;
        }
        // The other source may have the last messages.
        let Ok(Ok(batch)) = tokio::time::timeout(PAUSE * 4, source.next(BATCH)).await else {
            continue;
        };
        acknowledge(source, &batch).await;
        let ids = batch.messages.into_iter().map(|row| row.message_id);
        seen.lock().unwrap_or_else(|e| e.into_inner()).extend(ids);
    };
    let sending = async {
        for part in numbered(ALL).chunks(SOME) {
            fixture.send(part).await;
        }
    };
    let reading = async { tokio::join!(read_some(&mut *one), read_some(&mut *two), sending) };
    soon("both have read everything", reading).await;
    one.close().await;
    two.close().await;
}

/// After a cut connection, all that was not acknowledged arrives again, and nothing is missing.
pub async fn a_cut_connection_loses_nothing(fixture: &impl SourceFixture) {
    fixture.send(&numbered(SOME)).await;
    let mut source = fixture.source().await;
    let batch = next(&mut *source).await;
    fixture.proxy().set(Fault::Cut);
    // Stored, and perhaps not acknowledged.
    acknowledge(&mut *source, &batch).await;
    let seen: BTreeSet<String> = batch.messages.iter().map(|row| row.message_id.clone()).collect();
    fixture.proxy().set(Fault::None);
    fixture.send(&[WireMessage::new("after", "k", b"{}")]).await;
    let mut all = seen;
    while all.len() < SOME + 1 {
        let batch = next(&mut *source).await;
        acknowledge(&mut *source, &batch).await;
        all.extend(batch.messages.into_iter().map(|row| row.message_id));
    }
    source.close().await;
}

/// A pause loses nothing, also in the middle of a batch.
pub async fn a_paused_source_continues(fixture: &impl SourceFixture) {
    fixture.send(&numbered(SOME)).await;
    let mut source = fixture.source().await;
    next(&mut *source).await;
    source.pause().await;
    source.resume().await;
    let rows = read(&mut *source, SOME).await;
    assert!(rows.len() >= SOME);
    source.close().await;
}

/// A source that was closed with an open batch leaves it to the next one.
pub async fn a_closed_source_gives_its_messages_back(fixture: &impl SourceFixture) {
    fixture.send(&numbered(SOME)).await;
    let mut first = fixture.source().await;
    next(&mut *first).await;
    soon("it closes", first.close()).await;
    let mut second = fixture.source().await;
    read(&mut *second, SOME).await;
    second.close().await;
}
