//! Replies to the sender of a command.

use relais_connect::nats::{NatsPublisher, NatsPublisherSettings};
use relais_core::{delivery::Delivery, message::Category, outbox::OutboxRow, publisher::Publisher};
use relais_testkit::connector::{outbox_row, soon};

use super::fixture::{World, stream};

/// Sends replies to the subject in their header.
fn to_sender(world: &World) -> NatsPublisher {
    let subject = "{{header:reply-to}}".parse().unwrap();
    NatsPublisher::new(NatsPublisherSettings { subject, ..world.target() }).unwrap()
}

fn reply(number: usize, to: &str) -> OutboxRow {
    let mut row = outbox_row(number, &format!("k-{number}"));
    row.category = Category::Reply;
    row.correlation_id = Some(format!("c-{number}"));
    row.headers.set("reply-to", to);
    row
}

#[tokio::test]
async fn a_command_asks_for_its_reply_which_arrives_at_the_subject_of_its_sender() {
    let Some(world) = stream().await else { return };
    let asking = NatsPublisherSettings { reply_to: Some(world.subject()), ..world.target() };
    let command = OutboxRow { category: Category::Command, ..outbox_row(0, "k") };
    let sent = soon("it answers", NatsPublisher::new(asking).unwrap().publish(&[command])).await;
    assert_eq!(sent, [Delivery::Accepted]);
    let command = world.stored(1).await.remove(0);
    let address = String::from_utf8(command.header("reply-to").unwrap().to_vec()).unwrap();
    assert_eq!(address, world.subject());

    let deliveries = to_sender(&world).publish(&[reply(1, &address)]).await;
    assert_eq!(deliveries, [Delivery::Accepted]);
    let reply = world.stored(2).await.remove(1);
    assert_eq!(reply.header("correlation-id"), Some(&b"c-1"[..]));
    assert_eq!(reply.header("reply-to"), None, "a reply asks for none");
}

#[tokio::test]
async fn a_subject_without_a_stream_is_rejected_also_if_a_program_listens_to_it() {
    let Some(world) = stream().await else { return };
    let listened = format!("_INBOX.{}", world.name);
    let _listener = world.client.subscribe(listened.clone()).await.unwrap();
    world.client.flush().await.unwrap();
    let rows = [reply(0, &listened), reply(1, &world.subject()), reply(2, "missing.subject")];
    let deliveries = soon("it answers", to_sender(&world).publish(&rows)).await;
    assert_eq!(deliveries[1], Delivery::Accepted);
    for at in [0, 2] {
        let Delivery::Reject { problem } = &deliveries[at] else { panic!("{deliveries:?}") };
        assert_eq!(problem.code, "NATS_UNROUTABLE", "{problem:?}");
    }
    let Some((problem, _)) = deliveries[0].problem() else { panic!("{deliveries:?}") };
    assert!(problem.message.contains("acknowledges nothing"), "{problem:?}");
}
