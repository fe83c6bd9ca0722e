//! The example for RabbitMQ.

use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{BasicGetOptions, BasicPublishOptions, QueueDeclareOptions},
    types::FieldTable,
};
use uuid::Uuid;

use crate::{
    example::{BODY, EVENT_TYPE, Example, end, runtime, server, with_wrong_password},
    server::wait_until,
};

const URL: &str = "amqp://guest:guest@127.0.0.1:5672/%2f";
const QUEUE: &str = "queue = \"orders\"";

struct Rabbit {
    channel: Channel,
    runtime: tokio::runtime::Runtime,
    _connection: Connection,
}

impl Rabbit {
    fn connect(url: &str) -> Self {
        let runtime = runtime();
        let opening = async {
            let connection = Connection::connect(url, ConnectionProperties::default()).await?;
            let channel = connection.create_channel().await?;
            lapin::Result::Ok((connection, channel))
        };
        let (connection, channel) = runtime.block_on(opening).unwrap();
        Self { channel, runtime, _connection: connection }
    }

    fn declare(&self, queue: &str) {
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let declaring = self.channel.queue_declare(queue.into(), options, FieldTable::default());
        self.runtime.block_on(declaring).unwrap();
    }

    fn send(&self, queue: &str) {
        let properties =
            BasicProperties::default().with_message_id("m-1".into()).with_type(EVENT_TYPE.into());
        let options = BasicPublishOptions::default();
        let sending = self.channel.basic_publish(
            "".into(),
            queue.into(),
            options,
            BODY.as_bytes(),
            properties,
        );
        self.runtime.block_on(sending).unwrap();
    }

    fn take(&self, queue: &str) -> Option<Vec<u8>> {
        let options = BasicGetOptions { no_ack: true };
        let getting = self.channel.basic_get(queue.into(), options);
        self.runtime.block_on(getting).unwrap().map(|message| message.delivery.data)
    }
}

#[test]
fn the_example_for_rabbitmq_delivers_a_message() {
    let Some(url) = server("RELAIS_TEST_RABBITMQ") else { return };
    let rabbit = Rabbit::connect(&url);
    let suffix = Uuid::new_v4().simple().to_string();
    let (from, to) = (format!("orders-{suffix}"), format!("accepted-{suffix}"));
    rabbit.declare(&from);
    rabbit.declare(&to);
    let example = Example::of_page(
        "rabbitmq.md",
        &[
            (URL, &url),
            (QUEUE, &format!("queue = \"{from}\"")),
            ("routing_key = \"accepted-orders\"", &format!("routing_key = \"{to}\"")),
        ],
    );
    let (site, running) = example.run();
    rabbit.send(&from);
    let mut taken = None;
    wait_until("it is delivered", || {
        taken = rabbit.take(&to);
        taken.is_some()
    });
    assert_eq!(taken.as_deref(), Some(BODY.as_bytes()));
    end(&site, running);
}

#[test]
fn a_missing_queue_and_a_wrong_login_to_rabbitmq_are_found_before_the_start() {
    let Some(url) = server("RELAIS_TEST_RABBITMQ") else { return };
    let missing = format!("missing-{}", Uuid::new_v4().simple());
    let queue = format!("queue = \"{missing}\"");
    let example = Example::of_page("rabbitmq.md", &[(URL, &url), (QUEUE, &queue)]);
    example.fails("source[orders].url", &["the queue does not exist; create it", &missing]);
    let exchange = example.with("exchange = \"\"", &format!("exchange = \"{missing}\""));
    exchange.fails(
        "destination[accepted-orders].url",
        &["the exchange does not exist; create it", &missing],
    );
    let wrong = example.with(&url, &with_wrong_password(&url));
    for setting in ["source[orders].url", "destination[accepted-orders].url"] {
        wrong.fails(setting, &["refuses the login; check user and password in `url`"]);
    }
}
