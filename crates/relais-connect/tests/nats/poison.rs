//! Messages that the client library refuses, between others.

use std::{collections::BTreeMap, time::Duration};

use relais_connect::nats::{NatsSource, NatsSourceSettings};
use relais_core::{
    inbox::{AcceptOutcome, Content, NewInbox},
    source::{Source, SourceError},
};
use relais_testkit::connector::{SourceFixture, WireMessage, soon};
use serde_json::json;

use super::{
    fixture::{World, header_block, stream, work_queue},
    server::OwnServer,
};

const PAUSE: Duration = Duration::from_millis(50);

fn message(number: usize) -> WireMessage {
    let (id, key) = (format!("m-{number:03}"), format!("k-{}", number % 3));
    WireMessage::new(&id, &key, format!("{{\"n\": {number}}}").as_bytes())
}

/// Sends messages of which some have headers that are not UTF-8 or are no headers.
async fn send(world: &World, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let mut message = message(number);
        match number {
            7 | 8 | 31 => message.headers.push(("name".into(), b"Gr\xfc\xdfe".to_vec())),
            20 => {
                let mut block = header_block(&message);
                block.truncate(block.len() - 2);
                block.extend_from_slice(b"no colon\r\n\r\n");
                world.send_raw(&block, &message.body).await;
                continue;
            }
            _ => {}
        }
        world.send(&[message]).await;
    }
}

/// Reads as a worker does, until `count` different messages are there.
async fn read(source: &mut NatsSource, count: usize) -> BTreeMap<String, NewInbox> {
    let (mut rows, mut order) = (BTreeMap::new(), BTreeMap::new());
    let reading = async {
        while rows.len() < count {
            let batch = match source.next(5).await {
                Ok(batch) => batch,
                Err(SourceError::Unavailable(_)) => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            let accepted = vec![AcceptOutcome::Stored; batch.messages.len()];
            // A failure means that they arrive again.
            let _ = source.acknowledge(accepted).await;
            for row in batch.messages {
                if rows.contains_key(&row.message_id) {
                    continue;
                }
                let last = order.insert(row.msg_key.clone(), row.message_id.clone());
                assert!(last.is_none_or(|last| last < row.message_id), "{}", row.message_id);
                rows.insert(row.message_id.clone(), row);
            }
        }
    };
    soon("everything is read", reading).await;
    rows
}

async fn assert_all_are_stored(world: World, left: u64) {
    const ALL: usize = 40;
    send(&world, 0..ALL).await;
    let mut source = NatsSource::new(world.origin()).unwrap();
    let rows = read(&mut source, ALL).await;
    for number in 0..ALL {
        let row = &rows[&message(number).id];
        assert_eq!(row.content, Content::Json(format!("{{\"n\": {number}}}")));
        assert_eq!(row.offset_num, i64::try_from(number).unwrap() + 1);
        let headers = row.headers.to_json();
        let bytes = r#""name":{"base64":"R3L832U="}"#;
        assert_eq!(headers.contains(bytes), [7, 8, 31].contains(&number), "{headers}");
        let line = r#""nats-malformed-header":"no colon""#;
        assert_eq!(headers.contains(line), number == 20, "{headers}");
    }
    assert_eq!(world.unacknowledged().await, 0);
    // The source reads on as usual.
    send(&world, ALL..ALL + 3).await;
    read(&mut source, 3).await;
    assert_eq!(world.unacknowledged().await, 0);
    source.close().await;
    assert_eq!(world.messages().await, left);
}

#[tokio::test]
async fn headers_of_any_bytes_stop_no_source_and_all_messages_arrive_in_order() {
    let Some(world) = stream().await else { return };
    assert_all_are_stored(world, 43).await;
}

#[tokio::test]
async fn headers_of_any_bytes_leave_nothing_in_a_work_queue() {
    let Some(world) = work_queue().await else { return };
    assert_all_are_stored(world, 0).await;
}

#[tokio::test]
async fn only_messages_of_the_filter_are_read_from_a_stream_with_limits() {
    let Some(world) = stream().await else { return };
    let name = format!("{}-parts", world.name);
    let config = json!({"subjects": [format!("{name}.>")], "max_msgs": 12, "discard": "old"});
    world.create_stream(&name, config).await;
    let world = World { name: name.clone(), ..world };
    let other = || world.client.request(format!("{name}.other"), "{}".into());
    // The first messages are dropped by the limit of the stream.
    for number in 0..10 {
        other().await.unwrap();
        send(&world, number..number + 1).await;
    }
    let filter = Some(world.subject());
    let mut source = NatsSource::new(NatsSourceSettings { filter, ..world.origin() }).unwrap();
    let rows = read(&mut source, 6).await;
    let ids: Vec<&str> = rows.keys().map(String::as_str).collect();
    assert_eq!(ids, ["m-004", "m-005", "m-006", "m-007", "m-008", "m-009"]);
    assert_eq!(world.unacknowledged().await, 0);
    source.close().await;
}

#[tokio::test]
async fn what_looks_like_a_status_of_the_server_is_a_message() {
    let Some(world) = stream().await else { return };
    for status in ["404 No Messages", "409 Consumer Deleted", "100", "odd"] {
        world.send_raw(format!("NATS/1.0 {status}\r\n\r\n").as_bytes(), b"{}").await;
    }
    let mut source = NatsSource::new(world.origin()).unwrap();
    read(&mut source, 4).await;
    assert_eq!(world.unacknowledged().await, 0);
    source.close().await;
}

/// A user that may not read the stream by its API.
const LIMITED: &str = "jetstream { store_dir: \"{folder}/data\" }
    authorization { users: [
      { user: all, password: p },
      { user: few, password: p, permissions: { publish: { deny: \"$JS.API.STREAM.MSG.GET.>\" } } }
    ] }";

#[tokio::test]
async fn without_the_permission_the_source_continues_once_the_message_is_removed() {
    let Some(server) = OwnServer::start(LIMITED, |_| {}).await else { return };
    let url = |user| format!("nats://{user}:p@127.0.0.1:{}", server.port);
    let Some(world) = World::at(url("all")).await else { return };
    let mut bad = message(1);
    bad.headers.push(("name".into(), b"\xff".to_vec()));
    world.send(&[message(0), bad, message(2)]).await;
    let connection = relais_connect::nats::NatsConnection::new(&url("few")).unwrap();
    let mut source = NatsSource::new(NatsSourceSettings { connection, ..world.origin() }).unwrap();
    let mut reasons = Vec::new();
    let stopping = async {
        while reasons.len() < 3 {
            match source.next(5).await {
                Ok(batch) => {
                    let accepted = vec![AcceptOutcome::Stored; batch.messages.len()];
                    let _ = source.acknowledge(accepted).await;
                }
                Err(SourceError::Unavailable(why)) => reasons.push(why),
                Err(error) => panic!("{error}"),
            }
        }
    };
    soon("the connection is lost again and again", stopping).await;
    let advice = format!("nats stream rmm {}", world.name);
    assert!(reasons.last().is_some_and(|why| why.contains(&advice)), "{reasons:?}");
    let removed = world.api(&format!("STREAM.MSG.DELETE.{}", world.name), json!({"seq": 2})).await;
    assert_eq!(removed["success"], true, "{removed}");
    let rows = read(&mut source, 1).await;
    assert!(rows.contains_key("m-000") || rows.contains_key("m-002"), "{rows:?}");
    source.close().await;
}
