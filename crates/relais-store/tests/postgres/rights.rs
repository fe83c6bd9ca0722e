//! What a producer may add and a reader may see, and nothing else.

use relais_core::{
    inspect::InspectExt,
    lane::{LaneRelease, LaneRequest, Scope},
    query::{CleanupMode, Filter, Retention},
    store::{Store, StoreError},
};
use relais_store::postgres::{ENQUEUE_SQL, PostgresStore};
use uuid::Uuid;

use crate::{
    bed::{Bed, fence, message, outbox},
    roles::assert_denied,
    support::postgres::Role,
};

/// As docs/outbox-from-any-language.md has it.
const PLAIN: &str = "
    INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload)
    VALUES ('Order', '42', 'OrderCreated', 'orders', '{\"orderId\":\"42\",\"total\":1999}')";
const EVERYTHING: &str = "
    INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload,
                               message_id, msg_key, headers, category, event_version,
                               next_attempt_at, correlation_id, causation_id)
    VALUES ('Order', '42', 'OrderCreated', 'orders', '{}', gen_random_uuid(), 'k', '{\"a\":\"b\"}',
            'command', 2, now() + interval '3 days', 'c', 'd')
    ON CONFLICT (message_id, destination) DO NOTHING";

#[tokio::test]
async fn a_producer_adds_messages_in_every_documented_way() {
    let Some(bed) = Bed::new().await else { return };
    let producer = bed.schema.client_as(Role::Producer).await;
    producer.batch_execute(PLAIN).await.unwrap();
    producer.batch_execute(EVERYTHING).await.unwrap();
    let not_json = PLAIN.replace("1999}", "1999");
    let error = producer.batch_execute(&not_json).await.unwrap_err();
    assert_eq!(
        error.code().map(|code| code.code()),
        Some("22P02"),
        "refused by the type of the column"
    );
    producer.prepare(ENQUEUE_SQL).await.unwrap();

    // The library: one, several, and one that is there already.
    let library = bed.schema.store_as(Role::Producer).await;
    let one = message("a");
    let first = library.enqueue(vec![one.clone()]).await.unwrap();
    let again = library.enqueue(vec![one, message("b"), message("c")]).await.unwrap();
    assert_eq!(again[0], first[0]);
    assert_eq!(bed.count("relais_outbox WHERE status = 'PENDING'").await, 5);
    let lanes = bed.lanes().await;
    let rows = bed.fetch(&lanes).await;
    assert_eq!(rows.len(), 4, "all but the delayed one are delivered");
    assert_eq!(rows[0].msg_key, "42", "the aggregate is the key where none is given");
}

#[tokio::test]
async fn a_producer_can_do_nothing_else() {
    let Some(bed) = Bed::new().await else { return };
    bed.send("k").await;
    let producer = bed.schema.client_as(Role::Producer).await;
    let with = |column: &str, value: &str| {
        let named = PLAIN.replace("payload)", &format!("payload, {column})"));
        named.replace("}')", &format!("}}', {value})"))
    };
    for (column, value) in [
        ("id", "1"),
        ("status", "'DISPATCHED'"),
        ("attempts", "0"),
        ("created_at", "now()"),
        ("dispatched_at", "now()"),
        ("job_id", "'x'"),
        ("error_code", "'x'"),
        ("error_message", "'x'"),
    ] {
        assert_denied(&producer, &[&with(column, value)]).await;
    }
    assert_denied(
        &producer,
        &[
            "SELECT payload FROM relais_outbox",
            "SELECT * FROM relais_outbox",
            "UPDATE relais_outbox SET payload = '{}'",
            "DELETE FROM relais_outbox",
            "TRUNCATE relais_outbox",
            "DO $$BEGIN LOCK TABLE relais_outbox IN ACCESS EXCLUSIVE MODE; END$$",
            "SELECT id FROM relais_outbox FOR UPDATE",
            "SELECT message_id FROM relais_inbox",
            "INSERT INTO relais_audit (actor, action, target, reason) VALUES ('a', 'b', 'c', 'd')",
            "INSERT INTO relais_handled (message_id, handler) VALUES ('a', 'b')",
            "SELECT * FROM relais_dead_letter",
            "SELECT * FROM relais_schema",
            "CREATE TABLE mine (id integer)",
            "SELECT * FROM orders",
        ],
    )
    .await;
    let store = bed.schema.store_as(Role::Producer).await;
    let refused = store.overview().await;
    let Err(StoreError::Setup(text)) = refused else { panic!("{refused:?}") };
    assert!(text.contains("`relais migrate --roles` prints what each role needs"), "{text}");
    assert_eq!(bed.count("relais_outbox").await, 1);
}

async fn denied<T: std::fmt::Debug>(
    asked: impl Future<Output = Result<T, StoreError>>,
    what: &str,
) {
    let answer = asked.await;
    let Err(StoreError::Setup(text)) = answer else { panic!("{what}: {answer:?}") };
    assert!(text.contains("42501"), "{what}: {text}");
}

/// Every method that only reads.
async fn read_everything(reader: &PostgresStore, id: Uuid) {
    let filter = Filter { limit: 10, ..Filter::default() };
    reader.overview().await.unwrap();
    reader.changes().await.unwrap();
    reader.positions("members".into()).await.unwrap();
    assert_eq!(reader.list_outbox(filter.clone()).await.unwrap()[0].payload, "{\"key\":\"k\"}");
    reader.list_inbox(filter.clone()).await.unwrap();
    reader.list_dead_letters(filter.clone()).await.unwrap();
    assert!(reader.find_outbox(id.to_string()).await.unwrap().is_some());
    reader.find_inbox("m-1".into()).await.unwrap();
    reader.find_dead_letter(id).await.unwrap();
    reader.parked_keys(10).await.unwrap();
    reader.cleanup(Retention::default(), CleanupMode::Count).await.unwrap();
}

#[tokio::test]
async fn a_reader_sees_everything_and_changes_nothing() {
    let Some(bed) = Bed::new().await else { return };
    let one = message("k");
    let id = one.message_id;
    bed.store.enqueue(vec![one]).await.unwrap();
    let reader = bed.schema.store_as(Role::Reader).await;
    read_everything(&reader, id).await;

    denied(reader.enqueue(vec![message("x")]), "enqueue").await;
    let request = LaneRequest::new(fence(outbox(), "reader"), std::time::Duration::from_secs(60));
    denied(reader.lease_lanes(request), "lease").await;
    denied(reader.once("h".into(), "m".into()), "once").await;
    denied(reader.release_lanes(fence(Scope::Inbox, "reader"), LaneRelease::All), "leave").await;
    let refused = reader.check().await;
    let Err(StoreError::Setup(text)) = refused else { panic!("{refused:?}") };
    let role = bed.schema.role(Role::Reader);
    assert!(text.contains(&format!("role {role} lacks privileges")), "{text}");

    let raw = bed.schema.client_as(Role::Reader).await;
    assert_denied(
        &raw,
        &[
            PLAIN,
            "UPDATE relais_outbox SET payload = '{}'",
            "DELETE FROM relais_outbox",
            "TRUNCATE relais_audit",
            "SELECT id FROM relais_outbox FOR UPDATE",
            "SELECT nextval('relais_outbox_id_seq')",
            "INSERT INTO relais_audit (actor, action, target, reason) VALUES ('a', 'b', 'c', 'd')",
            "CREATE TABLE mine (id integer)",
            "SELECT * FROM orders",
        ],
    )
    .await;
    assert_eq!(bed.count("relais_outbox").await, 1);

    // The printed statements are complete, also in a session that begins in another schema.
    let grants = text.split_once("run: ").expect("statements").1;
    assert!(
        grants.contains(&format!("INSERT ON {}.relais_audit TO ", bed.schema.name())),
        "{text}"
    );
    let owner = bed.schema.client().await;
    owner.batch_execute(&format!("SET search_path = pg_temp; {grants}")).await.unwrap();
    reader.check().await.unwrap();
}
