//! The tables themselves, as a program in another language meets them: names, defaults, checks and
//! keys are public.

use super::Start;
use crate::{
    build::wide_text,
    conformance::worker::{Worker, all},
    fixture::{Fixture, quote},
};
use relais_core::{
    inspect::InspectExt,
    message::{Category, Headers},
    outbox::{OutboxFate, OutboxStatus},
    query::{CleanupMode, Retention},
};

pub const START: Start = Start::Migrated;

/// The one statement any language needs.
const PLAIN: &str = "INSERT INTO relais_outbox \
    (aggregate_type, aggregate_id, event_type, destination, payload) \
    VALUES ('Order', 'o-1', 'OrderCreated', 'orders', '{\"total\": 12}')";

/// Columns with a value each, for a whole row.
const OUTBOX: &[(&str, &str)] = &[
    ("message_id", "'00000000-0000-4000-8000-000000000001'"),
    ("category", "'event'"),
    ("aggregate_type", "'Order'"),
    ("aggregate_id", "'o-1'"),
    ("event_type", "'OrderCreated'"),
    ("event_version", "1"),
    ("payload", "'{}'"),
    ("headers", "'{}'"),
    ("destination", "'orders'"),
    ("msg_key", "'o-1'"),
    ("status", "'PENDING'"),
    ("attempts", "0"),
];

const INBOX: &[(&str, &str)] = &[
    ("message_id", "'m-1'"),
    ("source_system", "'ihub'"),
    ("topic", "'t'"),
    ("partition_num", "0"),
    ("offset_num", "0"),
    ("msg_key", "'k'"),
    ("payload", "'{}'"),
    ("headers", "'{}'"),
    ("status", "'RECEIVED'"),
    ("attempts", "0"),
];

const DEAD_LETTER: &[(&str, &str)] = &[
    ("id", "'00000000-0000-4000-8000-000000000001'"),
    ("origin", "'inbox'"),
    ("origin_id", "1"),
    ("message_id", "'m-1'"),
    ("msg_key", "'k'"),
    ("headers", "'{}'"),
    ("failed_status", "'FAILED'"),
    ("attempts", "5"),
    ("parked_by", "'w'"),
];

/// An INSERT of a whole row in which some columns are changed or added.
fn insert(table: &str, columns: &[(&str, &str)], changed: &[(&str, &str)]) -> String {
    let mut all: Vec<(&str, &str)> =
        columns.iter().filter(|(name, _)| !changed.iter().any(|c| c.0 == *name)).copied().collect();
    all.extend_from_slice(changed);
    let names: Vec<_> = all.iter().map(|c| c.0).collect();
    let values: Vec<_> = all.iter().map(|c| c.1).collect();
    format!("INSERT INTO {table} ({}) VALUES ({})", names.join(", "), values.join(", "))
}

pub async fn a_plain_insert_of_five_columns_is_a_complete_message(f: &dyn Fixture) {
    let before = f.now().await;
    f.run(PLAIN).await;
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(10).await;
    let [row] = rows.as_slice() else { panic!("one row, not {rows:?}") };
    assert!(row.id > 0);
    assert!(matches!(row.message_id.get_version_num(), 4 | 7), "a real UUID, random or by time");
    assert_eq!(row.category, Category::Event);
    assert_eq!((row.event_version, row.attempts), (1, 0));
    assert_eq!(row.payload, "{\"total\": 12}");
    assert_eq!(row.headers, Headers::default());
    assert_eq!(row.msg_key, "o-1", "the key defaults to the aggregate");
    assert_eq!(row.status, OutboxStatus::Pending);
    assert!(before <= row.created_at && row.created_at <= f.now().await);
    assert_eq!((row.next_attempt_at, row.dispatched_at), (None, None));
    assert_eq!(f.value("SELECT headers FROM relais_outbox").await.as_deref(), Some("{}"));
    assert_eq!(worker.settle(row, OutboxFate::Dispatched).await, all(1));
}

pub async fn plain_inserts_get_ids_of_their_own(f: &dyn Fixture) {
    for _ in 0..20 {
        f.run(PLAIN).await;
    }
    let ids = "SELECT count(DISTINCT message_id) FROM relais_outbox";
    assert_eq!(f.number(ids).await, 20);
}

pub async fn a_plain_insert_may_name_its_key(f: &dyn Fixture) {
    f.run(&insert("relais_outbox", OUTBOX, &[("msg_key", "'customer-9'")])).await;
    let row = f.store().find_outbox("1".to_owned()).await.expect("find").expect("the row");
    assert_eq!(row.msg_key, "customer-9");
}

pub async fn an_empty_key_is_a_key(f: &dyn Fixture) {
    f.run(&insert("relais_outbox", OUTBOX, &[("msg_key", "''")])).await;
    f.run(&insert("relais_inbox", INBOX, &[("msg_key", "''")])).await;
    let worker = Worker::outbox(f, "orders", "w").await;
    assert_eq!(worker.pending(10).await[0].msg_key, "");
    assert_eq!(Worker::inbox(f, "w").await.received(10).await[0].msg_key, "");
}

pub async fn only_the_states_of_an_outbox_row_are_accepted(f: &dyn Fixture) {
    for (n, status) in ["PENDING", "DISPATCHED", "FAILED"].into_iter().enumerate() {
        let id = format!("'00000000-0000-4000-8000-00000000010{n}'");
        let status = quote(status);
        let changed = [("message_id", id.as_str()), ("status", status.as_str())];
        f.run(&insert("relais_outbox", OUTBOX, &changed)).await;
    }
    // On PostgreSQL a check would cost each send more than its index; a producer has no right to this column.
    if f.dialect().writes_in_parallel() {
        return;
    }
    for status in ["'NEW'", "'pending'", "''", "'SENT'", "'RETRY'"] {
        f.refuses(&insert("relais_outbox", OUTBOX, &[("status", status)])).await;
    }
}

pub async fn only_the_states_of_an_inbox_row_are_accepted(f: &dyn Fixture) {
    for status in ["'RECEIVED'", "'RETRY'", "'FAILED'", "'PROCESSED'", "'SERDE_ERROR'"] {
        f.run(&insert("relais_inbox", INBOX, &[("message_id", status), ("status", status)])).await;
    }
    for status in ["'NEW'", "'received'", "''", "'PENDING'", "'DONE'"] {
        f.refuses(&insert("relais_inbox", INBOX, &[("status", status)])).await;
    }
}

pub async fn only_known_categories_and_error_stages_are_accepted(f: &dyn Fixture) {
    for (n, category) in ["'event'", "'command'", "'reply'"].into_iter().enumerate() {
        let id = format!("'00000000-0000-4000-8000-00000000010{n}'");
        let changed = [("message_id", id.as_str()), ("category", category)];
        f.run(&insert("relais_outbox", OUTBOX, &changed)).await;
    }
    f.refuses(&insert("relais_outbox", OUTBOX, &[("category", "'query'")])).await;
    for stage in ["'CONSUMER_SERDE'", "'BUSINESS'"] {
        let changed = [("message_id", stage), ("error_stage", stage)];
        f.run(&insert("relais_inbox", INBOX, &changed)).await;
    }
    f.refuses(&insert("relais_inbox", INBOX, &[("error_stage", "'OTHER'")])).await;
}

pub async fn required_columns_refuse_null(f: &dyn Fixture) {
    let tables = [
        ("relais_outbox", OUTBOX, "created_at", &["msg_key", "headers"][..]),
        ("relais_inbox", INBOX, "received_at", &["payload", "msg_key", "headers"][..]),
        ("relais_dead_letter", DEAD_LETTER, "parked_at", &["headers"][..]),
    ];
    for (table, columns, time, nullable) in tables {
        let names = columns.iter().map(|c| c.0).filter(|name| !nullable.contains(name));
        for name in names.chain([time]) {
            f.refuses(&insert(table, columns, &[(name, "NULL")])).await;
        }
        f.run(&insert(table, columns, &[])).await;
    }
}

pub async fn required_columns_without_default_must_be_given(f: &dyn Fixture) {
    let needed = ["aggregate_type", "aggregate_id", "event_type", "destination", "payload"];
    for left_out in needed {
        let given: Vec<_> = OUTBOX.iter().filter(|c| c.0 != left_out).copied().collect();
        f.refuses(&insert("relais_outbox", &given, &[])).await;
    }
    let needed = ["message_id", "source_system", "topic", "partition_num", "offset_num"];
    for left_out in needed {
        let given: Vec<_> = INBOX.iter().filter(|c| c.0 != left_out).copied().collect();
        f.refuses(&insert("relais_inbox", &given, &[])).await;
    }
}

pub async fn an_inbox_row_has_defaults(f: &dyn Fixture) {
    let before = f.now().await;
    let given: Vec<_> = INBOX
        .iter()
        .filter(|c| !["headers", "status", "attempts"].contains(&c.0))
        .copied()
        .collect();
    f.run(&insert("relais_inbox", &given, &[])).await;
    let row = f.store().find_inbox("m-1".to_owned()).await.expect("find").expect("the row");
    assert_eq!((row.status.as_str(), row.attempts), ("RECEIVED", 0));
    assert_eq!(row.headers, Headers::default());
    assert!(before <= row.received_at && row.received_at <= f.now().await);
    assert_eq!((row.event_ts, row.next_attempt_at, row.processed_at), (None, None, None));
    assert_eq!((row.error_stage, row.error_code, row.error_message), (None, None, None));
}

/// The INSERT of a consumer in another language: no ordering key, and NULL where it knows nothing.
pub async fn the_insert_of_a_consumer_needs_no_key_and_no_headers(f: &dyn Fixture) {
    let now = f.dialect().ago(0);
    let of = |id: &str, key: &str, aggregate: &str| {
        format!(
            "INSERT INTO relais_inbox (message_id, source_system, topic, partition_num, offset_num, key_str, \
             aggregate_id, event_type, payload, headers, event_ts, status, received_at) \
             VALUES ('{id}', 'crm', 'members', 3, 42, {key}, {aggregate}, 'MembersCreated', '{{\"a\":1}}', NULL, \
             {now}, 'RECEIVED', {now}) ON CONFLICT (source_system, message_id) DO NOTHING"
        )
    };
    assert_eq!(f.run(&of("m-1", "NULL", "'a-1'")).await, 1);
    assert_eq!(f.run(&of("m-1", "NULL", "'a-1'")).await, 0, "a duplicate");
    f.run(&of("m-2", "'k-2'", "NULL")).await;
    f.run(&of("m-3", "NULL", "NULL")).await;
    f.run(&format!(
        "INSERT INTO relais_inbox (message_id, source_system, topic, partition_num, offset_num, key_str, \
         raw_payload_base64, headers, event_ts, status, error_stage, error_code, error_message, received_at) \
         VALUES ('m-4', 'crm', 'members', 3, 43, 'k', 'e29vcHM=', NULL, {now}, 'SERDE_ERROR', 'CONSUMER_SERDE', \
         'INVALID_JSON', 'oops', {now})"
    ))
    .await;
    let rows = Worker::inbox(f, "w").await.received(10).await;
    let keys: Vec<&str> = rows.iter().map(|row| row.msg_key.as_str()).collect();
    assert_eq!(keys, ["a-1", "k-2", "m-3"]);
    assert!(rows.iter().all(|row| row.headers == Headers::default()), "{rows:?}");
    assert!(rows.iter().all(|row| row.payload.as_deref() == Some("{\"a\":1}")), "{rows:?}");
    let undecodable = f.store().find_inbox("m-4".to_owned()).await.expect("find").expect("the row");
    assert_eq!((undecodable.msg_key.as_str(), undecodable.status.as_str()), ("k", "SERDE_ERROR"));
}

pub async fn headers_of_a_sent_message_may_be_null(f: &dyn Fixture) {
    f.run(&insert("relais_outbox", OUTBOX, &[("headers", "NULL")])).await;
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(10).await;
    assert_eq!(rows[0].headers, Headers::default());
    assert_eq!(worker.settle(&rows[0], OutboxFate::Dispatched).await, all(1));
}

pub async fn payload_and_headers_must_be_json(f: &dyn Fixture) {
    for odd in ["'{'", "''", "'hello'", "'{''a'':1}'", "'NaN'", "'{} {}'", "'[1,]'"] {
        for column in ["payload", "headers"] {
            f.refuses(&insert("relais_outbox", OUTBOX, &[(column, odd)])).await;
            f.refuses(&insert("relais_inbox", INBOX, &[(column, odd)])).await;
        }
    }
    f.run(PLAIN).await;
    f.refuses("UPDATE relais_outbox SET payload = '{'").await;
    f.refuses("UPDATE relais_outbox SET headers = 'hello'").await;
    for (n, fine) in ["'null'", "'[]'", "'\"text\"'", "' 1e400 '"].into_iter().enumerate() {
        let id = format!("'m-{n}'");
        let changed = [("message_id", id.as_str()), ("payload", fine)];
        f.run(&insert("relais_inbox", INBOX, &changed)).await;
    }
}

/// A value that is not an object has no names, and would be dropped when the row is read.
pub async fn headers_must_be_an_object(f: &dyn Fixture) {
    for odd in ["'null'", "'[]'", "'[{}]'", "'\"text\"'", "'1'", "'true'"] {
        f.refuses(&insert("relais_outbox", OUTBOX, &[("headers", odd)])).await;
        f.refuses(&insert("relais_inbox", INBOX, &[("headers", odd)])).await;
    }
    f.run(PLAIN).await;
    f.refuses("UPDATE relais_outbox SET headers = '[]'").await;
}

pub async fn ids_are_positive_and_attempts_bounded(f: &dyn Fixture) {
    for (column, odd) in
        [("id", "0"), ("id", "-5"), ("attempts", "1000000"), ("attempts", "2147483647")]
    {
        // On PostgreSQL a producer has no right to these columns of the outbox.
        if !f.dialect().writes_in_parallel() {
            f.refuses(&insert("relais_outbox", OUTBOX, &[(column, odd)])).await;
        }
        f.refuses(&insert("relais_inbox", INBOX, &[(column, odd)])).await;
    }
    f.run(&insert("relais_outbox", OUTBOX, &[("id", "7"), ("attempts", "999999")])).await;
}

/// A row that no worker reads must not stay pending without a notice.
pub async fn a_row_with_an_id_below_one_is_refused_or_delivered(f: &dyn Fixture) {
    for (n, id) in ["0", "-5"].into_iter().enumerate() {
        let message_id = format!("'{}'", uuid::Uuid::from_u128(n as u128 + 1));
        let changed = [("id", id), ("message_id", message_id.as_str()), ("msg_key", id)];
        let row = insert("relais_outbox", OUTBOX, &changed);
        match f.dialect().writes_in_parallel() {
            true => drop(f.run(&row).await),
            false => f.refuses(&row).await,
        }
    }
    let cleanup = async || {
        let mode = CleanupMode::Remove { rows_max: 100 };
        f.store().cleanup(Retention::default(), mode).await.expect("cleanup").outbox
    };
    assert_eq!(cleanup().await, 0);
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(10).await;
    let accepted: &[i64] = if f.dialect().writes_in_parallel() { &[-5, 0] } else { &[] };
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), accepted);
    for row in &rows {
        assert_eq!(worker.settle(row, OutboxFate::Dispatched).await, all(1));
    }
    let old = f.dialect().ago(30 * 24 * 3_600);
    f.run(&format!("UPDATE relais_outbox SET created_at = {old}, dispatched_at = {old}")).await;
    assert_eq!(cleanup().await, accepted.len() as u64);
}

pub async fn an_inbox_row_needs_a_payload_or_its_raw_bytes(f: &dyn Fixture) {
    f.refuses(&insert("relais_inbox", INBOX, &[("payload", "NULL")])).await;
    let raw = [("payload", "NULL"), ("raw_payload_base64", "'/w=='")];
    f.run(&insert("relais_inbox", INBOX, &raw)).await;
}

pub async fn one_source_and_message_id_is_one_row(f: &dyn Fixture) {
    f.run(&insert("relais_inbox", INBOX, &[])).await;
    f.refuses(&insert("relais_inbox", INBOX, &[("payload", "'{\"other\":1}'")])).await;
    f.run(&insert("relais_inbox", INBOX, &[("source_system", "'crm'")])).await;
    f.run(&insert("relais_inbox", INBOX, &[("message_id", "'m-2'")])).await;
}

pub async fn one_message_id_is_one_row_of_a_destination(f: &dyn Fixture) {
    f.run(&insert("relais_outbox", OUTBOX, &[])).await;
    f.refuses(&insert("relais_outbox", OUTBOX, &[("payload", "'[]'")])).await;
    f.run(&insert("relais_outbox", OUTBOX, &[("destination", "'other'")])).await;
}

pub async fn identities_are_not_empty_and_attempts_not_negative(f: &dyn Fixture) {
    for column in ["message_id", "source_system"] {
        f.refuses(&insert("relais_inbox", INBOX, &[(column, "''")])).await;
    }
    if !f.dialect().writes_in_parallel() {
        f.refuses(&insert("relais_outbox", OUTBOX, &[("destination", "''")])).await;
        f.refuses(&insert("relais_outbox", OUTBOX, &[("attempts", "-1")])).await;
    }
    f.refuses(&insert("relais_inbox", INBOX, &[("attempts", "-1")])).await;
}

pub async fn error_texts_hold_their_limit_of_any_characters(f: &dyn Fixture) {
    for (column, max) in [("error_code", 200), ("error_message", 2_000)] {
        let (fits, long) = (quote(&wide_text(max, 1)), quote(&wide_text(max + 1, 1)));
        let id = quote(column);
        let changed = [("message_id", id.as_str()), (column, fits.as_str())];
        f.run(&insert("relais_inbox", INBOX, &changed)).await;
        f.refuses(&insert("relais_inbox", INBOX, &[(column, long.as_str())])).await;
        f.refuses(&insert("relais_outbox", OUTBOX, &[(column, long.as_str())])).await;
    }
}

pub async fn a_dead_letter_takes_nulls_where_nothing_is_known(f: &dyn Fixture) {
    let unknown = ["source_system", "destination", "event_type", "payload", "error_class"];
    let mut changed: Vec<_> = unknown.iter().map(|name| (*name, "NULL")).collect();
    changed.extend([("error_message", "NULL"), ("resolution", "NULL"), ("reason", "NULL")]);
    f.run(&insert("relais_dead_letter", DEAD_LETTER, &changed)).await;
    f.refuses(&insert("relais_dead_letter", DEAD_LETTER, &[("origin", "'queue'")])).await;
    f.refuses(&insert("relais_dead_letter", DEAD_LETTER, &[("resolution", "'done'")])).await;
}

pub async fn a_lane_is_computed_from_the_key_alone(f: &dyn Fixture) {
    for n in 0..1_000 {
        let id = format!("'{}'", uuid::Uuid::from_u128(n + 1));
        let key = format!("'customer-{n}'");
        let changed = [("message_id", id.as_str()), ("msg_key", key.as_str())];
        f.run(&insert("relais_outbox", OUTBOX, &changed)).await;
        if n < 100 {
            f.run(&insert("relais_inbox", INBOX, &changed)).await;
        }
    }
    // PostgreSQL computes it when it reads a row.
    let is_stored = !f.dialect().writes_in_parallel();
    let lane = if is_stored { "o.lane" } else { "(hashtext(o.msg_key) & 63)" };
    let outside = format!("SELECT count(*) FROM relais_outbox o WHERE {lane} NOT BETWEEN 0 AND 63");
    assert_eq!(f.number(&outside).await, 0);
    let differ = format!(
        "SELECT count(*) FROM relais_outbox o JOIN relais_inbox i \
         ON i.msg_key = o.msg_key WHERE i.lane <> {lane}"
    );
    assert_eq!(f.number(&differ).await, 0);
    let used = f.number(&format!("SELECT count(DISTINCT {lane}) FROM relais_outbox o")).await;
    assert!(used >= 40, "a thousand keys use only {used} lanes");
    f.refuses(&insert("relais_outbox", OUTBOX, &[("lane", "3")])).await;
}

pub async fn strange_keys_have_a_lane_too(f: &dyn Fixture) {
    let wide = wide_text(200, 3);
    let long = "k".repeat(1_000);
    let keys = ["", " ", "é", "😀", "'", "\\", "a\nb", wide.as_str(), long.as_str()];
    for (n, key) in keys.into_iter().enumerate() {
        let id = format!("'{}'", uuid::Uuid::from_u128(n as u128 + 1));
        let key = quote(key);
        let changed = [("message_id", id.as_str()), ("msg_key", key.as_str())];
        f.run(&insert("relais_outbox", OUTBOX, &changed)).await;
    }
    let held = Worker::outbox(f, "orders", "w").await.pending(100).await;
    assert_eq!(held.iter().map(|row| row.msg_key.as_str()).collect::<Vec<_>>(), keys);
}

pub async fn an_id_is_never_used_twice(f: &dyn Fixture) {
    f.run(PLAIN).await;
    let last = f.number("SELECT max(id) FROM relais_outbox").await;
    f.run("DELETE FROM relais_outbox").await;
    f.run(PLAIN).await;
    assert!(f.number("SELECT max(id) FROM relais_outbox").await > last);
}

pub async fn no_open_row_of_another_writer_is_stranded(f: &dyn Fixture) {
    for (n, status) in ["'RECEIVED'", "'RETRY'"].into_iter().enumerate() {
        for (m, at) in ["NULL", &f.past()].into_iter().enumerate() {
            let id = format!("'m-{n}-{m}'");
            let changed = [
                ("message_id", id.as_str()),
                ("msg_key", id.as_str()),
                ("status", status),
                ("next_attempt_at", at),
            ];
            f.run(&insert("relais_inbox", INBOX, &changed)).await;
        }
    }
    assert_eq!(Worker::inbox(f, "w").await.received(10).await.len(), 4);
    for (n, at) in ["NULL", &f.past()].into_iter().enumerate() {
        let id = format!("'{}'", uuid::Uuid::from_u128(n as u128 + 1));
        let changed = [
            ("message_id", id.as_str()),
            ("msg_key", id.as_str()),
            ("attempts", "3"),
            ("next_attempt_at", at),
        ];
        f.run(&insert("relais_outbox", OUTBOX, &changed)).await;
    }
    assert_eq!(Worker::outbox(f, "orders", "w").await.pending(10).await.len(), 2);
}
