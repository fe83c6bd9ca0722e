//! From one topic, by a route, to another: every record arrives, in the order of its key.

use rdkafka::Message;

use crate::{broker::Broker, harness::CrashHarness};

const RECORDS: [&str; 4] = ["m-0", "m-1", "m-2", "m-3"];

pub(crate) fn in_and_out(harness: &mut CrashHarness) {
    let broker = Broker::from_environment().expect("it was asked for");
    let (from, to) = (broker.topic("points-in", 1), broker.topic("points-out", 1));
    // A dead process is noticed after two seconds instead of 45.
    harness.settings(&format!(
        "[[source]]\nname = \"records\"\nkind = \"kafka\"\nbrokers = \"{brokers}\"\n\
         group = \"{group}\"\ntopics = [\"{group}\"]\nmessage_id = \"header:message-id\"\n\
         aggregate_id = \"key\"\n\
         [source.options]\nsession.timeout.ms = 2000\nheartbeat.interval.ms = 500\n\
         [[route]]\non = \"Placed\"\naggregate_type = \"Order\"\ndestination = \"out\"\n\
         [[destination]]\nname = \"out\"\nkind = \"kafka\"\nbrokers = \"{brokers}\"\n\
         topic = \"{topic}\"\n",
        brokers = broker.address,
        group = from.name,
        topic = to.name,
    ));
    for id in RECORDS {
        let body = format!("{{\"type\":\"Placed\",\"id\":\"{id}\"}}");
        from.send("a", &[("message-id", id)], Some(body.as_bytes()));
    }
    let processed = "SELECT status FROM relais_inbox WHERE status = 'PROCESSED'";
    harness.until("it runs", |harness| harness.said().contains("\"message\":\"running\""));
    harness.until("all are taken", |harness| harness.base.texts(processed).len() == RECORDS.len());
    harness.drain();
    harness.until("the lag is zero", |_| from.committed(&from.name) == from.ends());
    harness.finish();

    let copies = usize::try_from(to.ends()[0]).unwrap();
    assert!(copies <= (1 + harness.crashes) * RECORDS.len(), "{copies} records");
    let mut firsts: Vec<String> = Vec::new();
    for record in to.read(copies) {
        let body: serde_json::Value = serde_json::from_slice(record.payload().unwrap()).unwrap();
        let id = body["id"].as_str().unwrap().to_owned();
        if !firsts.contains(&id) {
            firsts.push(id);
        }
    }
    assert_eq!(firsts, RECORDS, "all of them, in the order of the key");
    assert_eq!(harness.base.texts("SELECT status FROM relais_inbox").len(), RECORDS.len());
    let stored = "SELECT CAST(position AS TEXT) FROM relais_source_position";
    let stored = harness.base.texts(stored);
    assert!(stored.contains(&RECORDS.len().to_string()), "{stored:?}");
}
