//! The program with Kafka on both sides, from the outside.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

#[path = "support/broker.rs"]
mod broker;
// Some helpers are made for other tests of the program.
#[allow(dead_code)]
mod support;

use std::{
    thread,
    time::{Duration, Instant},
};

use rdkafka::Message;

use broker::{Broker, header};
use support::{Site, postgres::PostgresSchema};

const PATIENCE: Duration = Duration::from_secs(60);

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < PATIENCE, "{what}: not in time");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_record_becomes_a_row_and_the_row_a_record() {
    let Some(broker) = Broker::from_environment() else { return };
    let (from, to) = (broker.topic("in", 2), broker.topic("out", 1));
    let site = Site::with(&format!(
        "[[source]]\nname = \"members\"\nkind = \"kafka\"\nbrokers = \"{brokers}\"\n\
         group = \"{group}\"\ntopics = [\"{group}\"]\nmessage_id = \"header:message-id\"\n\
         aggregate_id = \"key\"\n\
         [[route]]\non = \"MembersCreated\"\naggregate_type = \"Family\"\ndestination = \"out\"\n\
         [[route]]\non = \"tombstone\"\naggregate_type = \"Family\"\ndestination = \"out\"\n\
         [[destination]]\nname = \"out\"\nkind = \"kafka\"\nbrokers = \"{brokers}\"\n\
         topic = \"{topic}\"\ncloudevents = true\n",
        brokers = broker.address,
        group = from.name,
        topic = to.name,
    ));
    let body = br#"{"type": "MembersCreated",  "n": 9007199254740993}"#;
    from.send("f-1", &[("message-id", "m-1"), ("traceparent", "00-abc")], Some(body));
    from.send("f-1", &[("message-id", "m-1"), ("traceparent", "00-abc")], Some(body));
    from.send("f-1", &[], Some(b"{oops"));
    from.send("f-1", &[("message-id", "m-2")], None);

    let running = site.run();
    let records = to.read(2);
    assert_eq!(records[0].key(), Some(&b"f-1"[..]));
    assert_eq!(records[0].payload(), Some(&body[..]));
    assert_eq!(header(&records[0], "event-type").as_deref(), Some("MembersCreated"));
    assert_eq!(header(&records[0], "traceparent").as_deref(), Some("00-abc"));
    assert_eq!(header(&records[0], "causation-id").as_deref(), Some("m-1"));
    assert_eq!(header(&records[0], "ce_type").as_deref(), Some("MembersCreated"));
    assert_eq!(header(&records[1], "event-type").as_deref(), Some("tombstone"));
    assert_eq!(records[1].payload(), None, "a tombstone stays one");
    wait_until("the group's lag is zero", || from.committed(&from.name) == from.ends());
    let said = running.stop();
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(to.ends(), [2], "a duplicate or garbage was sent on");

    let rows = site.json(&["inbox", "list"]);
    let statuses: Vec<_> =
        rows.as_array().unwrap().iter().rev().map(|row| &row["status"]).collect();
    assert_eq!(statuses, ["PROCESSED", "SERDE_ERROR", "PROCESSED"], "{rows:#}");
    assert_eq!(rows[2]["message_id"], "m-1");
    assert_eq!(
        (&rows[2]["topic"], &rows[2]["msg_key"]),
        (&from.name.as_str().into(), &"f-1".into())
    );
}

#[test]
fn a_file_of_init_moves_records_from_topic_to_topic() {
    let Some(broker) = Broker::from_environment() else { return };
    let (from, to) = (broker.topic("in", 1), broker.topic("out", 1));
    let site = Site::new();
    let said = site.relais(&["init", "--from", "kafka", "--to", "kafka"]);
    assert_eq!(said.code, 0, "{said:?}");
    let written = std::fs::read_to_string(site.path("relais.toml")).unwrap();
    let changed = written
        .replace("127.0.0.1:9092", &broker.address)
        .replace("127.0.0.1:7070", "127.0.0.1:0")
        .replace("group = \"relais\"", &format!("group = \"{}\"", from.name))
        .replace("[\"orders\"]", &format!("[\"{}\"]", from.name))
        .replace("topic = \"orders-out\"", &format!("topic = \"{}\"", to.name));
    site.write("relais.toml", &changed);
    let said = site.relais(&["check", "--connect"]);
    assert_eq!(said.code, 0, "{said:?}");
    let body = br#"{"type":"OrderPlaced","orderId":"o-1"}"#;
    from.send("k", &[], Some(body));
    let running = site.run();
    let records = to.read(1);
    assert_eq!(records[0].payload(), Some(&body[..]));
    assert_eq!(records[0].key(), Some(&b"o-1"[..]), "the aggregate");
    assert_eq!(running.stop().code, 0);
}

#[test]
fn messages_to_a_topic_that_does_not_exist_yet_wait_and_those_to_other_topics_are_delivered() {
    waits_for_the_topic("sqlite:relais.db");
    if let Some(schema) = PostgresSchema::new() {
        waits_for_the_topic(&schema.url);
    }
}

fn waits_for_the_topic(store: &str) {
    const EARLY: usize = 8;
    let Some(broker) = Broker::from_environment() else { return };
    let (from, known) = (broker.topic("in", 1), broker.topic("Known", 1));
    let site = Site::with(&format!(
        "[store]\nurl = \"{store}\"\n\
         [[source]]\nname = \"members\"\nkind = \"kafka\"\nbrokers = \"{brokers}\"\n\
         group = \"{group}\"\ntopics = [\"{group}\"]\nmessage_id = \"header:message-id\"\n\
         event_type = \"header:type\"\naggregate_id = \"key\"\n\
         [[route]]\non = \"Known\"\ndestination = \"out\"\n\
         [[route]]\non = \"Early\"\ndestination = \"out\"\n\
         [[destination]]\nname = \"out\"\nkind = \"kafka\"\nbrokers = \"{brokers}\"\n\
         topic = \"{known}{{{{payload:/end}}}}\"\n[destination.retry]\nattempts = 1\n",
        brokers = broker.address,
        group = from.name,
        known = known.name,
    ));
    let send = |kind: &str, number: usize| {
        let headers = [("message-id", &*format!("{kind}-{number}")), ("type", kind)];
        let key = format!("{kind}-{}", number % 4);
        from.send(&key, &headers, Some(body_of(kind, number).as_bytes()));
    };
    for number in 0..EARLY {
        send("Early", number);
    }
    let running = site.run();
    // The first message of each key.
    wait_until("they have failed", || {
        let rows = site.json(&["outbox", "list"]);
        let failed = |row: &&serde_json::Value| row["error_code"] == "KAFKA_UNKNOWN_TOPIC";
        rows.as_array().unwrap().iter().filter(failed).count() >= 4
    });
    for number in 0..EARLY {
        send("Known", number);
    }
    assert_eq!(known.read(EARLY).len(), EARLY, "other topics continue");
    assert_eq!(site.json(&["dead-letter", "list"]), serde_json::json!([]));
    let early = broker.topic_named(&format!("{}-early", known.name), 1);
    let records = early.read(EARLY);
    for key in 0..4 {
        let of_key = |record: &&rdkafka::message::OwnedMessage| {
            record.key() == Some(format!("Early-{key}").as_bytes())
        };
        let bodies: Vec<_> = records.iter().filter(of_key).map(|r| r.payload().unwrap()).collect();
        let [first, second] = [key, key + 4].map(|number| body_of("Early", number));
        assert_eq!(bodies, [first.as_bytes(), second.as_bytes()], "in order, each once");
    }
    let said = running.stop();
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(site.json(&["dead-letter", "list"]), serde_json::json!([]));
}

fn body_of(kind: &str, number: usize) -> String {
    let end = if kind == "Early" { "-early" } else { "" };
    format!("{{\"number\":{number},\"end\":\"{end}\"}}")
}

#[test]
fn a_record_that_could_not_be_read_is_repaired_and_sent_on() {
    let Some(broker) = Broker::from_environment() else { return };
    let (from, to) = (broker.topic("framed", 1), broker.topic("out", 1));
    let settings = |decoder: &str| {
        format!(
            "[[source]]\nname = \"members\"\nkind = \"kafka\"\nbrokers = \"{brokers}\"\n\
             group = \"{group}\"\ntopics = [\"{group}\"]\ndecoder = \"{decoder}\"\n\
             message_id = \"payload:/id\"\naggregate_id = \"key\"\n\
             [[route]]\non = \"MembersCreated\"\naggregate_type = \"Family\"\n\
             destination = \"out\"\n\
             [[destination]]\nname = \"out\"\nkind = \"kafka\"\nbrokers = \"{brokers}\"\n\
             topic = \"{topic}\"\n",
            brokers = broker.address,
            group = from.name,
            topic = to.name,
        )
    };
    let site = Site::with(&settings("json"));
    let json = br#"{"id": "m-1", "type": "MembersCreated"}"#;
    from.send("f-1", &[], Some(&[&[0, 0, 0, 0, 7], &json[..]].concat()));
    let running = site.run();
    wait_until("the group's lag is zero", || from.committed(&from.name) == from.ends());
    assert_eq!(site.json(&["inbox", "list"])[0]["status"], "SERDE_ERROR");

    // The running program delivers reprocessed messages.
    site.write("relais.toml", &settings("confluent-json"));
    let said = site.relais(&["reprocess", "--yes", "--reason", "values have a schema number"]);
    assert_eq!(said.code, 0, "{said:?}");
    let records = to.read(1);
    assert_eq!(records[0].payload(), Some(&json[..]));
    assert_eq!(header(&records[0], "causation-id").as_deref(), Some("m-1"));
    assert_eq!(running.stop().code, 0);
    let row = &site.json(&["inbox", "list"])[0];
    assert_eq!((&row["status"], &row["message_id"]), (&"PROCESSED".into(), &"m-1".into()));
    assert!(row["raw_payload_base64"].is_string(), "the original is kept: {row:#}");
}

/// Registers a schema at the real registry, and returns its URL and the id; nothing without a registry.
fn registered(subject: &str, schema: &serde_json::Value) -> Option<(String, u32)> {
    let Ok(url) = std::env::var("RELAIS_TEST_REGISTRY") else {
        assert!(std::env::var_os("CI").is_none(), "RELAIS_TEST_REGISTRY is not set");
        eprintln!("NOT TESTED: the schema registry; set RELAIS_TEST_REGISTRY to its URL");
        return None;
    };
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let path = format!("/{path}/subjects/{subject}/versions");
    let body = serde_json::json!({"schema": schema.to_string()}).to_string();
    let headers = [("content-type", "application/vnd.schemaregistry.v1+json")];
    let (status, answer) = support::post(address.parse().unwrap(), &path, &headers, &body);
    assert_eq!(status, 200, "{answer}");
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    Some((url, answer["id"].as_u64().unwrap().try_into().unwrap()))
}

#[test]
fn avro_is_reprocessed_and_written_with_the_registry() {
    let Some(broker) = Broker::from_environment() else { return };
    let (from, to) = (broker.topic("avro", 1), broker.topic("out", 1));
    let subject = format!("{}-value", from.name);
    let schema = serde_json::json!({"type": "record", "name": "Member", "fields": [
        {"name": "id", "type": "string"}, {"name": "type", "type": "string"},
        {"name": "n", "type": "long"}]});
    let Some((registry, id)) = registered(&subject, &schema) else { return };
    let settings = |decoder: &str| {
        format!(
            "[[source]]\nname = \"members\"\nkind = \"kafka\"\nbrokers = \"{brokers}\"\n\
             group = \"{group}\"\ntopics = [\"{group}\"]\n{decoder}\
             message_id = \"payload:/id\"\naggregate_id = \"key\"\n\
             [[route]]\non = \"Joined\"\naggregate_type = \"Family\"\ndestination = \"out\"\n\
             [[destination]]\nname = \"out\"\nkind = \"kafka\"\nbrokers = \"{brokers}\"\n\
             topic = \"{topic}\"\nencoder = \"confluent-avro\"\nregistry_url = \"{registry}\"\n\
             subject = \"{subject}\"\n",
            brokers = broker.address,
            group = from.name,
            topic = to.name,
        )
    };
    let site = Site::with(&settings(""));
    // 2^53 + 1, which JavaScript does not have.
    let value =
        [b"\x06m-1\x0cJoined", &[0x82, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20][..]].concat();
    let record = [&[0], &id.to_be_bytes()[..], &value].concat();
    from.send("f-1", &[], Some(&record));
    let running = site.run();
    wait_until("the group's lag is zero", || from.committed(&from.name) == from.ends());
    assert_eq!(site.json(&["inbox", "list"])[0]["status"], "SERDE_ERROR");

    let decoder = format!("decoder = \"confluent-avro\"\nregistry_url = \"{registry}\"\n");
    site.write("relais.toml", &settings(&decoder));
    let said = site.relais(&["check", "--connect"]);
    assert_eq!(said.code, 0, "{said:?}");
    for setting in ["source[members].registry_url", "destination[out].registry_url"] {
        assert!(said.out.contains(setting), "{setting}: {said:?}");
    }
    let said = site.relais(&["reprocess", "--yes", "--reason", "values are Avro"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(to.read(1)[0].payload(), Some(&record[..]), "as it came");
    assert_eq!(running.stop().code, 0);
    let row = &site.json(&["inbox", "list"])[0];
    assert_eq!((&row["status"], &row["message_id"]), (&"PROCESSED".into(), &"m-1".into()));
    assert_eq!(row["payload"], r#"{"id":"m-1","type":"Joined","n":9007199254740993}"#);
}

#[test]
fn options_are_named_and_their_values_never_shown() {
    let site = Site::with(
        "[[source]]\nname = \"members\"\nkind = \"kafka\"\nbrokers = \"127.0.0.1:1\"\n\
         topics = [\"t\"]\n[source.options]\nsasl.password = \"CANARY\"\n\
         [[route]]\non = \"A\"\ndestination = \"out\"\n\
         [[destination]]\nname = \"out\"\nkind = \"kafka\"\nbrokers = \"127.0.0.1:1\"\n\
         [destination.options]\nssl.key.password = \"CANARY\"\n",
    );
    let said = site.relais(&["check"]);
    assert_eq!(said.code, 0, "{said:?}");
    for words in ["topic t at 127.0.0.1:1, group `relais`", "sasl.password", "ssl.key.password"] {
        assert!(said.out.contains(words), "{words}: {said:?}");
    }
    let mut shown = format!("{said:?}");
    // A missing broker is an outage, not an error: the program starts, waits, and ends on a signal.
    let said = site.run().stop();
    assert_eq!(said.code, 0, "{said:?}");
    shown += &format!("{said:?} {:?}", site.relais(&["check", "--json"]));
    assert!(!shown.contains("CANARY"), "{shown}");
}

#[test]
fn an_option_that_breaks_a_promise_is_refused_with_its_line() {
    let site = Site::with(
        "[[source]]\nname = \"members\"\nkind = \"kafka\"\nbrokers = \"k\"\ntopics = [\"t\"]\n\
         options.enable.auto.commit = true\n[[route]]\non = \"A\"\ndestination = \"b\"\n\
         [[destination]]\nname = \"b\"\nkind = \"log\"\n",
    );
    let said = site.relais(&["run"]);
    assert_eq!(said.code, 2, "{said:?}");
    let place = "relais.toml:6:30: source[members].options.enable.auto.commit";
    assert!(said.err.contains(place), "{said:?}");
}

/// The lag of the only source, as the console shows it.
fn shown_lag(running: &support::Running) -> serde_json::Value {
    let (_, body) = support::get(running.logged("admin http://"), "/api/v1/overview");
    let overview: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    overview["sources"][0]["lag"].clone()
}

#[test]
fn a_paused_source_stays_in_its_group_and_everything_comes_once_after_the_pause() {
    let Some(broker) = Broker::from_environment() else { return };
    let (from, to) = (broker.topic("paused", 2), broker.topic("out", 1));
    // A member that does not poll for 6 s is dropped from its group.
    let site = Site::with(&format!(
        "[admin]\nlisten = \"127.0.0.1:0\"\n\
         [[source]]\nname = \"members\"\nkind = \"kafka\"\nbrokers = \"{brokers}\"\n\
         group = \"{group}\"\ntopics = [\"{group}\"]\nmessage_id = \"header:message-id\"\n\
         aggregate_id = \"key\"\noptions.max.poll.interval.ms = \"6000\"\n\
         options.session.timeout.ms = \"6000\"\n\
         [[route]]\non = \"MembersCreated\"\naggregate_type = \"Family\"\ndestination = \"out\"\n\
         [[destination]]\nname = \"out\"\nkind = \"kafka\"\nbrokers = \"{brokers}\"\n\
         topic = \"{topic}\"\n",
        brokers = broker.address,
        group = from.name,
        topic = to.name,
    ));
    let send = |numbers: std::ops::Range<u32>| {
        for number in numbers {
            let (key, id) = (format!("f-{}", number % 7), format!("m-{number}"));
            from.send(&key, &[("message-id", &id)], Some(br#"{"type": "MembersCreated"}"#));
        }
    };
    send(0..10);
    let mut running = site.run();
    wait_until("the first records are through", || to.ends() == [10]);
    wait_until("the group's lag is zero", || from.committed(&from.name) == from.ends());
    let before = from.committed(&from.name);
    let said = site.relais(&["source", "pause", "members", "--reason", "a test"]);
    assert_eq!(said.code, 0, "{said:?}");
    running.wait_for("paused by an operator");

    send(10..30);
    wait_until("the console shows the lag", || shown_lag(&running) == 20);
    let paused = Instant::now();
    send(30..50);
    wait_until("the lag grows", || shown_lag(&running) == 40);
    // Longer than a member may go without a poll.
    wait_until("a long pause", || paused.elapsed() > Duration::from_secs(10));
    assert_eq!(from.committed(&from.name), before, "nothing is committed");
    assert_eq!(to.ends(), [10], "nothing is read");
    assert_eq!(site.json(&["inbox", "list"]).as_array().unwrap().len(), 10);

    let said = site.relais(&["source", "resume", "members", "--reason", "a test"]);
    assert_eq!(said.code, 0, "{said:?}");
    wait_until("everything is through", || to.ends() == [50]);
    wait_until("the group's lag is zero", || from.committed(&from.name) == from.ends());
    let said = running.stop();
    assert_eq!(said.code, 0, "{said:?}");
    let given = said.err.matches("partitions assigned").count();
    assert_eq!(given, 1, "a rebalance during the pause: {}", said.err);
    let mut ids: Vec<_> =
        to.read(50).iter().map(|record| header(record, "causation-id").unwrap()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), to.ends()), (50, vec![50]), "each once");
}

/// Each process knows only the lag of its own partitions.
#[test]
fn the_lag_is_that_of_all_processes_together() {
    let Some(broker) = Broker::from_environment() else { return };
    let from = broker.topic("lag", 2);
    let site = Site::with(&format!(
        "[admin]\nlisten = \"127.0.0.1:0\"\n\
         [[source]]\nname = \"members\"\nkind = \"kafka\"\nbrokers = \"{brokers}\"\n\
         group = \"{group}\"\ntopics = [\"{group}\"]\nmessage_id = \"header:message-id\"\n\
         [[route]]\non = \"MembersCreated\"\ndestination = \"out\"\n\
         [[destination]]\nname = \"out\"\nkind = \"log\"\npath = \"out.jsonl\"\n",
        brokers = broker.address,
        group = from.name,
    ));
    let send = |numbers: std::ops::Range<u32>| {
        for number in numbers {
            let (key, id) = (format!("f-{number}"), format!("m-{number}"));
            from.send(&key, &[("message-id", &id)], Some(br#"{"type": "MembersCreated"}"#));
        }
    };
    let own_lag = |running: &support::Running| {
        let (_, metrics) = support::get(running.logged("admin http://"), "/metrics");
        let mut lines = metrics.lines();
        let line = lines.find(|line| line.starts_with("relais_source_lag{"))?;
        line.rsplit(' ').next()?.parse::<u64>().ok()
    };
    let mut both = [site.run(), site.run()];
    send(0..20);
    wait_until("all are stored, half of them by each", || {
        from.committed(&from.name) == from.ends() && both.iter().all(|one| own_lag(one) == Some(0))
    });
    let said = site.relais(&["source", "pause", "members", "--reason", "a test"]);
    assert_eq!(said.code, 0, "{said:?}");
    both.iter_mut().for_each(|one| one.wait_for("paused by an operator"));
    send(20..60);
    for one in &both {
        wait_until("the lag of both", || shown_lag(one) == 40);
    }
    let own: Vec<u64> = both.iter().map(|one| own_lag(one).unwrap()).collect();
    assert!(own.iter().sum::<u64>() == 40 && own.iter().all(|lag| *lag > 0), "{own:?}");
}
