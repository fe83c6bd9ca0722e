//! The checks of every publisher.

use std::{collections::BTreeMap, time::Duration};

use relais_core::{
    delivery::Delivery,
    outbox::OutboxRow,
    publisher::{Batching, Publisher},
};

use super::{PublisherFixture, WireMessage, outbox_row, soon};
use crate::proxy::Fault;

/// Messages of a usual check.
const SOME: usize = 20;
/// The pause before a message is sent again.
const PAUSE: Duration = Duration::from_millis(100);

fn rows(count: usize, keys: usize) -> Vec<OutboxRow> {
    (0..count).map(|n| outbox_row(n, &format!("k-{}", n % keys))).collect()
}

/// Sends rows as a worker does, in calls of the allowed size, and keeps the order of each key: what
/// was not accepted is sent again, unless it was rejected.
async fn deliver(publisher: &dyn Publisher, rows: &[OutboxRow]) -> Vec<Delivery> {
    let mut results: Vec<Option<Delivery>> = vec![None; rows.len()];
    let work = async {
        loop {
            let call = startable(publisher.batching(), rows, &results);
            if call.is_empty() {
                return;
            }
            let sent: Vec<OutboxRow> = call.iter().map(|at| rows[*at].clone()).collect();
            let deliveries = publisher.publish(&sent).await;
            assert_eq!(deliveries.len(), sent.len(), "one delivery for each message");
            let mut is_slow = false;
            for (at, delivery) in call.into_iter().zip(deliveries) {
                match delivery {
                    Delivery::Accepted | Delivery::Reject { .. } => results[at] = Some(delivery),
                    _ => is_slow = true,
                }
            }
            if is_slow {
                tokio::time::sleep(PAUSE).await;
            }
        }
    };
    soon("every message is accepted or rejected", work).await;
    // Rows behind a rejected one of their key are not tried.
    results.into_iter().map(|delivery| delivery.unwrap_or(Delivery::Held)).collect()
}

fn startable(batching: Batching, rows: &[OutboxRow], results: &[Option<Delivery>]) -> Vec<usize> {
    let mut open: BTreeMap<&str, bool> = BTreeMap::new();
    let mut call = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let is_first = !open.contains_key(row.msg_key.as_str());
        match &results[at] {
            Some(Delivery::Accepted) => {}
            Some(_) => drop(open.insert(&row.msg_key, true)),
            None => {
                let is_parked = open.get(row.msg_key.as_str()).copied().unwrap_or(false);
                let may_repeat = matches!(batching, Batching::InOrder { .. });
                if !is_parked && (is_first || may_repeat) {
                    call.push(at);
                }
                open.entry(&row.msg_key).or_insert(false);
            }
        }
        if call.len() == batching.max() {
            break;
        }
    }
    call
}

/// Returns the first arrival of every message, by key, in order.
fn first_by_key(received: &[WireMessage]) -> BTreeMap<&str, Vec<&str>> {
    let mut by_key: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for message in received {
        let of_key = by_key.entry(&message.key).or_default();
        if !of_key.contains(&message.id.as_str()) {
            of_key.push(&message.id);
        }
    }
    by_key
}

fn assert_in_order(received: &[WireMessage], sent: &[OutboxRow]) {
    for (key, arrived) in first_by_key(received) {
        let of_key = sent.iter().filter(|row| row.msg_key == key);
        let expected: Vec<String> = of_key.map(|row| row.message_id.to_string()).collect();
        assert_eq!(arrived, expected, "{key}");
    }
}

/// An accepted message is at the server.
pub async fn accepted_messages_have_arrived(fixture: &impl PublisherFixture) {
    let publisher = fixture.publisher().await;
    let rows = rows(SOME, SOME);
    let deliveries = deliver(&*publisher, &rows).await;
    assert!(deliveries.iter().all(|delivery| *delivery == Delivery::Accepted), "{deliveries:?}");
    let received = fixture.received(SOME).await;
    assert_eq!(received.len(), SOME);
    publisher.close().await;
}

/// A message has its stable id, key, headers (trace context included) and payload, unchanged.
pub async fn a_message_has_its_id_key_headers_and_payload(fixture: &impl PublisherFixture) {
    let publisher = fixture.publisher().await;
    let mut row = outbox_row(7, "key-7");
    row.payload =
        "{ \"amount\":1.50,\"text\":\"Grüße 😀\",\"big\":12345678901234567890 }".to_owned();
    row.correlation_id = Some("c-1".to_owned());
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    row.headers.set("traceparent", trace);
    row.headers.set("tenant", "acme");
    deliver(&*publisher, std::slice::from_ref(&row)).await;
    let received = fixture.received(1).await;
    let message = &received[0];
    assert_eq!(message.id, row.message_id.to_string());
    assert_eq!(message.key, "key-7");
    assert_eq!(message.body, row.payload.as_bytes());
    assert_eq!(message.header("traceparent"), Some(trace.as_bytes()));
    assert_eq!(message.header("tenant"), Some(&b"acme"[..]));
    assert_eq!(message.header("event-type"), Some(&b"OrderCreated"[..]));
    assert_eq!(message.header("correlation-id"), Some(&b"c-1"[..]));
    publisher.close().await;
}

/// Messages of one key arrive in order, also many in one call.
pub async fn messages_of_a_key_arrive_in_order(fixture: &impl PublisherFixture) {
    let publisher = fixture.publisher().await;
    let rows = rows(90, 3);
    deliver(&*publisher, &rows).await;
    assert_in_order(&fixture.received(rows.len()).await, &rows);
    publisher.close().await;
}

/// A message that is too large is rejected with the reason; others of its call are not affected.
pub async fn an_oversized_message_is_rejected_and_the_others_arrive(
    fixture: &impl PublisherFixture,
) {
    let publisher = fixture.publisher().await;
    let mut rows = rows(SOME, SOME);
    rows[5].payload = format!("\"{}\"", "x".repeat(fixture.oversized()));
    let deliveries = deliver(&*publisher, &rows).await;
    for (at, delivery) in deliveries.iter().enumerate() {
        match delivery {
            Delivery::Reject { problem } if at == 5 => {
                assert!(problem.code.contains(fixture.oversized_code()), "{problem:?}");
            }
            delivery => assert_eq!((at == 5, delivery), (false, &Delivery::Accepted)),
        }
    }
    let received = fixture.received(SOME - 1).await;
    assert!(received.iter().all(|message| message.id != rows[5].message_id.to_string()));
    publisher.close().await;
}

/// A message that no receiver gets is rejected with the server's reason; the others arrive.
pub async fn an_unroutable_message_is_rejected_and_the_others_arrive(
    fixture: &impl PublisherFixture,
) {
    let publisher = fixture.publisher().await;
    let mut rows = rows(SOME, SOME);
    let Some(unroutable) = fixture.unroutable(5) else { return };
    rows[5] = unroutable;
    let deliveries = deliver(&*publisher, &rows).await;
    for (at, delivery) in deliveries.iter().enumerate() {
        let is_rejected = matches!(delivery, Delivery::Reject { .. });
        assert_eq!(is_rejected, at == 5, "{at}: {delivery:?}");
    }
    assert_eq!(fixture.received(SOME - 1).await.len(), SOME - 1);
    publisher.close().await;
}

/// Messages behind a rejected one of their key are not accepted, in the same call either.
pub async fn no_message_passes_a_rejected_one_of_its_key(fixture: &impl PublisherFixture) {
    let publisher = fixture.publisher().await;
    let mut rows = rows(6, 2);
    let key = rows[2].msg_key.clone();
    rows[2].payload = format!("\"{}\"", "x".repeat(fixture.oversized()));
    let deliveries = deliver(&*publisher, &rows).await;
    assert!(matches!(deliveries[2], Delivery::Reject { .. }), "{:?}", deliveries[2]);
    assert_eq!(deliveries[4], Delivery::Held, "behind it");
    let received = fixture.received(4).await;
    let of_key: Vec<_> = received.iter().filter(|message| message.key == key).collect();
    assert_eq!(of_key.len(), 1, "only the one before it");
    publisher.close().await;
}

/// Without a server every message is an outage, which uses no attempt.
pub async fn without_a_server_every_message_is_an_outage(fixture: &impl PublisherFixture) {
    let publisher = fixture.unreachable().await;
    let max = publisher.batching().max().min(3);
    let deliveries = soon("it answers", publisher.publish(&rows(max, max))).await;
    let is_outage = |delivery: &Delivery| matches!(delivery, Delivery::Outage { .. });
    assert!(deliveries.iter().all(is_outage), "{deliveries:?}");
    soon("it closes", publisher.close()).await;
}

/// While the network is cut, messages are outages; afterwards all arrive, in order of their keys.
pub async fn a_cut_connection_is_an_outage_and_the_retry_arrives_in_order(
    fixture: &impl PublisherFixture,
) {
    let publisher = fixture.publisher().await;
    let all = rows(60, 3);
    deliver(&*publisher, &all[..20]).await;
    fixture.proxy().set(Fault::Cut);
    let max = publisher.batching().max().min(3);
    let deliveries = soon("it answers", publisher.publish(&all[20..20 + max])).await;
    let is_outage =
        |delivery: &Delivery| matches!(delivery, Delivery::Outage { .. } | Delivery::Retry { .. });
    assert!(deliveries.iter().all(is_outage), "{deliveries:?}");
    fixture.proxy().set(Fault::None);
    let cutting = async {
        for _ in 0..3 {
            tokio::time::sleep(PAUSE).await;
            fixture.proxy().set(Fault::Cut);
            fixture.proxy().set(Fault::None);
        }
    };
    let (deliveries, ()) = tokio::join!(deliver(&*publisher, &all[20..]), cutting);
    assert!(deliveries.iter().all(|delivery| *delivery == Delivery::Accepted), "{deliveries:?}");
    let received = fixture.received(all.len()).await;
    assert_in_order(&received, &all);
    publisher.close().await;
}

/// Closing waits for what was accepted, and a second close does no harm.
pub async fn a_closed_publisher_has_delivered_everything(fixture: &impl PublisherFixture) {
    let publisher = fixture.publisher().await;
    let rows = rows(SOME, 4);
    deliver(&*publisher, &rows).await;
    soon("it closes", publisher.close()).await;
    soon("it closes", publisher.close()).await;
    assert_eq!(fixture.received(SOME).await.len(), SOME);
}
