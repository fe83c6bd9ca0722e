//! The program between brokers of different kinds, from the outside.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

// Some helpers are made for other tests of the program.
#[allow(dead_code)]
#[path = "../support/broker.rs"]
mod broker;
mod rabbit;
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;

use broker::Broker;
use rabbit::{Rabbit, server};
use support::{Site, postgres::PostgresSchema};

const ORDER: &str = r#"{"type":"OrderPlaced","orderId":"o-1"}"#;

/// Writes the file of `relais init` with these texts replaced, and checks it with its connections.
fn initialized(from: &str, to: &str, replaced: &[(&str, &str)]) -> Site {
    let site = Site::new();
    let said = site.relais(&["init", "--from", from, "--to", to]);
    assert_eq!(said.code, 0, "{said:?}");
    let mut text = std::fs::read_to_string(site.path("relais.toml")).unwrap();
    for (before, after) in [&[("127.0.0.1:7070", "127.0.0.1:0")], replaced].concat() {
        assert!(text.contains(before), "{before}: {text}");
        text = text.replace(before, after);
    }
    site.write("relais.toml", &text);
    let said = site.relais(&["check", "--connect"]);
    assert_eq!(said.code, 0, "{said:?}\n{text}");
    site
}

#[test]
fn a_file_of_init_moves_records_from_kafka_to_rabbitmq() {
    let Some(kafka) = Broker::from_environment() else { return };
    let Some(rabbit) = Rabbit::from_environment() else { return };
    let (from, to) = (kafka.topic("in", 1), rabbit.name("orders-out"));
    rabbit.declare(&to);
    let site = initialized(
        "kafka",
        "rabbitmq",
        &[
            ("127.0.0.1:9092", &kafka.address),
            ("group = \"relais\"", &format!("group = \"{}\"", from.name)),
            ("[\"orders\"]", &format!("[\"{}\"]", from.name)),
            ("amqp://guest:guest@127.0.0.1:5672/%2f", &rabbit.url),
            ("routing_key = \"orders-out\"", &format!("routing_key = \"{to}\"")),
        ],
    );
    from.send("k", &[], Some(ORDER.as_bytes()));
    let running = site.run();
    assert_eq!(rabbit.take(&to).data, ORDER.as_bytes());
    assert_eq!(running.stop().code, 0);
}

#[test]
fn files_of_init_move_messages_from_rabbitmq_over_amqp_and_back() {
    let Some(rabbit) = Rabbit::from_environment() else { return };
    let Some(amqp) = server("RELAIS_TEST_ARTEMIS") else { return };
    let (from, to) = (rabbit.name("orders"), rabbit.name("orders-out"));
    let (first, second) = (rabbit.name("first"), rabbit.name("second"));
    rabbit.declare(&from);
    rabbit.declare(&to);
    let named = |key: &str, name: &str| format!("{key} = \"{name}\"");
    let (broker, queue) =
        ("amqp://guest:guest@127.0.0.1:5672/%2f", "amqp://guest:guest@127.0.0.1:5672\"");
    let amqp = format!("{amqp}\"");
    let there = initialized(
        "rabbitmq",
        "amqp",
        &[
            (broker, &rabbit.url),
            (queue, &amqp),
            ("queue = \"orders\"", &named("queue", &from)),
            ("address = \"orders-out\"", &named("address", &first)),
        ],
    );
    let between = initialized(
        "amqp",
        "amqp",
        &[
            (queue, &amqp),
            ("address = \"orders\"", &named("address", &first)),
            ("address = \"orders-out\"", &named("address", &second)),
        ],
    );
    let back = initialized(
        "amqp",
        "rabbitmq",
        &[
            (queue, &amqp),
            (broker, &rabbit.url),
            ("address = \"orders\"", &named("address", &second)),
            ("routing_key = \"orders-out\"", &named("routing_key", &to)),
        ],
    );
    let running = [there.run(), between.run(), back.run()];
    rabbit.send(&from, "m-1", ORDER);
    assert_eq!(rabbit.take(&to).data, ORDER.as_bytes());
    for one in running {
        assert_eq!(one.stop().code, 0);
    }
}

/// Runs a scenario with the URL of SQLite, and with that of PostgreSQL if there is one.
fn on_both(scenario: impl Fn(&str)) {
    scenario("sqlite:relais.db");
    if let Some(schema) = PostgresSchema::new() {
        scenario(&schema.url);
    }
}

#[test]
fn a_fixed_address_without_a_queue_pauses_the_destination_until_the_queue_exists() {
    on_both(|store| {
        let Some(rabbit) = Rabbit::from_environment() else { return };
        let (from, to) = (rabbit.name("orders"), rabbit.name("orders-out"));
        rabbit.declare(&from);
        let site = Site::with(&format!(
            "[store]\nurl = \"{store}\"\n\
             [[source]]\nname = \"orders\"\nkind = \"rabbitmq\"\nurl = \"{url}\"\nqueue = \"{from}\"\n\
             event_type = \"payload:/type\"\naggregate_id = \"payload:/orderId\"\n\
             [[route]]\non = \"OrderPlaced\"\ndestination = \"out\"\n\
             [[destination]]\nname = \"out\"\nkind = \"rabbitmq\"\nurl = \"{url}\"\n\
             exchange = \"\"\nrouting_key = \"{to}\"\n[destination.breaker]\nopen_for = \"1s\"\n",
            url = rabbit.url,
        ));
        let mut running = site.run();
        // More keys than make dead letters where each message has its own address.
        const MESSAGES: usize = 20;
        for number in 0..MESSAGES {
            let body = format!("{{\"type\":\"OrderPlaced\",\"orderId\":\"o-{number}\"}}");
            rabbit.send(&from, &format!("m-{number}"), &body);
        }
        running.wait_for("\"cause\":\"configuration\"");
        assert_eq!(site.json(&["dead-letter", "list"]), serde_json::json!([]));
        rabbit.declare(&to);
        let mut received: Vec<Vec<u8>> =
            (0..MESSAGES).map(|_| rabbit.take(&to).delivery.data).collect();
        received.sort();
        received.dedup();
        assert_eq!(received.len(), MESSAGES, "all of them");
        let said = running.stop();
        assert_eq!(said.code, 0, "{said:?}");
        assert_eq!(site.json(&["dead-letter", "list"]), serde_json::json!([]));
    });
}
