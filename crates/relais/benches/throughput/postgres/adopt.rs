//! The application's own outbox table, with an INSERT and a poller as an application has them.

use anyhow::Result;
use relais::adopt::Adoption;
use uuid::Uuid;

use super::{CHECKPOINT, PostgresFixture, connect};
use crate::{
    adopt::{AdoptedBench, POLLER_BATCH},
    fixture::Fixture as _,
    workload::payload,
};

impl AdoptedBench for PostgresFixture {
    async fn create_application_table(&self) -> Result<()> {
        self.clear().await?;
        self.client.batch_execute(include_str!("../sql/postgres/adopt_table.sql")).await?;
        Ok(self.client.batch_execute(CHECKPOINT).await?)
    }

    async fn adopt_table(&self, adoption: Adoption) -> Result<()> {
        self.store.install_adoptions(vec![adoption.clone()]).await?;
        Ok(self.store.adopt(vec![adoption]).await?)
    }

    async fn insert_as_application(&self, rows: u64) -> Result<()> {
        let client = connect(&self.url).await?;
        let insert = client.prepare(include_str!("../sql/postgres/adopt_insert.sql")).await?;
        let payload = payload();
        for _ in 0..rows {
            client.execute(&insert, &[&Uuid::now_v7(), &Uuid::new_v4(), &payload]).await?;
        }
        Ok(())
    }

    async fn poll_as_application(&self) -> Result<()> {
        let mut client = connect(&self.url).await?;
        let read = client.prepare(include_str!("../sql/postgres/adopt_read.sql")).await?;
        let mark = client.prepare(include_str!("../sql/postgres/adopt_mark.sql")).await?;
        loop {
            let tx = client.transaction().await?;
            let rows = tx.query(&read, &[&POLLER_BATCH]).await?;
            let ids: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
            tx.execute(&mark, &[&ids]).await?;
            tx.commit().await?;
            if ids.is_empty() {
                return Ok(());
            }
        }
    }

    async fn marked(&self) -> Result<i64> {
        let marked = include_str!("../sql/postgres/adopt_marked.sql");
        Ok(self.client.query_one(marked, &[]).await?.get(0))
    }
}
