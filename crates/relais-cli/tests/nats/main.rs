//! The program with NATS on both sides, from the outside.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

#[path = "../support/order_reply.rs"]
mod order_reply;
mod server;
// Some helpers are made for other tests of the program.
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;

use order_reply::OrderReply;
use serde_json::Value;
use server::{Server, wait_until};
use support::{Site, postgres::PostgresSchema};

fn settings(server: &Server) -> String {
    let url = server.url();
    format!(
        "[[source]]\nname = \"orders\"\nkind = \"nats\"\nurl = \"{url}\"\nstream = \"ORDERS\"\n\
         consumer = \"relais\"\nack_wait = \"2s\"\nevent_type = \"header:event-type\"\n\
         aggregate_id = \"key\"\n\
         [[route]]\non = \"OrderPlaced\"\naggregate_type = \"Order\"\ndestination = \"billing\"\n\
         [[destination]]\nname = \"billing\"\nkind = \"nats\"\nurl = \"{url}\"\n\
         subject = \"billing.{{{{event_type}}}}\"\nenvelope = \"cloudevents\"\n"
    )
}

fn header(head: &str, name: &str) -> String {
    let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.unwrap_or_default().to_owned()
}

#[test]
fn a_message_becomes_a_row_and_the_row_a_message() {
    let Some(server) = Server::from_environment() else { return };
    let site = Site::with(&settings(&server));
    let said = site.relais(&["check", "--connect"]);
    assert_ne!(said.code, 0, "{said:?}");
    assert!(format!("{said:?}").contains("the stream does not exist"), "{said:?}");
    server.create_stream("ORDERS", "orders.>");
    server.create_stream("BILLING", "billing.>");
    let said = site.relais(&["check", "--connect"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(!format!("{said:?}").contains("CANARY"), "{said:?}");

    let running = site.run();
    let body = br#"{"orderId": "7",  "n": 9007199254740993}"#;
    let of = |id: &'static str| {
        [("event-type", "OrderPlaced"), ("message-key", "7"), ("id", id), ("traceparent", "00-abc")]
    };
    // The stream recognises the id in `Nats-Msg-Id`, so both of these arrive.
    server.send("orders.eu", &of("first"), body);
    server.send("orders.eu", &[("Nats-Msg-Id", "m-2"), of("")[0], of("")[1]], body);
    server.send("orders.eu", &[("Nats-Msg-Id", "m-3"), of("")[1]], b"{oops");
    wait_until("both are delivered", || server.messages("BILLING") == 2);
    wait_until("all are acknowledged", || server.open_messages("ORDERS", "relais") == (0, 0));
    let said = running.stop();
    assert_eq!(said.code, 0, "{said:?}");

    let (head, sent) = server.message("BILLING", 1);
    assert_eq!(sent, body);
    assert_eq!(header(&head, "traceparent"), "00-abc");
    assert_eq!(header(&head, "ce-type"), "OrderPlaced");
    assert_eq!(header(&head, "message-key"), "7");
    assert_eq!(header(&head, "ce-id"), header(&head, "Nats-Msg-Id"));
    assert!(header(&head, "causation-id").starts_with("ORDERS:1:"), "{head}");
    let (head, _) = server.message("BILLING", 2);
    assert_eq!(header(&head, "causation-id"), "m-2");

    let rows = site.json(&["inbox", "list"]);
    let statuses: Vec<_> =
        rows.as_array().unwrap().iter().rev().map(|row| &row["status"]).collect();
    assert_eq!(statuses, ["PROCESSED", "PROCESSED", "SERDE_ERROR"], "{rows:#}");
    assert_eq!((&rows[1]["topic"], &rows[1]["msg_key"]), (&"ORDERS".into(), &"7".into()));
}

#[test]
fn a_file_of_init_moves_messages_from_stream_to_stream() {
    let Some(server) = Server::from_environment() else { return };
    server.create_stream("ORDERS", "orders.>");
    server.create_stream("OUT", "orders-out.>");
    let site = Site::new();
    let said = site.relais(&["init", "--from", "nats", "--to", "nats"]);
    assert_eq!(said.code, 0, "{said:?}");
    let written = std::fs::read_to_string(site.path("relais.toml")).unwrap();
    let changed = written
        .replace("nats://127.0.0.1:4222", &server.url())
        .replace("127.0.0.1:7070", "127.0.0.1:0");
    site.write("relais.toml", &changed);
    let said = site.relais(&["check", "--connect"]);
    assert_eq!(said.code, 0, "{said:?}");
    let running = site.run();
    let body = br#"{"type":"OrderPlaced","orderId":"o-1"}"#;
    server.send("orders.eu", &[], body);
    wait_until("it is delivered", || server.messages("OUT") == 1);
    let (head, sent) = server.message("OUT", 1);
    assert_eq!(sent, body);
    assert_eq!(header(&head, "message-key"), "o-1", "the aggregate");
    assert_eq!(running.stop().code, 0);
}

#[test]
fn everything_arrives_once_and_in_order_through_killed_servers() {
    const KEYS: u32 = 5;
    const MESSAGES: u32 = 200;
    let Some(mut server) = Server::from_environment() else { return };
    server.create_stream("ORDERS", "orders.>");
    server.create_stream("BILLING", "billing.>");
    let site = Site::with(&settings(&server));
    let running = site.run();
    for number in 0..MESSAGES {
        let (id, key) = (format!("m-{number}"), format!("k-{}", number % KEYS));
        let headers =
            [("Nats-Msg-Id", id.as_str()), ("event-type", "OrderPlaced"), ("message-key", &key)];
        server.send("orders.eu", &headers, format!("{{\"n\": {number}}}").as_bytes());
        if number % 60 == 59 {
            server.restart();
        }
    }
    wait_until("all are delivered", || server.messages("BILLING") >= u64::from(MESSAGES));
    wait_until("all are acknowledged", || server.open_messages("ORDERS", "relais") == (0, 0));
    let said = running.stop();
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(server.messages("BILLING"), u64::from(MESSAGES), "each once");
    let mut by_key: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for sequence in 1..=u64::from(MESSAGES) {
        let (head, _) = server.message("BILLING", sequence);
        let id = header(&head, "causation-id");
        let number = id.strip_prefix("m-").unwrap().parse().unwrap();
        by_key.entry(header(&head, "message-key")).or_default().push(number);
    }
    for (key, numbers) in by_key {
        assert!(numbers.is_sorted(), "{key}: {numbers:?}");
    }
}

/// Sends messages of 20 keys to a destination without a stream, and creates the stream once the destination
/// pauses. Returns the dead letters after `delivered` messages have arrived.
fn dead_letters_without_a_stream(server: &Server, settings: &str, delivered: u64) -> Vec<Value> {
    server.create_stream("ORDERS", "orders.>");
    let site = Site::with(settings);
    let mut running = site.run();
    for number in 0..20 {
        let (id, key) = (format!("m-{number}"), format!("k-{number}"));
        let headers =
            [("Nats-Msg-Id", id.as_str()), ("event-type", "OrderPlaced"), ("message-key", &key)];
        server.send("orders.eu", &headers, b"{}");
    }
    wait_until("all are acknowledged", || server.open_messages("ORDERS", "relais") == (0, 0));
    running.wait_for("\"cause\":\"configuration\"");
    server.create_stream("BILLING", "billing.>");
    wait_until("they are delivered", || server.messages("BILLING") >= delivered);
    let said = running.stop();
    assert_eq!(said.code, 0, "{said:?}");
    site.json(&["dead-letter", "list"]).as_array().unwrap().clone()
}

#[test]
fn a_fixed_subject_without_a_stream_pauses_the_destination_and_makes_no_dead_letter() {
    let fixed =
        |server: &Server| settings(server).replace("billing.{{event_type}}", "billing.orders");
    let Some(server) = Server::from_environment() else { return };
    let dead = dead_letters_without_a_stream(&server, &fixed(&server), 20);
    assert_eq!(dead, [] as [Value; 0]);
    let Some(schema) = PostgresSchema::new() else { return };
    let Some(server) = Server::from_environment() else { return };
    let settings = format!("[store]\nurl = \"{}\"\n{}", schema.url, fixed(&server));
    let dead = dead_letters_without_a_stream(&server, &settings, 20);
    assert_eq!(dead, [] as [Value; 0]);
}

#[test]
fn subjects_by_template_without_a_stream_pause_the_destination_after_five_dead_letters() {
    let Some(server) = Server::from_environment() else { return };
    let dead = dead_letters_without_a_stream(&server, &settings(&server), 15);
    assert!(dead.len() <= 5, "{dead:#?}");
    for letter in dead {
        assert_eq!(letter["error_class"], "NATS_UNROUTABLE", "{letter:#}");
    }
}

#[test]
fn a_process_gets_the_reply_to_its_command() {
    let Some(server) = Server::from_environment() else { return };
    server.create_stream("PAYMENTS", "payments.>");
    server.create_stream("REPLIES", "replies.>");
    let replaced = [("nats://127.0.0.1:4222", server.url())];
    OrderReply::of_page("nats.md", &replaced.each_ref().map(|(from, to)| (*from, to.as_str())))
        .proves_itself();
}
