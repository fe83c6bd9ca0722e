//! The example for AMQP 1.0, with both brokers of the tests.

use fe2o3_amqp::{Connection, Receiver, Sender, Session};
use fe2o3_amqp_types::{
    messaging::{Batch, Body, Data, Message, MessageId, Properties},
    primitives::{Binary, Value},
};
use uuid::Uuid;

use crate::example::{BODY, EVENT_TYPE, Example, end, runtime, server, with_wrong_password};

const URL: &str = "amqp://guest:guest@127.0.0.1:5672";

/// Returns the message that the examples for AMQP expect.
pub(crate) fn order() -> Message<Body<Value>> {
    Message {
        header: None,
        delivery_annotations: None,
        message_annotations: None,
        properties: Some(Properties {
            message_id: Some(MessageId::String("m-1".to_owned())),
            subject: Some(EVENT_TYPE.to_owned()),
            ..Properties::default()
        }),
        application_properties: None,
        body: Body::Data(Batch::new(vec![Data(Binary::from(BODY.as_bytes().to_vec()))])),
        footer: None,
    }
}

/// Returns the bytes of a message.
pub(crate) fn bytes(message: &Message<Body<Value>>) -> Vec<u8> {
    let Body::Data(data) = &message.body else { panic!("{:?}", message.body) };
    data.iter().flat_map(|one| one.0.to_vec()).collect()
}

async fn send(url: &str, address: &str) {
    let mut connection = Connection::open("test-sender", url).await.unwrap();
    let mut session = Session::begin(&mut connection).await.unwrap();
    let mut sender = Sender::attach(&mut session, "test", address).await.unwrap();
    assert!(sender.send(order()).await.unwrap().is_accepted());
    sender.close().await.unwrap();
    session.end().await.unwrap();
    connection.close().await.unwrap();
}

async fn take(url: &str, address: &str) -> Message<Body<Value>> {
    let mut connection = Connection::open("test-receiver", url).await.unwrap();
    let mut session = Session::begin(&mut connection).await.unwrap();
    let mut receiver = Receiver::attach(&mut session, "test", address).await.unwrap();
    let delivery = receiver.recv::<Body<Value>>().await.unwrap();
    receiver.accept(&delivery).await.unwrap();
    receiver.close().await.unwrap();
    session.end().await.unwrap();
    connection.close().await.unwrap();
    delivery.into_message()
}

fn example(url: &str, from: &str, to: &str) -> Example {
    Example::of_page(
        "amqp.md",
        &[
            (URL, url),
            ("address = \"orders\"", &format!("address = \"{from}\"")),
            ("address = \"accepted-orders\"", &format!("address = \"{to}\"")),
        ],
    )
}

/// Both brokers create the queues of the example.
fn delivers(variable: &str) {
    let Some(url) = server(variable) else { return };
    let suffix = Uuid::new_v4().simple().to_string();
    // Qpid creates queues of such names.
    let name = |what: &str| format!("test-{what}-{suffix}.OrderCreated");
    let (from, to) = (name("orders"), name("accepted"));
    let (site, running) = example(&url, &from, &to).run();
    let runtime = runtime();
    runtime.block_on(send(&url, &from));
    let taking = async { tokio::time::timeout(crate::LONG, take(&url, &to)).await };
    let message = runtime.block_on(taking).expect("it is delivered");
    assert_eq!(bytes(&message), BODY.as_bytes());
    end(&site, running);
}

#[test]
fn the_example_for_amqp_delivers_a_message_over_artemis() {
    delivers("RELAIS_TEST_ARTEMIS");
}

#[test]
fn the_example_for_amqp_delivers_a_message_over_qpid() {
    delivers("RELAIS_TEST_QPID");
}

#[test]
fn a_missing_queue_and_a_wrong_login_over_amqp_are_found_before_the_start() {
    // Addresses that the brokers of the tests do not create.
    for (variable, missing) in
        [("RELAIS_TEST_ARTEMIS", "missing.orders"), ("RELAIS_TEST_QPID", "missing-orders")]
    {
        let Some(url) = server(variable) else { return };
        let example = example(&url, missing, missing);
        for setting in ["source[orders].url", "destination[accepted-orders].url"] {
            example.fails(setting, &["the address does not exist; create it"]);
            let wrong = example.with(&url, &with_wrong_password(&url));
            wrong.fails(setting, &["refuses the login; check user and password in `url`"]);
        }
    }
}
