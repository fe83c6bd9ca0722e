//! Adopted tables: a trigger copies rows of an application's own table into `relais_outbox` or
//! `relais_inbox`, and results are written back into that table in the transaction that settles the copy.
//!
//! Invariant: relais locks its own rows before rows of the application; a trigger on an adopted table only inserts,
//! and locks no row of relais. So neither side waits for the other in a circle.

/// The statement or template in `adopt/<name>.sql`.
macro_rules! adopt_sql {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/postgres/adopt/", $name, ".sql"))
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

use relais_core::{inspect::AdoptedProblems, store::StoreResult};

use self::script::AdoptScript;
pub(super) use self::{follow::follow, write_back::write_back};
use super::{PostgresStore, error::Failure, session::Client};
use crate::adopt::{
    AdoptedTable, AdoptedTables, Adoption, AdoptionReport, InstallationOutcome, InstalledAdoption,
    all_work, problems_of,
};

/// The adopted tables of a store.
pub(super) type PostgresAdoptions = AdoptedTables<AdoptScript>;

/// Reads the tables again: a column may have been renamed, or a lost one may be back.
async fn refresh(adopted: &PostgresAdoptions, client: &Client<'_>) -> Result<(), Failure> {
    let mut tables = Vec::new();
    for adoption in adopted.descriptions() {
        let found = catalog::read(client, &adoption).await?;
        let script = found.ok().map(|table| Arc::new(AdoptScript::of(&adoption, &table)));
        tables.push(AdoptedTable { adoption, script });
    }
    adopted.set(tables);
    Ok(())
}

/// Repeats installations that failed: a transaction may have held the table for too long.
async fn install_rest(adopted: &PostgresAdoptions, client: &mut Client<'_>) -> Result<(), Failure> {
    let rest = adopted.to_install();
    if !rest.is_empty() {
        let outcome = install::install(client, &rest, install::REPEAT_LOCK_TIMEOUT).await?;
        adopted.install_later(&outcome);
    }
    Ok(())
}

/// Fails with the first problem of each table that does not work; for readiness.
pub(super) async fn check(adopted: &PostgresAdoptions, client: &Client<'_>) -> Result<(), Failure> {
    let reports = install::check(client, &adopted.descriptions()).await?;
    all_work(&reports).map_err(Failure::from)
}

/// Compares the tables of a running program with its configuration; for the metrics.
pub(super) async fn problems(store: &PostgresStore) -> StoreResult<Vec<AdoptedProblems>> {
    match store.shared.adopted.descriptions() {
        none if none.is_empty() => Ok(Vec::new()),
        adoptions => Ok(problems_of(store.check_adoptions(adoptions).await?)),
    }
}

impl PostgresStore {
    /// Makes the store write results of these tables back, and handle their changes. Tables that do not fit are
    /// compared again every 10 seconds; [`Store::check`](relais_core::store::Store::check) reports them.
    pub async fn adopt(&self, adoptions: Vec<Adoption>) -> StoreResult<()> {
        let tables = adoptions.into_iter().map(|adoption| AdoptedTable { adoption, script: None });
        self.shared.adopted.set(tables.collect());
        self.others()
            .run((), |client, shared, ()| {
                Box::pin(async { refresh(&shared.adopted, client).await })
            })
            .await
    }

    /// Compares the tables and their triggers with the description. Changes nothing.
    pub async fn check_adoptions(
        &self,
        adoptions: Vec<Adoption>,
    ) -> StoreResult<Vec<AdoptionReport>> {
        self.others()
            .run(adoptions, |client, _, adoptions| Box::pin(install::check(client, adoptions)))
            .await
    }

    /// Returns the statements that [`Self::install_adoptions`] runs. Changes nothing.
    pub async fn adoption_sql(&self, adoptions: Vec<Adoption>) -> StoreResult<String> {
        self.others()
            .run(adoptions, |client, _, adoptions| Box::pin(install::print(client, adoptions)))
            .await
    }

    /// Creates what each table needs, or replaces it where it differs: one transaction for each table. The first
    /// table that cannot be installed is the error; the others are installed.
    pub async fn install_adoptions(
        &self,
        adoptions: Vec<Adoption>,
    ) -> StoreResult<Vec<InstalledAdoption>> {
        self.install_all(adoptions).await?.all()
    }

    /// Installs as [`Self::install_adoptions`] does. A running store repeats what could not be installed every 10
    /// seconds, for the tables of [`Self::adopt`].
    pub async fn install_repeatedly(
        &self,
        adoptions: Vec<Adoption>,
    ) -> StoreResult<InstallationOutcome> {
        let outcome = self.install_all(adoptions).await?;
        self.shared.adopted.install_later(&outcome);
        Ok(outcome)
    }

    async fn install_all(&self, adoptions: Vec<Adoption>) -> StoreResult<InstallationOutcome> {
        self.others()
            .run(adoptions, |client, _, adoptions| {
                Box::pin(install::install(client, adoptions, install::LOCK_TIMEOUT))
            })
            .await
    }

    /// Removes what an installation created, and changes that are not handled yet. Copies that exist are still
    /// delivered. Returns the table with its schema if it was adopted.
    pub async fn remove_adoption(&self, table: String) -> StoreResult<Option<String>> {
        self.others().run(table, |client, _, table| Box::pin(install::remove(client, table))).await
    }
}
