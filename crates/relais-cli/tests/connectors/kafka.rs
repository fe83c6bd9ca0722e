//! The example for Kafka.

use rdkafka::Message;

use crate::{
    broker::{Broker, header},
    example::{BODY, EVENT_TYPE, Example, end},
};

/// The address of the example.
const BROKER: &str = "127.0.0.1:9092";

#[test]
fn the_example_for_kafka_delivers_a_message() {
    let Some(broker) = Broker::from_environment() else { return };
    let (from, to) = (broker.topic("orders", 1), broker.topic("accepted", 1));
    let example = Example::of_page(
        "kafka.md",
        &[
            (BROKER, &broker.address),
            ("group = \"relais\"", &format!("group = \"{}\"", from.name)),
            ("topics = [\"orders\"]", &format!("topics = [\"{}\"]", from.name)),
            ("\"accepted-orders\"", &format!("\"{}\"", to.name)),
        ],
    );
    let (site, running) = example.run();
    from.send("7", &[("event-type", EVENT_TYPE)], Some(BODY.as_bytes()));
    let records = to.read(1);
    assert_eq!(records[0].payload(), Some(BODY.as_bytes()));
    assert_eq!(header(&records[0], "event-type").as_deref(), Some(EVENT_TYPE));
    end(&site, running);
}

#[test]
fn a_missing_topic_is_found_before_the_start() {
    let Some(broker) = Broker::from_environment() else { return };
    let missing = format!("topics = [\"missing-{}\"]", uuid::Uuid::new_v4().simple());
    let example = Example::of_page(
        "kafka.md",
        &[(BROKER, &broker.address), ("topics = [\"orders\"]", &missing)],
    );
    example.fails("source[orders].brokers", &["has no topic `missing-", "create it"]);
}
