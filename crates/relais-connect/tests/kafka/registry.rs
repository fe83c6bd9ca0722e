//! Avro records with a real schema registry: what their writers wrote is what arrives, and no answer of the
//! registry costs a record.

use std::{sync::Arc, time::Duration};

use relais_core::{
    decode::{Decoder, SchemaDecoder},
    inbox::{Content, NewInbox},
    source::Source,
};
use serde_json::{Value, json};

use crate::{
    incoming::{Record, World, until},
    registry_server::{Gate, GateMode, Registry, framed},
};

/// A topic whose values are Avro, and the registry.
async fn world(what: &str, partitions: i32) -> Option<(World, Registry)> {
    let registry = Registry::new(what)?;
    let mut world = World::new(what, partitions).await?;
    world.decoder = Decoder::ConfluentAvro;
    world.registry = Some(registry.client());
    Some((world, registry))
}

fn order(fields: Value) -> Value {
    json!({"type": "record", "name": "Order", "namespace": "shop", "fields": fields})
}

fn one_field() -> Value {
    order(json!([{"name": "id", "type": "long"}]))
}

/// The rows in the order of their partitions and offsets.
fn rows(world: &World) -> Vec<NewInbox> {
    let mut rows: Vec<NewInbox> = world.db.snapshot().rows.into_values().collect();
    rows.sort_by_key(|row| (row.partition_num, row.offset_num));
    rows
}

fn contents(world: &World) -> Vec<String> {
    let content = |row: &NewInbox| match &row.content {
        Content::Json(json) => json.clone(),
        Content::Undecodable { problem, .. } => problem.code.clone(),
    };
    rows(world).iter().map(content).collect()
}

#[tokio::test]
async fn records_of_old_and_new_schemas_are_read_as_they_were_written() {
    let Some((world, registry)) = world("schema evolution", 1).await else { return };
    let subject = format!("{}-value", world.topic);
    let old = registry.register(&subject, &one_field()).await;
    let new = json!([
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": null},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
    ]);
    let new = registry.register(&subject, &order(new)).await;
    assert_ne!(old, new);
    // 2^53 + 1 is not a number of JavaScript.
    let large = [0x82, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20];
    let values = [
        framed(old, &large),
        framed(new, &[0x04, 0x02, 0x04, b'h', b'i', 0xb6, 0xd6, 0xe8, 0xd0, 0xbd, 0x68]),
        framed(old, &[0x06]),
    ];
    let tombstone = Record { value: None, key: Some(b"k".to_vec()), ..Record::new(b"") };
    let records: Vec<Record> =
        values.iter().map(|value| Record::new(value)).chain([tombstone]).collect();
    world.send(&records).await;
    world.read_until(4).await;
    assert_eq!(
        contents(&world),
        [
            r#"{"id":9007199254740993}"#,
            r#"{"id":2,"note":"hi","at":"2026-11-18T05:07:00.123Z"}"#,
            r#"{"id":3}"#,
            "null",
        ]
    );
    assert_eq!(rows(&world)[1].headers.get("relais-schema-id"), Some(new.to_string().as_str()));
}

#[tokio::test]
async fn types_of_other_schemas_are_found() {
    let Some((world, registry)) = world("references of schemas", 1).await else { return };
    let subject = |name: &str| format!("{}-{name}", world.topic);
    let money = json!({"type": "record", "name": "shop.Money", "fields": [
        {"name": "cents", "type": "int"}]});
    registry.register(&subject("money"), &money).await;
    let reference = |name: &str, type_name: &str| json!({"name": type_name, "subject": subject(name), "version": 1});
    let line = json!({"type": "record", "name": "shop.Line", "fields": [
        {"name": "price", "type": "Money"}]});
    let line =
        json!({"schema": line.to_string(), "references": [reference("money", "shop.Money")]});
    registry.register_as(&subject("line"), &line).await;
    let cart = json!({"type": "record", "name": "shop.Cart", "fields": [
        {"name": "total", "type": "shop.Money"},
        {"name": "lines", "type": {"type": "array", "items": "shop.Line"}}]});
    let references = [reference("money", "shop.Money"), reference("line", "shop.Line")];
    let cart = json!({"schema": cart.to_string(), "references": references});
    let id = registry.register_as(&subject("value"), &cart).await;
    world.send(&[Record::new(&framed(id, &[0x0a, 0x02, 0x0a, 0x00]))]).await;
    world.read_until(1).await;
    assert_eq!(contents(&world), [r#"{"total":{"cents":5},"lines":[{"price":{"cents":5}}]}"#]);
}

#[tokio::test]
async fn bytes_that_do_not_fit_their_schema_are_kept_and_can_be_decoded_again() {
    let Some((world, registry)) = world("values of another schema", 1).await else { return };
    let id = registry.register(&format!("{}-value", world.topic), &one_field()).await;
    let text = json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"});
    let text = json!({"schemaType": "JSON", "schema": text.to_string()});
    let other = registry.register_as(&format!("{}-json", world.topic), &text).await;
    let values = [
        framed(id, &[0x80]),
        framed(other, b"{}"),
        b"{}".to_vec(),
        framed(u32::MAX, b""),
        framed(id, &[2]),
    ];
    world.send(&values.iter().map(|value| Record::new(value)).collect::<Vec<_>>()).await;
    world.read_until(5).await;
    assert_eq!(
        contents(&world),
        [
            "AVRO_MISMATCH",
            "UNUSABLE_SCHEMA",
            "WRONG_MAGIC_BYTE",
            "UNKNOWN_SCHEMA_ID",
            r#"{"id":1}"#,
        ]
    );
    for (row, value) in rows(&world).iter().zip(&values).take(4) {
        let Content::Undecodable { bytes, problem } = &row.content else { panic!("{row:?}") };
        assert_eq!(bytes, value);
        let again = world.registry.as_ref().unwrap().decode(bytes).await;
        assert_eq!(again.unwrap_err().code, problem.code, "what `relais reprocess` does");
    }
    let again = registry.client().decode(&values[4]).await.unwrap();
    assert_eq!((again.json.as_str(), again.schema_id), (r#"{"id":1}"#, Some(id)));
}

/// Reads until the source reports that a partition waits.
async fn until_it_waits(world: &World, source: &mut relais_connect::kafka::KafkaSource) -> String {
    loop {
        match world.step(source, 100).await {
            Ok(_) => {}
            Err(error) if error.to_string().contains("waits at offset") => {
                return error.to_string();
            }
            Err(_) => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_is_unavailable_is_waited_for() {
    let Some((mut world, real)) = world("an unavailable registry", 1).await else { return };
    let id = real.register(&format!("{}-value", world.topic), &one_field()).await;
    let gate = Gate::before(&real, GateMode::Unavailable).await;
    world.registry = Some(gate.registry.client());
    // Only the answer "unknown" would end the wait.
    world.unknown_schema_wait = Duration::from_secs(1);
    let values = [framed(id, &[2]), framed(id, &[4])];
    world.send(&values.iter().map(|value| Record::new(value)).collect::<Vec<_>>()).await;
    let mut source = world.source();
    let reason = until_it_waits(&world, &mut source).await;
    assert!(reason.contains("503") && reason.contains("/0 waits at offset 0"), "{reason}");
    let asked = gate.requests();
    // It asks again, and reads nothing meanwhile.
    until("the registry is asked again", || gate.requests() >= asked).await;
    assert_eq!(world.db.count(), 0);
    gate.set(GateMode::Open);
    world.fill(&mut source, 2).await;
    assert_eq!(contents(&world), [r#"{"id":1}"#, r#"{"id":2}"#]);
    let asked = gate.requests();
    world.send(&[Record::new(&framed(id, &[6]))]).await;
    world.fill(&mut source, 3).await;
    assert_eq!(gate.requests(), asked, "a schema is asked for once");
    source.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_schema_id_waits_and_other_partitions_continue() {
    let Some((mut world, real)) = world("an unknown schema id", 2).await else { return };
    let subject = format!("{}-value", world.topic);
    let known = real.register(&subject, &one_field()).await;
    let late = json!([{"name": "id", "type": "long"}, {"name": "n", "type": "int", "default": 1}]);
    let late = real.register(&subject, &order(late)).await;
    let gate = Gate::before(&real, GateMode::Open).await;
    let registry = gate.registry.client();
    // It knows the first schema before the gate hides the second.
    registry.decode(&framed(known, &[2])).await.unwrap();
    gate.set(GateMode::Unknown);
    world.registry = Some(Arc::clone(&registry));
    let record =
        |partition, id, value: &[u8]| Record { partition, ..Record::new(&framed(id, value)) };
    world.send(&[record(0, late, &[2, 4]), record(1, known, &[4]), record(0, known, &[6])]).await;
    let mut source = world.source();
    let reason = until_it_waits(&world, &mut source).await;
    assert!(reason.contains("40403") && reason.contains("/0 waits at offset 0"), "{reason}");
    world.fill(&mut source, 1).await;
    assert_eq!(contents(&world), [r#"{"id":2}"#], "partition 1 continues");
    gate.set(GateMode::Open);
    world.fill(&mut source, 3).await;
    assert_eq!(contents(&world), [r#"{"id":1,"n":2}"#, r#"{"id":3}"#, r#"{"id":2}"#]);
    source.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_stays_unknown_is_undecodable_after_its_time() {
    let Some((mut world, real)) = world("an id that stays unknown", 1).await else { return };
    let known = real.register(&format!("{}-value", world.topic), &one_field()).await;
    world.unknown_schema_wait = Duration::from_secs(1);
    // No registry of a test gets this far.
    let unknown = framed(2_000_000_000, &[2]);
    world.send(&[Record::new(&unknown), Record::new(&framed(known, &[4]))]).await;
    let mut source = world.source();
    until_it_waits(&world, &mut source).await;
    world.fill(&mut source, 2).await;
    assert_eq!(contents(&world), ["UNKNOWN_SCHEMA_ID", r#"{"id":2}"#]);
    let Content::Undecodable { bytes, .. } = &rows(&world)[0].content else { panic!("decoded") };
    assert_eq!(*bytes, unknown);
    source.close().await;
}
