//! The example for Azure Service Bus, with the simulator.

use servicebus_sim::{EntityConfig, NamespaceConfig, ServiceBusSimulator};

use crate::{
    amqp::{bytes, order},
    example::{BODY, EVENT_TYPE, Example, end, runtime},
    server::wait_until,
};

const SUBSCRIPTION: &str = "topic.1/Subscriptions/subscription.1";

/// A simulator with the queue and the topic of the emulator.
struct Namespace {
    sim: ServiceBusSimulator,
    config: NamespaceConfig,
    _runtime: tokio::runtime::Runtime,
}

impl Namespace {
    fn start() -> Self {
        let subscriptions = vec![("subscription.1".to_owned(), EntityConfig::default())];
        let config = NamespaceConfig {
            queues: vec![("queue.1".to_owned(), EntityConfig::default())],
            topics: vec![("topic.1".to_owned(), subscriptions)],
            ..NamespaceConfig::default()
        };
        let runtime = runtime();
        let sim = runtime.block_on(ServiceBusSimulator::start(config.clone())).unwrap();
        Self { sim, config, _runtime: runtime }
    }

    fn example(&self) -> Example {
        let place = format!("sb://{};", self.sim.address());
        let replaced =
            [("sb://localhost;", place.as_str()), ("${SERVICEBUS_KEY}", &self.config.key)];
        Example::of_page("servicebus.md", &replaced)
    }
}

#[test]
fn the_example_for_service_bus_delivers_a_message_over_the_simulator() {
    let namespace = Namespace::start();
    let (site, running) = namespace.example().run();
    namespace.sim.send("queue.1", vec![order()]);
    wait_until("it is delivered", || namespace.sim.len(SUBSCRIPTION) == 1);
    wait_until("it is completed", || namespace.sim.is_empty("queue.1"));
    let message = namespace.sim.messages(SUBSCRIPTION).remove(0);
    assert_eq!(bytes(&message), BODY.as_bytes());
    let properties = message.properties.unwrap();
    assert_eq!(properties.subject.as_deref(), Some(EVENT_TYPE));
    end(&site, running);
}

#[test]
fn a_missing_queue_and_a_wrong_key_of_service_bus_are_found_before_the_start() {
    let namespace = Namespace::start();
    let example = namespace.example();
    let missing = example.with("\"queue.1\"", "\"queue.2\"").with("\"topic.1\"", "\"topic.2\"");
    let wrong = example.with(&namespace.config.key, "Q0FOQVJZ");
    for setting in ["source[commands].connection", "destination[accepted-orders].connection"] {
        missing.fails(setting, &["does not exist; create it"]);
        wrong.fails(setting, &["refuses the login", "the key in `connection`"]);
    }
}
