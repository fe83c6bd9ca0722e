//! The service's own tables, and what those of relais beside them say.

use std::{path::Path, time::Duration};

use rusqlite::Connection;

use crate::{BLOCKS_OF_A_FAMILY, FAMILIES, MEMBERS_OF_A_FAMILY};

/// Longest wait for the program's own writes.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Tables(Connection);

impl Tables {
    pub(crate) fn create(file: &Path) -> rusqlite::Result<Self> {
        let mut db = Connection::open(file)?;
        db.busy_timeout(PATIENCE)?;
        db.execute_batch(include_str!("../sql/tables.sql"))?;
        let transaction = db.transaction()?;
        for family in 1..=FAMILIES {
            for n in 1..=MEMBERS_OF_A_FAMILY {
                let id = format!("M-{family}-{n}");
                let (email, family) = (format!("{id}@example.com"), format!("F-{family}"));
                let row = (id, "Jane", format!("Doe, \"the {n}th\""), email, family);
                transaction.execute(include_str!("../sql/insert_member.sql"), row)?;
            }
            for n in 1..=BLOCKS_OF_A_FAMILY {
                let row = (format!("B-{family}-{n}"), format!("F-{family}"));
                transaction.execute(include_str!("../sql/insert_block.sql"), row)?;
            }
        }
        transaction.commit()?;
        Ok(Self(db))
    }

    /// Rows that arrived.
    pub(crate) fn dispatched(&self) -> anyhow::Result<u64> {
        self.count(include_str!("../sql/count_dispatched.sql"))
    }

    /// Rows and jobs that are not finished, and dead letters.
    pub(crate) fn open(&self) -> anyhow::Result<u64> {
        self.count(include_str!("../sql/count_open.sql"))
    }

    /// Returns undecodable values, which are kept.
    pub(crate) fn garbage(&self) -> anyhow::Result<u64> {
        self.count(include_str!("../sql/count_garbage.sql"))
    }

    /// Rows that needed more than one attempt.
    pub(crate) fn tried_again(&self) -> anyhow::Result<u64> {
        self.count(include_str!("../sql/count_tried_again.sql"))
    }

    fn count(&self, sql: &str) -> anyhow::Result<u64> {
        let count: u32 = self.0.query_row(sql, (), |row| row.get(0))?;
        Ok(u64::from(count))
    }
}
