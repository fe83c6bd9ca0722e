//! One message id: the same message, a message of another destination, or a mistake of the sender.

use relais_core::{
    dead_letter::DecisionAction,
    inspect::InspectExt,
    message::{MessageIdOrigin, NewMessage},
    store::StoreError,
};

use super::{Start, dead_letters::dead_outbox, decision, worker::Worker};
use crate::{build::message, fixture::Fixture};

pub const START: Start = Start::Migrated;

pub async fn one_id_to_two_destinations_is_two_messages(f: &dyn Fixture) {
    let a = message("orders", "a");
    let elsewhere = NewMessage { destination: "audit".to_owned(), ..a.clone() };
    let first = f.store().enqueue(vec![a.clone()]).await.expect("enqueue");
    let ids = f.second().enqueue(vec![elsewhere.clone(), a.clone(), elsewhere]).await;
    let ids = ids.expect("enqueue to both");
    assert_eq!(ids, [ids[0], first[0], ids[0]]);
    let rows = f.store().trail(a.message_id.to_string()).await.expect("trail").sent;
    let found: Vec<_> = rows.iter().map(|row| (row.id, row.destination.as_str())).collect();
    assert_eq!(found, [(first[0], "orders"), (ids[0], "audit")]);
    let oldest = f.store().find_outbox(a.message_id.to_string()).await.expect("find");
    assert_eq!(oldest.map(|row| row.id), Some(first[0]));
    for destination in ["orders", "audit"] {
        let rows = Worker::outbox(f, destination, "w").await.pending(10).await;
        assert_eq!(rows.len(), 1, "{destination}");
    }
}

/// Alone, in a batch, and together with ids that senders chose.
pub async fn messages_with_generated_ids_are_written_in_order(f: &dyn Fixture) {
    let generated =
        |key: &str| NewMessage { id_origin: MessageIdOrigin::Generated, ..message("orders", key) };
    let there = message("orders", "c");
    let mut ids = f.store().enqueue(vec![generated("a")]).await.expect("enqueue one");
    let some = vec![generated("a"), generated("b")];
    ids.extend(f.store().enqueue(some).await.expect("enqueue some"));
    let mixed = vec![generated("b"), there.clone(), generated("c")];
    ids.extend(f.store().enqueue(mixed).await.expect("enqueue with a chosen id"));
    let again = vec![generated("d"), there];
    let again = f.second().enqueue(again).await.expect("enqueue again");
    assert_eq!(again[1], ids[4], "the chosen id is known");
    ids.push(again[0]);
    assert!(ids.is_sorted(), "{ids:?}");
    assert_eq!(f.number("SELECT count(DISTINCT message_id) FROM relais_outbox").await, 7);
}

pub async fn one_id_with_other_content_is_refused(f: &dyn Fixture) {
    let a = message("orders", "a");
    f.store().enqueue(vec![a.clone()]).await.expect("enqueue");
    let others = [
        NewMessage { payload: r#"{"other":true}"#.to_owned(), ..a.clone() },
        NewMessage { event_type: "Other".to_owned(), ..a.clone() },
        NewMessage { msg_key: "other".to_owned(), ..a.clone() },
    ];
    for other in others {
        // Alone, behind a good one, and with the first one in the same batch.
        let fresh = message("orders", "b");
        let twin = NewMessage { message_id: fresh.message_id, ..other.clone() };
        let batches = [vec![other.clone()], vec![fresh.clone(), other], vec![fresh, twin]];
        for batch in batches {
            let id = batch.last().expect("one").message_id;
            let refused = f.second().enqueue(batch).await;
            let Err(StoreError::Invalid(text)) = refused else { panic!("{refused:?}") };
            let expected =
                format!("message id {id} belongs to another message of destination orders");
            assert!(text.contains(&expected), "{text}");
        }
    }
    assert_eq!(f.number("SELECT count(*) FROM relais_outbox").await, 1, "all or nothing");
}

/// A sender that repeats a message gets no error for what an operator changed since.
pub async fn an_edited_message_is_still_the_same(f: &dyn Fixture) {
    let sent = message("orders", "k");
    let (_, dead) = dead_outbox(f, sent.clone()).await;
    let edit = DecisionAction::Edit { dead_letter: dead.id, payload: "1".to_owned() };
    f.store().decide(decision(edit)).await.expect("edit");
    let ids = f.store().enqueue(vec![sent]).await.expect("enqueue again");
    assert_eq!(Some(ids[0]), dead.origin_id);
}
