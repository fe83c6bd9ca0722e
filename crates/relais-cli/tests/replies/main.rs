//! Commands of a process and their replies over a broker: the examples of the docs, with the real program
//! on both sides.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

#[path = "../support/order_reply.rs"]
mod order_reply;
// Some helpers are made for other tests of the program.
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;

use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{BasicPublishOptions, QueueDeclareOptions},
    types::FieldTable,
};
use order_reply::OrderReply;
use uuid::Uuid;

/// Returns the address of a broker; without it the test is left out, except in continuous integration.
fn server(variable: &str) -> Option<String> {
    let found = std::env::var(variable).ok();
    assert!(found.is_some() || std::env::var_os("CI").is_none(), "CI is set and {variable} is not");
    if found.is_none() {
        eprintln!("NOT TESTED: {variable} is not set");
    }
    found
}

/// A broker, asked inside of synchronous tests.
struct Rabbit {
    url: String,
    /// The end of all names of the test.
    suffix: String,
    channel: Channel,
    runtime: tokio::runtime::Runtime,
    _connection: Connection,
}

impl Rabbit {
    fn from_environment() -> Option<Self> {
        let url = server("RELAIS_TEST_RABBITMQ")?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let opening = async {
            let connection = Connection::connect(&url, ConnectionProperties::default()).await?;
            let channel = connection.create_channel().await?;
            lapin::Result::Ok((connection, channel))
        };
        let (connection, channel) = runtime.block_on(opening).unwrap();
        let suffix = Uuid::new_v4().simple().to_string();
        Some(Self { url, suffix, channel, runtime, _connection: connection })
    }

    /// The two programs of the page, with queues of the test's own.
    fn example(&self) -> OrderReply {
        let (commands, replies) = (self.name("payments"), self.name("shop.replies"));
        for queue in [&commands, &replies] {
            let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
            let declaring =
                self.channel.queue_declare(queue.as_str().into(), options, FieldTable::default());
            self.runtime.block_on(declaring).unwrap();
        }
        let quoted = |name: &str| format!("\"{name}\"");
        OrderReply::of_page(
            "rabbitmq.md",
            &[
                ("amqp://guest:guest@127.0.0.1:5672/%2f", &self.url),
                ("queue = \"payments\"", &format!("queue = {}", quoted(&commands))),
                ("routing_key = \"payments\"", &format!("routing_key = {}", quoted(&commands))),
                ("\"shop.replies\"", &quoted(&replies)),
            ],
        )
    }

    fn name(&self, name: &str) -> String {
        format!("{name}-{}", self.suffix)
    }

    /// Sends a command as a program without relais does.
    fn command(&self, id: &str, reply_to: Option<&str>) {
        let mut properties =
            BasicProperties::default().with_message_id(id.into()).with_type("TakePayment".into());
        if let Some(queue) = reply_to {
            properties = properties.with_reply_to(queue.into());
        }
        let (queue, body) = (self.name("payments"), format!("{{\"order\":\"{id}\",\"cents\":1}}"));
        let options = BasicPublishOptions::default();
        let sending = self.channel.basic_publish(
            "".into(),
            queue.as_str().into(),
            options,
            body.as_bytes(),
            properties,
        );
        self.runtime.block_on(sending).unwrap();
    }
}

#[test]
fn a_process_gets_the_reply_to_its_command_over_rabbitmq() {
    let Some(rabbit) = Rabbit::from_environment() else { return };
    rabbit.example().proves_itself();
}

#[test]
fn replies_that_cannot_be_delivered_are_dead_letters_and_stop_no_other_reply() {
    let Some(rabbit) = Rabbit::from_environment() else { return };
    let example = rabbit.example();
    let [shop, service] = example.run();
    // More keys than would stop another destination.
    for number in 0..12 {
        rabbit.command(&format!("lost-{number}"), Some("missing"));
    }
    rabbit.command("without", None);
    example.order(&shop, "o-1");
    let letters = || example.service.json(&["dead-letter", "list"]);
    let started = std::time::Instant::now();
    while letters().as_array().unwrap().len() < 13 {
        assert!(started.elapsed().as_secs() < 60, "{:#}", letters());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let letters = letters();
    let count = |code: &str| {
        letters.as_array().unwrap().iter().filter(|one| one["error_class"] == code).count()
    };
    assert_eq!((count("RABBITMQ_UNROUTABLE"), count("RABBITMQ_ADDRESS")), (12, 1), "{letters:#}");
    for running in [shop, service] {
        assert_eq!(running.stop().code, 0);
    }
}

#[test]
fn a_process_gets_the_reply_to_its_command_over_amqp() {
    let Some(url) = server("RELAIS_TEST_ARTEMIS") else { return };
    let suffix = Uuid::new_v4().simple().to_string();
    let (commands, replies) = (format!("\"payments-{suffix}\""), format!("\"replies-{suffix}\""));
    OrderReply::of_page(
        "amqp.md",
        &[
            ("amqp://guest:guest@127.0.0.1:5672", &url),
            ("address = \"payments\"", &format!("address = {commands}")),
            ("\"shop-replies\"", &replies),
        ],
    )
    .proves_itself();
}
