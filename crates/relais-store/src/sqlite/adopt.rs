//! Adopted tables: triggers copy rows of an application's own table, and results are written back into that table in
//! the transaction that settles the copy.
//!
//! Invariant: a trigger on an adopted table only inserts rows of relais. SQLite has one writer, so no row is locked,
//! and what the write-back of relais itself adds to the changes is removed in the same job.

/// The statement or template in `adopt/<name>.sql`.
macro_rules! adopt_sql {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/sqlite/adopt/", $name, ".sql"))
    };
}

mod catalog;
mod dialect;
mod follow;
mod inbox;
mod install;
mod script;
mod write_back;

use std::sync::Arc;

use relais_core::{
    inspect::AdoptedProblems,
    store::{StoreError, StoreResult},
};
use rusqlite::Connection;

use self::script::AdoptScript;
pub(super) use self::{follow::follow, write_back::write_back};
use super::SqliteStore;
use crate::adopt::{
    AdoptedTable, AdoptedTables, Adoption, AdoptionReport, InstallationOutcome, InstalledAdoption,
    all_work, problems_of,
};

/// The adopted tables of a store.
pub(super) type SqliteAdoptions = AdoptedTables<AdoptScript>;

/// Reads the tables again: a column may have been renamed, or a lost one may be back.
fn refresh(adopted: &SqliteAdoptions, db: &Connection) -> Result<(), StoreError> {
    let mut tables = Vec::new();
    for adoption in adopted.descriptions() {
        let found = catalog::read(db, &adoption)?;
        let script = found.ok().map(|table| Arc::new(AdoptScript::of(&adoption, &table)));
        tables.push(AdoptedTable { adoption, script });
    }
    adopted.set(tables);
    Ok(())
}

/// Compares the tables of a running program with its configuration; for the metrics.
pub(super) async fn problems(store: &SqliteStore) -> StoreResult<Vec<AdoptedProblems>> {
    match store.inner.adopted.descriptions() {
        none if none.is_empty() => Ok(Vec::new()),
        adoptions => Ok(problems_of(store.check_adoptions(adoptions).await?)),
    }
}

impl SqliteStore {
    /// Makes the store write results of these tables back, and handle their changes. Tables that do not fit are
    /// compared again every 10 seconds; [`Store::check`](relais_core::store::Store::check) reports them.
    pub async fn adopt(&self, adoptions: Vec<Adoption>) -> StoreResult<()> {
        let tables = adoptions.into_iter().map(|adoption| AdoptedTable { adoption, script: None });
        self.inner.adopted.set(tables.collect());
        self.refresh_adopted().await
    }

    pub(super) async fn refresh_adopted(&self) -> StoreResult<()> {
        let adopted = Arc::clone(&self.inner.adopted);
        self.readers().read(move |db| refresh(&adopted, db)).await
    }

    /// Fails with the first problem of each table that does not work; for readiness.
    pub(super) async fn check_adopted(&self) -> StoreResult<()> {
        match self.inner.adopted.descriptions() {
            none if none.is_empty() => Ok(()),
            adoptions => all_work(&self.check_adoptions(adoptions).await?),
        }
    }

    /// Compares the tables and their triggers with the description. Changes nothing.
    pub async fn check_adoptions(
        &self,
        adoptions: Vec<Adoption>,
    ) -> StoreResult<Vec<AdoptionReport>> {
        self.readers().read(move |db| install::check(db, &adoptions)).await
    }

    /// Returns the statements that [`Self::install_adoptions`] runs. Changes nothing.
    pub async fn adoption_sql(&self, adoptions: Vec<Adoption>) -> StoreResult<String> {
        self.readers().read(move |db| install::print(db, &adoptions)).await
    }

    /// Creates what each table needs, or replaces it where it differs: one transaction for each table. The first
    /// table that cannot be installed is the error; the others are installed.
    pub async fn install_adoptions(
        &self,
        adoptions: Vec<Adoption>,
    ) -> StoreResult<Vec<InstalledAdoption>> {
        install::install(self.writer(), adoptions).await?.all()
    }

    /// Installs as [`Self::install_adoptions`] does. A running store repeats what could not be installed every 10
    /// seconds, for the tables of [`Self::adopt`].
    pub async fn install_repeatedly(
        &self,
        adoptions: Vec<Adoption>,
    ) -> StoreResult<InstallationOutcome> {
        let outcome = install::install(self.writer(), adoptions).await?;
        self.inner.adopted.install_later(&outcome);
        Ok(outcome)
    }

    /// Removes what an installation created, and changes that are not handled yet. Copies that exist are still
    /// delivered. Returns the table if it was adopted.
    pub async fn remove_adoption(&self, table: String) -> StoreResult<Option<String>> {
        self.writer().run(move |tx| install::remove(tx, &table)).await
    }
}
