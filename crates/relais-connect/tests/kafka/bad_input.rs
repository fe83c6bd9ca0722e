//! Malformed records: stored or refused with a clear reason, never a crash, never dropped silently.

use rdkafka::message::{Header, OwnedHeaders};
use relais_core::{
    decode::Decoder,
    inbox::{Content, NewInbox},
    source::Source,
    time::Timestamp,
};

use crate::{
    incoming::{Record, World},
    outgoing,
    raw::{self, RawRecord},
};

/// Sends the records, reads them, and returns the rows in the order of their offsets.
async fn read(world: &World, records: &[Record]) -> Vec<NewInbox> {
    world.send(records).await;
    world.read_until(records.len()).await;
    rows(world)
}

fn rows(world: &World) -> Vec<NewInbox> {
    let mut rows: Vec<NewInbox> = world.db.snapshot().rows.into_values().collect();
    rows.sort_by_key(|row| row.offset_num);
    rows
}

fn problem(row: &NewInbox) -> &str {
    match &row.content {
        Content::Undecodable { problem, .. } => &problem.code,
        Content::Json(json) => panic!("{json} was decoded"),
    }
}

fn json(row: &NewInbox) -> &str {
    match &row.content {
        Content::Json(json) => json,
        Content::Undecodable { problem, .. } => panic!("{problem:?}"),
    }
}

#[tokio::test]
async fn headers_keep_repeats_bytes_and_missing_values() {
    let Some(world) = World::new("strange headers", 1).await else { return };
    let headers = [
        ("trace", Some(&b"a"[..])),
        ("trace", Some(b"\xff\0")),
        ("trace", None),
        ("empty", Some(b"")),
        ("", Some(b"no name")),
        ("relais-value", Some(b"tombstone")),
    ];
    let headers = headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
        headers.insert(Header { key, value: *value })
    });
    let rows = read(&world, &[Record { headers: Some(headers), ..Record::new(b"{}") }]).await;
    assert_eq!(
        rows[0].headers.to_json(),
        r#"{"":"no name","empty":"","trace":["a",{"base64":"/wA="},null],"x-relais-value":"tombstone"}"#
    );
}

#[tokio::test]
async fn a_header_with_an_invalid_name_is_counted_and_the_rest_is_kept() {
    let Some(world) = World::new("a header name that is no UTF-8", 1).await else { return };
    let record = RawRecord {
        value: b"{}".to_vec(),
        headers: vec![(b"good".to_vec(), b"1".to_vec()), (b"\xff\xfe".to_vec(), b"2".to_vec())],
        timestamp: 1_700_000_000_000,
        ..RawRecord::default()
    };
    assert_eq!(raw::produce(&world.brokers, &world.topic, 0, &record).await, 0);
    world.send(&[Record::new(b"{\"n\":1}")]).await;
    world.read_until(2).await;
    let rows = rows(&world);
    assert_eq!(rows[0].headers.to_json(), r#"{"good":"1","relais-unreadable-headers":"1"}"#);
    assert_eq!(json(&rows[1]), "{\"n\":1}");
}

#[tokio::test]
async fn keys_of_any_bytes_are_kept() {
    let Some(mut world) = World::new("strange keys", 1).await else { return };
    world.message_id = "key";
    let keys: [Option<&[u8]>; 5] =
        [Some("é".as_bytes()), Some(&[0xff, 0xfe]), Some(b"a\0b"), Some(b""), None];
    let with = |key: &Option<&[u8]>| Record { key: key.map(<[u8]>::to_vec), ..Record::new(b"{}") };
    let rows = read(&world, &keys.iter().map(with).collect::<Vec<_>>()).await;
    let text: Vec<Option<&str>> = rows.iter().map(|row| row.key_str.as_deref()).collect();
    assert_eq!(text[..2], [Some("é"), Some("base64://4=")]);
    assert_eq!(rows[1].headers.to_json(), r#"{"relais-key":{"base64":"//4="}}"#);
    assert!(text[2].unwrap().starts_with("sha256:"));
    let headers: serde_json::Value = serde_json::from_str(&rows[2].headers.to_json()).unwrap();
    assert_eq!(headers["relais-key"]["base64"], "YQBi", "{headers}");
    assert!(headers["relais-aggregate-id"].as_str().unwrap().contains("U+0000"), "{headers}");
    assert_eq!(text[3..], [Some(""), None]);
    // Without a key there is no id: the position is used.
    for row in &rows[3..] {
        assert!(row.message_id.contains(&world.topic), "{}", row.message_id);
        assert_eq!(row.headers.get("relais-message-id"), Some("position"));
    }
}

#[tokio::test]
async fn no_value_and_an_empty_value_are_two_things() {
    let Some(world) = World::new("tombstones", 1).await else { return };
    let none = Record { value: None, key: Some(b"k".to_vec()), ..Record::new(b"") };
    let rows = read(&world, &[none, Record::new(b"")]).await;
    let kinds: Vec<_> = rows.iter().map(|row| row.headers.get("relais-value")).collect();
    assert_eq!(kinds, [Some("tombstone"), Some("empty")]);
    assert!(rows.iter().all(|row| json(row) == "null"));
}

#[tokio::test]
async fn values_that_are_not_json_are_kept_with_the_reason() {
    let Some(world) = World::new("values that are not JSON", 1).await else { return };
    let deep = "[".repeat(10_000);
    let values: [&[u8]; 4] =
        [b"{\"a\":", b"\0\0\0\0\x01{\"a\":1}", b"\"caf\xe9\"", deep.as_bytes()];
    let rows = read(&world, &values.map(Record::new)).await;
    for (row, value) in rows.iter().zip(values) {
        assert!(!problem(row).is_empty());
        let Content::Undecodable { bytes, .. } = &row.content else { unreachable!() };
        assert_eq!(bytes, value);
    }
}

#[tokio::test]
async fn wrong_magic_bytes_are_named() {
    let Some(mut world) = World::new("wrong magic bytes", 1).await else { return };
    world.decoder = Decoder::ConfluentJson;
    let values: [&[u8]; 3] = [b"\0\0\0\0\x07{\"a\":1}", b"\x05\0\0\0\x07{}", b"\0\0"];
    let rows = read(&world, &values.map(Record::new)).await;
    assert_eq!(json(&rows[0]), "{\"a\":1}");
    assert_eq!(rows[0].headers.get("relais-schema-id"), Some("7"));
    assert_eq!([problem(&rows[1]), problem(&rows[2])], ["WRONG_MAGIC_BYTE", "NO_SCHEMA_ID"]);
}

#[tokio::test]
async fn numbers_keep_every_digit_and_large_values_every_byte() {
    let Some(world) = World::new("large numbers and values", 1).await else { return };
    let large = format!("{{\"fill\":\"{}\"}}", "x".repeat(10 * 1024 * 1024));
    let values: [&[u8]; 2] = [br#"{"n":9007199254740993,"m":1e400}"#, large.as_bytes()];
    let rows = read(&world, &values.map(Record::new)).await;
    for (row, value) in rows.iter().zip(values) {
        assert!(json(row).as_bytes() == value);
    }
}

#[tokio::test]
async fn times_of_any_kind_are_kept() {
    let Some(world) = World::new("strange timestamps", 1).await else { return };
    let world = World { topic: format!("{}-times", world.topic), ..world };
    let any = i64::MAX.to_string();
    let config =
        [("message.timestamp.before.max.ms", &*any), ("message.timestamp.after.max.ms", &*any)];
    outgoing::create(&world.brokers, &world.topic, 1, &config).await;
    // None, a negative one, the far future, and one outside any calendar.
    let times = [-1, -86_400_000, 4_102_444_800_000, i64::MAX];
    let mut sent = Vec::new();
    for timestamp in times {
        let record = RawRecord { value: b"{}".to_vec(), timestamp, ..RawRecord::default() };
        if raw::produce(&world.brokers, &world.topic, 0, &record).await == 0 {
            sent.push(timestamp);
        }
    }
    world.read_until(sent.len()).await;
    for (row, timestamp) in rows(&world).iter().zip(&sent) {
        match timestamp {
            -1 => assert_eq!((row.event_ts, row.headers.to_json().as_str()), (None, "{}")),
            &i64::MAX => {
                assert_eq!(row.event_ts, None);
                assert_eq!(row.headers.get("relais-timestamp"), Some(any.as_str()));
            }
            millis => assert_eq!(row.event_ts, Some(Timestamp::from_millis(*millis))),
        }
    }
    assert!(sent.len() > 2, "the broker took only {sent:?}");
}

#[tokio::test]
async fn a_record_larger_than_a_fetch_is_read() {
    let Some(mut world) = World::new("a record larger than a fetch", 1).await else { return };
    world.options.push(("fetch.message.max.bytes", "1000".into()));
    world.options.push(("fetch.max.bytes", "1000000".into()));
    world.options.push(("queued.max.messages.kbytes", "1".into()));
    let large = format!("{{\"fill\":\"{}\"}}", "x".repeat(3_000_000));
    let values = [b"{\"n\":1}".as_slice(), large.as_bytes(), b"{\"n\":2}"];
    let rows = read(&world, &values.map(Record::new)).await;
    assert!(rows.iter().zip(values).all(|(row, value)| json(row).as_bytes() == value));
}

#[tokio::test]
async fn a_record_larger_than_the_receive_limit_is_reported_with_the_option_to_change() {
    let Some(mut world) = World::new("a record larger than allowed", 1).await else { return };
    for (name, value) in [
        ("message.max.bytes", "1000"),
        ("fetch.max.bytes", "1000"),
        ("receive.message.max.bytes", "2000"),
    ] {
        world.options.push((name, value.into()));
    }
    let large = format!("{{\"n\":1,\"fill\":\"{}\"}}", "x".repeat(10_000));
    world.send(&[Record::new(b"{\"n\":0}"), Record::new(large.as_bytes())]).await;
    let mut source = world.source();
    world.fill(&mut source, 1).await;
    let error = world.error(&mut source).await;
    assert!(error.contains("receive.message.max.bytes"), "{error}");
    source.close().await;
    world.options.clear();
    world.read_until(2).await;
}

#[tokio::test]
async fn an_unknown_codec_is_refused_by_the_broker() {
    let Some(world) = World::new("an unknown codec", 1).await else { return };
    let record = RawRecord { value: b"{}".to_vec(), codec: 6, ..RawRecord::default() };
    assert_ne!(raw::produce(&world.brokers, &world.topic, 0, &record).await, 0);
    world.send(&[Record::new(b"{\"n\":1}")]).await;
    let mut source = world.source();
    world.fill(&mut source, 1).await;
    source.close().await;
}
