//! Values behind the id of a schema of a real registry.

use std::{fs, sync::Arc};

use rdkafka::Message;
use relais_connect::kafka::{
    KafkaEncoder, KafkaEncoding, KafkaPublisher, KafkaPublisherSettings, SchemaRegistry,
};
use relais_core::{delivery::Delivery, outbox::OutboxRow, publisher::Publisher};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    outgoing::{self, codes, problem, row},
    registry_server::{Gate, GateMode, Registry, framed},
};

struct Place {
    brokers: String,
    topic: String,
    registry: Registry,
}

impl Place {
    async fn new(what: &str) -> Option<Self> {
        let (registry, brokers) = (Registry::new(what)?, outgoing::broker(what)?);
        let topic = outgoing::topic(&brokers, 1, &[]).await;
        Some(Self { brokers, topic, registry })
    }

    fn subject(&self) -> String {
        format!("{}-value", self.topic)
    }

    fn publisher(&self, encoding: KafkaEncoding) -> KafkaPublisher {
        let settings = outgoing::settings(&self.brokers, &self.topic);
        let encoding = Some(encoding);
        KafkaPublisher::new(KafkaPublisherSettings { encoding, ..settings }).unwrap()
    }

    /// Returns the values in the topic.
    fn values(&self) -> Vec<Option<Vec<u8>>> {
        let records = outgoing::read(&self.brokers, &self.topic);
        records.iter().map(|record| record.payload().map(<[u8]>::to_vec)).collect()
    }
}

fn avro(registry: Arc<SchemaRegistry>) -> KafkaEncoding {
    KafkaEncoding::new(KafkaEncoder::ConfluentAvro, registry)
}

fn order(fields: Value) -> Value {
    json!({"type": "record", "name": "Order", "fields": fields})
}

fn with(id: i64, key: &str, payload: &str) -> OutboxRow {
    OutboxRow { payload: payload.to_owned(), ..row(id, key) }
}

#[tokio::test]
async fn payloads_are_written_by_the_newest_schema_of_the_subject() {
    let Some(place) = Place::new("the newest schema").await else { return };
    let first = place
        .registry
        .register(&place.subject(), &order(json!([{"name": "id", "type": "long"}])))
        .await;
    let publisher = place.publisher(avro(place.registry.client()));
    assert_eq!(codes(&publisher.publish(&[row(1, "a"), row(2, "b")]).await), ["accepted"; 2]);
    let fields = json!([{"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": null}]);
    let second = place.registry.register(&place.subject(), &order(fields)).await;
    // It does not fit the schema that the publisher knows. So that asks for a newer one, after a second at most.
    let new = [with(3, "a", r#"{"id":3,"note":"x"}"#)];
    let started = std::time::Instant::now();
    loop {
        let delivery = publisher.publish(&new).await.remove(0);
        if delivery == Delivery::Accepted {
            break;
        }
        assert_eq!(problem(&delivery).0, "AVRO_MISMATCH");
        assert!(started.elapsed() < outgoing::LONG);
        tokio::task::yield_now().await;
    }
    let expected = [framed(first, &[2]), framed(first, &[4]), framed(second, &[6, 2, 2, b'x'])];
    assert_eq!(place.values(), expected.map(Some));
    publisher.close().await;
}

#[tokio::test]
async fn a_payload_that_does_not_fit_is_rejected_and_holds_its_key_only() {
    let Some(place) = Place::new("payloads that do not fit").await else { return };
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("order.avsc");
    fs::write(&file, order(json!([{"name": "id", "type": "long"}])).to_string()).unwrap();
    let encoding =
        || KafkaEncoding { schema_file: Some(file.clone()), ..avro(place.registry.client()) };
    let publisher = place.publisher(encoding());
    let mut tombstone = row(4, "c");
    tombstone.headers.set("relais-value", "tombstone");
    let rows = [with(1, "a", r#"{"id":"x"}"#), row(2, "a"), row(3, "b"), tombstone];
    let deliveries = publisher.publish(&rows).await;
    assert_eq!(codes(&deliveries), ["reject", "held", "accepted", "accepted"]);
    let (code, text) = problem(&deliveries[0]);
    assert_eq!(code, "AVRO_MISMATCH");
    assert!(text.contains("at /id: is a text, and the schema has `long`"), "{text}");
    publisher.close().await;
    // Another process finds the schema under the same id.
    let again = place.publisher(encoding());
    assert_eq!(codes(&again.publish(&[row(5, "a")]).await), ["accepted"]);
    again.close().await;
    let values = place.values();
    let id = values[0].as_ref().map(|value| value[..5].to_vec()).unwrap();
    let value = |byte| Some([&id[..], &[byte]].concat());
    assert_eq!(values, [value(6), None, value(10)]);
}

#[tokio::test]
async fn json_is_sent_behind_the_id_of_its_schema() {
    let Some(place) = Place::new("JSON with a schema").await else { return };
    let subject = format!("{}-OrderCreated", place.topic);
    let schema = json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"});
    let body = json!({"schemaType": "JSON", "schema": schema.to_string()});
    let id = place.registry.register_as(&subject, &body).await;
    let encoding = KafkaEncoding {
        subject: Some(format!("{}-{{{{event_type}}}}", place.topic)),
        ..KafkaEncoding::new(KafkaEncoder::ConfluentJson, place.registry.client())
    };
    let publisher = place.publisher(encoding.clone());
    let payload = r#"{ "id": 9007199254740993 }"#;
    assert_eq!(codes(&publisher.publish(&[with(1, "a", payload)]).await), ["accepted"]);
    assert_eq!(place.values(), [Some(framed(id, payload.as_bytes()))]);
    publisher.close().await;
    let wrong = KafkaEncoding { encoder: KafkaEncoder::ConfluentAvro, ..encoding };
    let deliveries = place.publisher(wrong).publish(&[row(2, "a")]).await;
    assert_eq!(codes(&deliveries), ["wait"], "the subject is that of one message");
    assert_eq!(problem(&deliveries[0]).0, "REGISTRY_SCHEMA");
}

#[tokio::test]
async fn what_the_registry_does_is_never_the_fault_of_a_message() {
    let Some(place) = Place::new("a registry that fails").await else { return };
    let gate = Gate::before(&place.registry, GateMode::Unavailable).await;
    let publisher = place.publisher(avro(gate.registry.client()));
    let rows = [row(1, "a"), row(2, "a"), row(3, "b")];
    let deliveries = publisher.publish(&rows).await;
    assert_eq!(codes(&deliveries), ["outage", "held", "outage"]);
    assert_eq!(problem(&deliveries[0]).0, "REGISTRY_UNAVAILABLE");
    gate.set(GateMode::Open);
    let deliveries = publisher.publish(&rows).await;
    assert_eq!(codes(&deliveries), ["misconfigured", "held", "misconfigured"]);
    let (code, text) = problem(&deliveries[0]);
    assert_eq!(code, "REGISTRY_SUBJECT");
    assert!(text.contains(&place.subject()) && text.contains("schema_file"), "{text}");
    let schema = order(json!([{"name": "id", "type": "long"}]));
    place.registry.register(&place.subject(), &schema).await;
    assert_eq!(codes(&publisher.publish(&rows).await), ["accepted"; 3]);
    // What is known serves while the registry does not.
    gate.set(GateMode::Unavailable);
    assert_eq!(codes(&publisher.publish(&[row(4, "a")]).await), ["accepted"]);
    publisher.close().await;
}
