//! Any received record through the inbox and the outbox: every store gives the same rows, and the bytes
//! that came.
//!
//! The inputs are those of `relais_core::fuzz::record`, which checks what needs no database.

use std::sync::Arc;

use relais_core::{
    inbox::{Content, InboxRow, NewInbox},
    inspect::InspectExt,
    message::NewMessage,
    outbox::OutboxRow,
    query::Filter,
    repair,
    store::StoreDriver,
    time::Timestamp,
};
use relais_store_tests::fixture::Fixture;
use relais_testkit::build;
use tokio::runtime::Runtime;

use self::record::Record;
use crate::support;

#[path = "../../../../fuzz/parts.rs"]
mod parts;
#[path = "../../../../fuzz/record.rs"]
#[allow(dead_code)]
mod record;
#[path = "../../../../fuzz/run.rs"]
mod run;

/// Inputs beside the corpus: each is four commits on every store.
const ROUNDS: u64 = 150;

#[test]
fn any_record_comes_out_of_every_store_as_it_went_in() {
    let runtime = Runtime::new().expect("a runtime");
    let fixtures: Vec<Box<dyn Fixture>> = runtime.block_on(async {
        let opened = [support::sqlite::open().await, support::postgres::open().await];
        let fixtures: Vec<_> = opened.into_iter().flatten().collect();
        for fixture in &fixtures {
            fixture.migrate().await.expect("migrate");
        }
        fixtures
    });
    let mut number = 0;
    run::run("record", ROUNDS, |input| {
        number += 1;
        let Record { mut mapping, incoming, value, .. } = Record::of(input);
        // Inputs may have the same id.
        mapping.source_system = format!("fuzz-{number}");
        let Ok(sent) = mapping.read(incoming) else { return };
        let mut found = Vec::new();
        for fixture in &fixtures {
            let rows = runtime.block_on(there_and_back(fixture.store(), &sent));
            assert_came_back(&sent, value, &rows);
            found.push(rows);
        }
        assert!(found.windows(2).all(|two| two[0] == two[1]), "stores differ: {found:#?}");
    });
    // Connections end inside the runtime.
    let _guard = runtime.enter();
    drop(fixtures);
}

/// The rows of a message, without what every database counts for itself.
async fn there_and_back(store: Arc<dyn StoreDriver>, sent: &NewInbox) -> (InboxRow, OutboxRow) {
    store.accept(vec![sent.clone()], Vec::new()).await.expect("every record is stored");
    let source = Some(sent.source_system.clone());
    let asked = Filter { source, limit: 2, ..Filter::default() };
    let [received] = &store.list_inbox(asked).await.expect("list")[..] else { panic!("one row") };
    let raw = received.raw_payload_base64.clone().unwrap_or_default();
    let envelope = || format!("{{\"base64\":\"{raw}\"}}");
    let message = NewMessage {
        msg_key: received.msg_key.clone(),
        aggregate_id: received.aggregate_id.clone().unwrap_or_default(),
        payload: received.payload.clone().unwrap_or_else(envelope),
        headers: received.headers.clone(),
        causation_id: Some(received.message_id.clone()),
        ..build::message("fuzz", "k")
    };
    let ids = store.enqueue(vec![message]).await.expect("every message is stored");
    let pending = store.find_outbox(ids[0].to_string()).await.expect("find").expect("a row");
    let received = InboxRow { id: 0, lane: 0, received_at: Timestamp(0), ..received.clone() };
    let message_id = uuid::Uuid::nil();
    (received, OutboxRow { id: 0, lane: 0, message_id, created_at: Timestamp(0), ..pending })
}

fn assert_came_back(sent: &NewInbox, value: &[u8], (received, pending): &(InboxRow, OutboxRow)) {
    let was =
        (&sent.message_id, &sent.key_str, &sent.msg_key, &sent.aggregate_id, &sent.event_type);
    let is = (
        &received.message_id,
        &received.key_str,
        &received.msg_key,
        &received.aggregate_id,
        &received.event_type,
    );
    assert_eq!(was, is);
    assert_eq!((&sent.headers, &sent.event_ts), (&received.headers, &received.event_ts));
    match &sent.content {
        Content::Json(json) => {
            assert_eq!(received.payload.as_ref(), Some(json));
            assert_eq!(&pending.payload, json);
        }
        Content::Undecodable { problem, .. } => {
            assert_eq!(repair::original(received).as_deref(), Ok(value));
            assert_eq!(received.error_code.as_ref(), Some(&problem.code));
            assert_eq!(received.error_message.as_ref(), Some(&problem.message));
        }
    }
    assert_eq!((&pending.headers, &pending.msg_key), (&sent.headers, &sent.msg_key));
}
