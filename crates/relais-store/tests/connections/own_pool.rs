//! A pool that belongs to the user.

use deadpool_postgres::{Manager, Pool};
use relais_core::store::StoreError;
use relais_store::postgres::{PostgresOptions, PostgresStore};
use tokio_postgres::NoTls;

use crate::{
    cluster::{Cluster, Programs},
    work::{deliver, handle, prepare},
};

fn pool(cluster: &Cluster, connections: usize) -> Pool {
    let config: tokio_postgres::Config = cluster.url().parse().unwrap();
    Pool::builder(Manager::new(config, NoTls)).max_size(connections).build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_of_the_users_own_serves_and_keeps_its_settings() {
    let Some(programs) = Programs::find() else { return };
    let cluster = Cluster::start(programs);
    let few = PostgresStore::from_pool(pool(&cluster, 3), PostgresOptions::default()).await;
    let Err(StoreError::Setup(text)) = few else { panic!("{few:?}") };
    assert!(text.contains("at least 4"), "{text}");

    let own = pool(&cluster, 4);
    let store = PostgresStore::from_pool(own.clone(), PostgresOptions::default()).await.unwrap();
    prepare(&store).await;
    assert_eq!(deliver(&store, "out", 10).await, 10);
    handle(&store, "m-1").await;
    // Every session that the user's own code can take.
    let mut held = Vec::new();
    for _ in 0..2 {
        let client = own.get().await.unwrap();
        let sql = "SELECT current_setting('statement_timeout'), current_setting('enable_seqscan')";
        let row = client.query_one(sql, &[]).await.unwrap();
        let left: (String, String) = (row.get(0), row.get(1));
        assert_eq!(left, ("0".to_owned(), "on".to_owned()));
        held.push(client);
    }
    // Whatever it holds, messages are delivered.
    assert_eq!(deliver(&store, "out", 3).await, 3);
}

#[tokio::test]
async fn a_store_opens_no_more_connections_than_it_may() {
    let Some(programs) = Programs::find() else { return };
    let cluster = Cluster::start(programs);
    let options = PostgresOptions::default().connections_max(4);
    let config = cluster.url().parse().unwrap();
    let store = PostgresStore::from_config(config, None, options).await.unwrap();
    prepare(&store).await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..8 {
        let store = store.clone();
        tasks.spawn(async move { deliver(&store, &format!("out-{n}"), 5).await });
    }
    handle(&store, "m-1").await;
    assert_eq!(tasks.join_all().await.into_iter().sum::<u64>(), 40);
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'relais'";
    let open: i64 = cluster.client().await.query_one(sql, &[]).await.unwrap().get(0);
    assert!((3..=4).contains(&open), "{open} connections");
}
