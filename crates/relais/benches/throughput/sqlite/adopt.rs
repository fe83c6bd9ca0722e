//! The application's own outbox table, with an INSERT and a poller as an application has them.

use anyhow::Result;
use relais::adopt::Adoption;
use rusqlite::{TransactionBehavior, params};
use uuid::Uuid;

use super::{SqliteFixture, connect};
use crate::{
    adopt::{AdoptedBench, POLLER_BATCH},
    fixture::Fixture as _,
    workload::payload,
};

impl AdoptedBench for SqliteFixture {
    async fn create_application_table(&self) -> Result<()> {
        self.clear().await?;
        self.on_connection(
            |db| Ok(db.execute_batch(include_str!("../sql/sqlite/adopt_table.sql"))?),
        )
        .await
    }

    async fn adopt_table(&self, adoption: Adoption) -> Result<()> {
        self.store.install_adoptions(vec![adoption.clone()]).await?;
        Ok(self.store.adopt(vec![adoption]).await?)
    }

    async fn insert_as_application(&self, rows: u64) -> Result<()> {
        self.on_connection(move |db| {
            let mut insert = db.prepare(include_str!("../sql/sqlite/adopt_insert.sql"))?;
            let payload = payload();
            for _ in 0..rows {
                let (id, order) = (Uuid::now_v7().to_string(), Uuid::new_v4().to_string());
                insert.execute(params![id, order, payload])?;
            }
            Ok(())
        })
        .await
    }

    async fn poll_as_application(&self) -> Result<()> {
        let mut db = connect(&self.path)?;
        tokio::task::block_in_place(|| {
            loop {
                let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
                let mut read = tx.prepare_cached(include_str!("../sql/sqlite/adopt_read.sql"))?;
                let ids = read.query_map([POLLER_BATCH], |row| row.get::<_, String>(0))?;
                let ids = ids.collect::<rusqlite::Result<Vec<String>>>()?;
                drop(read);
                let mut mark = tx.prepare_cached(include_str!("../sql/sqlite/adopt_mark.sql"))?;
                for id in &ids {
                    mark.execute([id])?;
                }
                drop(mark);
                tx.commit()?;
                if ids.is_empty() {
                    return Ok(());
                }
            }
        })
    }

    async fn marked(&self) -> Result<i64> {
        self.on_connection(|db| {
            let marked = include_str!("../sql/sqlite/adopt_marked.sql");
            Ok(db.query_row(marked, [], |row| row.get(0))?)
        })
        .await
    }
}
