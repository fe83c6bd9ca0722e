//! Adopted rows go to the Kafka topic that each of them names, with the key of each.

use rdkafka::Message;

use super::{
    broker::{Broker, Topic, header},
    *,
};

on_both_databases!(
    rows_of_jdbc_go_to_the_topic_and_with_the_key_of_each,
    rows_of_debezium_go_to_the_topics_of_its_router,
);

/// Writes a configuration whose destination `events` is Kafka.
fn to_kafka(shop: &Shop, broker: &Broker, topic: &str, adopt: &str) {
    shop.write(&format!(
        "[[destination]]\nname = \"events\"\nkind = \"kafka\"\nbrokers = \"{}\"\n\
         topic = \"{topic}\"\non_dead_letter = \"skip\"\n{}",
        broker.address,
        adopt.replace("\"orders\"", "\"events\"")
    ));
}

/// Returns key and payload of the records of a topic.
fn records(topic: &Topic<'_>, count: usize) -> Vec<String> {
    let text =
        |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
    let records = topic.read(count);
    let records = records.iter().map(|r| format!("{} {}", text(r.key()), text(r.payload())));
    records.collect()
}

fn rows_of_jdbc_go_to_the_topic_and_with_the_key_of_each(on: Backend) {
    let Some(broker) = Broker::from_environment() else { return };
    let Some(shop) = Shop::new(on, presets::JDBC, "") else { return };
    to_kafka(&shop, &broker, "{{aggregate_type}}", &adopt("outbox", "jdbc", ""));
    let (orders, members) = (broker.topic("orders", 1), broker.topic("members", 1));
    let running = shop.run();
    let insert = |topic: &str, key: &str, payload: &str| {
        shop.sql(&format!(
            "INSERT INTO outbox (category, topic, key, type, payload, created_at) \
             VALUES ('event', '{topic}', {key}, 'Paid', '{payload}', now())"
        ));
    };
    insert(&orders.name, "'o-1'", "[1]");
    insert(&members.name, "'m-1'", "[2]");
    insert(&orders.name, "'o-1'", "[3]");
    insert("no topic", "'x'", "[4]");
    insert(&members.name, "NULL", "[5]");
    assert_eq!(records(&orders, 2), ["o-1 [1]", "o-1 [3]"]);
    let mut found = records(&members, 2);
    found.sort();
    // A row without a key has its own id as the key.
    assert_eq!(found, ["5 [5]", "m-1 [2]"]);
    assert_eq!(header(&orders.read(1)[0], "event-type").as_deref(), Some("Paid"));
    shop.wait(
        "SELECT string_agg(payload, ' ' ORDER BY id) FROM outbox WHERE status = 'PUBLISHED'",
        "[1] [2] [3] [5]",
    );
    shop.wait("SELECT payload FROM outbox WHERE status = 'FAILED'", "[4]");
    let error = shop.one("SELECT last_error FROM outbox WHERE status = 'FAILED'");
    assert!(error.contains("`no topic` is not the name of a topic"), "{error}");
    running.stop();
}

fn rows_of_debezium_go_to_the_topics_of_its_router(on: Backend) {
    let Some(broker) = Broker::from_environment() else { return };
    let Some(shop) = Shop::new(on, presets::DEBEZIUM, "") else { return };
    to_kafka(
        &shop,
        &broker,
        "outbox.event.{{aggregate_type}}",
        &adopt("outboxevent", "debezium", ""),
    );
    // The name of the topic has the aggregate type, so each test has its own.
    let aggregate = format!("Order-{}", uuid::Uuid::new_v4().simple());
    let topic = broker.topic_named(&format!("outbox.event.{aggregate}"), 1);
    let running = shop.run();
    for n in 1..=2 {
        let id = id(n);
        shop.sql(&format!(
            "BEGIN; INSERT INTO outboxevent VALUES ('{id}', '{aggregate}', 'o-1', 'OrderPlaced', '[{n}]'); \
             DELETE FROM outboxevent; COMMIT"
        ));
    }
    assert_eq!(records(&topic, 2), ["o-1 [1]", "o-1 [2]"]);
    assert_eq!(header(&topic.read(1)[0], "message-id"), Some(id(1)));
    running.stop();
}
