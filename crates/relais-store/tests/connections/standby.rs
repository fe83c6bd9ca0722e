//! Several hosts, of which one can be written to.

use std::time::Duration;

use relais_core::store::StoreError;
use relais_store::postgres::{PostgresOptions, PostgresStore};

use crate::{
    cluster::{Cluster, Programs},
    work::{deliver, prepare},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_primary_is_found_among_several_hosts() {
    let Some(programs) = Programs::find() else { return };
    let (primary, standby) = Cluster::start_pair(programs);
    let url = |rest: &str| {
        let hosts = format!("127.0.0.1:{},127.0.0.1:{}", standby.port, primary.port);
        format!("postgres://postgres@{hosts}/postgres?sslmode=disable{rest}")
    };
    let options = PostgresOptions::default;
    for attributes in ["&target_session_attrs=read-write", "&target_session_attrs=primary"] {
        let store = PostgresStore::connect(&url(attributes), options()).await.unwrap();
        prepare(&store).await;
        assert_eq!(deliver(&store, "out", 3).await, 3);
    }
    // Without the word the first host is taken, and refused by what it is.
    let first = PostgresStore::connect(&url(""), options()).await.unwrap();
    let copied = async {
        // What is being copied is not there yet; then the standby itself is what is wrong.
        loop {
            match first.check().await {
                Err(StoreError::Setup(text)) if text.contains("standby") => return,
                other => drop(other),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), copied).await.expect("a standby is refused");
    let wrong = PostgresStore::connect(&url("&target_session_attrs=standby"), options()).await;
    assert!(wrong.unwrap_err().to_string().contains("relais writes"));
}
