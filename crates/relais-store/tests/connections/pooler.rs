//! Through PgBouncer, which gives each transaction, or each connection, one of a few sessions.

use relais_core::{
    message::{MessageIdOrigin, NewMessage},
    store::StoreError,
};
use relais_store::{
    Transaction,
    postgres::{PostgresOptions, PostgresStore},
};
use tokio_postgres::SimpleQueryMessage;

use crate::{
    cluster::{Bouncer, Cluster, Programs, connect},
    work::{deliver, handle, prepare},
};

/// Returns the leftovers of earlier programs in a session of the server, as another client sees them.
async fn left_behind(url: &str) -> Vec<String> {
    let client = connect(url).await.unwrap();
    let sql = "SELECT current_setting('statement_timeout'), current_setting('lock_timeout'),
               current_setting('idle_in_transaction_session_timeout'),
               current_setting('enable_seqscan'), current_setting('enable_bitmapscan'),
               current_setting('jit'),
               (SELECT count(*) FROM pg_prepared_statements)";
    let answers = client.simple_query(sql).await.unwrap();
    let row = answers.iter().find_map(|answer| match answer {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let row = row.unwrap();
    (0..row.len()).map(|at| row.get(at).unwrap_or_default().to_owned()).collect()
}

const UNTOUCHED: [&str; 7] = ["0", "0", "0", "on", "on", "on", "0"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pgbouncer_works_in_both_modes_and_its_sessions_stay_as_they_were() {
    let Some(programs) = Programs::find() else { return };
    let cluster = Cluster::start(programs);
    let Some(bouncer) = Bouncer::start(&cluster, "").await else { return };
    for mode in ["tx", "sess"] {
        let url = bouncer.url(mode);
        let one = PostgresStore::connect(&url, PostgresOptions::default()).await.unwrap();
        let two = PostgresStore::connect(&url, PostgresOptions::default()).await.unwrap();
        prepare(&one).await;
        let mut tasks = tokio::task::JoinSet::new();
        for (n, store) in [&one, &two, &one, &two].into_iter().cloned().enumerate() {
            let destination = format!("{mode}-{n}");
            tasks.spawn(async move { deliver(&store, &destination, 10).await });
        }
        handle(&two, mode).await;
        let delivered: u64 = tasks.join_all().await.into_iter().sum();
        assert_eq!(delivered, 40, "{mode}");
        // All sessions of the pool, one after the other and at once.
        let seen: Vec<_> = (0..3).map(|_| left_behind(&url)).collect();
        for left in futures_util::future::join_all(seen).await {
            assert_eq!(left, UNTOUCHED, "{mode}");
        }
    }
}

#[tokio::test]
async fn sends_in_the_users_own_transaction_are_not_prepared_behind_pgbouncer() {
    let Some(programs) = Programs::find() else { return };
    let cluster = Cluster::start(programs);
    let Some(bouncer) = Bouncer::start(&cluster, "").await else { return };
    let direct = PostgresStore::connect(&cluster.url(), PostgresOptions::default()).await.unwrap();
    prepare(&direct).await;
    for mode in ["tx", "sess"] {
        let url = bouncer.url(mode);
        let mut clients = [connect(&url).await.unwrap(), connect(&url).await.unwrap()];
        // In turns, so that a transaction gets the session that another client had before.
        for n in 0..20 {
            let transaction = clients[n % 2].transaction().await.unwrap();
            let id = uuid::Uuid::now_v7();
            let message = NewMessage::new(id, ("Order", "o"), "Placed", mode, "{}".into());
            let message = NewMessage { id_origin: MessageIdOrigin::Generated, ..message };
            (&transaction).enqueue(&[message]).await.unwrap();
            transaction.commit().await.unwrap();
        }
        drop(clients);
        let seen: Vec<_> = (0..3).map(|_| left_behind(&url)).collect();
        for left in futures_util::future::join_all(seen).await {
            assert_eq!(left, UNTOUCHED, "{mode}");
        }
    }
    let rows = "SELECT count(*) FROM relais_outbox";
    let client = cluster.client().await;
    assert_eq!(client.query_one(rows, &[]).await.unwrap().get::<_, i64>(0), 40);
}

#[tokio::test]
async fn a_schema_that_a_pooler_drops_is_refused_until_the_role_has_it() {
    let Some(programs) = Programs::find() else { return };
    let cluster = Cluster::start(programs);
    let ignored = "ignore_startup_parameters = options";
    let Some(bouncer) = Bouncer::start(&cluster, ignored).await else { return };
    let client = cluster.client().await;
    client.batch_execute("CREATE SCHEMA tenant").await.unwrap();
    let options = || PostgresOptions::default().schema("tenant");
    let error = PostgresStore::connect(&bouncer.url("sess"), options()).await.unwrap_err();
    let StoreError::Setup(text) = error else { panic!("{error}") };
    let (_, advice) = text.split_once("run ").expect(&text);
    let (advice, _) = advice.split_once(", or").expect(&text);
    assert!(advice.starts_with("ALTER ROLE"), "{text}");
    // Straight to the server it works.
    let direct = PostgresStore::connect(&cluster.url(), options()).await.unwrap();
    prepare(&direct).await;
    let missing = PostgresOptions::default().schema("nowhere");
    let error = PostgresStore::connect(&cluster.url(), missing).await.unwrap_err();
    assert!(error.to_string().contains("CREATE SCHEMA \"nowhere\""), "{error}");
    client.batch_execute(advice).await.unwrap();
    drop(bouncer);
    let Some(bouncer) = Bouncer::start(&cluster, ignored).await else { return };
    let store = PostgresStore::connect(&bouncer.url("tx"), options()).await.unwrap();
    assert_eq!(deliver(&store, "out", 3).await, 3);
    let rows = "SELECT count(*) FROM tenant.relais_outbox";
    assert_eq!(client.query_one(rows, &[]).await.unwrap().get::<_, i64>(0), 3);
}
