//! Servers and roles that are refused, sessions that die, and what cannot be stored.

use std::time::Duration;

use relais_core::{inbox::AcceptOutcome, inspect::Inspect, store::StoreError};
use relais_store::postgres::{PostgresOptions, PostgresStore};
use relais_testkit::build;

use crate::{
    bed::{Bed, message, poll_once},
    support::postgres::{Role, server_url},
};

async fn refusal(url: &str) -> String {
    let store = PostgresStore::connect(url, PostgresOptions::default()).await.unwrap();
    match store.check().await {
        Err(StoreError::Setup(text)) => text.to_string(),
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn a_sound_database_passes_and_says_what_it_is() {
    let Some(bed) = Bed::new().await else { return };
    bed.store.check().await.unwrap();
    assert!(bed.store.describe().await.unwrap().server.starts_with("postgresql 1"));
}

#[tokio::test]
async fn sessions_that_may_lose_a_commit_are_refused_unless_waived() {
    let Some(bed) = Bed::new().await else { return };
    let url = format!("{}%20-c%20synchronous_commit%3Doff", bed.schema.url());
    assert!(refusal(&url).await.contains("synchronous_commit is off"));
    let waived = PostgresOptions::default().unsafe_durability(true);
    let store = PostgresStore::connect(&url, waived).await.unwrap();
    store.check().await.unwrap();
}

#[tokio::test]
async fn read_only_sessions_and_missing_schemas_are_refused() {
    let Some(bed) = Bed::new().await else { return };
    let read_only = format!("{}%20-c%20default_transaction_read_only%3Don", bed.schema.url());
    assert!(refusal(&read_only).await.contains("read-only"));
    let nowhere = bed.schema.url_as(Role::Super).replace(bed.schema.name(), "no_such_schema");
    assert!(refusal(&nowhere).await.contains("search_path"));
    let empty = Bed::empty().await.unwrap();
    assert!(refusal(&empty.schema.url()).await.contains("run `relais migrate`"));
    let error = empty.store.enqueue(vec![message("k")]).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Setup(t) if t.contains("run `relais migrate`")),
        "{error}"
    );
}

#[tokio::test]
async fn the_error_of_a_role_without_its_privileges_names_the_grant() {
    let Some(bed) = Bed::new().await else { return };
    let role = bed.schema.role(Role::Runtime);
    let taken = format!("REVOKE UPDATE, DELETE ON relais_outbox FROM {role}");
    bed.raw.batch_execute(&taken).await.unwrap();
    let text = refusal(&bed.schema.url()).await;
    let schema = bed.schema.name();
    let granted = format!("GRANT UPDATE, DELETE ON {schema}.relais_outbox TO {role}");
    assert!(text.contains(&granted), "{text}");
    bed.raw.batch_execute(&granted).await.unwrap();
    bed.store.check().await.unwrap();
}

#[tokio::test]
async fn a_wrong_address_is_said_without_its_password() {
    let Some(_) = server_url() else { return };
    let url = "postgres://someone:s3cret@127.0.0.1:1/nowhere";
    let options = PostgresOptions::default().connect_timeout(Duration::from_secs(2));
    let error = PostgresStore::connect(url, options.clone()).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    assert!(!error.to_string().contains("s3cret"));
    let odd = PostgresStore::connect("postgres://u:s3cret@h:port/x", options).await.unwrap_err();
    assert!(matches!(&odd, StoreError::Setup(t) if !t.contains("s3cret")), "{odd}");
}

#[tokio::test]
async fn a_killed_session_is_unavailable_once_and_then_replaced() {
    let Some(bed) = Bed::single().await else { return };
    let store = &bed.store;
    let lock = "BEGIN; LOCK TABLE relais_outbox IN ACCESS EXCLUSIVE MODE";
    bed.raw.batch_execute(lock).await.unwrap();
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.enqueue(vec![message("k")]).await }
    });
    let blocked = "SELECT pg_terminate_backend(pid) FROM pg_locks
                   WHERE NOT granted AND relation = 'relais_outbox'::regclass";
    while bed.raw.query(blocked, &[]).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let error = waiting.await.unwrap().unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    bed.raw.batch_execute("COMMIT").await.unwrap();
    store.enqueue(vec![message("k")]).await.unwrap();
    assert_eq!(bed.count("relais_outbox").await, 1, "the killed one wrote nothing");
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_the_work_done_and_the_pool_clean() {
    let Some(bed) = Bed::single().await else { return };
    let store = &bed.store;
    for round in 0..20 {
        let mut going = Box::pin(store.enqueue(vec![message("k"), message("k")]));
        for _ in 0..round % 5 {
            if poll_once(&mut going).await.is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(going);
    }
    store.enqueue(vec![message("k")]).await.unwrap();
    let odd = bed.count("relais_outbox").await;
    assert_eq!(odd % 2, 1, "each pair is there or not: {odd}");
    let idle =
        "pg_stat_activity WHERE state = 'idle in transaction' AND application_name = 'relais'
                AND query LIKE '%relais_outbox%'";
    assert_eq!(bed.count(idle).await, 0);
}

#[tokio::test]
async fn what_cannot_be_stored_is_invalid() {
    let Some(bed) = Bed::new().await else { return };
    for bad in [
        relais_core::message::NewMessage { payload: "{oops".into(), ..message("k") },
        relais_core::message::NewMessage { msg_key: "a\0b".into(), ..message("k") },
        relais_core::message::NewMessage { destination: String::new(), ..message("k") },
    ] {
        let error = bed.store.enqueue(vec![message("k"), bad]).await.unwrap_err();
        assert!(matches!(error, StoreError::Invalid(_)), "{error}");
    }
    assert_eq!(bed.count("relais_outbox").await, 0, "all or nothing");
}

/// As after a switch-over by logical replication, which copies rows and not sequences.
#[tokio::test]
async fn a_sequence_behind_its_table_is_no_fault_of_a_message() {
    let Some(bed) = Bed::new().await else { return };
    let accept = |id: &str| bed.store.accept(vec![build::arrival(id)], Vec::new());
    accept("m-1").await.unwrap();
    bed.send("k").await;
    let raw = bed.schema.client_as(Role::Super).await;
    for table in ["relais_inbox", "relais_outbox"] {
        let back = format!("SELECT setval(pg_get_serial_sequence('{table}', 'id'), 1, false)");
        raw.batch_execute(&back).await.unwrap();
    }
    let refused = accept("m-2").await;
    let Err(StoreError::Setup(text)) = refused else { panic!("{refused:?}") };
    let (_, advice) = text.split_once("run ").expect(&text);
    raw.batch_execute(advice).await.unwrap();
    assert_eq!(accept("m-2").await.unwrap(), [AcceptOutcome::Stored]);
    let refused = bed.store.enqueue(vec![message("k")]).await;
    let Err(StoreError::Setup(text)) = refused else { panic!("{refused:?}") };
    assert!(text.contains("the sequence of relais_outbox.id is behind its table"), "{text}");
    assert_eq!(bed.count("relais_inbox WHERE status = 'RECEIVED'").await, 2);
}
